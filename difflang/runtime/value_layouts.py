"""Layouts of Python values: which leaves (arrays) an argument or result has, and how to build the value from leaves.

A layout refers to no declaration or source, so it can be stored in an artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.partial_equality import PartialEquality
from difflang.base.text_numbers import numbered_text
from difflang.ir.tensor_types import Tensor
from difflang.ops.value_formatting import TextTemplate, render_template
from difflang.runtime import pytrees
from difflang.runtime.item_access import nested_tuples
from difflang.runtime.record_classes import RecordShape, choice_builder

ValueBuilder = Callable[[Iterator[Any]], Any]


class LeafLayout(Struct, frozen=True):
    """An array, or a random key."""

    type: Tensor
    key: bool = False

    def __str__(self) -> str:
        return "key" if self.key else str(self.type) if self.type.shape else str(self.type.dtype)


class TupleLayout(Struct, frozen=True):
    """A tuple."""

    parts: tuple[ValueLayout, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


class RecordLayout(PartialEquality, frozen=True, eq=False):
    """A record, or a variant of an enum: then `enum` is the enum's name and `variant_number` its number in it.

    `axes` counts those of an array of records. `source_type` is the type that it was made from, if any, and not stored.
    """

    shape: RecordShape
    parts: tuple[ValueLayout, ...]
    enum: str = ""
    variant_number: int = 0
    source_type: Any = None
    axes: int = 0

    def __str__(self) -> str:
        leaf = next((leaf for leaf in leaves_of(self) if isinstance(leaf, LeafLayout)), None)
        shape = leaf.type.shape[: self.axes] if leaf is not None else ()
        return self.shape.name + (f"[{', '.join(map(str, shape))}]" if shape else "")


class UnionLayout(Struct, frozen=True):
    """One of several variants, selected by a tag."""

    variant_numbers: tuple[int, ...]
    parts: tuple[ValueLayout, ...]
    tag: Tensor

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.parts))}"


class StaticLayout(Struct, frozen=True):
    """A value known at compile time, which has no leaves: a string or a size."""

    value: str | int

    def __str__(self) -> str:
        return repr(self.value)


class TextLayout(Struct, frozen=True):
    """A string that is formatted at run time from some leaves."""

    template: TextTemplate
    leaves: int

    def __str__(self) -> str:
        return "str"


class NumberedTextLayout(Struct, frozen=True):
    """A string, or an array of strings as nested tuples, by numbers of this process: it cannot be stored."""

    @property
    def leaves(self) -> int:
        return 1

    def __str__(self) -> str:
        return "str"


class RangeLayout(Struct, frozen=True):
    """A range of two or three leaves."""

    leaves: int

    def __str__(self) -> str:
        return "range"


class FunctionLayout(Struct, frozen=True, eq=False):
    """A function, described by `function_info`, and the leaves of its captured values. It is not stored."""

    function_info: Any
    leaves: int

    def __str__(self) -> str:
        return "function"


ValueLayout = (
    LeafLayout
    | TupleLayout
    | RecordLayout
    | UnionLayout
    | StaticLayout
    | TextLayout
    | NumberedTextLayout
    | RangeLayout
    | FunctionLayout
)
UNIT_LAYOUT = TupleLayout(())


# ---- Leaves, and layouts of tangents


def leaves_of(layout: ValueLayout) -> Iterator[LeafLayout | Tensor | None]:
    """Its leaves in order: an array, the type of a tag, or None for a leaf of unknown type."""
    match layout:
        case LeafLayout():
            yield layout
        case TupleLayout() | RecordLayout():
            for part in layout.parts:
                yield from leaves_of(part)
        case UnionLayout():
            yield layout.tag
            for part in layout.parts:
                yield from leaves_of(part)
        case StaticLayout():
            return
        case _:
            yield from [None] * layout.leaves


def leaf_count(layout: ValueLayout) -> int:
    """The number of leaves."""
    return sum(1 for _ in leaves_of(layout))


def tangent_leaves(layout: ValueLayout) -> list[tuple[int, bool]]:
    """For each leaf of the tangent: the index of the leaf of the value, and whether it is an array, not a tag."""
    found: list[tuple[int, bool]] = []
    for i, leaf in enumerate(leaves_of(layout)):
        if isinstance(leaf, Tensor) or (leaf is not None and not leaf.key and leaf.type.tangent is not None):
            found.append((i, isinstance(leaf, LeafLayout)))
    return found


def tangent_layout(layout: ValueLayout) -> ValueLayout:
    """The layout of tangents of such a value: fields without a tangent are left out."""
    match layout:
        case LeafLayout(type=type, key=key):
            return UNIT_LAYOUT if key or type.tangent is None else layout
        case TupleLayout(parts=parts):
            return TupleLayout(tuple(map(tangent_layout, parts)))
        case RecordLayout(shape=shape, parts=parts):
            pairs = [(n, tangent_layout(p)) for n, p in zip(shape.fields, parts, strict=True)]
            kept = [(n, p) for n, p in pairs if p != UNIT_LAYOUT]
            names = tuple([n for n, _ in kept])
            if names != shape.fields:
                shape = RecordShape(shape.module, f"D_{shape.name}", names, ())
            return replace(layout, shape=shape, parts=tuple([p for _, p in kept]))
        case UnionLayout():
            return replace(layout, parts=tuple(map(tangent_layout, layout.parts)))
        case _:
            return UNIT_LAYOUT


def map_leaves(layout: ValueLayout, change: Callable[[LeafLayout], ValueLayout]) -> ValueLayout:
    """The same with each leaf changed, except tags."""
    match layout:
        case LeafLayout():
            return change(layout)
        case TupleLayout() | RecordLayout() | UnionLayout():
            return replace(layout, parts=tuple([map_leaves(p, change) for p in layout.parts]))
        case _:
            return layout


# ---- Values of leaves

ClassLookup = Callable[[RecordLayout], type]
FunctionBuilder = Callable[[Any, tuple[Any, ...]], Any]


def value_builder(
    layout: ValueLayout, classes: ClassLookup, function: FunctionBuilder, like: Any = None, axes: int = 0
) -> ValueBuilder:
    """A function from an iterator of leaves to a value, with dicts, tuples and lists as in `like` where possible.

    `classes` gives the class of a record, `function` a function with some captured leaves. `axes` counts those of the
    array of records around, which all leaves have in front.
    """

    def inner(part: ValueLayout, like: Any = None) -> ValueBuilder:
        return value_builder(part, classes, function, like, max(item_axes(layout), axes))

    match layout:
        case RecordLayout() | UnionLayout() if is_list(like) and item_axes(layout) > axes:
            item = drop_item_axis(layout, axes)
            makers = [value_builder(item, classes, function, x, axes) for x in like]
            return list_builder(leaf_count(layout), makers, axes)
        case LeafLayout():
            return next
        case TupleLayout(parts=parts):
            fits = isinstance(like, (tuple, list)) and len(like) == len(parts)
            likes: Sequence[Any] = like if fits else [None] * len(parts)
            makers = [inner(p, x) for p, x in zip(parts, likes, strict=True)]
            return lambda leaves: tuple([make(leaves) for make in makers])
        case RecordLayout(shape=shape, parts=parts):
            makers = [inner(p, field_or_none(like, n)) for n, p in zip(shape.fields, parts, strict=True)]
            if like.__class__ is dict and not layout.enum:
                return lambda leaves: {n: make(leaves) for n, make in zip(shape.fields, makers, strict=True)}
            return record_builder(classes(layout), shape.fields, makers)
        case UnionLayout(variant_numbers=numbers, parts=parts, tag=tag):
            return choice_builder(numbers, [inner(p) for p in parts], tag.shape)
        case StaticLayout(value=value):
            return lambda leaves: value
        case TextLayout(template=template, leaves=n):
            return lambda leaves: fill_template(template, [next(leaves) for _ in range(n)])
        case NumberedTextLayout():
            return lambda leaves: texts_of_numbers(next(leaves))
        case RangeLayout(leaves=n):
            return lambda leaves: range(*[int(next(leaves)) for _ in range(n)])
        case FunctionLayout(function_info=of, leaves=n):
            return lambda leaves: function(of, tuple([next(leaves) for _ in range(n)]))


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Whether it is a list or a tuple, and no NamedTuple."""
    return isinstance(value, (list, tuple)) and not hasattr(value, "_fields")


