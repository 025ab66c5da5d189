"""Arrays of numbers written out in full."""

from __future__ import annotations

from math import isinf

from difflang.elaborate.context import MAX_AXES
from difflang.syntax import tree


def literal_rows(e: tree.ArrayExpr) -> tuple[tuple[int, ...], list[float]] | None:
    """Shape and numbers of an array written out in full, None where something in it is no number."""
    level: list[tree.Expr] = [e]
    shape: list[int] = []
    while all(isinstance(item, tree.ArrayExpr) for item in level):
        if len(shape) > MAX_AXES:
            return None
        lengths = {len(item.items) for item in level if isinstance(item, tree.ArrayExpr)}
        if len(lengths) != 1 or 0 in lengths:
            return None
        shape.append(lengths.pop())
        level = [x for item in level if isinstance(item, tree.ArrayExpr) for x in item.items]
    numbers = [literal_number(item) for item in level]
    kinds = {isinstance(n, bool) for n in numbers}
    return (tuple(shape), [n for n in numbers if n is not None]) if None not in numbers and len(kinds) == 1 else None


def literal_number(e: tree.Expr) -> float | None:
    match e:
        case tree.Float(value=v) | tree.Unary(op="-", operand=tree.Float(value=v)) if isinf(v):
            return None  # it is refused where it stands
        case tree.Int(value=v) | tree.Float(value=v) | tree.Bool(value=v):
            return v
        case tree.Unary(op="-", operand=tree.Int(value=v) | tree.Float(value=v)):
            return -v
        case _:
            return None
