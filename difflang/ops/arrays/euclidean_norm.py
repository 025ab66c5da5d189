"""The Euclidean length over axes, which neither overflows nor vanishes before its elements do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import FLOATS
from difflang.numerics import accurate_elementary
from difflang.ops.arrays.axis_reductions import (
    EMPTY_EXAMPLES,
    Ints,
    broadcast_reduced,
    reduce_sum,
    reduced_type,
    upcast_half_array,
)
from difflang.ops.elementwise.roots_and_distances import one_if_zero, safe_max_exponent
from difflang.ops.op_factories import Array, OpExample, UniformSamples, batched_axes_attr


def norm_formula(m: Any, x: Any, axes: Ints, held: Callable[[Any], Any]) -> Any:
    """In a unit that makes the greatest square middling; to divide by a power of two is exact.

    `held` keeps a compiler that knows x beforehand from squaring it first and dividing by the square of the unit.
    """
    top = m.max(m.abs(x), axis=axes, keepdims=True, initial=0.0)
    unit = accurate_elementary.binade(m, top, safe_max_exponent(x.dtype))
    scaled = held(x / unit)
    length = m.sqrt(m.sum(scaled * scaled, axis=axes)) * m.squeeze(unit, axis=axes)
    return m.where(m.isinf(m.squeeze(top, axis=axes)), m.inf, length)


def norm_reference(x: Array, *, axes: Ints) -> Array:
    return np.asarray(norm_formula(np, upcast_half_array(x), axes, lambda unit: unit)).astype(x.dtype)


def norm_lower(jax: Any, x: Any, *, axes: Ints) -> Any:
    narrow = x.dtype.itemsize == 2
    wide = jax.lax.convert_element_type(x, np.float32) if narrow else x
    return jax.lax.convert_element_type(norm_formula(jax.numpy, wide, axes, jax.lax.optimization_barrier), x.dtype)


def norm_jvp(dx: Value, y: Value, x: Value, *, axes: Ints) -> Value:
    return reduce_sum.one(dx * (x / broadcast_reduced(one_if_zero(y), x, axes)), axes=axes)


AWAY_FROM_ZERO = UniformSamples(0.3, 2.0)

reduce_norm = OPS.declare(
    Op(
        "reduce_norm",
        type=reduced_type(FLOATS),
        jvp=(norm_jvp,),
        reference=norm_reference,
        lower=norm_lower,
        accepts=FLOATS,
        fusion_barrier=True,
        batch_attrs=batched_axes_attr,
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
