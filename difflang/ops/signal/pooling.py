"""Pooling over windows of an image: `max_pool`, `sum_pool`, and the ops `windows` and `fold`.

An image is [batch, spatial axes, channels]. `windows` extracts its windows, and `fold` adds them up.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np

from difflang.ir.array_types import Array, Jax, JaxArray, LaxModule
from difflang.ir.graph import Attr, Value
from difflang.ir.op import OPS, ArrayLowerRule, ArrayReferenceRule, Op, OperandRules, TypeSolver, UndefinedPrimal
from difflang.ir.tensor_types import FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import mean_over_ties
from difflang.ops.arrays.shape_manipulation import broadcast, pad, pad_reference, slice_
from difflang.ops.elementwise.comparison_and_logic import lt
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import OpExample, linear_op, static_size, tensor_type, upcast_half_reference
from difflang.ops.signal.convolution import (
    Ints,
    PaddingPairs,
    Sizes,
    check_image_type,
    dilated_sizes,
    window_count,
    window_counts,
)

Operand = Value | UndefinedPrimal
# The number of positions up to which a window counts as small.
SMALL_WINDOW_SIZE = 4

POOL_EXAMPLES = (
    OpExample(((2, 5, 4, 2),), {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}),
    OpExample(((1, 3, 5, 2),), {"window": (3, 2), "strides": (3, 2), "padding": ((0, 0), (0, 0))}),
    OpExample(((1, 5, 6, 1),), {"window": (3, 2), "strides": (2, 1), "padding": ((1, 1), (0, 1))}),
    OpExample(((1, 1, 1, 1),), {"window": (1, 1), "strides": (1, 1), "padding": ((0, 0), (0, 0))}),
    OpExample(((2, 3, 5, 1),), {"window": (2, 3), "strides": (2, 3), "padding": ((1, 0), (0, 1))}),
    OpExample(((0, 2, 2, 1),), {"window": (2, 2), "strides": (1, 1), "padding": ((0, 0), (0, 0))}),
    OpExample(((1, 0, 5, 2),), {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}),
    OpExample(((1, 2, 2),), {"window": (4,), "strides": (4,), "padding": ((0, 0),)}),
    OpExample(((2, 7, 2),), {"window": (3,), "strides": (2,), "padding": ((1, 0),)}),
    OpExample(((1, 2, 3, 4, 1),), {"window": (1, 3, 2), "strides": (1, 1, 2), "padding": ((0, 0), (1, 1), (0, 0))}),
)


def no_padding(window: Sizes) -> PaddingPairs:
    return tuple((0, 0) for _ in window)


# ---- Windows


def windows_type(same: TypeSolver, x: Tensor, *, window: Ints, strides: Ints) -> Tensor:
    check_image_type(same, x, window, strides)
    fit = window_counts(x.shape[1:-1], window, strides, no_padding(window))
    return x.reshaped(x.shape[0], *fit, *window, x.shape[-1])


def windows_reference(x: Array, *, window: Ints, strides: Ints) -> Array:
    n = len(window)
    if any(size < k for size, k in zip(x.shape[1:-1], window, strict=True)):
        return np.zeros(
            (x.shape[0], *window_counts(x.shape[1:-1], window, strides, no_padding(window)), *window, x.shape[-1]),
            x.dtype,
        )
    found = np.lib.stride_tricks.sliding_window_view(x, window, axis=tuple(range(1, n + 1)))
    found = found[(slice(None), *(slice(None, None, s) for s in strides))]
    return np.moveaxis(found, n + 1, -1)


def window_slices(shape: Sizes, window: Ints, strides: Ints) -> list[tuple[Ints, Sizes, Ints]]:
    """For each position in a window the start, stop and step of the slice of all windows' elements there."""
    batch, *space, c = shape
    reach = dilated_sizes(window_counts(tuple(space), window, strides, no_padding(window)), strides)
    return [
        ((0, *at, 0), (batch, *(i + r for i, r in zip(at, reach, strict=True)), c), (1, *strides, 1))
        for at in product(*[range(k) if r != 0 else (0,) * k for k, r in zip(window, reach, strict=True)])
    ]


