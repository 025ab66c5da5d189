"""Resolves the element types that inference left open in a finished graph, in place, and checks literal ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from msgspec.structs import force_setattr

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import DType, History, Tensor, Type
from difflang.types.dtype_variables import DTypeParam, DTypeVar, default_dtype, prune_dtype
from difflang.types.literal_numbers import DecimalLiteral, ImaginaryLiteral, round_literal
from difflang.types.type_errors import check_literal_range


def resolve_dtypes(graph: Graph, done: set[Graph]) -> None:
    """Resolve every open element type of a graph and its regions, except graphs in `done`, to which they are added."""
    todo = [graph]
    while todo:
        current = todo.pop()
        if current in done:
            continue
        done.add(current)
        for value in current.params:
            resolve_value(value)
        for eqn in current.eqns:
            resolve_equation(eqn)
            todo += eqn.regions


def resolve_value(value: Value) -> None:
    if has_open_dtype(value.type):
        # Values are frozen. This is the only place that changes one, while no pass has seen the graph.
        force_setattr(value, "type", resolved_type(value.type))


def resolve_equation(eqn: Eqn) -> None:
    for value in eqn.results:
        resolve_value(value)
    if not eqn.attrs:
        return
    changed: dict[str, Any] = {}
    for name, attr in eqn.attrs.items():
        if isinstance(attr, (Tensor, History)) and has_open_dtype(attr):
            changed[name] = resolved_type(attr)
        elif isinstance(attr, DTypeVar):
            changed[name] = default_dtype(attr)
    if changed:
        force_setattr(eqn, "attrs", {**eqn.attrs, **changed})
    type = eqn.attrs.get("type")
    if isinstance(type, Tensor):
        round_literals(eqn, type.dtype)
        for number in literal_extremes(eqn):
            check_literal_range(number, type.dtype, eqn.span)


def round_literals(eqn: Eqn, dtype: DType) -> None:
    """Round the literals of a constant that must be rounded from their texts."""
    value, data = eqn.attrs.get("value"), eqn.attrs.get("data", ())
    if isinstance(value, (DecimalLiteral, ImaginaryLiteral)):
        force_setattr(eqn, "attrs", {**eqn.attrs, "value": round_literal(value, dtype)})
    if any(isinstance(number, DecimalLiteral) for number in data):
        force_setattr(eqn, "attrs", {**eqn.attrs, "data": tuple([round_literal(n, dtype) for n in data])})


def check_literal_ranges(eqns: Sequence[Eqn]) -> None:
    """Check that every literal fits its element type, where that is known. Errors: DL0316."""
    todo, seen = [eqns], set[Graph]()
    while todo:
        for eqn in todo.pop():
            type = eqn.attrs.get("type")
            dtype = prune_dtype(type.dtype) if isinstance(type, Tensor) else None
            if dtype is not None and not isinstance(dtype, (DTypeVar, DTypeParam)):
                for number in literal_extremes(eqn):
                    check_literal_range(number, dtype, eqn.span)
            todo += [r.eqns for r in eqn.regions if r not in seen]
            seen.update(eqn.regions)


def literal_extremes(eqn: Eqn) -> Iterable[float]:
    """The smallest and largest number of a constant, which decide for all of them."""
    data = eqn.attrs.get("data")
    given: Iterable[Any] = [eqn.attrs.get("value")] if data is None else data
    parts = [n.imag if isinstance(n, complex) else n for n in given]
    found = [n for n in parts if isinstance(n, (int, float)) and abs(n) < inf]
    return {min(found), max(found)} if found else ()


def has_open_dtype(type: Type) -> bool:
    while isinstance(type, History):
        type = type.item
    return isinstance(type.dtype, DTypeVar)


def resolved_type(type: Type) -> Type:
    if isinstance(type, History):
        return History(resolved_type(type.item))
    dtype: DType = default_dtype(type.dtype)
    return Tensor(dtype, type.shape)
