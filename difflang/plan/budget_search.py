"""Memory planning for reverse mode: chooses what each loop and segment saves, so that the peak stays within a budget.

Each loop and each segment of straight-line code has several save policies (see `save_policies`). The bytes of a policy
come from the memory prediction. The time of recomputation is estimated from flops and bytes, for the states of loops by
the closed form in `binomial_schedule`. The best combination is an integer program. Policies in the program itself stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.byte_sizes import tightest_limit
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.lower.capacity import INITIAL_CAPACITY, Capacity, capacities_used, describe_capacity
from difflang.lower.lowering_pipeline import COMPILE, COMPILE_ON_MESH, finalize_graph
from difflang.ops.control.derivative_operators import vjp
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.residual_selection import has_symbolic_size, total_bytes
from difflang.passes.dce import dce
from difflang.passes.pipelines import Pipeline
from difflang.plan.budget_errors import budget_error
from difflang.plan.checkpoint_segments import CheckpointSegment
from difflang.plan.knapsack import OptionTable, solve_knapsack
from difflang.plan.save_policies import (
    MIN_SLOTS,
    SAVE_ALL,
    SLOT_COUNTS,
    Policies,
    PolicyChoice,
    SavePolicy,
    Segmentation,
    Site,
    apply_policies,
    best_segments,
    choosable_loops,
    estimated_work,
    inline_reverse_bodies,
    loop_policies,
    min_cut_bytes,
    min_memory_slots,
    pareto_front,
    partial_policies,
    recompute_work,
    replace_regions,
    residual_bytes,
    reverse_bodies,
)
from difflang.plan.sink_into_loops import sink_into_loops
from difflang.plan.split_loop_tail import is_splittable

if TYPE_CHECKING:
    from difflang.lower.buffer_assignment import BufferAssignment

NO_MESH: Mapping[str, int] = MappingProxyType({})  # one device
UNKNOWN_LENGTH = 4096  # assumed steps of a loop of unknown length
MAX_TRIES = 12  # integer programs, since policies may take more memory together than one by one
# Tried in order, until one has a plan within the budget.
SEGMENTATIONS = (
    Segmentation(),
    Segmentation(0, deep=1),
    Segmentation(1, deep=1),
    Segmentation(sunk=True),
    Segmentation(0, deep=1, sunk=True),
)
FULL = 0.95  # of the limit: a plan that uses so much of it is not improved further
# The relative extra cost of recomputing the last segment: recomputed late, it frees less memory for the others.
LATE_COST = 1e-3


class MemoryPlan(Struct, frozen=True, eq=False):
    """A program to be compiled, with its predicted buffers, and those of the program that saves everything."""

    graph: Graph
    account: BufferAssignment
    unplanned: BufferAssignment
    choices: tuple[PolicyChoice, ...] = ()
    greedy: bool = False  # the integer program was not solved to the end


def memory_limit(graph: Graph, budget: int = 0) -> int:
    """The tightest memory limit of the reverse-mode derivatives in a graph, with the caller's; 0 for none."""
    limits = [e.attrs.get("limit", 0) for g in graphs_postorder(graph)[0] for e in g.eqns if e.op is vjp]
    return tightest_limit(*limits, budget) if limits else 0


def plan_memory(
    graph: Graph, limit: int, capacity: Capacity = INITIAL_CAPACITY, mesh: Mapping[str, int] = NO_MESH
) -> MemoryPlan:
    """The program of a graph within a limit in bytes, 0 for none, as predicted; on a `mesh`, the limit of each device.

    Errors: DL1012.
    """
    planners = BudgetPlanner(graph, capacity, mesh=mesh)
    return planners.plan(limit) or planners.refuse(limit)


class BudgetPlanner:
    """Plans for one graph, with one segmentation of its straight-line code after the other."""

    def __init__(
        self,
        graph: Graph,
        capacity: Capacity,
        pipeline: Pipeline = COMPILE,
        mesh: Mapping[str, int] = NO_MESH,
    ) -> None:
        self.graph, self.capacity, self.mesh = graph, capacity, mesh
        self.pipeline = COMPILE_ON_MESH if mesh else pipeline
        self.planners: list[SegmentedPlanner] = []

    def __iter__(self) -> Iterator[SegmentedPlanner]:
        for i, cutting in enumerate(SEGMENTATIONS):
            if i == len(self.planners):
                first = self.planners[0] if i else None
                self.planners.append(
                    SegmentedPlanner(self.graph, self.capacity, cutting, first, self.pipeline, self.mesh)
                )
            if i == 0 or self.planners[i].differs:
                yield self.planners[i]

    def plan(self, limit: int) -> MemoryPlan | None:
        """The first plan within a limit, as predicted; None if there is none."""
        return next((plan for planner in self if (plan := planner.plan(limit)) is not None), None)

    @cached_property
    def smallest(self) -> MemoryPlan:
        return min([planner.smallest for planner in self], key=lambda p: p.account.peak)

    def refuse(self, limit: int, least: int = 0) -> NoReturn:
        """Errors: DL1012."""
        capacity, predicted = describe_capacity(capacities_used(self.graph, self.capacity)), self.smallest.account
        raise budget_error(self.graph, limit, predicted, least or predicted.peak, capacity, predicted=not least)


