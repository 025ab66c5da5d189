"""Compiles a program within a memory limit: predicted plans are compiled one after the other, until XLA's memory fits.

XLA orders kernels so that several can run at once, and copies early what a loop will change. If proportionally smaller
plans take too much as well, XLA is told to use the kernel order of least memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isqrt
from typing import Protocol, TypeVar

from msgspec.structs import replace

from difflang.ir.graph import Graph
from difflang.lower.capacity import Capacity
from difflang.lower.lowering_pipeline import COMPILE
from difflang.passes.pipelines import Pipeline
from difflang.plan.budget_search import NO_MESH, BudgetPlanner, MemoryPlan, predict_buffers

CHECKS = 6  # programs that are compiled before the smallest plan is
PROPORTIONAL = 2  # so many misses shrink the aim in proportion, for each kernel order
# A plan within the limit is followed by a larger one if the limit leaves room for an aim greater by this factor.
SLACK = 1.02
MISSED = 1.3  # the same after a plan that took too much


class CompiledProgram(Protocol):
    """A program compiled by XLA. `orders`: whether the kernel order can be chosen on this device."""

    @property
    def memory_bytes(self) -> int: ...

    @property
    def orders(self) -> bool: ...


T = TypeVar("T", bound=CompiledProgram)
CompiledT = TypeVar("CompiledT", bound=CompiledProgram, covariant=True)


class CompileGraph(Protocol[CompiledT]):
    """Compiles a graph; with `sparing`, in the kernel order of least memory."""

    def __call__(self, graph: Graph, /, *, sparing: bool = False) -> CompiledT: ...


def compile_within_limit(
    graph: Graph,
    limit: int,
    capacity: Capacity,
    make: CompileGraph[T],
    pipeline: Pipeline = COMPILE,
    mesh: Mapping[str, int] = NO_MESH,
) -> tuple[MemoryPlan, T]:
    """The plan of a program within a limit in bytes, 0 for none, and the program that `make` compiles from it.

    If XLA takes more than predicted, the next plan aims lower; if it takes less, one more plan aims higher. On a `mesh`
    the limit is that of each device.
    Errors: DL1012.
    """
    planner, compiled = BudgetPlanner(graph, capacity, pipeline, mesh), dict[tuple[Graph, bool], T]()

    def compile_plan(plan: MemoryPlan, *, sparing: bool) -> T:
        key = plan.graph, sparing
        if key not in compiled:
            compiled[key] = make(plan.graph, sparing=sparing)
        return compiled[key]

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
        # XLA's overhead does not shrink with the plan: from now on aim at the geometric mean with the smallest plan.
        if misses >= PROPORTIONAL:
            aim = min(aim, isqrt(missed * planner.smallest.account.peak))
    return compile_smallest(planner, limit, compile_plan, sparing=sparing)


def with_kernel_order(plan: MemoryPlan, *, sparing: bool) -> MemoryPlan:
    """The plan with the prediction for that kernel order."""
    return replace(plan, account=predict_buffers(plan.graph, low_memory=True)) if sparing else plan


def compile_smallest(
    planners: BudgetPlanner, limit: int, make: Callable[..., T], *, sparing: bool
) -> tuple[MemoryPlan, T]:
    """The smallest plan in that kernel order, or else in the other. Errors: DL1012."""
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
    """A quicker plan that uses the rest of the limit, if it fits, else the given one.

    `tried` holds the aim of this plan, and the aim with which an earlier one took too much, or 0.
    """
    aim = limit * plan.account.peak // max(1, made.memory_bytes)
    aim, slack = (min(aim, tried[1] - 1), MISSED) if tried[1] else (aim, SLACK)
    more = planners.plan(aim) if aim > slack * tried[0] and plan.account.peak < plan.unplanned.peak else None
    if more is None or more.graph is plan.graph:
        return plan, made
    wider = make(more)
    return (more, wider) if wider.memory_bytes <= limit else (plan, made)
