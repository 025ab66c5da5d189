"""How reading and writing at places that only the run knows are spelled."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.types import I32
from difflang.spell.arrays import taken, trimmed
from difflang.spell.body import Speller, array
from difflang.spell.table import spells
from difflang.spell.words import (
    ATOM,
    POSTFIX,
    SUM,
    Shape,
    Unspelled,
    Words,
    called,
    infix,
    settled,
    tight,
)


def scalar(speller: Speller, value: Value) -> Words:
    """An index, an i32 as the language wants it."""
    found = settled(speller.words(value))
    return found if found.dtype is I32 else called("i32", found, shape=found.shape, dtype=I32)


@spells("dynamic_slice")
def window(speller: Speller, eqn: Eqn) -> list[Words]:
    value, *starts = eqn.operands
    x = speller.exact(value)
    if not x.atomic:
        x = speller.atom(value, whole=True)
    ranges = windows(speller, starts, eqn.attrs["sizes"], array(value).shape)
    speller.unchecked[0] = True
    return [taken(x, ranges, array(eqn.results[0]).shape)]


def windows(speller: Speller, starts: Sequence[Value], sizes: Shape, whole: Shape) -> list[str]:
    found: list[str] = []
    for start, length, all_of_it in zip(starts, sizes, whole, strict=True):
        if length == all_of_it:
            found.append("..")
            continue
        words = scalar(speller, start)
        begin = words if words.atomic else speller.let(start, words, speller.at)
        text = begin.at(SUM)
        found.append(f"{text}..{text} + {tight(length)}")
    return found


@spells("dynamic_update")
def update(speller: Speller, eqn: Eqn) -> list[Words]:
    value, new, *starts = eqn.operands
    type = array(value)
    ranges = windows(speller, starts, array(new).shape, type.shape)
    change = speller.words(new)
    if change.shape == ():  # a number goes to every place, and a range of one place is that place
        ones = [n == 1 and ".." in r and r != ".." for n, r in zip(array(new).shape, ranges, strict=True)]
        ranges = [r.partition("..")[0] if one else r for one, r in zip(ones, ranges, strict=True)]
    else:
        change = speller.exact(new)
    text = copied(speller, eqn, value)
    speller.unchecked[0] = True
    speller.say(f"{text}[{', '.join(trimmed(ranges))}] = {change.text}", eqn.span)
    return [Words(text, ATOM, type.shape, type.dtype)]


def copied(speller: Speller, eqn: Eqn, value: Value) -> str:
    """A variable that holds the value, to be changed in places."""
    text = speller.names.fresh(speller.hinted(eqn.results[0]) or "t")
    speller.say(f"var {text} = {speller.exact(value).text}", eqn.span)
    return text


@spells("gather")
def gather(speller: Speller, eqn: Eqn) -> list[Words]:
    """`x[i, j]`; the axes of the places stand where they are written, in the graph they come first."""
    value, *indices = eqn.operands
    axes, type = eqn.attrs["axes"], array(eqn.results[0])
    x = speller.exact(value)
    where = [integer(speller.exact(i)) for i in indices]
    rank, before = array(indices[0]).rank, leading(axes)
    if everywhere(where, axes, x.shape):
        return [Words(x.text, x.level, type.shape, type.dtype)]
    speller.unchecked[0] = True
    text = f"{x.at(POSTFIX)}[{', '.join(trimmed(placed(where, axes, len(x.shape))))}]"
    if rank and before:
        order = (*range(before, before + rank), *range(before), *range(before + rank, type.rank))
        text = f"transpose({text}, axes = {order})"
    return [Words(text, POSTFIX, type.shape, type.dtype)]


def everywhere(where: Sequence[Words], axes: Sequence[int], shape: Shape) -> bool:
    """Whether the places are all those of the first axis, in their order."""
    return tuple(axes) == (0,) and where[0].text == f"iota({shape[0]})"


def integer(x: Words) -> Words:
    """An index as the language wants it."""
    return x if x.dtype is I32 else called("i32", x, shape=x.shape, dtype=I32)


def leading(axes: Sequence[int]) -> int:
    """How many axes stand before those that are indexed. Errors: Unspelled where others stand between."""
    if list(axes) != list(range(axes[0], axes[0] + len(axes))):
        raise Unspelled("places along axes that do not stand side by side")
    return axes[0]


def placed(where: Sequence[Words], axes: Sequence[int], rank: int) -> list[str]:
    """Subscripts with the places along their axes."""
    subscripts = [".."] * rank
    for axis, place in zip(axes, where, strict=True):
        subscripts[axis] = place.text
    return subscripts


UPDATES = {"scatter": "=", "scatter_add": "+=", "scatter_max": "max=", "scatter_min": "min="}


@spells(*UPDATES)
def scatter(speller: Speller, eqn: Eqn) -> list[Words]:
    value, new, *indices = eqn.operands
    axes, type = eqn.attrs["axes"], array(value)
    rank, before = array(indices[0]).rank, leading(axes)
    where = [integer(speller.exact(i)) for i in indices]
    change = speller.words(new)
    if rank and before:
        order = (*range(rank, rank + before), *range(rank), *range(rank + before, array(new).rank))
        change = called("transpose", speller.exact(new), shape=(), dtype=type.dtype, more=f"axes = {order}")
    elif change.shape:
        change = speller.exact(new)
    if everywhere(where, axes, type.shape) and eqn.op.name == "scatter_add":
        old = speller.words(value)
        blank = old.text in ("0.0", "0")
        return [speller.exact(new) if blank else infix("+", SUM, old, speller.words(new))]
    text = copied(speller, eqn, value)
    speller.unchecked[0] = True
    subscripts = trimmed(placed(where, axes, type.rank))
    speller.say(f"{text}[{', '.join(subscripts)}] {UPDATES[eqn.op.name]} {change.text}", eqn.span)
    return [Words(text, ATOM, type.shape, type.dtype)]