def tile_permutation(n: int) -> Ints:
    """The permutation from tiles, with counts and window sizes interleaved, to windows."""
    return (0, *range(1, 2 * n, 2), *range(2, 2 * n + 1, 2), 2 * n + 1)


def split_into_tiles(lax: LaxModule, x: JaxArray, window: Ints) -> JaxArray:
    """The image as tiles: [batch, rows of tiles, rows of a tile, ..., channels], without the remainder at the ends."""
    batch, *space, c = x.shape
    fit = [size // k for size, k in zip(space, window, strict=True)]
    covered = (batch, *(m * k for m, k in zip(fit, window, strict=True)), c)
    whole = x if covered == x.shape else lax.slice(x, (0,) * x.ndim, covered)
    return lax.reshape(whole, (batch, *(size for pair in zip(fit, window, strict=True) for size in pair), c))


def windows_lower(jax: Jax, x: JaxArray, *, window: Ints, strides: Ints) -> JaxArray:
    """Tiles are a reshape; other windows one strided slice for each position in the window, stacked."""
    lax, (batch, *space, c), n = jax.lax, x.shape, len(window)
    if window == strides:
        return lax.transpose(split_into_tiles(lax, x, window), tile_permutation(n))
    fit = window_counts(tuple(space), window, strides, no_padding(window))
    pieces = [lax.slice(x, *place) for place in window_slices(x.shape, window, strides)]
    together = lax.concatenate([lax.expand_dims(p, (n + 1,)) for p in pieces], n + 1)
    return lax.reshape(together, (batch, *fit, *window, c))


def fold_type(same: TypeSolver, ws: Tensor, *, strides: Ints, size: Sizes) -> Tensor:
    n = len(strides)
    same.accepts(ws, FLOATS)
    same.require(
        ws.rank == 2 * n + 2 and len(size) == n, "windows are [batch, places, axes of a window, channels], not {}", ws
    )
    window = ws.shape[n + 1 : -1]
    for fit, count in zip(window_counts(size, window, strides, no_padding(window)), ws.shape[1 : n + 1], strict=True):
        same.size(fit, count, "number of windows")
    return ws.reshaped(ws.shape[0], *size, ws.shape[-1])


def fold_reference(ws: Array, *, strides: Ints, size: Ints) -> Array:
    n = len(strides)
    fit, window = ws.shape[1 : n + 1], ws.shape[n + 1 : -1]
    result = np.zeros((ws.shape[0], *size, ws.shape[-1]), ws.dtype)
    reach = tuple(map(static_size, dilated_sizes(fit, strides)))
    for at in product(*map(range, window)) if all(fit) else ():
        covered = (slice(i, i + r, s) for i, r, s in zip(at, reach, strides, strict=True))
        result[(slice(None), *covered)] += ws[(slice(None),) * (n + 1) + at]
    return result


def fold_lower(jax: Jax, ws: JaxArray, *, strides: Ints, size: Ints) -> JaxArray:
    """Tiles are a reshape; other windows one padded slice for each position in the window, summed."""
    lax, n = jax.lax, len(strides)
    batch, c, fit, window = ws.shape[0], ws.shape[-1], ws.shape[1 : n + 1], ws.shape[n + 1 : -1]
    zero = lax.full((), np.zeros((), ws.dtype))
    if window == strides:
        covered = tuple(m * k for m, k in zip(fit, window, strict=True))
        tiled = lax.reshape(lax.transpose(ws, np.argsort(tile_permutation(n))), (batch, *covered, c))
        edges = [(0, s - r, 0) for s, r in zip(size, covered, strict=True)]
        return tiled if covered == size else lax.pad(tiled, zero, [(0, 0, 0), *edges, (0, 0, 0)])
    reach = dilated_sizes(fit, strides)
    total = lax.full((batch, *size, c), np.zeros((), ws.dtype))
    for at in product(*map(range, window)):
        start, stop = (0,) * (n + 1) + at + (0,), (batch, *fit, *(i + 1 for i in at), c)
        piece = lax.reshape(lax.slice(ws, start, stop), (batch, *fit, c))
        edges = [(i, s - i - static_size(r), step - 1) for i, s, r, step in zip(at, size, reach, strides, strict=True)]
        total = lax.add(total, lax.pad(piece, zero, [(0, 0, 0), *edges, (0, 0, 0)]))
    return total


windows = linear_op(
    "windows",
    type=windows_type,
    transpose=(lambda ct, x, window, strides: fold.one(ct, strides=strides, size=tensor_type(x).shape[1:-1]),),
    traits=("data movement",),
    reference=windows_reference,
    lower=windows_lower,
    accepts=FLOATS,
    samples=(
        OpExample(((2, 5, 4, 2),), {"window": (2, 2), "strides": (2, 2)}),
        OpExample(((1, 5, 4, 1),), {"window": (3, 2), "strides": (1, 2)}),
        OpExample(((1, 1, 1, 1),), {"window": (1, 1), "strides": (1, 1)}),
        OpExample(((0, 2, 2, 1),), {"window": (2, 2), "strides": (1, 1)}),
        OpExample(((2, 5, 2),), {"window": (3,), "strides": (2,)}),
        OpExample(((1, 2, 3, 5, 1),), {"window": (1, 3, 2), "strides": (1, 3, 2)}),
        OpExample(((1, 2, 3, 5, 1),), {"window": (2, 2, 2), "strides": (1, 1, 2)}),
    ),
    doc="""All windows of an image: [batch, places, axes of a window, channels]. Units: u -> u. Kinks: none.""",
)
fold = linear_op(
    "fold",
    type=fold_type,
    transpose=(
        lambda ct, ws, strides, size: windows.one(
            ct, window=tensor_type(ws).shape[len(size) + 1 : -1], strides=strides
        ),
    ),
    traits=("data movement",),
    reference=fold_reference,
    lower=fold_lower,
    accepts=FLOATS,
    samples=(
        OpExample(((2, 2, 2, 2, 2, 2),), {"strides": (2, 2), "size": (5, 4)}),
        OpExample(((1, 3, 2, 3, 2, 1),), {"strides": (1, 2), "size": (5, 5)}),
        OpExample(((0, 1, 1, 2, 2, 1),), {"strides": (1, 1), "size": (2, 2)}),
        OpExample(((2, 2, 3, 2),), {"strides": (2,), "size": (6,)}),
        OpExample(((1, 2, 1, 2, 1, 3, 2, 1),), {"strides": (1, 3, 2), "size": (2, 3, 5)}),
    ),
    doc="""The image of which each pixel is the sum of its copies in the windows: the adjoint of `windows`.
    Units: u -> u. Kinks: none.""",
)


# ---- Pooling


def pool_type(same: TypeSolver, x: Tensor, *, window: Ints, strides: Ints, padding: PaddingPairs) -> Tensor:
    check_image_type(same, x, window, strides, padding)
    return x.reshaped(x.shape[0], *map(window_count, x.shape[1:-1], window, strides, padding), x.shape[-1])


def pad_attrs(padding: PaddingPairs) -> dict[str, Attr]:
    """The attributes of a `pad` of the spatial axes."""
    low, high = ((0, *(margin[i] for margin in padding), 0) for i in (0, 1))
    return {"low": low, "high": high, "interior": (0,) * len(low)}


def pool_reference(reduce: Callable[..., Array], fill: float) -> ArrayReferenceRule:
    """`reduce` over the windows of the image, padded with `fill`."""

    def reference(x: Array, *, window: Ints, strides: Ints, padding: PaddingPairs) -> Array:
        wide = pad_reference(x, np.asarray(fill, x.dtype), **pad_attrs(padding))
        return reduce(windows_reference(wide, window=window, strides=strides), axis=window_axes(window))

    return upcast_half_reference(reference)


def window_axes(window: Sizes) -> Ints:
    """The axes of a window in the result of `windows`."""
    return tuple(range(len(window) + 1, 2 * len(window) + 1))


def pool_lower(combine: str, fill: float) -> ArrayLowerRule:
    """XLA's windowed reduction; for tiles a reduction over axes, which is faster, and for small tiles a maximum of
    slices.

    Sums of 16-bit floats accumulate in f32.
    """

    def lower(jax: Jax, x: JaxArray, *, window: Ints, strides: Ints, padding: PaddingPairs) -> JaxArray:
        lax, half = jax.lax, x.dtype.itemsize == 2
        wide = lax.convert_element_type(x, np.float32) if half else x
        if combine == "max" and is_small_tile(window, strides, padding):
            found = functools.reduce(lax.max, [lax.slice(wide, *p) for p in window_slices(wide.shape, window, strides)])
        elif window == strides and not any(map(any, padding)):
            reduce = {"max": lax.reduce_max, "sum": lax.reduce_sum}[combine]
            found = reduce(split_into_tiles(lax, wide, window), tuple(range(2, 2 * len(window) + 1, 2)))
        else:
            step = {"max": lax.max, "sum": lax.add}[combine]
            margins = ((0, 0), *padding, (0, 0))
            found = lax.reduce_window(
                wide, np.asarray(fill, wide.dtype), step, (1, *window, 1), (1, *strides, 1), margins
            )
        return lax.convert_element_type(found, x.dtype) if half else found

    return lower


def pad_image(x: Value, fill: float, padding: PaddingPairs) -> Value:
    if not any(map(any, padding)):
        return x
    return pad.one(x, x.home.const(fill, tensor_type(x).reshaped()), **pad_attrs(padding))


def broadcast_over_windows(y: Value, window: Ints) -> Value:
    """One number per window, broadcast to each of its positions."""
    *lead, c = tensor_type(y).shape
    return broadcast.one(y, shape=(*lead, *window, c), axes=(*range(len(lead)), len(lead) + len(window)))


def max_pool_jvp(dx: Value, y: Value, x: Value, *, window: Ints, strides: Ints, padding: PaddingPairs) -> Value:
    elements = windows.one(pad_image(x, float("-inf"), padding), window=window, strides=strides)
    moved = windows.one(pad_image(dx, 0.0, padding), window=window, strides=strides)
    ties = count_maxima(y, x, window) if is_small_tile(window, strides, padding) else None
    return mean_over_ties(lt.one(elements, broadcast_over_windows(y, window)), moved, y, window_axes(window), ties)


def is_small_tile(window: Ints, strides: Ints, padding: PaddingPairs) -> bool:
    """Whether the windows are tiles of a few positions, which are compared slice by slice."""
    # XLA on the CPU materializes the operand of a reduction, but not slices.
    return window == strides and prod(window) <= SMALL_WINDOW_SIZE and not any(map(any, padding))


def count_maxima(y: Value, x: Value, tile: Ints) -> Value:
    """The number of elements in each tile that equal its maximum, counted slice by slice, for small tiles."""
    zero, one = (y.home.const(n, y.type) for n in (0.0, 1.0))
    pieces = [slice_.one(x, starts=a, stops=b, steps=s) for a, b, s in window_slices(tensor_type(x).shape, tile, tile)]
    return functools.reduce(operator.add, [select.one(lt.one(piece, y), zero, one) for piece in pieces])


def sum_pool_transpose(ct: Value, x: Operand, *, window: Ints, strides: Ints, padding: PaddingPairs) -> Value:
    size = tuple(n + low + high for n, (low, high) in zip(tensor_type(x).shape[1:-1], padding, strict=True))
    whole = fold.one(broadcast_over_windows(ct, window), strides=strides, size=size)
    return pad_image(whole, 0.0, tuple((-low, -high) for low, high in padding))


max_pool = OPS.declare(
    Op(
        "max_pool",
        type=pool_type,
        derivative=OperandRules(jvp=(max_pool_jvp,)),
        reference=pool_reference(np.max, -np.inf),
        lower=pool_lower("max", -np.inf),
        accepts=FLOATS,
        samples=POOL_EXAMPLES,
        doc="""Greatest in each window; padding never wins. Units: u -> u.
        Kinks: k ties in a window share its derivative, 1/k each.""",
    )
)
sum_pool = linear_op(
    "sum_pool",
    type=pool_type,
    transpose=(sum_pool_transpose,),
    traits=("data movement",),
    reference=pool_reference(np.sum, 0.0),
    lower=pool_lower("sum", 0.0),
    accepts=FLOATS,
    samples=POOL_EXAMPLES,
    doc="""Sum of each window, padded with zeros; 16-bit floats are summed in f32. Units: u -> u. Kinks: none.""",
)
