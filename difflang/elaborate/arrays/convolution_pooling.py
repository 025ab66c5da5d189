"""Convolution and pooling in one, two and three dimensions.

Images are [batch, axes of space, channels], kernels [axes of space, channels in, channels out].
"""

from __future__ import annotations

from typing import Any

from difflang.base.wording import count_of
from difflang.elaborate.arrays.reductions import require_floats
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import require_rank
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.reports.operand_mismatches import dtype_mismatch_error
from difflang.elaborate.terms import Array, Term, TextTerm, Tuple
from difflang.ir.op import UndefinedPrimal
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ops.signal.convolution import image_cotangent
from difflang.types.language_types import show_type
from difflang.types.type_errors import make_error
from difflang.types.unify import unify_dtypes

Sizes = tuple[Dim, ...]
Margins = tuple[tuple[Dim, Dim], ...]
SPACE = {"1d": "length", "2d": "height, width", "3d": "depth, height, width"}
PADDING = 'padding is "valid", "same", a number, or a tuple of one number for each axis'


def per_space_axis(cx: ElabContext, took: BuiltinArgs, name: str, rank: int, default: int, least: int = 1) -> Sizes:
    """One size for all axes of space, or a tuple of one for each."""
    if not took.is_present(name):
        return (default,) * rank
    term, span = took.by_name[name]
    items = term.items if isinstance(term, Tuple) else (term,) * rank
    found = [cx.static(t, span, f"`{name}`") for t in items]
    found = [n for n in found if isinstance(n, Poly) or n >= least]
    if len(found) != rank or len(items) != rank:
        what = "a positive number" if least else "a number that is not negative"
        raise cx.error("DL0338", f"`{name}` is {what}, or a tuple of {rank}", span)
    return tuple(found)


