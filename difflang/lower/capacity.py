"""How much room a program has, for functions that call themselves and for what loops yield, and how it gets more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from difflang.base.check_sites import CheckSite, CheckTable
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Type
from difflang.passes.substitute_dims import CAPACITY_PREFIX, DimValues, substitute_graph_dims

T = TypeVar("T")

UNBOUNDED = 2**31 - 1  # steps; no array is so long
GROWTH = {"frames": 4, "steps": 8, "items": 8}  # times as many, where there are too few
MAX_CAPACITY = {"frames": 1 << 20, "steps": 1 << 24, "items": 1 << 24}
CAPACITY_LABELS = {"frames": "nested calls", "steps": "steps of reverse-mode loops"}
MAX_INTERPRETED_FRAMES = 1 << 12  # frames: the interpreter copies a stack at every step


class Capacity(Struct, frozen=True):
    """How deep functions may call themselves, for how many of their steps a derivative keeps something, and how many
    items a loop yields where they are held in arrays."""

    frames: int
    steps: int
    items: int = 256

    def grown(self, site: CheckSite, *, interpreted: bool = False) -> Capacity | None:
        """More of what there was too little of; `None` where there cannot be more, or it was something else."""
        if not site.capacity:
            return None
        now = asdict(self)[site.capacity]
        most = MAX_INTERPRETED_FRAMES if interpreted and site.capacity == "frames" else MAX_CAPACITY[site.capacity]
        return replace(self, **{site.capacity: now * GROWTH[site.capacity]}) if now < most else None


INITIAL_CAPACITY = Capacity(64, 4096)


class Growable(Generic[T]):
    """What runs a graph: made for little room at first, and anew for more when a run asks for it."""

    def __init__(self, make: Callable[[Capacity], T], room: Capacity = INITIAL_CAPACITY) -> None:
        self.build, self.capacity = make, room
        self.made = make(room)

    def grow(self, checks: CheckTable, number: int, *, interpreted: bool = False) -> bool:
        """Whether the check with that number failed for want of room, and there is more now."""
        more = self.capacity.grown(checks.sites[number - 1], interpreted=interpreted)
        if more is not None:
            self.capacity, self.made = more, self.build(more)
        return more is not None


def with_capacity(graph: Graph, room: Capacity, *, arrays: bool = False) -> Graph:
    """The graph with room in numbers; a graph that needs none as it is. Inside loops any number of steps is taken.

    What loops yield is held in histories, which need no room, unless `arrays` are asked for or it cannot be.
    """
    from difflang.passes.dynamic_loop_outputs import arrays_to_histories
    from difflang.recursion.drop_step_limit_in_loops import drop_step_limit_in_loops

    freely = None if arrays else arrays_to_histories(graph)
    return substitute_graph_dims(drop_step_limit_in_loops(graph if freely is None else freely), capacity_numbers(room))


def capacity_numbers(room: Capacity) -> DimValues:
    """The names of room as numbers."""
    told = asdict(room)
    return lambda n: told[n.removeprefix(CAPACITY_PREFIX)]


def capacities_used(graph: Graph, room: Capacity) -> dict[str, int]:
    """What of `ASKED` a graph has room for, and for how much; steps only where a derivative goes back."""
    found: set[str] = set()
    number = capacity_numbers(room)

    def record(name: str) -> Dim:
        found.add(name.removeprefix(CAPACITY_PREFIX))
        return number(name)

    substitute_graph_dims(graph, record)
    if not any(eqn.op.name == "vjp" for inner in graphs_postorder(graph)[0] for eqn in inner.eqns):
        found.discard("steps")
    return {key: amount for key, amount in asdict(room).items() if key in found & CAPACITY_LABELS.keys()}


def describe_capacity(room: Mapping[str, int]) -> str:
    return ", and ".join(f"{room[key]:,} {text}" for key, text in CAPACITY_LABELS.items() if key in room)


def stores_unbounded_steps(graph: Graph) -> bool:
    """Whether a graph keeps something for each of `ENDLESS` many steps."""
    graphs, _ = graphs_postorder(graph)
    return any(is_unbounded(r.type) for g in graphs for eqn in g.eqns for r in eqn.results)


def is_unbounded(type: Type) -> bool:
    return not isinstance(type, History) and UNBOUNDED in type.shape
