"""How ops on the axes of arrays are spelled: shapes, parts, places, reductions."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn, Value
from difflang.ir.symbolic_dims import Dim, substitute
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.arrays.shape_manipulation import count
from difflang.unparse.fragments import (
    ATOM,
    POSTFIX,
    Shape,
    Unspelled,
    Words,
    agreed,
    called,
    exact,
    number,
    settled,
    size,
)
from difflang.unparse.rule_registry import spells
from difflang.unparse.unparser import Speller, array

LARGE = 1000  # a size that is larger than the numbers in programs


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
    shape = tuple([x.shape[list(axes).index(axis)] if axis in axes else 1 for axis in range(axes[0], type.rank)])
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
    single = axis == 0 and type.rank == 1 and all(array(v).shape == (1,) for v in eqn.operands)
    if single and all(w.shape == () for w in numbers):
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
    ranges = [written_range(*ends) for ends in zip(at["starts"], at["stops"], at["steps"], shape, strict=True)]
    return [taken(x, ranges, array(eqn.results[0]).shape)]


def taken(x: Words, ranges: Sequence[str], shape: Shape) -> Words:
    """A part of an array; a number has no parts."""
    if not ranges:
        return x
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
    how = tuple([eqn.attrs[part] for part in ("low", "high", "interior")])
    x = padded(speller, speller.exact(value), speller.words(filler), array(value).shape, how)
    return [Words(x.text, x.level, array(eqn.results[0]).shape, x.dtype)]


def padded(speller: Speller, x: Words, filler: Words, shape: Shape, how: tuple[Shape, Shape, Sequence[int]]) -> Words:
    """An array with so many places more before, after and between: `how`. Negative ones are cut off its ends."""
    low, high, interior = how
    if any(interior):
        wide = tuple([tuple([0 if cut(n) else n for n in side]) for side in (low, high)])
        spread = scattered(speller, x, filler, shape, wide[0], wide[1], interior)
        if not shortened(low, high):
            return spread
        left = tuple([tuple([n if cut(n) else 0 for n in side]) for side in (low, high)])
        return padded(speller, spread, filler, spread.shape, (left[0], left[1], (0,) * len(shape)))
    result = tuple([n + a + b for n, a, b in zip(shape, low, high, strict=True)])
    if shortened(low, high):
        x, low, high = without_ends(x, shape, low, high)
    if not any((*low, *high)):
        return Words(x.text, POSTFIX if shortened(*how[:2]) else x.level, result, x.dtype)
    if "pad" in speller.hidden:
        return scattered(speller, x, filler, x.shape, low, high, (0,) * len(shape))
    more = f"{sizes_of(low)}, {sizes_of(high)}"
    if filler.text not in ("0.0", "0"):
        more += f", {settled(filler).text}"
    return called("pad", x, shape=result, dtype=x.dtype, more=more)


def cut(n: Dim) -> bool:
    """Whether so many more places are fewer; of a size that is a name, whether they are where it is large."""
    at_large = substitute(n, lambda _: LARGE)
    return isinstance(at_large, int) and at_large < 0


def shortened(low: Shape, high: Shape) -> bool:
    return any(map(cut, (*low, *high)))


def without_ends(x: Words, shape: Shape, low: Shape, high: Shape) -> tuple[Words, Shape, Shape]:
    """What is left of an array that loses some of its ends, and how much more it gets at the others."""
    ranges = [
        written_range(-a if cut(a) else 0, n + b if cut(b) else n, 1, n)
        for a, b, n in zip(low, high, shape, strict=True)
    ]
    first, last = (tuple([0 if cut(n) else n for n in side]) for side in (low, high))
    return taken(x, ranges, ()), first, last


def sizes_of(shape: Shape) -> str:
    return size(shape[0]) if len(shape) == 1 else f"[{', '.join(map(size, shape))}]"


def scattered(
    speller: Speller, x: Words, filler: Words, old: Shape, low: Shape, high: Shape, steps: Sequence[int]
) -> Words:
    """An array with its elements further apart in a larger one: written into it."""
    spread = [(n - 1) * (s + 1) + 1 if n != 0 else 0 for n, s in zip(old, steps, strict=True)]
    shape = tuple([a + n + b for a, n, b in zip(low, spread, high, strict=True)])
    text = speller.names.fresh("t")
    speller.say(f"var {text} = {exact(filler, Tensor(x.dtype, shape)).text}", speller.at)
    ranges = [written_range(a, a + n, s + 1, whole) for a, n, s, whole in zip(low, spread, steps, shape, strict=True)]
    speller.say(f"{text}[{', '.join(ranges)}] = {x.text}", speller.at)
    return Words(text, ATOM, shape, x.dtype)


# ---- Reductions


def along(speller: Speller, eqn: Eqn, function: str) -> list[Words]:
    """A function that takes the axes that it goes along."""
    (value,), axes = eqn.operands, eqn.attrs["axes"]
    x, result = speller.exact(value), array(eqn.results[0])
    if not axes:
        return [x]
    more = "" if len(axes) == array(value).rank else f"axis = {several(axes)}"
    return [called(function, x, shape=result.shape, dtype=result.dtype, more=more)]


@spells("reduce_sum")
def total(speller: Speller, eqn: Eqn) -> list[Words]:
    """A sum; that of ones is how many there are."""
    (value,), axes = eqn.operands, eqn.attrs["axes"]
    x = speller.words(value)
    if x.text in ("1.0", "-1.0") and x.dtype.bits >= 32:
        many = count(tuple([array(value).shape[a] for a in axes]))
        return [number(many if x.text == "1.0" else -many, Tensor(x.dtype))]
    return along(speller, eqn, "sum")


for _name in ("prod", "max", "min", "all", "any"):
    spells(f"reduce_{_name}")(lambda speller, eqn, name=_name: along(speller, eqn, name))
spells("reduce_top")(lambda speller, eqn: along(speller, eqn, "max"))
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


@spells("recurrence")
def recurrence(speller: Speller, eqn: Eqn) -> list[Words]:
    """z[k] = a[k] z[k - 1] + b[k], step by step; just b[k] at the first place and where it begins anew."""
    axis, type = eqn.attrs["axis"], array(eqn.results[0])
    fresh, a, b = [front(speller, v, axis) for v in eqn.operands]
    order = (*range(1, axis + 1), 0, *range(axis + 1, type.rank))
    back, length = eqn.attrs["reverse"], type.shape[axis]
    item = Tensor(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))
    z, i, kept = [speller.names.fresh(n) for n in ("z", "i", "saved")]
    speller.say(f"var {z} = {exact(number(0, Tensor(type.dtype)), item).text}", eqn.span)
    over = f"reverse(iota({size(length)}))" if back else f"0..{size(length)}"
    first = size(length - 1) if back else "0"
    begins = f"{i} == {first}" if fresh.text == "false" else f"{fresh.text}[{i}] or {i} == {first}"
    step = f"{z} = where({begins}, {b.text}[{i}], {a.text}[{i}] * {z} + {b.text}[{i}])"
    speller.say(f"let {kept} = for {i} in {over} {{\n{step}\nyield {z}\n}}", eqn.span)
    text = f"reverse({kept})" if back else kept
    if axis:
        text = f"transpose({text}, axes = {order})"
    return [Words(text, POSTFIX if back or axis else ATOM, type.shape, type.dtype)]


def front(speller: Speller, value: Value, axis: int) -> Words:
    """An operand with an axis in front, with a name; truths that never hold as they are."""
    if speller.words(value).text == "false":
        return speller.words(value)
    x = speller.atom(value, whole=True)
    if axis == 0:
        return x
    order = (axis, *[a for a in range(len(x.shape)) if a != axis])
    text = speller.names.fresh("t")
    speller.say(f"let {text} = transpose({x.text}, axes = {order})", speller.at)
    return Words(text, ATOM, tuple([x.shape[a] for a in order]), x.dtype)


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