def same_padding(sizes: Sizes, window: Sizes, strides: Sizes) -> Margins:
    """The padding for which the output has one place per stride, as in TensorFlow's `SAME`."""
    found: list[tuple[Dim, Dim]] = []
    for n, k, s in zip(sizes, window, strides, strict=True):
        missing = (-(-n // s) - 1) * s + k - n
        missing = max(missing, 0) if isinstance(missing, int) else missing
        found.append((missing // 2, missing - missing // 2))
    return tuple(found)


def padding_argument(cx: ElabContext, took: BuiltinArgs, sizes: Sizes, window: Sizes, strides: Sizes) -> Margins:
    """`"valid"` is none, `"same"` gives one output place per stride; else a number for both ends of each axis."""
    word = padding_word(cx, took)
    if word == "same":
        return same_padding(sizes, window, strides)
    amounts = (0,) * len(sizes) if word == "valid" else per_space_axis(cx, took, "padding", len(sizes), 0, least=0)
    return tuple((amount, amount) for amount in amounts)


def window_padding(
    cx: ElabContext, took: BuiltinArgs, name: str, what: str, sizes: Sizes, window: Sizes, strides: Sizes
) -> Margins:
    """The padding of an image for the windows of argument `what`.

    Errors: DL0338 for a window that is longer than the padded image.
    """
    edges = padding_argument(cx, took, sizes, window, strides)
    # "same" always fits; it pads an empty image with nothing, and its output is empty too.
    if padding_word(cx, took) == "same":
        return edges
    x, axes = took.array("x"), SPACE[name[-2:]].split(", ")
    for axis, n, k, (low, high) in zip(axes, sizes, window, edges, strict=True):
        there = low + n + high
        lacks = k - there
        if isinstance(lacks, int) and lacks > 0:
            way = max([0, *[-(-m // 2) for n, k in zip(sizes, window, strict=True) if isinstance(m := k - n, int)]])
            raise make_error(
                "DL0338",
                f"`{name}`: the window is larger than the image: {k} along the {axis}, "
                f"but the {'padded ' * (there != n)}image has {there}",
                (took.span(what), f"the window covers {' x '.join(map(str, window))}"),
                (took.span("x"), f"this is {show_type(x.tensor)}" + f", padded by {low} on each side" * (low != 0)),
                help=f'write `padding = "same"`, or `padding = {way}` or more; or use a smaller window',
            )
    return edges


def padding_word(cx: ElabContext, took: BuiltinArgs) -> str | None:
    """The padding if it is a word, else None. Errors: DL0338 for an unknown word."""
    if not took.is_present("padding"):
        return "valid"
    term, span = took.by_name["padding"]
    if not isinstance(term, TextTerm):
        return None
    if term.value not in ("valid", "same"):
        raise cx.error("DL0338", PADDING, span)
    return term.value


def image_argument(cx: ElabContext, took: BuiltinArgs, name: str, kind: str) -> tuple[Array, Sizes]:
    """An image and its sizes along the spatial axes."""
    x, span = require_rank(took.array(name)), took.span(name)
    if x.tensor.rank != int(kind[0]) + 2:
        raise cx.error("DL0313", f"images are [batch, {SPACE[kind]}, channels]", span, f"this is {show_type(x.tensor)}")
    return x, static_sizes(cx, x.tensor.shape[1:-1], span)


def static_sizes(cx: ElabContext, sizes: Sizes, span: Any) -> Sizes:
    """The sizes, which are names only while a definition is checked. Errors: DL0305."""
    if cx.root.definition_only or all(isinstance(n, int) for n in sizes):
        return sizes
    raise cx.error("DL0305", "the size of an image must be known before the program runs", span)


def kernel_argument(cx: ElabContext, took: BuiltinArgs, x: Array, kind: str) -> tuple[Array, Sizes]:
    """A kernel for an image, and its sizes along the spatial axes."""
    w, span = require_rank(took.array("w")), took.span("w")
    if w.tensor.rank != x.tensor.rank:
        raise cx.error("DL0313", f"a kernel is [{SPACE[kind]}, in, out]", span, f"this is {show_type(w.tensor)}")
    if not unify_dtypes(x.tensor.dtype, w.tensor.dtype):
        raise dtype_mismatch_error(took.name, took.args.span, [x, w], (took.span("x"), span))
    taps = static_sizes(cx, w.tensor.shape[:-2], span)
    if 0 in taps:
        raise cx.error("DL0338", f"`{took.name}`: the kernel is empty", span, f"this is {show_type(w.tensor)}")
    return w, taps


def groups_argument(cx: ElabContext, took: BuiltinArgs) -> int:
    groups = took.integer("groups", 1)
    if groups < 1:
        raise cx.error("DL0338", "`groups` is a positive number", took.span("groups"))
    return groups


@builtin("conv1d", "conv2d", "conv3d", takes="x w stride? padding? dilation? groups?")
def conv(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """Cross-correlation of images with a kernel."""
    took, kind = BuiltinArgs(cx, args, name), name[-2:]
    x, sizes = image_argument(cx, took, "x", kind)
    w, taps = kernel_argument(cx, took, x, kind)
    strides, dilation = (
        per_space_axis(cx, took, "stride", len(sizes), 1),
        per_space_axis(cx, took, "dilation", len(sizes), 1),
    )
    edges = window_padding(cx, took, name, "w", sizes, dilated_sizes(taps, dilation), strides)
    return cx.emit_op(
        "conv",
        args.span,
        x,
        w,
        spans=(took.span("x"), took.span("w")),
        display_name=name,
        strides=strides,
        padding=edges,
        input_dilation=(1,) * len(sizes),
        kernel_dilation=dilation,
        groups=groups_argument(cx, took),
    )


def dilated_sizes(taps: Sizes, dilation: Sizes) -> Sizes:
    return tuple((k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True))


@builtin("conv1d_transpose", "conv2d_transpose", "conv3d_transpose", takes="x w stride? padding? dilation? groups?")
def conv_transpose(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The adjoint of the convolution with the same kernel and options; `w` is [axes of space, out, in] here.

    Several input sizes can convolve to one output size: the smallest is chosen, or the stride times this size with
    `padding = "same"`.
    """
    took, kind = BuiltinArgs(cx, args, name), name[4:6]
    x, sizes = image_argument(cx, took, "x", kind)
    require_floats(cx, x, took.span("x"), name)
    w, taps = kernel_argument(cx, took, x, kind)
    strides, dilation = (
        per_space_axis(cx, took, "stride", len(sizes), 1),
        per_space_axis(cx, took, "dilation", len(sizes), 1),
    )
    groups, window = groups_argument(cx, took), dilated_sizes(taps, dilation)
    channels, given = w.tensor.shape[-1], x.tensor.shape[-1]
    if not cx.unifier.equal(channels, given) or (isinstance(given, int) and given % groups):
        message = f"`{name}`: the number of channels differs: {given} and {channels}"
        if cx.unifier.equal(channels, given):
            message = f"`{name}`: {count_of(given, 'channel')} cannot be divided into {groups} groups"
        raise cx.error("DL0312", message, took.span("w"), f"this is {show_type(w.tensor)}")
    whole, edges = transposed_size(cx, took, sizes, window, strides)
    before = x.tensor.reshaped(x.tensor.shape[0], *whole, w.tensor.shape[-2] * groups)
    cx.builder.span = args.span
    ones = (1,) * len(sizes)
    # The op's own transpose rule: `x` plays the cotangent of a convolution's image.
    ct, w_value = cx.builder.capture(x.value), cx.builder.capture(w.value)
    return Array(
        image_cotangent(
            ct, UndefinedPrimal(before), w_value, strides=strides, padding=edges, input_dilation=ones,
            kernel_dilation=dilation, groups=groups,
        )
    )  # fmt: skip


def transposed_size(
    cx: ElabContext, took: BuiltinArgs, sizes: Sizes, window: Sizes, strides: Sizes
) -> tuple[Sizes, Margins]:
    """The size of the image whose convolution has this size, and that image's padding."""
    if padding_word(cx, took) == "same":
        whole = tuple(n * s for n, s in zip(sizes, strides, strict=True))
        return whole, same_padding(whole, window, strides)
    edges = padding_argument(cx, took, sizes, window, strides)
    rows = zip(sizes, window, strides, edges, strict=True)
    whole = tuple((n - 1) * s + k - low - high if n != 0 else 0 for n, k, s, (low, high) in rows)
    if any(isinstance(n, int) and n < 0 for n in whole):
        raise cx.error("DL0338", "the padding removes more than there is", took.span("padding"))
    return whole, edges


@builtin(*[f"{what}_pool{kind}" for what in ("max", "avg", "sum") for kind in SPACE], takes="x window stride? padding?")
def pooling(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The maximum, mean or sum of each window; the stride is the window's own size unless `stride` is passed.

    Padding never wins a maximum, and counts as zeros in a mean.
    """
    took, kind = BuiltinArgs(cx, args, name), name[-2:]
    x, sizes = image_argument(cx, took, "x", kind)
    window = per_space_axis(cx, took, "window", len(sizes), 1)
    strides = per_space_axis(cx, took, "stride", len(sizes), 1) if took.is_present("stride") else window
    edges = window_padding(cx, took, name, "window", sizes, window, strides)
    op = "max_pool" if name.startswith("max") else "sum_pool"
    spans = (took.span("x"),)
    result = cx.emit_op(op, args.span, x, spans=spans, display_name=name, window=window, strides=strides, padding=edges)
    if not name.startswith("avg"):
        return result
    size: Dim = 1
    for k in window:
        size = size * k
    mean = Array(cx.emit("const", args.span, value=size, type=result.tensor))
    return elementwise(cx, "div", args.span, (result, mean))
