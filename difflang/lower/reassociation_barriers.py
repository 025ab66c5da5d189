"""Barriers around products and quotients that XLA would multiply in another order, where parts may overflow.

On the CPU our programs are compiled without XLA's algebra (`runtime.compile`). The simplest forms are held for other
devices, and for programs that JAX compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import FLOATS, DType, Tensor, numpy_dtype
from difflang.ops.elementwise.linear_arithmetic import div, mul, neg
from difflang.ops.elementwise.nonlinear_arithmetic import absolute, integer_pow

Array = Any


class ReassociationBarriers:
    """The facts that decide, of the values lowered so far: their last constant factors, and which are quotients."""

    def __init__(self) -> None:
        self.factors: dict[Value, float] = {}
        self.quotients: set[Value] = set()

    def hold(self, module: Any, eqn: Eqn, arrays: Sequence[Array]) -> Sequence[Array]:
        """The operands of an equation, some behind barriers of `module.lax`.

        XLA turns `(a * c) * (b * d)` with scalars and constants `c` and `d` into `(a * b) * (c * d)`, and `(a * c) * d`
        with arrays into `a * (c * d)`. So in f32 the square of `1e25 * 1e-25` would be Inf times 0. It turns
        `(a / b) / c` into `a / (b * c)` and `a / (b / c)` into `a * c / b`.
        """
        if eqn.op is mul or eqn.op is div or eqn.op is integer_pow:
            held = self.held_operands(eqn, arrays)
            return [module.lax.optimization_barrier(x) if i in held else x for i, x in enumerate(arrays)]
        if ("bit exact" in eqn.op.traits or eqn.op is neg or eqn.op is absolute) and len(eqn.operands) == 1:
            self.keep_factor(eqn.operands[0], eqn.results[0])
        return arrays

    def keep_factor(self, x: Value, result: Value) -> None:
        if x in self.factors:
            self.factors[result] = self.factors[x]

    def held_operands(self, eqn: Eqn, arrays: Sequence[Array]) -> set[int]:
        """Which operands are held; notes the facts of the result."""
        type = eqn.results[0].type
        if not isinstance(type, Tensor) or type.dtype not in FLOATS:
            return set()
        if eqn.op is div:
            self.quotients.update(eqn.results)
        quotients = {i for i, v in enumerate(eqn.operands) if v in self.quotients} if eqn.op is div else set[int]()
        for at, number in enumerate(arrays):
            if isinstance(number, np.generic) and number and (at or eqn.op is mul):
                return quotients | self.held_beside_number(eqn, 1 - at, float(number), type.dtype)
        factors = [v for v in eqn.operands if v in self.factors]
        if eqn.op is not div and len(factors) == len(eqn.operands) and all([n == 1 for n in type.shape]):
            return {i for i, v in enumerate(eqn.operands) if v is eqn.operands[0]}
        return quotients

    def held_beside_number(self, eqn: Eqn, at: int, number: float, dtype: DType) -> set[int]:
        """The same for one operand and a constant: held where its own constant factor times this one is not normal."""
        (result,), before = eqn.results, self.factors.get(eqn.operands[at])
        factor = number if eqn.op is mul else 1.0 / number
        both = factor if before is None else before * factor
        held = before is not None and not is_normal(both, dtype)
        self.factors[result] = factor if held else both
        return {at} if held else set()


def is_normal(number: float, dtype: DType) -> bool:
    limits = jax.numpy.finfo(numpy_dtype(dtype))
    return float(limits.tiny) <= abs(number) <= float(limits.max)
