"""The Gaussian error linear unit `gelu` and its derivative, without cancellation."""

from __future__ import annotations

import math
import operator

import numpy as np

from difflang.ir.array_types import NUMPY, Array, ArrayT, NumpyModule
from difflang.ir.graph import Value
from difflang.numerics import accurate_elementary
from difflang.numerics.accurate_elementary import Arithmetic
from difflang.ops.elementwise.error_functions import before_underflow, gaussian, lower_in_f32_or_wider
from difflang.ops.op_factories import unary_op

# The derivative over `x - ROOT` for x = -1.075 + 0.725 s and s from -1 to 1: a Chebyshev fit by mpmath's `chebyfit`,
# highest power first; `tests/support/fits.py` recomputes it.
ROOT_QUOTIENT = (
    -1.3912191944124454e-13, -2.7301547491675226e-11, -3.453963407522285e-11, 9.546806568403007e-10,
    2.436950424625981e-09, -2.4177076407043463e-08, -1.0035737827179123e-07, 4.6070914974966967e-07,
    2.9838382187272515e-06, -5.5079379243426834e-06, -6.574305439015806e-05, 2.044276183314557e-06,
    0.0010320079521341171, 0.0014602815445386328, -0.010230360794733061, -0.02986970047918293,
    0.040690084398064735, 0.2662660284101036, 0.30772131956334603,
)  # fmt: skip
# The probability beyond x over `exp(-x^2 / 2)`, times `1 + x`, for s = (x - 5) / (x + 5) from -1 to 0.78: a fit
# likewise. Source: Shepherd and Laframboise 1981, whose substitution lets one polynomial serve the whole half-line.
TAIL = (
    2.210506550696407e-09, 1.6512617525240706e-09, -2.6342978358838605e-08, -2.1670847602493622e-08,
    1.912100797653263e-07, 1.2239595536504486e-07, -1.304128225016184e-06, -6.652071794865446e-08,
    9.058451597080164e-06, -9.897757720514644e-06, -5.360721455491836e-05, 0.0001823345983141153,
    7.791534233946685e-06, -0.0016760724206674653, 0.006522000674657688, -0.015170415395126214,
    0.024536963243235035, -0.02640104296667353, 0.010002352385243864, 0.031030368425970702,
    -0.0915522818340092, 0.46151582985003775,
)  # fmt: skip
# From here on the Gaussian underflows to 0; s is 0.78 there.
BELL_ZERO_FROM = 40.0
# The same with half of the digits, for narrower types: the tail for s = (x - 4) / (x + 4) from -1 to 0.58.
SHORT_ROOT_QUOTIENT = (
    2.719344572923496e-06, -4.351015828351444e-06, -6.548221692258643e-05, 9.217699881295302e-07,
    0.0010318945680176043, 0.0014607658128504228, -0.010230340612309489, -0.029869786355032842,
    0.040690083390201096, 0.2662660326922499, 0.30772131956334603,
)  # fmt: skip
SHORT_TAIL = (
    -7.441299122722921e-05, -6.682375766366439e-05, 0.0006908154300564746, -0.0002998661481407521,
    -0.005002109316442669, 0.017939439458792165, -0.03219782289083928, 0.028600033468211744,
    0.01399963714254457, -0.09670346799467665, 0.4720532063928283,
)  # fmt: skip
BELL_ZERO_FROM_F32 = 15.0
# The root of the derivative as a double and its rounding error, and the second derivative there.
ROOT, ROOT_LOW_BITS, ROOT_SLOPE = -0.7517915246935645, 1.4956759177009883e-17, 0.4314939923140469
DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


def normal_tail(m: NumpyModule[ArrayT], x: ArrayT, by: Arithmetic) -> tuple[ArrayT, ArrayT]:
    """`exp(-x^2 / 2)`, and the probability beyond `|x|` divided by it."""
    far, middle, fit = (BELL_ZERO_FROM, 5.0, TAIL) if x.dtype == np.float64 else (BELL_ZERO_FROM_F32, 4.0, SHORT_TAIL)
    z = m.minimum(m.abs(x), far)
    return accurate_elementary.gaussian(m, x, 0.5), accurate_elementary.horner(fit, (z - middle) / (z + middle), by) / (
        z + 1.0
    )


def gelu_formula(m: NumpyModule[ArrayT], x: ArrayT, by: Arithmetic = operator) -> ArrayT:
    bell, beyond = normal_tail(m, x, by)
    return m.where(x < 0, m.maximum(x, -BELL_ZERO_FROM) * (bell * beyond), x * (1.0 - bell * beyond))


def gelu_slope_formula(m: NumpyModule[ArrayT], x: ArrayT, by: Arithmetic = operator) -> ArrayT:
    """`P(x) + x p(x)`; near its root a polynomial times the distance from it."""
    bell, beyond = normal_tail(m, x, by)
    near = (x > -1.8) & (x < -0.35)
    z = m.clip(x, -1.8, -0.35)
    root = x.dtype.type(ROOT)
    rest = (ROOT - float(root)) + ROOT_LOW_BITS
    fit = ROOT_QUOTIENT if x.dtype == np.float64 else SHORT_ROOT_QUOTIENT
    around = (z - root) * accurate_elementary.horner(fit, (z + 1.075) / 0.725, by) - rest * ROOT_SLOPE
    moved = m.clip(x, -BELL_ZERO_FROM, BELL_ZERO_FROM) * DENSITY
    left, right = bell * (beyond + moved), 1.0 - bell * (beyond - moved)
    return m.where(near, around, m.where(x < 0, left, right))


def gelu_reference(x: Array) -> Array:
    return gelu_formula(NUMPY, x)


def gelu_slope_reference(x: Array) -> Array:
    return gelu_slope_formula(NUMPY, x)


def gelu_slope_jvp(dx: Value, y: Value, x: Value) -> Value:
    """`(2 - x^2) p(x)`."""
    density, z = gaussian.one(x, scale=0.5) * DENSITY, before_underflow(x)
    return dx * (density * 2.0 - z * (z * density))


gelu_slope = unary_op(
    "gelu_slope",
    jvp=gelu_slope_jvp,
    reference=gelu_slope_reference,
    lower=lower_in_f32_or_wider(lambda jax, x: gelu_slope_formula(jax.numpy, x, jax.lax)),
    doc="""The slope of `gelu`, `P(x) + x p(x)`. Units: 1 -> 1. Kinks: none.""",
)
gelu = unary_op(
    "gelu",
    jvp=lambda dx, y, x: dx * gelu_slope.one(x),
    reference=gelu_reference,
    lower=lower_in_f32_or_wider(lambda jax, x: gelu_formula(jax.numpy, x, jax.lax)),
    doc="""Gaussian error linear unit, `x P(x)` with P the normal distribution. Units: 1 -> 1. Kinks: none.""",
)