def item_axes(layout: ValueLayout) -> int:
    """The number of axes of an array of records or enums."""
    if isinstance(layout, UnionLayout):
        return len(layout.tag.shape)
    return layout.axes if isinstance(layout, RecordLayout) else 0


def drop_item_axis(layout: ValueLayout, axis: int) -> ValueLayout:
    """The layout of one item along an axis that all leaves have."""
    match layout:
        case LeafLayout(type=type):
            return replace(layout, type=without_axis(type, axis))
        case UnionLayout(tag=tag):
            return replace(
                layout, tag=without_axis(tag, axis), parts=tuple([drop_item_axis(p, axis) for p in layout.parts])
            )
        case RecordLayout() | TupleLayout():
            parts = tuple([drop_item_axis(p, axis) for p in layout.parts])
            if isinstance(layout, TupleLayout):
                return replace(layout, parts=parts)
            return replace(layout, parts=parts, axes=max(layout.axes - 1, 0))
        case _:
            return layout


def without_axis(type: Tensor, axis: int) -> Tensor:
    return Tensor(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))


def list_builder(count: int, items: Sequence[ValueBuilder], axis: int) -> ValueBuilder:
    """A function from `count` leaves, which have the axis of the items, to a list of these."""

    def build(leaves: Any) -> Any:
        taken = [next(leaves) for _ in range(count)]
        before = (slice(None),) * axis
        return [make(iter([pytrees.index_array(leaf, (*before, i)) for leaf in taken])) for i, make in enumerate(items)]

    return build


