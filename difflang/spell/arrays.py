"""How ops on the axes of arrays are spelled: shapes, parts, places, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difflang.base.source import NOWHERE
from difflang.ir.dims import Dim
from difflang.ir.graph import Eqn, Value
from difflang.ir.types import BOOL, I32, Tensor
from difflang.spell.body import Speller, array
from difflang.spell.table import spells
from difflang.spell.words import (
    ATOM,
    MINUS,
    POSTFIX,
    PRODUCT,
    SUM,
    Shape,
    Unspelled,
    Words,
    agreed,
    called,
    exact,
    number,
    settled,
    size,
    tight,
)


@spells("const")
def const(speller: Speller, eqn: Eqn) -> list[Words]:
    return [number(eqn.attrs["value"], array(eqn.results[0]))]


@spells("dense")
def dense(speller: Speller, eqn: Eqn) -> list[Words]:
    """An array as written, one list in another."""
    type = array(eqn.results[0])
    items = [number(x, type).text for x in eqn.attrs["data"]]
    for length in reversed([n for n in type.shape if isinstance(n, int)]):
        items = [f"[{', '.join(items[i : i + length])}]" for i in range(0, len(items), length or 1)]
    if len(items) != 1 or 0 in type.shape:
        raise Unspelled("an array constant without elements is not written")
    says = type.dtype in (BOOL, I32) or type.dtype.is_complex
    return [settled(Words(items[0], ATOM, type.shape, type.dtype, says))]


@spells("iota")
def iota(speller: Speller, eqn: Eqn) -> list[Words]:
    """0, 1, 2, ... along one axis; along those before it, it is repeated where that is needed."""
    type, axis = eqn.attrs["type"], eqn.attrs["axis"]
    text = f"iota({size(type.shape[axis])})"
    if type.dtype is not I32:
        text = f"{type.dtype}({text})"
    return [spread(Words(text, POSTFIX, (type.shape[axis],), type.dtype), type, (axis,))]


# ---- Shapes


def spread(x: Words, type: Tensor, axes: Sequence[int]) -> Words:
    """An array with new axes of size 1 where it is to be repeated within it; before it none are needed."""
    if list(axes) != sorted(axes):
        raise Unspelled("axes that are repeated in another order")
    if not axes:
        return x
    subscripts = [".." if axis in axes else "newaxis" for axis in range(axes[0], type.rank)]
    shape = tuple(
        [x.shape[list(axes).index(axis)] if axis in axes else 1 for axis in range(axes[0], type.rank)]
    )
    if "newaxis" not in subscripts:
        return Words(x.text, x.level, shape, x.dtype, x.says)
    return Words(f"{settled(x).at(POSTFIX)}[{', '.join(subscripts)}]", POSTFIX, shape, x.dtype)


@spells("broadcast")
def broadcast(speller: Speller, eqn: Eqn) -> list[Words]:
    """Nothing is written where the language repeats by itself."""
    (value,), type = eqn.operands, array(eqn.results[0])
    x = speller.words(value)
    missing = array(value).rank - len(x.shape)
    return [spread(x, type, eqn.attrs["axes"][missing:])]


@spells("reshape")
def reshape(speller: Speller, eqn: Eqn) -> list[Words]:
    (value,), shape = eqn.operands, eqn.attrs["shape"]
    old, x = array(value).shape, speller.words(value)
    if x.shape == ():
        return [x]
    x = exact(x, array(value))
    if (found := taken_at(x, old, shape)) is not None:
        return [found]
    subscripts = without_ones(old, shape)
    if subscripts is not None:
        return [Words(f"{x.at(POSTFIX)}[{', '.join(subscripts)}]", POSTFIX, shape, x.dtype)]
    return [called("reshape", x, shape=shape, dtype=x.dtype, more=f"[{', '.join(map(size, shape))}]")]


def taken_at(x: Words, old: Shape, shape: Shape) -> Words | None:
    """`a[i..i + 1]` without the axis of size 1 is `a[i]`."""
    if x.taken is None:
        return None
    base, ranges = x.taken
    kept: list[str] = []
    left = list(shape)
    for length, text in zip(old, ranges, strict=True):
        if left and left[0] == length:
            kept.append(text)
            left.pop(0)
        elif length == 1:
            kept.append(text.partition("..")[0] or "0")
        else:
            return None
    if left:
        return None
    return Words(f"{base}[{', '.join(trimmed(kept))}]", POSTFIX, shape, x.dtype)


def trimmed(ranges: Sequence[str]) -> list[str]:
    """Subscripts without those at the end that take all."""
    found = list(ranges)
    while len(found) > 1 and found[-1] == "..":
        found.pop()
    return found


def without_ones(old: Shape, new: Shape) -> list[str] | None:
    """The subscripts that take axes of size 1 away and put others in; None where more than these differ."""
    found: list[str] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            found, i, j = [*found, ".."], i + 1, j + 1
        elif j < len(new) and new[j] == 1:
            found, j = [*found, "newaxis"], j + 1
        elif i < len(old) and old[i] == 1:
            found, i = [*found, "0"], i + 1
        else:
            return None
    return found


@spells("transpose")
def transpose(speller: Speller, eqn: Eqn) -> list[Words]:
    (value,), perm = eqn.operands, eqn.attrs["perm"]
    x, shape = speller.exact(value), array(eqn.results[0]).shape
    plain = perm == tuple(reversed(range(len(perm))))
    return [called("transpose", x, shape=shape, dtype=x.dtype, more="" if plain else f"axes = {perm}")]


@spells("reverse")
def reverse(speller: Speller, eqn: Eqn) -> list[Words]:
    (value,), axes = eqn.operands, eqn.attrs["axes"]
    x = speller.exact(value)
    return [called("reverse", x, shape=x.shape, dtype=x.dtype, more="" if axes == (0,) else f"axis = {several(axes)}")]


def several(axes: Sequence[int]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"


@spells("concat")
def concat(speller: Speller, eqn: Eqn) -> list[Words]:
    axis, type = eqn.attrs["axis"], array(eqn.results[0])
    numbers = [speller.words(v) for v in eqn.operands]
    if axis == 0 and type.rank == 1 and all(array(v).shape == (1,) for v in eqn.operands):
        if all(w.shape == () for w in numbers):
            listed = ", ".join(w.text for w in agreed(numbers))
            return [Words(f"[{listed}]", ATOM, type.shape, type.dtype)]
    parts = [speller.exact(v) for v in eqn.operands]
    if len(parts) == 1:
        return parts
    return [called("concat", *parts, shape=type.shape, dtype=type.dtype, more=f"axis = {axis}" if axis else "")]


@spells("slice")
def part(speller: Speller, eqn: Eqn) -> list[Words]:
    (value,), at = eqn.operands, eqn.attrs
    x, shape = speller.exact(value), array(value).shape
    ranges = [
        written_range(*ends) for ends in zip(at["starts"], at["stops"], at["steps"], shape, strict=True)
    ]
    return [taken(x, ranges, array(eqn.results[0]).shape)]


def taken(x: Words, ranges: Sequence[str], shape: Shape) -> Words:
    """A part of an array."""
    base = x.at(POSTFIX)
    text = f"{base}[{', '.join(trimmed(ranges))}]"
    return Words(text, POSTFIX, shape, x.dtype, taken=(base, tuple(ranges)))


def written_range(start: Dim, stop: Dim, step: int, whole: Dim) -> str:
    first = "" if start == 0 and step == 1 else size(start)
    last = "" if stop == whole else size(stop)
    return f"{first}..{last}" + (f" by {step}" if step != 1 else "")


@spells("pad")
def pad(speller: Speller, eqn: Eqn) -> list[Words]:
    value, filler = eqn.operands
    low, high, interior = eqn.attrs["low"], eqn.attrs["high"], eqn.attrs["interior"]
    x, type = speller.exact(value), array(eqn.results[0])
    if any(isinstance(n, int) and n < 0 for n in (*low, *high)) and not any(interior):
        ranges = [
            written_range(max(-a, 0) if isinstance(a, int) else 0, n + min(b, 0) if isinstance(b, int) else n, 1, n)
            for a, b, n in zip(low, high, array(value).shape, strict=True)
        ]
        x = taken(x, ranges, ())
        low, high = ([max(n, 0) if isinstance(n, int) else n for n in side] for side in (low, high))
        if not any((*low, *high)):
            return [Words(x.text, POSTFIX, type.shape, x.dtype)]
    if any(interior):
        return [scattered(speller, x, speller.words(filler), array(value).shape, low, high, interior, type)]
    more = f"{sizes_of(low)}, {sizes_of(high)}"
    with_value = speller.words(filler)
    if with_value.text not in ("0.0", "0"):
        more += f", {settled(with_value).text}"
    return [called("pad", x, shape=type.shape, dtype=x.dtype, more=more)]


def sizes_of(shape: Shape) -> str:
    return size(shape[0]) if len(shape) == 1 else f"[{', '.join(map(size, shape))}]"


def scattered(
    speller: Speller, x: Words, filler: Words, old: Shape, low: Shape, high: Shape, steps: Sequence[int], type: Tensor
) -> Words:
    """An array with its elements further apart in a larger one: written into it."""
    if any(isinstance(n, int) and n < 0 for n in (*low, *high)):
        raise Unspelled("an array that loses its ends as it is spread")
    text = speller.names.fresh("t")
    speller.say(f"var {text} = {exact(filler, type).text}", speller.at)
    ranges = [
        written_range(a, a + (n - 1) * (s + 1) + 1, s + 1, whole)
        for a, n, s, whole in zip(low, old, steps, type.shape, strict=True)
    ]
    speller.say(f"{text}[{', '.join(ranges)}] = {x.text}", speller.at)
    return Words(text, ATOM, type.shape, type.dtype)


# ---- Reductions


def along(speller: Speller, eqn: Eqn, function: str) -> list[Words]:
    """A function that takes the axes that it goes along."""
    (value,), axes = eqn.operands, eqn.attrs["axes"]
    x, result = speller.exact(value), array(eqn.results[0])
    if not axes:
        return [x]
    more = "" if len(axes) == array(value).rank else f"axis = {several(axes)}"
    return [called(function, x, shape=result.shape, dtype=result.dtype, more=more)]


for _name in ("sum", "prod", "max", "min", "all", "any"):
    spells(f"reduce_{_name}")(lambda speller, eqn, name=_name: along(speller, eqn, name))
spells("reduce_norm")(lambda speller, eqn: along(speller, eqn, "norm"))


@spells("argmax", "argmin")
def position(speller: Speller, eqn: Eqn) -> list[Words]:
    x, axis = speller.exact(eqn.operands[0]), eqn.attrs["axis"]
    more = "" if len(x.shape) == 1 else f"axis = {axis}"
    return [called(eqn.op.name, x, shape=array(eqn.results[0]).shape, dtype=I32, more=more)]


@spells("cumsum", "cumprod")
def running(speller: Speller, eqn: Eqn) -> list[Words]:
    more = [f"axis = {eqn.attrs['axis']}"] + ["reverse = true"] * eqn.attrs["reverse"]
    return [same_shape(speller, eqn, ", ".join(more))]


@spells("argsort")
def order(speller: Speller, eqn: Eqn) -> list[Words]:
    more = [f"axis = {eqn.attrs['axis']}"] + ["descending = true"] * eqn.attrs["descending"]
    return [same_shape(speller, eqn, ", ".join(more))]


def same_shape(speller: Speller, eqn: Eqn, more: str) -> Words:
    x, type = speller.exact(eqn.operands[0]), array(eqn.results[0])
    return called(eqn.op.name, x, shape=type.shape, dtype=type.dtype, more=more)


@spells("fft")
def fft(speller: Speller, eqn: Eqn) -> list[Words]:
    x, axes = speller.exact(eqn.operands[0]), eqn.attrs["axes"]
    name = "ifft" if eqn.attrs["inverse"] else "fft"
    return [called(name, x, shape=x.shape, dtype=x.dtype, more=f"axis = {several(axes)}")]


@spells("rfft")
def rfft(speller: Speller, eqn: Eqn) -> list[Words]:
    return [same_shape(speller, eqn, f"axis = {eqn.attrs['axis']}")]


@spells("irfft")
def irfft(speller: Speller, eqn: Eqn) -> list[Words]:
    return [same_shape(speller, eqn, f"n = {size(eqn.attrs['size'])}, axis = {eqn.attrs['axis']}")]


# ---- Sums of products


@spells("dot_general")
def product(speller: Speller, eqn: Eqn) -> list[Words]:
    """`@` where it is a product of matrices or vectors, else a comprehension of sums."""
    lhs, rhs = eqn.operands
    type, at = array(eqn.results[0]), eqn.attrs
    (left, right), (lb, rb) = at["contract"], at["batch"]
    x, y = speller.exact(lhs), speller.exact(rhs)
    if len(left) == 1 and not lb:
        found = plain_product(x, y, left[0], right[0], type)
        if found is not None:
            return [found]
    if not lb and left == tuple(range(len(x.shape))) and right == tuple(range(len(y.shape))):
        product = f"{x.at(PRODUCT)} * {y.at(MINUS)}"
        return [Words(f"sum({product})", POSTFIX, (), type.dtype)]
    return [summed(speller, speller.atom(lhs, whole=True), speller.atom(rhs, whole=True), (left, right), (lb, rb), type)]


def plain_product(x: Words, y: Words, left: int, right: int, type: Tensor) -> Words | None:
    """A product of two arrays of one or two axes."""
    ranks = len(x.shape), len(y.shape)
    if ranks == (1, 1):
        return Words(f"{x.at(PRODUCT)} @ {y.at(MINUS)}", PRODUCT, (), type.dtype)
    if ranks == (1, 2):
        if right == 0:
            return Words(f"{x.at(PRODUCT)} @ {y.at(MINUS)}", PRODUCT, type.shape, type.dtype)
        return Words(f"{y.at(PRODUCT)} @ {x.at(MINUS)}", PRODUCT, type.shape, type.dtype)
    if ranks == (2, 1):
        if left == 1:
            return Words(f"{x.at(PRODUCT)} @ {y.at(MINUS)}", PRODUCT, type.shape, type.dtype)
        return Words(f"{y.at(PRODUCT)} @ {x.at(MINUS)}", PRODUCT, type.shape, type.dtype)
    if ranks == (2, 2):
        a = x.at(PRODUCT) if left == 1 else f"transpose({x.text})"
        b = y.at(MINUS) if right == 0 else f"transpose({y.text})"
        return Words(f"{a} @ {b}", PRODUCT, type.shape, type.dtype)
    return None


def summed(speller: Speller, x: Words, y: Words, contract: Any, batch: Any, type: Tensor) -> Words:
    """`[for i, j => sum(for k => x[i, k] * y[k, j])]` for any axes."""
    (left, right), (lb, rb) = contract, batch
    indices = iter(["i", "j", "k", "l", "m", "n", "p", "q", "r"] + [f"i{n}" for n in range(9)])
    taken: list[str] = []

    def fresh() -> str:
        found = speller.names.fresh(next(indices))
        taken.append(found)
        return found

    xi: dict[int, str] = {}
    yi: dict[int, str] = {}
    outer: list[str] = []
    for a, b in zip(lb, rb, strict=True):
        xi[a] = yi[b] = fresh()
        outer.append(f"{xi[a]} in 0..{size(x.shape[a])}")
    for a in range(len(x.shape)):
        if a not in lb and a not in left:
            xi[a] = fresh()
            outer.append(f"{xi[a]} in 0..{size(x.shape[a])}")
    for b in range(len(y.shape)):
        if b not in rb and b not in right:
            yi[b] = fresh()
            outer.append(f"{yi[b]} in 0..{size(y.shape[b])}")
    inner: list[str] = []
    for a, b in zip(left, right, strict=True):
        xi[a] = yi[b] = fresh()
        inner.append(f"{xi[a]} in 0..{size(x.shape[a])}")
    term = f"{indexed(x, xi)} * {indexed(y, yi)}"
    text = f"sum(for {', '.join(inner)} => {term})" if inner else term
    speller.names.used.difference_update(taken)
    if not outer:
        return Words(text, POSTFIX, (), type.dtype)
    return Words(f"[for {', '.join(outer)} => {text}]", ATOM, type.shape, type.dtype)


def indexed(x: Words, indices: dict[int, str]) -> str:
    if not indices:
        return x.text
    return f"{x.at(POSTFIX)}[{', '.join(indices[a] for a in range(len(x.shape)))}]"


# ---- Places known to the run


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
        begin = words if words.atomic else speller.let(start, words, speller.at or NOWHERE)
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
    speller.unchecked[0] = True
    text = f"{x.at(POSTFIX)}[{', '.join(trimmed(placed(where, axes, len(x.shape))))}]"
    if rank and before:
        order = (*range(before, before + rank), *range(before), *range(before + rank, type.rank))
        text = f"transpose({text}, axes = {order})"
    return [Words(text, POSTFIX, type.shape, type.dtype)]


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
    text = copied(speller, eqn, value)
    speller.unchecked[0] = True
    subscripts = trimmed(placed(where, axes, type.rank))
    speller.say(f"{text}[{', '.join(subscripts)}] {UPDATES[eqn.op.name]} {change.text}", eqn.span)
    return [Words(text, ATOM, type.shape, type.dtype)]
