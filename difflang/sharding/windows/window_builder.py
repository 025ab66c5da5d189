"""A graph under construction in which windows of arrays that are split over devices are the arrays, shifted."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Value
from difflang.ir.op import Fill, Op
from difflang.ir.tensor_types import I32, History, Tensor, Type
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.reshard import Split
from difflang.ops.arrays.shape_manipulation import broadcast, pad, slice_
from difflang.ops.arrays.shift import shift
from difflang.ops.elementwise.comparison_and_logic import ge, logical_and, lt
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import static_size
from difflang.sharding.mesh_splits import MeshSplits, busy
from difflang.sharding.region_splits import whole_split

Shape = tuple[int, ...]
Starts = tuple[int | None, ...]  # where a window begins along each axis; None: it has the whole axis


class Window(Struct, frozen=True):
    """A window of an array: where it begins, and how the array is split.

    `beyond` is the number in those parts of the window that lie outside of the array.
    """

    array: Value
    starts: Starts
    split: Split
    beyond: Value | None = None


class WindowBuilder:
    """What stands for the values of an old graph: windows of arrays, or arrays, which are split like this."""

    def __init__(self, splits: MeshSplits) -> None:
        self.analysis = splits
        self.to = Builder()
        self.values: dict[Value, Value] = {}
        self.windows: dict[Value, Window] = {}
        self.splits: dict[Value, Split] = {}
        self.made: dict[Value, Eqn] = {}  # the equations of the old graph
        self.zeros: set[Value] = set()
        self.uniform: dict[tuple[Value, Shape, Starts], Value | None] = {}  # values that are the same everywhere
        self.places: dict[tuple[Shape, int, int, int], Value] = {}  # where positions are between two
        self.exchanged: dict[tuple[Value, int, int], Value] = {}  # arrays that are shifted already
        self.changed = False  # whether an equation of windows is one of arrays

    def param(self, old: Value, type: Type, split: Split, starts: Starts | None) -> None:
        """A param; with `starts` it is an array of this type, and the old one is a window of it."""
        value = self.to.param(type, old.hint)
        if starts is None:
            self.values[old], self.splits[old] = value, split
        else:
            self.windows[old], self.splits[old] = Window(value, starts, split), whole_split(old.type)

    def emit(self, op: Op, *operands: Value, **attrs: Attr) -> Value:
        (result,) = self.to.emit(op, operands, **attrs)
        return result

    def copy(self, eqn: Eqn) -> None:
        """The equation as it is, of windows that are cut out."""
        operands = tuple([self.value(v) for v in eqn.operands])
        for old, new in zip(eqn.results, self.to.copy(eqn, operands), strict=True):
            self.values[old] = new
            if eqn.op is const and eqn.attrs["value"] == 0:
                self.zeros.add(new)
        given = [self.splits[v] for v in eqn.operands]
        found = self.analysis.of_eqn(eqn, given) if busy(eqn, given) else [whole_split(r.type) for r in eqn.results]
        self.splits.update(zip(eqn.results, found, strict=True))

    # ---- Old values

    def value(self, old: Value) -> Value:
        """What stands for a value as it was: a window is cut out of its array."""
        if old not in self.values:
            self.values[old] = self.cut(self.windows[old], shape_of(old))
        return self.values[old]

    def window_of(self, old: Value) -> Window | None:
        """A value as a window of an array that is split: of itself, if it is split.

        Along axes that are split it begins somewhere, even if it has all of them: a part of it would not be even.
        """
        if old in self.windows:
            window = self.windows[old]
            starts = [0 if s is None and along else s for s, along in zip(window.starts, window.split, strict=True)]
            return replace(window, starts=tuple(starts))
        split = self.splits[old]
        if not any(split) or not isinstance(old.type, Tensor):
            return None
        return Window(self.values[old], tuple([0 if along else None for along in split]), split)

    def keep(self, old: Value, window: Window) -> bool:
        """Let a value be a window, or the array if it is all of it; False if nothing is known beyond the array."""
        shape, sizes = shape_of(old), shape_of(window.array)
        starts = tuple([None if s == 0 and m == n else s for s, m, n in zip(window.starts, shape, sizes, strict=True)])
        if all(s is None for s in starts):
            self.values[old], self.splits[old] = window.array, window.split
            return True
        beyond = window.beyond if leaves(starts, shape, sizes) else None
        if leaves(starts, shape, sizes) and beyond is None:
            return False
        self.windows[old] = Window(window.array, starts, window.split, beyond)
        self.splits[old] = whole_split(old.type)
        return True

    def cut(self, window: Window, shape: Shape) -> Value:
        """The window as an array of its own."""
        sizes, starts = shape_of(window.array), [s or 0 for s in window.starts]
        first = [max(s, 0) for s in starts]
        end = [min(s + m, n) for s, m, n in zip(starts, shape, sizes, strict=True)]
        if window.beyond is not None and any(a >= b for a, b in zip(first, end, strict=True)):
            return self.filled(window.beyond, shape)
        inside = window.array
        if any(first) or tuple(end) != sizes:
            inside = self.emit(slice_, inside, starts=tuple(first), stops=tuple(end), steps=(1,) * len(end))
        low = [a - s for a, s in zip(first, starts, strict=True)]
        high = [s + m - b for s, m, b in zip(starts, shape, end, strict=True)]
        if not any((*low, *high)):
            return inside
        assert window.beyond is not None
        return self.padded(inside, window.beyond, low, high)

    def padded(self, value: Value, number: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        return self.emit(pad, value, number, low=tuple(low), high=tuple(high), interior=(0,) * len(low))

    def zero(self, dtype_of: Value) -> Value:
        assert isinstance(dtype_of.type, Tensor)
        found = self.to.const(0, Tensor(dtype_of.type.dtype))
        self.zeros.add(found)
        return found

    # ---- Arrays at one place

    def at_place(self, old: Value, starts: Starts, sizes: Shape) -> Value | None:
        """A value as an array of these sizes that begins at `starts`; None if a part of it has no room there."""
        window = self.window_of(old)
        if window is not None and shape_of(window.array) == sizes:
            return self.moved(window, shape_of(old), starts)
        if old in self.windows:
            return None
        if (found := self.everywhere(old, sizes, starts)) is not None:
            return found
        low = [s or 0 for s in starts]
        high = [n - m - s for n, m, s in zip(sizes, shape_of(old), low, strict=True)]
        if min((*low, *high), default=0) < 0:
            return None
        value = self.value(old)
        return self.padded(value, self.zero(value), low, high) if any((*low, *high)) else value

    def moved(self, window: Window, shape: Shape, to: Starts) -> Value | None:
        """The array of a window, shifted so that it begins elsewhere; None if a part of it has no room there."""
        array = window.array
        for axis, (a, b) in enumerate(zip(window.starts, to, strict=True)):
            here, there, size = a or 0, b or 0, shape_of(array)[axis]
            if here == there:
                continue
            # What is outside of the array there must have been outside of it before.
            if max(-there, 0) > max(-here, 0) or max(there + shape[axis], size) > max(here + shape[axis], size):
                return None
            array = self.shifted(array, axis, here - there, window)
        return array

    def shifted(self, array: Value, axis: int, by: int, window: Window) -> Value:
        """The array of a window, with what is beyond it coming in."""
        key = array, axis, by
        if key not in self.exchanged:
            self.exchanged[key] = self.emit(shift, array, axis=axis, by=by, split=window.split)
        if window.beyond is None or window.beyond in self.zeros:
            return self.exchanged[key]
        sizes = shape_of(array)
        old = self.between(sizes, axis, max(-by, 0), sizes[axis] - max(by, 0))
        return self.emit(select, old, self.exchanged[key], self.filled(window.beyond, sizes))

    def everywhere(self, old: Value, sizes: Shape, starts: Starts) -> Value | None:
        """A value that is the same all along the axes of windows, with other sizes there."""
        key = old, sizes, starts
        if key not in self.uniform:
            self.uniform[key] = self.made_everywhere(old, sizes, starts)
        return self.uniform[key]

    def made_everywhere(self, old: Value, sizes: Shape, starts: Starts) -> Value | None:
        made = self.made.get(old)
        if made is None or not isinstance(old.type, Tensor):
            return None
        if made.op is const:
            return self.emit(const, value=made.attrs["value"], type=Tensor(old.type.dtype, sizes))
        if made.op is broadcast and all(starts[a] is None for a in axes_of(made)):
            return self.emit(broadcast, self.value(made.operands[0]), shape=sizes, axes=made.attrs["axes"])
        if not made.op.elementwise:
            return None
        operands = [self.everywhere(v, sizes, starts) for v in made.operands]
        found = [v for v in operands if v is not None]
        return self.emit(made.op, *found, **made.attrs) if len(found) == len(operands) else None

    def number(self, old: Value) -> Value | None:
        """The number that an array is filled with, as a scalar."""
        made = self.made.get(old)
        if made is None or not isinstance(made.op.movement, Fill) or not isinstance(old.type, Tensor):
            return None
        if made.op is const:
            return self.emit(const, value=made.attrs["value"], type=Tensor(old.type.dtype))
        return self.value(made.operands[0]) if made.operands[0].type == Tensor(old.type.dtype) else None

    # ---- Where windows are

    def filled(self, number: Value, shape: Shape) -> Value:
        return self.emit(broadcast, number, shape=shape, axes=())

    def between(self, shape: Shape, axis: int, first: int, end: int) -> Value:
        """Where the position along an axis is at least `first`, and before `end`."""
        key = shape, axis, first, end
        if key not in self.places:
            at = self.emit(iota, type=Tensor(I32, shape), axis=axis)
            begun = self.emit(ge, at, self.to.const(first, Tensor(I32, shape)))
            before = self.emit(lt, at, self.to.const(end, Tensor(I32, shape)))
            self.places[key] = self.emit(logical_and, begun, before)
        return self.places[key]

    def inside(self, sizes: Shape, starts: Starts, shape: Shape) -> Value | None:
        """Where the elements of a window are; None if it has all of them."""
        found: Value | None = None
        for axis, (start, count) in enumerate(zip(starts, shape, strict=True)):
            if start is not None and (start > 0 or start + count < sizes[axis]):
                here = self.between(sizes, axis, max(start, 0), min(start + count, sizes[axis]))
                found = here if found is None else self.emit(logical_and, found, here)
        return found

    def masked(self, array: Value, starts: Starts, shape: Shape, outside: Value) -> Value:
        """An array with a number everywhere but in a window."""
        sizes = shape_of(array)
        inside = self.inside(sizes, starts, shape)
        return array if inside is None else self.emit(select, inside, array, self.filled(outside, sizes))


def leaves(starts: Starts, shape: Shape, sizes: Shape) -> bool:
    """Whether a window is not all in its array."""
    return any(s is not None and (s < 0 or s + m > n) for s, m, n in zip(starts, shape, sizes, strict=True))


def axes_of(eqn: Eqn) -> tuple[int, ...]:
    axes = eqn.attrs["axes"]
    assert isinstance(axes, tuple)
    return tuple([a for a in axes if isinstance(a, int)])


def shape_of(value: Value) -> Shape:
    """The shape of an array, or of the items of a history, whose sizes are known."""
    type = value.type
    while isinstance(type, History):
        type = type.item
    return tuple([static_size(n) for n in type.shape])
