"""JSON values: records are objects, tuples and arrays lists, a complex number is `[re, im]`. Numbers survive exactly.

An enum is an object whose key is the variant's name and whose value holds its fields, or only the name as a text if
the variant has no fields.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from difflang.base.diagnostics import printable
from difflang.host.data.array_files import StoredArrays
from difflang.host.data.shortest_decimal import shortest_decimal
from difflang.host.data.state_dict import join_path
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import DType, Tensor, numpy_dtype
from difflang.numerics.decimal_numbers import nearest_floats, overflowed, real_part_dtype
from difflang.types.language_types import (
    KEY_DATA,
    KeyType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    array_axes,
    show_type,
)

# JSON has no such numbers: they are written as texts.
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# ---- Reading


class JsonTypeMismatch(Exception):
    """A part of a document that does not match its type: its path, what is there, and the declared type."""

    def __init__(self, path: str, there: str, declared: str) -> None:
        super().__init__(f"`{path}` is {there}, not {declared}" if path else f"it is {there}, not {declared}")


def read_json(data: bytes, type: LangType) -> dict[str, Any]:
    """The parts of a document, by the structure of a type. Errors: ValueError for invalid JSON, JsonTypeMismatch."""
    try:
        document = json.loads(
            data.decode("utf-8-sig"), object_pairs_hook=refuse_duplicate_keys, parse_float=DecimalFloat
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return dict(json_parts(document, type, ""))


class DecimalFloat(float):
    """A number with the text that it was read from: rounding it to f32 must not start from the f64."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> DecimalFloat:
        found = super().__new__(cls, text)
        found.text = text
        return found

    text: str


def refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has the key `{next(n for n in names if names.count(n) > 1)}` twice in one object")
    return found


def json_parts(there: Any, type: LangType, path: str) -> list[tuple[str, Any]]:
    match type:
        case RecordType(names=names, fields=fields):
            if not isinstance(there, dict):
                raise JsonTypeMismatch(path, json_kind(there), "an object")
            found = [
                p
                for n, t in zip(names, fields, strict=True)
                if n in there
                for p in json_parts(there[n], t, join_path(path, n))
            ]
            return [*found, *[(join_path(path, str(n)), there[n]) for n in there if n not in names]]
        case SumType() if array_axes(type):
            return [(path, parse_texts(there, type, path))]
        case VariantType() | SumType():
            return variant_parts(there, type, path)
        case TupleType(items=items):
            if not isinstance(there, list) or len(there) != len(items):
                raise JsonTypeMismatch(path, json_kind(there), f"a list of {len(items)}")
            return [p for i, t in enumerate(items) for p in json_parts(there[i], t, join_path(path, str(i)))]
        case Tensor() | KeyType():
            return [(path, parse_array(there, KEY_DATA if isinstance(type, KeyType) else type, path))]
        case TextType() if array_axes(type):
            return [(path, parse_texts(there, type, path))]
        case TextType() if isinstance(there, str):
            return [(path, there)]
        case _:
            raise JsonTypeMismatch(path, json_kind(there), show_type(type))


def variant_parts(there: Any, type: VariantType | SumType, path: str) -> list[tuple[str, Any]]:
    """The name of a variant, and its fields below that name."""
    if isinstance(there, str):
        return [(path, there)]
    if not isinstance(there, dict) or len(there) != 1:
        raise JsonTypeMismatch(path, json_kind(there), "an object whose key is the name of a variant")
    ((name, fields),) = there.items()
    option = next((t for t in (type.variants if isinstance(type, SumType) else (type,)) if t.name == name), None)
    if option is None:
        return [(path, name)]
    if not isinstance(fields, dict):
        raise JsonTypeMismatch(join_path(path, name), json_kind(fields), "an object")
    pairs = zip(option.names, option.fields, strict=True)
    inside = [p for n, t in pairs if n in fields for p in json_parts(fields[n], t, join_path(join_path(path, name), n))]
    more = [(join_path(join_path(path, name), str(n)), fields[n]) for n in fields if n not in option.names]
    return [(path, name), *inside, *more]


def parse_array(there: Any, type: Tensor, path: str) -> np.ndarray:
    """An array from nested lists, as many levels deep as the type has axes."""
    shape, level = nested_items(there, type.shape, show_type(type), path)
    if not type.dtype.differentiable:
        numbers = [parse_real(item, type.dtype, path) for item in level]
        return np.array(numbers, numpy_dtype(type.dtype)).reshape(shape)
    if type.dtype.kind == "float":
        return parse_floats(level, type.dtype, path).reshape(shape)
    parts = [part for item in level for part in (item if isinstance(item, list) and len(item) == 2 else (item, 0.0))]
    return parse_floats(parts, type.dtype, path).view(numpy_dtype(type.dtype)).reshape(shape)


