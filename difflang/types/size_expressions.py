"""Sizes as they are written: the names in them, and what their operators do."""

from __future__ import annotations

from collections.abc import Callable, Collection

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir import symbolic_dims
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.types.type_errors import MOST_PARTS, mistake, too_many_parts, unbound_size

MOST_PLACES = 2**31 - 1


def arithmetic(written: tree.DimBinary, op: str, lhs: Dim, rhs: Dim) -> Dim:
    """A size made of two. Errors: DL0301 for a power that is no small number, DL0303 for a division by zero."""
    match op:
        case "+":
            return lhs + rhs
        case "-":
            return lhs - rhs
        case "*":
            return lhs * rhs
        case "//":
            if rhs == 0:
                raise mistake("DL0303", "a size is divided by zero", (written.rhs.span, "this is 0"))
            return symbolic_dims.floor_div(lhs, rhs)
        case _:
            if not isinstance(rhs, int) or rhs > 8:
                raise mistake("DL0301", "a size is raised to a small number only", (written.rhs.span, ""))
            power: Dim = 1
            for _ in range(rhs):
                power = power * lhs
            return power


def a_size(value: Dim, span: Span) -> Dim:
    """A size that an axis may have, as far as it is a number. Errors: DL0316."""
    if isinstance(value, int) and value > MOST_PLACES:
        message = f"an axis has at most {MOST_PLACES:,} places: a size is an i32"
        shown = f"{value:,}" if value < 10**30 else "far more"
        raise mistake("DL0316", message, (span, f"this is {shown}"), help="put them on several axes")
    return value


def free_names(written: tree.TypeExpr) -> set[str]:
    """The names in a written size."""
    match written:
        case tree.TypeName(path=(name,)):
            return {name}
        case tree.DimBinary():
            return free_names(written.lhs) | free_names(written.rhs)
        case tree.TypeTuple(items=(only,)):
            return free_names(only)
        case _:
            return set()


def no_new_sizes(
    written: tree.TypeExpr, known: Collection[str], unbound: Callable[[Span, str], DifflangError] = unbound_size
) -> None:
    """A result's type names no size that the parameters do not. Errors: what `unbound` says, DL0203."""
    todo: list[tree.TypeExpr] = [written]
    while todo:
        match todo.pop():
            case tree.TypeTuple(items=items) | tree.TypeCall(args=items):
                todo += items
            case tree.TypeFn(param=param, result=result):
                todo += (param, result)
            case tree.TypeApply(args=args):
                for arg in args:
                    unknown = set() if isinstance(arg, tree.AnyShape) else free_names(arg) - DTYPES.keys()
                    for name in sorted(n for n in unknown if n not in known):
                        raise unbound(arg.span, name)
            case _:
                pass


def within_parts(so_far: list[int], more: int, span: Span) -> None:
    """Count the fields of a type while it is put together. Errors: DL1008 for too many."""
    so_far[0] += more
    if so_far[0] > MOST_PARTS:
        raise too_many_parts(span)
