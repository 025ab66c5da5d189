"""Several updates to one place: the greatest or the least stays, or all multiply. Sums and plain writes are in `index`.

Each is what a loop over the updates in row-major order gives, and the derivative is that of the loop.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op, Rule, Solver
from difflang.ir.tensor_types import BOOL, BOOLS, I32, I64, NUMBERS, REALS, Tensor
from difflang.ops.arrays.axis_reductions import greatest, least
from difflang.ops.arrays.cumulative_and_recurrence import recurrence, shifted
from difflang.ops.arrays.gather_scatter import (
    DUPLICATES,
    NONE,
    NOTHING,
    OUTSIDE,
    SQUARE,
    Ints,
    Sizes,
    columns,
    gather,
    gather_lower,
    indexed_first,
    inside,
    items_type,
    scatter_add,
    scatter_dims,
    scatter_type,
)
from difflang.ops.batching_rules import scatter_each
from difflang.ops.elementwise.comparison_and_logic import eq, ge, gt, logical_and, lt, ne
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import Array, Example, Fixed, Uniform, inactive, known, like, tensor, zeros_at

SAMPLES = (
    Example(((3, 2), (5, 2), DUPLICATES), {"axes": (0,)}),
    Example(((2, 3), (5, 2), DUPLICATES), {"axes": (1,)}),
    Example(((2, 3, 2), (2, 2, 2), *SQUARE), {"axes": (0, 1)}, Uniform(0.5, 2.0)),
    Example(((3,), (4,), OUTSIDE), {"axes": (0,)}),
    Example(((3, 2), (0, 2), NOTHING), {"axes": (0,)}),
)


def one_by_one(combine: Any) -> Rule:
    """A reference: each update in turn."""

    def reference(x: Array, updates: Array, *indices: Array, axes: Ints) -> Array:
        result = np.array(x)
        front = indexed_first(result, axes)
        for place in map(tuple, np.argwhere(inside(indices, front.shape[: len(axes)]))):
            at = tuple(i[place] for i in indices)
            front[at] = combine(front[at], updates[place])
        return result

    return reference


# -------------------------------------------------------------------------------------- greatest and least


def claims_type(same: Solver, claims: Tensor, *indices: Tensor, shape: Sizes, axes: Ints) -> Tensor:
    same.accepts(claims, BOOLS)
    same.shape(items_type(same, Tensor(BOOL, shape), indices, axes), claims)
    return claims


def claims_reference(claims: Array, *indices: Array, shape: Ints, axes: Ints) -> Array:
    taken = indexed_first(np.zeros(shape, np.bool_), axes)
    result = np.zeros(claims.shape, np.bool_)
    for place in map(tuple, np.argwhere(inside(indices, taken.shape[: len(axes)]))):
        at = tuple(i[place] for i in indices)
        result[place] = claims[place] & ~taken[at]
        taken[at] |= claims[place]
    return result


def claims_lower(jax: Any, claims: Any, *indices: Any, shape: Ints, axes: Ints) -> Any:
    """Every place is given the least ordinal that claims it: a minimum does not depend on the order of writes."""
    lax, lead = jax.lax, indices[0].shape
    count = prod(lead)
    ordinals = lax.reshape(lax.iota(np.int32, count), lead)
    ordinals = lax.broadcast_in_dim(ordinals, claims.shape, tuple(range(len(lead))))
    none = np.int32(count)
    first = lax.scatter_min(
        lax.full(shape, none), columns(jax, indices), lax.select(claims, ordinals, lax.full_like(ordinals, none)),
        scatter_dims(jax, len(shape), indices, axes), mode=lax.GatherScatterMode.FILL_OR_DROP,
    )  # fmt: skip
    return lax.bitwise_and(claims, lax.eq(gather_lower(jax, first, *indices, axes=axes), ordinals))


first_claims = inactive(
    "first_claims",
    type=claims_type,
    reference=claims_reference,
    lower=claims_lower,
    direct=True,
    samples=(
        Example((Fixed((True, False, True, True, True), BOOL), DUPLICATES), {"shape": (3,), "axes": (0,)}),
        Example((Fixed(((True, True), (True, False)), BOOL), *SQUARE), {"shape": (2, 3), "axes": (0, 1)}),
        Example((Fixed(((True,) * 2,) * 4, BOOL), OUTSIDE), {"shape": (2, 3), "axes": (1,)}),
        Example((Fixed((), BOOL), NOTHING), {"shape": (3,), "axes": (0,)}),
        Example((Fixed(((), ()), BOOL), NONE), {"shape": (0,), "axes": (0,)}),
    ),
    doc="""Is each claim the first, in row-major order of the indices, to its place in an array of that shape? False
    where nothing is claimed, and out of range.""",
)


def winner(better: Op) -> Rule:
    """The tangent of what was written: in each place that changed, of the first update that is its value now."""

    def rule(du: Value, y: Value, x: Value, updates: Value, *indices: Value, axes: Ints) -> Value:
        was, now = (gather.one(v, *indices, axes=axes) for v in (x, y))
        claims = logical_and.one(better.one(now, was), eq.one(updates, now))
        wins = first_claims.one(claims, *indices, shape=tensor(x).shape, axes=axes)
        return scatter_add.one(zeros_at(du, x.type.tangent or x.type), kept(wins, du), *indices, axes=axes)

    return rule


def kept(wins: Value, d: Value) -> Value:
    return select.one(wins, d, zeros_at(d, d.type))


def extreme(name: str, better: Op, reference: Any, lower: str, nothing: Any, doc: str) -> Op:
    def x_rule(dx: Value, y: Value, x: Value, *_: Value, axes: Ints) -> Value:
        return select.one(better.one(y, x), zeros_at(dx, dx.type), dx)

    def lowering(jax: Any, x: Any, updates: Any, *indices: Any, axes: Ints) -> Any:
        """An update that is NaN is never better, so it must not spoil its place either."""
        lax = jax.lax
        if jax.numpy.issubdtype(x.dtype, np.floating):
            updates = lax.select(lax.ne(updates, updates), lax.full_like(updates, nothing(x.dtype)), updates)
        return getattr(lax, lower)(
            x, columns(jax, indices), updates, scatter_dims(jax, x.ndim, indices, axes),
            mode=lax.GatherScatterMode.FILL_OR_DROP,
        )  # fmt: skip

    def combine(old: Array, new: Array) -> Array:
        return np.where(reference(new, old), new, old)

    return OPS.declare(
        Op(
            name,
            type=scatter_type(REALS),
            jvp=(x_rule, winner(better), None),
            reference=one_by_one(combine),
            lower=lowering,
            direct=True,
            each=scatter_each,
            updates=True,
            accepts=REALS,
            samples=SAMPLES,
            doc=doc,
        )
    )


scatter_max = extreme(
    "scatter_max",
    gt,
    np.greater,
    "scatter_max",
    least,
    """`x` with items replaced at the indices (see `gather`) where they are greater than what is there: of several to
    one place the greatest stays. NaN is not greater, and nothing is greater than NaN; out of range nothing is written.
    Units: u, u -> u. Kinks: an assignment that happens, so the first of equals has the derivative, before them `x`.""",
)
scatter_min = extreme(
    "scatter_min",
    lt,
    np.less,
    "scatter_min",
    greatest,
    """`x` with items replaced at the indices (see `gather`) where they are less than what is there: see `scatter_max`.
    Units: u, u -> u. Kinks: an assignment that happens, so the first of equals has the derivative, before them `x`.""",
)


# ------------------------------------------------------------------------------------------------- products


def factor_tangent(du: Value, y: Value, x: Value, updates: Value, *indices: Value, axes: Ints) -> Value:
    """The product rule step by step, as the loop has it: sorted by place, the products so far are a recurrence.

    No division, so zeros are exact at every order.
    """
    flat, places = tensor(updates).shape[tensor(indices[0]).rank :], [in_a_row(i) for i in indices]
    size = known(tensor(places[0]).shape[0])
    if size == 0:
        return zeros_at(du, y.type)
    rows = [OPS["reshape"].one(v, shape=(size, *flat)) for v in (updates, du)]
    sizes = [known(tensor(x).shape[a]) for a in axes]
    number = numbered(places, sizes)
    order = OPS["argsort"].one(number, axis=0, descending=False)
    number, *places = (gather.one(v, order, axes=(0,)) for v in (number, *places))
    factors, moved = (gather.one(v, order, axes=(0,)) for v in rows)
    begins = along(ne.one(number, shifted(number, 0, False, -1)), factors)
    written = along(lt.one(number, like(number, prod(sizes))), factors)
    ends = logical_and.one(shifted(begins, 0, True, True), written)
    start = gather.one(x, *places, axes=axes)
    nothing = zeros_at(start, start.type)
    products = recurrence.one(begins, factors, select.one(begins, start * factors, nothing), axis=0, reverse=False)
    before = select.one(begins, start, shifted(products, 0, False, 0.0))
    changes = recurrence.one(begins, factors, before * moved, axis=0, reverse=False)
    return scatter_add.one(zeros_at(du, y.type), kept(ends, changes), *places, axes=axes)


def in_a_row(index: Value) -> Value:
    return OPS["reshape"].one(index, shape=(prod(map(known, tensor(index).shape)),))


def along(marks: Value, x: Value) -> Value:
    return OPS["broadcast"].one(marks, shape=tensor(x).shape, axes=(0,))


def numbered(places: list[Value], sizes: list[int]) -> Value:
    """One number for each place, the next one for what is out of range."""
    total = prod(sizes)
    dtype = I32 if total < 2**31 else I64
    places = [p if tensor(p).dtype is dtype else OPS["truncate"].one(p, dtype=dtype) for p in places]
    number, good = like(places[0], 0), places[0].home.const(True, Tensor(BOOL, tensor(places[0]).shape))
    for place, size in zip(places, sizes, strict=True):
        number = number * size + place
        within = logical_and.one(ge.one(place, like(place, 0)), lt.one(place, like(place, size)))
        good = logical_and.one(good, within)
    return select.one(good, number, like(number, total))


def scatter_mul_lower(jax: Any, x: Any, updates: Any, *indices: Any, axes: Ints) -> Any:
    lax = jax.lax
    return lax.scatter_mul(
        x, columns(jax, indices), updates, scatter_dims(jax, x.ndim, indices, axes),
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )  # fmt: skip


def start_tangent(dx: Value, y: Value, x: Value, updates: Value, *indices: Value, axes: Ints) -> Value:
    ones = x.home.const(1.0, x.type)
    return dx * scatter_mul.one(ones, updates, *indices, axes=axes)


scatter_mul = OPS.declare(
    Op(
        "scatter_mul",
        type=scatter_type(NUMBERS),
        jvp=(start_tangent, factor_tangent, None),
        reference=one_by_one(np.multiply),
        lower=scatter_mul_lower,
        direct=True,
        each=scatter_each,
        updates=True,
        accepts=NUMBERS,
        samples=SAMPLES,
        doc="""`x` with items multiplied at the indices (see `gather`); several to one place all count; one out of range
        is dropped; integers wrap. Units: u, 1 -> u. Kinks: none; the derivative is exact where items are 0.""",
    )
)