def parse_texts(there: Any, type: TextType | SumType, path: str) -> np.ndarray:
    """An array of texts, or of names of variants, from nested lists."""
    shape, texts = nested_items(there, array_axes(type), show_type(type), path)
    if (wrong := next((text for text in texts if not isinstance(text, str)), None)) is not None:
        raise JsonTypeMismatch(path, json_kind(wrong), "str")
    return np.array(texts, object).reshape(shape)


def nested_items(there: Any, axes: tuple[Dim, ...], shown: str, path: str) -> tuple[list[int], list[Any]]:
    """The shape of nested lists with that many levels, and all their items; `shown` is the declared type."""
    shape: list[int] = []
    level = [there]
    for size in axes:
        if not all(isinstance(item, list) for item in level):
            raise JsonTypeMismatch(path, json_kind(next(i for i in level if not isinstance(i, list))), shown)
        lengths = {len(item) for item in level}
        if len(lengths) > 1:
            raise JsonTypeMismatch(path, f"rows of {' and '.join(map(str, sorted(lengths)[:2]))} items", shown)
        # Below an empty list nothing shows the size: take the declared one, else 0.
        shape.append(lengths.pop() if lengths else size if isinstance(size, int) else 0)
        level = [x for item in level for x in item]
    return shape, level


def parse_floats(items: list[Any], dtype: DType, path: str) -> np.ndarray:
    """Numbers of a float type or of the parts of a complex one, each rounded once, without overflow."""
    numbers = [parse_real(item, dtype, path) for item in items]
    texts = [x.text if isinstance(x, DecimalFloat) else repr(x) for x in numbers]
    found = nearest_floats(texts, np.array([float(text) for text in texts], np.float64), real_part_dtype(dtype))
    if (k := overflowed(texts, found)) is not None:
        raise JsonTypeMismatch(path, printable(texts[k])[:40], str(dtype))
    return found


def parse_real(there: Any, dtype: DType, path: str) -> Any:
    match dtype.kind:
        case "bool":
            fits = isinstance(there, bool)
        case "int" | "uint":
            info = np.iinfo(numpy_dtype(dtype))
            fits = isinstance(there, int) and not isinstance(there, bool) and info.min <= there <= info.max
        case _:
            there = NON_FINITE.get(there, there) if isinstance(there, str) else there
            fits = isinstance(there, (int, float)) and not isinstance(there, bool)
    if not fits:
        raise JsonTypeMismatch(path, json_kind(there), str(dtype))
    return there


def json_kind(there: Any) -> str:
    match there:
        case None:
            return "null"
        case bool() | int() | float():
            return f"{json.dumps(there)[:40]}"
        case str():
            return "a text"
        case list():
            return f"a list of {len(there)}"
        case _:
            return "an object"


# ---- Writing


def json_text(type: LangType, stored: StoredArrays, path: str = "") -> str:
    """A value's parts as a JSON document."""
    return json.dumps(json_value(type, stored, path), ensure_ascii=False, allow_nan=False) + "\n"


def json_value(type: LangType, stored: StoredArrays, path: str) -> Any:
    match type:
        case RecordType(names=names, fields=fields):
            return {n: json_value(t, stored, join_path(path, n)) for n, t in zip(names, fields, strict=True)}
        case VariantType(name=name, names=names, fields=fields):
            pairs = zip(names, fields, strict=True)
            inside = {n: json_value(t, stored, join_path(join_path(path, name), n)) for n, t in pairs}
            return {name: inside} if inside else name
        case TupleType(items=items):
            return [json_value(t, stored, join_path(path, str(i))) for i, t in enumerate(items)]
        case TextType() | SumType():
            return stored[path].tolist() if array_axes(type) else stored[path]
        case _:
            return array_to_lists(np.asarray(stored[path]))


def array_to_lists(array: Any) -> Any:
    if array.dtype.kind == "c":
        return array_to_lists(np.stack([array.real, array.imag], -1))
    if array.dtype.kind in "biu":
        return array.tolist()
    return floats_to_lists(array)


def floats_to_lists(array: np.ndarray) -> Any:
    return [floats_to_lists(row) for row in array] if array.shape else json_float(array[()])


def json_float(x: Any) -> float | str:
    """A number, or the name of a non-finite one."""
    wide = shortest_decimal(x)
    return (
        wide if math.isfinite(wide) else next(name for name, value in NON_FINITE.items() if repr(value) == repr(wide))
    )
