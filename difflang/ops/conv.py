"""Two-dimensional convolution. One op is closed under transposition: strides of the one are dilations of the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.dims import Dim
from difflang.ir.graph import Value
from difflang.ir.op import OPS, Solver, Unknown
from difflang.ir.types import FLOATS, Tensor
from difflang.ops.families import Array, Example, known, multilinear, tensor
from difflang.ops.shape import pad_reference

Two = tuple[int, int]
Margins = tuple[tuple[Dim, Dim], tuple[Dim, Dim]]  # before and after, for rows and for columns
Operand = Value | Unknown


def spread(size: Dim, dilation: int) -> Dim:
    """How far `size` elements reach with `dilation - 1` places between them."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def outputs(size: Dim, kernel: Dim, stride: int, margin: tuple[Dim, Dim]) -> Dim:
    """How often a window fits; sizes are those after dilation."""
    room = size + margin[0] + margin[1] - kernel
    return max(room // stride + 1, 0) if isinstance(room, int) else room // stride + 1


def conv2d_type(
    same: Solver, x: Tensor, w: Tensor, *, strides: Two, padding: Margins, input_dilation: Two, kernel_dilation: Two
) -> Tensor:
    same.accepts(x, FLOATS)
    same.dtype(x, w)
    same.require(x.rank == 4, f"the image is [batch, height, width, channels], not {x}")
    same.require(w.rank == 4, f"the kernel is [height, width, channels in, channels out], not {w}")
    same.size(x.shape[3], w.shape[2], "number of channels")
    rows, columns = (
        outputs(spread(x.shape[i + 1], input_dilation[i]), spread(w.shape[i], kernel_dilation[i]), strides[i], margin)
        for i, margin in enumerate(padding)
    )
    return x.reshaped(x.shape[0], rows, columns, w.shape[3])


def conv2d_reference(
    x: Array, w: Array, *, strides: Two, padding: Any, input_dilation: Two, kernel_dilation: Two
) -> Array:
    half = x.dtype.itemsize == 2
    image, kernel = (a.astype(np.float32) if half else a for a in (x, w))
    low, high = ((0, padding[0][i], padding[1][i], 0) for i in (0, 1))
    gaps = (0, input_dilation[0] - 1, input_dilation[1] - 1, 0)
    image = pad_reference(image, np.zeros((), image.dtype), low=low, high=high, interior=gaps)
    reach = tuple(known(spread(n, d)) for n, d in zip(w.shape[:2], kernel_dilation, strict=True))
    if any(n < k for n, k in zip(image.shape[1:3], reach, strict=True)):
        sizes = (outputs(n, k, s, (0, 0)) for n, k, s in zip(image.shape[1:3], reach, strides, strict=True))
        return np.zeros((x.shape[0], *sizes, w.shape[3]), x.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(image, reach, axis=(1, 2))
    windows = windows[:, :: strides[0], :: strides[1], :, :: kernel_dilation[0], :: kernel_dilation[1]]
    return np.tensordot(windows, kernel, axes=((4, 5, 3), (0, 1, 2))).astype(x.dtype)


def conv2d_lower(
    jax: Any, x: Any, w: Any, *, strides: Two, padding: Margins, input_dilation: Two, kernel_dilation: Two
) -> Any:
    half = x.dtype.itemsize == 2
    result = jax.lax.conv_general_dilated(
        x, w, strides, padding, input_dilation, kernel_dilation, ("NHWC", "HWIO", "NHWC"),
        precision=jax.lax.Precision.HIGHEST, preferred_element_type=np.dtype(np.float32) if half else x.dtype,
    )  # fmt: skip
    return jax.lax.convert_element_type(result, x.dtype) if half else result


def image_cotangent(
    ct: Value, x: Operand, w: Value, *, strides: Two, padding: Margins, input_dilation: Two, kernel_dilation: Two
) -> Value:
    """`ct`, spread by the strides, convolved with the kernel turned by half a turn."""
    margins: list[tuple[Dim, Dim]] = []
    for i in (0, 1):
        image, kernel = (
            spread(tensor(x).shape[i + 1], input_dilation[i]),
            spread(tensor(w).shape[i], kernel_dilation[i]),
        )
        low = kernel - 1 - padding[i][0]
        margins.append((low, image + kernel - 1 - spread(tensor(ct).shape[i + 1], strides[i]) - low))
    turned = OPS["transpose"].one(OPS["reverse"].one(w, axes=(0, 1)), perm=(0, 1, 3, 2))
    return conv2d.one(
        ct, turned, strides=input_dilation, padding=tuple(margins), input_dilation=strides,
        kernel_dilation=kernel_dilation,
    )  # fmt: skip


def kernel_cotangent(
    ct: Value, x: Value, w: Operand, *, strides: Two, padding: Margins, input_dilation: Two, kernel_dilation: Two
) -> Value:
    """The image, its channels as the batch, convolved with `ct` as a kernel whose channels are the batch."""
    margins: list[tuple[Dim, Dim]] = []
    for i in (0, 1):
        image, kernel = (
            spread(tensor(x).shape[i + 1], input_dilation[i]),
            spread(tensor(w).shape[i], kernel_dilation[i]),
        )
        low = padding[i][0]
        margins.append((low, kernel - 1 + spread(tensor(ct).shape[i + 1], strides[i]) - image - low))
    image = OPS["transpose"].one(x, perm=(3, 1, 2, 0))
    kernel = OPS["transpose"].one(ct, perm=(1, 2, 0, 3))
    result = conv2d.one(
        image, kernel, strides=kernel_dilation, padding=tuple(margins), input_dilation=input_dilation,
        kernel_dilation=strides,
    )  # fmt: skip
    return OPS["transpose"].one(result, perm=(1, 2, 0, 3))


def example(
    x: tuple[int, ...], w: tuple[int, ...], strides: Two, padding: Margins, gaps: Two = (1, 1), dilation: Two = (1, 1)
) -> Example:
    attrs = {"strides": strides, "padding": padding, "input_dilation": gaps, "kernel_dilation": dilation}
    return Example((x, w), attrs)


conv2d = multilinear(
    "conv2d",
    type=conv2d_type,
    transpose=(image_cotangent, kernel_cotangent),
    reference=conv2d_reference,
    lower=conv2d_lower,
    accepts=FLOATS,
    samples=(
        example((2, 5, 4, 3), (3, 2, 3, 2), (1, 1), ((0, 0), (0, 0))),
        example((1, 6, 5, 2), (3, 3, 2, 1), (2, 3), ((1, 1), (0, 2))),
        example((1, 5, 4, 1), (2, 2, 1, 2), (2, 1), ((1, 0), (-1, 2)), (2, 1), (1, 2)),
        example((2, 1, 1, 1), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0))),
        example((0, 3, 3, 1), (2, 2, 1, 2), (1, 1), ((0, 0), (0, 0))),
    ),
    cost=lambda x, w, **_: 2 * np.prod([*x.shape, w.shape[0], w.shape[1], w.shape[3]]),
    doc="""Cross-correlation of an image [batch, height, width, channels in] with a kernel [height, width, channels in,
    channels out]. `padding` is zeros before and after (negative cuts off), `input_dilation` - 1 zeros go between
    pixels, `kernel_dilation` - 1 between taps. 16-bit floats accumulate in f32. Units: u, v -> u v. Kinks: none.""",
)
