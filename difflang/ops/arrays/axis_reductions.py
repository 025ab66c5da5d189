"""Reductions over axes. The mean, the variance and the like are composites above the IR, running sums in `running`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op, Rule, Solver, Unknown
from difflang.ir.symbolic_dims import Dim, UnknownSize
from difflang.ir.tensor_types import BOOL, BOOLS, FLOATS, I32, NUMBERS, REALS, DType, Tensor
from difflang.ops.elementwise.comparison_and_logic import eq, gt, lt
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import (
    Array,
    Example,
    Fixed,
    axes_but,
    axes_moved,
    inactive,
    like,
    linear,
    tensor,
    zeros_at,
)

Ints = tuple[int, ...]

SAMPLES = (
    Example(((2, 3, 4),), {"axes": (0, 2)}),
    Example(((3,),), {"axes": (0,)}),
    Example(((1, 3),), {"axes": (0,)}),
    Example(((2, 0),), {"axes": (0,)}),
    Example(((2, 3),), {"axes": ()}),
)
EMPTY = (Example(((2, 0),), {"axes": (1,)}),)
TRUTHS = (
    Example((Fixed(((True, False, True), (True, True, True)), BOOL),), {"axes": (1,)}),
    Example((Fixed(((True, False), (False, False)), BOOL),), {"axes": (0, 1)}),
    Example((Fixed((), BOOL),), {"axes": (0,)}),
)


def reduced_type(accepts: tuple[DType, ...]) -> Rule:
    def type(same: Solver, x: Tensor, *, axes: Ints) -> Tensor:
        same.accepts(x, accepts)
        same.require(
            len(set(axes)) == len(axes) and all(0 <= a < x.rank for a in axes), "axes {} do not fit {}", axes, x
        )
        return x.without(*axes)

    return type


def spread_back(y: Value, like: Value | Unknown, axes: Ints) -> Value:
    """A result of a reduction, repeated along the axes that went."""
    return OPS["broadcast"].one(y, shape=tensor(like).shape, axes=axes_but(tensor(like).rank, axes))


def wide(x: Array) -> Array:
    """16-bit floats in f32: a long sum in 16 bits stops growing."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def each_once(x: Any, *, axes: Ints) -> Any:
    """The flops of what takes every element once."""
    return np.prod(x.shape)


def sum_lower(jax: Any, x: Any, *, axes: Ints) -> Any:
    """Sums of 16-bit floats are kept in f32 and rounded once."""
    if x.dtype.itemsize == 2 and jax.numpy.issubdtype(x.dtype, np.floating):
        total = jax.lax.reduce_sum(jax.lax.convert_element_type(x, np.float32), axes)
        return jax.lax.convert_element_type(total, x.dtype)
    return jax.lax.reduce_sum(x, axes)


reduce_sum = linear(
    "reduce_sum",
    direct=True,
    type=reduced_type(NUMBERS),
    transpose=(lambda ct, x, axes: spread_back(ct, x, axes),),
    carries=True,
    shuffles=True,
    reference=lambda x, axes: np.sum(wide(x), axis=axes, dtype=wide(x).dtype).astype(x.dtype),
    lower=sum_lower,
    accepts=NUMBERS,
    cost=each_once,
    barrier=True,
    lanes=axes_moved,
    samples=(*SAMPLES, *EMPTY),
    doc="""Sum over axes; 0 over nothing; integers wrap; 16-bit floats are summed in f32. Units: u -> u.
    Kinks: none.""",
)


# ------------------------------------------------------------------------------------------- product


def factors(x: Value, axes: Ints) -> Value:
    """The reduced axes as one, in front."""
    rest = axes_but(tensor(x).rank, axes)
    size: Dim = 1
    for a in axes:
        size = size * tensor(x).shape[a]
    turned = OPS["transpose"].one(x, perm=(*axes, *rest))
    return OPS["reshape"].one(turned, shape=(size, *(tensor(x).shape[a] for a in rest)))


def reduce_prod_jvp(dx: Value, y: Value, x: Value, *, axes: Ints) -> Value:
    """The product rule up a balanced tree of products: no division, so zeros are exact at every order."""
    p, dp = factors(x, axes), factors(dx, axes)
    while (n := tensor(p).shape[0]) != 1:
        if n == 0:
            return zeros_at(dx, y.type)
        if not isinstance(n, int):
            raise UnknownSize(f"the size `{n}`")
        half = n // 2
        a, b, rest = piece(p, 0, half), piece(p, half, 2 * half), piece(p, 2 * half, n)
        da, db, drest = piece(dp, 0, half), piece(dp, half, 2 * half), piece(dp, 2 * half, n)
        p, dp = joined(a * b, rest), joined(da * b + db * a, drest)
    return OPS["reshape"].one(dp, shape=tensor(y).shape)


