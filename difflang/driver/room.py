"""How much room a program has for functions that call themselves, and how it gets more where that is not enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from difflang.elaborate.context import Session
from difflang.elaborate.failure import Site
from difflang.ir.graph import Graph, inner_first
from difflang.ir.types import History, Type
from difflang.passes.repeated import endless_where_repeated
from difflang.passes.sized import sized

T = TypeVar("T")

ENDLESS = 2**31 - 1  # steps; no array is so long
MORE_FRAMES, MORE_STEPS = 4, 8  # times as many, where there are too few
MOST_FRAMES, MOST_STEPS = 1 << 20, 1 << 24
MOST_INTERPRETED = 1 << 12  # frames: the interpreter copies a stack at every step


@dataclass(frozen=True, slots=True)
class Room:
    """How deep functions may call themselves, and for how many of their steps a derivative keeps something."""

    frames: int
    steps: int

    def more(self, site: Site, most: int = MOST_FRAMES) -> Room | None:
        """More of what there was too little of; `None` where there cannot be more, or it was something else."""
        if not site.room:
            return None
        if site.room == "frames":
            return replace(self, frames=self.frames * MORE_FRAMES) if self.frames < most else None
        return replace(self, steps=self.steps * MORE_STEPS) if self.steps < MOST_STEPS else None


LITTLE = Room(64, 4096)


class Elastic(Generic[T]):
    """What runs a graph: made for little room at first, and anew for more when a run asks for it."""

    def __init__(self, make: Callable[[Room], T], room: Room = LITTLE) -> None:
        self.make, self.room = make, room
        self.made = make(room)

    def grows(self, session: Session, number: int, *, interpreted: bool = False) -> bool:
        """Whether the check with that number failed for want of room, and there is more now."""
        more = self.room.more(session.sites[number - 1], MOST_INTERPRETED if interpreted else MOST_FRAMES)
        if more is not None:
            self.room, self.made = more, self.make(more)
        return more is not None


def with_room(graph: Graph, room: Room) -> Graph:
    """The graph with room in numbers; a graph without recursion as it is. Inside loops any number of steps is taken."""
    numbers = {"frames": room.frames, "steps": room.steps}
    return sized(endless_where_repeated(graph), numbers.__getitem__)


def keeps_steps(graph: Graph) -> bool:
    """Whether a graph keeps something for each of `ENDLESS` many steps."""
    graphs, _ = inner_first(graph)
    return any(is_endless(r.type) for g in graphs for eqn in g.eqns for r in eqn.results)


def is_endless(type: Type) -> bool:
    return not isinstance(type, History) and ENDLESS in type.shape
