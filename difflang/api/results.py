"""What a function gives, in Python: arrays, tuples, and records as their dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from difflang.api.enums import made
from difflang.api.records import Records
from difflang.check.types import (
    ClosureType,
    KeyType,
    LangType,
    RangeType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
)
from difflang.ir.types import Tensor

Make = Callable[[Iterator[Any]], Any]


def maker(type: LangType, records: Records, function: Callable[[ClosureType, tuple[Any, ...]], Any]) -> Make:
    """A function from leaves, in order, to a value of that type."""
    match type:
        case Tensor() | KeyType():
            return next
        case TupleType(items=items):
            makers = [maker(t, records, function) for t in items]
            return lambda leaves: tuple([make(leaves) for make in makers])
        case RecordType(fields=fields):
            cls, makers = records.of(type), [maker(t, records, function) for t in fields]
            return lambda leaves: cls(*[make(leaves) for make in makers])
        case VariantType(fields=fields):
            cls, makers = records.enums.of(type), [maker(t, records, function) for t in fields]
            return lambda leaves: cls(*[make(leaves) for make in makers])
        case SumType(options=options):
            return made(type.marks, [maker(t, records, function) for t in options], type.tag.shape)
        case ClosureType():
            count = len(leaf_types(type))
            return lambda leaves: function(type, tuple([next(leaves) for _ in range(count)]))
        case TextType(value=value):
            return lambda leaves: value
        case RangeType():
            count = len(leaf_types(type))
            return lambda leaves: range(*[int(next(leaves)) for _ in range(count)])
        case _:
            raise AssertionError(f"no value has the type {type}")
