"""How convolutions, pools and windows of images are spelled: by functions of as many axes, padding written out."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import Tensor
from difflang.unparse.array_ops import padded, several
from difflang.unparse.fragments import POSTFIX, Unspelled, Words, called, number
from difflang.unparse.indexing import added
from difflang.unparse.rule_registry import spells
from difflang.unparse.unparser import Speller, array

Ints = tuple[int, ...]
Margins = Sequence[tuple[int, int]]


def framed(speller: Speller, x: Words, padding: Margins, fill: float, gaps: Ints) -> Words:
    """An image with so many places more at its ends, negative ones fewer, and gaps between its pixels."""
    low, high = ((0, *[margin[i] for margin in padding], 0) for i in (0, 1))
    filler = number(fill, Tensor(x.dtype))
    return padded(speller, x, filler, x.shape, (low, high, (0, *gaps, 0)))


def even(padding: Margins) -> str:
    """The option that pads both ends of each axis alike; none where they differ, or nothing is padded."""
    amounts = tuple([low for low, high in padding if low == high and low >= 0])
    if len(amounts) < len(padding) or not any(amounts):
        return ""
    return f"padding = {amounts[0] if len(set(amounts)) == 1 else several(amounts)}"


def options(**given: Ints | int) -> str:
    """The options that say something: one number for all axes, or a tuple."""
    texts: list[str] = []
    for name, value in given.items():
        values = (value,) if isinstance(value, int) else value
        if name == "window" or any(n != 1 for n in values):
            same = len(set(values)) == 1
            texts.append(f"{name} = {values[0] if same else several(values)}")
    return ", ".join(texts)


@spells("conv")
def convolution(speller: Speller, eqn: Eqn) -> list[Words]:
    x, w = [speller.exact(v) for v in eqn.operands]
    at, type = eqn.attrs, array(eqn.results[0])
    if 0 in type.shape:
        raise Unspelled("a convolution of nothing")
    more = options(stride=at["strides"], dilation=at["kernel_dilation"], groups=at["groups"])
    gaps = tuple([d - 1 for d in at["input_dilation"]])
    if not any(gaps) and (edges := even(at["padding"])):
        image, more = x, ", ".join([more, edges] if more else [edges])
    else:
        image = framed(speller, x, at["padding"], 0.0, gaps)
    return [called(f"conv{type.rank - 2}d", image, w, shape=type.shape, dtype=type.dtype, more=more)]


@spells("max_pool", "sum_pool")
def pool(speller: Speller, eqn: Eqn) -> list[Words]:
    x, at, type = speller.exact(eqn.operands[0]), eqn.attrs, array(eqn.results[0])
    if 0 in type.shape:
        raise Unspelled("a pool of nothing")
    fill = float("-inf") if eqn.op.name == "max_pool" else 0.0
    image = framed(speller, x, at["padding"], fill, (0,) * len(at["window"]))
    stride = {} if at["strides"] == at["window"] else {"stride": at["strides"]}
    more = options(window=at["window"], **stride)
    if stride and "stride" not in more:
        more += ", stride = 1"
    return [called(f"{eqn.op.name}{type.rank - 2}d", image, shape=type.shape, dtype=type.dtype, more=more)]


def positions(fit: Ints, window: Ints, strides: Ints) -> str:
    """Where each place of each window lies, as subscripts of an image: places first, then the axes of a window."""
    n, found = len(window), [".."]
    for axis, (count, size, stride) in enumerate(zip(fit, window, strides, strict=True)):
        first, inside = ", newaxis" * (2 * n - 1 - axis), ", newaxis" * (n - 1 - axis)
        steps = f" * {stride}" * (stride != 1)
        within = f"iota({size})[..{inside}]" if inside else f"iota({size})"
        found.append(f"iota({count})[..{first}]{steps} + {within}")
    return ", ".join(found)


@spells("windows")
def windows(speller: Speller, eqn: Eqn) -> list[Words]:
    """All windows of an image, read at their places."""
    x, at, type = speller.exact(eqn.operands[0]), eqn.attrs, array(eqn.results[0])
    fit = numbers(type.shape[1 : 1 + len(at["window"])])
    speller.unchecked[0] = True
    text = f"{x.at(POSTFIX)}[{positions(fit, at['window'], at['strides'])}]"
    return [Words(text, POSTFIX, type.shape, type.dtype)]


@spells("fold")
def fold(speller: Speller, eqn: Eqn) -> list[Words]:
    """Windows added up where they lie."""
    (value,), at, type = eqn.operands, eqn.attrs, array(eqn.results[0])
    n, shape = len(at["size"]), array(value).shape
    fit, window = numbers(shape[1 : n + 1]), numbers(shape[n + 1 : -1])
    return [added(speller, eqn, positions(fit, window, at["strides"]), speller.exact(value), type)]


def numbers(sizes: Sequence[object]) -> Ints:
    """Errors: Unspelled where a size is a name."""
    found = tuple([n for n in sizes if isinstance(n, int)])
    if len(found) != len(sizes):
        raise Unspelled("windows of an image whose size is a name")
    return found
