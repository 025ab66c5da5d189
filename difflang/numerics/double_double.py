"""Double-double arithmetic: numbers as unevaluated sums of a double and its rounding error. Declares no op.

Source: Dekker 1971, A floating-point technique for extending the available precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.numerics import accurate_elementary
from difflang.numerics.accurate_elementary import leading_bits

# XLA may change two things in a formula. It contracts a product and a sum into one operation, which rounds once: every
# product here that matters is exact, so nothing changes. It reassociates constants, `(x + 1) - 1` becomes `x`: where
# one summand may be a constant, it comes second, and the first one is subtracted.
DoubleDouble = tuple[Any, Any]


def dd_from_float(x: Any) -> DoubleDouble:
    """A double as a double-double."""
    return x, 0.0


def dd_round(x: DoubleDouble) -> Any:
    """Rounded to a double."""
    return x[0] + x[1]


def two_sum(x: Any, y: Any) -> DoubleDouble:
    """`x + y` of doubles; `y` may be a constant (Knuth 1969)."""
    high = x + y
    added = high - x
    return high, (x - (high - added)) + (y - added)


def fast_two_sum(high: Any, low: Any) -> DoubleDouble:
    """The sum of two doubles of which the second is smaller and neither is a constant."""
    whole = high + low
    return whole, low - (whole - high)


def dd_neg(x: DoubleDouble) -> DoubleDouble:
    return -x[0], -x[1]


def dd_add(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """`x + y`; `y` may be a constant."""
    high, low = two_sum(x[0], y[0])
    return fast_two_sum(high, low + (x[1] + y[1]))


def dd_mul(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """`x y`: the halves of doubles have exact products."""
    (a, a_low), (b, b_low) = x, y
    u, v = leading_bits(np, a), leading_bits(np, b)
    p, q = a - u, b - v
    high, lost = fast_two_sum(u * v, u * q)
    high, more = fast_two_sum(high, p * v)
    return fast_two_sum(high, (lost + more) + (p * q + (a * b_low + a_low * b)))


def dd_div(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """`x / y`, by one step of long division."""
    first = x[0] / y[0]
    high, low = dd_mul(dd_from_float(first), y)
    return fast_two_sum(first, ((x[0] - high) + (x[1] - low)) / y[0])


def dd_horner(coefficients: Sequence[tuple[float, float]], x: DoubleDouble, doubles: int) -> DoubleDouble:
    """By Horner's rule, highest power first; the first `doubles` coefficients in plain doubles."""
    start = accurate_elementary.horner([high for high, _ in coefficients[:doubles]], x[0])
    y = dd_from_float(start)
    for high, low in coefficients[doubles:]:
        y = dd_add(dd_mul(y, x), (high, low))
    return y
