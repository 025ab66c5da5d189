"""What a function gives, in Python: arrays, tuples, and records as their dataclasses.

A change of a record that was given as a dict is a dict too, so that it has the structure of what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from difflang.api.enums import made
from difflang.api.records import Records
from difflang.check.reports import mistake
from difflang.check.texts import template
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
from difflang.ops.texts import Template, written
from difflang.runtime import trees

Make = Callable[[Iterator[Any]], Any]


def maker(
    type: LangType, records: Records, function: Callable[[ClosureType, tuple[Any, ...]], Any], like: Any = None
) -> Make:
    """A function from leaves, in order, to a value of that type, where it can be one of the kind of `like`."""
    match type:
        case Tensor() | KeyType():
            return next
        case TupleType(items=items):
            parts = like if isinstance(like, (tuple, list)) and len(like) == len(items) else [None] * len(items)
            makers = [maker(t, records, function, part) for t, part in zip(items, parts, strict=True)]
            return lambda leaves: tuple([make(leaves) for make in makers])
        case RecordType(names=names, fields=fields):
            makers = [maker(t, records, function, field_of(like, n)) for n, t in zip(names, fields, strict=True)]
            if like.__class__ is dict:
                return lambda leaves: {n: make(leaves) for n, make in zip(names, makers, strict=True)}
            cls = records.of(type)
            return lambda leaves: cls(*[make(leaves) for make in makers])
        case VariantType(fields=fields):
            cls, makers = records.enums.of(type), [maker(t, records, function) for t in fields]
            return lambda leaves: cls(*[make(leaves) for make in makers])
        case SumType(options=options):
            return made(type.marks, [maker(t, records, function) for t in options], type.tag.shape)
        case ClosureType():
            count = len(leaf_types(type))
            return lambda leaves: function(type, tuple([next(leaves) for _ in range(count)]))
        case TextType(value=value, parts=()):
            return lambda leaves: value
        case TextType():
            count, said = len(leaf_types(type)), template(type)
            return lambda leaves: text_of(said, [next(leaves) for _ in range(count)])
        case RangeType():
            count = len(leaf_types(type))
            return lambda leaves: range(*[int(next(leaves)) for _ in range(count)])
        case _:
            raise AssertionError(f"no value has the type {type}")


def text_of(said: Template, leaves: list[Any]) -> str:
    """A text that the run filled in. Errors: DL1206 inside a JAX transformation, where its numbers are not there."""
    if trees.traced(leaves):
        message = "this gives a text that the run fills in, which a value inside a JAX transformation cannot be"
        raise mistake("DL1206", message, help="give the numbers, and make the text of them outside")
    return written(said, leaves)


def field_of(value: Any, name: str) -> Any:
    """A field of what was given for a record; nothing where nothing was."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
