"""The Gaussian error linear unit and its slope: each is computed where the other formulas would cancel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difflang.ir.graph import Value
from difflang.ops import precise
from difflang.ops.families import Array, unary
from difflang.ops.special import erfc_of, erfc_reference, gaussian, in_f32_at_least

# The slope over `x - ROOT` for x = -1.075 + 0.725 s and s from -1 to 1: a Chebyshev fit by mpmath's `chebyfit`, highest
# power first; `tests/support/fits.py` makes it again.
ROOT_QUOTIENT = (
    -1.3912191944124454e-13, -2.7301547491675226e-11, -3.453963407522285e-11, 9.546806568403007e-10,
    2.436950424625981e-09, -2.4177076407043463e-08, -1.0035737827179123e-07, 4.6070914974966967e-07,
    2.9838382187272515e-06, -5.5079379243426834e-06, -6.574305439015806e-05, 2.044276183314557e-06,
    0.0010320079521341171, 0.0014602815445386328, -0.010230360794733061, -0.02986970047918293,
    0.040690084398064735, 0.2662660284101036, 0.30772131956334603,
)  # fmt: skip
ROOT, ROOT_REST, ROOT_SLOPE = -0.7517915246935645, 1.4956759177009883e-17, 0.4314939923140469  # of the slope
DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


def tail(m: Any, x: Any, erfc: Any) -> tuple[Any, Any]:
    """`exp(-x^2 / 2)`, and the probability beyond `|x|` over it."""
    t = m.minimum(m.abs(x) * math.sqrt(0.5), 26.5)
    return precise.gaussian(m, x, 0.5), 0.5 * erfc(t) / precise.gaussian(m, t)


def gelu_of(m: Any, x: Any, erfc: Any) -> Any:
    bell, beyond = tail(m, x, erfc)
    return m.where(x < 0, m.maximum(x, -40.0) * (bell * beyond), x * (1.0 - bell * beyond))


def gelu_slope_of(m: Any, x: Any, erfc: Any) -> Any:
    """`P(x) + x p(x)`: around its root a polynomial times the distance from it."""
    bell, beyond = tail(m, x, erfc)
    near = (x > -1.8) & (x < -0.35)
    z = m.clip(x, -1.8, -0.35)
    root = x.dtype.type(ROOT)
    rest = (ROOT - float(root)) + ROOT_REST
    around = (z - root) * precise.polynomial(ROOT_QUOTIENT, (z + 1.075) / 0.725) - rest * ROOT_SLOPE
    moved = m.clip(x, -40.0, 40.0) * DENSITY
    left, right = bell * (beyond + moved), 1.0 - bell * (beyond - moved)
    return m.where(near, around, m.where(x < 0, left, right))


def gelu_reference(x: Array) -> Array:
    return gelu_of(np, x, erfc_reference)


def gelu_slope_reference(x: Array) -> Array:
    return gelu_slope_of(np, x, erfc_reference)


def gelu_slope_jvp(dx: Value, y: Value, x: Value) -> Value:
    """`(2 - x^2) p(x)`; far out `x^2` alone would be Inf."""
    density = gaussian.one(x, scale=0.5) * DENSITY
    return dx * (density * 2.0 - x * (x * density))


gelu_slope = unary(
    "gelu_slope",
    jvp=gelu_slope_jvp,
    reference=gelu_slope_reference,
    lower=in_f32_at_least(lambda jax, x: gelu_slope_of(jax.numpy, x, lambda t: erfc_of(jax, t))),
    doc="""The slope of `gelu`, `P(x) + x p(x)`. Units: 1 -> 1. Kinks: none.""",
)
gelu = unary(
    "gelu",
    jvp=lambda dx, y, x: dx * gelu_slope.one(x),
    reference=gelu_reference,
    lower=in_f32_at_least(lambda jax, x: gelu_of(jax.numpy, x, lambda t: erfc_of(jax, t))),
    doc="""Gaussian error linear unit, `x P(x)` with P the normal distribution. Units: 1 -> 1. Kinks: none.""",
)
