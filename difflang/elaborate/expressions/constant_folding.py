"""What is known of a result at compile time: sizes and integers are folded, and indices have bounds.

An index is a loop's index plus a size, or has an upper bound: a number known to be in `0 .. upper_bound - 1` needs no
check where it indexes an axis of that size. Bounds need sizes that are numbers, as in everything that is compiled.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Array
from difflang.ir import symbolic_dims
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.types.dtype_variables import DTypeVar, is_known_float, prune_dtype
from difflang.types.module_scope import StaticNumber
from difflang.types.type_errors import check_literal_range

# Constant folding of integers and sizes.
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": python.add,
    "sub": python.sub,
    "mul": python.mul,
    "floor_div": floor_div,
    "rem": lambda a, b: a - floor_div(a, b) * b,
}


EXTREMUM_TESTS = {"max": python.ge, "min": python.le}


COMPARISON_FOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": python.eq,
    "ne": python.ne,
    "lt": python.lt,
    "le": python.le,
    "gt": python.gt,
    "ge": python.ge,
}


def fold_arrays(name: str, arrays: Sequence[Array], *, named: bool) -> StaticNumber:
    """The result if sizes and integer literals decide it. With `named`, `max(n, m)` becomes a size name of its own."""
    if len(arrays) != 2:
        return None
    a, b = arrays[0].static, arrays[1].static
    # Whole numbers of a float type are rounded: the program computes with those.
    if not isinstance(a, (int, Poly)) or not isinstance(b, (int, Poly)) or is_known_float(arrays[0].tensor.dtype):
        return None
    return fold_sizes(name, a, b) if named and name in EXTREMUM_TESTS else fold_numbers(name, a, b)


def fold_sizes(name: str, a: Dim, b: Dim) -> Dim | None:
    """The result as a size: a new size name if it depends on unknown sizes."""
    found = fold_numbers(name, a, b)
    if isinstance(found, (int, Poly)):
        return found
    first, second = sorted([str(a), str(b)])
    return symbolic_dims.dim_name(f"{name}({first}, {second})") if isinstance(a, Poly) or isinstance(b, Poly) else None


def fold_numbers(name: str, a: Dim, b: Dim) -> StaticNumber:
    """An operation on sizes and integer literals, or None if they do not decide it."""
    if name in FOLDS:
        return None if name in ("floor_div", "rem") and b == 0 else FOLDS[name](a, b)
    if name not in COMPARISON_FOLDS and name not in EXTREMUM_TESTS:
        return None
    difference = a - b
    if not isinstance(difference, int):
        return None
    if name in EXTREMUM_TESTS:
        return a if EXTREMUM_TESTS[name](difference, 0) else b
    return COMPARISON_FOLDS[name](difference, 0)


def fold_host_numbers(cx: ElabContext, name: str, result: Array, span: Span, *numbers: Dim) -> Dim | None:
    """The result for host numbers, in the range of their type, as at run time. Errors: DL0303, DL0316."""
    name, (a, b) = ("sub", (0, *numbers)) if name == "neg" else (name, numbers)
    if name in ("floor_div", "rem") and b == 0:
        raise division_by_zero(cx, span, "the divisor is 0")
    found, dtype = fold_sizes(name, a, b), prune_dtype(result.tensor.dtype)
    if isinstance(found, int):
        check_literal_range(found, I32 if isinstance(dtype, DTypeVar) else dtype, span)
    return found


def division_by_zero(cx: ElabContext, span: Span, label: str) -> DifflangError:
    return cx.error("DL0303", "integer division by zero", span, label)


def emit_folded(cx: ElabContext, name: str, span: Span, arrays: Sequence[Array], static: StaticNumber) -> Array:
    dtype = BOOL if name in COMPARISON_FOLDS else arrays[0].tensor.dtype
    literal = all(a.literal for a in arrays) or name in COMPARISON_FOLDS
    return Array(cx.emit("const", span, value=static, type=Tensor(dtype)), static, literal=literal)


# ---- Bounds of indices


I32_LIMIT = 2**31  # every i32 is below it


def propagate_bounds(name: str, arrays: Sequence[Array], result: Array) -> Array:
    """The result of an elementwise operation, with its bound as an index if one follows."""
    if name in ("add", "sub"):
        result = shift_loop_index(name, arrays, result)
    if result.upper_bound is not None or name not in BOUND_RULES or prune_dtype(result.tensor.dtype) is not I32:
        return result
    # A bound past the i32 range proves nothing: the computation may have wrapped around.
    most = BOUND_RULES[name](*arrays)
    return replace(result, upper_bound=most + 1) if most is not None and 0 <= most < I32_LIMIT else result


def shift_loop_index(name: str, arrays: Sequence[Array], result: Array) -> Array:
    """A loop's index plus or minus a size, recorded as an offset from that index."""
    a, b = arrays
    if name == "add" and a.index_of_loop is None:
        a, b = b, a
    if a.index_of_loop is None or isinstance(b.static, (bool, float)) or b.static is None:
        return result
    offset = a.index_offset + b.static if name == "add" else a.index_offset - b.static
    below = a.index_of_loop.length + offset if isinstance(offset, int) and offset >= 0 else None
    return Array(result.value, upper_bound=below, index_of_loop=a.index_of_loop, index_offset=offset)


def upper_bound(x: Array) -> int | None:
    """The largest possible value of a number that is known not to be negative, or None if there is no known bound."""
    if isinstance(x.static, int) and not isinstance(x.static, bool):
        return x.static if x.static >= 0 else None
    return x.upper_bound - 1 if isinstance(x.upper_bound, int) and x.upper_bound > 0 else None


def monotone_bound(combine: Callable[..., int]) -> Callable[..., int | None]:
    """The bound rule of an operation that grows with each operand."""

    def bound_rule(*arrays: Array) -> int | None:
        each = [upper_bound(x) for x in arrays]
        numbers = [n for n in each if n is not None]
        return combine(*numbers) if len(numbers) == len(each) else None

    return bound_rule


def difference_bound(x: Array, y: Array) -> int | None:
    """A bound for `x - y` where `x` is constant and `y` is at most `x`."""
    taken = upper_bound(y)
    return x.static if isinstance(x.static, int) and taken is not None and taken <= x.static else None


def remainder_bound(_: Array, y: Array) -> int | None:
    return y.static - 1 if isinstance(y.static, int) and y.static > 0 else None


def quotient_bound(x: Array, y: Array) -> int | None:
    whole = upper_bound(x)
    return whole // y.static if whole is not None and isinstance(y.static, int) and y.static > 0 else None


def clamp_bound(low: Array, _: Array, high: Array) -> int | None:
    ends = low.static, high.static
    return ends[1] if isinstance(ends[0], int) and isinstance(ends[1], int) and 0 <= ends[0] <= ends[1] else None


BOUND_RULES: dict[str, Callable[..., int | None]] = {
    "add": monotone_bound(lambda x, y: x + y),
    "mul": monotone_bound(lambda x, y: x * y),
    "min": monotone_bound(min),
    "max": monotone_bound(max),
    "select": lambda _, x, y: monotone_bound(max)(x, y),
    "sub": difference_bound,
    "rem": remainder_bound,
    "floor_div": quotient_bound,
    "clamp": clamp_bound,
}
