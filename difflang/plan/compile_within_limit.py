"""The plan of a program under a limit that XLA keeps to: predictions propose one after the other, XLA is asked.

XLA orders kernels so that several can run at once, and copies early what a loop will change. Where a plan that is
smaller in proportion takes too much as well, it is told to take the order of least memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isqrt
from typing import Protocol, TypeVar

from msgspec.structs import replace

from difflang.ir.graph import Graph
from difflang.lower.capacity import Capacity
from difflang.plan.budget_search import BudgetPlanner, MemoryPlan

CHECKS = 6  # programs that are compiled before the smallest plan is
PROPORTIONAL = 2  # so many that take too much are seen to in proportion, by each order of kernels
SLACK = 1.02  # so much less than predicted is worth another plan,
MISSED = 1.3  # or where one took too much


class CompiledProgram(Protocol):
    """What XLA made of a program. `orders`: whether it can be told the order of kernels there."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def orders(self) -> bool: ...


T = TypeVar("T", bound=CompiledProgram)
CompiledT = TypeVar("CompiledT", bound=CompiledProgram, covariant=True)


class CompileGraph(Protocol[CompiledT]):
    """What compiles a graph; `sparing`, with kernels in the order that takes the least memory."""

    def __call__(self, graph: Graph, /, *, sparing: bool = False) -> CompiledT: ...


def compile_within_limit(graph: Graph, limit: int, capacity: Capacity, make: CompileGraph[T]) -> tuple[MemoryPlan, T]:
    """The plan of a program under a limit of so many bytes, 0 for none, and what `make` compiles it to.

    Where XLA takes more than was predicted, the plan is made again for less; where it takes less, for more, once.
    Errors: DL1012.
    """
    planner, once = BudgetPlanner(graph, capacity), dict[tuple[Graph, bool], T]()

    def compile_plan(plan: MemoryPlan, *, sparing: bool) -> T:
        key = plan.graph, sparing
        if key not in once:
            once[key] = make(plan.graph, sparing=sparing)
        return once[key]

    aim, missed, misses, sparing = limit, 0, 0, False
    for _ in range(CHECKS):
        plan = planner.plan(aim) or planner.smallest
        made = compile_plan(plan, sparing=sparing)
        if not limit:
            return plan, made
        if made.memory_bytes <= limit:
            return try_larger_plan(planner, limit, (aim, missed), plan, made, partial(compile_plan, sparing=sparing))
        if plan.graph is planner.smallest.graph:
            break
        misses += 1
        if misses == PROPORTIONAL and made.orders and not sparing:
            aim, missed, misses, sparing = limit, 0, 0, True
            continue
        missed = min(aim, plan.account.peak)
        aim = missed * limit // made.memory_bytes
        if misses >= PROPORTIONAL:  # what XLA takes besides does not shrink with the plan
            aim = min(aim, isqrt(missed * planner.smallest.account.peak))
    return compile_smallest(planner, limit, compile_plan, sparing=sparing)


def with_kernel_order(plan: MemoryPlan, *, sparing: bool) -> MemoryPlan:
    """The plan as predicted for that order of kernels."""
    from difflang.runtime.predict_memory import predict_memory

    return replace(plan, account=predict_memory(plan.graph, low_memory=True)) if sparing else plan


def compile_smallest(
    planners: BudgetPlanner, limit: int, make: Callable[..., T], *, sparing: bool
) -> tuple[MemoryPlan, T]:
    """The smallest plan in that order of kernels, or else in the other. Errors: DL1012."""
    made = make(planners.smallest, sparing=sparing)
    if made.memory_bytes > limit and made.orders:
        made = min(made, make(planners.smallest, sparing=not sparing), key=lambda m: m.memory_bytes)
    return (planners.smallest, made) if made.memory_bytes <= limit else planners.refuse(limit, made.memory_bytes)


def try_larger_plan(
    planners: BudgetPlanner,
    limit: int,
    tried: tuple[int, int],
    plan: MemoryPlan,
    made: T,
    make: Callable[[MemoryPlan], T],
) -> tuple[MemoryPlan, T]:
    """What is quicker, if it fits: the plan for an aim wider by as much as is left of the limit. `tried`: the aim of
    this plan, and that with which the one before it took too much, if there was one.
    """
    aim = limit * plan.account.peak // max(1, made.memory_bytes)
    aim, enough = (min(aim, tried[1] - 1), MISSED) if tried[1] else (aim, SLACK)
    more = planners.plan(aim) if aim > enough * tried[0] and plan.account.peak < plan.unplanned.peak else None
    if more is None or more.graph is plan.graph:
        return plan, made
    wider = make(more)
    return (more, wider) if wider.memory_bytes <= limit else (plan, made)
