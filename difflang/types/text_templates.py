"""Text templates: how `print` formats a value of each type, and which format specifiers are valid for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.ir.tensor_types import DType, Tensor
from difflang.ops.value_formatting import TemplatePart, TextTemplate, format_value, quote_text
from difflang.syntax import tree
from difflang.types.dtype_variables import DTypeVar, prune_dtype
from difflang.types.language_types import (
    KeyType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
)
from difflang.types.type_errors import make_error


def text_template(type: LangType, spec: str = "") -> TextTemplate:
    """The template of a type, filled by the arrays of `leaf_types(type)`. `spec` is a format such as `.3f`."""
    match type:
        case TextType(number=Tensor(shape=axes)):
            return (("texts", spec, bool(axes)),)
        case TextType():
            said = string_template(type)
            return (("text", said, spec),) if spec else said
        case _:
            return value_template(type, spec)


def string_template(type: TextType) -> TextTemplate:
    """The template of a text."""
    if not type.parts:
        return (type.value or "",)
    return join_templates([p if isinstance(p, str) else text_template(p.type, p.spec) for p in type.parts])


def value_template(type: LangType, spec: str) -> TextTemplate:
    """The template of a nested value, where texts have quotes."""
    match type:
        case Tensor() | KeyType():
            return (("number", spec),)
        case TupleType():
            return bracket_template("(", [value_template(t, spec) for t in type.items])
        case RecordType():
            name = f"D({type.decl.name})" if type.tangent else type.decl.name
            return bracket_template(f"{name}(", field_templates(type, spec))
        case VariantType():
            name = f"D({type.name})" if type.tangent else type.name
            return bracket_template(f"{name}(", field_templates(type, spec)) if type.fields else (name,)
        case SumType():
            return (("among", type.tag_values, tuple([value_template(t, spec) for t in type.options])),)
        case TextType(number=Tensor()):
            return (("texts", spec, True),)
        case TextType():
            said = string_template(type)
            return (("quoted", said),) if type.parts else (quote_text(*said),)
        case _:
            skipped = len(leaf_types(type))
            return (str(type), *((("skip", skipped),) if skipped else ()))


def field_templates(type: RecordType | VariantType, spec: str) -> list[TextTemplate]:
    pairs = zip(type.names, type.fields, strict=True)
    return [join_templates([f"{n} = ", value_template(t, spec)]) for n, t in pairs]


def bracket_template(opened: str, items: Sequence[TextTemplate]) -> TextTemplate:
    parts: list[str | TextTemplate] = [opened]
    for i, item in enumerate(items):
        parts += [", ", item] if i else [item]
    return join_templates([*parts, ")"])


def join_templates(parts: Iterable[str | TextTemplate]) -> TextTemplate:
    """Concatenate strings and templates; adjacent strings are merged."""
    found: list[TemplatePart] = []
    for part in [p for some in parts for p in ((some,) if isinstance(some, str) else some)]:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return tuple(found)


# ---- Formats


def check_format(type: LangType, part: tree.Interpolation) -> None:
    """Check the format of an interpolation against the type of its value. Errors: DL0339 at the format."""
    if not part.format:
        return
    end = part.span.end - 1
    place = Span(part.span.source, end - len(part.format), end)
    try:
        for leaf in [""] if isinstance(type, TextType) else [sample_number(t) for t in leaf_types(type)]:
            format_value(leaf, part.format)
    except ValueError as error:
        raise format_error(part.format, str(error), (place, f"the value is {show_type(type)}")) from None


def sample_number(type: Tensor) -> Any:
    """A sample number of an element type, for checking formats."""
    return {"bool": "true", "float": 1.0, "complex": 1j}.get(dtype_or_default(type.dtype).kind, 1)


def dtype_or_default(dtype: DType) -> DType:
    """The element type, or the default of an open one, without solving it."""
    dtype = prune_dtype(dtype)
    return dtype.default if isinstance(dtype, DTypeVar) else dtype


def format_error(spec: str, why: str, *labels: tuple[Span, str]) -> DifflangError:
    return make_error(
        "DL0339",
        f"the format `{spec}` is invalid here: {why[:1].lower()}{why[1:]}",
        *labels,
        help="formats are those of Python: `{x:.3f}`, `{n:5d}`, `{x:10.2e}`, `{name:>8}`",
    )
