"""Every differentiable function of one number that the registry has, exactly: what `test_digits` compares with."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp

from support.digits import Known

Number = Any
HALF_PI = math.pi / 2


def over(x: Number) -> Number:
    """`1 / x`, the limit from the right at 0."""
    return mp.inf if x == 0 else 1 / x


def power(x: Number, n: int) -> Number:
    return x**n if n >= 0 else over(x**-n)


def sech2(x: Number) -> Number:
    return mp.sech(x) ** 2


def erfc(x: Number) -> Number:
    return mp.mpf(2 * (x < 0)) if abs(x) > 40 else mp.erfc(x)


def bell(x: Number) -> Number:
    return mp.mpf(0) if abs(x) > 40 else mp.exp(-x * x)


def density(x: Number) -> Number:
    return bell(x / mp.sqrt(2)) / mp.sqrt(2 * mp.pi)


def below(x: Number) -> Number:
    """The probability that a normal number is below x."""
    return erfc(-x / mp.sqrt(2)) / 2


def erfinv(x: Number) -> Number:
    return x * mp.inf if abs(x) == 1 else x * mp.sqrt(mp.pi) / 2 if abs(x) < 1e-30 else mp.erfinv(x)


def erfinv_slope(x: Number) -> Number:
    return mp.exp(erfinv(x) ** 2) * mp.sqrt(mp.pi) / 2


def gamma(x: Number) -> Number:
    return mp.gamma(x) if x != mp.floor(x) or x > 0 else mp.nan if x else mp.inf


def lgamma(x: Number) -> Number:
    if x <= 0:
        return mp.inf if x == mp.floor(x) else mp.log(mp.pi / abs(mp.sin(mp.pi * x))) - lgamma(1 - x)
    return mp.log(mp.gamma(x)) if x < 100 else mp.loggamma(x)


def psi(n: int, x: Number) -> Number:
    """The polygamma function by its asymptotic series from 40 on; mpmath's own takes seconds far out."""
    if x == 0:
        return mp.inf * (-1) ** (n + 1)  # from above
    if x < 0:
        return psi_left(n, x)
    y, head = x, mp.mpf(0)
    while y < 40:
        head, y = head + y ** -(n + 1), y + 1
    sign, square = (-1) ** (n + 1), y**-2
    total = -mp.log(y) if n == 0 else mp.factorial(n - 1) * y**-n
    total += mp.factorial(n) * (head + y ** -(n + 1) / 2)
    power = y ** -(n + 2)
    for k in range(1, 35):
        total += mp.bernoulli(2 * k) * mp.factorial(2 * k + n - 1) / mp.factorial(2 * k) * power
        power *= square
    return sign * total


