"""Pooling over two-dimensional windows of an image [batch, height, width, channels], and cutting it into windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from difflang.ir.dims import Dim
from difflang.ir.graph import Value
from difflang.ir.op import OPS, Op, Rule, Solver, Unknown
from difflang.ir.types import FLOATS, Tensor
from difflang.ops.compare import lt
from difflang.ops.conv import Margins, Two, outputs, spread
from difflang.ops.families import Array, Example, known, linear, tensor, widened
from difflang.ops.reduce import tied
from difflang.ops.shape import pad_reference

Operand = Value | Unknown
NO_MARGINS: Margins = ((0, 0), (0, 0))

POOLS = (
    Example(((2, 4, 4, 2),), {"window": (2, 2), "strides": (2, 2), "padding": NO_MARGINS}),
    Example(((1, 5, 6, 1),), {"window": (3, 2), "strides": (2, 1), "padding": ((1, 1), (0, 1))}),
    Example(((1, 1, 1, 1),), {"window": (1, 1), "strides": (1, 1), "padding": NO_MARGINS}),
    Example(((0, 2, 2, 1),), {"window": (2, 2), "strides": (1, 1), "padding": NO_MARGINS}),
)


def image_type(same: Solver, x: Tensor) -> None:
    same.accepts(x, FLOATS)
    same.require(x.rank == 4, f"the image is [batch, height, width, channels], not {x}")


def places(x: Tensor, window: tuple[Dim, Dim], strides: Two, padding: Margins) -> tuple[Dim, Dim]:
    """How many windows fit, down and across."""
    down, across = (
        outputs(n, k, s, margin) for n, k, s, margin in zip(x.shape[1:3], window, strides, padding, strict=True)
    )
    return down, across


# ------------------------------------------------------------------------------------------------- windows


def windows_type(same: Solver, x: Tensor, *, window: Two, strides: Two) -> Tensor:
    image_type(same, x)
    return x.reshaped(x.shape[0], *places(x, window, strides, NO_MARGINS), *window, x.shape[3])


def windows_reference(x: Array, *, window: Two, strides: Two) -> Array:
    if any(n < k for n, k in zip(x.shape[1:3], window, strict=True)):
        return np.zeros((x.shape[0], 0, 0, *window, x.shape[3]), x.dtype)
    found = np.lib.stride_tricks.sliding_window_view(x, window, axis=(1, 2))
    return found[:, :: strides[0], :: strides[1]].transpose(0, 1, 2, 4, 5, 3)


def windows_lower(jax: Any, x: Any, *, window: Two, strides: Two) -> Any:
    """Tiles are a reshape; else one strided slice for each place in the window, side by side."""
    lax, (n, h, w, c) = jax.lax, x.shape
    rows, columns = (known(outputs(s, k, d, (0, 0))) for s, k, d in zip((h, w), window, strides, strict=True))
    if window == strides:
        tiled = lax.slice(x, (0, 0, 0, 0), (n, rows * window[0], columns * window[1], c))
        return lax.transpose(lax.reshape(tiled, (n, rows, window[0], columns, window[1], c)), (0, 1, 3, 2, 4, 5))
    pieces = [
        lax.slice(
            x,
            (0, i, j, 0),
            (n, i + known(spread(rows, strides[0])), j + known(spread(columns, strides[1])), c),
            (1, *strides, 1),
        )
        for i in range(window[0])
        for j in range(window[1])
    ]
    together = lax.concatenate([lax.expand_dims(p, (3,)) for p in pieces], 3)
    return lax.reshape(together, (n, rows, columns, *window, c))


def fold_type(same: Solver, ws: Tensor, *, strides: Two, size: tuple[Dim, Dim]) -> Tensor:
    same.accepts(ws, FLOATS)
    same.require(ws.rank == 6, f"windows are [batch, down, across, height, width, channels], not {ws}")
    image = ws.reshaped(ws.shape[0], *size, ws.shape[5])
    for fit, given in zip(places(image, (ws.shape[3], ws.shape[4]), strides, NO_MARGINS), ws.shape[1:3], strict=True):
        same.size(fit, given, "number of windows")
    return image


def fold_reference(ws: Array, *, strides: Two, size: Two) -> Array:
    n, rows, columns, height, width, c = ws.shape
    result = np.zeros((n, *size, c), ws.dtype)
    for i in range(height if rows else 0):
        for j in range(width if columns else 0):
            down = slice(i, i + spread(rows, strides[0]), strides[0])
            across = slice(j, j + spread(columns, strides[1]), strides[1])
            result[:, down, across] += ws[:, :, :, i, j]
    return result


def fold_lower(jax: Any, ws: Any, *, strides: Two, size: Two) -> Any:
    """Tiles are a reshape; else one padded slice for each place in the window, summed."""
    lax, (n, rows, columns, height, width, c) = jax.lax, ws.shape
    covered = known(spread(rows, strides[0])), known(spread(columns, strides[1]))
    zero = lax.full((), np.zeros((), ws.dtype))
    if (height, width) == strides:
        down, across = rows * height, columns * width
        tiled = lax.reshape(lax.transpose(ws, (0, 1, 3, 2, 4, 5)), (n, down, across, c))
        return lax.pad(tiled, zero, [(0, 0, 0), (0, size[0] - down, 0), (0, size[1] - across, 0), (0, 0, 0)])
    total = lax.full((n, *size, c), np.zeros((), ws.dtype))
    for i in range(height):
        for j in range(width):
            piece = lax.reshape(
                lax.slice(ws, (0, 0, 0, i, j, 0), (n, rows, columns, i + 1, j + 1, c)), (n, rows, columns, c)
            )
            edges = [
                (at, full - at - reach, step - 1)
                for at, full, reach, step in zip((i, j), size, covered, strides, strict=True)
            ]
            total = lax.add(total, lax.pad(piece, zero, [(0, 0, 0), *edges, (0, 0, 0)]))
    return total


windows2d = linear(
    "windows2d",
    type=windows_type,
    transpose=(lambda ct, x, window, strides: fold2d.one(ct, strides=strides, size=tensor(x).shape[1:3]),),
    reference=windows_reference,
    lower=windows_lower,
    accepts=FLOATS,
    samples=(
        Example(((2, 5, 4, 2),), {"window": (2, 2), "strides": (2, 2)}),
        Example(((1, 5, 4, 1),), {"window": (3, 2), "strides": (1, 2)}),
        Example(((1, 1, 1, 1),), {"window": (1, 1), "strides": (1, 1)}),
        Example(((0, 2, 2, 1),), {"window": (2, 2), "strides": (1, 1)}),
    ),
    doc="""All windows of an image: [batch, down, across, height, width, channels]. Units: u -> u. Kinks: none.""",
)
fold2d = linear(
    "fold2d",
    type=fold_type,
    transpose=(lambda ct, ws, strides, size: windows2d.one(ct, window=tensor(ws).shape[3:5], strides=strides),),
    reference=fold_reference,
    lower=fold_lower,
    accepts=FLOATS,
    samples=(
        Example(((2, 2, 2, 2, 2, 2),), {"strides": (2, 2), "size": (5, 4)}),
        Example(((1, 3, 2, 3, 2, 1),), {"strides": (1, 2), "size": (5, 5)}),
        Example(((0, 1, 1, 2, 2, 1),), {"strides": (1, 1), "size": (2, 2)}),
    ),
    doc="""The image of which each pixel is the sum of its copies in the windows: the adjoint of `windows2d`.
    Units: u -> u. Kinks: none.""",
)


# ------------------------------------------------------------------------------------------------- pooling


def pool_type(same: Solver, x: Tensor, *, window: Two, strides: Two, padding: Margins) -> Tensor:
    image_type(same, x)
    return x.reshaped(x.shape[0], *places(x, window, strides, padding), x.shape[3])


def padded_windows(x: Array, fill: float, window: Two, strides: Two, padding: Any) -> Array:
    low, high = ((0, padding[0][i], padding[1][i], 0) for i in (0, 1))
    wide = pad_reference(x, np.asarray(fill, x.dtype), low=low, high=high, interior=(0, 0, 0, 0))
    return windows_reference(wide, window=window, strides=strides)


def pool_reference(reduce: Any, fill: float) -> Rule:
    """`reduce` over the windows of the image, padded with `fill`."""

    def reference(x: Array, *, window: Two, strides: Two, padding: Margins) -> Array:
        return reduce(padded_windows(x, fill, window, strides, padding), axis=(3, 4))

    return widened(reference)


def pool_lower(combine: str, fill: float) -> Rule:
    """XLA's reduction over windows; sums of 16-bit floats are kept in f32."""

    def lower(jax: Any, x: Any, *, window: Two, strides: Two, padding: Margins) -> Any:
        half = x.dtype.itemsize == 2
        wide = jax.lax.convert_element_type(x, np.float32) if half else x
        step = {"max": jax.lax.max, "sum": jax.lax.add}[combine]
        found = jax.lax.reduce_window(
            wide, np.asarray(fill, wide.dtype), step, (1, *window, 1), (1, *strides, 1), ((0, 0), *padding, (0, 0))
        )
        return jax.lax.convert_element_type(found, x.dtype) if half else found

    return lower


