"""Algebraic identities as rewrite rules: pairs of programs that are equal bit for bit, as one test checks for all.

Identities of real numbers that are missing are missing on purpose. `x + 0.0` is 0.0 at -0.0; `x * 0`, `x - x` and
`x / x` are NaN at Inf; `-(x - y)` and `y - x` are zeros of different sign at x = y; `not (x < y)` holds for a NaN. Both
sides have the same derivative too: so `max(x, x)` stays, whose derivative at NaN is NaN.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from msgspec import Struct

from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import BOOL, COMPLEXES, F16, F32, F64, FLOATS, I32, INTEGERS, NUMBERS, U8, DType, Tensor
from difflang.ops.elementwise.comparison_and_logic import eq, logical_and, logical_not, logical_or
from difflang.ops.elementwise.linear_arithmetic import conj, select
from difflang.ops.elementwise.nonlinear_arithmetic import absolute

PairProgram = Callable[..., Value]
BOOLS = (BOOL,)
REALS = (F64, F32, F16, I32, U8)
ALL_DTYPES = (*NUMBERS, BOOL)


class ProgramPair(Struct, frozen=True):
    """Two programs that are equal on params of these types; a param in `bool_params` is a bool."""

    left: PairProgram
    right: PairProgram
    dtypes: tuple[DType, ...]
    bool_params: tuple[int, ...] = ()

    def trace(self, program: PairProgram, dtype: DType) -> Graph:
        count = len(inspect.signature(self.left).parameters)
        types = [Tensor(BOOL if i in self.bool_params else dtype, (7,)) for i in range(count)]
        return build_region(types, lambda *xs: [program(*xs)])

    @property
    def lhs(self) -> Graph:
        return self.trace(self.left, self.dtypes[0])

    @property
    def rhs(self) -> Graph:
        return self.trace(self.right, self.dtypes[0])


def program_pair(
    left: PairProgram, right: PairProgram, *, on: tuple[DType, ...], truths: tuple[int, ...] = ()
) -> ProgramPair:
    return ProgramPair(left, right, on, truths)


def bool_const(like: Value, value: bool) -> Value:
    return like.home.const(value, like.type)


def int_const(like: Value, value: int) -> Value:
    return like.home.const(value, like.type)


ALGEBRAIC_IDENTITIES = (
    # Floats. The neutral element of a sum is -0.0. A constant is the last operand, see `move_constant_last`.
    program_pair(lambda x: x + (-0.0), lambda x: x, on=FLOATS),
    program_pair(lambda x: x - 0.0, lambda x: x, on=FLOATS),
    program_pair(lambda x: x * 1.0, lambda x: x, on=FLOATS),
    program_pair(lambda x: x / 1.0, lambda x: x, on=FLOATS),
    program_pair(lambda x: x * -1.0, lambda x: -x, on=FLOATS),
    program_pair(lambda x: x / -1.0, lambda x: -x, on=FLOATS),
    program_pair(lambda x: -0.0 - x, lambda x: -x, on=FLOATS),
    # Integers.
    program_pair(lambda x: x + 0, lambda x: x, on=INTEGERS),
    program_pair(lambda x: x - 0, lambda x: x, on=INTEGERS),
    program_pair(lambda x: x * 1, lambda x: x, on=INTEGERS),
    program_pair(lambda x: 0 - x, lambda x: -x, on=INTEGERS),
    program_pair(lambda x: select.one(eq.one(x, int_const(x, 0)), int_const(x, 0), x), lambda x: x, on=INTEGERS),
    # Signs.
    program_pair(lambda x: -(-x), lambda x: x, on=NUMBERS),  # noqa: B002
    program_pair(lambda x, y: x + -y, lambda x, y: x - y, on=NUMBERS),
    program_pair(lambda x, y: -x + y, lambda x, y: y - x, on=NUMBERS),
    program_pair(lambda x, y: x - -y, lambda x, y: x + y, on=NUMBERS),
    program_pair(lambda x, y: -x * -y, lambda x, y: x * y, on=REALS),
    program_pair(lambda x, y: -x / -y, lambda x, y: x / y, on=FLOATS),
    program_pair(lambda x: absolute.one(absolute.one(x)), lambda x: absolute.one(x), on=(*FLOATS, I32)),
    program_pair(lambda x: conj.one(conj.one(x)), lambda x: x, on=COMPLEXES),
    # Logic.
    program_pair(lambda x: logical_not.one(logical_not.one(x)), lambda x: x, on=BOOLS),
    program_pair(lambda x: logical_and.one(x, x), lambda x: x, on=BOOLS),
    program_pair(lambda x: logical_or.one(x, x), lambda x: x, on=BOOLS),
    program_pair(lambda x, y: logical_or.one(x, logical_and.one(x, y)), lambda x, y: x, on=BOOLS),
    program_pair(lambda x, y: logical_and.one(x, logical_or.one(x, y)), lambda x, y: x, on=BOOLS),
    program_pair(lambda x, y: logical_and.one(logical_or.one(x, y), x), lambda x, y: x, on=BOOLS),
    program_pair(lambda x, y: logical_and.one(logical_or.one(y, x), x), lambda x, y: x, on=BOOLS),
    program_pair(lambda x: logical_and.one(x, bool_const(x, True)), lambda x: x, on=BOOLS),
    program_pair(lambda x: logical_and.one(bool_const(x, True), x), lambda x: x, on=BOOLS),
    program_pair(lambda x: logical_or.one(x, bool_const(x, False)), lambda x: x, on=BOOLS),
    program_pair(lambda x: logical_or.one(bool_const(x, False), x), lambda x: x, on=BOOLS),
    program_pair(lambda x: logical_and.one(x, bool_const(x, False)), lambda x: bool_const(x, False), on=BOOLS),
    program_pair(lambda x: logical_and.one(bool_const(x, False), x), lambda x: bool_const(x, False), on=BOOLS),
    program_pair(lambda x: logical_or.one(x, bool_const(x, True)), lambda x: bool_const(x, True), on=BOOLS),
    program_pair(lambda x: logical_or.one(bool_const(x, True), x), lambda x: bool_const(x, True), on=BOOLS),
    # Selects.
    program_pair(lambda p, x: select.one(p, x, x), lambda p, x: x, on=ALL_DTYPES, truths=(0,)),
    program_pair(lambda p, x, y: select.one(bool_const(p, True), x, y), lambda p, x, y: x, on=ALL_DTYPES, truths=(0,)),
    program_pair(lambda p, x, y: select.one(bool_const(p, False), x, y), lambda p, x, y: y, on=ALL_DTYPES, truths=(0,)),
    program_pair(
        lambda p, x, y: select.one(logical_not.one(p), x, y),
        lambda p, x, y: select.one(p, y, x),
        on=ALL_DTYPES,
        truths=(0,),
    ),
    program_pair(
        lambda p, x, y, z: select.one(p, select.one(p, x, y), z),
        lambda p, x, y, z: select.one(p, x, z),
        on=ALL_DTYPES,
        truths=(0,),
    ),
    program_pair(
        lambda p, x, y, z: select.one(p, x, select.one(p, y, z)),
        lambda p, x, y, z: select.one(p, x, z),
        on=ALL_DTYPES,
        truths=(0,),
    ),
)
