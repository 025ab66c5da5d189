"""Sizes as they are written: the names in one, and what is computed with them."""

from __future__ import annotations

from difflang.check.reports import mistake
from difflang.ir import dims
from difflang.ir.dims import Dim
from difflang.syntax import tree


def computed(written: tree.DimBinary, op: str, lhs: Dim, rhs: Dim) -> Dim:
    """The size that an operator gives. Errors: DL0303 for a division by zero, DL0301 for a power that is none."""
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
            return dims.floor_div(lhs, rhs)
        case _:
            if not isinstance(rhs, int) or rhs > 8:
                raise mistake("DL0301", "a size is raised to a small number only", (written.rhs.span, ""))
            power: Dim = 1
            for _ in range(rhs):
                power = power * lhs
            return power


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
