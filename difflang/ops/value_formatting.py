"""Texts of values: numbers as `print` writes them, and texts whose numbers only the run knows.

Such a text is a template, made of data alone so that it can be an attribute: a tuple of parts, each a string or

* `("number", format)`: the next array;
* `("among", marks, templates)`: the next array is a tag, and what follows are the arrays of all these templates. The
  one whose mark the tag is counts; of an array of tags each item is written by itself, in brackets;
* `("text", template, format)`: a text in a format of its own;
* `("skip", n)`: the next n arrays are not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

Part = Any  # a string, or one of the tuples above
Template = tuple[Part, ...]

SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?(\d*)[_,]?(?:\.(\d+))?([bdeEfFgGosxX%]?)", re.DOTALL)
MOST_DIGITS = 1000


def written(template: Template, arrays: Iterable[Any]) -> str:
    """What a template says with these arrays. Errors: ValueError for a format that does not fit."""
    return filled(template, iter(arrays))


def filled(template: Template, arrays: Iterator[Any]) -> str:
    return "".join([part if isinstance(part, str) else part_text(part, arrays) for part in template])


def part_text(part: Part, arrays: Iterator[Any]) -> str:
    match part:
        case ("number", spec):
            return number(np.asarray(next(arrays)), spec)
        case ("text", template, spec):
            return formatted(filled(template, arrays), spec)
        case ("among", marks, templates):
            tag = np.asarray(next(arrays))
            parts = [[np.asarray(next(arrays)) for _ in range(count(t))] for t in templates]
            return among(tag, marks, templates, parts)
        case ("skip", n):
            for _ in range(n):
                next(arrays)
            return ""
        case _:
            raise AssertionError(part)


def among(tag: Any, marks: tuple[int, ...], templates: tuple[Template, ...], parts: list[list[Any]]) -> str:
    """The value that a tag chooses, or those of an array of tags."""
    if tag.ndim == 0:
        place = marks.index(tag.item())
        return written(templates[place], parts[place])
    rows = [among(tag[i], marks, templates, [[x[i] for x in p] for p in parts]) for i in range(len(tag))]
    return "[" + ", ".join(rows) + "]"


def count(template: Template) -> int:
    """How many arrays a template takes."""
    found = 0
    for part in template:
        match part:
            case ("number", _):
                found += 1
            case ("text", inner, _):
                found += count(inner)
            case ("skip", n):
                found += n
            case ("among", _, templates):
                found += 1 + sum(map(count, templates))
            case _:
                pass
    return found


# ---- Numbers


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


def number(array: Any, spec: str = "") -> str:
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