class SegmentedPlanner:
    """Plans for one graph with one segmentation of its straight-line code."""

    def __init__(
        self,
        graph: Graph,
        capacity: Capacity,
        cutting: Segmentation = SEGMENTATIONS[0],
        like: SegmentedPlanner | None = None,
        pipeline: Pipeline = COMPILE,
        mesh: Mapping[str, int] = NO_MESH,
    ) -> None:
        self.pipeline, self.mesh = pipeline, mesh
        self.elaborated, self.capacity, self.cutting = graph, capacity, cutting
        self.like = like
        if like is not None:
            self.baseline = like.baseline
        self.cache: dict[tuple[SavePolicy, ...], tuple[Graph, BufferAssignment]] = {}

    @cached_property
    def graph(self) -> Graph:
        if self.like is None:
            return inline_reverse_bodies(self.elaborated)
        if not self.cutting.sunk:
            return self.like.graph
        bodies = {a: b for a in reverse_bodies(self.like.graph) if (b := sink_into_loops(a)) is not a}
        return replace_regions(self.like.graph, bodies) if bodies else self.like.graph

    @property
    def differs(self) -> bool:
        """Whether it offers choices that the first segmentation lacks: segments, or arrays sunk into loops."""
        assert self.like is not None
        if self.cutting.sunk and self.graph is self.like.graph:
            return False
        return bool(self.segments) or (self.cutting.sunk and not self.cutting.deep)

    @cached_property
    def loops(self) -> list[Eqn]:
        return choosable_loops(self.graph)

    @cached_property
    def segments(self) -> list[CheckpointSegment]:
        return [piece for body in reverse_bodies(self.graph) for piece in best_segments(body, self.cutting)]

    @property
    def sites(self) -> list[Site]:
        return [*self.loops, *self.segments]

    @cached_property
    def baseline(self) -> tuple[Graph, BufferAssignment]:
        """The program that saves everything, and its predicted buffers."""
        return self.with_buffers(self.elaborated)

    def finalize(self, policies: Policies) -> tuple[Graph, BufferAssignment]:
        """The finished graph for these policies, and its predicted buffers."""
        key = tuple([policies.get(site, SAVE_ALL) for site in self.sites])
        if all(policy.as_usual for policy in key) and not self.cutting.sunk:
            return self.baseline
        if key not in self.cache:
            self.cache[key] = self.with_buffers(apply_policies(self.graph, policies, self.cutting.deep))
        return self.cache[key]

    def with_buffers(self, graph: Graph) -> tuple[Graph, BufferAssignment]:
        done = finalize_graph(graph, self.capacity, pipeline=self.pipeline)
        return done, predict_buffers(done, mesh=self.mesh)

    def peak(self, policies: Policies) -> int:
        return self.finalize(policies)[1].peak

    def plan_with(self, policies: Policies, *, greedy: bool = False) -> MemoryPlan:
        graph, account = self.finalize(policies)
        loops = [PolicyChoice(e.span, policies.get(e, SAVE_ALL)) for e in self.loops]
        pieces = [
            PolicyChoice(p.span, w, loop=False) for p in self.segments if not (w := policies.get(p, SAVE_ALL)).as_usual
        ]
        return MemoryPlan(graph, account, self.baseline[1], (*loops, *pieces), greedy)

    @cached_property
    def baseline_plan(self) -> MemoryPlan:
        return MemoryPlan(*self.baseline, self.baseline[1])

    @cached_property
    def fewest(self) -> dict[Site, SavePolicy]:
        """For each site the policy of least memory: few states of a loop, only the inputs of a segment."""
        return {
            site: SavePolicy(residuals="nothing") if isinstance(site, CheckpointSegment) else min_state_policy(site)
            for site in self.sites
        }

    @cached_property
    def smallest(self) -> MemoryPlan:
        """The plan of least memory, of three: all sites save as little as they can, or loops alone, or none."""
        found = [self.baseline_plan]
        for sites in (self.sites, self.loops):
            if sites:
                found.append(self.plan_with({site: self.fewest[site] for site in sites}))
        return min(found, key=lambda p: p.account.peak)

    @cached_property
    def tables(self) -> list[OptionTable[SavePolicy]]:
        """The options of each site, in order; their bytes are extra to the plan where all sites save the least."""
        return [*map(self.loop_table, self.loops), *self.segment_tables()]

    def plan(self, limit: int) -> MemoryPlan | None:
        """The plan of least time within a limit, as predicted; None if there is none."""
        if not limit or self.baseline_plan.account.peak <= limit:
            return self.baseline_plan
        if self.smallest.account.peak > limit:
            return None
        return self.search(limit, one_by_one=False) or self.search(limit, one_by_one=True) or self.fallback

    def search(self, limit: int, *, one_by_one: bool) -> MemoryPlan | None:
        """The quickest plan within a limit that a sequence of integer programs finds."""
        # In nested loops, policies may take more together than one by one. Then the next integer program gets a smaller
        # budget, or with `one_by_one` each picked policy counts more bytes. A plan that leaves memory free is followed
        # by one with a larger budget.
        tables, byte_budget = self.tables, limit - self.peak(self.fewest)
        found: MemoryPlan | None = None
        seen: set[tuple[int, ...]] = set()
        for _ in range(MAX_TRIES):
            picks, greedy = solve_knapsack(tables, byte_budget)
            if picks is None or (found is not None and tuple(picks) in seen):
                return found
            seen.add(tuple(picks))
            plan = self.plan_with(
                {site: t.options[i] for site, t, i in zip(self.sites, tables, picks, strict=True)}, greedy=greedy
            )
            over = plan.account.peak - limit
            if over <= 0:
                found = plan
                if one_by_one or plan.account.peak > FULL * limit:
                    return found
                byte_budget -= over
            elif found is not None:
                return found
            elif one_by_one:
                tables = [t.with_extra_bytes(i, (over + 1) / len(picks)) for t, i in zip(tables, picks, strict=True)]
            else:
                byte_budget -= over
        return found

    @property
    def fallback(self) -> MemoryPlan:
        """The plan that fits if any does, though a quicker one may fit as well."""
        return replace(self.smallest, greedy=True)

    # ---- Bytes and times of policies

    def loop_table(self, eqn: Eqn) -> OptionTable[SavePolicy]:
        """The save policies of a loop, with their bytes and times."""
        length, least = eqn.attrs["length"], self.peak(self.fewest)
        known = isinstance(length, int)
        steps = length if known else UNKNOWN_LENGTH
        step = estimated_work(eqn) / max(1, steps) if known else estimated_work(eqn)
        bytes_of = self.bytes_model(eqn, least)
        rest = self.work_for_what_is_read(eqn)
        policies = pareto_front([
            (bytes_of(policy), recomputed * step + (0 if policy.segment_steps else steps * rest), policy)
            for policy, recomputed in loop_policies(steps, is_static=known)
            if known or policy.slots >= self.fewest[eqn].slots
        ])  # fmt: skip
        whole = self.peak({**self.fewest, eqn: SAVE_ALL}) - least
        for policy in [SavePolicy(residuals="nothing"), SavePolicy(residuals="least")] if known else []:
            takes = self.peak({**self.fewest, eqn: policy}) - least
            # Next to inner loops that save more, saving nothing may still take less.
            if takes < whole or policy.residuals == "nothing":
                recomputed = steps * recompute_work(eqn.regions[0].eqns, policy.residuals)
                policies.append((takes, recomputed, policy))
                if takes < whole and is_splittable(eqn):
                    policies += self.split_loop_policies(eqn, policy, (takes, whole), recomputed)
        bytes, times, kept = zip(*policies, (whole, 0.0, SAVE_ALL), strict=True)
        return OptionTable(list(kept), list(bytes), list(times))

    def split_loop_policies(
        self, eqn: Eqn, policy: SavePolicy, ends: tuple[float, float], recomputed: float
    ) -> list[tuple[float, float, SavePolicy]]:
        """The policies of a split loop whose last steps save everything."""
        # Their bytes lie on a line between both ends, plus the overhead of two loops, measured in the middle.
        (takes, whole), steps = ends, eqn.attrs["length"]
        policies = partial_policies(policy, steps)
        middle = policies[len(policies) // 2]

        def line(policy: SavePolicy) -> float:
            return takes + (whole - takes) * policy.last / steps

        more = self.peak({**self.fewest, eqn: middle}) - self.peak(self.fewest) - line(middle)
        found = [(line(w) + max(0.0, more), recomputed * (1 - w.last / steps), w) for w in policies]
        return [policy for policy in found if policy[0] < whole]

    def work_for_what_is_read(self, eqn: Eqn) -> float:
        """The time to recompute the residuals of one step from its state."""
        policy = self.probe_policy(eqn)
        done, _ = self.finalize({**self.fewest, eqn: policy})
        found = [
            e
            for g in graphs_postorder(done)[0]
            for e in g.eqns
            if e.op is loop and e.attrs.get("keep") == policy.keep_attr
        ]
        total = 0.0
        for e in found:
            histories = e.attrs.get("history_outputs", 0)
            step = e.regions[0]
            if histories and not e.attrs["reverse"]:
                total += sum(
                    [estimated_work(inner) for inner in dce(step.with_results(step.results[-histories:])).eqns]
                )
        return total

    def probe_policy(self, eqn: Eqn) -> SavePolicy:
        """A policy with a number of slots by which the loop is found again in the finished graph."""
        length = eqn.attrs["length"]
        return SavePolicy(
            max(MIN_SLOTS + 1, min(SLOT_COUNTS[-1], length - 1 if isinstance(length, int) else SLOT_COUNTS[-1]))
        )

    def bytes_model(self, eqn: Eqn, least: int) -> Callable[[SavePolicy], float]:
        """The bytes of a policy that saves states, beyond the least: a line through two predictions."""
        length = eqn.attrs["length"]

        def line(fewest_states: SavePolicy, most_states: SavePolicy, distance: int) -> tuple[float, float]:
            low, high = [self.peak({**self.fewest, eqn: policy}) - least for policy in (fewest_states, most_states)]
            return low, (high - low) / distance

        probe, fewest_states = self.probe_policy(eqn), self.fewest[eqn].slots
        _, by_state = line(SavePolicy(fewest_states), probe, probe.slots - fewest_states)
        if not isinstance(length, int):
            return lambda policy: by_state * (policy.slots - fewest_states)
        far = max(2, length // 2)
        at, by_step = line(SavePolicy(1, segment_steps=1), SavePolicy(1, segment_steps=far), far - 1)
        return lambda policy: (
            at + by_state * (policy.slots - 1) + by_step * (policy.segment_steps - 1)
            if policy.segment_steps
            else by_state * (policy.slots - fewest_states)
        )

    def segment_tables(self) -> list[OptionTable[SavePolicy]]:
        """The save policies of each segment, with their bytes and times."""
        # A prediction for each segment would take too long: the bytes of all together are predicted once, and shared
        # out in proportion to the residuals of each.
        if not self.segments:
            return []
        least, found, kinds = (
            self.peak(self.fewest),
            list[OptionTable[SavePolicy]](),
            (SavePolicy(residuals="least"), SAVE_ALL),
        )
        together = [self.peak({**self.fewest, **dict.fromkeys(self.segments, policy)}) - least for policy in kinds]
        parts = [[min_cut_bytes(p) for p in self.segments], [residual_bytes(p.eqns) for p in self.segments]]
        for i, piece in enumerate(self.segments):
            shares = [t * part[i] / max(1, sum(part)) for t, part in zip(together, parts, strict=True)]
            policies = [SavePolicy(residuals="nothing"), *kinds]
            late = 1 + LATE_COST * i / len(self.segments)
            deep = 1 + self.cutting.deep  # how often a segment is recomputed if it saves nothing
            times = [
                late * recompute_work(piece.eqns, policy.residuals) * (deep if policy.residuals == "nothing" else 1)
                for policy in policies
            ]
            found.append(OptionTable(policies, [0.0, *shares], times))
        return found


def min_state_policy(eqn: Eqn) -> SavePolicy:
    """The policy of a loop with the least memory, by the size of its carry."""
    state = LoopAttrs.of(eqn).parts(eqn.operands).carry
    return SavePolicy(
        min_memory_slots(
            total_bytes(state), is_static=isinstance(eqn.attrs["length"], int) or any(map(has_symbolic_size, state))
        )
    )


def predict_buffers(graph: Graph, *, low_memory: bool = False, mesh: Mapping[str, int] = NO_MESH) -> BufferAssignment:
    """The predicted buffers of a finished graph; see `predict_memory`. Only here is JAX loaded, which traces it."""
    from difflang.runtime.predict_memory import predict_memory

    return predict_memory(graph, low_memory=low_memory, mesh=mesh)
