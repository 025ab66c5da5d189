"""Arguments of an artifact's function as leaves, by the layouts in its file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.wording import count_of, with_article
from difflang.execution.callable_graph import random_key
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.runtime import pytrees
from difflang.runtime.foreign_values import convert_foreign, is_foreign
from difflang.runtime.record_classes import Choice
from difflang.runtime.value_layouts import (
    LeafLayout,
    RecordLayout,
    StaticLayout,
    TupleLayout,
    UnionLayout,
    ValueLayout,
    drop_item_axis,
    is_list,
    item_axes,
    leaves_of,
)


def flatten_value(layout: ValueLayout, value: Any, path: str, axes: int = 0) -> list[Any]:
    """The leaves of a value, in an array of records of that many axes.

    Errors: DL1206 and DL1207 for a value of another structure.
    """
    inside = max(item_axes(layout), axes)
    if is_foreign(value):
        value = convert_foreign(value, layout.shape.fields if isinstance(layout, RecordLayout) else None, path)
    match layout:
        case RecordLayout() | UnionLayout() if is_list(value) and item_axes(layout) > axes:
            return flatten_list(layout, value, path, axes)
        case LeafLayout(key=key):
            return [random_key(value) if key else value]
        case TupleLayout(parts=parts):
            if not isinstance(value, (tuple, list)) or len(value) != len(parts):
                raise argument_error(f"`{path}` is {layout}, but {describe_value(value)} was given")
            pairs = zip(parts, value, strict=True)
            parts_of = [flatten_value(part, x, f"{path}[{i}]", inside) for i, (part, x) in enumerate(pairs)]
            return [leaf for leaves in parts_of for leaf in leaves]
        case RecordLayout(parts=parts, shape=shape):
            given = field_values(layout, value, path)
            pairs = zip(shape.fields, parts, strict=True)
            return [leaf for name, part in pairs for leaf in flatten_value(part, given[name], f"{path}.{name}", inside)]
        case UnionLayout():
            return flatten_choice(layout, value, path, inside)
        case StaticLayout(value=fixed):
            if not equals_fixed(value, fixed):
                raise argument_error(f"`{path}` is {fixed!r} in this artifact, but {value!r:.40} was given", FIXED_HELP)
            return []
        case _:
            raise argument_error(f"`{path}`: {describe_value(value)} cannot be passed to an artifact")


def flatten_list(layout: ValueLayout, value: Sequence[Any], path: str, axis: int) -> list[Any]:
    """The leaves of a list of items, stacked along an axis. Errors: DL1206 for another number of items."""
    arrays = array_types(layout)
    if not arrays or arrays[0].shape[axis] != len(value):
        items = count_of(len(value), "item")
        raise argument_error(f"`{path}` is {layout} in this artifact, but a list of {items} was given")
    item = drop_item_axis(layout, axis)
    rows = [flatten_value(item, x, f"{path}[{i}]", axis) for i, x in enumerate(value)]
    columns = zip(zip(*rows, strict=True), arrays, strict=True)
    return [pytrees.stack_arrays(column, axis, numpy_dtype(type.dtype)) for column, type in columns]


def array_types(layout: ValueLayout) -> list[Tensor]:
    """The types of the arrays and tags in a layout."""
    types = [leaf.type if isinstance(leaf, LeafLayout) else leaf for leaf in leaves_of(layout)]
    return [type for type in types if type is not None]


def sizes_of(type: Tensor) -> tuple[int, ...]:
    return tuple([size for size in type.shape if isinstance(size, int)])


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


def flatten_choice(layout: UnionLayout, value: Any, path: str, axes: int) -> list[Any]:
    """The tag and every option of a value chosen at run time, or of one of the variants."""
    if isinstance(value, Choice) and value.variant_numbers == layout.variant_numbers:
        pairs = zip(layout.parts, value.options, strict=True)
        return [value.tag, *[leaf for part, option in pairs for leaf in flatten_value(part, option, path, axes)]]
    for number, part in zip(layout.variant_numbers, layout.parts, strict=True):
        if isinstance(part, RecordLayout) and part.shape.name == type(value).__name__ and not layout.tag.shape:
            return [np.int32(number), *[leaf for p in layout.parts for leaf in option_leaves(p, part, value, path)]]
    raise argument_error(f"`{path}` is a `Choice` of {layout}, but {describe_value(value)} was given")


def option_leaves(option: ValueLayout, chosen: ValueLayout, value: Any, path: str) -> list[Any]:
    """The leaves of one option: those of the value that has it, else zeros."""
    if option is chosen:
        return flatten_value(option, value, path)
    return [np.zeros(sizes_of(type), numpy_dtype(type.dtype)) for type in array_types(option)]


def describe_value(value: Any) -> str:
    return "nothing" if value is None else with_article(type(value).__name__)


def argument_error(message: str, way: str = "", code: str = "DL1206") -> DifflangError:
    return DifflangError(Diagnostic(code, message, helps=(way,) if way else ()))
