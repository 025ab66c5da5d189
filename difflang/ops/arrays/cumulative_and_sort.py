"""Cumulative sums and products, linear recurrences, and `argsort`, along an axis. Others are composites of these.

Sums are grouped as a tree. Products and recurrences run sequentially on a CPU, which is faster there and never
overflows where the answer does not; elsewhere they are grouped as a tree too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Attr, Value
from difflang.ir.op import (
    OPS,
    ArrayLowerRule,
    ArrayReferenceRule,
    Op,
    OperandRules,
    TensorTypeRule,
    TypeSolver,
    UndefinedPrimal,
)
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import BOOL, BOOLS, F64, I8, I32, NUMBERS, REALS, DType, Tensor
from difflang.ops.arrays.axis_reductions import upcast_half_array
from difflang.ops.arrays.shape_manipulation import pad
from difflang.ops.elementwise.linear_arithmetic import conj_if_complex, select
from difflang.ops.op_factories import (
    HOLOMORPHIC_DTYPES,
    FixedOperand,
    OpExample,
    along_new_axis,
    inactive_op,
    linear_op,
    tensor_type,
    zeros_of_type,
)

Operand = Value | UndefinedPrimal

SAMPLES = (
    OpExample(((3, 4),), {"axis": 1, "reverse": False}),
    OpExample(((3, 1),), {"axis": 0, "reverse": True}),
    OpExample(((1,),), {"axis": 0, "reverse": False}),
    OpExample(((0,),), {"axis": 0, "reverse": False}),
    OpExample(((2, 0),), {"axis": 0, "reverse": True}),
)


def along_axis_type(accepts: tuple[DType, ...]) -> TensorTypeRule:
    """One result per position along an axis, in the same shape."""

    def type(same: TypeSolver, x: Tensor, *, axis: int, reverse: bool) -> Tensor:
        same.accepts(x, accepts)
        same.require(0 <= axis < x.rank, "there is no axis {} in {}", axis, x)
        return x

    return type


def batched_axis_attr(n: Dim, *, axis: int, reverse: bool) -> dict[str, Attr]:
    return {"axis": axis + 1, "reverse": reverse}


def cumulative_reference(accumulate: Callable[..., Array]) -> ArrayReferenceRule:
    """A reference: NumPy's cumulative function, from the end if `reverse`; 16-bit floats in f32."""

    def reference(x: Array, *, axis: int, reverse: bool) -> Array:
        ordered = np.flip(upcast_half_array(x), axis) if reverse else upcast_half_array(x)
        found = accumulate(ordered, axis=axis, dtype=ordered.dtype).astype(x.dtype)
        return np.flip(found, axis) if reverse else found

    return reference


def accumulate_in_f32(lower: ArrayLowerRule) -> ArrayLowerRule:
    """A lowering that accumulates 16-bit floats in f32, and rounds at the end."""

    def rule(jax: Jax, *xs: JaxArray, **attrs: Attr) -> JaxArray:
        last = xs[-1]
        if last.dtype.itemsize > 2 or not jax.numpy.issubdtype(last.dtype, np.floating):
            return lower(jax, *xs, **attrs)
        convert = jax.lax.convert_element_type
        found = lower(jax, *[x if x.dtype == np.bool_ else convert(x, np.float32) for x in xs], **attrs)
        return convert(found, last.dtype)

    return rule


def shift_along_axis(x: Value, axis: int, reverse: bool, first: float) -> Value:
    """The elements shifted by one position along the axis, `first` at the start; the other way if `reverse`."""
    rank = tensor_type(x).rank
    one = tuple(int(a == axis) for a in range(rank))
    less = tuple(-n for n in one)
    low, high = (less, one) if reverse else (one, less)
    return pad.one(x, x.home.const(first, tensor_type(x).reshaped()), low=low, high=high, interior=(0,) * rank)


cumsum = linear_op(
    "cumsum",
    type=along_axis_type(NUMBERS),
    transpose=(lambda ct, x, axis, reverse: cumsum.one(ct, axis=axis, reverse=not reverse),),
    traits=("data movement",),
    batch_rule=along_new_axis(batched_axis_attr),
    reference=cumulative_reference(np.cumsum),
    lower=accumulate_in_f32(lambda jax, x, axis, reverse: jax.lax.cumsum(x, axis, reverse)),
    accepts=NUMBERS,
    samples=SAMPLES,
    doc="""Running sums along an axis, from its end if `reverse`. Units: u -> u. Kinks: none.""",
)


# ---- Linear recurrences

# Whether it starts afresh, the factor and the term.
AffineStep = tuple[JaxArray, JaxArray, JaxArray]


