"""The digamma function at negative arguments, in double-double arithmetic: it has a zero between any two poles.

The reflection `psi(x) = psi(1 - x) - pi cot(pi x)` is a difference. At the number nearest to a zero all digits of both
terms may cancel, so they are computed as pairs. `m` is NumPy or `jax.numpy`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.numerics.double_double import (
    DoubleDouble,
    dd_add,
    dd_div,
    dd_from_float,
    dd_horner,
    dd_mul,
    dd_neg,
    dd_round,
    two_sum,
)

# psi(y) is psi(y + 7) less 1 / y, 1 / (y + 1), ...: there the asymptotic series is accurate.
RECURRENCE_STEPS = 7
# The mantissa bits of the square root of 2.
NEAR_ROOT_2 = 0x6A09E667F3BCC
# The first two parts times 0 to 63 are exact.
LN2 = (0.693147180559933, 1.23466660414776e-14, 1.011689003775276e-28)

# Chebyshev fits by mpmath's `chebyfit`, highest power first, each coefficient a double and its rounding error;
# `tests/support/fits.py` recomputes them. Where the powers are small enough, doubles alone do.
# This many leading coefficients are plain doubles.
LEADING_DOUBLES = 5
# log((1 + s) / (1 - s)) / s in s^2, for s^2 to 0.0295
LOG_QUOTIENT = (
    (0.08501771588874504, 5.224528492894395e-18), (0.0724146320562343, -2.5950286577668366e-18),
    (0.08010005276809272, 2.0359275976030267e-18), (0.08695256174580251, 2.7781106061322667e-18),
    (0.09523820396627751, 7.371001567388024e-20), (0.10526315576790839, -2.8226864857925054e-18),
    (0.11764705885345195, 5.8480759474849925e-18), (0.13333333333303157, 8.811230544423537e-19),
    (0.153846153846156, 1.8276873409502774e-18), (0.1818181818181818, 1.2239308017454062e-17),
    (0.2222222222222222, 1.2369101264920162e-17), (0.2857142857142857, 1.5860265217211758e-17),
    (0.4, -2.220446042868871e-17), (0.6666666666666666, 3.7007434154146664e-17), (2.0, 1.6534266029162233e-33),
)  # fmt: skip
# (psi(z + 1/2) - log z) z^2 in 1 / z^2, for z from 7.5
HALFWAY_TAIL = (
    (470345015.26423454, -1.0450260817820243e-09), (-95254229.2414396, 4.785151147566928e-09),
    (9940801.68018254, -1.4352498998910038e-10), (-756179.4853871155, -3.326095910160573e-11),
    (51122.85705408339, 4.3370660797482853e-13), (-3558.9763780573044, -2.2663984811054838e-13),
    (280.97132735425544, -2.4549242951099204e-14), (-26.4524063959625, 4.853957761551683e-16),
    (3.0539092415690408, 1.5350429117391498e-16), (-0.4432461828045274, -6.392370339777204e-18),
    (0.08332316051399244, -3.0190748790817384e-19), (-0.021082496875313463, -1.5778430369933603e-19),
    (0.007560961174241498, 1.9217795075241108e-19), (-0.0041341145833333325, 6.5169924881366535e-21),
    (0.0038442460317460315, 2.130188743218826e-19), (-0.007291666666666667, 1.1564830186243795e-19),
    (0.041666666666666664, 2.312964634633585e-18),
)  # fmt: skip
# (pi cot(pi f) - 1 / f + 2 f / (1 - f^2)) / f in f^2, for f from -0.5 to 0.5
COTANGENT_SERIES = (
    (-5.1781407065241104e-11, -8.567778624430092e-28), (-9.061754814433374e-11, -3.0584078492101196e-27),
    (-4.826198177155261e-10, -4.342454380707047e-26), (-1.8552398248359695e-09, 7.271262751995002e-26),
    (-7.452972251898531e-09, 7.766541952562812e-25), (-2.980258249106177e-08, -9.550305837921825e-25),
    (-1.1921646860085738e-07, -4.738413689114852e-24), (-4.769009936997811e-07, 6.0218044156087644e-24),
    (-1.9079240689014396e-06, 3.3712592668005743e-23), (-7.634586529914257e-06, 5.712604857951837e-22),
    (-3.056451881730842e-05, -2.815050769524679e-21), (-0.00012249627011740947, -7.652011717145353e-21),
    (-0.0004921731066160966, 3.741222259685209e-20), (-0.0019891502556361705, -1.630116954750863e-19),
    (-0.00815471239588868, 4.448556250368173e-19), (-0.03468612396889828, 8.829540255448029e-19),
    (-0.16464646742227637, -1.1703514010234766e-17), (-1.2898681336964528, -6.081344700796951e-17),
)  # fmt: skip


def digamma_negative(m: Any, x: Any, offset: Any) -> Any:
    """`psi(x)` in double precision for `x < 0`, where `offset` is x minus the nearest integer; not at the poles.

    Source: Abramowitz and Stegun 6.3.6, 6.3.7, 6.3.21.
    """
    one = dd_from_float(m.ones_like(x))
    y = two_sum(-x, 1.0)
    z = dd_add(y, dd_from_float(m.full_like(x, RECURRENCE_STEPS - 0.5)))
    inverse = dd_div(one, z)
    v = dd_mul(inverse, inverse)
    psi = dd_add(dd_log(m, z), dd_mul(v, dd_horner(HALFWAY_TAIL, v, LEADING_DOUBLES)))
    for k in range(RECURRENCE_STEPS):
        psi = dd_add(psi, dd_neg(dd_div(one, dd_add(y, dd_from_float(m.full_like(x, k))))))
    # So close to 0 that psi is -1 / x: the low halves of products would underflow.
    at_pole = x > -(2.0**-64)
    y = dd_round(dd_add(psi, dd_neg(dd_pi_cot(m, m.where((offset == 0) | at_pole, 0.25, offset)))))
    return m.where(at_pole, -1.0 / x, y)


def dd_log(m: Any, z: DoubleDouble) -> DoubleDouble:
    """`n log 2 + log((1 + s) / (1 - s))`, where `2^n` is the power of two within a factor sqrt(2) of z."""
    n, power = binary_exponent(z[0])
    s = dd_div(dd_add(z, dd_from_float(-power)), dd_add(z, dd_from_float(power)))
    rest = dd_mul(s, dd_horner(LOG_QUOTIENT, dd_mul(s, s), LEADING_DOUBLES))
    high, low = two_sum(n * LN2[0], n * LN2[1])
    return dd_add((high, low + n * LN2[2]), rest)


def binary_exponent(z: Any) -> tuple[Any, Any]:
    """The integer n for which `z / 2^n` is between the roots of 1/2 and 2, as a float, and `2^n`."""
    bits = z.view(np.int64)
    n = (bits >> 52) - 1023 + ((bits & ((1 << 52) - 1)) > NEAR_ROOT_2).astype(np.int64)
    return n.astype(np.float64), ((n + 1023) << 52).view(np.float64)


def dd_pi_cot(m: Any, f: Any) -> DoubleDouble:
    """`pi cot(pi f)`: the poles at -1, 0 and 1, `(1 - 3 f^2) / (f (1 - f^2))`, and a fitted remainder."""
    one, x = dd_from_float(m.ones_like(f)), dd_from_float(f)
    square = dd_mul(x, x)
    above = dd_add(dd_mul(square, dd_from_float(m.full_like(f, -3.0))), one)
    below = dd_mul(x, dd_add(dd_neg(square), one))
    return dd_add(dd_div(above, below), dd_mul(x, dd_horner(COTANGENT_SERIES, square, LEADING_DOUBLES)))
