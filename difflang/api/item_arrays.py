"""Arrays of records and enums from Python: stacked values, and lists of values that are stacked for a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.diagnostics import InternalError
from difflang.base.text_numbers import text_number, text_numbers
from difflang.base.wording import with_article
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.runtime import pytrees
from difflang.types.language_types import (
    ClosureType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
)
from difflang.types.type_errors import make_error


class StackedLeaves(Struct, frozen=True):
    """An input of the program that is stacked from leaves, along an axis."""

    parts: tuple[LeafSource, ...]
    axis: int


class FilledLeaf(Struct, frozen=True):
    """An input that is filled with one number: the tag of a variant, or zeros for the fields of others."""

    number: int


class NumberedLeaf(Struct, frozen=True):
    """An input that holds the numbers of the texts in a leaf, an array of NumPy."""

    leaf: int
    path: str


# Where an input of a program comes from: a leaf of the arguments by its index, or what is made of leaves.
LeafSource = int | StackedLeaves | FilledLeaf | NumberedLeaf


class LeadingAxes(Struct):
    """The axes that every leaf of an array of items has in front: their number, and once one is read, their sizes."""

    count: int
    shape: tuple[int, ...] | None = None
    path: str = ""  # the leaf that was read first


def read_source(source: LeafSource, leaves: Sequence[Any], type: Tensor | None) -> Any:
    """The input that a source stands for, in a program that takes an array of this type there."""
    if isinstance(source, int):
        return leaves[source]
    if isinstance(source, NumberedLeaf):
        return numbers_of_texts(np.asarray(leaves[source.leaf]), source.path)
    assert type is not None
    dtype, shape = numpy_dtype(type.dtype), tuple([int(d) for d in type.shape if isinstance(d, int)])
    if isinstance(source, FilledLeaf):
        return np.full(shape, source.number, dtype)
    item = Tensor(type.dtype, (*shape[: source.axis], *shape[source.axis + 1 :]))
    parts = [read_source(part, leaves, item) for part in source.parts]
    return pytrees.stack_arrays(parts, source.axis, dtype)


def text_source(texts: Any) -> LeafSource:
    """The source of the numbers of texts in nested lists."""
    if isinstance(texts, str):
        return FilledLeaf(text_number(texts))
    return StackedLeaves(tuple([text_source(part) for part in texts]), 0)


def numbers_of_texts(array: np.ndarray[Any, Any], path: str) -> np.ndarray[Any, Any]:
    """The number of each text. Errors: DL1206 for an array of objects of which one is no text."""
    texts = array.ravel().tolist()
    if array.dtype.kind == "O" and (wrong := [x for x in texts if not isinstance(x, str)]):
        message = f"`{path}` is declared str, but {with_article(type(wrong[0]).__name__)} is in the array"
        raise make_error("DL1206", message, help="write `array.astype(str)`, or replace what is missing first")
    return np.array(text_numbers(texts), np.int32).reshape(array.shape)


def widened_sources(type: LangType, whole: LangType, sources: Iterator[LeafSource]) -> list[LeafSource]:
    """The sources of a value's leaves, as those of a type that contains its type; see `widen_to_type`."""
    match type, whole:
        case ((VariantType() | SumType()), SumType()):
            options = type.options if isinstance(type, SumType) else (type,)
            tag = next(sources) if isinstance(type, SumType) else FilledLeaf(type.index)
            own = {o.index: o for o in options if isinstance(o, VariantType)}
            taken = {i: [next(sources) for _ in leaf_types(o)] for i, o in own.items()}
            found: list[LeafSource] = [tag]
            for option in whole.variants:
                if option.index in own:
                    found += widened_sources(own[option.index], option, iter(taken[option.index]))
                else:
                    found += [FilledLeaf(0)] * len(leaf_types(option))
            return found
        case (RecordType(fields=parts), RecordType(fields=wholes)) | (TupleType(items=parts), TupleType(items=wholes)):
            pairs = zip(parts, wholes, strict=True)
        case VariantType(fields=parts), VariantType(fields=wholes):
            pairs = zip(parts, wholes, strict=True)
        case ClosureType(), SumType() if type in whole.options:
            taken_leaves = [next(sources) for _ in leaf_types(type)]
            chosen = whole.options.index(type)
            rest = [
                taken_leaves if i == chosen else [FilledLeaf(0)] * len(leaf_types(option))
                for i, option in enumerate(whole.options)
            ]
            return [FilledLeaf(whole.tag_values[chosen]), *[source for part in rest for source in part]]
        case TextType(value=str() as text), TextType(number=Tensor()):
            return [FilledLeaf(text_number(text))]
        case SumType(), _:
            raise InternalError(f"{type} is wider than {whole}")
        case _:
            return [next(sources) for _ in leaf_types(whole)]
    return [source for part, of in pairs for source in widened_sources(part, of, sources)]
