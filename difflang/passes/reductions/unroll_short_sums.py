"""Sums over a short axis become additions: the terms are computed for a whole array each, and never stored.

XLA adds along the last axis element by element. A distance `sum((p[i] - q[j])^2)` in two or three coordinates, for all
pairs of points, takes two to four times as long as `(p[i, 0] - q[j, 0])^2 + (p[i, 1] - q[j, 1])^2`, whose differences
are those of vectors. The array of all terms is larger than what it is computed from: slices of that are cheap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import reduce_sum
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.graph_levels import replace_equations, rewrite_graphs
from difflang.passes.rules.reshapes_and_constants import int_tuple

MAX_TERMS = 8
# Each more takes 20 to 40 ms to compile. Where the terms take so many bytes, a thousand runs or steps win that back.
MAX_TERMS_OF_LARGE, LARGE_BYTES = 32, 1 << 22
MAX_SHARED_TERMS = 4  # where others need what the terms are computed from too, so that it is computed twice
MAX_EQUATIONS = 16  # from which one term is computed; each is emitted for every term
MIN_BYTES = 1 << 15  # of all terms: what fits into the first cache is added in no time

MakerMap = Mapping[Value, Eqn]


def unroll_short_sums(graph: Graph) -> Graph:
    """Add the terms of sums over a short axis that are computed from smaller arrays. Cost: linear."""
    return rewrite_graphs(graph, unroll_level)


def unroll_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    sums = [e for e in graph.eqns if is_short(e)]
    if not sums:
        return graph
    made = {r: e for e in graph.eqns for r in e.results}
    readers = Counter([*graph.results, *[v for e in graph.eqns for v in e.operands]])
    plans = {e: terms for e in sums if (terms := term_equations(e, made, readers)) is not None}
    return replace_equations(graph, {e: partial(added_terms, e, terms) for e, terms in plans.items()})


def is_short(eqn: Eqn) -> bool:
    """Whether an equation sums floats over one short axis of a large array."""
    if eqn.op is not reduce_sum or len(int_tuple(eqn.attrs["axes"])) != 1:
        return False
    type = tensor_type(eqn.operands[0])
    (axis,) = int_tuple(eqn.attrs["axes"])
    known = all([isinstance(n, int) for n in type.shape]) and type.dtype in FLOATS[2:]
    most = MAX_TERMS_OF_LARGE if type.bytes >= LARGE_BYTES else MAX_TERMS
    return known and type.shape[axis] in range(2, most + 1) and type.bytes >= MIN_BYTES


def term_equations(eqn: Eqn, made: MakerMap, readers: Mapping[Value, int]) -> list[Eqn] | None:
    """The elementwise equations from which the terms are computed, in order, down to broadcasts and constants.

    None if a term needs an array as large as all terms, or work that others need too and that is not cheap.
    """
    (axis,) = int_tuple(eqn.attrs["axes"])
    is_long = static_size(tensor_type(eqn.operands[0]).shape[axis]) > MAX_SHARED_TERMS
    found: dict[Eqn, None] = {}
    todo = [eqn.operands[0]]
    while todo:
        value = todo.pop()
        maker = made.get(value)
        if maker in found:
            continue
        if maker is None or len(found) == MAX_EQUATIONS:
            return None
        if maker.op is broadcast:
            if tensor_type(maker.operands[0]).bytes * 2 > tensor_type(value).bytes:
                return None
        elif maker.op is not const:
            alike = [v.type for v in maker.operands] == [value.type] * len(maker.operands)
            alone = readers[value] == 1 or ("cheap" in maker.op.traits and not is_long)
            if not (maker.op.elementwise and alike and alone):
                return None
            todo += maker.operands
        found[maker] = None
    # A maker stands before what reads it: the order of the graph, by the values that it needs.
    ordered: dict[Eqn, None] = {}
    pending = [(made[eqn.operands[0]], False)]
    while pending:
        maker, ready = pending.pop()
        if ready:
            ordered[maker] = None
        elif maker not in ordered:
            pending.append((maker, True))
            pending += [(made[v], False) for v in maker.operands if made.get(v) in found]
    return list(ordered)


def added_terms(eqn: Eqn, terms: list[Eqn], builder: Builder, env: Mapping[Value, Value]) -> list[Value]:
    """The sum of the terms, one after the other."""
    (axis,) = int_tuple(eqn.attrs["axes"])
    total = term_at(builder, terms, env, axis, 0)
    for i in range(1, static_size(tensor_type(eqn.operands[0]).shape[axis])):
        total = builder.one("add", total, term_at(builder, terms, env, axis, i))
    return [total]


def term_at(builder: Builder, terms: list[Eqn], env: Mapping[Value, Value], axis: int, i: int) -> Value:
    """One term, from the slices at its place on the axis."""
    made: dict[Value, Value] = {}
    for eqn in terms:
        (result,) = eqn.results
        type = tensor_type(result)
        if eqn.op is const:
            made[result] = builder.const(eqn.attrs["value"], type.drop_axes(axis))
        elif eqn.op is broadcast:
            made[result] = sliced_broadcast(builder, eqn, env[eqn.operands[0]], axis, i)
        else:
            (made[result],) = builder.emit(eqn.op, [made[v] for v in eqn.operands], **eqn.attrs)
    return made[terms[-1].results[0]]


def sliced_broadcast(builder: Builder, eqn: Eqn, operand: Value, axis: int, i: int) -> Value:
    """A broadcast at one place of an axis of its result."""
    axes, type = int_tuple(eqn.attrs["axes"]), tensor_type(operand)
    if axis in axes and type.shape[axes.index(axis)] != 1:
        along = axes.index(axis)
        starts = tuple([i if a == along else 0 for a in range(type.rank)])
        stops = tuple([i + 1 if a == along else n for a, n in enumerate(type.shape)])
        operand = builder.one("slice", operand, starts=starts, stops=stops, steps=(1,) * type.rank)
    if axis in axes:
        operand = builder.one("reshape", operand, shape=type.drop_axes(axes.index(axis)).shape)
    kept = tuple([a - (a > axis) for a in axes if a != axis])
    shape: Tensor = tensor_type(eqn.results[0]).drop_axes(axis)
    return builder.one("broadcast", operand, shape=shape.shape, axes=kept)
