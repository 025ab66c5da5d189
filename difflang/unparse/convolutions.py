"""Unparse rules for convolutions, pooling and windows of images: library functions, with explicit padding."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import Tensor
from difflang.unparse.array_ops import format_axes, pad_fragment
from difflang.unparse.fragments import POSTFIX, CannotUnparse, Fragment, call_fragment, number_fragment
from difflang.unparse.indexing import scatter_into_zeros
from difflang.unparse.unparser import Unparser, tensor_type, unparse_rule

Ints = tuple[int, ...]
Margins = Sequence[tuple[int, int]]


def pad_image(writer: Unparser, x: Fragment, padding: Margins, fill: float, gaps: Ints) -> Fragment:
    """An image padded at its ends, cropped for negative amounts, with gaps between its pixels."""
    low, high = ((0, *[margin[i] for margin in padding], 0) for i in (0, 1))
    filler = number_fragment(fill, Tensor(x.dtype))
    return pad_fragment(writer, x, filler, x.shape, (low, high, (0, *gaps, 0)))


def symmetric_padding(padding: Margins) -> str:
    """The `padding` option for equal amounts at both ends of each axis; empty if they differ or are zero."""
    amounts = tuple([low for low, high in padding if low == high and low >= 0])
    if len(amounts) < len(padding) or not any(amounts):
        return ""
    return f"padding = {amounts[0] if len(set(amounts)) == 1 else format_axes(amounts)}"


def option_text(**given: Ints | int) -> str:
    """The options that are not 1: one number for all axes, or a tuple."""
    texts: list[str] = []
    for name, value in given.items():
        values = (value,) if isinstance(value, int) else value
        if name == "window" or any(n != 1 for n in values):
            same = len(set(values)) == 1
            texts.append(f"{name} = {values[0] if same else format_axes(values)}")
    return ", ".join(texts)


@unparse_rule("conv")
def convolution(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    x, w = [writer.full_shape(v) for v in eqn.operands]
    at, type = eqn.attrs, tensor_type(eqn.results[0])
    if 0 in type.shape:
        raise CannotUnparse("a convolution of nothing")
    more = option_text(stride=at["strides"], dilation=at["kernel_dilation"], groups=at["groups"])
    gaps = tuple([d - 1 for d in at["input_dilation"]])
    # The library's convolution has no input dilation and only symmetric padding: else the image itself is padded.
    if not any(gaps) and (edges := symmetric_padding(at["padding"])):
        image, more = x, ", ".join([more, edges] if more else [edges])
    else:
        image = pad_image(writer, x, at["padding"], 0.0, gaps)
    return [call_fragment(f"conv{type.rank - 2}d", image, w, shape=type.shape, dtype=type.dtype, more=more)]


@unparse_rule("max_pool", "sum_pool")
def pooling(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    x, at, type = writer.full_shape(eqn.operands[0]), eqn.attrs, tensor_type(eqn.results[0])
    if 0 in type.shape:
        raise CannotUnparse("a pool of nothing")
    fill = float("-inf") if eqn.op.name == "max_pool" else 0.0
    image = pad_image(writer, x, at["padding"], fill, (0,) * len(at["window"]))
    stride = {} if at["strides"] == at["window"] else {"stride": at["strides"]}
    more = option_text(window=at["window"], **stride)
    # By default the stride of a pool is its window, so a stride of 1 must be written.
    if stride and "stride" not in more:
        more += ", stride = 1"
    return [call_fragment(f"{eqn.op.name}{type.rank - 2}d", image, shape=type.shape, dtype=type.dtype, more=more)]


def window_subscripts(fit: Ints, window: Ints, strides: Ints) -> str:
    """Subscripts of an image that read all windows: the axes of positions first, then those of a window."""
    n, found = len(window), [".."]
    for axis, (count, size, stride) in enumerate(zip(fit, window, strides, strict=True)):
        first, inside = ", newaxis" * (2 * n - 1 - axis), ", newaxis" * (n - 1 - axis)
        steps = f" * {stride}" * (stride != 1)
        within = f"iota({size})[..{inside}]" if inside else f"iota({size})"
        found.append(f"iota({count})[..{first}]{steps} + {within}")
    return ", ".join(found)


@unparse_rule("windows")
def windows(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """All windows of an image, as one lookup."""
    x, at, type = writer.full_shape(eqn.operands[0]), eqn.attrs, tensor_type(eqn.results[0])
    fit = static_sizes(type.shape[1 : 1 + len(at["window"])])
    writer.unchecked[0] = True
    text = f"{x.at(POSTFIX)}[{window_subscripts(fit, at['window'], at['strides'])}]"
    return [Fragment(text, POSTFIX, type.shape, type.dtype)]


@unparse_rule("fold")
def fold(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """Windows added into an image at their positions."""
    (value,), at, type = eqn.operands, eqn.attrs, tensor_type(eqn.results[0])
    n, shape = len(at["size"]), tensor_type(value).shape
    fit, window = static_sizes(shape[1 : n + 1]), static_sizes(shape[n + 1 : -1])
    return [
        scatter_into_zeros(writer, eqn, window_subscripts(fit, window, at["strides"]), writer.full_shape(value), type)
    ]


def static_sizes(sizes: Sequence[object]) -> Ints:
    """The sizes as numbers. Errors: CannotUnparse for a symbolic size."""
    found = tuple([n for n in sizes if isinstance(n, int)])
    if len(found) != len(sizes):
        raise CannotUnparse("windows of an image whose size is a name")
    return found
