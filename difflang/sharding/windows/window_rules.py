"""How equations of windows become equations of arrays: for each op a rule, which says whether it could."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from difflang.ir.graph import Attr, Eqn, Value
from difflang.ir.op import Op
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.axis_reductions import reduce_all, reduce_any, reduce_sum
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update
from difflang.ops.arrays.shape_manipulation import broadcast, concat, pad, slice_, transpose
from difflang.ops.arrays.swap_item import swap_window
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.linalg.dot_general import dot_general
from difflang.sharding.axis_names import AxisNames, axis_name
from difflang.sharding.windows.window_builder import Shape, Starts, Window, WindowBuilder, axes_of, leaves, shape_of

Rule = Callable[[WindowBuilder, Eqn], bool]


def rewrite(at: WindowBuilder, eqn: Eqn) -> bool:
    """Whether an equation without regions is one of arrays now."""
    if not any(v in at.windows for v in eqn.operands) and eqn.op not in MAKES_WINDOWS:
        return False
    rule = RULES.get(eqn.op, elementwise if eqn.op.elementwise else None)
    done = rule is not None and rule(at, eqn)
    at.changed |= done
    return done


def elementwise(at: WindowBuilder, eqn: Eqn) -> bool:
    """Of arrays that are shifted to begin at one place."""
    (result,) = eqn.results
    shape, frames = shape_of(result), [at.windows[v] for v in eqn.operands if v in at.windows]
    sizes, places = list(shape), [set[int]() for _ in shape]
    split = frames[0].split
    for w in frames:
        split = tuple([a or b for a, b in zip(split, w.split, strict=True)])
        for axis, (start, size) in enumerate(zip(w.starts, shape_of(w.array), strict=True)):
            if start is not None:
                if places[axis] and size != sizes[axis]:
                    return False
                sizes[axis] = size
                places[axis].add(start)
    wide = tuple(sizes)
    middle = tuple([one_place(p, m, n) for p, m, n in zip(places, shape, wide, strict=True)])
    for to in dict.fromkeys([middle, *[w.starts for w in frames if shape_of(w.array) == wide]]):
        arrays = [at.at_place(v, to, wide) for v in eqn.operands]
        found = [a for a in arrays if a is not None]
        if len(found) == len(arrays):
            beyond = number_beyond(at, eqn) if leaves(to, shape, wide) else None
            return at.keep(result, Window(at.emit(eqn.op, *found, **eqn.attrs), to, split, beyond))
    return False


def one_place(places: set[int], count: int, size: int) -> int | None:
    """Where windows that begin at several places are brought together: in the middle, a short way for each."""
    if len(places) < 2 and count != size:
        return next(iter(places), None)
    return max(size - count, 0) // 2 if places else None


def number_beyond(at: WindowBuilder, eqn: Eqn) -> Value | None:
    """What an equation gives outside of arrays, if each of its operands has one number there."""
    numbers = [at.windows[v].beyond if v in at.windows else at.number(v) for v in eqn.operands]
    found = [v for v in numbers if v is not None]
    return at.emit(eqn.op, *found, **eqn.attrs) if len(found) == len(numbers) else None


# ---- Parts


def of_slice(at: WindowBuilder, eqn: Eqn) -> bool:
    return narrow(at, eqn.results[0], eqn.operands[0], eqn.attrs["starts"], eqn.attrs["stops"], eqn.attrs["steps"])


def of_dynamic_slice(at: WindowBuilder, eqn: Eqn) -> bool:
    return narrow_to(
        at, eqn.results[0], eqn.operands[0], known_starts(at, eqn.operands[1:], eqn.operands[0], eqn.results[0])
    )


def narrow_to(at: WindowBuilder, result: Value, x: Value, first: Shape | None) -> bool:
    if first is None:
        return False
    stops = [a + n for a, n in zip(first, shape_of(result), strict=True)]
    return narrow(at, result, x, first, stops, [1] * len(first))


def narrow(
    at: WindowBuilder, result: Value, x: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> bool:
    """A part of a window: along axes that are split a window of the same array."""
    window = at.window_of(x)
    if window is None or any(s is not None and step != 1 for s, step in zip(window.starts, steps, strict=True)):
        return False
    cuts = [
        (0, n, 1) if s is not None else cut
        for s, n, cut in zip(window.starts, shape_of(window.array), zip(starts, stops, steps, strict=True), strict=True)
    ]
    array = window.array
    if any(cut != (0, n, 1) for cut, n in zip(cuts, shape_of(array), strict=True)):
        first, end, step = zip(*cuts, strict=True)
        array = at.emit(slice_, array, starts=first, stops=end, steps=step)
    moved = tuple([None if s is None else s + a for s, a in zip(window.starts, starts, strict=True)])
    return at.keep(result, Window(array, moved, window.split, window.beyond))


def known_starts(at: WindowBuilder, starts: Sequence[Value], x: Value, part: Value) -> Shape | None:
    """Where a part begins, if that is known, moved inside."""
    found: list[int] = []
    for start, n, m in zip(starts, shape_of(x), shape_of(part), strict=True):
        made = at.made.get(start)
        if made is None or made.op is not const or not isinstance(made.attrs["value"], int):
            return None
        found.append(min(max(made.attrs["value"], 0), n - m))
    return tuple(found)


def of_dynamic_update(at: WindowBuilder, eqn: Eqn) -> bool:
    x, part, *starts = eqn.operands
    return replace_part(at, eqn.results[0], x, part, known_starts(at, starts, x, part))


def of_swap_window(at: WindowBuilder, eqn: Eqn) -> bool:
    x, part, *starts = eqn.operands
    first = known_starts(at, starts, x, part)
    return narrow_to(at, eqn.results[1], x, first) and replace_part(at, eqn.results[0], x, part, first)


def replace_part(at: WindowBuilder, result: Value, x: Value, part: Value, first: Shape | None) -> bool:
    """An array with a window replaced: a choice between two arrays."""
    window, shape = at.window_of(x), shape_of(part)
    if window is None or first is None:
        return False
    sizes = shape_of(window.array)
    to = tuple([None if s is None else s + a for s, a in zip(window.starts, first, strict=True)])
    whole = all(s is not None or m == n for s, m, n in zip(to, shape, sizes, strict=True))
    # What lies beyond the array is one number, which a part of it cannot replace.
    new = at.at_place(part, to, sizes) if whole and not leaves(to, shape, sizes) else None
    if new is None:
        return False
    inside = at.inside(sizes, to, shape)
    array = new if inside is None else at.emit(select, inside, new, window.array)
    return at.keep(result, Window(array, window.starts, window.split, window.beyond))


# ---- Padding and concatenation


def of_pad(at: WindowBuilder, eqn: Eqn) -> bool:
    """Padding along split axes lies outside of the window; what has the size of the array goes to its place."""
    (x, number), (result,) = eqn.operands, eqn.results
    window, low, high, interior = at.window_of(x), eqn.attrs["low"], eqn.attrs["high"], eqn.attrs["interior"]
    if window is None or window.beyond is not None:
        return False
    split = [s is not None for s in window.starts]
    if any(yes and gaps for yes, gaps in zip(split, interior, strict=True)):
        return False
    outside = at.value(number)
    array = at.masked(window.array, window.starts, shape_of(x), outside)
    others = [tuple([0 if yes else n for yes, n in zip(split, by, strict=True)]) for by in (low, high, interior)]
    if any(map(any, others)):
        array = at.emit(pad, array, outside, low=others[0], high=others[1], interior=others[2])
    padded = Window(array, tuple([None if s is None else s - a for s, a in zip(window.starts, low, strict=True)]),
                    window.split, outside)  # fmt: skip
    for axis, (start, m, n) in enumerate(zip(padded.starts, shape_of(result), shape_of(array), strict=True)):
        if start and m == n:
            array = at.shifted(array, axis, start, padded)
            starts = (*padded.starts[:axis], 0, *padded.starts[axis + 1 :])
            padded = Window(array, starts, window.split, outside)
    return at.keep(result, padded)


def of_concat(at: WindowBuilder, eqn: Eqn) -> bool:
    """Parts that together have the size of an array that is split: each is shifted to its place."""
    axis, (result,) = eqn.attrs["axis"], eqn.results
    shape = shape_of(result)
    windows = [w for v in eqn.operands if (w := at.window_of(v)) is not None]
    frame = next((w for w in windows if w.starts[axis] is not None and shape_of(w.array) == shape), None)
    if frame is None or any(s and i != axis for w in windows for i, s in enumerate(w.starts)):
        return False
    found: Value | None = None
    first = 0
    for old in eqn.operands:
        end = first + shape_of(old)[axis]
        here = at.at_place(old, tuple([first if i == axis else None for i in range(len(shape))]), shape)
        if here is None:
            return False
        found = here if found is None else at.emit(select, at.between(shape, axis, first, end), here, found)
        first = end
    assert found is not None
    return at.keep(result, Window(found, tuple([0 if i == axis else None for i in range(len(shape))]), frame.split))


# ---- Axes that come, go and move


def of_broadcast(at: WindowBuilder, eqn: Eqn) -> bool:
    window, axes, shape = at.windows[eqn.operands[0]], axes_of(eqn), eqn.attrs["shape"]
    if any(s is not None and shape_of(eqn.operands[0])[i] != shape[axes[i]] for i, s in enumerate(window.starts)):
        return False
    of_axis = dict(zip(axes, range(len(axes)), strict=True))
    starts = tuple([window.starts[of_axis[a]] if a in of_axis else None for a in range(len(shape))])
    split = tuple([window.split[of_axis[a]] if a in of_axis else () for a in range(len(shape))])
    sizes = shape_of(window.array)
    wide = tuple([n if s is None else sizes[of_axis[a]] for a, (s, n) in enumerate(zip(starts, shape, strict=True))])
    return at.keep(
        eqn.results[0],
        Window(at.emit(broadcast, window.array, shape=wide, axes=axes), starts, split, window.beyond),
    )


def of_transpose(at: WindowBuilder, eqn: Eqn) -> bool:
    window, order = at.windows[eqn.operands[0]], eqn.attrs["perm"]
    starts, split = tuple([window.starts[i] for i in order]), tuple([window.split[i] for i in order])
    return at.keep(eqn.results[0], Window(at.emit(eqn.op, window.array, **eqn.attrs), starts, split, window.beyond))


def reduction(neutral: Attr) -> Rule:
    """The rule of a reduction: outside of the window there is a number that changes nothing."""

    def rule(at: WindowBuilder, eqn: Eqn) -> bool:
        x, axes = eqn.operands[0], axes_of(eqn)
        window = at.windows[x]
        if window.beyond is not None or not isinstance(x.type, Tensor):
            return False
        gone = tuple([s if i in axes else None for i, s in enumerate(window.starts)])
        outside = at.to.const(neutral, Tensor(x.type.dtype))
        found = at.emit(eqn.op, at.masked(window.array, gone, shape_of(x), outside), **eqn.attrs)
        kept = [i for i in range(len(window.starts)) if i not in axes]
        starts, split = tuple([window.starts[i] for i in kept]), tuple([window.split[i] for i in kept])
        return at.keep(eqn.results[0], Window(found, starts, split))

    return rule


def of_dot(at: WindowBuilder, eqn: Eqn) -> bool:
    """A contraction: along an axis that is summed both operands are zero outside of the window."""
    names = AxisNames(eqn)
    mine = [[names.root(axis_name(k, i)) for i in range(len(shape_of(v)))] for k, v in enumerate(eqn.operands)]
    (origin,) = names.of_results()
    places: dict[str, tuple[int, int, tuple[str, ...]]] = {}  # start, size, along what it is split
    for axes, old in zip(mine, eqn.operands, strict=True):
        if (window := at.windows.get(old)) is None:
            continue
        if window.beyond is not None:
            return False
        for axis, name in enumerate(axes):
            start, size = window.starts[axis], shape_of(window.array)[axis]
            if start is None:
                continue
            # An axis of one element has no name: which one it meets is not known.
            if shape_of(old)[axis] == 1 or places.setdefault(name, (start, size, window.split[axis]))[1] != size:
                return False
    operands = [contracted(at, old, axes, places, origin) for axes, old in zip(mine, eqn.operands, strict=True)]
    found = [v for v in operands if v is not None]
    if len(found) < len(operands):
        return False
    starts = tuple([places[name][0] if name in places else None for name in origin])
    split = tuple([places[name][2] if name in places else () for name in origin])
    return at.keep(eqn.results[0], Window(at.emit(eqn.op, *found, **eqn.attrs), starts, split))


def contracted(
    at: WindowBuilder, old: Value, axes: Sequence[str], places: Mapping[str, tuple[int, int, tuple[str, ...]]],
    kept: Sequence[str],
) -> Value | None:  # fmt: skip
    """An operand of a contraction as an array of the sizes of windows."""
    shape = shape_of(old)
    starts: Starts = tuple([places[name][0] if name in places else None for name in axes])
    sizes = tuple([places[name][1] if name in places else n for name, n in zip(axes, shape, strict=True)])
    here = at.at_place(old, starts, sizes)
    if here is None:
        return None
    summed = tuple([None if name in kept else s for name, s in zip(axes, starts, strict=True)])
    return at.masked(here, summed, shape, at.zero(old))


MAKES_WINDOWS = (slice_, pad, dynamic_slice, dynamic_update, swap_window)
RULES: dict[Op, Rule] = {
    slice_: of_slice,
    dynamic_slice: of_dynamic_slice,
    dynamic_update: of_dynamic_update,
    swap_window: of_swap_window,
    pad: of_pad,
    concat: of_concat,
    broadcast: of_broadcast,
    transpose: of_transpose,
    reduce_sum: reduction(0),
    reduce_any: reduction(False),
    reduce_all: reduction(True),
    dot_general: of_dot,
}
