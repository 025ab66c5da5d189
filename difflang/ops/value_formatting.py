"""Formats values as text: numbers as `print` writes them, and templates that are filled in at run time.

A template is plain data so that it can be an attribute: a tuple of parts, each a string or

* `("number", format)`: the next array;
* `("among", marks, templates)`: the next array is a tag, followed by the arrays of all these templates. The template
whose mark equals the tag is used; for an array of tags each item is written separately, in brackets;
* `("text", template, format)`: a nested template with a format;
* `("quoted", template)`: a nested template, in quotes;
* `("texts", format, quoted)`: the next array holds the numbers of texts;
* `("skip", n)`: the next n arrays are not shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from difflang.base.text_numbers import numbered_text
from difflang.ir.array_types import Array

# A string, or one of the tuples above.
TemplatePart = Any
TextTemplate = tuple[TemplatePart, ...]

HostNumber = bool | int | float | complex

FORMAT_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?(\d*)[_,]?(?:\.(\d+))?([bdeEfFgGosxX%]?)", re.DOTALL)
MOST_DIGITS = 1000


def render_template(template: TextTemplate, arrays: Iterable[Array]) -> str:
    """The text of a template with these arrays. Errors: ValueError for a format that does not fit."""
    return render_parts(template, iter(arrays))


def render_parts(template: TextTemplate, arrays: Iterator[Array]) -> str:
    return "".join([part if isinstance(part, str) else render_part(part, arrays) for part in template])


def render_part(part: TemplatePart, arrays: Iterator[Array]) -> str:
    match part:
        case ("number", spec):
            return format_number(np.asarray(next(arrays)), spec)
        case ("texts", spec, quoted):
            return format_texts(np.asarray(next(arrays)), spec, quoted=quoted)
        case ("text", template, spec):
            return format_value(render_parts(template, arrays), spec)
        case ("quoted", template):
            return quote_text(render_parts(template, arrays))
        case ("among", marks, templates):
            tag = np.asarray(next(arrays))
            parts = [[np.asarray(next(arrays)) for _ in range(count_arrays(t))] for t in templates]
            return render_tagged(tag, marks, templates, parts)
        case ("skip", n):
            for _ in range(n):
                next(arrays)
            return ""
        case _:
            raise AssertionError(part)


def render_tagged(
    tag: Array, marks: tuple[int, ...], templates: tuple[TextTemplate, ...], parts: list[list[Array]]
) -> str:
    """The value that a tag selects, or those of an array of tags."""
    if tag.ndim == 0:
        place = marks.index(tag.item())
        return render_template(templates[place], parts[place])
    rows = [render_tagged(tag[i], marks, templates, [[x[i] for x in p] for p in parts]) for i in range(len(tag))]
    return "[" + ", ".join(rows) + "]"


def count_arrays(template: TextTemplate) -> int:
    """How many arrays a template takes."""
    found = 0
    for part in template:
        match part:
            case ("number", _) | ("texts", _, _):
                found += 1
            case ("text", inner, _) | ("quoted", inner):
                found += count_arrays(inner)
            case ("skip", n):
                found += n
            case ("among", _, templates):
                found += 1 + sum(map(count_arrays, templates))
            case _:
                pass
    return found


def has_numbered_texts(template: TextTemplate) -> bool:
    """Whether it shows texts by their numbers, which only this process knows."""
    for part in template:
        match part:
            case ("texts", _, _):
                return True
            case ("text", inner, _) | ("quoted", inner) if has_numbered_texts(inner):
                return True
            case ("among", _, templates) if any(map(has_numbered_texts, templates)):
                return True
            case _:
                pass
    return False


# ---- Numbers


def format_value(x: HostNumber | str, spec: str) -> str:
    """A number or a text in a Python format, independent of the locale. Errors: ValueError."""
    if not spec:
        return str(x)
    found = FORMAT_SPEC.fullmatch(spec)
    if found is None:
        raise ValueError("a format has the form [[fill]align][sign][#][0][width][,][.digits][type]")
    if any(int(n) > MOST_DIGITS for n in found.groups()[:2] if n and len(n) < 9) or any(
        len(n or "") > 8 for n in found.groups()[:2]
    ):
        raise ValueError(f"more than {MOST_DIGITS} digits")
    return format(x, spec)


def format_number(array: Array, spec: str = "") -> str:
    """A number or an array with the shortest digits that identify each value, rows in brackets."""
    if array.ndim == 0:
        value = array[()]
        return format_value(to_python_value(value), spec) if spec else format_scalar(value)
    return array_text(array, (lambda v: format_value(to_python_value(v), spec)) if spec else format_scalar)


def format_texts(numbers: Array, spec: str, *, quoted: bool) -> str:
    """The texts with these numbers, each in a format; those of an array in brackets."""

    def text(number: Any) -> str:
        found = format_value(numbered_text(int(number)), spec)
        return quote_text(found) if quoted else found

    return text(numbers) if numbers.ndim == 0 else array_text(numbers, text)


ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"})


def quote_text(text: str) -> str:
    """A text in quotes, as a program writes it; braces stay as they are."""
    return f'"{text.translate(ESCAPES)}"'


def array_text(array: Array, item: Callable[[Any], str]) -> str:
    return np.array2string(array, separator=", ", threshold=200, max_line_width=100, formatter={"all": item})  # type: ignore[call-overload]


def to_python_value(value: np.generic | Array) -> HostNumber | str:
    """A NumPy number as a Python one, a boolean as a word."""
    return ("true" if value else "false") if isinstance(value, np.bool_) else value.item()


def format_scalar(value: HostNumber | np.generic | Array) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (complex, np.complexfloating)):
        parts = format_scalar(value.real), format_scalar(value.imag)
        return f"{parts[0]}{'' if parts[1].startswith('-') else '+'}{parts[1]}j"
    text = str(value)
    # A whole `bf16`, which is no type of NumPy's own, is written as an integer.
    whole = isinstance(value, np.generic) and value.dtype.kind == "V" and text.lstrip("-").isdigit()
    return f"{text}.0" if whole else text
