"""What values are in Python, as data: which leaves an argument or a result has, and the value that leaves make up.

A layout knows neither declarations nor source, so it can be written to a file. A leaf is an array of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.partial_equality import Partly
from difflang.ir.tensor_types import Tensor
from difflang.ops.value_formatting import Template, written
from difflang.runtime import pytrees
from difflang.runtime.record_classes import Shape, chosen

Make = Callable[[Iterator[Any]], Any]


class Leaf(Struct, frozen=True):
    """An array; a random key is one too."""

    type: Tensor
    key: bool = False

    def __str__(self) -> str:
        return "key" if self.key else str(self.type) if self.type.shape else str(self.type.dtype)


class Items(Struct, frozen=True):
    """A tuple."""

    parts: tuple[Layout, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


class Fields(Partly, frozen=True, eq=False):
    """A record, or a variant of an enum: then `enum` is the enum's name and `mark` the variant's number in it.

    `of` is the type that it was read off, where there is one; it goes into no file.
    """

    shape: Shape
    parts: tuple[Layout, ...]
    enum: str = ""
    mark: int = 0
    of: Any = None

    def __str__(self) -> str:
        return self.shape.name


class Either(Struct, frozen=True):
    """One of several, which a tag chooses."""

    marks: tuple[int, ...]
    parts: tuple[Layout, ...]
    tag: Tensor

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.parts))}"


class Fixed(Struct, frozen=True):
    """What is known beforehand and takes no leaves: a text, or a size."""

    value: str | int

    def __str__(self) -> str:
        return repr(self.value)


class Filled(Struct, frozen=True):
    """A text that the run fills in, of so many leaves."""

    template: Template
    leaves: int

    def __str__(self) -> str:
        return "str"


class Ends(Struct, frozen=True):
    """A range of two or three ends."""

    leaves: int

    def __str__(self) -> str:
        return "range"


class Called(Struct, frozen=True, eq=False):
    """A function, by whatever `of` says of it, and so many leaves that it holds. It goes into no file."""

    of: Any
    leaves: int

    def __str__(self) -> str:
        return "function"


Layout = Leaf | Items | Fields | Either | Fixed | Filled | Ends | Called
UNIT = Items(())


def each(layout: Layout) -> Iterator[Leaf | Tensor | None]:
    """Its leaves in order: an array, the type of a tag, or nothing for one of which no more is known."""
    match layout:
        case Leaf():
            yield layout
        case Items() | Fields():
            for part in layout.parts:
                yield from each(part)
        case Either():
            yield layout.tag
            for part in layout.parts:
                yield from each(part)
        case Fixed():
            return
        case _:
            yield from [None] * layout.leaves


def count(layout: Layout) -> int:
    """How many leaves there are."""
    return sum(1 for _ in each(layout))


def changes(layout: Layout) -> list[tuple[int, bool]]:
    """For each leaf of its tangent: which leaf of a value that belongs to, and whether it changes or is a tag."""
    found: list[tuple[int, bool]] = []
    for i, leaf in enumerate(each(layout)):
        if isinstance(leaf, Tensor) or (leaf is not None and not leaf.key and leaf.type.tangent is not None):
            found.append((i, isinstance(leaf, Leaf)))
    return found


def tangent(layout: Layout) -> Layout:
    """That of a small change of such a value: fields that cannot change are not there."""
    match layout:
        case Leaf(type=type, key=key):
            return UNIT if key or type.tangent is None else layout
        case Items(parts=parts):
            return Items(tuple(map(tangent, parts)))
        case Fields(shape=shape, parts=parts):
            pairs = [(n, tangent(p)) for n, p in zip(shape.fields, parts, strict=True)]
            kept = [(n, p) for n, p in pairs if p != UNIT]
            names = tuple([n for n, _ in kept])
            if names != shape.fields:
                shape = Shape(shape.module, f"D_{shape.name}", names, ())
            return replace(layout, shape=shape, parts=tuple([p for _, p in kept]))
        case Either():
            return replace(layout, parts=tuple(map(tangent, layout.parts)))
        case _:
            return UNIT


def mapped(layout: Layout, change: Callable[[Leaf], Layout]) -> Layout:
    """The same with each of its leaves, but for tags, changed."""
    match layout:
        case Leaf():
            return change(layout)
        case Items() | Fields() | Either():
            return replace(layout, parts=tuple([mapped(p, change) for p in layout.parts]))
        case _:
            return layout


# ---- Values of leaves

Classes = Callable[[Fields], type]
Functions = Callable[[Any, tuple[Any, ...]], Any]


def maker(layout: Layout, classes: Classes, function: Functions, like: Any = None) -> Make:
    """A function from leaves, in order, to a value, where it can be one of the kind of `like`.

    `classes` gives the class of a record, `function` the function that holds some leaves.
    """

    def inner(part: Layout, like: Any = None) -> Make:
        return maker(part, classes, function, like)

    match layout:
        case Leaf():
            return next
        case Items(parts=parts):
            fits = isinstance(like, (tuple, list)) and len(like) == len(parts)
            likes: Sequence[Any] = like if fits else [None] * len(parts)
            makers = [inner(p, x) for p, x in zip(parts, likes, strict=True)]
            return lambda leaves: tuple([make(leaves) for make in makers])
        case Fields(shape=shape, parts=parts):
            makers = [inner(p, field_of(like, n)) for n, p in zip(shape.fields, parts, strict=True)]
            if like.__class__ is dict and not layout.enum:
                return lambda leaves: {n: make(leaves) for n, make in zip(shape.fields, makers, strict=True)}
            return record_of(classes(layout), shape.fields, makers)
        case Either(marks=marks, parts=parts, tag=tag):
            return chosen(marks, [inner(p) for p in parts], tag.shape)
        case Fixed(value=value):
            return lambda leaves: value
        case Filled(template=said, leaves=n):
            return lambda leaves: text_of(said, [next(leaves) for _ in range(n)])
        case Ends(leaves=n):
            return lambda leaves: range(*[int(next(leaves)) for _ in range(n)])
        case Called(of=of, leaves=n):
            return lambda leaves: function(of, tuple([next(leaves) for _ in range(n)]))


def record_of(cls: Any, names: tuple[str, ...], makers: Sequence[Make]) -> Make:
    """A function from leaves to a record of ours: its fields are put where its `__init__`, slower by far, puts them."""
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


def text_of(said: Template, leaves: list[Any]) -> str:
    """A text that the run filled in. Errors: DL1206 inside a JAX transformation, where its numbers are not there."""
    if pytrees.traced(leaves):
        message = "this gives a text that the run fills in, which a value inside a JAX transformation cannot be"
        way = "give the numbers, and make the text of them outside"
        raise DifflangError(Diagnostic("DL1206", message, helps=(way,)))
    return written(said, leaves)


def field_of(value: Any, name: str) -> Any:
    """A field of what was given for a record; nothing where nothing was."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
