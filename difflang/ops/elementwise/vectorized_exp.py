"""Vectorized exponentials of few elements on the CPU, by polynomials.

They consist of operations that XLA vectorizes in any shape, whereas its own exponential is scalar in short rows.
`lower/cpu/peephole_rewrites` decides where they are used.

Sources: the rational approximation in `exp.c` of the Cephes library, S. L. Moshier, and in single precision that of
Padé of order 4 over 4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difflang.ir.tensor_types import F32, F64
from difflang.numerics.accurate_elementary import horner
from difflang.ops.elementwise.elementary_functions import exp
from difflang.ops.elementwise.powers_and_logs import exp_sub, subtract_or_zero
from difflang.ops.op_factories import elementwise_op

# Tables are indexed by the bytes of a number. From here on the exponential overflows.
OVERFLOW_FROM = {4: 89.0, 8: 710.0}
# In two parts: products of the first with integers are exact.
LN2 = {
    4: (6.93359375e-1, -2.12194440054690583e-4), 8: (6.93145751953125e-1, 1.42860682030941723212e-6)
}  # fmt: skip
NUMERATOR = {
    4: (1 / 42, 1.0), 8: (1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1)
}  # fmt: skip
DENOMINATOR = {
    4: (1 / 840, 3 / 14, 2.0),
    8: (
        3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1, 2.00000000000000000005,
    ),
}  # fmt: skip


def exp_by_polynomials(m: Any, x: Any) -> Any:
    """`e^x = 2^n e^r`, with `e^r` as `(Q + r P) / (Q - r P)` for polynomials P and Q of `r^2`.

    Within 2.1 units in the last place, and 0 where the result is subnormal, as XLA's is.
    """
    width, of = x.dtype.itemsize, np.finfo(x.dtype)
    smaller = x < math.log(of.tiny)
    x = m.minimum(x, OVERFLOW_FROM[width])
    n = m.maximum(m.round(x * (1 / math.log(2))), float(of.minexp + 1))
    rest = (x - n * LN2[width][0]) - n * LN2[width][1]
    square = rest * rest
    odd, even = rest * horner(NUMERATOR[width], square), horner(DENOMINATOR[width], square)
    # Half of `2^n`, since `2^n` may overflow where `e^x` does not.
    half = ((n.astype(np.int32).astype(f"i{width}") - of.minexp) << of.nmant).view(x.dtype)
    return m.where(smaller, 0.0, even + odd) * half / ((even - odd) * 0.5)


vectorized_exp = elementwise_op(
    "vectorized_exp",
    derivative=exp.derivative,
    reference=exp.reference,
    lower=exp.lower,
    cpu_lower_rule=lambda jax, x: exp_by_polynomials(jax.numpy, x),
    accepts=(F32, F64),
    samples=exp.samples,
    doc="""Exponential, by polynomials on the CPU. Units: 1 -> 1, positive. Kinks: none.""",
)

vectorized_exp_sub = elementwise_op(
    "vectorized_exp_sub",
    derivative=exp_sub.derivative,
    reference=exp_sub.reference,
    lower=exp_sub.lower,
    cpu_lower_rule=lambda jax, x, y: exp_by_polynomials(jax.numpy, subtract_or_zero(jax, x, y)),
    accepts=(F32, F64),
    samples=exp_sub.samples,
    doc="""`exp(x - y)`, by polynomials on the CPU; 1 where x = y, infinite ones too. Units: 1, 1 -> 1. Kinks: none.""",
)
