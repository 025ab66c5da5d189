"""The op `reduce_norm`: the Euclidean length over axes, whose squares neither overflow nor underflow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from difflang.ir.array_types import NUMPY, Array, ArrayT, Jax, JaxArray, NumpyModule
from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op, OperandRules, Partial, Root
from difflang.ir.tensor_types import FLOATS
from difflang.ops.arrays.axis_reductions import (
    EMPTY_EXAMPLES,
    Ints,
    accumulated,
    broadcast_reduced,
    reduce_sum,
    reduced_type,
    upcast_half_array,
)
from difflang.ops.device_regions import mesh_axes
from difflang.ops.elementwise.roots_and_distances import one_if_zero
from difflang.ops.op_factories import OpExample, UniformSamples, along_new_axis, batched_axes_attr

MIN_BYTES_OF_BRANCH = 1 << 15  # an array that fits into the first cache is added three times in no time
MAX_TERMS = 8  # along an axis as short XLA adds one by one


def norm_formula(m: NumpyModule[ArrayT], x: ArrayT, axes: Ints, held: Callable[[ArrayT], ArrayT]) -> ArrayT:
    """In one pass: the sum of squares, and those of x far scaled down and up, for where the first sum overflows or is
    so small that squares that underflow count. The scales are powers of two, which are exact.

    `held` is a barrier: a compiler that knows the scales would square x first, and multiply by the squares of the
    scales. Source: Blue 1978, A portable Fortran program to find the Euclidean norm of a vector.
    """
    far, one = 25 * np.finfo(x.dtype).maxexp // 32, np.ones((), x.dtype)
    down, up = held(m.asarray(np.ldexp(one, -far))), held(m.asarray(np.ldexp(one, far)))
    plain, below, above = [m.sum(scaled * scaled, axis=axes) for scaled in (x, x * down, x * up)]
    overflows, underflows = outside_range(x, plain, axes)
    squares = m.where(overflows, below, m.where(underflows, above, plain))
    return m.sqrt(squares) * m.where(overflows, up, m.where(underflows, down, one))


def outside_range(x: ArrayT, squares: ArrayT, axes: Ints) -> tuple[ArrayT, ArrayT]:
    """Where a sum of squares overflows, and where it is so small that squares that underflow count."""
    limits, count = np.finfo(x.dtype), max(prod([x.shape[axis] for axis in axes]), 1)
    return squares > limits.max, squares < limits.tiny / limits.eps * count


def norm_reference(x: Array, *, axes: Ints) -> Array:
    return np.asarray(norm_formula(NUMPY, upcast_half_array(x), axes, lambda unit: unit)).astype(x.dtype)


def norm_lower(jax: Jax, x: JaxArray, *, axes: Ints) -> JaxArray:
    narrow = x.dtype.itemsize == 2
    wide = jax.lax.convert_element_type(x, np.float32) if narrow else x
    return jax.lax.convert_element_type(norm_formula(jax.numpy, wide, axes, jax.lax.optimization_barrier), x.dtype)


def norm_cpu_lower(jax: Jax, x: JaxArray, *, axes: Ints) -> JaxArray:
    """Element by element along a short axis; else of a large array the plain sum of squares, and the other two only
    where that is outside of the range: a branch that is rarely taken. On a mesh its condition would be an exchange.
    """
    if x.dtype.itemsize == 2 or mesh_axes(jax):
        return norm_lower(jax, x, axes=axes)
    if len(axes) == 1 and 0 < (count := x.shape[axes[0]]) <= MAX_TERMS:
        return norm_of_terms(jax, [jax.lax.index_in_dim(x, i, axes[0], False) for i in range(count)])
    if x.size * x.dtype.itemsize < MIN_BYTES_OF_BRANCH:
        return norm_lower(jax, x, axes=axes)
    plain = jax.numpy.sum(x * x, axis=axes)
    overflows, underflows = outside_range(x, plain, axes)
    rare = jax.numpy.any(overflows | underflows)
    return jax.lax.cond(rare, lambda: norm_lower(jax, x, axes=axes), lambda: jax.lax.sqrt(plain))


def norm_of_terms(jax: Jax, terms: Sequence[JaxArray]) -> JaxArray:
    """Element by element, so that nothing is stored: all are scaled by a power of two if the greatest asks for it."""
    m, limits = jax.numpy, np.finfo(terms[0].dtype)
    one, far = limits.dtype.type(1), 25 * limits.maxexp // 32
    greatest = functools.reduce(m.maximum, map(m.abs, terms))
    huge, tiny = greatest > np.sqrt(limits.max) / len(terms), greatest < np.sqrt(limits.tiny / limits.eps)
    down, up = np.ldexp(one, -far), np.ldexp(one, far)
    scale = m.where(huge, down, m.where(tiny, up, one))
    squares = functools.reduce(m.add, [m.square(x * scale) for x in terms])
    return m.sqrt(squares) * m.where(huge, up, m.where(tiny, down, one))


def norm_jvp(dx: Value, y: Value, x: Value, *, axes: Ints) -> Value:
    return reduce_sum.one(dx * (x / broadcast_reduced(one_if_zero.one(y), x, axes)), axes=axes)


AWAY_FROM_ZERO = UniformSamples(0.3, 2.0)

reduce_norm = OPS.declare(
    Op(
        "reduce_norm",
        type=reduced_type(FLOATS),
        traits=("fusion barrier",),
        derivative=OperandRules(jvp=(norm_jvp,)),
        powers=Root(2, lambda x, axes: reduce_sum.one(x * x, axes=axes)),
        batch_rule=along_new_axis(batched_axes_attr),
        partials=lambda x, y: [Partial(accumulated(y))] * 3,
        reference=norm_reference,
        lower=norm_lower,
        cpu_lower_rule=norm_cpu_lower,
        accepts=FLOATS,
        samples=(
            OpExample(((2, 3, 4),), {"axes": (0, 2)}, AWAY_FROM_ZERO),
            OpExample(((3,),), {"axes": (0,)}, AWAY_FROM_ZERO),
            OpExample(((2, 0),), {"axes": (0,)}),
            OpExample(((2, 3),), {"axes": (1,)}, AWAY_FROM_ZERO),
            *EMPTY_EXAMPLES,
        ),
        doc="""Square root of the sum of squares over axes, without overflow; 0 over nothing. Units: u -> u.
        Kinks: 0 at 0.""",
    )
)
