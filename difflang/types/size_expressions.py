"""Size expressions in types: arithmetic on sizes, the names in them, checks of bounds and unbound names."""

from __future__ import annotations

from collections.abc import Callable, Collection

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir import symbolic_dims
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.type_errors import MAX_LEAVES, leaf_limit_error, make_error, unbound_size_error

MAX_AXIS_SIZE = 2**31 - 1


def size_arithmetic(written: tree.DimBinary, op: str, lhs: Dim, rhs: Dim) -> Dim:
    """An operation on two sizes. Errors: DL0301 for a power that is not a small number, DL0303 for division by zero."""
    match op:
        case "+":
            return lhs + rhs
        case "-":
            return lhs - rhs
        case "*":
            return lhs * rhs
        case "//":
            if rhs == 0:
                raise make_error("DL0303", "division of a size by zero", (written.rhs.span, "this is 0"))
            return symbolic_dims.floor_div(lhs, rhs)
        case _:
            # The polynomial is multiplied out, and its terms multiply with the power.
            if not isinstance(rhs, int) or rhs > 8:
                raise make_error("DL0301", "a size can only be raised to a small number", (written.rhs.span, ""))
            power: Dim = 1
            for _ in range(rhs):
                power = power * lhs
            return power


def check_axis_size(value: Dim, span: Span) -> Dim:
    """Check that a size, if it is a number, is valid for an axis. Errors: DL0316."""
    if isinstance(value, int) and value > MAX_AXIS_SIZE:
        message = f"an axis has at most {MAX_AXIS_SIZE:,} elements: a size is an i32"
        shown = f"{value:,}" if value < 10**30 else "far more"
        raise make_error("DL0316", message, (span, f"this is {shown}"), help="use several axes")
    return value


def free_size_names(written: tree.TypeExpr) -> set[str]:
    """The names in a size expression."""
    match written:
        case tree.TypeName(path=(name,)):
            return {name}
        case tree.DimBinary():
            return free_size_names(written.lhs) | free_size_names(written.rhs)
        case tree.TypeTuple(items=(only,)):
            return free_size_names(only)
        case _:
            return set()


def refuse_unbound_sizes(
    written: tree.TypeExpr, known: Collection[str], unbound: Callable[[Span, str], DifflangError] = unbound_size_error
) -> None:
    """Check that a result type uses only `known` sizes. Errors: those of `unbound`, DL0203."""
    todo: list[tree.TypeExpr] = [written]
    while todo:
        match todo.pop():
            case tree.TypeTuple(items=items) | tree.TypeCall(args=items):
                todo += items
            case tree.TypeFn(param=param, result=result):
                # Each call of that function binds the sizes of its parameters.
                refuse_unbound_sizes(result, {*known, *mentioned_names(param)}, unbound)
            case tree.TypeApply(args=args) | tree.TypeArray(axes=args) as outer:
                todo += (outer.item,) if isinstance(outer, tree.TypeArray) else ()
                for arg in args:
                    if isinstance(arg, tree.AnyShape):
                        continue
                    todo.append(arg)  # it may be a type, as in `Box[f32[n]]`
                    unknown = free_size_names(arg) - DTYPES.keys()
                    for name in sorted(n for n in unknown if n not in known):
                        raise unbound(arg.span, name)
            case _:
                pass


def count_leaves(so_far: list[int], more: int, span: Span) -> None:
    """Add to the number of fields of a type. Errors: DL1008 for too many."""
    so_far[0] += more
    if so_far[0] > MAX_LEAVES:
        raise leaf_limit_error(span)
