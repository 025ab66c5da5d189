"""Values of the host: a type of the language, and the arrays of its leaves. How they are shown."""

from __future__ import annotations

import re
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
    settled,
    show_type,
)
from difflang.ir.types import Tensor
from difflang.syntax import tree


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
    def array(self) -> Any:
        """The NumPy array of a value that is one."""
        assert self.leaves is not None
        return np.asarray(self.leaves[0])

    @property
    def number(self) -> Any:
        """The Python number of a scalar."""
        assert self.leaves is not None
        return np.asarray(self.leaves[0])[()].item() if self.static is None else self.static


def show(value: HostValue, spec: str = "", span: Span | None = None) -> str:
    """A value as `print` writes it; `spec` is a format such as `.3f`. Errors: DL0339 for a format that does not fit."""
    type = value.type
    try:
        if isinstance(type, TextType):
            return formatted(type.value or "", spec)
        return shown(type, iter(value.leaves or ()), lambda array: number(array, spec))
    except ValueError as error:
        raise bad_format(
            spec, str(error), *(((span, f"this is {show_type(type)}"),) if span is not None else ())
        ) from None


def check_format(type: LangType, part: tree.Interpolation) -> None:
    """Hold the format of a string's hole against the type of its value. Errors: DL0339 at the format."""
    if not part.format:
        return
    end = part.span.end - 1
    place = Span(part.span.source, end - len(part.format), end)
    try:
        for leaf in [""] if isinstance(type, TextType) else [sample(t) for t in leaf_types(type)]:
            formatted(leaf, part.format)
    except ValueError as error:
        raise bad_format(part.format, str(error), (place, f"the value is {show_type(type)}")) from None


def sample(type: Tensor) -> Any:
    """A number of an element type, as formats see it."""
    kind = settled(type.dtype).kind
    return {"bool": "true", "float": 1.0, "complex": 1j}.get(kind, 1)


SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?(\d*)[_,]?(?:\.(\d+))?([bdeEfFgGosxX%]?)", re.DOTALL)
MOST_DIGITS = 1000


def formatted(x: Any, spec: str) -> str:
    """A number or a text by a format of Python's, which knows no locale here. Errors: ValueError."""
    if not spec:
        return str(x)
    found = SPEC.fullmatch(spec)
    if found is None:
        raise ValueError("it reads [[fill]align][sign][#][0][width][,][.digits][type]")
    if any(int(n) > MOST_DIGITS for n in found.groups()[:2] if n and len(n) < 9) or any(
        len(n or "") > 8 for n in found.groups()[:2]
    ):
        raise ValueError(f"more than {MOST_DIGITS} places")
    return format(x, spec)


def bad_format(spec: str, why: str, *labels: tuple[Span, str]) -> DifflangError:
    return mistake(
        "DL0339",
        f"the format `{spec}` does not fit: {why[:1].lower()}{why[1:]}",
        *labels,
        help="formats are Python's: `{x:.3f}`, `{n:5d}`, `{x:10.2e}`, `{name:>8}`",
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
        return formatted(plain(value), spec) if spec else plain_number(value)
    formatter = {"all": (lambda v: formatted(plain(v), spec)) if spec else plain_number}
    return np.array2string(array, separator=", ", threshold=200, max_line_width=100, formatter=formatter)  # type: ignore[call-overload]


def plain(value: Any) -> Any:
    """A number as Python has it, a truth value as the word that it is."""
    return ("true" if value else "false") if isinstance(value, np.bool_) else value.item()


def plain_number(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (complex, np.complexfloating)):
        parts = plain_number(value.real), plain_number(value.imag)
        return f"{parts[0]}{'' if parts[1].startswith('-') else '+'}{parts[1]}j"
    text = str(value)
    return text[:-2] + ".0" if text.endswith(".0") else text
