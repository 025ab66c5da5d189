"""Discrete Fourier transforms: `fft` of complex numbers along any axes, `rfft` and `irfft` along one.

They are scaled as in NumPy. The matrix of a transform is symmetric, and its adjoint is the transform in the other
direction up to a factor of the size. In a real transform, frequencies between the first and the middle stand for two:
themselves and their conjugates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Value
from difflang.ir.op import TypeSolver, UndefinedPrimal
from difflang.ir.symbolic_dims import Dim, floor_div
from difflang.ir.tensor_types import COMPLEXES, F32, F64, I32, Tensor
from difflang.ops.elementwise.comparison_and_logic import gt, logical_and, lt
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import OpExample, along_new_axis, linear_op, remaining_axes, tensor_type

Ints = tuple[int, ...]
Operand = Value | UndefinedPrimal
# XLA transforms at most three axes at once.
MAX_XLA_AXES = 3


def check_fft_axes(same: TypeSolver, x: Tensor, axes: Ints) -> None:
    """Require distinct axes, none of them empty."""
    distinct = len(set(axes)) == len(axes) and all(0 <= a < x.rank for a in axes)
    same.require(distinct, "axes {} do not fit {}", axes, x)
    same.require(all(x.shape[a] != 0 for a in axes), "an axis of size 0 has no transform: {}", x)


def fft_type(same: TypeSolver, x: Tensor, *, axes: Ints, inverse: bool) -> Tensor:
    same.accepts(x, COMPLEXES)
    check_fft_axes(same, x, axes)
    return x


def rfft_type(same: TypeSolver, x: Tensor, *, axis: int) -> Tensor:
    same.accepts(x, (F32, F64))
    check_fft_axes(same, x, (axis,))
    return Tensor(same.complex_dtype(x), x.resized(axis, rfft_length(x.shape[axis])).shape)


def irfft_type(same: TypeSolver, z: Tensor, *, axis: int, size: Dim) -> Tensor:
    same.accepts(z, COMPLEXES)
    check_fft_axes(same, z, (axis,))
    same.require(size != 0, "a signal of size 0 has no transform")
    same.size(z.shape[axis], rfft_length(size), "number of frequencies")
    return Tensor(same.real_dtype(z), z.resized(axis, size).shape)


def rfft_length(size: Dim) -> Dim:
    """The number of frequencies of a real signal, without those that are conjugates of others."""
    return floor_div(size, 2) + 1


# ---- Adjoints


def fill_with_size(like: Value, number: Dim) -> Value:
    """An array like another, filled with a size."""
    return like.home.one("const", value=number, type=like.type)


def fft_transpose(ct: Value, x: Operand, *, axes: Ints, inverse: bool) -> Value:
    size: Dim = 1
    for a in axes:
        size = size * tensor_type(ct).shape[a]
    back = fft.one(ct, axes=axes, inverse=not inverse)
    return back / fill_with_size(back, size) if inverse else back * fill_with_size(back, size)


def scale_conjugate_pairs(z: Value, axis: int, size: Dim, factor: float) -> Value:
    """Scale the frequencies that stand for two: all but 0 and, for an even size, the middle one."""
    k = z.home.one("iota", type=Tensor(I32, tensor_type(z).shape), axis=axis)
    inner = logical_and.one(gt.one(k, fill_with_size(k, 0)), lt.one(k + k, fill_with_size(k, size)))
    return select.one(inner, z * factor, z)


def rfft_transpose(ct: Value, x: Operand, *, axis: int) -> Value:
    size = tensor_type(x).shape[axis]
    back = irfft.one(scale_conjugate_pairs(ct, axis, size, 0.5), axis=axis, size=size)
    return back * fill_with_size(back, size)


def irfft_transpose(ct: Value, z: Operand, *, axis: int, size: Dim) -> Value:
    back = scale_conjugate_pairs(rfft.one(ct, axis=axis), axis, size, 2.0)
    return back / fill_with_size(back, size)


# ---- References and lowerings


def with_axes_last(jax: Jax, x: JaxArray, axes: Ints, transform: Callable[[JaxArray], JaxArray]) -> JaxArray:
    """Apply `transform` with `axes` moved to the end, then move them back."""
    perm = (*remaining_axes(x.ndim, axes), *axes)
    if perm == tuple(range(x.ndim)):
        return transform(x)
    return jax.lax.transpose(transform(jax.lax.transpose(x, perm)), [perm.index(i) for i in range(x.ndim)])


def fft_lower(jax: Jax, x: JaxArray, *, axes: Ints, inverse: bool) -> JaxArray:
    kind = jax.lax.FftType.IFFT if inverse else jax.lax.FftType.FFT
    for start in range(0, len(axes), MAX_XLA_AXES):
        some = axes[start : start + MAX_XLA_AXES]
        sizes = tuple(x.shape[a] for a in some)
        x = with_axes_last(jax, x, some, lambda y, sizes=sizes: jax.lax.fft(y, kind, sizes))
    return x


def rfft_lower(jax: Jax, x: JaxArray, *, axis: int) -> JaxArray:
    kind, size = jax.lax.FftType.RFFT, x.shape[axis]
    return with_axes_last(jax, x, (axis,), lambda y: jax.lax.fft(y, kind, (size,)))


def irfft_lower(jax: Jax, z: JaxArray, *, axis: int, size: int) -> JaxArray:
    kind = jax.lax.FftType.IRFFT
    return with_axes_last(jax, z, (axis,), lambda y: jax.lax.fft(y, kind, (size,)))


def fft_reference(x: Array, *, axes: Ints, inverse: bool) -> Array:
    return (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes)


FFT_CASES = (
    ((5,), (0,)),
    ((2, 4), (0,)),
    ((3, 2, 4), (0, 2)),
    ((2, 1, 2, 3), (0, 1, 2, 3)),
    ((1,), (0,)),
    ((0, 3), (1,)),
)

fft = linear_op(
    "fft",
    type=fft_type,
    transpose=(fft_transpose,),
    reference=fft_reference,
    lower=fft_lower,
    accepts=COMPLEXES,
    traits=("fusion barrier",),
    batch_rule=along_new_axis(lambda n, axes, inverse: {"axes": tuple([a + 1 for a in axes]), "inverse": inverse}),
    samples=tuple(
        OpExample((shape,), {"axes": axes, "inverse": i}) for i in (False, True) for shape, axes in FFT_CASES
    ),
    doc="""Discrete Fourier transform along axes, `y[k] = sum_j x[j] exp(-2 pi i j k / n)`; the inverse has the other
    sign and is divided by n. Units: u -> u. Kinks: none.""",
)
rfft = linear_op(
    "rfft",
    type=rfft_type,
    transpose=(rfft_transpose,),
    reference=lambda x, axis: np.fft.rfft(x, axis=axis),
    lower=rfft_lower,
    accepts=(F32, F64),
    traits=("fusion barrier",),
    batch_rule=along_new_axis(lambda n, axis: {"axis": axis + 1}),
    samples=tuple(
        OpExample((shape,), {"axis": axis})
        for shape, axis in (((5,), 0), ((6,), 0), ((2, 3), 0), ((4, 2), 0), ((3, 1), 1), ((0, 3), 1))
    ),
    doc="""Discrete Fourier transform of real numbers along an axis: the frequencies 0 to n // 2, of which the others
    are conjugates. Units: u -> u. Kinks: none.""",
)
irfft = linear_op(
    "irfft",
    type=irfft_type,
    transpose=(irfft_transpose,),
    reference=lambda z, axis, size: np.fft.irfft(z, n=size, axis=axis),
    lower=irfft_lower,
    accepts=COMPLEXES,
    traits=("fusion barrier",),
    batch_rule=along_new_axis(lambda n, axis, size: {"axis": axis + 1, "size": size}),
    samples=tuple(
        OpExample((shape,), {"axis": axis, "size": size})
        for shape, axis, size in (
            ((3,), 0, 5), ((4,), 0, 6), ((2, 3), 0, 2), ((2, 3), 0, 3), ((3, 1), 1, 1), ((0, 2), 1, 3),
        )
    ),
    doc="""The real signal of `size` numbers that has these frequencies; the imaginary parts of the first and, of an
    even size, the last one do not matter. Units: u -> u. Kinks: none.""",
)  # fmt: skip
