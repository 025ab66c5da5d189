"""A program told how much room it needs at certain arguments, for those who take derivatives of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from difflang.driver.elaborate_call import Entry
from difflang.elaborate.context import Session
from difflang.execution.check_failures import NUMBERS
from difflang.ir.interpreter import evaluate, evaluate_within
from difflang.lower.capacity import LITTLE, Room, with_room
from difflang.lower.lowering_pipeline import finished

STEPS = 1 << 16


def with_enough_room(session: Session, entry: Entry, arrays: Sequence[Any], most: int | None = None) -> Entry:
    """The same with numbers for frames, steps and items, as many as the run at these arrays takes.

    Where that cannot be had the run fails, as it would anywhere. Errors: Endless where it takes `most` operations.
    Cost: runs in the interpreter, if there is recursion, or a loop of unknown length yields.
    """
    room: Room | None = Room(LITTLE.frames, STEPS)
    told = entry
    while room is not None:
        told = replace(entry, graph=with_room(entry.graph, room, arrays=True))
        if told.graph is entry.graph:
            return entry
        graph = finished(told.graph)
        results = evaluate(graph, *arrays) if most is None else evaluate_within(most, graph, *arrays)
        site = int(results[-1 - NUMBERS]) if entry.fails else 0
        room = room.more(session.sites[site - 1], interpreted=True) if site else None
    return told
