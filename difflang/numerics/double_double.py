"""Numbers with twice the digits of a double: pairs, of a double and what rounding to it lost. No op is declared here.

XLA may do two things to a formula. It contracts a product and a sum into one operation, which rounds once: every
product here that matters is exact, so that this changes nothing. It moves constants past one another, `(x + 1) - 1` is
`x` to it: where one summand may be a constant, it comes second, and what is taken off again is the first.

Source: Dekker 1971, A floating-point technique for extending the available precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.numerics import accurate_elementary
from difflang.numerics.accurate_elementary import leading_bits

DoubleDouble = tuple[Any, Any]


def dd_from_float(x: Any) -> DoubleDouble:
    """A number as it is."""
    return x, 0.0


def dd_round(x: DoubleDouble) -> Any:
    """Rounded."""
    return x[0] + x[1]


def two_sum(x: Any, y: Any) -> DoubleDouble:
    """`x + y` of numbers; `y` may be a constant (Knuth 1969)."""
    high = x + y
    added = high - x
    return high, (x - (high - added)) + (y - added)


def fast_two_sum(high: Any, low: Any) -> DoubleDouble:
    """The sum of two numbers, the second the smaller and neither a constant."""
    whole = high + low
    return whole, low - (whole - high)


def dd_neg(x: DoubleDouble) -> DoubleDouble:
    return -x[0], -x[1]


def dd_add(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """`x + y`; `y` may be a constant."""
    high, low = two_sum(x[0], y[0])
    return fast_two_sum(high, low + (x[1] + y[1]))


def dd_mul(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """`x y`: halves of doubles have exact products."""
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
    """By Horner's rule, highest power first; the first few coefficients in doubles."""
    start = accurate_elementary.horner([high for high, _ in coefficients[:doubles]], x[0])
    y = dd_from_float(start)
    for high, low in coefficients[doubles:]:
        y = dd_add(dd_mul(y, x), (high, low))
    return y
