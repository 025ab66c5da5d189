"""A program told how much room it needs at certain arguments, for those who take derivatives of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from difflang.driver.elaborate_call import ElaboratedCall
from difflang.elaborate.context import Session
from difflang.execution.check_failures import DETAIL_RESULTS
from difflang.ir.interpreter import evaluate, evaluate_with_limit
from difflang.lower.capacity import INITIAL_CAPACITY, Capacity, with_capacity
from difflang.lower.lowering_pipeline import finalize_graph

FIRST_STEPS = 1 << 16


def with_fitted_capacity(
    session: Session, entry: ElaboratedCall, arrays: Sequence[Any], most: int | None = None
) -> ElaboratedCall:
    """The same with numbers for frames, steps and items, as many as the run at these arrays takes.

    Where that cannot be had the run fails, as it would anywhere. Errors: Endless where it takes `most` operations.
    Cost: runs in the interpreter, if there is recursion, or a loop of unknown length yields.
    """
    room: Capacity | None = Capacity(INITIAL_CAPACITY.frames, FIRST_STEPS)
    told = entry
    while room is not None:
        told = replace(entry, graph=with_capacity(entry.graph, room, arrays=True))
        if told.graph is entry.graph:
            return entry
        graph = finalize_graph(told.graph)
        results = evaluate(graph, *arrays) if most is None else evaluate_with_limit(most, graph, *arrays)
        site = int(results[-1 - DETAIL_RESULTS]) if entry.fails else 0
        room = room.grown(session.sites[site - 1], interpreted=True) if site else None
    return told
