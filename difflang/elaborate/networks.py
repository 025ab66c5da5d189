"""Convolution and pooling on images: `x` is [batch, height, width, channels], `w` [height, width, in, out]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.check.reports import Undecided
from difflang.check.types import show_type
from difflang.check.unify import unified
from difflang.elaborate.builtins import Taken, builtin
from difflang.elaborate.context import Context
from difflang.elaborate.mismatches import no_conversion
from difflang.elaborate.operators import elementwise
from difflang.elaborate.terms import Array, Term, Text, Tuple

if TYPE_CHECKING:
    from difflang.elaborate.arguments import Args

Pair = tuple[int, int]


def pair(cx: Context, took: Taken, name: str, default: int) -> Pair:
    """One number for both axes, or a tuple of two."""
    if not took.has(name):
        return default, default
    term, span = took.found[name]
    items = term.items if isinstance(term, Tuple) else (term, term)
    found = [cx.static(t, span, f"`{name}`") for t in items]
    if len(found) != 2 or any(not isinstance(n, int) or n < 1 for n in found):
        raise cx.error("DL0338", f"`{name}` is a positive number, or a tuple of two", span)
    first, second = found
    assert isinstance(first, int) and isinstance(second, int)
    return first, second


def padding(cx: Context, took: Taken, sizes: Pair, window: Pair, strides: Pair) -> tuple[Pair, Pair]:
    """`"valid"`: none; `"same"`: as many places as strides fit into the image; or a number for every side."""
    if not took.has("padding"):
        return (0, 0), (0, 0)
    term, span = took.found["padding"]
    if isinstance(term, Text):
        if term.value == "valid":
            return (0, 0), (0, 0)
        if term.value != "same":
            raise cx.error("DL0338", 'padding is "valid", "same" or a number', span)
        missing = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(sizes, window, strides, strict=True)]
        return (missing[0] // 2, missing[0] - missing[0] // 2), (missing[1] // 2, missing[1] - missing[1] // 2)
    amount = cx.static(term, span, "`padding`")
    if not isinstance(amount, int) or amount < 0:
        raise cx.error("DL0338", 'padding is "valid", "same" or a number', span)
    return (amount, amount), (amount, amount)


def image(cx: Context, took: Taken, name: str) -> tuple[Array, Pair]:
    x = took.array(name)
    if x.tensor.rank != 4:
        raise cx.error(
            "DL0313", "images are [batch, height, width, channels]", took.span(name), f"this is {show_type(x.tensor)}"
        )
    height, width = x.tensor.shape[1:3]
    if not isinstance(height, int) or not isinstance(width, int):
        if cx.root.definition:
            raise Undecided
        raise cx.error("DL0305", "the size of an image must be known before the program runs", took.span(name))
    return x, (height, width)


@builtin("conv2d")
def conv2d(cx: Context, args: Args, name: str) -> Term:
    """Cross-correlation of images with a kernel."""
    took = Taken(cx, args, name, "x w stride? padding?")
    x, sizes = image(cx, took, "x")
    w = took.array("w")
    spans = (took.span("x"), took.span("w"))
    if w.tensor.rank != 4:
        raise cx.error("DL0313", "a kernel is [height, width, in, out]", spans[1], f"this is {show_type(w.tensor)}")
    if not unified(x.tensor.dtype, w.tensor.dtype):
        raise no_conversion(cx, name, args.span, [x, w], spans)
    kh, kw = w.tensor.shape[:2]
    if not isinstance(kh, int) or not isinstance(kw, int):
        raise Undecided
    strides = pair(cx, took, "stride", 1)
    edges = padding(cx, took, sizes, (kh, kw), strides)
    return cx.op(
        "conv2d",
        args.span,
        x,
        w,
        spans=spans,
        strides=strides,
        padding=edges,
        input_dilation=(1, 1),
        kernel_dilation=(1, 1),
    )


@builtin("max_pool2d", "avg_pool2d", "sum_pool2d")
def pool(cx: Context, args: Args, name: str) -> Term:
    """The greatest, mean or summed value in each window, which moves by its own size unless `stride` says otherwise.

    Padding never wins a maximum, and counts as zeros in a mean.
    """
    took = Taken(cx, args, name, "x window stride? padding?")
    x, sizes = image(cx, took, "x")
    window = pair(cx, took, "window", 1)
    strides = pair(cx, took, "stride", 1) if took.has("stride") else window
    edges = padding(cx, took, sizes, window, strides)
    kind = "max_pool2d" if name == "max_pool2d" else "sum_pool2d"
    result = cx.op(kind, args.span, x, spans=(took.span("x"),), window=window, strides=strides, padding=edges)
    if name != "avg_pool2d":
        return result
    size = Array(cx.emit("const", args.span, value=window[0] * window[1], type=result.tensor))
    return elementwise(cx, "div", args.span, (result, size))
