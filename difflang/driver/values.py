"""Values of the host: a type of the language, and the arrays of its leaves. How they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.check.modules import Static
from difflang.check.reports import mistake
from difflang.check.types import (
    ClosureType,
    LangType,
    RangeType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
)
from difflang.ir.types import Tensor


@dataclass(frozen=True, eq=False, slots=True)
class HostValue:
    """A value between host statements. `leaves` are NumPy or JAX arrays, None while only types are known."""

    type: LangType
    leaves: tuple[Any, ...] | None
    static: Static = None

    def chosen(self) -> HostValue:
        """An enum's value of the variant that it is."""
        if not isinstance(self.type, SumType) or self.leaves is None:
            return self
        place = self.type.marks.index(np.asarray(self.leaves[0]).item())
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
    def number(self) -> Any:
        """The Python number of a scalar."""
        assert self.leaves is not None
        return np.asarray(self.leaves[0])[()].item() if self.static is None else self.static


def show(value: HostValue, spec: str = "", span: Span | None = None) -> str:
    """A value as `print` writes it; `spec` is a format such as `.3f`. Errors: DL0314 for a format that does not fit."""
    type = value.type
    if isinstance(type, TextType):
        return format(type.value or "", spec)
    leaves = iter(value.leaves or ())
    try:
        return shown(type, leaves, lambda array: number(array, spec))
    except ValueError as error:
        labels = ((span, f"this is {show_type(type)}"),) if span is not None else ()
        raise bad_format(spec, str(error), *labels) from None


def bad_format(spec: str, why: str, *labels: tuple[Span, str]) -> DifflangError:
    return mistake(
        "DL0339",
        f"the format `{spec}` does not fit: {why.lower()}",
        *labels,
        help="formats are Python's: `{x:.3f}`, `{n:5d}`",
    )


def shown(type: LangType, leaves: Iterator[Any], write: Callable[[Any], str]) -> str:
    match type:
        case Tensor():
            return write(np.asarray(next(leaves)))
        case TupleType():
            return "(" + ", ".join(shown(t, leaves, write) for t in type.items) + ")"
        case RecordType():
            fields = zip(type.names, type.fields, strict=True)
            name = f"D({type.decl.name})" if type.tangent else type.decl.name
            return f"{name}(" + ", ".join(f"{n} = {shown(t, leaves, write)}" for n, t in fields) + ")"
        case VariantType(fields=()):
            return f"D({type.name})" if type.tangent else type.name
        case VariantType():
            name = f"D({type.name})" if type.tangent else type.name
            fields = zip(type.names, type.fields, strict=True)
            return f"{name}(" + ", ".join(f"{n} = {shown(t, leaves, write)}" for n, t in fields) + ")"
        case SumType() if not type.tag.shape:
            texts, tag = [], np.asarray(next(leaves)).item()
            texts = [shown(t, leaves, write) for t in type.options]
            return texts[type.marks.index(tag)]
        case TextType():
            return f'"{type.value}"'
        case RangeType() | ClosureType() | SumType():
            for _ in leaf_types(type):
                next(leaves)
            return str(type)
        case _:
            return str(next(leaves))


def number(array: Any, spec: str) -> str:
    """A number or an array: the shortest digits that tell its value apart, in brackets by row."""
    if array.ndim == 0:
        value = array[()]
        if array.dtype == np.bool_:
            return format("true" if value else "false", spec)
        plain = value.item() if spec or array.dtype.kind in "iu" else value
        return format(plain, spec) if spec else plain_number(plain)
    formatter = {"all": (lambda v: format(v.item(), spec)) if spec else plain_number}
    return np.array2string(array, separator=", ", threshold=200, max_line_width=100, formatter=formatter)  # type: ignore[call-overload]


def plain_number(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (complex, np.complexfloating)):
        parts = plain_number(value.real), plain_number(value.imag)
        return f"{parts[0]}{'' if parts[1].startswith('-') else '+'}{parts[1]}j"
    text = str(value)
    return text[:-2] + ".0" if text.endswith(".0") else text