def record_builder(cls: Any, names: tuple[str, ...], makers: Sequence[ValueBuilder]) -> ValueBuilder:
    """A function from leaves to a record."""
    # It fills `__dict__` directly, which is far faster than the dataclass's `__init__`.
    new = cls.__new__
    if all([make is next for make in makers]):

        def flat(leaves: Any) -> Any:
            made = new(cls)
            made.__dict__.update(zip(names, leaves, strict=False))  # no more than there are names
            return made

        return flat

    def record(leaves: Any) -> Any:
        made = new(cls)
        made.__dict__.update(zip(names, [make(leaves) for make in makers], strict=True))
        return made

    return record


def fill_template(template: TextTemplate, leaves: list[Any]) -> str:
    """A string formatted from leaves. Errors: DL1206 inside a JAX transformation, where its numbers are unknown."""
    refuse_tracers(leaves)
    return render_template(template, leaves)


def texts_of_numbers(numbers: Any) -> Any:
    """The text with a number, or nested tuples of texts for an array of numbers. Errors: DL1206 as `fill_template`."""
    refuse_tracers([numbers])
    array = np.asarray(numbers)
    texts = np.array([numbered_text(n) for n in array.ravel().tolist()], object)
    return nested_tuples(texts.reshape(array.shape).tolist())


def refuse_tracers(leaves: list[Any]) -> None:
    if pytrees.has_tracers(leaves):
        message = "this returns a text that is known only at run time, which cannot be inside a JAX transformation"
        way = "return the numbers, and format the text outside"
        raise DifflangError(Diagnostic("DL1206", message, helps=(way,)))


def field_or_none(value: Any, name: str) -> Any:
    """A field of the argument given for a record, None if there is none."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
