"""`math`: against NumPy, and its derivatives against closed forms."""

from __future__ import annotations

import numpy as np
import scipy.special as sp

from support.language import answer
from support.values import compare

IMPORT = "import math (lerp, logit, polynomial, trapezoid)\n"


def test_values() -> None:
    ask = """(lerp([1.0, 2.0], [3.0, -2.0], 0.25), logit([0.1, 0.9]), polynomial([1.0, -2.0, 0.5], [[2.0], [3.0]]),
      polynomial(zeros(0), 3.0), trapezoid([1.0, 4.0, 2.0], [0.0, 0.5, 2.0]), f32(logit(f32(0.25))))"""
    expected = (
        np.array([1.5, 1.0]),
        sp.logit([0.1, 0.9]),
        np.array([[-1.0], [-0.5]]),
        0.0,
        np.trapezoid([1.0, 4.0, 2.0], [0.0, 0.5, 2.0]),
        sp.logit(np.float32(0.25)),
    )
    compare(answer(ask, IMPORT), expected, 1e-14)


def test_derivatives() -> None:
    ask = """(logit'(0.2), (|x| polynomial([1.0, 2.0, 3.0, 4.0], x))''(2.0), grad[t](lerp)(1.0, 4.0, 0.3),
      grad(trapezoid)([1.0, 4.0, 2.0], [0.0, 0.5, 2.0]))"""
    compare(answer(ask, IMPORT), (1 / 0.16, 6 + 24 * 2.0, 3.0, np.array([0.25, 1.0, 0.75])), 1e-14)