def framed(x: Value, fill: float, padding: Margins) -> Value:
    low, high = ((0, padding[0][i], padding[1][i], 0) for i in (0, 1))
    return OPS["pad"].one(x, x.home.const(fill, tensor(x).reshaped()), low=low, high=high, interior=(0, 0, 0, 0))


def over_windows(y: Value, window: Two) -> Value:
    """One number a window, repeated for each of its places."""
    n, rows, columns, c = tensor(y).shape
    return OPS["broadcast"].one(y, shape=(n, rows, columns, *window, c), axes=(0, 1, 2, 5))


def max_pool_jvp(dx: Value, y: Value, x: Value, *, window: Two, strides: Two, padding: Margins) -> Value:
    seen = windows2d.one(framed(x, float("-inf"), padding), window=window, strides=strides)
    moved = windows2d.one(framed(dx, 0.0, padding), window=window, strides=strides)
    return tied(lt.one(seen, over_windows(y, window)), moved, y, (3, 4))


def sum_pool_transpose(ct: Value, x: Operand, *, window: Two, strides: Two, padding: Margins) -> Value:
    _, h, w, _ = tensor(x).shape
    (top, bottom), (left, right) = padding
    whole = fold2d.one(over_windows(ct, window), strides=strides, size=(h + top + bottom, w + left + right))
    return framed(whole, 0.0, ((-top, -bottom), (-left, -right)))


max_pool2d = OPS.declare(
    Op(
        "max_pool2d",
        type=pool_type,
        jvp=(max_pool_jvp,),
        reference=pool_reference(np.max, -np.inf),
        lower=pool_lower("max", -np.inf),
        accepts=FLOATS,
        samples=POOLS,
        doc="""Greatest in each window; padding never wins. Units: u -> u.
        Kinks: k ties in a window share its derivative, 1/k each.""",
    )
)
sum_pool2d = linear(
    "sum_pool2d",
    type=pool_type,
    transpose=(sum_pool_transpose,),
    reference=pool_reference(np.sum, 0.0),
    lower=pool_lower("sum", 0.0),
    accepts=FLOATS,
    samples=POOLS,
    doc="""Sum of each window, padded with zeros; 16-bit floats are summed in f32. Units: u -> u. Kinks: none.""",
)
