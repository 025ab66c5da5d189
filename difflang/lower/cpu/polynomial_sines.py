"""Branches on the CPU to polynomial sines and cosines when all arguments are small, with the library's as fallback.

The test reads every argument, and a branch materializes its operands and results. So the elementwise work around the
sines moves into the branch, which goes through memory once. XLA computes what several results of a branch share once
for each, so what is moved is chosen such that no sine is computed more often than if each were stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple, TypeVar

from difflang.base.diagnostics import InternalError
from difflang.ir.graph import Attrs, Eqn, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.lower.cpu.outlining import EqnOrSegment, OutlinedSegment, is_fusion_barrier, is_small_constant, live_eqns
from difflang.ops.elementwise.vectorized_sincos import MAX_ARGUMENT, is_worth_vectorizing, sin_and_cos
from difflang.ops.op_factories import tensor_type

# Distinct arguments per graph: each branch takes some 50 ms to compile.
MAX_BRANCHES = 16
# The longest chain of equations before a branch that is recomputed inside it.
MAX_RECOMPUTED = 4
# Recomputed, these give the same bits whatever they are fused with.
BIT_STABLE_OPS = frozenset({"mul", "neg"})
AnyStep = TypeVar("AnyStep", bound=EqnOrSegment)


def branch_on_small_arguments(eqns: Sequence[Eqn], results: Values, in_loop: bool) -> Sequence[EqnOrSegment]:
    """The same equations in dependency order, with sines and the elementwise work around them in segments.

    Where XLA would have to compile sines of more than `MAX_BRANCHES` arguments nothing changes. Cost: n log n.
    """
    sines = {e for e in eqns if is_worth_vectorizing(e, in_loop)}
    if not sines or len({e.operands[0] for e in sines}) > MAX_BRANCHES:
        return eqns
    eqns = drop_dead_steps(eqns, results)
    sines.intersection_update(eqns)
    readers = count_readers(eqns) + Counter(results)
    around = SineContext(sines, {r: e for e in eqns for r in e.results}, readers)
    whole = [
        part
        for group in group_by_level(eqns, sines)
        for part in connected_components(group, sines)
        if not sines.isdisjoint(part)
    ]
    parts = [part for each in whole for part in connected_components(choose_equations(each, around), sines)]
    moved = {e for part in parts for e in part}
    around = SineContext(sines, {r: e for r, e in around.makers.items() if e not in moved}, readers)
    return drop_dead_steps(topological_order(eqns, [build_branch(part, around) for part in parts]), results)


class SineContext(NamedTuple):
    """The sines of a graph, the equation that makes each value, and how many equations read it."""

    sines: Collection[Eqn]
    makers: dict[Value, Eqn]
    readers: Counter[Value]

    def arrays(self, eqn: Eqn) -> list[Value]:
        """The operands of an equation, without arrays filled with one number."""
        return [v for v in dict.fromkeys(eqn.operands) if not (v in self.makers and is_constant_fill(self.makers[v]))]

    def results(self, part: Sequence[Eqn]) -> Values:
        """The values of a part that equations outside it read."""
        within = count_readers(part)
        return tuple([r for e in part for r in e.results if self.readers[r] > within[r]])

    def before(self, part: Sequence[Eqn]) -> tuple[list[Eqn], Collection[Value]]:
        """The elementwise equations before a part to compute inside its branch, and what the branch reads then.

        An equation moves in if only the part reads it, or if it may be recomputed, as long as it adds no operand.
        """
        within = count_readers(part)
        made = {r for e in part for r in e.results}
        budget = {v: MAX_RECOMPUTED for e in part if e in self.sines for v in e.operands}
        found = set[Eqn]()
        reads = {v: None for e in part for v in self.arrays(e) if v not in made}
        todo = list(reads)
        while todo:
            v = todo.pop()
            eqn = self.makers.get(v)
            if eqn is None or not is_cheap_elementwise(eqn):
                continue
            new = [x for x in self.arrays(eqn) if x not in reads and self.makers.get(x) not in found]
            alone = within[v] == self.readers[v]
            if len(new) <= 1 and (alone or budget.get(v) or eqn.op.name in BIT_STABLE_OPS):
                del reads[v]
                reads.update(dict.fromkeys(new))
                budget.update(dict.fromkeys(new, max(budget.get(v, 0) - 1, 0)))
                within.update(dict.fromkeys(eqn.operands, 1) if alone else {})
                found.add(eqn)
                todo += new
        return [e for e in self.makers.values() if e in found] if found else [], reads

    def is_fused(self, value: Value) -> bool:
        """Whether XLA materializes a value only because a branch reads it."""
        eqn = self.makers.get(value)
        return eqn is not None and eqn not in self.sines and (eqn.op.elementwise or "cheap" in eqn.op.traits)

    def count_stored_arrays(self, part: Sequence[Eqn]) -> int:
        """How many arrays are materialized if a part becomes a branch."""
        return len(self.results(part)) + sum(map(self.is_fused, self.before(part)[1]))


def count_readers(eqns: Sequence[Eqn]) -> Counter[Value]:
    """How many of some equations read each value."""
    return Counter([v for e in eqns for v in dict.fromkeys(e.operands)])


def group_by_level(eqns: Sequence[Eqn], sines: Collection[Eqn]) -> Iterable[list[Eqn]]:
    """The sines and the elementwise equations after them, in groups that each can become one branch.

    No path leaves a group and comes back, none leads from a sine to an argument, and no effect comes between. Each
    value has a level, which rises from one group to the next.
    """
    shapes = {tensor_type(e.results[0]).shape for e in sines}
    found: dict[tuple[int, int, object], list[Eqn]] = defaultdict(list)
    effects = 0
    level, shape_of, made_of_sines = dict[Value, int](), dict[Value, object](), set[Value]()
    for eqn in eqns:
        shape = tensor_type(eqn.results[0]).shape if eqn in sines or is_cheap_elementwise(eqn) else None
        shape = shape if shape in shapes else None
        above = [level.get(v, 0) + (v in shape_of and shape_of[v] != shape) for v in eqn.operands]
        here = max(above, default=0)
        waits = any([v in made_of_sines and level[v] == here for v in eqn.operands])
        if eqn in sines:
            here += waits
        if shape is not None:
            shape_of[eqn.results[0]] = shape
            if eqn in sines or waits:
                made_of_sines.add(eqn.results[0])
                found[effects, here, shape].append(eqn)
        level.update(dict.fromkeys(eqn.results, here))
        effects += eqn.effectful
    return found.values()


def is_cheap_elementwise(eqn: Eqn) -> bool:
    return eqn.op.elementwise and "cheap" in eqn.op.traits and not is_fusion_barrier(eqn)


def choose_equations(group: Sequence[Eqn], around: SineContext) -> Sequence[Eqn]:
    """Which of a group to put in the branch: all, a greedily grown part, or the sines alone.

    Takes the choice that stores the fewest arrays and computes no sine more often than if each were stored.
    """
    arguments: dict[Value, set[Value]] = {}
    for eqn in group:
        made_of = [arguments[v] for v in eqn.operands if v in arguments]
        arguments[eqn.results[0]] = {eqn.operands[0]} if eqn in around.sines else set[Value]().union(*made_of)
    sines = [e for e in group if e in around.sines]
    once = sum([len(arguments[r]) for r in around.results(group)]) <= len(sines)
    found: list[Sequence[Eqn]] = [group] if once else []
    return min([*found, grow_greedily(group, arguments, around), sines], key=around.count_stored_arrays)


def grow_greedily(group: Sequence[Eqn], arguments: Mapping[Value, Collection[Value]], around: SineContext) -> list[Eqn]:
    """The sines of a group, and in order each equation that recomputes no sine and stores no further array."""
    found, waiting = list[Eqn](), dict[Value, int]()
    for eqn in group:
        read = [] if eqn in around.sines else [v for v in dict.fromkeys(eqn.operands) if v in arguments]
        spared = sum([len(arguments[v]) for v in read if waiting.get(v) == 1])
        others = [v for v in around.arrays(eqn) if v not in arguments]
        no_more = len(arguments[eqn.results[0]]) <= spared and not any(map(around.is_fused, others))
        if eqn in around.sines or (no_more and waiting.keys() >= {*read}):
            found.append(eqn)
            waiting[eqn.results[0]] = around.readers[eqn.results[0]]
            for v in read:
                waiting[v] -= 1
    return found


def connected_components(part: Sequence[Eqn], sines: Collection[Eqn]) -> Iterable[list[Eqn]]:
    """A part split into those that share no argument and feed no common equation."""
    root: dict[object, object] = {}

    def find_root(key: object) -> object:
        while (above := root.setdefault(key, key)) is not key:
            key = above
        return key

    made = {r for e in part for r in e.results}
    for eqn in part:
        for v in eqn.operands:
            if v in made or eqn in sines:
                root[find_root(v)] = find_root(eqn.results[0])
    found: dict[object, list[Eqn]] = defaultdict(list)
    for eqn in part:
        found[find_root(eqn.results[0])].append(eqn)
    return found.values()


def build_branch(part: Sequence[Eqn], around: SineContext) -> tuple[Sequence[Eqn], OutlinedSegment]:
    """The test of a part's arguments, and the conditional that follows."""
    sines, makers, _ = around
    results = around.results(part)
    arguments = dict.fromkeys([e.operands[0] for e in part if e in sines])
    before, _ = around.before(part)
    read = dict.fromkeys([v for e in (*before, *part) for v in e.operands])
    first = [makers[v] for v in read if v in makers and is_constant_fill(makers[v])]
    whole = [*first, *before, *part]
    _, operands = live_eqns(whole, results)
    look = [*first, *before]
    near = reduce(
        lambda x, y: append_eqn("logical_and", (x, y), tensor_type(x), look),
        [emit_is_small(v, look) for v in arguments],
    )
    all_near = append_eqn("reduce_all", (near,), Tensor(BOOL), look, {"axes": tuple(range(tensor_type(near).rank))})
    regions = (
        Graph(tuple(operands), (*first, *before, *fuse_sin_and_cos(part, sines)), results),
        Graph(tuple(operands), tuple(whole), results),
    )
    choice = Eqn(OPS["cond"], (all_near, *operands), results, {}, regions, part[0].span)
    return part, OutlinedSegment((*look, choice), tuple(operands), results)


