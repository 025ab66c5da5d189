"""What people write for types, sizes and attributes of equations: texts, arrays, whatever has a shape and a dtype."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.wording import with_article
from difflang.graph.graph_errors import graph_error
from difflang.ir.graph import Attr
from difflang.ir.op import Op
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import DTYPES, DType, Tensor, Type
from difflang.ir.text_parser import dim_from_text, type_from_text
from difflang.runtime.argument_conversion import DTYPE_BY_NUMPY


def type_from_spec(spec: Any) -> Type:
    """The type that a text describes, `f64` or `f64[n, 3]`, or that of an array or a `jax.ShapeDtypeStruct`.

    Errors: DL1210 for anything else.
    """
    if isinstance(spec, str):
        try:
            return type_from_text(spec if "[" in spec else f"{spec}[]")
        except DifflangError:
            raise graph_error(
                "DL1210", f"`{spec}` is not a type", help="write `f64`, `f32[3]` or `f64[n, 2]`"
            ) from None
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    try:
        known = DTYPE_BY_NUMPY.get(np.dtype(dtype)) if shape is not None and dtype is not None else None
    except TypeError:
        known = None
    if known is None:
        what = with_article(type(spec).__name__)
        raise graph_error("DL1210", f"{what} does not say a type", help="pass a text such as `f64[3]`, or an array")
    return Tensor(known, tuple(cast(tuple[int, ...], shape)))


def size_from_text(text: str) -> Dim:
    """A size that a text describes, `n` or `2*n + 1`. Errors: DL1205 for any other text."""
    try:
        return dim_from_text(text)
    except DifflangError:
        raise graph_error(
            "DL1205", f"`{text}` is not a size", help="a size is `n` or `2*n`, as types have it"
        ) from None


def number_for(value: Any, type: Type) -> complex:
    """A number that a constant of the type holds. Errors: DL1205."""
    number: Any = value.item() if isinstance(value, np.generic) else value
    if not isinstance(type, Tensor):
        raise graph_error("DL1205", f"no number is a {type}")
    kind = type.dtype.kind
    classes: dict[str, tuple[Any, ...]] = {
        "bool": (bool,), "int": (int,), "uint": (int,), "float": (int, float), "complex": (int, float, complex)
    }  # fmt: skip
    if not isinstance(number, classes[kind]) or (isinstance(number, bool) and kind != "bool"):
        raise graph_error("DL1205", f"{number!r} is not {with_article(type.dtype.name)}")
    if kind in ("int", "uint"):
        bounds = np.iinfo(type.dtype.numpy)
        if not bounds.min <= number <= bounds.max:
            raise graph_error("DL1205", f"{number} is out of the range of {type.dtype}")
        return number
    if kind == "bool":
        return number
    try:
        found = complex(number) if kind == "complex" else float(number)
    except OverflowError:
        found = complex(np.inf) if kind == "complex" else np.inf
    with np.errstate(over="ignore"):
        overflows = not np.isfinite(np.asarray(found, type.dtype.numpy))
    if overflows and (isinstance(number, int) or np.isfinite(number)):
        raise graph_error("DL1205", f"{number!r:.40} is out of the range of {type.dtype}")
    return found


def attribute_for(op: Op, name: str, value: Any) -> Attr:
    """An attribute as the op takes it: texts become the element types, types and sizes that its type rule names.

    Errors: DL1250 for a text that is none.
    """
    read = text_readers(op).get(name)
    if read is None:
        return tuple(cast(list[Any], value)) if isinstance(value, list) else value
    try:
        return read_texts(read, value)
    except (DifflangError, KeyError, TypeError):
        raise graph_error("DL1250", f"{value!r} is not a value for `{name}` of `{op}`") from None


def read_texts(read: Callable[[str], Attr], value: Any) -> Attr:
    if isinstance(value, (tuple, list)):
        return tuple([read_texts(read, item) for item in cast(tuple[Any, ...], value)])
    return read(value) if isinstance(value, str) or read is dtype_from_text else value


@cache
def text_readers(op: Op) -> dict[str, Callable[[str], Attr]]:
    """How texts for the attributes of an op are read, by the classes that its type rule declares for them."""
    found: dict[str, Callable[[str], Attr]] = {}
    for parameter in inspect.signature(op.type).parameters.values():
        words = str(parameter.annotation).replace("[", " ").replace("]", " ").replace(",", " ").split()
        for word in words:
            if parameter.kind is parameter.KEYWORD_ONLY and word in READERS:
                found[parameter.name] = READERS[word]
    return found


def attribute_names(op: Op) -> list[str]:
    """The attributes that the type rule of an op declares."""
    parameters = inspect.signature(op.type).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "regions"]


def dtype_from_text(text: Any) -> DType:
    return (
        text if isinstance(text, DType) else DTYPES[text] if isinstance(text, str) else DTYPE_BY_NUMPY[np.dtype(text)]
    )


READERS: dict[str, Callable[[str], Attr]] = {
    "DType": dtype_from_text, "Type": type_from_spec, "Tensor": type_from_spec, "Dim": dim_from_text,
    "Sizes": dim_from_text,
}  # fmt: skip
