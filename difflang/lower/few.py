"""Exponentials of few numbers are written out in steps of loops, on the CPU.

XLA unrolls the loop over a short last axis, and asks for one exponential after the other then: each takes 4 ns where 16
numbers of f64 are all, 2 where they are 16 by 16, and 1.2 in a long vector; 2.5, 0.6 and 0.25 in f32. Written out they
are steps for vector units in any shape, which take 0.8, 0.9 and, in f32, 0.2 to 0.6. The last step is a quotient, which
XLA does not make again for each reader.

Sources: the rational approximation in `exp.c` of the Cephes library, S. L. Moshier, and in single precision that of
Padé of order 4 over 4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difflang.ops.precise import polynomial

SHORT = range(9, 33)  # last axes for which that is so
MOST = 4096  # bytes: of more, XLA would have two threads share a kernel that is over before both have begun
INFINITE = {4: 89.0, 8: 710.0}  # from there on the exponential is. By the bytes of a number, as what follows
LN2 = {  # as a sum; products of the first with counts are exact
    4: (6.93359375e-1, -2.12194440054690583e-4), 8: (6.93145751953125e-1, 1.42860682030941723212e-6)
}  # fmt: skip
ABOVE = {
    4: (1 / 42, 1.0), 8: (1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1)
}  # fmt: skip
BELOW = {
    4: (1 / 840, 3 / 14, 2.0),
    8: (
        3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1, 2.00000000000000000005,
    ),
}  # fmt: skip


def written_out(m: Any, x: Any) -> Any:
    """`e^x = 2^n e^r`, and `e^r` as `(Q + r P) / (Q - r P)`, P and Q polynomials of `r^2`.

    Within 2 units in the last place, and 0 where it is no normal number, as XLA's is. Half of `2^n`, since that may be
    too large where `e^x` is not.
    """
    width, of = x.dtype.itemsize, np.finfo(x.dtype)
    smaller = x < math.log(of.tiny)
    x = m.minimum(x, INFINITE[width])
    n = m.maximum(m.round(x * (1 / math.log(2))), float(of.minexp + 1))
    rest = (x - n * LN2[width][0]) - n * LN2[width][1]
    square = rest * rest
    odd, even = rest * polynomial(ABOVE[width], square), polynomial(BELOW[width], square)
    half = ((n.astype(np.int32).astype(f"i{width}") - of.minexp) << of.nmant).view(x.dtype)
    return m.where(smaller, 0.0, even + odd) * half / ((even - odd) * 0.5)


def are_few(x: Any) -> bool:
    if x.dtype not in (np.float32, np.float64) or not x.shape:
        return False
    return x.shape[-1] in SHORT and x.size * x.dtype.itemsize <= MOST


class Few:
    """What stands for `jax`, or for what stands in for it, where numbers may be few."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.lax, self.numpy = Beside(module.lax, self.exp), Beside(module.numpy, self.exp)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def exp(self, x: Any) -> Any:
        return written_out(self.module.numpy, x) if are_few(x) else self.module.lax.exp(x)


class Beside:
    """A module with an exponential of its own."""

    def __init__(self, module: Any, exp: Any) -> None:
        self.module, self.exp = module, exp

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)
