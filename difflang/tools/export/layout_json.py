"""Layouts as JSON: a list of a word and what it holds."""

from __future__ import annotations

from typing import Any, cast

from difflang.ir.tensor_types import Tensor
from difflang.ir.text_parser import type_from_text
from difflang.runtime.record_classes import Shape
from difflang.runtime.value_layouts import Called, Either, Ends, Fields, Filled, Fixed, Items, Layout, Leaf
from difflang.tools.export.artifact_file import damaged

MOST_DEPTH = 100
MOST_LEAVES = 1_000_000
Json = Any


def layout_json(layout: Layout) -> Json:
    match layout:
        case Leaf(type=type, key=key):
            return ["key" if key else "array", str(type)]
        case Items(parts=parts):
            return ["tuple", list(map(layout_json, parts))]
        case Fields(shape=shape, parts=parts, enum=enum, mark=mark):
            names, static = list(shape.fields), list(shape.static)
            about = {"module": shape.module, "name": shape.name, "fields": names, "static": static}
            about |= {"enum": enum, "mark": mark} if enum else {}
            return ["record", about, list(map(layout_json, parts))]
        case Either(marks=marks, parts=parts, tag=tag):
            return ["either", list(marks), list(map(layout_json, parts)), str(tag)]
        case Fixed(value=value):
            return ["fixed", value]
        case Filled(template=template, leaves=leaves):
            return ["text", template, leaves]
        case Ends(leaves=leaves):
            return ["range", leaves]
        case Called():
            raise AssertionError("a function goes into no file")


def read_layout(data: Json, depth: int = 0) -> Layout:
    """The layout that was written. Errors: DL1241, and what Python makes of data of another form."""
    if depth > MOST_DEPTH:
        damaged("a layout is nested too deep")
    word, *rest = data
    match word:
        case "array" | "key":
            return Leaf(tensor(rest[0]), word == "key")
        case "tuple":
            return Items(parts(rest[0], depth))
        case "record":
            return read_record(rest[0], parts(rest[1], depth))
        case "either":
            marks = tuple([whole(m) for m in rest[0]])
            options = parts(rest[1], depth)
            if len(marks) != len(options) or len(set(marks)) != len(marks):
                damaged("a choice has other options")
            return Either(marks, options, tensor(rest[2]))
        case "fixed" if isinstance(rest[0], str) or type(rest[0]) is int:
            return Fixed(rest[0])
        case "text":
            return Filled(read_template(rest[0]), whole(rest[1]))
        case "range":
            return Ends(whole(rest[0]))
        case _:
            damaged("a layout is of an unknown kind")


def read_record(about: Json, inside: tuple[Layout, ...]) -> Fields:
    names, static = tuple(about["fields"]), tuple(about["static"])
    words = (about["module"], about["name"], about.get("enum", ""), *names)
    if any(not isinstance(w, str) for w in words) or not {*static} <= {*names} or len(names) != len({*names}):
        damaged("a record has other fields")
    called = (about["name"], *names, *[n for n in words[2:3] if n])  # the enum's name too
    if not all(is_name(n) for n in called) or len(names) != len(inside):
        damaged("a record has other fields")
    return Fields(Shape(words[0], words[1], names, static), inside, words[2], whole(about.get("mark", 0)))


def is_name(name: str) -> bool:
    """Whether a class or a field may be called so, and nothing of Python's own is."""
    return name.isidentifier() and not (name.startswith("__") and name.endswith("__"))


def parts(data: Json, depth: int) -> tuple[Layout, ...]:
    return tuple([read_layout(part, depth + 1) for part in data])


def tensor(data: Json) -> Tensor:
    found = type_from_text(data) if isinstance(data, str) else None
    if not isinstance(found, Tensor):
        damaged("a leaf is no array")
    return found


def whole(data: Json) -> int:
    if type(data) is not int or not 0 <= data <= MOST_LEAVES:
        damaged("a number is none")
    return data


def read_template(data: Json, depth: int = 0) -> Any:
    """A template of a text: tuples where JSON has lists."""
    if depth > MOST_DEPTH:
        damaged("a text is nested too deep")
    if isinstance(data, list):
        return tuple([read_template(part, depth + 1) for part in cast(list[Json], data)])
    if not isinstance(data, (str, int)):
        damaged("a text is none")
    return data
