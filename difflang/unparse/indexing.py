"""How reading and writing at places that only the run knows are spelled."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.unparse.array_ops import taken, trimmed
from difflang.unparse.fragments import (
    AND,
    ATOM,
    COMPARE,
    POSTFIX,
    SUM,
    Shape,
    Unspelled,
    Words,
    called,
    exact,
    infix,
    listed,
    number,
    settled,
    size,
    tight,
)
from difflang.unparse.rule_registry import spells
from difflang.unparse.unparser import Speller, array


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
    if not starts:
        return [speller.exact(new)]
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


def added(speller: Speller, eqn: Eqn, subscripts: str, change: Words, type: Tensor) -> Words:
    """An array of zeros to which something is added at places."""
    speller.unchecked[0] = True
    text = speller.names.fresh(speller.hinted(eqn.results[0]) or "t")
    zero = number(0, Tensor(type.dtype))
    speller.say(f"var {text} = {exact(zero, type).text}", eqn.span)
    speller.say(f"{text}[{subscripts}] += {change.text}", eqn.span)
    return Words(text, ATOM, type.shape, type.dtype)


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


@spells("scatter_mul")
def product(speller: Speller, eqn: Eqn) -> list[Words]:
    """Products of several writes to one place, write by write."""
    value, new, *indices = eqn.operands
    axes, type = eqn.attrs["axes"], array(value)
    rank, before = array(indices[0]).rank, leading(axes)
    if rank != 1 or before:
        raise Unspelled("a product of writes to places that have several axes")
    places = [integer(speller.atom(i, whole=True)) for i in indices]
    factors = speller.atom(new, whole=True)
    text, step = copied(speller, eqn, value), speller.names.fresh("i")
    speller.unchecked[0] = True
    at = trimmed(placed([Words(f"{p.at(POSTFIX)}[{step}]", POSTFIX, (), I32) for p in places], axes, type.rank))
    speller.say(
        f"for {step} in 0..{size(array(new).shape[0])} {{\n{text}[{', '.join(at)}] *= {factors.text}[{step}]\n}}"
    )
    speller.names.used.discard(step)
    return [Words(text, ATOM, type.shape, type.dtype)]


@spells("last_writes")
def last_writes(speller: Speller, eqn: Eqn) -> list[Words]:
    """Each write puts its number into its place; the one that is found there was the last."""
    return [winners(speller, eqn, eqn.operands, eqn.attrs["sizes"], "max=", None)]


@spells("first_claims")
def first_claims(speller: Speller, eqn: Eqn) -> list[Words]:
    """Each claim puts its number into its place if it is less than what stands there: the least claimed it first."""
    claims, *indices = eqn.operands
    if len(eqn.attrs["axes"]) != len(eqn.attrs["shape"]):
        raise Unspelled("which of several writes of whole rows wins has no name in the language")
    return [winners(speller, eqn, indices, eqn.attrs["shape"], "min=", speller.atom(claims, whole=True))]


def winners(
    speller: Speller, eqn: Eqn, indices: Sequence[Value], sizes: Shape, better: str, claims: Words | None
) -> Words:
    """Whether the number of each write is the one that stays in its place."""
    shape = array(eqn.results[0]).shape
    count = 1
    for n in shape:
        count = n * count
    none = "-1" if claims is None else size(count)
    order = speller.names.fresh("order")
    ordinals = f"iota({size(count)})"
    whole = ordinals if len(shape) == 1 else f"reshape({ordinals}, [{listed(shape)}])"
    speller.say(f"let {order} = {whole if claims is None else f'where({claims.text}, {whole}, {none})'}", eqn.span)
    text = speller.names.fresh("t")
    speller.say(f"var {text} = fill({listed(sizes)}, {none})", eqn.span)
    at = ", ".join([integer(speller.exact(i)).text for i in indices])
    speller.unchecked[0] = True
    speller.say(f"{text}[{at}] {better} {order}", eqn.span)
    found = f"{text}[{at}] == {order}"
    found = found if claims is None else f"{claims.at(COMPARE)} and {found}"
    return Words(found, COMPARE if claims is None else AND, shape, BOOL)
