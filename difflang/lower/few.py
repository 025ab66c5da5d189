"""Exponentials of few numbers in double precision are written out in steps of loops, on the CPU.

XLA unrolls the loop over a short last axis, and asks for one exponential after the other then: of 16 numbers each
takes 4 ns, of 16 by 16 numbers 2, where in a long vector it takes 1.2. Written out they are steps for vector units in
any shape, and take half of that. The last step is a quotient, which XLA does not make again for each reader.

Source: the rational approximation in `exp.c` of the Cephes library, S. L. Moshier.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difflang.ops.precise import polynomial

SHORT = range(9, 33)  # last axes for which that is so
MOST = 400  # numbers: of more, XLA would have two threads share a kernel that is over before both have begun
NOTHING, INFINITE = math.log(np.finfo(np.float64).tiny), 710.0  # below the first the exponential is 0, as XLA's is
LN2 = (6.93145751953125e-1, 1.42860682030941723212e-6)  # as a sum; products of the first with counts are exact
ABOVE = (1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1)
BELOW = (3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1, 2.00000000000000000005)


def written_out(m: Any, x: Any) -> Any:
    """`e^x = 2^n e^r`, and `e^r` as `(Q + r P) / (Q - r P)`, P and Q polynomials of `r^2`.

    Within 1.8 units in the last place. Half of `2^n`, since that may be too large where `e^x` is not.
    """
    x = m.minimum(x, INFINITE)
    n = m.maximum(m.round(x * (1 / math.log(2))), float(np.finfo(np.float64).minexp + 1))
    rest = (x - n * LN2[0]) - n * LN2[1]
    square = rest * rest
    odd, even = rest * polynomial(ABOVE, square), polynomial(BELOW, square)
    half = ((n.astype(np.int32).astype(np.int64) + 1022) << 52).view(np.float64)
    return m.where(x < NOTHING, 0.0, even + odd) * half / ((even - odd) * 0.5)


class Few:
    """What stands for `jax`, or for what stands in for it, where numbers may be few."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.lax, self.numpy = Beside(module.lax, self.exp), Beside(module.numpy, self.exp)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def exp(self, x: Any) -> Any:
        if x.dtype == np.float64 and x.size <= MOST and x.shape and x.shape[-1] in SHORT:
            return written_out(self.module.numpy, x)
        return self.module.lax.exp(x)


class Beside:
    """A module with an exponential of its own."""

    def __init__(self, module: Any, exp: Any) -> None:
        self.module, self.exp = module, exp

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)
