"""Constant folding: operations on sizes and integers that are known at compile time, or by the host."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Sequence
from typing import Any

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
    "rem": python.mod,
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
