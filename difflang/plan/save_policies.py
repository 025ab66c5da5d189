"""Save policies of reverse mode: what a loop or a segment of code saves, what that costs, and the program for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from itertools import count
from math import comb
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.ir.array_types import NUMPY
from difflang.ir.graph import Attrs, Eqn, Graph, Value, graphs_postorder, rewrite_graphs
from difflang.lower.capacity import INITIAL_CAPACITY, with_capacity
from difflang.ops.control.checkpoint_block import checkpoint
from difflang.ops.control.derivative_operators import vjp
from difflang.ops.control.print_effect import without_check_messages
from difflang.ops.loop.binomial_schedule import min_forward_steps, reach_row, reach_table
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.min_cut_residuals import find_min_cut, is_cheap_to_recompute
from difflang.ops.loop.residual_selection import total_bytes
from difflang.ops.op_factories import static_size
from difflang.passes.pipelines import PREPARE_KEEPING_LOOPS
from difflang.passes.unroll import DEFAULT_KEEP
from difflang.plan.checkpoint_segments import (
    CheckpointSegment,
    boundary_bytes,
    checkpoint_segments,
    find_segments,
    inline_calls,
    recomputable_runs,
    split_views,
)
from difflang.plan.split_loop_tail import split_loop

Site = Eqn | CheckpointSegment
ResidualKind = Literal["all", "least", "nothing"]
MAX_INLINED = 20_000  # equations of a function after inlining
SEGMENT_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)  # segments that straight-line code may be split into
FLOPS_PER_BYTE = 8  # flops that take as long as writing a byte
KEEP_INPUTS: Attrs = {}  # attributes of a block that saves only its inputs,
KEEP_MIN_CUT: Attrs = {"min_cut": True}  # or also the results that are expensive to recompute,
IS_STEP: Attrs = {"loop_step": True}  # and of one that is a whole step of a loop
FUSED_COST = 0.15  # the cost of cheap work fused into its reader, relative to its cost alone


class SavePolicy(Struct, frozen=True):
    """Either `slots` states of a loop, or for 0 the residuals of each step, as of a segment.

    `residuals`: `all` of them, the `least` from which the rest is cheap to recompute, or `nothing` but the inputs.
    `segment_steps`: with slots, the number of steps whose residuals are held at a time.
    `last`: with the `least` or `nothing`, the number of last steps that save all residuals.
    """

    slots: int = 0
    residuals: ResidualKind = "all"
    segment_steps: int = 0
    last: int = 0

    @property
    def keep_attr(self) -> tuple[int, ...]:
        """The `keep` attribute of a loop."""
        return (self.slots, self.segment_steps, 1) if self.segment_steps else (self.slots, 0)

    @property
    def as_usual(self) -> bool:
        return self == SAVE_ALL


SAVE_ALL = SavePolicy()
Policies = Mapping[Site, SavePolicy]


class PolicyChoice(Struct, frozen=True):
    """The policy of a loop, or of the code that begins at a source position."""

    span: Span
    policy: SavePolicy
    loop: bool = True

    @property
    def slots(self) -> int:
        return self.policy.slots

    def __str__(self) -> str:
        if self.slots:
            taped = (
                f", and the residuals of {count_of(self.policy.segment_steps, 'step')} at a time"
                if self.policy.segment_steps
                else ""
            )
            return f"saves {self.slots} of its states{taped}"
        if not self.loop:
            return "is recomputed" + (
                ", except for products, sums and draws" if self.policy.residuals == "least" else ""
            )
        least = {"least": "saves products, sums and draws of every step", "nothing": "saves the state of every step"}
        last = f", and the residuals of the last {self.policy.last}" if self.policy.last else ""
        return least.get(self.policy.residuals, "saves the residuals of every step") + last


# ---- Sites: the loops and segments that have a choice


def inline_reverse_bodies(graph: Graph) -> Graph:
    """The graph with calls inlined in the code that is differentiated in reverse, if it has no recursion."""
    plain = without_check_messages(graph)
    if plain.effectful or with_capacity(plain, INITIAL_CAPACITY) is not plain:
        return graph
    tidy = PREPARE_KEEPING_LOOPS(plain)
    bodies = {body: inline_calls(body, MAX_INLINED) for body in reverse_bodies(tidy)}
    return PREPARE_KEEPING_LOOPS(replace_regions(tidy, bodies)) if any(a is not b for a, b in bodies.items()) else tidy


def reverse_bodies(graph: Graph) -> list[Graph]:
    """The functions that are differentiated in reverse."""
    found = [e.regions[0] for inner in graphs_postorder(graph)[0] for e in inner.eqns if e.op is vjp]
    return list(dict.fromkeys(found))


def replace_regions(graph: Graph, to: Mapping[Graph, Graph]) -> Graph:
    """The graph with some regions replaced; none of these is inside another."""
    return rewrite_graphs(graph, lambda old, inside: to.get(old) or inside)


def choosable_loops(graph: Graph) -> list[Eqn]:
    """The loops under reverse-mode derivatives without a `@checkpoint` policy, in order."""
    found: dict[Eqn, None] = {}
    for body in reverse_bodies(graph):
        under = graphs_postorder(body)[0]
        found |= {
            e: None for g in under for e in g.eqns if e.op is loop and e.attrs.get("keep", DEFAULT_KEEP) == DEFAULT_KEEP
        }
    return list(found)


class Segmentation(Struct, frozen=True):
    """How straight-line code is split: the `number`-th best way, recursively if `deep`."""

    number: int = 0
    deep: int = 0
    sunk: bool = False  # whether arrays that loops read step by step are computed inside the steps


def best_segments(body: Graph, cutting: Segmentation) -> list[CheckpointSegment]:
    """The segments of straight-line code with the least memory if all are recomputed; none if that saves nothing."""
    _, rest = split_views(body)
    whole = sum([residual_bytes(run) for run in recomputable_runs(rest)])
    found: dict[int, list[CheckpointSegment]] = {}
    for number in SEGMENT_COUNTS:
        if 2 * number > len(rest):
            break
        parts = find_segments(body, number)
        most = max([segment_bytes(p, cutting.deep) for p in parts], default=whole)
        found.setdefault(boundary_bytes(body, parts) + most, parts)
    # The memory of a segmentation: all boundaries, and the residuals of the largest segment.
    best = sorted([takes for takes in found if takes < whole])
    return found[best[cutting.number]] if cutting.number < len(best) else []


def segment_bytes(piece: CheckpointSegment, deep: int) -> int:
    """An estimate of the bytes that reverse mode needs inside a segment."""
    whole = residual_bytes(piece.eqns)
    if not deep:
        return whole
    inner = segment_graph(piece)
    return min([whole] + [
        boundary_bytes(inner, parts) + max([residual_bytes(p.eqns) for p in parts])
        for count in SEGMENT_COUNTS if 2 * count <= len(piece.eqns) and (parts := find_segments(inner, count))
    ])  # fmt: skip


def segment_graph(piece: CheckpointSegment) -> Graph:
    """A segment as a graph of the values that it reads."""
    made = {r for e in piece.eqns for r in e.results}
    read = tuple(dict.fromkeys([v for e in piece.eqns for v in e.operands if v not in made]))
    return Graph(read, piece.eqns, ())


# ---- Costs: bytes and time of a choice


def residual_candidates(eqns: Iterable[Eqn]) -> list[Value]:
    """Roughly the values that derivatives read: operands and results of nonlinear equations, and factors."""
    found: dict[Value, None] = {}
    for e in eqns:
        if e.op.inactive or not e.operands:
            continue
        if e.op.operand_rules.jvp is not None or e.regions:
            found |= dict.fromkeys((*e.operands, *e.results))
        elif e.op.operand_rules.linear_in_each and len(e.operands) > 1:
            found |= dict.fromkeys(e.operands)
    return list(found)


def residual_bytes(eqns: Iterable[Eqn]) -> int:
    """An estimate of the bytes of residuals that equations make."""
    eqns = tuple(eqns)
    made = {r for e in eqns for r in e.results}
    return total_bytes([v for v in residual_candidates(eqns) if v in made])


def min_cut_bytes(piece: CheckpointSegment) -> int:
    """An estimate of the bytes that the minimum cut of a segment saves."""
    graph = segment_graph(piece)
    return total_bytes(find_min_cut(graph, graph.params, residual_candidates(piece.eqns)))


def estimated_work(eqn: Eqn) -> float:
    """The time of an equation, in bytes that could be written meanwhile."""
    total = 0.0
    todo = [(eqn, 1.0)]
    while todo:
        e, times = todo.pop()
        types = [v.type for v in e.operands]
        flops = e.op.cost(*types, **e.attrs) if e.op.cost is not None else 0
        total += times * (total_bytes(e.results) + static_size(flops) / FLOPS_PER_BYTE)
        length = e.attrs.get("length")
        steps = length if isinstance(length, int) else 1
        todo += [(inner, times * steps) for r in e.regions for inner in r.eqns]
    return total


def recompute_work(eqns: Iterable[Eqn], kept: ResidualKind) -> float:
    """The time to recompute the equations whose results are not saved."""
    if kept == "all":
        return 0.0
    recomputed = [e for e in eqns if kept == "nothing" or is_cheap_to_recompute(e)]
    return sum([estimated_work(e) * (FUSED_COST if is_cheap_to_recompute(e) else 1) for e in recomputed])


# ---- The program for a choice


def apply_policies(graph: Graph, policies: Policies, deep: int = 0) -> Graph:
    """The graph with the policy of each site applied; segments are nested if `deep`. Cost: linear."""
    blocks = {
        p.eqns[0]: (p, KEEP_MIN_CUT if w.residuals == "least" else KEEP_INPUTS)
        for p, w in policies.items() if isinstance(p, CheckpointSegment) and not w.as_usual
    }  # fmt: skip
    done: dict[Graph, Graph] = {}
    for inner in graphs_postorder(graph)[0]:
        here = dict([blocks[e] for e in inner.eqns if e in blocks])
        within = partial(nest_segments, deep=deep)
        done[inner] = checkpoint_segments(inner, here, partial(apply_policy, done=done, policies=policies), within)
    return done[graph]


def nest_segments(body: Graph, deep: int) -> Graph:
    """A block split into segments that are recomputed again while the block is."""
    return checkpoint_segments(body, dict.fromkeys(best_segments(body, Segmentation()), KEEP_INPUTS)) if deep else body


def apply_policy(eqn: Eqn, done: Mapping[Graph, Graph], policies: Policies) -> list[Eqn]:
    """The equation on finished regions, with its policy if it is a loop; two loops if its last steps differ."""
    new = eqn.with_regions([done[r] for r in eqn.regions]) if eqn.regions else eqn
    policy = policies.get(eqn, SAVE_ALL)
    if policy.slots:
        return [Eqn(eqn.op, eqn.operands, eqn.results, {**eqn.attrs, "keep": policy.keep_attr}, new.regions, eqn.span)]
    if policy.as_usual:
        return [new]
    less = new.with_regions([checkpoint_step(new.regions[0], policy.residuals == "least"), *new.regions[1:]])
    return split_loop(less, new, policy.last) if policy.last else [less]


def checkpoint_step(step: Graph, cut: bool) -> Graph:
    """A step of a loop that saves only its inputs, or with `cut` the minimum cut of its straight-line parts."""
    _, rest = split_views(step)
    runs = [run for run in recomputable_runs(rest, loops=not cut) if any(e.op is not checkpoint for e in run)]
    alone = len(runs) == 1 and len(runs[0]) == len(rest) and not any(e.regions for e in rest)
    attrs: Attrs = {**(KEEP_MIN_CUT if cut else KEEP_INPUTS), **(IS_STEP if alone else {})}
    return checkpoint_segments(step, {CheckpointSegment(tuple(run)): attrs for run in runs})


# ---- Policies of loops: the binomial schedule of revolve (Griewank and Walther 2000)

Array = Any

MIN_SLOTS = 2  # states
# From 2 to some thousands, 4 % apart: a finer choice would gain nothing.
SLOT_COUNTS = tuple(dict.fromkeys([round(MIN_SLOTS * 1.04**i) for i in range(200)]))
MAX_EXACT_SLOTS = 64  # up to so many slots the steps of the schedule are counted exactly
MAX_UNITS = 4096  # groups of steps that a schedule can plan
LAST_FRACTIONS = 16  # the last steps with a policy of their own are a multiple of 1/16 of the loop
TIME_TOLERANCE = 0.995  # a policy must take less than this part of another's time to count as quicker


def loop_policies(steps: int, *, is_static: bool) -> list[tuple[SavePolicy, float]]:
    """The policies that save states of a loop, and the number of steps that each recomputes."""
    slots = [n for n in SLOT_COUNTS if not is_static or n < steps]
    found = [(SavePolicy(n), float(recomputed_steps(np.array([steps], np.int32), n + 1)[0])) for n in slots]
    taped = np.array([n for n in (1, *SLOT_COUNTS) if is_static and MAX_UNITS * n >= steps and n < steps], np.int32)
    units = -(-(steps - taped) // taped)
    for n in (1, *slots):
        fits = units >= n  # with fewer units than slots, each unit has its own state
        recomputed = taped[fits] * np.float64(recomputed_steps(units[fits], n)) + (steps - taped[fits])
        found += [(SavePolicy(n, segment_steps=int(r)), float(a)) for r, a in zip(taped[fits], recomputed, strict=True)]
    return found


def partial_policies(policy: SavePolicy, steps: int) -> list[SavePolicy]:
    """The same policy for all steps except the last ones, which save everything."""
    return [
        replace(policy, last=n)
        for n in sorted({round(steps * i / LAST_FRACTIONS) for i in range(1, LAST_FRACTIONS)} - {0, steps})
    ]


def min_memory_slots(state: int, *, is_static: bool) -> int:
    """The number of slots, for states of so many bytes, with which a loop takes the least memory."""
    # A loop of unknown length carries the tables of its schedule too: the fewer slots, the longer the tables.
    return (
        MIN_SLOTS
        if is_static
        else min(SLOT_COUNTS[:MAX_EXACT_SLOTS], key=lambda n: n * state + 2 * reach_table(n + 1).nbytes)
    )


def recomputed_steps(steps: Array, slots: int) -> Array:
    """For each loop length, the number of forward steps that the reverse sweep recomputes."""
    whole = min_forward_steps(NUMPY, np.minimum(steps, 2**30), reach_row(slots))
    return np.maximum(whole - np.array([last_forward_checkpoint(int(n), slots) for n in steps]), 0)


@lru_cache(maxsize=1 << 14)
def last_forward_checkpoint(steps: int, slots: int) -> int:
    """The last state that the forward sweep saves; with many slots, that of the last step."""
    if slots > MAX_EXACT_SLOTS:
        return steps - 1
    at, free = 0, slots
    while free > 1 and steps - at > 1:
        far = steps - at
        times = next(r for r in count(1) if comb(free + r, free) >= far)
        near = comb(free + times - 2, free) if times > 1 else 1
        at += min(max(1, near, far - comb(free - 1 + times, free - 1)), far - 1)
        free -= 1
    return at


def pareto_front(policies: Iterable[tuple[float, float, SavePolicy]]) -> list[tuple[float, float, SavePolicy]]:
    """The policies that are quicker than all others with fewer bytes."""
    found: list[tuple[float, float, SavePolicy]] = []
    for policy in sorted(policies, key=lambda policy: policy[:2]):
        if not found or policy[1] < TIME_TOLERANCE * found[-1][1]:
            found.append(policy)
    return found
