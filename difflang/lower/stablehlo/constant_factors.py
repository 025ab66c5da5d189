"""Barriers that keep XLA from collecting constant factors, where the product of the others would leave the range.

XLA turns `(a * c) * (b * d)` with scalars and constants `c` and `d` into `(a * b) * (c * d)`, and `(a * c) * d` with
arrays into `a * (c * d)`. So in f32 the square of `1e25 * 1e-25` would be Inf times 0.
"""

from __future__ import annotations

import jax.numpy

from difflang.lower.stablehlo.hlo_array import DType, HloArray


def hold_constant_factors(name: str, x: HloArray, y: HloArray) -> tuple[HloArray, HloArray, float | None]:
    """The operands of `mul` or `div`, one behind a barrier where XLA must not rewrite, and the scale of the result."""
    if name == "mul" and y.number is None and x.number is not None:
        y, x, scale = hold_constant_factors(name, y, x)
        return x, y, scale
    if y.number:
        factor = y.number if name == "mul" else 1.0 / y.number
        if x.scale is None:
            return x, y, factor
        scale = x.scale * factor
        return (x, y, scale) if is_normal(scale, x.dtype) else (x.writer.optimization_barrier(x), y, factor)
    if name == "mul" and x.size == 1 and x.scale is not None and y.scale is not None:
        held = x.writer.optimization_barrier(x)
        return held, held if y is x else y, None
    return x, y, None


def is_normal(number: float, dtype: DType) -> bool:
    limits = jax.numpy.finfo(dtype)
    return float(limits.tiny) <= abs(number) <= float(limits.max)
