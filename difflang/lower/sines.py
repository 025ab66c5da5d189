"""Sines and cosines of many numbers by polynomials, on the CPU, where no argument is far from 0.

Whether one is far takes a look at all of them; then a branch is taken, and what that reads and gives is written down.
So what is done with sines number by number is done in the branch: the numbers of a step go through memory once, after
one look. What several results of a branch are made of XLA computes for each of them, so what is done there is chosen
so that no sine is computed more often than if each were written down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from difflang.ir.graph import Attrs, Eqn, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.types import BOOL, Tensor
from difflang.lower.segments import Segment, Step, barrier, needed, small
from difflang.ops.families import tensor
from difflang.ops.residuals import LIGHT
from difflang.ops.sin_and_cos import FARTHEST, fits, sin_and_cos

BRANCHES = 16  # arguments that a graph has such sines of: each takes some 50 ms to compile
AGAIN = 4  # equations in a row that make what a branch reads, done again in it
SAME = frozenset({"mul", "neg"})  # done again they give the same to the last bit, whatever they are fused with


def looked_at(eqns: Sequence[Eqn], results: Values, inside: bool) -> Sequence[Step]:
    """The same equations in an order that respects dependence, those that go with sines in segments. Where XLA would
    have to compile sines of more than `BRANCHES` arguments they stay what they are. Cost: n log n.
    """
    sines = {e for e in eqns if fits(e, inside)}
    if not sines or len({e.operands[0] for e in sines}) > BRANCHES:
        return eqns
    readers = Counter([*results, *[v for e in eqns for v in dict.fromkeys(e.operands)]])
    parts = [part for group in groups(eqns, sines) for part in connected(chosen(group, sines, readers), sines)]
    apart = {e for part in parts for e in part}
    makers = {r: e for e in eqns if e not in apart for r in e.results}
    return used(in_order(eqns, [branch(part, sines, makers, readers) for part in parts]), results)


def groups(eqns: Sequence[Eqn], sines: Collection[Eqn]) -> Iterable[list[Eqn]]:
    """The sines, and what is made of them number by number, so grouped that no way leads out of a group and back, nor
    from a sine to an argument. Each value has a level, which is higher beyond a group.
    """
    shapes = {tensor(e.results[0]).shape for e in sines}
    found: dict[tuple[int, object], list[Eqn]] = defaultdict(list)
    level, shape_of, made_of_sines = dict[Value, int](), dict[Value, object](), set[Value]()
    for eqn in eqns:
        shape = tensor(eqn.results[0]).shape if eqn in sines or is_light(eqn) else None
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
                found[here, shape].append(eqn)
        level.update(dict.fromkeys(eqn.results, here))
    return found.values()


def is_light(eqn: Eqn) -> bool:
    return eqn.op.elementwise and eqn.op.name in LIGHT and not barrier(eqn)


def chosen(group: Sequence[Eqn], sines: Collection[Eqn], readers: Counter[Value]) -> list[Eqn]:
    """All of a group, if by that no sine is computed more often; else the sines, and one after the other what can be
    had for no more.
    """
    within = Counter([v for e in group for v in dict.fromkeys(e.operands)])
    arguments: dict[Value, set[Value]] = {}
    for eqn in group:
        made_of = [arguments[v] for v in eqn.operands if v in arguments]
        arguments[eqn.results[0]] = {eqn.operands[0]} if eqn in sines else set[Value]().union(*made_of)
    given = [r for e in group for r in e.results if readers[r] > within[r]]
    if sum([len(arguments[r]) for r in given]) <= sum([e in sines for e in group]):
        return list(group)
    found, waiting = list[Eqn](), dict[Value, int]()
    for eqn in group:
        read = [v for v in dict.fromkeys(eqn.operands) if v in arguments]
        spared = [len(arguments[v]) for v in read if waiting.get(v) == 1]
        result = eqn.results[0]
        if eqn in sines or (waiting.keys() >= {*read} and len(arguments[result]) <= sum(spared)):
            found.append(eqn)
            waiting[result] = readers[result]
            for v in () if eqn in sines else read:
                waiting[v] -= 1
    return found


def connected(part: Sequence[Eqn], sines: Collection[Eqn]) -> Iterable[list[Eqn]]:
    """A part as several, where these share no argument and nothing is made of both."""
    root: dict[object, object] = {}

    def top(key: object) -> object:
        while (above := root.setdefault(key, key)) is not key:
            key = above
        return key

    made = {r for e in part for r in e.results}
    for eqn in part:
        for v in eqn.operands:
            if v in made or eqn in sines:
                root[top(v)] = top(eqn.results[0])
    found: dict[object, list[Eqn]] = defaultdict(list)
    for eqn in part:
        found[top(eqn.results[0])].append(eqn)
    return found.values()


def branch(
    part: Sequence[Eqn], sines: Collection[Eqn], makers: dict[Value, Eqn], readers: Counter[Value]
) -> tuple[Sequence[Eqn], Segment]:
    """A look at the arguments of a part's sines, and the choice that follows. `makers` are those in no part."""
    within = Counter([v for e in part for v in dict.fromkeys(e.operands)])
    results = tuple([r for e in part for r in e.results if readers[r] > within[r]])
    arguments = dict.fromkeys([e.operands[0] for e in part if e in sines])
    before = done_before(part, arguments, makers, readers)
    read = dict.fromkeys([v for e in (*before, *part) for v in e.operands])
    first = [makers[v] for v in read if v in makers and is_number(makers[v])]
    whole = [*first, *before, *part]
    _, operands = needed(whole, results)
    look, near = [*first, *before], None
    for v in arguments:
        near = is_near(v, near, look)
    assert near is not None
    shape = tensor(near).shape
    all_near = said("reduce_all", (near,), Tensor(BOOL), look, {"axes": tuple(range(len(shape)))})
    regions = (
        Graph(tuple(operands), (*first, *before, *joined(part, sines)), results),
        Graph(tuple(operands), tuple(whole), results),
    )
    choice = Eqn(OPS["cond"], (all_near, *operands), results, {}, regions, part[0].span)
    return part, Segment((*look, choice), tuple(operands), results)