def recurrence_type(same: TypeSolver, fresh: Tensor, a: Tensor, b: Tensor, *, axis: int, reverse: bool) -> Tensor:
    same.accepts(fresh, BOOLS)
    same.dtype(a, b)
    same.shape(a, b)
    same.shape(fresh, a)
    return along_axis_type(HOLOMORPHIC_DTYPES)(same, b, axis=axis, reverse=reverse)


def recurrence_reference(fresh: Array, a: Array, b: Array, *, axis: int, reverse: bool) -> Array:
    new, factors, terms = (np.moveaxis(x, axis, 0) for x in (fresh, upcast_half_array(a), upcast_half_array(b)))
    result = np.array(terms)
    order = range(len(result))
    last: Array | None = None
    for k in reversed(order) if reverse else order:
        if last is not None:
            result[k] = np.where(new[k], terms[k], factors[k] * last + terms[k])
        last = result[k]
    return np.moveaxis(result, 0, axis).astype(b.dtype)


def sequential_recurrence(jax: Jax, fresh: JaxArray, a: JaxArray, b: JaxArray, *, axis: int, reverse: bool) -> JaxArray:
    """One position after the other."""
    lax, numpy = jax.lax, jax.numpy

    def step(z: JaxArray, at: AffineStep) -> tuple[JaxArray, JaxArray]:
        new, factor, term = at
        z = lax.select(new, term, factor * z + term)
        return z, z

    news, factors, terms = (numpy.moveaxis(x, axis, 0) for x in (fresh, a, b))
    start = lax.full(terms.shape[1:], 0, b.dtype)
    places = (news.at[-1 if reverse else 0].set(True), factors, terms)
    return numpy.moveaxis(lax.scan(step, start, places, reverse=reverse)[1], 0, axis)


def associative_recurrence(
    jax: Jax, fresh: JaxArray, a: JaxArray, b: JaxArray, *, axis: int, reverse: bool
) -> JaxArray:
    """Steps z -> a z + b composed pairwise; a `fresh` step discards those before it."""
    select = jax.lax.select

    def compose(first: AffineStep, second: AffineStep) -> AffineStep:
        (old, a, b), (new, c, d) = first, second
        return old | new, select(new, c, a * c), select(new, d, c * b + d)

    return jax.lax.associative_scan(compose, (fresh, a, b), reverse=reverse, axis=axis)[2]


def recurrence_lower(jax: Jax, fresh: JaxArray, a: JaxArray, b: JaxArray, *, axis: int, reverse: bool) -> JaxArray:
    def bind_axis(how: ArrayLowerRule) -> Callable[..., JaxArray]:
        return lambda *xs: how(jax, *xs, axis=axis, reverse=reverse)

    if b.size == 0:
        return b
    return jax.lax.platform_dependent(
        fresh, a, b, cpu=bind_axis(sequential_recurrence), default=bind_axis(associative_recurrence)
    )


def recurrence_factor_jvp(da: Value, z: Value, fresh: Value, a: Value, b: Value, *, axis: int, reverse: bool) -> Value:
    moved = select.one(fresh, zeros_of_type(da, da.type), da * shift_along_axis(z, axis, reverse, 0.0))
    return recurrence.one(fresh, a, moved, axis=axis, reverse=reverse)


def recurrence_term_transpose(ct: Value, fresh: Value, a: Value, b: Operand, *, axis: int, reverse: bool) -> Value:
    """The recurrence in the other direction, each factor shifted to where it passes its cotangent."""
    back = not reverse
    factors = conj_if_complex(shift_along_axis(a, axis, back, 0.0))
    return recurrence.one(shift_along_axis(fresh, axis, back, True), factors, ct, axis=axis, reverse=back)


FRESH_FLAGS = FixedOperand(((False, False, True, False), (True, False, False, False), (False, True, True, False)), BOOL)

recurrence = OPS.declare(
    Op(
        "recurrence",
        type=recurrence_type,
        derivative=OperandRules(
            jvp=(None, recurrence_factor_jvp, lambda db, z, fresh, a, b, **at: recurrence.one(fresh, a, db, **at)),
            transpose=(None, None, recurrence_term_transpose),
        ),
        reference=recurrence_reference,
        lower=accumulate_in_f32(recurrence_lower),
        accepts=HOLOMORPHIC_DTYPES,
        samples=(
            OpExample((FRESH_FLAGS, (3, 4), (3, 4)), {"axis": 1, "reverse": False}),
            OpExample((FRESH_FLAGS, (3, 4), (3, 4)), {"axis": 0, "reverse": True}),
            OpExample((FixedOperand((False,), BOOL), (1,), (1,)), {"axis": 0, "reverse": False}),
            OpExample((FixedOperand((), BOOL), (0,), (0,)), {"axis": 0, "reverse": True}),
        ),
        doc="""z[k] = a[k] z[k - 1] + b[k] along an axis, from its end if `reverse`; just b[k] at the first place and
        where `fresh`, whatever stands before. Linear in b. Units: 1, u -> u. Kinks: none.""",
    )
)


