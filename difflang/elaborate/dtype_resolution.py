"""The end of inference: every element type still open in a graph takes its answer, in place.

Values of a graph are frozen for everyone else; while a graph is being made its types may still be questions. Settling
is the one moment at which they are written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from msgspec.structs import force_setattr

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import DType, History, Tensor, Type
from difflang.types.dtype_variables import DTypeParam, DTypeVar, pruned, settled
from difflang.types.type_errors import in_range


def settle(graph: Graph, done: set[Graph]) -> None:
    """Answer every open element type of a graph and of its regions, but for those that are `done`, which grows."""
    todo = [graph]
    while todo:
        current = todo.pop()
        if current in done:
            continue
        done.add(current)
        for value in current.params:
            settle_value(value)
        for eqn in current.eqns:
            settle_equation(eqn)
            todo += eqn.regions


def settle_value(value: Value) -> None:
    if is_open(value.type):
        force_setattr(value, "type", answered(value.type))


def settle_equation(eqn: Eqn) -> None:
    for value in eqn.results:
        settle_value(value)
    if not eqn.attrs:
        return
    changed: dict[str, Any] = {}
    for name, attr in eqn.attrs.items():
        if isinstance(attr, (Tensor, History)) and is_open(attr):
            changed[name] = answered(attr)
        elif isinstance(attr, DTypeVar):
            changed[name] = settled(attr)
    if changed:
        force_setattr(eqn, "attrs", {**eqn.attrs, **changed})
    type = eqn.attrs.get("type")
    if isinstance(type, Tensor):
        for number in numbers_in(eqn):
            in_range(number, type.dtype, eqn.span)


def numbers_fit(eqns: Sequence[Eqn]) -> None:
    """Every number as written is one of its type's, as far as that type is known. Errors: DL0316."""
    todo, seen = [eqns], set[Graph]()
    while todo:
        for eqn in todo.pop():
            type = eqn.attrs.get("type")
            dtype = pruned(type.dtype) if isinstance(type, Tensor) else None
            if dtype is not None and not isinstance(dtype, (DTypeVar, DTypeParam)):
                for number in numbers_in(eqn):
                    in_range(number, dtype, eqn.span)
            todo += [r.eqns for r in eqn.regions if r not in seen]
            seen.update(eqn.regions)


def numbers_in(eqn: Eqn) -> Iterable[float]:
    """The numbers that a constant is made of; of many the two ends, which stand for all."""
    data = eqn.attrs.get("data")
    given: Iterable[Any] = [eqn.attrs.get("value")] if data is None else data
    found = [n for n in given if isinstance(n, (int, float)) and abs(n) < inf]
    return {min(found), max(found)} if found else ()


def is_open(type: Type) -> bool:
    while isinstance(type, History):
        type = type.item
    return isinstance(type.dtype, DTypeVar)


def answered(type: Type) -> Type:
    if isinstance(type, History):
        return History(answered(type.item))
    dtype: DType = settled(type.dtype)
    return Tensor(dtype, type.shape)
