"""Host values: a language type with the arrays of its leaves, and how they are formatted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.base.text_numbers import text_number
from difflang.host.data.mapped_files import check_files
from difflang.ir.tensor_types import Tensor
from difflang.ops.value_formatting import render_template
from difflang.types.join_types import contains_kind, has_runtime_text
from difflang.types.language_types import (
    ClosureType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
)
from difflang.types.module_scope import StaticNumber
from difflang.types.text_templates import format_error, text_template
from difflang.types.type_errors import make_error

MAX_TEXT_LENGTH = 1 << 26


class HostValue(Struct, frozen=True, eq=False):
    """A value between host statements. `leaves` are NumPy or JAX arrays, None while only types are known."""

    type: LangType
    leaves: tuple[Any, ...] | None
    static: StaticNumber = None

    def chosen(self) -> HostValue:
        """For a value of a sum type, the value of its current variant."""
        if not isinstance(self.type, SumType) or self.type.tag.shape or self.leaves is None:
            return self
        place = self.type.tag_values.index(np.asarray(self.leaves[0]).item())
        # The first leaf is the tag; the leaves of all options follow in order.
        start = 1 + sum(len(leaf_types(t)) for t in self.type.options[:place])
        type = self.type.options[place]
        return HostValue(type, self.leaves[start : start + len(leaf_types(type))])

    def part(self, index: int) -> HostValue:
        """An item of a tuple or a field of a record or a variant."""
        assert isinstance(self.type, (TupleType, RecordType, VariantType))
        types = self.type.items if isinstance(self.type, TupleType) else self.type.fields
        if self.leaves is None:
            return HostValue(types[index], None)
        start = sum(len(leaf_types(t)) for t in types[:index])
        return HostValue(types[index], self.leaves[start : start + len(leaf_types(types[index]))])

    @property
    def array(self) -> Any:
        """The NumPy array of a tensor value."""
        assert self.leaves is not None
        return np.asarray(self.leaves[0])

    @property
    def number(self) -> Any:
        """The Python number of a scalar."""
        assert self.leaves is not None
        return np.asarray(self.leaves[0])[()].item() if self.static is None else self.static


def format_value(value: HostValue, spec: str = "", span: Span | None = None) -> str:
    """A value as `print` writes it; `spec` is a format such as `.3f`. Errors: DL0339 for an invalid format."""
    check_files(value.leaves or (), span)
    try:
        return render_template(text_template(value.type, spec), value.leaves or ())
    except ValueError as error:
        label = ((span, f"this is {show_type(value.type)}"),) if span is not None else ()
        raise format_error(spec, str(error), *label) from None


def joined_text(pieces: Sequence[str], span: Span) -> str:
    """A text made of pieces. Errors: DL1006 if it is too long."""
    if sum(map(len, pieces)) > MAX_TEXT_LENGTH:
        message = f"this text has more than {MAX_TEXT_LENGTH:,} characters"
        raise make_error("DL1006", message, (span, ""), help="a text that holds itself twice grows fast")
    return "".join(pieces)


def number_texts(value: HostValue, type: LangType) -> HostValue:
    """The value with its known texts turned into their numbers, where a type of the same structure has numbers."""
    kept: list[Any] | None = None if value.leaves is None else []
    found = number_text_types(value.type, type, iter(value.leaves or ()), kept)
    return HostValue(found, None if kept is None else tuple(kept), value.static)


def number_text_types(type: LangType, target: LangType, leaves: Iterator[Any], kept: list[Any] | None) -> LangType:
    """The type with numbers of texts; they and the other leaves are appended to `kept`."""

    def each(types: Sequence[LangType], targets: Sequence[LangType]) -> tuple[LangType, ...]:
        return tuple([number_text_types(t, u, leaves, kept) for t, u in zip(types, targets, strict=True)])

    match type, target:
        case TextType(number=None, parts=()), TextType(number=Tensor()):
            if kept is not None:
                kept.append(np.int32(text_number(type.value or "")))
            return target
        case TupleType(), TupleType():
            return replace(type, items=each(type.items, target.items))
        case (RecordType(), RecordType()) | (VariantType(), VariantType()):
            return replace(type, fields=each(type.fields, target.fields))
        case _:
            if kept is not None:
                kept += [next(leaves) for _ in leaf_types(type)]
            return type


def known_texts(value: HostValue) -> HostValue:
    """The value with each single text known in its type; arrays of texts stay."""
    # Of a text of which nothing is known yet there is nothing to resolve.
    return resolve_all_texts(value) if contains_kind(value.type, (TextType,)) and value.type != TextType() else value


def resolve_texts(value: HostValue) -> HostValue:
    """The value, with texts that the run produced turned into known texts in its type."""
    # The common case: no copy.
    return resolve_all_texts(value) if has_runtime_text(value.type) else value


def resolve_all_texts(value: HostValue) -> HostValue:
    kept: list[Any] | None = None if value.leaves is None else []
    type = resolve_text_types(value.type, iter(value.leaves or ()), kept)
    return HostValue(type, None if kept is None else tuple(kept), value.static)


def resolve_text_types(type: LangType, leaves: Iterator[Any], kept: list[Any] | None) -> LangType:
    """The type with known texts; the other leaves are appended to `kept`. Without leaves texts stay unknown."""

    def each(types: Sequence[LangType]) -> tuple[LangType, ...]:
        return tuple([resolve_text_types(t, leaves, kept) for t in types])

    match type:
        case TextType(parts=parts) if parts or (type.number is not None and not type.number.shape):
            return TextType() if kept is None else TextType(render_template(text_template(type), leaves))
        case TupleType():
            return replace(type, items=each(type.items))
        case RecordType() | VariantType():
            return replace(type, fields=each(type.fields))
        case ClosureType():
            return replace(type, captures=each(type.captures))
        case SumType():
            if kept is not None:
                kept.append(next(leaves))
            return replace(type, options=each(type.options))
        case _:
            if kept is not None:
                kept += [next(leaves) for _ in leaf_types(type)]
            return type
