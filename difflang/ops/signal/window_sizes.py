"""How many windows fit into an image, and what they cover, with strides, dilations and padding."""

from __future__ import annotations

from difflang.ir.symbolic_dims import Dim

Ints = tuple[int, ...]
Sizes = tuple[Dim, ...]
# Before and after, for each spatial axis.
PaddingPairs = tuple[tuple[Dim, Dim], ...]


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
