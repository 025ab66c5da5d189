"""Elementwise ops on single numbers as expressions of Python, which run faster than a call of NumPy for each op.

An expression gives the bits of the op's reference. A number of `f64` is a float of Python, one of `f32` an
`np.float32`. An integer is an integer of Python, known to lie between two bounds: it wraps where these leave the type.
An op without a rule is run by its reference, so a rule is only a matter of speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.ir.op import Op
from difflang.ir.tensor_types import BOOL, F32, F64, DType
from difflang.ops.arrays.constants import discrete, stop
from difflang.ops.elementwise import comparison_and_logic as logic
from difflang.ops.elementwise import linear_arithmetic as linear
from difflang.ops.elementwise import nonlinear_arithmetic as nonlinear
from difflang.ops.elementwise.roots_and_distances import root_of_squares, sqrt

Bounds = tuple[int, int]

EXACT_INTEGERS = 1 << 53  # integers up to here are numbers of f64


class PythonNumber(Struct, frozen=True):
    """An expression of Python for a number. An `atom`, a name or a literal, may stand twice.

    An integer lies within `bounds`; one outside of its type stands for the number to which it wraps. A number of `f32`
    that is `weak` is still a number of Python, to be rounded: NumPy does that beside another operand. With a `shape` it
    is a flat list of numbers, in which `updates` replace elements: code of the position, and of the number.
    """

    code: str
    dtype: DType
    bounds: Bounds = (0, 0)
    atom: bool = False
    size: int = 1  # the ops in it
    weak: bool = False
    shape: tuple[int, ...] = ()
    updates: tuple[tuple[str, str], ...] = ()
    is_zero: bool | None = None  # of a constant
    implies: tuple[tuple[str, Bounds], ...] = ()  # of a truth value: bounds of integers, by their names, where it holds

    @property
    def never_zero(self) -> bool:
        return self.is_zero is False or self.bounds[0] > 0 or self.bounds[1] < 0


TRUE, FALSE = [PythonNumber(repr(b), BOOL, atom=True, is_zero=not b) for b in (True, False)]


class PythonRule(Struct, frozen=True):
    """`write`: (*operands, **attrs) -> the result, None where the reference must run.

    With `modular` its integers need not be in range: the result is right up to a multiple of the type's size. With
    `repeats` it repeats operands, which are atoms then.
    """

    write: Callable[..., PythonNumber | None]
    modular: bool = False
    repeats: bool = False
    takes_weak: bool = False  # NumPy's operator, which may have one weak operand


PYTHON_RULES: dict[Op, PythonRule] = {}

# What the expressions call.
HELPERS: Mapping[str, Any] = {
    "inf": math.inf,
    "nan": math.nan,
    "one": np.float32(1.0),
    "square_root": math.sqrt,
    "divide": lambda x, y: float(np.divide(x, y)),
    "floor_divide": lambda x, y: float(np.floor_divide(x, y)),
    "mod": lambda x, y: float(np.mod(x, y)),
}


def python_rule(*ops: Op, modular: bool = False, repeats: bool = False, takes_weak: bool = False) -> Any:
    """Decorator: registers the rule of these ops."""

    def register(write: Callable[..., PythonNumber | None]) -> Any:
        PYTHON_RULES.update(dict.fromkeys(ops, PythonRule(write, modular, repeats, takes_weak)))
        return write

    return register


def combine(code: str, like: DType, *parts: PythonNumber, bounds: Bounds = (0, 0)) -> PythonNumber:
    """An expression of these parts; an integer whose bounds are equal is a constant."""
    low, high = integer_range(like)
    if like.is_integer and low <= bounds[0] == bounds[1] <= high:
        return PythonNumber(repr(bounds[0]), like, bounds, atom=True, is_zero=bounds[0] == 0)
    return PythonNumber(f"({code})", like, bounds, size=1 + sum(part.size for part in parts))


def integer_range(dtype: DType) -> Bounds:
    """The least and the greatest integer of a type; of a truth value, 0 and 1."""
    if not dtype.is_integer:
        return (0, 1)
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)


def hull(*bounds: Bounds) -> Bounds:
    """The least bounds around others."""
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def corners(x: Bounds, y: Bounds, combined: Callable[[int, int], int]) -> Bounds:
    """The bounds of a function that is monotonic in either argument."""
    found = [combined(a, b) for a in x for b in y]
    return min(found), max(found)


# ---- Arithmetic


@python_rule(linear.add, modular=True, takes_weak=True)
def write_add(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} + {y.code}", x.dtype, x, y, bounds=corners(x.bounds, y.bounds, int.__add__))


@python_rule(linear.sub, modular=True, takes_weak=True)
def write_sub(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} - {y.code}", x.dtype, x, y, bounds=corners(x.bounds, y.bounds, int.__sub__))


@python_rule(linear.mul, modular=True, takes_weak=True)
def write_mul(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} * {y.code}", x.dtype, x, y, bounds=corners(x.bounds, y.bounds, int.__mul__))


@python_rule(linear.neg, modular=True)
def write_neg(x: PythonNumber) -> PythonNumber:
    return combine(f"-{x.code}", x.dtype, x, bounds=(-x.bounds[1], -x.bounds[0]))


@python_rule(linear.div, repeats=True, takes_weak=True)
def write_div(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    # NumPy's numbers divide by 0 as IEEE 754 says, Python's do not.
    if y.never_zero or x.dtype is F32:
        return combine(f"{x.code} / {y.code}", x.dtype, x, y)
    return combine(f"{x.code} / {y.code} if {y.code} else divide({x.code}, {y.code})", x.dtype, x, y)


@python_rule(nonlinear.floor_div, repeats=True)
def write_floor_div(x: PythonNumber, y: PythonNumber) -> PythonNumber | None:
    if x.dtype is F32:
        return None
    other = "0" if x.dtype.is_integer else f"floor_divide({x.code}, {y.code})"
    quotient = f"{x.code} // {y.code}"
    if not y.never_zero:
        return combine(f"{quotient} if {y.code} else {other}", x.dtype, x, y, bounds=quotient_bounds(x.bounds))
    positive = x.dtype.is_integer and y.bounds[0] > 0
    bounds = corners(x.bounds, y.bounds, int.__floordiv__) if positive else quotient_bounds(x.bounds)
    return combine(quotient, x.dtype, x, y, bounds=bounds)


def quotient_bounds(x: Bounds) -> Bounds:
    """The bounds of a quotient by any integer."""
    return hull(x, (-x[1], -x[0]), (-1, 0))


@python_rule(nonlinear.rem, repeats=True)
def write_rem(x: PythonNumber, y: PythonNumber) -> PythonNumber | None:
    if x.dtype is F32:
        return None
    other = "0" if x.dtype.is_integer else f"mod({x.code}, {y.code})"
    low, high = y.bounds
    bounds = (min(low + 1, 0), max(high - 1, 0)) if x.dtype.is_integer else (0, 0)
    code = f"{x.code} % {y.code}"
    return combine(code if y.never_zero else f"{code} if {y.code} else {other}", x.dtype, x, y, bounds=bounds)


@python_rule(nonlinear.integer_pow, repeats=True)
def write_integer_pow(x: PythonNumber, *, n: int) -> PythonNumber | None:
    """By repeated squaring, as the reference does."""
    if not 1 <= n < nonlinear.ACCURATE_FROM or (x.dtype.is_integer and n > 2):
        return None
    result, square = "", x.code
    for bit in range(n.bit_length()):
        if n >> bit & 1:
            result = f"({result} * {square})" if result else square
        square = f"({square} * {square})"
    return combine(result, x.dtype, x, x, bounds=corners(x.bounds, x.bounds, int.__mul__))


@python_rule(nonlinear.absolute)
def write_abs(x: PythonNumber) -> PythonNumber:
    return combine(f"abs({x.code})", x.dtype, x, bounds=hull(x.bounds, (-x.bounds[1], -x.bounds[0])))


@python_rule(nonlinear.floor, repeats=True)
def write_floor(x: PythonNumber) -> PythonNumber | None:
    return combine(f"{x.code} // 1.0 if {x.code} - {x.code} == 0.0 else {x.code}", F64, x) if x.dtype is F64 else None


@python_rule(nonlinear.ceil, repeats=True)
def write_ceil(x: PythonNumber) -> PythonNumber | None:
    if x.dtype is not F64:
        return None
    return combine(f"-(-{x.code} // 1.0) if {x.code} - {x.code} == 0.0 else {x.code}", F64, x)


@python_rule(sqrt, root_of_squares, repeats=True)
def write_sqrt(x: PythonNumber) -> PythonNumber | None:
    return combine(f"square_root({x.code}) if {x.code} >= 0.0 else nan", F64, x) if x.dtype is F64 else None


@python_rule(nonlinear.bit_and)
def write_bit_and(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} & {y.code}", x.dtype, x, y, bounds=integer_range(x.dtype))


@python_rule(nonlinear.bit_or)
def write_bit_or(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} | {y.code}", x.dtype, x, y, bounds=integer_range(x.dtype))


@python_rule(nonlinear.bit_xor)
def write_bit_xor(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} ^ {y.code}", x.dtype, x, y, bounds=integer_range(x.dtype))


@python_rule(nonlinear.bit_not, modular=True)
def write_bit_not(x: PythonNumber) -> PythonNumber:
    return combine(f"~{x.code}", x.dtype, x, bounds=(~x.bounds[1], ~x.bounds[0]))


# ---- Comparisons and selection


def comparison_rule(sign: str) -> PythonRule:
    return PythonRule(lambda x, y: combine(f"{x.code} {sign} {y.code}", BOOL, x, y))


PYTHON_RULES.update({op: comparison_rule(sign) for op, sign in ((logic.eq, "=="), (logic.ne, "!="))})
PYTHON_RULES.update({op: comparison_rule(sign) for op, sign in ((logic.logical_or, "or"), (logic.logical_xor, "!="))})


@python_rule(logic.logical_and)
def write_and(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    if FALSE in (x, y) or TRUE in (x, y):
        return FALSE if FALSE in (x, y) else y if x == TRUE else x
    return replace(combine(f"{x.code} and {y.code}", BOOL, x, y), implies=(*x.implies, *y.implies))


@python_rule(logic.lt, takes_weak=True)
def write_lt(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return write_order("<", x, y, x, y, 1)


@python_rule(logic.le, takes_weak=True)
def write_le(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return write_order("<=", x, y, x, y, 0)


@python_rule(logic.gt, takes_weak=True)
def write_gt(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return write_order(">", x, y, y, x, 1)


@python_rule(logic.ge, takes_weak=True)
def write_ge(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return write_order(">=", x, y, y, x, 0)


def write_order(
    sign: str, x: PythonNumber, y: PythonNumber, less: PythonNumber, greater: PythonNumber, distance: int
) -> PythonNumber:
    """A comparison that holds where `less + distance <= greater`, if these are integers; decided where bounds do."""
    found = combine(f"{x.code} {sign} {y.code}", BOOL, x, y)
    if not x.dtype.is_integer:
        return found
    (low, high), (least, most) = less.bounds, greater.bounds
    if high + distance <= least or low + distance > most:
        return TRUE if high + distance <= least else FALSE
    return replace(found, implies=((less.code, (low, most - distance)), (greater.code, (low + distance, most))))


@python_rule(logic.logical_not)
def write_not(x: PythonNumber) -> PythonNumber:
    return combine(f"not {x.code}", BOOL, x)


@python_rule(logic.isnan, repeats=True)
def write_isnan(x: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} != {x.code}", BOOL, x)


@python_rule(logic.isinf)
def write_isinf(x: PythonNumber) -> PythonNumber:
    return combine(f"abs({x.code}) == inf", BOOL, x)


@python_rule(logic.isfinite, repeats=True)
def write_isfinite(x: PythonNumber) -> PythonNumber:
    return combine(f"{x.code} - {x.code} == 0.0", BOOL, x)


@python_rule(linear.select, modular=True)
def write_select(p: PythonNumber, x: PythonNumber, y: PythonNumber) -> PythonNumber:
    if p in (TRUE, FALSE):
        return x if p == TRUE else y
    return combine(f"{x.code} if {p.code} else {y.code}", x.dtype, p, x, y, bounds=hull(x.bounds, y.bounds))


@python_rule(logic.max_, repeats=True)
def write_max(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return write_extremum(x, y, ">", max)


@python_rule(logic.min_, repeats=True)
def write_min(x: PythonNumber, y: PythonNumber) -> PythonNumber:
    return write_extremum(x, y, "<", min)


def write_extremum(x: PythonNumber, y: PythonNumber, sign: str, found: Callable[[int, int], int]) -> PythonNumber:
    """In a tie the second operand, as NumPy has it: of 0.0 and -0.0 these are two."""
    first = f"{x.code} {sign} {y.code}" + ("" if x.dtype.is_integer else f" or {x.code} != {x.code}")
    bounds = found(x.bounds[0], y.bounds[0]), found(x.bounds[1], y.bounds[1])
    return combine(f"{x.code} if {first} else {y.code}", x.dtype, x, y, bounds=bounds)


# ---- Conversion


@python_rule(stop, discrete, modular=True)
def write_first(x: PythonNumber, *_: PythonNumber) -> PythonNumber:
    return x


@python_rule(linear.convert)
def write_convert(x: PythonNumber, *, dtype: DType) -> PythonNumber | None:
    if x.dtype is dtype:
        return x
    if dtype is F64:
        return combine(f"float({x.code})", F64, x)
    exact = not x.dtype.is_integer or max(map(abs, x.bounds)) <= EXACT_INTEGERS
    return replace(x, dtype=F32, bounds=(0, 0), weak=True) if exact and x.dtype is not BOOL else None


def rounded(x: PythonNumber) -> PythonNumber:
    """A weak number rounded: a product with the 1 of f32."""
    return combine(f"one * {x.code}", F32, x) if x.weak else x


@python_rule(linear.truncate, repeats=True)
def write_truncate(x: PythonNumber, *, dtype: DType) -> PythonNumber | None:
    low, high = integer_range(dtype)
    if dtype is BOOL:
        return combine(f"{x.code} != 0", BOOL, x)
    if x.dtype.is_integer:
        return replace(x, dtype=dtype)
    if x.dtype is BOOL:
        return combine(f"1 if {x.code} else 0", dtype, x, bounds=(0, 1))
    # NaN is on neither side.
    edges = f"{low} if {x.code} < 0.0 else {high} if {x.code} > 0.0 else 0"
    inside = f"{float(low)!r} <= {x.code} < {float(high + 1)!r}"
    return combine(f"int({x.code}) if {inside} else ({edges})", dtype, x, bounds=(low, high))
