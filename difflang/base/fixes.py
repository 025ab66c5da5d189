"""Repairs that reports propose: what they are made of, and what a text becomes by them."""

from __future__ import annotations

from collections.abc import Iterable

from difflang.base.diagnostics import Edit, Fix
from difflang.base.error_codes import edit_distance, nearest_word
from difflang.base.source import Source, Span


def replacement_fix(span: Span, text: str, title: str = "") -> Fix:
    """A fix that writes a text where another one stands."""
    return Fix(title or f"write `{text}`", (Edit(span, text),))


def insertion_fix(span: Span, text: str, title: str) -> Fix:
    """A fix that writes a text before a place."""
    return Fix(title, (Edit(Span(span.source, span.start, span.start), text),))


def did_you_mean(name: str, known: Iterable[str], span: Span, sign: str = "") -> tuple[str, tuple[Fix, ...]]:
    """What to say of a name that stands for nothing, and the name to write in its place; nothing where none is near.

    `sign` stands before the name in the program, as in `@grad`.
    """
    known = list(known)
    near = nearest_word(name, known)
    if near is None:
        return "", ()
    place = span if span.text == name else span_of_name(span, name)
    fixes = (replacement_fix(place, near),) if place is not None and is_typo(name, near, known) else ()
    return f"did you mean `{sign}{near}`?", fixes


def is_typo(name: str, near: str, known: Iterable[str]) -> bool:
    """Whether a name is a slip of the fingers for the nearest one in `known`, and for no other.

    A checker cannot tell `w1` from `w2`, so that numbers stay, and of short names little may differ.
    """
    if len(name) < 3 or digits_of(name) != digits_of(near):
        return False
    if name.casefold() == near.casefold():
        return sum(name.casefold() == other.casefold() for other in dict.fromkeys(known)) == 1
    most = 1 if len(name) <= 5 else 2
    far = edit_distance(name, near, most)
    return far <= most and not any(other != near and edit_distance(name, other, far) <= far for other in known)


def span_of_name(span: Span, name: str) -> Span | None:
    """The one place of a name in what is marked; None if it is not there, or more than once."""
    text = span.text
    if text.count(name) != 1:
        return None
    start = span.start + text.index(name)
    return Span(span.source, start, start + len(name))


def digits_of(name: str) -> str:
    return "".join(char for char in name if char.isdigit())


def fixes_overlap(a: Fix, b: Fix) -> bool:
    """Whether two fixes change the same place, or write to it."""
    return any(
        x.span.source is y.span.source and x.span.start <= y.span.end and y.span.start <= x.span.end
        for x in a.edits
        for y in b.edits
    )


def apply_fixes(source: Source, fixes: Iterable[Fix]) -> str:
    """The text of a source after fixes that do not overlap. Edits of other sources are left out."""
    edits = [edit for fix in fixes for edit in fix.edits if edit.span.source is source]
    text = source.text
    for edit in sorted(edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    return text