def is_number(eqn: Eqn) -> bool:
    """Whether it fills an array with one number."""
    if not eqn.operands:
        return not eqn.regions and not eqn.op.effect and small(eqn)
    return eqn.op.name == "broadcast" and not tensor(eqn.operands[0]).shape


def done_before(
    part: Sequence[Eqn], arguments: Iterable[Value], makers: dict[Value, Eqn], readers: Counter[Value]
) -> list[Eqn]:
    """What is done number by number for a part alone, or again for it, as long as it reads no more arrays by that."""
    within = Counter([v for e in part for v in dict.fromkeys(e.operands)])
    made = {r for e in part for r in e.results}
    again = dict.fromkeys(arguments, AGAIN)
    found = set[Eqn]()

    def arrays(eqn: Eqn) -> dict[Value, None]:
        return dict.fromkeys([v for v in eqn.operands if not (v in makers and is_number(makers[v]))])

    reads = {v: None for e in part for v in arrays(e) if v not in made}
    todo = list(reads)
    while todo:
        v = todo.pop()
        eqn = makers.get(v)
        if eqn is None or not is_light(eqn):
            continue
        new = [x for x in arrays(eqn) if x not in reads]
        if len(new) <= 1 and (within[v] == readers[v] or again.get(v) or eqn.op.name in SAME):
            del reads[v]
            reads.update(dict.fromkeys(new))
            again.update(dict.fromkeys(new, again.get(v, 1) - 1))
            within.update(dict.fromkeys(eqn.operands, 1))
            found.add(eqn)
            todo += new
    return [e for e in makers.values() if e in found] if found else []


def is_near(value: Value, so_far: Value | None, to: list[Eqn]) -> Value:
    """Which numbers are near 0, here and in what has been looked at so far."""
    type = tensor(value)
    truth = Tensor(BOOL, type.shape)
    size = said("abs", (value,), type, to)
    end = said("const", (), type, to, {"value": FARTHEST[type.dtype], "type": type})
    near = said("lt", (size, end), truth, to)
    return near if so_far is None else said("logical_and", (so_far, near), truth, to)


def said(name: str, operands: Values, type: Tensor, to: list[Eqn], attrs: Attrs | None = None) -> Value:
    """The result of one more equation."""
    result = Value(type, to[-1].results[0].home if to else operands[0].home)
    to.append(Eqn(OPS[name], operands, (result,), attrs or {}))
    return result


def joined(part: Sequence[Eqn], sines: Collection[Eqn]) -> Iterator[Eqn]:
    """The same equations, the sines and cosines of one argument as one of polynomials."""
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


def used(steps: Sequence[Step], results: Values) -> list[Step]:
    """Without what is done in segments alone."""
    read, found = set(results), list[Step]()
    for step in reversed(steps):
        if not read.isdisjoint(step.results) or (isinstance(step, Eqn) and step.effectful):
            read.update(step.operands)
            found.append(step)
    return found[::-1]


def in_order(eqns: Sequence[Eqn], parts: Sequence[tuple[Sequence[Eqn], Segment]]) -> list[Step]:
    """Equations and segments, each after what it reads, else by their places; what has effects in its order."""
    within = {e: segment for part, segment in parts for e in part}
    ends = {id(within.get(e, e)): i for i, e in enumerate(eqns)}  # a segment is placed where its last equation is
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
    ready, found = sorted([i for i, before in left.items() if not before]), list[Step]()
    while ready:
        i = heappop(ready)
        found.append(steps[i])
        for j in after[i]:
            left[j].remove(i)
            if not left[j]:
                heappush(ready, j)
    return found
