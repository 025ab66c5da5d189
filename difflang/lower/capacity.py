"""How much room a program has, for functions that call themselves and for what loops yield, and how it gets more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from difflang.base.check_sites import Checks, Site
from difflang.ir.graph import Graph, inner_first
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Type
from difflang.passes.substitute_dims import ROOM, Numbers, sized

T = TypeVar("T")

ENDLESS = 2**31 - 1  # steps; no array is so long
MORE = {"frames": 4, "steps": 8, "items": 8}  # times as many, where there are too few
MOST = {"frames": 1 << 20, "steps": 1 << 24, "items": 1 << 24}
ASKED = {"frames": "calls within one another", "steps": "steps where a derivative goes back"}
MOST_INTERPRETED = 1 << 12  # frames: the interpreter copies a stack at every step


class Room(Struct, frozen=True):
    """How deep functions may call themselves, for how many of their steps a derivative keeps something, and how many
    items a loop yields where they are held in arrays."""

    frames: int
    steps: int
    items: int = 256

    def more(self, site: Site, *, interpreted: bool = False) -> Room | None:
        """More of what there was too little of; `None` where there cannot be more, or it was something else."""
        if not site.room:
            return None
        now = asdict(self)[site.room]
        most = MOST_INTERPRETED if interpreted and site.room == "frames" else MOST[site.room]
        return replace(self, **{site.room: now * MORE[site.room]}) if now < most else None


LITTLE = Room(64, 4096)


class Elastic(Generic[T]):
    """What runs a graph: made for little room at first, and anew for more when a run asks for it."""

    def __init__(self, make: Callable[[Room], T], room: Room = LITTLE) -> None:
        self.make, self.room = make, room
        self.made = make(room)

    def grows(self, checks: Checks, number: int, *, interpreted: bool = False) -> bool:
        """Whether the check with that number failed for want of room, and there is more now."""
        more = self.room.more(checks.sites[number - 1], interpreted=interpreted)
        if more is not None:
            self.room, self.made = more, self.make(more)
        return more is not None


def with_room(graph: Graph, room: Room, *, arrays: bool = False) -> Graph:
    """The graph with room in numbers; a graph that needs none as it is. Inside loops any number of steps is taken.

    What loops yield is held in histories, which need no room, unless `arrays` are asked for or it cannot be.
    """
    from difflang.passes.dynamic_loop_outputs import as_histories
    from difflang.recursion.drop_step_limit_in_loops import endless_where_repeated

    freely = None if arrays else as_histories(graph)
    return sized(endless_where_repeated(graph if freely is None else freely), numbers_of(room))


def numbers_of(room: Room) -> Numbers:
    """The names of room as numbers."""
    told = asdict(room)
    return lambda n: told[n.removeprefix(ROOM)]


def asked(graph: Graph, room: Room) -> dict[str, int]:
    """What of `ASKED` a graph has room for, and for how much; steps only where a derivative goes back."""
    found: set[str] = set()
    number = numbers_of(room)

    def noted(name: str) -> Dim:
        found.add(name.removeprefix(ROOM))
        return number(name)

    sized(graph, noted)
    if not any(eqn.op.name == "vjp" for inner in inner_first(graph)[0] for eqn in inner.eqns):
        found.discard("steps")
    return {key: amount for key, amount in asdict(room).items() if key in found & ASKED.keys()}


def in_words(room: Mapping[str, int]) -> str:
    return ", and ".join(f"{room[key]:,} {text}" for key, text in ASKED.items() if key in room)


def keeps_steps(graph: Graph) -> bool:
    """Whether a graph keeps something for each of `ENDLESS` many steps."""
    graphs, _ = inner_first(graph)
    return any(is_endless(r.type) for g in graphs for eqn in g.eqns for r in eqn.results)


def is_endless(type: Type) -> bool:
    return not isinstance(type, History) and ENDLESS in type.shape
