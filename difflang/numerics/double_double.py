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
from difflang.numerics.accurate_elementary import leading

Pair = tuple[Any, Any]


def pair(x: Any) -> Pair:
    """A number as it is."""
    return x, 0.0


def total(x: Pair) -> Any:
    """Rounded."""
    return x[0] + x[1]


def exact_sum(x: Any, y: Any) -> Pair:
    """`x + y` of numbers; `y` may be a constant (Knuth 1969)."""
    high = x + y
    added = high - x
    return high, (x - (high - added)) + (y - added)


def settled(high: Any, low: Any) -> Pair:
    """The sum of two numbers, the second the smaller and neither a constant."""
    whole = high + low
    return whole, low - (whole - high)


def negative(x: Pair) -> Pair:
    return -x[0], -x[1]


def plus(x: Pair, y: Pair) -> Pair:
    """`x + y`; `y` may be a constant."""
    high, low = exact_sum(x[0], y[0])
    return settled(high, low + (x[1] + y[1]))


def times(x: Pair, y: Pair) -> Pair:
    """`x y`: halves of doubles have exact products."""
    (a, a_low), (b, b_low) = x, y
    u, v = leading(np, a), leading(np, b)
    p, q = a - u, b - v
    high, lost = settled(u * v, u * q)
    high, more = settled(high, p * v)
    return settled(high, (lost + more) + (p * q + (a * b_low + a_low * b)))


def over(x: Pair, y: Pair) -> Pair:
    """`x / y`, by one step of long division."""
    first = x[0] / y[0]
    high, low = times(pair(first), y)
    return settled(first, ((x[0] - high) + (x[1] - low)) / y[0])


def polynomial(coefficients: Sequence[tuple[float, float]], x: Pair, doubles: int) -> Pair:
    """By Horner's rule, highest power first; the first few coefficients in doubles."""
    start = accurate_elementary.polynomial([high for high, _ in coefficients[:doubles]], x[0])
    y = pair(start)
    for high, low in coefficients[doubles:]:
        y = plus(times(y, x), (high, low))
    return y
