"""Accurate elementary functions in double precision for lowerings, where XLA's own lose digits. Declares no op.

In narrower types XLA's own are as good as the type allows and are used. `m` is NumPy or `jax.numpy`, so that references
and lowerings share a formula.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from difflang.ir.array_types import Jax, JaxArray, JaxNumpyModule, LaxModule

# XLA reassociates constants: `(1 + x) - 1` becomes `x`. No formula here depends on such a difference.
LN2 = math.log(2.0)


class Arithmetic(Protocol):
    """The operators of Python, or `jax.lax`, which traces twice as fast."""

    def add(self, x: Any, y: Any, /) -> Any: ...
    def mul(self, x: Any, y: Any, /) -> Any: ...


def lower_in_f64(
    formula: Callable[[JaxNumpyModule, JaxArray], JaxArray], otherwise: Callable[[LaxModule], Callable[..., JaxArray]]
) -> Callable[[Jax, JaxArray], JaxArray]:
    """A lowering rule: a formula in f64, and in narrower types the function of `jax.lax` that `otherwise` picks."""

    def lower(jax: Jax, x: JaxArray) -> JaxArray:
        return formula(jax.numpy, x) if x.dtype == np.float64 else otherwise(jax.lax)(x)

    return lower


def nested_series(ratios: Any, t: Any) -> Any:
    """`1 + t r1 (1 + t r2 (1 + ...))`."""
    total = 1.0
    for r in reversed(tuple(ratios)):
        total = 1.0 + t * r * total
    return total


def horner(coefficients: Sequence[float], x: Any, arithmetic: Arithmetic = operator) -> Any:
    """By Horner's rule, highest power first."""
    first, second, *rest = coefficients if arithmetic is operator else map(x.dtype.type, coefficients)
    total = arithmetic.add(arithmetic.mul(first, x), second)
    for c in rest:
        total = arithmetic.add(arithmetic.mul(total, x), c)
    return total


def power_of_two(m: Any, n: Any) -> Any:
    """2^n for an integral float n from -1022 to 1023, by its bits."""
    return ((n.astype(np.int64) + 1023) << 52).view(np.float64)


def exp2(m: Any, x: Any) -> Any:
    """The integral part makes the exponent."""
    n = m.clip(m.round(x), -1100.0, 1100.0)
    # In two factors, since one may not be finite.
    half = m.floor(0.5 * n)
    return m.exp((m.clip(x, -1100.0, 1100.0) - n) * LN2) * power_of_two(m, half) * power_of_two(m, n - half)


def log1p(m: Any, x: Any) -> Any:
    """`2 atanh(x / (2 + x))` near 0."""
    small = (x > -0.3) & (x < 0.42)
    z = m.where(small, x, 0.0)
    s = z / (2.0 + z)
    near = 2.0 * s * nested_series([(2 * k - 1) / (2 * k + 1) for k in range(1, 12)], s * s)
    return m.where(small, near, m.log(1.0 + x))


def atanh(m: Any, x: Any) -> Any:
    size = m.abs(x)
    y = 0.5 * log1p(m, 2.0 * size / (1.0 - size))
    return m.where(x < 0, -y, y)


def half_exponentials(m: Any, size: Any) -> tuple[Any, Any]:
    """`exp(size) / 2`, which is finite a little longer than `exp(size)`, and `exp(-size) / 2`."""
    large = size > 709.0
    e = m.exp(m.where(large, 0.5 * size, size))
    return m.where(large, 0.5 * e * e, 0.5 * e), m.where(large, 0.0, 0.5 / e)


def sinh(m: Any, x: Any) -> Any:
    """Its Taylor series within 1."""
    size = m.abs(x)
    small = size < 1.0
    up, down = half_exponentials(m, m.where(small, 1.0, size))
    t = m.where(small, x * x, 0.0)
    near = x * nested_series([1.0 / (2 * k * (2 * k + 1)) for k in range(1, 10)], t)
    return m.where(small, near, m.where(x < 0, down - up, up - down))


def cosh(m: Any, x: Any) -> Any:
    up, down = half_exponentials(m, m.abs(x))
    return up + down


def sech2(m: Any, x: Any) -> Any:
    """`4 e / (1 + e)^2` with `e = exp(-2 |x|)`."""
    size = m.where(x.real < 0, -x, x) if m.iscomplexobj(x) else m.abs(x)
    # Where `e` would underflow, use its root. A complex argument is reflected into the right half-plane.
    far = size.real > 300.0
    e = m.exp(m.where(far, -size, -2.0 * size))
    whole = 1.0 + m.where(far, 0.0, e)
    return m.where(far, 4.0 * e * e, 4.0 * e / (whole * whole))