def psi_left(n: int, x: Number) -> Number:
    """Reflected: the cotangent's derivatives are polynomials in it, as c' = -(1 + c^2)."""
    if x == mp.floor(x):
        return mp.nan
    c = mp.cot(mp.pi * (x - mp.nint(x)))
    terms = [mp.mpf(0), mp.mpf(1)]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(terms)][1:]
        terms = [-a - b for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return (-1) ** n * psi(n, 1 - x) - mp.pi ** (n + 1) * sum(a * c**k for k, a in enumerate(terms))


def integer_power(n: int) -> Known:
    return Known(
        lambda x: power(x, n),
        lambda x: n * power(x, n - 1) if n else mp.mpf(0),
        near=(1.0,),
        attrs={"n": n},
        zero=n > 0,
    )


def polygamma(n: int) -> Known:
    return Known(lambda x: psi(n, x), lambda x: psi(n + 1, x), low=0.0, near=(1.0, 2.0), dense=(0, 40), attrs={"n": n})


GAMMA_ROOTS = (1.0, 2.0, 1.4616321449683622)

# fmt: off
UNARY: dict[str, Known] = {
    "exp": Known(mp.exp, mp.exp, near=(0.0, 709.78, -708.39)),
    "exp2": Known(lambda x: mp.mpf(2) ** x, lambda x: mp.mpf(2) ** x * mp.log(2), near=(0.0, 1024.0, -1022.0)),
    "exp2_slope": Known(
        lambda x: mp.mpf(2) ** x * mp.log(2), lambda x: mp.mpf(2) ** x * mp.log(2) ** 2,
        high=1024.0, near=(0.0, 1024.0, -1021.0),
    ),
    "expm1": Known(mp.expm1, mp.exp, near=(0.0, 709.78, -38.0, -708.39)),
    "one_if_zero": Known(lambda x: x or mp.mpf(1), lambda x: mp.mpf(1) if x else mp.nan, low=0.0, near=(1.0,)),
    "root_of_squares": Known(mp.sqrt, lambda x: over(2 * mp.sqrt(x)) if x else mp.mpf(0), low=0.0, near=(1.0,)),
    "positive": Known(lambda x: x, lambda x: mp.mpf(1), low=0.0, near=(1.0,)),
    "log": Known(mp.log, over, low=0.0, near=(1.0,)),
    "log1p": Known(mp.log1p, lambda x: over(1 + x), low=-1.0, near=(0.0,)),
    "sin": Known(mp.sin, mp.cos, near=(0.0, HALF_PI, math.pi, 1e22), dense=(-20, 20)),
    "cos": Known(mp.cos, lambda x: -mp.sin(x), near=(0.0, HALF_PI, math.pi, 1e22), dense=(-20, 20)),
    "tan": Known(mp.tan, lambda x: mp.sec(x) ** 2, near=(0.0, HALF_PI, math.pi, -HALF_PI), dense=(-20, 20)),
    "asin": Known(mp.asin, lambda x: over(mp.sqrt((1 - x) * (1 + x))), low=-1.0, high=1.0, near=(0.0, 0.5)),
    "acos": Known(mp.acos, lambda x: -over(mp.sqrt((1 - x) * (1 + x))), low=-1.0, high=1.0, near=(0.0, 0.5)),
    "atan": Known(mp.atan, lambda x: 1 / (1 + x * x), near=(0.0, 1.0, -1.0)),
    "sinh": Known(mp.sinh, mp.cosh, near=(0.0, 1.0, 710.4, -710.4)),
    "cosh": Known(mp.cosh, mp.sinh, near=(0.0, 1.0, 710.4, -710.4)),
    "tanh": Known(mp.tanh, sech2, near=(0.0, 4.0, 20.0, -20.0), dense=(-30, 30)),
    "sech2": Known(sech2, lambda x: -2 * mp.tanh(x) * sech2(x), near=(0.0, 4.0, 20.0, 300.0), dense=(-30, 30)),
    "asinh": Known(mp.asinh, lambda x: 1 / mp.sqrt(1 + x * x), near=(0.0, 1.0)),
    "acosh": Known(mp.acosh, lambda x: over(mp.sqrt((x - 1) * (x + 1))), low=1.0, dense=(1, 5)),
    "atanh": Known(mp.atanh, lambda x: over((1 - x) * (1 + x)), low=-1.0, high=1.0, near=(0.0, 0.5)),
    "sigmoid": Known(
        lambda x: 1 / (1 + mp.exp(-x)), lambda x: sech2(x / 2) / 4,
        near=(0.0, 700.0, -700.0), dense=(-40, 40),
    ),
    "relu": Known(lambda x: max(x, mp.mpf(0)), lambda x: mp.mpf(x > 0), near=(0.0,)),
    "softplus": Known(
        lambda x: mp.log1p(mp.exp(x)) if x < 200 else x, lambda x: 1 / (1 + mp.exp(-x)),
        near=(0.0, 700.0, -700.0), dense=(-40, 40),
    ),
    "gaussian 1": Known(bell, lambda x: -2 * x * bell(x), near=(0.0, 1.0, 26.0), dense=(-26, 26), attrs={"scale": 1.0}),
    "erf": Known(mp.erf, lambda x: 2 / mp.sqrt(mp.pi) * bell(x), near=(0.0, 1.0, 6.0, 26.0)),
    "erfc": Known(erfc, lambda x: -2 / mp.sqrt(mp.pi) * bell(x), near=(0.0, 0.5, 1.0, 6.0, 26.0), dense=(-6, 27)),
    "erfinv": Known(erfinv, erfinv_slope, low=-1.0, high=1.0, near=(0.0, 0.5)),
    "erfinv_slope": Known(
        erfinv_slope, lambda x: 2 * erfinv(x) * erfinv_slope(x) ** 2,
        low=-1.0, high=1.0, near=(0.0, 0.5),
    ),
    "gelu": Known(
        lambda x: x * below(x), lambda x: below(x) + x * density(x),
        near=(0.0, -0.35, -0.7517915246935645, -1.8), dense=(-10, 10),
    ),
    "gelu_slope": Known(
        lambda x: below(x) + x * density(x), lambda x: (2 - x * x) * density(x),
        near=(0.0, -1.8, -0.35), dense=(-10, 10),
    ),
    "gamma": Known(
        gamma, lambda x: gamma(x) * psi(0, x), low=0.0, high=171.0,
        near=(*GAMMA_ROOTS, 2.5), dense=(0, 20),
    ),
    "lgamma": Known(lgamma, lambda x: psi(0, x), low=0.0, near=GAMMA_ROOTS, dense=(0, 10)),
    "digamma": Known(lambda x: psi(0, x), lambda x: psi(1, x), low=0.0, near=GAMMA_ROOTS, dense=(0, 10)),
    "polygamma 1": polygamma(1),
    "polygamma 2": polygamma(2),
    "polygamma 3": polygamma(3),
    "rsqrt": Known(lambda x: over(mp.sqrt(x)), lambda x: -over(2 * x * mp.sqrt(x)), low=0.0, near=(1.0,)),
    "sqrt": Known(mp.sqrt, lambda x: over(2 * mp.sqrt(x)), low=0.0, near=(1.0,)),
    "cbrt": Known(lambda x: mp.sign(x) * mp.cbrt(abs(x)), lambda x: over(3 * mp.cbrt(abs(x)) ** 2), near=(0.0, 1.0)),
    "one_minus_square": Known(lambda x: (1 - x) * (1 + x), lambda x: -2 * x, near=(0.0, 1.0, -1.0)),
    "abs": Known(abs, mp.sign, near=(0.0,)),
    "neg": Known(lambda x: -x, lambda x: mp.mpf(-1)),
    **{f"integer_pow {n}": integer_power(n) for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, -1, -2, -3, -12)},
}
# fmt: on