# ---- Cumulative products


def cumprod_jvp(dx: Value, y: Value, x: Value, *, axis: int, reverse: bool) -> Value:
    """The product rule as a recurrence: no division, so zeros are exact at every order."""
    nowhere = x.home.const(False, Tensor(BOOL, tensor_type(x).shape))
    return recurrence.one(nowhere, x, shift_along_axis(y, axis, reverse, 1.0) * dx, axis=axis, reverse=reverse)


def cumprod_lower(jax: Jax, x: JaxArray, *, axis: int, reverse: bool) -> JaxArray:
    lax, numpy = jax.lax, jax.numpy

    def sequential_cumprod(x: JaxArray) -> JaxArray:
        def step(z: JaxArray, factor: JaxArray) -> tuple[JaxArray, JaxArray]:
            return z * factor, z * factor

        places = numpy.moveaxis(x, axis, 0)
        start = lax.full(places.shape[1:], 1, x.dtype)
        return numpy.moveaxis(lax.scan(step, start, places, reverse=reverse)[1], 0, axis)

    if x.size == 0:
        return x
    return lax.platform_dependent(x, cpu=sequential_cumprod, default=lambda x: lax.cumprod(x, axis, reverse))


cumprod = OPS.declare(
    Op(
        "cumprod",
        type=along_axis_type(REALS),
        derivative=OperandRules(jvp=(cumprod_jvp,)),
        batch_rule=along_new_axis(batched_axis_attr),
        reference=cumulative_reference(np.cumprod),
        lower=accumulate_in_f32(cumprod_lower),
        accepts=REALS,
        samples=(*SAMPLES, OpExample(((7,),), {"axis": 0, "reverse": True})),
        doc="""Running products along an axis, from its end if `reverse`; integers wrap. Units: 1 -> 1.
        Kinks: none; the derivative is exact where elements are 0.""",
    )
)


NAN, INF = float("nan"), float("inf")


def argsort_type(same: TypeSolver, x: Tensor, *, axis: int, descending: bool) -> Tensor:
    same.accepts(x, REALS)
    same.require(0 <= axis < x.rank, "there is no axis {} in {}", axis, x)
    return Tensor(I32, x.shape)


def reverse_axis(x: Array, axis: int) -> Array:
    return x[(slice(None),) * axis + (slice(None, None, -1),)]


def argsort_reference(x: Array, *, axis: int, descending: bool) -> Array:
    """In descending order: a stable sort of the reversed array, read backwards."""
    if not descending:
        return np.argsort(upcast_half_array(x), axis=axis, kind="stable").astype(np.int32)
    order = np.argsort(upcast_half_array(reverse_axis(x, axis)), axis=axis, kind="stable")
    return (x.shape[axis] - 1 - reverse_axis(order, axis)).astype(np.int32)


def argsort_lower(jax: Jax, x: JaxArray, *, axis: int, descending: bool) -> JaxArray:
    """JAX's stable sort treats zeros of both signs as equal, and NaNs of every kind as greater than all numbers."""
    lax = jax.lax
    places = lax.broadcasted_iota(np.int32, x.shape, axis)
    if x.size == 0:
        return places
    if descending:
        x, places = lax.rev(x, (axis,)), lax.rev(places, (axis,))
    order = lax.sort((x, places), dimension=axis, is_stable=True, num_keys=1)[1]
    return lax.rev(order, (axis,)) if descending else order


TIED_OPERAND = FixedOperand((2.0, NAN, -INF, 0.0, 2.0, -0.0, NAN, INF), F64)

argsort = inactive_op(
    "argsort",
    type=argsort_type,
    reference=argsort_reference,
    lower=argsort_lower,
    accepts=REALS,
    batch_rule=along_new_axis(lambda n, axis, descending: {"axis": axis + 1, "descending": descending}),
    samples=(
        OpExample(((3, 4),), {"axis": 1, "descending": False}),
        OpExample(((3, 4),), {"axis": 0, "descending": True}),
        OpExample(((1,),), {"axis": 0, "descending": True}),
        OpExample(((2, 0),), {"axis": 1, "descending": False}),
        OpExample(((0,),), {"axis": 0, "descending": True}),
        OpExample((TIED_OPERAND,), {"axis": 0, "descending": False}),
        OpExample((TIED_OPERAND,), {"axis": 0, "descending": True}),
        OpExample((FixedOperand((1, -3, 1, 7, -3), I8),), {"axis": 0, "descending": True}),
    ),
    doc="""Positions along an axis in the order of their elements; equal elements keep theirs, descending too. NaN is
    greater than every number: last, or first if `descending`.""",
)
