"""Loops that sum over a split axis in each step keep a sum on each device, and devices add these after the loop.

The gradient of a matrix that every step reads is such a sum, `d_w += transpose(x) @ d_y` with rows that are split: each
device has a share of the product. Added in each step the shares would be sent in each step.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import accumulate, pairwise

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.reshard import Along, Split
from difflang.ops.arrays.shape_manipulation import transpose
from difflang.ops.elementwise.linear_arithmetic import add
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type
from difflang.passes.contractions.contract_after_loops import add_terms
from difflang.passes.contractions.sums_to_contractions import sum_terms
from difflang.passes.dce import dce, live_equations
from difflang.sharding.mesh_splits import MeshSplits, busy, split_in
from difflang.sharding.region_splits import region_params, whole_split


def sums_after_loops(graph: Graph, params: Sequence[Split], mesh: Mapping[str, int]) -> Graph:
    """A finished graph whose params are split like this, without sums in loops that can wait. Cost: linear."""
    found = LoopSumMover(mesh).graph(graph, params)
    return graph if found is graph else dce(found)


class LoopSumMover:
    """The graphs of one program, each once for every split of its params."""

    def __init__(self, mesh: Mapping[str, int]) -> None:
        self.splits = MeshSplits(mesh)
        self.done: dict[tuple[Graph, tuple[Split, ...]], Graph] = {}

    def graph(self, graph: Graph, params: Sequence[Split]) -> Graph:
        key = graph, tuple(params)
        if key not in self.done:
            self.done[key] = self.rebuild(graph, params)
        return self.done[key]

    def rebuild(self, graph: Graph, params: Sequence[Split]) -> Graph:
        env: dict[Value, Split] = dict(zip(graph.params, params, strict=True))
        eqns: list[Eqn] = []
        to: dict[Value, Value] = {}
        for old in graph.eqns:
            given = [split_in(env, v) for v in old.operands]
            moves = busy(old, given)
            found = self.splits.of_eqn(old, given) if moves else [whole_split(r.type) for r in old.results]
            env.update(zip(old.results, found, strict=True))
            eqn = old.replace_operands(to)
            if moves and (starts := self.splits.starts.get(old)) is not None:
                inside = [region_params(old, k, starts) for k in range(len(old.regions))]
                eqn = eqn.with_regions([self.graph(r, s) for r, s in zip(old.regions, inside, strict=True)])
                if eqn.op is loop and (sums := LoopSums(eqn, Shares(eqn.regions[0], self.splits, inside[0]))).shares:
                    to |= sums.emit(eqns)
                    continue
            eqns.append(eqn)
        found = graph.with_eqns(eqns).replace_results(to)
        return merge_sums(Shares(found, self.splits, params)) if any(e.op is add for e in eqns) else found


class Share(Struct, frozen=True, eq=False):
    """A sum or a contraction of which each device has a share: over one axis of its operands, split `along` the mesh.

    `moves` are the permutations of axes after it, last first.
    """

    eqn: Eqn
    axes: tuple[int, ...]  # of each operand
    along: Along
    moves: tuple[Eqn, ...]

    def of_all_devices(self, builder: Builder, count: int, *operands: Value) -> Value:
        """The shares of this many devices, along a first axis."""
        parts = [in_parts(builder, x, axis, count) for x, axis in zip(operands, self.axes, strict=True)]
        if self.eqn.op is reduce_sum:
            axes = later(self.axes[0], self.eqn.attrs["axes"])
            found = builder.one("reduce_sum", *parts, axes=axes)
            at = self.axes[0] - sum([a < self.axes[0] for a in axes])
            rest = [a for a in range(tensor_type(found).rank) if a != at]
            found = builder.one("transpose", found, perm=(at, *rest)) if at else found
        else:
            contract, batch = [
                [later(axis, mine) for axis, mine in zip(self.axes, self.eqn.attrs[name], strict=True)]
                for name in ("contract", "batch")
            ]
            first = tuple([(axis, *mine) for axis, mine in zip(self.axes, batch, strict=True)])
            found = builder.one(
                "dot_general", *parts, **{**self.eqn.attrs, "contract": tuple(contract), "batch": first}
            )
        for move in reversed(self.moves):
            found = builder.one("transpose", found, perm=(0, *[a + 1 for a in move.attrs["perm"]]))
        return found


def in_parts(builder: Builder, x: Value, axis: int, count: int) -> Value:
    """The array, with an axis for the parts of one of its axes before that one."""
    shape = tensor_type(x).shape
    size = shape[axis]
    assert isinstance(size, int)
    return builder.one("reshape", x, shape=(*shape[:axis], count, size // count, *shape[axis + 1 :]))


def later(axis: int, axes: Iterable[int]) -> tuple[int, ...]:
    """Axes of an array after one more stands before `axis`."""
    return tuple([a + (a >= axis) for a in axes])


class Shares:
    """The sums and contractions of a graph of which each device has a share."""

    def __init__(self, graph: Graph, splits: MeshSplits, params: Sequence[Split]) -> None:
        self.graph, self.splits = graph, splits
        splits.of_graph(graph, params)
        self.values = splits.values
        self.makers = {r: e for e in graph.eqns for r in e.results}
        self.readers = Counter([*graph.results, *[v for e in graph.eqns for v in e.operands]])

    def terms(self, *totals: Value) -> list[Value]:
        return [term for total in totals for term in sum_terms(total, self.makers, self.readers)]

    def among(self, terms: Iterable[Value]) -> dict[Value, Share]:
        """Those among the terms of a sum that are split in one way."""
        found = {v: share for v in terms if (share := self.share(v)) is not None}
        return {v: share for v, share in found.items() if share.along == next(iter(found.values())).along}

    def share(self, value: Value) -> Share | None:
        """The sum or the contraction that makes a value, up to the order of its axes, if nothing else reads it."""
        moves: list[Eqn] = []
        while (eqn := self.makers.get(value)) is not None and self.readers[value] == 1:
            if eqn.op in (dot_general, reduce_sum):
                return self.share_of(eqn, moves)
            if eqn.op is not transpose:
                return None
            moves.append(eqn)
            (value,) = eqn.operands
        return None

    def share_of(self, eqn: Eqn, moves: Sequence[Eqn]) -> Share | None:
        if not any([any(split_in(self.values, v)) for v in eqn.operands]):
            return None
        taken = self.splits.taken[eqn]
        summed = zip(*eqn.attrs["contract"], strict=True) if eqn.op is dot_general else zip(eqn.attrs["axes"])
        found = [axes for axes in summed if taken[0][axes[0]]]
        if len(found) != 1:
            return None
        along = taken[0][found[0][0]]
        alike = all(split[axis] == along for split, axis in zip(taken, found[0], strict=True))
        known = isinstance(tensor_type(eqn.operands[0]).shape[found[0][0]], int)
        sent = alike and known and self.splits.parts(along) > 1
        return Share(eqn, found[0], along, tuple(moves)) if sent else None

    def count(self, shares: Mapping[Value, Share]) -> int:
        return self.splits.parts(next(iter(shares.values())).along)

    def total(self, shares: Mapping[Value, Share], before: Value | None, eqns: list[Eqn], like: Eqn) -> Value:
        """Append the sums of shares on all devices, along a first axis, and what these have before."""
        count, each = self.count(shares), list(shares.values())
        ends = list(accumulate([len(s.eqn.operands) for s in each], initial=0))
        given = [] if before is None else [before]

        def body(builder: Builder, *reads: Value) -> Value:
            factors = reads[len(given) :]
            found = [
                share.of_all_devices(builder, count, *factors[a:b])
                for share, (a, b) in zip(each, pairwise(ends), strict=True)
            ]
            return reduce(operator.add, [*reads[: len(given)], *found])

        return append(eqns, like, body, *given, *[v for s in each for v in s.eqn.operands])


def merge_sums(shares: Shares) -> Graph:
    """The graph, where the terms of a sum of which each device has shares are added before they are sent."""
    added = {v for e in shares.graph.eqns if e.op is add for v in e.operands if shares.readers[v] == 1}
    eqns: list[Eqn] = []
    to: dict[Value, Value] = {}
    for eqn in shares.graph.eqns:
        eqn = eqn.replace_operands(to)
        eqns.append(eqn)
        if eqn.op is add and eqn.results[0] not in added:
            terms = shares.terms(*eqn.operands)
            found = shares.among(terms)
            if len(found) > 1:
                made: list[Eqn] = []
                whole = append(made, eqn, sum_of_parts, shares.total(found, None, made, eqn))
                total = add_terms([*[v for v in terms if v not in found], whole], made, eqn)
                eqns += [e.replace_operands(to) for e in made]
                to[eqn.results[0]] = total
    merged = shares.graph.with_eqns(eqns).replace_results(to)
    # What was replaced must not count as a reader of what a loop carries.
    return merged.with_eqns(live_equations(merged.eqns, merged.results)[0])


class LoopSums:
    """A loop, and by number the carries to which each step adds shares, with these and all terms."""

    def __init__(self, eqn: Eqn, shares: Shares) -> None:
        self.eqn, self.of_step, self.form = eqn, shares, LoopAttrs.of(eqn)
        self.terms: dict[int, list[Value]] = {}
        self.shares: dict[int, dict[Value, Share]] = {}
        step, *go = eqn.regions
        asked = {v for g in go for e in g.eqns for v in e.operands}
        end = 1 + self.form.consts
        for i, before in enumerate(self.form.parts(step.params).carry):
            if asked.isdisjoint([g.params[end + i] for g in go]):
                self.plan(i, before)

    def plan(self, carry: int, before: Value) -> None:
        terms = self.of_step.terms(self.eqn.regions[0].results[carry])
        # Only a carry that nothing but its own sum reads may be wrong until the loop has ended.
        if before in terms and self.of_step.readers[before] == 1 and (found := self.of_step.among(terms)):
            self.terms[carry], self.shares[carry] = terms, found

    def emit(self, eqns: list[Eqn]) -> dict[Value, Value]:
        """Append the loop with sums on each device, and their sums; returns the replacements of its results."""
        eqn, form, (step, *go) = self.eqn, self.form, self.eqn.regions
        end, home = form.carry, step.params[0].home
        types = [self.type_of_shares(i) for i in self.shares]
        before = [Value(t, home) for t in types]
        inner, results = list(step.eqns), list(step.results)
        for i, shares in self.shares.items():
            results[i] = add_terms([v for v in self.terms[i] if v not in shares], inner, eqn)
        each = zip(self.shares.values(), before, strict=True)
        after = [self.of_step.total(shares, value, inner, eqn) for shares, value in each]
        results[end:end] = after
        regions = [Graph(self.with_more(step.params, before), tuple(inner), tuple(results), step.name)]
        regions += [Graph((*g.params, *[Value(t, home) for t in types]), g.eqns, g.results, g.name) for g in go]
        zeros = [append(eqns, eqn, lambda builder, type=t: builder.const(0.0, type)) for t in types]
        carried = [Value(r.type, r.home, r.hint) if i - 1 in self.shares else r for i, r in enumerate(eqn.results)]
        found = [Value(t, eqn.results[0].home) for t in types]
        attrs = {**eqn.attrs, "carry": form.carry + len(types)}
        given = (*carried[: 1 + end], *found, *carried[1 + end :])
        eqns.append(Eqn(loop, self.with_more(eqn.operands, zeros), given, attrs, tuple(regions), eqn.span))
        return {
            eqn.results[1 + i]: append(eqns, eqn, sum_of_parts, shares, carried[1 + i])
            for i, shares in zip(self.shares, found, strict=True)
        }

    def type_of_shares(self, carry: int) -> Tensor:
        type = tensor_type(self.eqn.results[1 + carry])
        return Tensor(type.dtype, (self.of_step.count(self.shares[carry]), *type.shape))

    def with_more(self, values: Sequence[Value], carries: Sequence[Value]) -> tuple[Value, ...]:
        """Operands of the loop, or params of its step, with more carries."""
        end = 1 + self.form.consts + self.form.carry
        return (*values[:end], *carries, *values[end:])


def append(eqns: list[Eqn], like: Eqn, body: Callable[..., Value], *reads: Value) -> Value:
    """Append the equations that a body makes of some values; returns its result."""
    builder = Builder(span=like.span)
    params = [builder.param(v.type) for v in reads]
    result = body(builder, *params)
    eqns += [e.replace_operands(dict(zip(params, reads, strict=True))) for e in builder.eqns]
    return result


def sum_of_parts(builder: Builder, shares: Value, *rest: Value) -> Value:
    return reduce(operator.add, [*rest, builder.one("reduce_sum", shares, axes=(0,))])
