"""The road of a graph, in order: optimize, differentiate, optimize. Elaboration comes before it, lowering after."""

from __future__ import annotations

from msgspec.structs import replace

from difflang.ad.expand_derivatives import differentiate, expanded
from difflang.ir.graph import Graph, inner_first
from difflang.ir.tensor_types import History
from difflang.lower.capacity import ENDLESS, LITTLE, Room, keeps_steps, with_room
from difflang.lower.check_history_reads import astray
from difflang.ops.control.print_effect import explaining, printing
from difflang.passes.pipelines import optimized_whole, tidied


def finished(graph: Graph, room: Room = LITTLE, *, explained: bool = False) -> Graph:
    """The graph as it is lowered: no derivative equation is left, and nothing is computed twice or for nothing.

    It says what the program prints, or if it is to be `explained` the messages of its checks and nothing else.
    Functions that call themselves have that `room`. What keeps nothing for each of their steps may take any number.
    What loops yield has it where a history is read elsewhere than beside its maker, and what is moved to a host.
    """
    graph = explaining(graph) if explained else printing(graph)
    steps, arrays = ENDLESS, False
    while True:
        done = lowerable(with_room(graph, replace(room, steps=steps), arrays=arrays))
        if keeps_steps(done):
            steps = room.steps
        elif not arrays and (astray(done) or moves_histories(done)):
            arrays = True
        else:
            return done


def moves_histories(graph: Graph) -> bool:
    """Whether a loop keeps what it is told to move to the host as a history, which is nowhere."""
    loops = [e for g in inner_first(graph)[0] for e in g.eqns if e.attrs.get("host")]
    return any(isinstance(r.type, History) for e in loops for r in e.results)


def lowerable(graph: Graph) -> Graph:
    return optimized_whole(differentiate(tidied(graph, written_out=True)))


def derived(graph: Graph, room: Room = LITTLE) -> Graph:
    """The graph without derivative equations. What they differentiate is tidied first, so that little is derived."""
    return differentiate(tidied(with_room(printing(graph), room)))


def derivable(graph: Graph, room: Room = LITTLE) -> Graph:
    """The same, rules of functions kept: for what is differentiated further."""
    return expanded(tidied(with_room(printing(graph), room)))


STAGES = ("ir", "derived", "optimized")


def staged(graph: Graph, stage: str) -> Graph:
    """The graph at a stage: as elaborated, without derivative equations, or as it is lowered.

    Errors: ValueError for another stage.
    """
    match stage:
        case "ir":
            return graph
        case "derived":
            return derived(graph)
        case "optimized":
            return finished(graph)
        case _:
            raise ValueError(f"there is no stage {stage!r}: the stages are {', '.join(STAGES)}")