def is_constant_fill(eqn: Eqn) -> bool:
    """Whether it fills an array with one number, or with a few literal ones."""
    return is_small_constant(eqn) or (eqn.op.name == "broadcast" and not tensor_type(eqn.operands[0]).shape)


def emit_is_small(value: Value, to: list[Eqn]) -> Value:
    """Which elements are near 0."""
    type = tensor_type(value)
    size = append_eqn("abs", (value,), type, to)
    end = append_eqn("const", (), type, to, {"value": MAX_ARGUMENT[type.dtype], "type": type})
    return append_eqn("lt", (size, end), Tensor(BOOL, type.shape), to)


def append_eqn(name: str, operands: Values, type: Tensor, to: list[Eqn], attrs: Attrs | None = None) -> Value:
    """Append one equation and return its result."""
    result = Value(type, to[-1].results[0].home if to else operands[0].home)
    to.append(Eqn(OPS[name], operands, (result,), attrs or {}))
    return result


def fuse_sin_and_cos(part: Sequence[Eqn], sines: Collection[Eqn]) -> Iterator[Eqn]:
    """The same equations, with the sines and cosines of one argument fused into one polynomial op."""
    of: dict[Value, list[Eqn]] = defaultdict(list)
    for eqn in part:
        if eqn in sines:
            of[eqn.operands[0]].append(eqn)
    for eqn in part:
        if eqn not in sines:
            yield eqn
        elif same := of.pop(eqn.operands[0], None):
            gives = tuple([e.op.name for e in same])
            yield Eqn(sin_and_cos, eqn.operands, tuple([e.results[0] for e in same]), {"gives": gives}, (), eqn.span)


