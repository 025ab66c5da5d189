"""Error functions: `erf`, `erfc`, `erfinv`, and the Gaussian that is their derivative."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from difflang.ir.array_types import NUMPY, Array, ArrayT, Jax, JaxArray, NumpyModule
from difflang.ir.graph import Value
from difflang.ir.op import ArrayLowerRule
from difflang.numerics import accurate_elementary
from difflang.ops.elementwise.comparison_and_logic import clamp
from difflang.ops.op_factories import OpExample, UniformSamples, full_like, unary_op

Formula = Callable[[ArrayT], ArrayT]
SLOPE_AT_ZERO = 2.0 / math.sqrt(math.pi)
# From here on `exp(-x^2 / 2)` is 0 in every float type.
GAUSSIAN_ZERO_FROM = 64.0


def scipy_special() -> Any:
    """Imported on first use of a reference: SciPy is slow to import."""
    import scipy.special

    return scipy.special


def lower_in_f32_or_wider(formula: Callable[..., JaxArray]) -> ArrayLowerRule:
    """A lowering by a formula of `jax.numpy` and `jax.lax`; 16-bit floats are computed in f32."""

    def lower(jax: Jax, x: JaxArray, **attrs: float) -> JaxArray:
        wide = jax.lax.convert_element_type(x, np.float32) if x.dtype.itemsize == 2 else x
        return jax.lax.convert_element_type(formula(jax, wide, **attrs), x.dtype)

    return lower


def before_underflow(x: Value) -> Value:
    """`x` where the Gaussian is not yet 0, and finite beyond: a factor that leaves 0 there, not `Inf * 0`."""
    return clamp.one(full_like(x, -GAUSSIAN_ZERO_FROM), x, full_like(x, GAUSSIAN_ZERO_FROM))


gaussian = unary_op(
    "gaussian",
    jvp=lambda dx, y, x, scale: dx * (before_underflow(x) * y * (-2.0 * scale)),
    reference=lambda x, scale: accurate_elementary.gaussian(np, x, scale),
    lower=lower_in_f32_or_wider(lambda jax, x, scale: accurate_elementary.gaussian(jax.numpy, x, scale)),
    samples=tuple(OpExample(((2, 3),), {"scale": scale}) for scale in (1.0, 0.5)),
    doc="""`exp(-scale x^2)` for a scale of 1 or 1/2, accurate where x is large. Units: 1 -> 1, inside (0, 1).
    Kinks: none.""",
)
erf = unary_op(
    "erf",
    jvp=lambda dx, y, x: dx * (gaussian.one(x, scale=1.0) * SLOPE_AT_ZERO),
    reference=lambda x: scipy_special().erf(x),
    lower=lambda jax, x: jax.lax.erf(x),
    doc="""Error function. Units: 1 -> 1, inside (-1, 1). Kinks: none.""",
)


# exp(x^2) erfc(x) for x = 0.75 + 0.25 s and s from -1 to 1: a Chebyshev fit by mpmath's `chebyfit`, highest power
# first; `tests/support/fits.py` recomputes it.
ERFCX_COEFFICIENTS = (
    -2.1463289279578493e-13, 2.585599367357183e-12, -2.940348914756972e-11, 3.306043556501409e-10,
    -3.5801438250789833e-09, 3.719545089633589e-08, -3.693562177597921e-07, 3.4885738732198706e-06,
    -3.114966996088564e-05, 0.00026090055675162256, -0.002028688468670001, 0.014434883221955935,
    -0.09199317291394885, 0.5069376502931449,
)  # fmt: skip


def erfc_reference(x: Array) -> Array:
    """By `erfcx`: SciPy's own `erfc` rounds the exponent, and cancels below 1."""
    return np.where(
        x > 0.5,
        scipy_special().erfcx(np.maximum(x, 0.5)) * accurate_elementary.gaussian(np, x),
        scipy_special().erfc(x),
    )


def erfc_lower(jax: Jax, x: JaxArray) -> JaxArray:
    """XLA's is `exp(-x^2)` times a quotient for x > 1, corrected here for the rounding error of `x^2`."""
    m = jax.numpy
    z = m.clip(x, 1.0, 40.0)
    head = accurate_elementary.leading_bits(m, z)
    lost = ((head * head - z * z) + 2.0 * head * (z - head)) + (z - head) * (z - head)
    middle = accurate_elementary.gaussian(m, x) * accurate_elementary.horner(
        ERFCX_COEFFICIENTS, (m.clip(x, 0.5, 1.0) - 0.75) * 4.0, jax.lax
    )
    there = jax.lax.erfc(x)
    return m.where(x > 1.0, there * (1.0 - lost), m.where(x > 0.5, middle, there))


