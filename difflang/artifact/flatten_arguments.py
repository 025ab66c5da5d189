"""Flattens Python arguments to leaves by their layouts. The program checks the types of arrays at its entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.wording import with_article
from difflang.execution.callable_graph import random_key
from difflang.runtime.record_classes import Choice
from difflang.runtime.value_layouts import LeafLayout, RecordLayout, StaticLayout, TupleLayout, UnionLayout, ValueLayout


def flatten_value(layout: ValueLayout, value: Any, path: str) -> list[Any]:
    """The leaves of a value. Errors: DL1206 and DL1207 for a value of another structure."""
    match layout:
        case LeafLayout(key=key):
            return [random_key(value) if key else value]
        case TupleLayout(parts=parts):
            if not isinstance(value, (tuple, list)) or len(value) != len(parts):
                raise argument_error(f"`{path}` is {layout}, but {describe_value(value)} was given")
            pairs = zip(parts, value, strict=True)
            return [leaf for i, (part, x) in enumerate(pairs) for leaf in flatten_value(part, x, f"{path}[{i}]")]
        case RecordLayout(parts=parts, shape=shape):
            given = field_values(layout, value, path)
            pairs = zip(shape.fields, parts, strict=True)
            return [leaf for name, part in pairs for leaf in flatten_value(part, given[name], f"{path}.{name}")]
        case UnionLayout():
            return flatten_choice(layout, value, path)
        case StaticLayout(value=fixed):
            if not equals_fixed(value, fixed):
                raise argument_error(f"`{path}` is {fixed!r} in this artifact, but {value!r:.40} was given", FIXED_HELP)
            return []
        case _:
            raise argument_error(f"`{path}`: {describe_value(value)} cannot be passed to an artifact")


def equals_fixed(value: Any, fixed: str | int) -> bool:
    """Whether a value is that text or that number."""
    kinds = str if isinstance(fixed, str) else (int, np.integer)
    return isinstance(value, kinds) and not isinstance(value, bool) and bool(value == fixed)


FIXED_HELP = "sizes and strings are fixed at export: export the function for this value too"


def field_values(layout: RecordLayout, value: Any, path: str) -> dict[str, Any]:
    """The fields of a dict, a NamedTuple or a dataclass. A tangent may have extra fields, those without a tangent."""
    names = layout.shape.fields
    if layout.enum and type(value).__name__ != layout.shape.name:
        raise argument_error(
            f"`{path}` is the variant {layout} in this artifact, but {describe_value(value)} was given", VARIANT_HELP
        )
    if isinstance(value, dict):
        given: dict[str, Any] = value
    elif (listed := field_names(value)) is not None:
        given = {n: getattr(value, n) for n in listed}
    else:
        raise argument_error(f"`{path}` is {layout}, but {describe_value(value)} was given")
    missing = [n for n in names if n not in given]
    # The class of a tangent may have fields that have no tangent here.
    extra = [n for n in given if n not in names] if not layout.shape.name.startswith("D_") else []
    if missing or extra:
        what = f"has no field `{extra[0]}`" if extra else f"is missing the field `{missing[0]}`"
        raise argument_error(f"`{path}`: {layout} {what}", f"its fields are {', '.join(names)}", "DL1207")
    return given


VARIANT_HELP = "a function is exported for one variant only: export it for the others too"


def field_names(value: Any) -> Sequence[str] | None:
    """The fields of a dataclass or a NamedTuple."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [f.name for f in dataclasses.fields(value)]
    return getattr(value, "_fields", None) if isinstance(value, tuple) else None


def flatten_choice(layout: UnionLayout, value: Any, path: str) -> list[Any]:
    """The tag and every option of a value chosen at run time."""
    if not isinstance(value, Choice) or value.variant_numbers != layout.variant_numbers:
        raise argument_error(f"`{path}` is a `Choice` of {layout}, but {describe_value(value)} was given")
    found = [value.tag]
    for part, option in zip(layout.parts, value.options, strict=True):
        found += flatten_value(part, option, path)
    return found


def describe_value(value: Any) -> str:
    return "nothing" if value is None else with_article(type(value).__name__)


def argument_error(message: str, way: str = "", code: str = "DL1206") -> DifflangError:
    return DifflangError(Diagnostic(code, message, helps=(way,) if way else ()))