def piece(x: Value, start: Dim, stop: Dim) -> Value:
    rest = tensor(x).shape[1:]
    zeros, ones = (0,) * len(rest), (1,) * len(rest)
    return OPS["slice"].one(x, starts=(start, *zeros), stops=(stop, *rest), steps=(1, *ones))


def joined(x: Value, rest: Value) -> Value:
    return x if tensor(rest).shape[0] == 0 else OPS["concat"].one(x, rest, axis=0)


reduce_prod = OPS.declare(
    Op(
        "reduce_prod",
        type=reduced_type(NUMBERS),
        jvp=(reduce_prod_jvp,),
        reference=lambda x, axes: np.prod(wide(x), axis=axes, dtype=wide(x).dtype).astype(x.dtype),
        lower=lambda jax, x, axes: jax.lax.reduce_prod(x, axes),
        accepts=NUMBERS,
        cost=each_once,
        barrier=True,
        lanes=axes_moved,
        samples=(*SAMPLES, *EMPTY, Example(((5, 2),), {"axes": (0,)}), Example(((7,),), {"axes": (0,)})),
        doc="""Product over axes; 1 over nothing; integers wrap. Units: 1 -> 1.
        Kinks: none; the derivative is exact where elements are 0.""",
    )
)


# --------------------------------------------------------------------------------------- extremes


def tied(loses: Value, dx: Value, y: Value, axes: Ints, ties: Value | None = None) -> Value:
    """The mean over `axes` of the tangents of those that do not lose; 0 where there is none.

    `ties` is their number, where there is a faster way to count them than a sum over `axes`. Nothing loses to NaN, and
    there everything is divided by the NaN: forwards and in reverse the derivative is NaN.
    """
    one, zero = like(dx, 1), like(dx, 0)
    moved = reduce_sum.one(select.one(loses, zero, dx), axes=axes)
    if 0 in [tensor(dx).shape[a] for a in axes]:
        return moved
    if ties is None:
        ties = reduce_sum.one(select.one(loses, zero, one), axes=axes)
    return moved / select.one(eq.one(y, y), ties, y)


ROWS = 32  # XLA reduces so many numbers at once, and more in windows of so many: a kernel for each level of them
FOLDS = 2  # each is three operations to trace and compile; four take a quarter off 100,000 elements, and add to few
LITTLE = ROWS**2  # elements; so few of an array are soon reduced either way


def with_vectors(name: str, combine: str) -> Rule:
    """The lowering of a reduction by one of `lax`, where elements may come in any order and more than once.

    XLA on the CPU reduces to one truth or integer without vector instructions, but combines arrays with them. Many of
    these are laid on top of each other first, which takes from a third to a tenth of the time: a vector in rows, other
    arrays half on half, since what makes them is fused into this and would have to find each element's place from its
    place in a row. Of floats XLA makes a call of a library.
    """

    def lower(jax: Any, x: Any, *, axes: Ints) -> Any:
        reduce, merge = getattr(jax.lax, name), getattr(jax.lax, combine)
        if len(axes) == x.ndim and x.dtype.kind in "biu":
            if x.ndim == 1:
                x = rows_merged(jax.lax, x, reduce, merge)
            elif x.size > LITTLE:
                x = halves_merged(jax.lax, x, merge)
        return reduce(x, axes)

    return lower


