"""Host values while a loop is translated: their types are known, their leaves are expressions of Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeGuard

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.execution.python_source import PythonWriter, is_number, is_number_or_list, python_number
from difflang.host.values import HostValue
from difflang.ir.tensor_types import numpy_dtype
from difflang.ops.elementwise.python_rules import Bounds, PythonNumber, integer_range
from difflang.types.language_types import LangType, TextType, leaf_types


class Untranslatable(Exception):
    """A loop does something that is not translated to Python; the host runs it statement by statement."""


class TracedNumber(Struct, frozen=True, eq=False):
    """A leaf that generated code computes."""

    number: PythonNumber

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise Untranslatable  # something needs its value now

    def __int__(self) -> NoReturn:
        raise Untranslatable


class TracedText(Struct, frozen=True, eq=False):
    """The only leaf of a text that generated code makes: a name or a literal of Python."""

    code: str

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise Untranslatable


TRACED_TEXT = TextType()  # of a text whose leaf is a `TracedText`


def is_traced_text(value: HostValue) -> bool:
    return value.type == TRACED_TEXT and any(isinstance(leaf, TracedText) for leaf in value.leaves or ())


def is_constant_text(type: LangType) -> TypeGuard[TextType]:
    """Whether a value is a text alone, whose characters its type has; an element of an array of texts is a number."""
    return isinstance(type, TextType) and type.value is not None


def has_numbers(type: LangType) -> bool:
    """Whether a value consists of numbers, and of arrays that are lists, only."""
    return all(map(is_number_or_list, leaf_types(type)))


def is_plain_item(type: LangType) -> bool:
    """Whether an item of a loop is a number, or a value of numbers alone."""
    return bool(leaf_types(type)) and all(map(is_number, leaf_types(type)))


def traced_numbers(value: HostValue) -> list[TracedNumber]:
    """The leaves of a value of numbers. Errors: Untranslatable for any other value."""
    leaves: list[Any] = list(value.leaves or ())
    if not all(isinstance(leaf, TracedNumber) for leaf in leaves):
        raise Untranslatable
    return leaves


def input_value(value: HostValue, names: Iterator[str]) -> HostValue:
    """A value of numbers, as an input of generated code."""
    numbers = [
        PythonNumber(
            next(names),
            t.dtype,
            integer_range(t.dtype),
            atom=True,
            shape=tuple([n for n in t.shape if isinstance(n, int)]),
        )
        for t in leaf_types(value.type)
    ]
    return replace(value, leaves=tuple(map(TracedNumber, numbers)))


def concrete(value: HostValue, numbers: Iterator[Any]) -> HostValue:
    """The value with what generated code computed for its traced leaves, in their order."""
    if is_traced_text(value):
        return HostValue(TextType(next(numbers)), ())
    leaves = [
        array_of(leaf.number, next(numbers)) if isinstance(leaf, TracedNumber) else leaf for leaf in value.leaves or ()
    ]
    assert len(leaves) == len(leaf_types(value.type))
    return replace(value, leaves=tuple(leaves))


def array_of(number: PythonNumber, found: Any) -> Any:
    """The array of a number or a list that generated code has."""
    return np.asarray(found, numpy_dtype(number.dtype)).reshape(number.shape)


def leaf_codes(writer: PythonWriter, values: Sequence[HostValue]) -> list[str]:
    """The traced leaves of values, as names and literals."""
    codes: list[str] = []
    for leaf in [leaf for value in values for leaf in value.leaves or ()]:
        if isinstance(leaf, TracedText):
            codes.append(leaf.code)
        elif isinstance(leaf, TracedNumber):
            codes.append(writer.atom(leaf.number).code)
    return codes


def python_leaves(value: HostValue) -> list[Any]:
    """The numbers of a value or its text, as generated code has them."""
    if is_constant_text(value.type):
        return [value.type.value]
    return list(map(python_number, value.leaves or ()))


def condition_code(value: HostValue) -> str:
    """A truth value as an expression of Python."""
    (leaf,) = traced_numbers(value)
    return leaf.number.code


def with_full_bounds(value: HostValue) -> HostValue:
    """The value, of whose integers nothing is known but their types."""
    leaves = [
        replace(leaf, number=replace(leaf.number, bounds=integer_range(leaf.number.dtype)))
        if isinstance(leaf, TracedNumber)
        else leaf
        for leaf in value.leaves or ()
    ]
    return replace(value, leaves=tuple(leaves))


def narrowed(value: HostValue, implied: Mapping[str, Bounds]) -> HostValue:
    """The value, whose integers lie within these bounds too."""
    found = [leaf for leaf in value.leaves or () if isinstance(leaf, TracedNumber) and leaf.number.code in implied]
    if not found:
        return value
    leaves = [narrowed_leaf(leaf, implied) if leaf in found else leaf for leaf in value.leaves or ()]
    return replace(value, leaves=tuple(leaves))


def narrowed_leaf(leaf: TracedNumber, implied: Mapping[str, Bounds]) -> TracedNumber:
    (low, high), (least, most) = leaf.number.bounds, implied[leaf.number.code]
    # A condition that never holds implies an empty interval: its code never runs.
    bounds = (max(low, least), min(high, most))
    return replace(leaf, number=replace(leaf.number, bounds=bounds if bounds[0] <= bounds[1] else (low, high)))
