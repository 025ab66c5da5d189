"""JSON encoding of value layouts: a list of a kind and its contents."""

from __future__ import annotations

from typing import Any, cast

from difflang.ir.tensor_types import Tensor
from difflang.ir.text_parser import type_from_text
from difflang.runtime.record_classes import RecordShape
from difflang.runtime.value_layouts import (
    FunctionLayout,
    LeafLayout,
    NumberedTextLayout,
    RangeLayout,
    RecordLayout,
    StaticLayout,
    TextLayout,
    TupleLayout,
    UnionLayout,
    ValueLayout,
)
from difflang.tools.export.artifact_file import raise_damaged

MAX_DEPTH = 100
MAX_LEAVES = 1_000_000
Json = Any


def layout_to_json(layout: ValueLayout) -> Json:
    match layout:
        case LeafLayout(type=type, key=key):
            return ["key" if key else "array", str(type)]
        case TupleLayout(parts=parts):
            return ["tuple", list(map(layout_to_json, parts))]
        case RecordLayout(shape=shape, parts=parts, enum=enum, variant_number=mark, axes=axes):
            names, static = list(shape.fields), list(shape.static)
            about = {"module": shape.module, "name": shape.name, "fields": names, "static": static}
            about |= {"enum": enum, "mark": mark} if enum else {}
            about |= {"axes": axes} if axes else {}
            return ["record", about, list(map(layout_to_json, parts))]
        case UnionLayout(variant_numbers=marks, parts=parts, tag=tag):
            return ["either", list(marks), list(map(layout_to_json, parts)), str(tag)]
        case StaticLayout(value=value):
            return ["fixed", value]
        case TextLayout(template=template, leaves=leaves):
            return ["text", template, leaves]
        case RangeLayout(leaves=leaves):
            return ["range", leaves]
        case FunctionLayout() | NumberedTextLayout():
            raise AssertionError("functions and numbers of texts cannot be stored in a file")


def layout_from_json(data: Json, depth: int = 0) -> ValueLayout:
    """Decode a layout. Errors: DL1241, and Python's errors for data of another form."""
    if depth > MAX_DEPTH:
        raise_damaged("a layout is nested too deep")
    word, *rest = data
    match word:
        case "array" | "key":
            return LeafLayout(tensor_from_json(rest[0]), word == "key")
        case "tuple":
            return TupleLayout(parts_from_json(rest[0], depth))
        case "record":
            return record_from_json(rest[0], parts_from_json(rest[1], depth))
        case "either":
            marks = tuple([natural_from_json(m) for m in rest[0]])
            options = parts_from_json(rest[1], depth)
            # Each option has a tag of its own.
            if len(marks) != len(options) or len(set(marks)) != len(marks):
                raise_damaged("a choice has different options")
            return UnionLayout(marks, options, tensor_from_json(rest[2]))
        case "fixed" if isinstance(rest[0], str) or type(rest[0]) is int:
            return StaticLayout(rest[0])
        case "text":
            return TextLayout(template_from_json(rest[0]), natural_from_json(rest[1]))
        case "range":
            return RangeLayout(natural_from_json(rest[0]))
        case _:
            raise_damaged("a layout has an unknown kind")


def record_from_json(about: Json, inside: tuple[ValueLayout, ...]) -> RecordLayout:
    # A record becomes a Python class, so that every name in it is checked.
    names, static = tuple(about["fields"]), tuple(about["static"])
    words = (about["module"], about["name"], about.get("enum", ""), *names)
    if any(not isinstance(w, str) for w in words) or not {*static} <= {*names} or len(names) != len({*names}):
        raise_damaged("a record has different fields")
    # With the enum's name.
    called = (about["name"], *names, *[n for n in words[2:3] if n])
    if not all(is_safe_name(n) for n in called) or len(names) != len(inside):
        raise_damaged("a record has different fields")
    shape, axes = RecordShape(words[0], words[1], names, static), natural_from_json(about.get("axes", 0))
    return RecordLayout(shape, inside, words[2], natural_from_json(about.get("mark", 0)), axes=axes)


def is_safe_name(name: str) -> bool:
    """Whether a class or a field may have this name: an identifier, and no dunder name."""
    return name.isidentifier() and not (name.startswith("__") and name.endswith("__"))


def parts_from_json(data: Json, depth: int) -> tuple[ValueLayout, ...]:
    return tuple([layout_from_json(part, depth + 1) for part in data])


def tensor_from_json(data: Json) -> Tensor:
    found = type_from_text(data) if isinstance(data, str) else None
    if not isinstance(found, Tensor):
        raise_damaged("a leaf is not an array")
    return found


def natural_from_json(data: Json) -> int:
    if type(data) is not int or not 0 <= data <= MAX_LEAVES:
        raise_damaged("expected a number")
    return data


def template_from_json(data: Json, depth: int = 0) -> Any:
    """Decode a text template: tuples in place of JSON's lists."""
    if depth > MAX_DEPTH:
        raise_damaged("a text is nested too deep")
    if isinstance(data, list):
        return tuple([template_from_json(part, depth + 1) for part in cast(list[Json], data)])
    if not isinstance(data, (str, int)):
        raise_damaged("expected a string")
    return data