def rows_merged(lax: Any, x: Any, reduce: Any, merge: Any) -> Any:
    while x.size > ROWS:
        width = -(-x.size // ROWS)
        height = x.size // width
        whole = x if height * width == x.size else lax.slice(x, (0,), (height * width,))
        merged = reduce(lax.reshape(whole, (height, width)), (0,))
        # What is left over, some rows again. Where nothing is, it keeps XLA from making one slow reduction of the two.
        x = merge(merged, lax.slice(x, (x.size - width,), (x.size,)))
    return x


def halves_merged(lax: Any, x: Any, merge: Any) -> Any:
    for _ in range(FOLDS):
        axis = int(np.argmax(x.shape))
        size = x.shape[axis]
        half = -(-size // 2)  # of an odd number, the one in the middle is in both
        x = merge(*[lax.slice_in_dim(x, start, start + half, axis=axis) for start in (0, size - half)])
    return x


def least(dtype: np.dtype[Any]) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def greatest(dtype: np.dtype[Any]) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


SHORT = 32  # of a longer last axis XLA takes the greatest with vector instructions, NaN or not


def top_on_cpu(jax: Any, x: Any, *, axes: Ints) -> Any:
    """By a comparison, where XLA would make sure of NaN element by element: in 0.7 to 0.95 of the time."""
    lax = jax.lax
    if x.dtype.kind in "iu" or not axes or (x.ndim - 1 in axes and x.shape[-1] > SHORT):
        return reduce_max.lower(jax, x, axes=axes)
    return lax.reduce(x, np.asarray(least(x.dtype), x.dtype), lambda a, b: lax.select(lax.gt(a, b), a, b), axes)


def extreme(
    name: str,
    loses: Op,
    reduce: Any,
    start: Callable[[np.dtype[Any]], Any],
    lower: Rule,
    doc: str,
    on_cpu: Rule | None = None,
) -> Op:
    def jvp(dx: Value, y: Value, x: Value, *, axes: Ints) -> Value:
        return tied(loses.one(x, spread_back(y, x, axes)), dx, y, axes)

    def reference(x: Array, *, axes: Ints) -> Array:
        return np.asarray(reduce(wide(x), axis=axes, initial=start(x.dtype))).astype(x.dtype)

    return OPS.declare(
        Op(
            name,
            reduced_type(REALS),
            reference,
            lower,
            doc,
            direct=True,
            jvp=(jvp,),
            accepts=REALS,
            cost=each_once,
            barrier=True,
            lanes=axes_moved,
            samples=(*SAMPLES, *EMPTY),
            on_cpu=on_cpu,
        )
    )


reduce_max = extreme(
    "reduce_max",
    lt,
    np.max,
    least,
    with_vectors("reduce_max", "max"),
    """Greatest over axes; -Inf or the least integer over nothing; NaN if any is. Units: u -> u.
    Kinks: k ties share the derivative, 1/k each.""",
)
reduce_top = extreme(
    "reduce_top",
    lt,
    np.max,
    least,
    reduce_max.lower,
    """Greatest over axes, as what a sum of exponentials is measured from: any number or NaN if there is a NaN, which
    makes the sum NaN in any case. Units: u -> u. Kinks: k ties share the derivative, 1/k each.""",
    top_on_cpu,
)
reduce_min = extreme(
    "reduce_min",
    gt,
    np.min,
    greatest,
    with_vectors("reduce_min", "min"),
    """Least over axes; +Inf or the greatest integer over nothing; NaN if any is. Units: u -> u.
    Kinks: k ties share the derivative, 1/k each.""",
)


def position_type(same: Solver, x: Tensor, *, axis: int) -> Tensor:
    same.accepts(x, REALS)
    same.require(0 <= axis < x.rank, "there is no axis {} in {}", axis, x)
    same.require(x.shape[axis] != 0, "an empty axis has no extreme: {}", x)
    return Tensor(I32, x.without(axis).shape)


def position(name: str, find: Any, lower: Rule, doc: str) -> Op:
    return inactive(
        name,
        type=position_type,
        reference=lambda x, axis: find(wide(x), axis=axis).astype(np.int32),
        lower=lower,
        accepts=REALS,
        lanes=lambda n, axis: {"axis": axis + 1},
        samples=(
            Example(((2, 3),), {"axis": 1}),
            Example(((1,),), {"axis": 0}),
            Example(((3, 0),), {"axis": 0}),
            Example((Fixed((1.0, 3.0, 3.0, 1.0), FLOATS[2]),), {"axis": 0}),
            Example((Fixed((1.0, float("nan"), 3.0, float("nan")), FLOATS[2]),), {"axis": 0}),
        ),
        doc=doc,
    )


argmax = position(
    "argmax",
    np.argmax,
    lambda jax, x, axis: jax.lax.argmax(x, axis, np.int32),
    """Position of the first greatest element, or of the first NaN; the axis is not empty.""",
)
argmin = position(
    "argmin",
    np.argmin,
    lambda jax, x, axis: jax.lax.argmin(x, axis, np.int32),
    """Position of the first least element, or of the first NaN; the axis is not empty.""",
)

reduce_all = inactive(
    "reduce_all",
    direct=True,
    type=reduced_type(BOOLS),
    reference=lambda x, axes: np.all(x, axis=axes),
    lower=with_vectors("reduce_and", "bitwise_and"),
    accepts=BOOLS,
    lanes=axes_moved,
    samples=TRUTHS,
    doc="""Are all true? True over nothing.""",
)
reduce_any = inactive(
    "reduce_any",
    direct=True,
    type=reduced_type(BOOLS),
    reference=lambda x, axes: np.any(x, axis=axes),
    lower=with_vectors("reduce_or", "bitwise_or"),
    accepts=BOOLS,
    lanes=axes_moved,
    samples=TRUTHS,
    doc="""Is any true? False over nothing.""",
)


def anywhere(truths: Value, like: Value | Unknown) -> Value:
    """For each element of another array whether any of the truths holds."""
    some = reduce_any.one(truths, axes=tuple(range(tensor(truths).rank)))
    return OPS["broadcast"].one(some, shape=tensor(like).shape, axes=())