def drop_dead_steps(steps: Sequence[AnyStep], results: Values) -> list[AnyStep]:
    """Those steps whose results are used, and those with effects."""
    read, found = set(results), list[AnyStep]()
    for step in reversed(steps):
        if not read.isdisjoint(step.results) or (isinstance(step, Eqn) and step.effectful):
            read.update(step.operands)
            found.append(step)
    return found[::-1]


def topological_order(
    eqns: Sequence[Eqn], parts: Sequence[tuple[Sequence[Eqn], OutlinedSegment]]
) -> list[EqnOrSegment]:
    """Equations and segments, each after what it reads, otherwise in source order; effects keep their order."""
    within = {e: segment for part, segment in parts for e in part}
    # A segment takes the position of its last equation.
    ends = {id(within.get(e, e)): i for i, e in enumerate(eqns)}
    steps = {i: within.get(eqns[i], eqns[i]) for i in ends.values()}
    makers = {r: i for i, step in steps.items() for r in step.results}
    seen = [i for i, step in steps.items() if isinstance(step, Eqn) and step.effectful]
    left = {i: {makers[v] for v in step.operands if v in makers} for i, step in steps.items()}
    for earlier, later in pairwise(seen):
        left[later].add(earlier)
    after: dict[int, list[int]] = defaultdict(list)
    for i, before in left.items():
        for j in before:
            after[j].append(i)
    ready, found = sorted([i for i, before in left.items() if not before]), list[EqnOrSegment]()
    while ready:
        i = heappop(ready)
        found.append(steps[i])
        for j in after[i]:
            left[j].remove(i)
            if not left[j]:
                heappush(ready, j)
    if len(found) < len(steps):
        raise InternalError("a branch on sines depends on itself")
    return found