erfc = unary_op(
    "erfc",
    jvp=lambda dx, y, x: dx * (gaussian.one(x, scale=1.0) * -SLOPE_AT_ZERO),
    reference=erfc_reference,
    lower=lower_in_f32_or_wider(erfc_lower),
    doc="""`1 - erf(x)`, accurate where it is small. Units: 1 -> 1, inside (0, 2). Kinks: none.""",
)


def erfinv_newton_error(
    m: NumpyModule[ArrayT], y: ArrayT, size: ArrayT, erf: Formula[ArrayT], erfc: Formula[ArrayT]
) -> ArrayT:
    """The Newton error of `y` as the inverse at `size`, from the complement where that has more digits."""
    off = m.where(size < 0.5, erf(y) - size, (1.0 - size) - erfc(y))
    return off * m.exp(y * y) / SLOPE_AT_ZERO


def erfinv_formula(
    m: NumpyModule[ArrayT], x: ArrayT, start: ArrayT, erf: Formula[ArrayT], erfc: Formula[ArrayT]
) -> ArrayT:
    """One step of Newton's iteration from a good start."""
    size, y = m.abs(x), m.abs(start)
    inside = (size > 0.0) & (size < 1.0)
    safe = m.where(inside, y, 0.5)
    better = safe - erfinv_newton_error(m, safe, m.where(inside, size, 0.5), erf, erfc)
    return m.where(inside, m.where(x < 0, -better, better), start)


def erfinv_slope_formula(
    m: NumpyModule[ArrayT], x: ArrayT, y: ArrayT, erf: Formula[ArrayT], erfc: Formula[ArrayT]
) -> ArrayT:
    """`exp(y^2)` of the exact inverse: that of the rounded one has a relative error 2 y^2 times as large."""
    size = m.abs(x)
    inside = size < 1.0
    safe = m.where(inside, m.abs(y), 0.5)
    above = erfinv_newton_error(m, safe, m.where(inside, size, 0.5), erf, erfc)
    slope = (1.0 - 2.0 * safe * above) / (accurate_elementary.gaussian(m, safe) * SLOPE_AT_ZERO)
    return m.where(inside, slope, m.where(size == 1.0, math.inf, m.full_like(size, math.nan)))


def erfinv_reference(x: Array) -> Array:
    return erfinv_formula(NUMPY, x, scipy_special().erfinv(x), scipy_special().erf, erfc_reference)


def erfinv_lower(jax: Jax, x: JaxArray) -> JaxArray:
    start = jax.lax.erf_inv(x)
    return (
        erfinv_formula(jax.numpy, x, start, jax.lax.erf, lambda y: erfc_lower(jax, y))
        if x.dtype == np.float64
        else start
    )


def erfinv_slope_lower(jax: Jax, x: JaxArray) -> JaxArray:
    return erfinv_slope_formula(jax.numpy, x, erfinv_lower(jax, x), jax.lax.erf, lambda y: erfc_lower(jax, y))


def erfinv_slope_jvp(dx: Value, y: Value, x: Value) -> Value:
    return dx * (erfinv.one(x) * y * y * 2.0)


erfinv_slope = unary_op(
    "erfinv_slope",
    jvp=erfinv_slope_jvp,
    reference=lambda x: erfinv_slope_formula(NUMPY, x, erfinv_reference(x), scipy_special().erf, erfc_reference),
    lower=lower_in_f32_or_wider(erfinv_slope_lower),
    samples=UniformSamples(-0.9, 0.9),
    doc="""The slope of `erfinv`, `sqrt(pi) / 2 exp(erfinv(x)^2)`. Units: 1 -> 1.
    Kinks: +Inf at -1 and 1; NaN outside.""",
)
erfinv = unary_op(
    "erfinv",
    jvp=lambda dx, y, x: dx * erfinv_slope.one(x),
    reference=erfinv_reference,
    lower=erfinv_lower,
    samples=UniformSamples(-0.9, 0.9),
    doc="""Inverse of the error function. Units: 1 -> 1. Kinks: +Inf at -1 and 1; NaN outside.""",
)
