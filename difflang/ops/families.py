"""Families of ops: what is the same for all unary, binary, comparing, linear, ... ops is said once, here."""

from __future__ import annotations

from dataclasses import dataclass

from difflang.ir.op import OPS, Op, Rule, Solver
from difflang.ir.types import BOOL, FLOATS, NUMBERS, DType, Tensor


@dataclass(frozen=True, slots=True)
class Uniform:
    """Operands drawn evenly from an interval, away from the points in `avoid`."""

    low: float = -2.0
    high: float = 2.0
    avoid: tuple[float, ...] = ()


def unary(name: str, *, jvp: Rule, reference: Rule, lower: Rule, doc: str, accepts: tuple[DType, ...] = FLOATS,
          samples: object = Uniform()) -> Op:
    """An elementwise function of one array. `jvp(dx, y, x)` is linear in `dx`."""

    def type(same: Solver, x: Tensor) -> Tensor:
        same.accepts(x, accepts)
        return x

    return OPS.declare(Op(name, type, reference, lower, doc, jvp=(jvp,), elementwise=True, accepts=accepts, samples=samples))


def binary_type(accepts: tuple[DType, ...]) -> Rule:
    """Both operands alike, and the result too."""

    def type(same: Solver, x: Tensor, y: Tensor) -> Tensor:
        same.accepts(x, accepts)
        same.dtype(x, y)
        same.shape(x, y)
        return x

    return type


def binary(name: str, *, jvp: tuple[Rule, Rule], reference: Rule, lower: Rule, doc: str,
           accepts: tuple[DType, ...] = FLOATS, samples: object = Uniform()) -> Op:
    """An elementwise function of two arrays of one type. The rules are `(d, z, x, y) -> dz`."""
    return OPS.declare(Op(name, binary_type(accepts), reference, lower, doc, jvp=jvp, elementwise=True, accepts=accepts, samples=samples))


def comparison(name: str, *, reference: Rule, lower: Rule, doc: str, accepts: tuple[DType, ...] = NUMBERS) -> Op:
    """An elementwise question about two arrays: no derivative."""

    def type(same: Solver, x: Tensor, y: Tensor) -> Tensor:
        return Tensor(BOOL, binary_type(accepts)(same, x, y).shape)

    return OPS.declare(Op(name, type, reference, lower, doc, inactive=True, elementwise=True, accepts=accepts))
