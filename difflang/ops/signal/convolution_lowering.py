"""How convolutions are lowered: to XLA's own, or, on the CPU, to products where XLA's are slow.

XLA's own are fast on the CPU for f32 in one and two dimensions with many channels and one group. Others are 3 to 60
times faster as a sum of slices times weights, for few terms, or as one product of a matrix that holds all windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np
from msgspec import Struct

from difflang.ir.array_types import Jax, JaxArray, LaxModule, TransposedArray
from difflang.ops.linalg.dot_general import dot_lower
from difflang.ops.op_factories import static_size
from difflang.ops.signal.window_sizes import Ints, PaddingPairs, dilated_sizes, window_counts


def conv_lower(
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
    space = "".join(map(str, range(len(strides))))
    image, image_axes = operand_axis_order(x, f"N{space}C")
    kernel, kernel_axes = operand_axis_order(w, f"{space}IO")
    half = image.dtype.itemsize == 2
    result = jax.lax.conv_general_dilated(
        image, kernel, strides, padding, input_dilation, kernel_dilation,
        (image_axes, kernel_axes, f"N{space}C"), groups,
        precision=jax.lax.Precision.HIGHEST, preferred_element_type=np.dtype(np.float32) if half else image.dtype,
    )  # fmt: skip
    return jax.lax.convert_element_type(result, image.dtype) if half else result


def operand_axis_order(x: JaxArray | TransposedArray, axes: str) -> tuple[JaxArray, str]:
    """An operand before its deferred transpose, and its layout: XLA permutes axes as part of a convolution."""
    if not isinstance(x, TransposedArray):
        return x, axes
    return x.array, "".join(axes[x.order.index(place)] for place in range(len(axes)))


# ---- On the CPU

# Terms of a sum of slices: all are one kernel, whose time to compile grows with them.
MAX_TERMS = 48
# Channels in times channels out up to which XLA's convolution spends its time on packing: it has 0.4 to 13 GFLOP/s
# there, and 0.2 to 2 with groups, a sum of slices 15 to 40.
FEW_CHANNELS = 48
# Slices that make up a matrix of windows, and its bytes: beyond the cache, writing it takes longer than it gains.
MAX_SLICES = 32
MAX_WINDOW_BYTES = 1 << 24
# The number of channels from which XLA has a fast convolution of images in f64.
MANY_CHANNELS_F64 = 17


class Geometry(Struct, frozen=True):
    """The sizes of one convolution."""

    batch: int
    image: Ints  # before dilation and padding
    window: Ints
    places: Ints  # of the window, along each axis
    inward: int  # channels of a group
    outward: int
    groups: int
    item_bytes: int
    spread: bool  # whether there are gaps between the pixels of the image

    @property
    def terms(self) -> int:
        """The products that each element of the result sums."""
        return prod(self.window) * self.inward

    @property
    def few_channels(self) -> bool:
        return self.groups > 1 or self.inward * self.outward <= FEW_CHANNELS

    @property
    def is_fast_in_xla(self) -> bool:
        """Whether XLA has fast code: Eigen's for lines and images in f32, YNNPACK's for images of many channels."""
        if self.item_bytes == 4:
            return len(self.image) <= 2
        fits = all(n >= max(k, m) for n, k, m in zip(self.image, self.window, self.places, strict=True))
        many = max(self.inward, self.outward) >= MANY_CHANNELS_F64
        return len(self.image) == 2 and many and fits and not self.spread

    @property
    def windows_fit(self) -> bool:
        """Whether a matrix of all windows is worth writing. Gaps between pixels would fill it with zeros."""
        elements = self.batch * prod(self.places) * self.terms
        slices = min(sum(self.window), sum(self.places))
        return not self.spread and slices <= MAX_SLICES and elements * self.item_bytes <= MAX_WINDOW_BYTES


def conv_cpu_lower(
    jax: Jax,
    x: JaxArray,
    w: JaxArray,
    *,
    strides: Ints,
    padding: PaddingPairs,
    input_dilation: Ints,
    kernel_dilation: Ints,
    groups: int,
) -> JaxArray:
    """The quickest way for these sizes. The sums are those of the reference, in another order."""
    of = geometry(x, w, strides, padding, input_dilation, kernel_dilation, groups)
    if of.item_bytes >= 4 and min(of.batch, of.inward, of.outward, *of.image, *of.places) > 0:
        if of.few_channels and of.terms <= MAX_TERMS:
            return sum_of_slices(jax.lax, padded(jax.lax, x, padding, input_dilation), w, of, strides, kernel_dilation)
        if groups == 1 and not of.is_fast_in_xla and of.windows_fit:
            return product_of_windows(jax, padded(jax.lax, x, padding, input_dilation), w, of, strides, kernel_dilation)
    return conv_lower(
        jax, x, w, strides=strides, padding=padding, input_dilation=input_dilation, kernel_dilation=kernel_dilation,
        groups=groups,
    )  # fmt: skip


def geometry(
    x: JaxArray,
    w: JaxArray,
    strides: Ints,
    padding: PaddingPairs,
    input_dilation: Ints,
    kernel_dilation: Ints,
    groups: int,
) -> Geometry:
    image, window = x.shape[1:-1], w.shape[:-2]
    reach = dilated_sizes(window, kernel_dilation)
    places = window_counts(dilated_sizes(image, input_dilation), reach, strides, padding)
    return Geometry(
        x.shape[0], image, window, tuple(map(static_size, places)), w.shape[-2], w.shape[-1], groups,
        x.dtype.itemsize, any(n > 1 for n in input_dilation),
    )  # fmt: skip


def padded(lax: LaxModule, x: JaxArray, padding: PaddingPairs, dilation: Ints) -> JaxArray:
    """The image with zeros around and between its pixels; where padding is negative, without the pixels it cuts off."""
    edges = [(max(low, 0), max(high, 0), d - 1) for (low, high), d in numbers(padding, dilation)]
    if any(map(any, edges)):
        x = lax.pad(x, lax.full((), np.zeros((), x.dtype)), [(0, 0, 0), *edges, (0, 0, 0)])
    cuts = [(max(-low, 0), max(-high, 0)) for (low, high), _ in numbers(padding, dilation)]
    if any(map(any, cuts)):
        stops = [n - high for n, (_, high) in zip(x.shape[1:-1], cuts, strict=True)]
        x = lax.slice(x, (0, *[low for low, _ in cuts], 0), (x.shape[0], *stops, x.shape[-1]))
    return x


def numbers(padding: PaddingPairs, dilation: Ints) -> list[tuple[tuple[int, int], int]]:
    return [((static_size(a), static_size(b)), d) for (a, b), d in zip(padding, dilation, strict=True)]


def shifted_slices(
    lax: LaxModule, x: JaxArray, shifts: Ints, apart: Ints, counts: Ints, steps: Ints
) -> Iterator[JaxArray]:
    """Every `steps`-th pixel of an image, `counts` of them, after 0 to `shifts` - 1 times `apart` along each axis."""
    for shift in product(*map(range, shifts)):
        first = [i * by for i, by in zip(shift, apart, strict=True)]
        stop = [i + (n - 1) * step + 1 for i, n, step in zip(first, counts, steps, strict=True)]
        yield lax.slice(x, (0, *first, 0), (x.shape[0], *stop, x.shape[-1]), (1, *steps, 1))


def sum_of_slices(
    lax: LaxModule, x: JaxArray, w: JaxArray, of: Geometry, strides: Ints, kernel_dilation: Ints
) -> JaxArray:
    """For each tap and channel of a group one slice of the padded image times its weights: one elementwise kernel."""
    # Axes of size 1 would be innermost loops of one step.
    channels = tuple([n for n in (of.groups, of.outward // of.groups) if n > 1]) or (1,)
    lead = (of.batch, *of.places)
    weights, shape = lax.reshape(w, (of.terms, *channels)), (*lead, *channels)
    total: JaxArray | None = None
    for tap, pixels in enumerate(shifted_slices(lax, x, of.window, kernel_dilation, of.places, strides)):
        for i in range(of.inward):
            channel = lax.slice(pixels, (*[0] * len(lead), i), pixels.shape, (*[1] * len(lead), of.inward))
            own = channel if of.groups > 1 else lax.reshape(channel, lead)
            weight = lax.index_in_dim(weights, tap * of.inward + i, keepdims=False)
            term = lax.mul(
                lax.broadcast_in_dim(own, shape, tuple(range(own.ndim))),
                lax.broadcast_in_dim(weight, shape, tuple(range(len(lead), len(shape)))),
            )
            total = term if total is None else lax.add(total, term)
    assert total is not None, "a window has a tap"
    return lax.reshape(total, (*lead, of.outward))


def product_of_windows(
    jax: Jax, x: JaxArray, w: JaxArray, of: Geometry, strides: Ints, kernel_dilation: Ints
) -> JaxArray:
    """A matrix with the padded image's windows as rows, times the kernel."""
    windows = windows_as_rows(jax.lax, x, of, strides, kernel_dilation)
    kernel = jax.lax.reshape(w, (of.terms, of.outward))
    result = dot_lower(jax, windows, kernel, contract=((1,), (0,)), batch=((), ()))
    return jax.lax.reshape(result, (of.batch, *of.places, of.outward))


def windows_as_rows(lax: LaxModule, x: JaxArray, of: Geometry, strides: Ints, kernel_dilation: Ints) -> JaxArray:
    """The windows of a padded image, one a row, built axis by axis.

    Along an axis there is a slice for each tap, which become channels, or, where there are fewer places than taps, as
    in the cotangent of a kernel, a slice for each place.
    """
    by_place = sum(of.places) < sum(of.window)
    taps, places = (of.window, kernel_dilation), (of.places, strides)
    (shifts, apart), (counts, steps) = (places, taps) if by_place else (taps, places)
    collected = 1 if by_place else x.ndim - 1
    if by_place:
        x = lax.reshape(x, (of.batch, 1, *x.shape[1:]))
    for i in reversed(range(len(strides))):
        stops = [j * apart[i] + (counts[i] - 1) * steps[i] + 1 for j in range(shifts[i])]
        axis = i + 1 + by_place
        pieces = [lax.slice_in_dim(x, j * apart[i], stop, steps[i], axis) for j, stop in enumerate(stops)]
        x = lax.concatenate(pieces, collected)
    return lax.reshape(x, (of.batch * prod(of.places), of.terms))
