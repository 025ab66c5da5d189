"""Fits the capacities of growable buffers to a call's arguments, so that derivatives of its graph can be taken."""

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

# Each growth costs another run in the interpreter, and a large start only memory.
FIRST_STEPS = 1 << 16


def with_fitted_capacity(
    session: Session, entry: ElaboratedCall, arrays: Sequence[Any], most: int | None = None
) -> ElaboratedCall:
    """The same call with capacities for frames, steps and items as large as a run at these arrays needs.

    If that is not possible the run fails as it would anywhere. Errors: StepLimitExceeded after `most` operations.
    Cost: runs in the interpreter, if there is recursion or a loop of unknown length that yields.
    """
    capacity: Capacity | None = Capacity(INITIAL_CAPACITY.frames, FIRST_STEPS)
    sized = entry
    while capacity is not None:
        sized = replace(entry, graph=with_capacity(entry.graph, capacity, arrays=True))
        if sized.graph is entry.graph:
            return entry
        graph = finalize_graph(sized.graph)
        results = evaluate(graph, *arrays) if most is None else evaluate_with_limit(most, graph, *arrays)
        site = int(results[-1 - DETAIL_RESULTS]) if entry.fails else 0
        capacity = capacity.grown(session.sites[site - 1], interpreted=True) if site else None
    return sized
