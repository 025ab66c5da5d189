"""Convolution in any number of dimensions, with strides, dilations and groups. Its transposes are convolutions too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray, TransposedArray
from difflang.ir.graph import Value
from difflang.ir.op import Partial, TypeSolver, UndefinedPrimal
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import accumulated, any_broadcast_like
from difflang.ops.arrays.shape_manipulation import pad_reference, reshape, reverse, transpose
from difflang.ops.device_regions import whole_axes
from difflang.ops.op_factories import OpExample, multilinear_op, static_size, tensor_type

Ints = tuple[int, ...]
Sizes = tuple[Dim, ...]
# Before and after, for each spatial axis.
PaddingPairs = tuple[tuple[Dim, Dim], ...]
Operand = Value | UndefinedPrimal


def dilated_size(size: Dim, dilation: Dim) -> Dim:
    """The extent of `size` elements with `dilation - 1` gaps between them."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def window_count(size: Dim, kernel: Dim, stride: int, margin: tuple[Dim, Dim]) -> Dim:
    """How often a window fits; sizes are those after dilation."""
    space = size + margin[0] + margin[1] - kernel
    return max(space // stride + 1, 0) if isinstance(space, int) else space // stride + 1


def dilated_sizes(sizes: Sizes, dilations: Sizes) -> Sizes:
    return tuple(map(dilated_size, sizes, dilations))


def window_counts(sizes: Sizes, kernel: Sizes, strides: Ints, padding: PaddingPairs) -> Sizes:
    """How many windows fit along each spatial axis."""
    return tuple(map(window_count, sizes, kernel, strides, padding))


def check_image_type(same: TypeSolver, x: Tensor, *of_each_axis: Sequence[int | tuple[Dim, Dim]]) -> None:
    same.accepts(x, FLOATS)
    same.require(x.rank > 2, "an image is [batch, axes of space, channels], not {}", x)
    same.require(all(len(values) == x.rank - 2 for values in of_each_axis), "{} has {} axes of space", x, x.rank - 2)


def conv_type(
    same: TypeSolver,
    x: Tensor,
    w: Tensor,
    *,
    strides: Ints,
    padding: PaddingPairs,
    input_dilation: Ints,
    kernel_dilation: Ints,
    groups: int,
) -> Tensor:
    check_image_type(same, x, strides, padding, input_dilation, kernel_dilation)
    same.dtype(x, w)
    same.require(w.rank == x.rank, "a kernel is [axes of space, channels in, channels out], not {}", w)
    same.size(x.shape[-1], w.shape[-2] * groups, "number of channels")
    channels = w.shape[-1]
    even = not isinstance(channels, int) or channels % groups == 0
    same.require(even, "{} channels do not divide into {} groups", channels, groups)
    image, kernel = dilated_sizes(x.shape[1:-1], input_dilation), dilated_sizes(w.shape[:-2], kernel_dilation)
    return x.reshaped(x.shape[0], *window_counts(image, kernel, strides, padding), channels)


def conv_reference(
    x: Array,
    w: Array,
    *,
    strides: Ints,
    padding: PaddingPairs,
    input_dilation: Ints,
    kernel_dilation: Ints,
    groups: int,
) -> Array:
    half = x.dtype.itemsize == 2
    image, kernel = (a.astype(np.float32) if half else a for a in (x, w))
    low, high = ((0, *(static_size(margin[i]) for margin in padding), 0) for i in (0, 1))
    gaps = (0, *(d - 1 for d in input_dilation), 0)
    image = pad_reference(image, np.zeros((), image.dtype), low=low, high=high, interior=gaps)
    axes = tuple(range(1, x.ndim - 1))
    reach = tuple(map(static_size, dilated_sizes(w.shape[:-2], kernel_dilation)))
    if any(n < k for n, k in zip(image.shape[1:-1], reach, strict=True)):
        none = tuple((0, 0) for _ in reach)
        return np.zeros((x.shape[0], *window_counts(image.shape[1:-1], reach, strides, none), w.shape[-1]), x.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(image, reach, axis=axes)
    windows = windows[(slice(None), *(slice(None, None, s) for s in strides))]
    windows = windows[(..., *(slice(None, None, d) for d in kernel_dilation))]
    taps = (*range(-len(axes), 0), -len(axes) - 1)
    by_group = zip(np.split(windows, groups, len(axes) + 1), np.split(kernel, groups, -1), strict=True)
    found = [np.tensordot(ws, k, axes=(taps, tuple(range(k.ndim - 1)))) for ws, k in by_group]
    return np.concatenate(found, -1).astype(x.dtype)


def conv_lower(jax: Jax, x: JaxArray | TransposedArray, w: JaxArray | TransposedArray, **attrs: Any) -> JaxArray:
    image = x.array if isinstance(x, TransposedArray) else x
    return jax.lax.convert_element_type(conv_sums(jax, x, w, **attrs), image.dtype)


def conv_sums(
    jax: Jax,
    x: JaxArray | TransposedArray,
    w: JaxArray | TransposedArray,
    *,
    strides: Ints,
    padding: PaddingPairs,
    input_dilation: Ints,
    kernel_dilation: Ints,
    groups: int,
) -> JaxArray:
    """A convolution before it is rounded: of 16-bit floats the sums in f32, which devices may have shares of."""
    space = "".join(map(str, range(len(strides))))
    image, image_axes = operand_axis_order(x, f"N{space}C")
    kernel, kernel_axes = operand_axis_order(w, f"{space}IO")
    half = image.dtype.itemsize == 2
    # Along space or groups that are split XLA's partitioner computes some convolutions wrong, and fails at others.
    whole = space if groups == 1 else f"{space}CIO"
    image = whole_axes(jax, image, [i for i, n in enumerate(image_axes) if n in whole])
    kernel = whole_axes(jax, kernel, [i for i, n in enumerate(kernel_axes) if n in whole])
    result = jax.lax.conv_general_dilated(
        image, kernel, strides, padding, input_dilation, kernel_dilation,
        (image_axes, kernel_axes, f"N{space}C"), groups,
        precision=jax.lax.Precision.HIGHEST, preferred_element_type=np.dtype(np.float32) if half else image.dtype,
    )  # fmt: skip
    return whole_axes(jax, result, [i for i, n in enumerate(f"N{space}C") if n in whole])


def operand_axis_order(x: JaxArray | TransposedArray, axes: str) -> tuple[JaxArray, str]:
    """An operand before its deferred transpose, and its layout: XLA permutes axes as part of a convolution."""
    if not isinstance(x, TransposedArray):
        return x, axes
    return x.array, "".join(axes[x.order.index(place)] for place in range(len(axes)))


# ---- Cotangents


# Transposing exchanges strides and dilations, which is why one op with both is closed under it.
def image_cotangent(
    ct: Value,
    x: Operand,
    w: Value,
    *,
    strides: Sizes,
    padding: PaddingPairs,
    input_dilation: Ints,
    kernel_dilation: Sizes,
    groups: int,
) -> Value:
    """`ct`, dilated by the strides, convolved with the kernel rotated by half a turn."""
    image, kernel = (
        dilated_sizes(tensor_type(x).shape[1:-1], input_dilation),
        dilated_sizes(tensor_type(w).shape[:-2], kernel_dilation),
    )
    ct_sizes = dilated_sizes(tensor_type(ct).shape[1:-1], strides)
    lows = [k - 1 - margin[0] for k, margin in zip(kernel, padding, strict=True)]
    highs = [n + k - 1 - c - low for n, k, c, low in zip(image, kernel, ct_sizes, lows, strict=True)]
    flipped = swap_channels(reverse.one(w, axes=tuple(range(len(strides)))), groups)
    return conv.one(
        ct, flipped, strides=input_dilation, padding=tuple(zip(lows, highs, strict=True)), input_dilation=strides,
        kernel_dilation=kernel_dilation, groups=groups,
    )  # fmt: skip


def swap_channels(w: Value, groups: int) -> Value:
    """The kernel with input and output channels exchanged, group by group."""
    *space, inward, outward = tensor_type(w).shape
    n = len(space)
    if groups == 1:
        return transpose.one(w, perm=(*range(n), n + 1, n))
    grouped = reshape.one(w, shape=(*space, inward, groups, outward // groups))
    swapped = transpose.one(grouped, perm=(*range(n), n + 2, n + 1, n))
    return reshape.one(swapped, shape=(*space, outward // groups, inward * groups))


def kernel_cotangent(
    ct: Value,
    x: Value,
    w: Operand,
    *,
    strides: Ints,
    padding: PaddingPairs,
    input_dilation: Ints,
    kernel_dilation: Ints,
    groups: int,
) -> Value:
    """The image, its channels as the batch, convolved with `ct` as a kernel whose channels are the batch."""
    image, kernel = (
        dilated_sizes(tensor_type(x).shape[1:-1], input_dilation),
        dilated_sizes(tensor_type(w).shape[:-2], kernel_dilation),
    )
    dilated = dilated_sizes(tensor_type(ct).shape[1:-1], strides)
    highs = [k - 1 + c - n - low for n, k, c, (low, _) in zip(image, kernel, dilated, padding, strict=True)]
    margins = tuple((low, high) for (low, _), high in zip(padding, highs, strict=True))
    last = tensor_type(x).rank - 1
    space = range(1, last)
    result = conv.one(
        swap_batch_and_channels(x, groups), transpose.one(ct, perm=(*space, 0, last)), strides=kernel_dilation,
        padding=margins, input_dilation=input_dilation, kernel_dilation=strides, groups=groups,
    )  # fmt: skip
    return transpose.one(result, perm=(*space, 0, last))


def swap_batch_and_channels(x: Value, groups: int) -> Value:
    """Channels and batch exchanged, group by group."""
    batch, *space, channels = tensor_type(x).shape
    n = len(space)
    if groups == 1:
        return transpose.one(x, perm=(n + 1, *range(1, n + 1), 0))
    grouped = reshape.one(x, shape=(batch, *space, groups, channels // groups))
    swapped = transpose.one(grouped, perm=(n + 2, *range(1, n + 2), 0))
    return reshape.one(swapped, shape=(channels // groups, *space, batch * groups))


def conv_example(
    x: Ints,
    w: Ints,
    strides: Ints,
    padding: PaddingPairs,
    *,
    gaps: Ints | None = None,
    dilation: Ints | None = None,
    groups: int = 1,
) -> OpExample:
    ones = tuple(1 for _ in strides)
    dilations = {"input_dilation": gaps or ones, "kernel_dilation": dilation or ones}
    return OpExample((x, w), {"strides": strides, "padding": padding, **dilations, "groups": groups})


conv = multilinear_op(
    "conv",
    type=conv_type,
    transpose=(image_cotangent, kernel_cotangent),
    mask_transpose=lambda truths, place, *operands, **_: any_broadcast_like(truths, operands[place]),
    reference=conv_reference,
    lower=conv_lower,
    partials=lambda x, y: [Partial(accumulated(y))],
    traits=("accepts transposed",),
    accepts=FLOATS,
    samples=(
        conv_example((2, 5, 4, 3), (3, 2, 3, 2), (1, 1), ((0, 0), (0, 0))),
        conv_example((1, 6, 5, 2), (3, 3, 2, 1), (2, 3), ((1, 1), (0, 2))),
        conv_example((1, 5, 4, 1), (2, 2, 1, 2), (2, 1), ((1, 0), (-1, 2)), gaps=(2, 1), dilation=(1, 2)),
        conv_example((2, 1, 1, 1), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0))),
        conv_example((0, 3, 3, 1), (2, 2, 1, 2), (1, 1), ((0, 0), (0, 0))),
        conv_example((2, 6, 4), (3, 2, 6), (2,), ((1, 1),), gaps=(2,), dilation=(2,), groups=2),
        conv_example((1, 4, 3, 3), (2, 2, 1, 6), (1, 1), ((1, 0), (0, 1)), groups=3),
        conv_example(
            (1, 3, 4, 3, 2), (2, 1, 2, 1, 2), (1, 2, 1), ((0, 1), (1, 0), (0, 0)), dilation=(1, 1, 2), groups=2
        ),
        conv_example((2, 7, 1), (3, 1, 2), (2,), ((0, 0),)),
    ),
    cost=lambda x, w, groups, **_: 2 * np.prod([*x.shape, *w.shape[:-2], w.shape[-1]]) // groups,
    doc="""Cross-correlation of [batch, *space, channels in] with a kernel [*space, channels in, channels out]. The
    channels fall into groups that do not mix. `padding` is zeros before and after (negative cuts off); there are
    `input_dilation` - 1 zeros between pixels, `kernel_dilation` - 1 between taps. 16-bit floats accumulate in f32.
    Units: u, v -> u v. Kinks: none.""",
)
