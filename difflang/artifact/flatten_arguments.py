"""What is given in Python, taken apart by a layout. Whether an array fits is said where it enters the program."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.execution.callable_graph import key_words
from difflang.runtime.record_classes import Choice
from difflang.runtime.value_layouts import Either, Fields, Fixed, Items, Layout, Leaf


def read(layout: Layout, value: Any, path: str) -> list[Any]:
    """The leaves of a value. Errors: DL1206 and DL1207 for one of another structure."""
    match layout:
        case Leaf(key=key):
            return [key_words(value) if key else value]
        case Items(parts=parts):
            if not isinstance(value, (tuple, list)) or len(value) != len(parts):
                raise refused(f"`{path}` is {layout}, and {described(value)} was given")
            pairs = zip(parts, value, strict=True)
            return [leaf for i, (part, x) in enumerate(pairs) for leaf in read(part, x, f"{path}[{i}]")]
        case Fields(parts=parts, shape=shape):
            given = fields(layout, value, path)
            pairs = zip(shape.fields, parts, strict=True)
            return [leaf for name, part in pairs for leaf in read(part, given[name], f"{path}.{name}")]
        case Either():
            return choice(layout, value, path)
        case Fixed(value=wanted):
            if not is_the_same(value, wanted):
                raise refused(f"`{path}` is {wanted!r} in this artifact, and {value!r:.40} was given", FIXED)
            return []
        case _:
            raise refused(f"`{path}`: {described(value)} cannot be given")


def is_the_same(value: Any, wanted: str | int) -> bool:
    """Whether that text, or that number, is given."""
    kinds = str if isinstance(wanted, str) else (int, np.integer)
    return isinstance(value, kinds) and not isinstance(value, bool) and bool(value == wanted)


FIXED = "sizes and texts are fixed when a function is exported: export it for this one too"


def fields(layout: Fields, value: Any, path: str) -> dict[str, Any]:
    """The fields of a dict, a NamedTuple or a dataclass. Fields that have no tangent may stand in a tangent."""
    names = layout.shape.fields
    if layout.enum and type(value).__name__ != layout.shape.name:
        raise refused(f"`{path}` is the variant {layout} in this artifact, and {described(value)} was given", VARIANT)
    if isinstance(value, dict):
        given: dict[str, Any] = value
    elif (listed := field_names(value)) is not None:
        given = {n: getattr(value, n) for n in listed}
    else:
        raise refused(f"`{path}` is {layout}, and {described(value)} was given")
    missing = [n for n in names if n not in given]
    extra = [n for n in given if n not in names] if not layout.shape.name.startswith("D_") else []
    if missing or extra:
        what = f"has no field `{extra[0]}`" if extra else f"needs the field `{missing[0]}` too"
        raise refused(f"`{path}`: {layout} {what}", f"its fields are {', '.join(names)}", "DL1207")
    return given


VARIANT = "a function is exported for one variant: export it for the others too"


def field_names(value: Any) -> Sequence[str] | None:
    """The fields of a dataclass or a NamedTuple."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [f.name for f in dataclasses.fields(value)]
    return getattr(value, "_fields", None) if isinstance(value, tuple) else None


def choice(layout: Either, value: Any, path: str) -> list[Any]:
    """The tag and every option of a value that the run chose."""
    if not isinstance(value, Choice) or value.marks != layout.marks:
        raise refused(f"`{path}` is a `Choice` of {layout}, and {described(value)} was given")
    found = [value.tag]
    for part, option in zip(layout.parts, value.options, strict=True):
        found += read(part, option, path)
    return found


def described(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def refused(message: str, way: str = "", code: str = "DL1206") -> DifflangError:
    return DifflangError(Diagnostic(code, message, helps=(way,) if way else ()))
