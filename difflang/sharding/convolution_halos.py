"""Along which axes of space devices compute a convolution of their parts of an image, and what neighbours send them."""

from __future__ import annotations

from difflang.ir.graph import Eqn
from difflang.ir.symbolic_dims import Dim
from difflang.ops.signal.convolution import conv
from difflang.sharding.region_splits import array_shape

Halos = dict[int, tuple[Dim, Dim]]  # for each axis of the image how many pixels before and after a part


def halos(eqn: Eqn) -> Halos:
    """The axes of space along which devices take parts: those that keep their size, and those along which the kernel is
    as long as the image, as in the cotangent of a kernel. A part has a halo as wide as the padding there.
    """
    if eqn.op is not conv:
        return {}
    margins = zip(range(1, len(eqn.attrs["padding"]) + 1), eqn.attrs["padding"], strict=True)
    return {
        axis: (low, high)
        for axis, (low, high) in margins
        if not has_gaps(eqn, axis)
        and not any(isinstance(n, int) and n < 0 for n in (low, high))
        and (keeps_size(eqn, axis) or is_summed(eqn, axis))
    }


def keeps_size(eqn: Eqn, axis: int) -> bool:
    return array_shape(eqn.operands[0].type)[axis] == array_shape(eqn.results[0].type)[axis]


def is_summed(eqn: Eqn, axis: int) -> bool:
    """Whether the kernel is as long as the image along an axis, so that each device can take its part of both."""
    image, kernel = [array_shape(v.type) for v in eqn.operands]
    return image[axis] == kernel[axis - 1] and not keeps_size(eqn, axis) and not has_gaps(eqn, axis)


def has_gaps(eqn: Eqn, axis: int) -> bool:
    counts = [eqn.attrs[name] for name in ("strides", "input_dilation", "kernel_dilation")]
    return any([isinstance(count, tuple) and count[axis - 1] != 1 for count in counts])


def axes_taken_whole(eqn: Eqn, operand: int) -> tuple[int, ...]:
    """The axes of the image or the kernel that a device needs whole: other axes of space, and channels of groups."""
    rank = len(array_shape(eqn.operands[0].type))
    found = halos(eqn)
    if operand == 0:
        space, channels = [axis for axis in range(1, rank - 1) if axis not in found], (rank - 1,)
    else:
        space = [axis - 1 for axis in range(1, rank - 1) if axis not in found or not is_summed(eqn, axis)]
        channels = (rank - 2, rank - 1)
    return (*space, *(channels if eqn.attrs["groups"] != 1 else ()))