def cbrt(m: Any, x: Any, cbrt: Callable[[Any], Any]) -> Any:
    """That of a library, and one step of Newton's iteration."""
    y = cbrt(x)
    safe = m.where((y == 0) | m.isinf(y), 1.0, y)
    return m.where(safe == y, y - (safe - x / (safe * safe)) / 3.0, y)


def gaussian(m: Any, x: Any, scale: float = 1.0) -> Any:
    """`exp(-scale x^2)`: the square of the leading bits is exact, and the remainder of the exponent is small.

    Source: the splitting in FreeBSD's s_erf.
    """
    size = m.minimum(m.abs(x), 40.0)
    head = leading_bits(m, size)
    rest = (size - head) * (size + head) * scale
    return m.exp(-(head * head) * scale) * (1.0 - rest * (1.0 - rest * (0.5 - rest / 6.0)))


def leading_bits(m: Any, x: Any) -> Any:
    """The upper half of a number's mantissa bits: its square is exact."""
    check_at_most_64_bits(x)
    if x.dtype == np.float64:
        return (x.view(np.int64) & np.int64(-(1 << 27))).view(np.float64)
    return (x.view(np.int32) & np.int32(-(1 << 12))).view(np.float32)


def check_at_most_64_bits(x: Any) -> None:
    """Errors: TypeError for wider floats, which have another layout and for which these fits are not made."""
    if x.dtype.itemsize > 8:
        raise TypeError(f"no formula for {x.dtype}")


def integer_power(m: Any, x: Any, n: int) -> Any:
    """`x^n` for n from 1, by repeated squaring of numbers carried with their rounding errors (Dekker 1971)."""
    result: tuple[Any, Any] | None = None
    square, left = (x, m.zeros_like(x)), n
    while True:
        if left & 1:
            result = square if result is None else unrounded_product(m, result, square)
        left >>= 1
        if not left:
            high, low = result or square
            return m.where(m.isfinite(high) & (high != 0), high + low, high)
        square = unrounded_product(m, square, square)


def unrounded_product(m: Any, x: tuple[Any, Any], y: tuple[Any, Any]) -> tuple[Any, Any]:
    """The product of two unrounded numbers, each a double and its rounding error."""
    (a, a_rest), (b, b_rest) = x, y
    high = a * b
    u, v = leading_bits(m, a), leading_bits(m, b)
    lost = ((u * v - high) + u * (b - v) + (a - u) * v) + (a - u) * (b - v)
    return high, m.where(m.isfinite(high), lost + (a * b_rest + a_rest * b), 0.0)


def power_minus_integer(m: Any, x: Any, y: Any, n: int, power: Callable[[Any, Any], Any]) -> Any:
    """`x^(y - n)`, corrected for the rounding error of `y - n`.

    The error becomes the exponent of another factor, near 1 where the power is finite. Where the power is Inf, that
    factor's first order could have either sign, so it is left out.
    """
    rounded = y - float(n)
    lost, raised = subtraction_error(m, y, m.full_like(y, n), rounded), power(x, rounded)
    small = m.isfinite(lost) & (x != 0) & m.isfinite(x) & m.isfinite(raised)
    size = x if m.iscomplexobj(x) else m.abs(x)
    return raised * m.where(small, 1.0 + lost * m.log(m.where(small, size, 1.0)), 1.0)


def subtraction_error(m: Any, x: Any, y: Any, rounded: Any) -> Any:
    """The rounding error of `x - y` (Knuth 1969, "two sum")."""
    back = rounded - x
    return (x - (rounded - back)) - (y + back)


def binade(m: Any, x: Any, exponent: int) -> Any:
    """The greatest power of two up to `|x|`, from `2^-exponent` to `2^exponent`; 1 at 0."""
    check_at_most_64_bits(x)
    size = m.where(x == 0, m.ones_like(x), m.clip(m.abs(x), 2.0**-exponent, 2.0**exponent))
    if x.dtype == np.float64:
        return (size.view(np.int64) & np.int64(0x7FF0_0000_0000_0000)).view(np.float64)
    return (size.view(np.int32) & np.int32(0x7F80_0000)).view(np.float32)
