"""Indexing: what stands between brackets, read and written. Every index is proved in range, or checked as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from difflang.base.source import Span
from difflang.check.reports import Undecided
from difflang.check.types import Spread, pruned, show_type
from difflang.check.unify import unified
from difflang.elaborate.context import Context, Reported, walk
from difflang.elaborate.failure import check_index
from difflang.elaborate.lanes import by_lanes
from difflang.elaborate.mismatches import no_conversion, not_indexed
from difflang.elaborate.operators import ARITHMETIC, array, broadcast_shape, broadcast_to, elementwise
from difflang.elaborate.terms import Array, Poison, Range, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.dims import Dim, Poly, floor_div
from difflang.ir.graph import Value
from difflang.ir.types import COMPLEXES, I32, INTEGERS, Tensor
from difflang.syntax import tree


@dataclass(frozen=True, slots=True)
class Part:
    """What one subscript does to one axis: `size` of it from `start` in steps; a point when `size` is None.

    `where` are positions (an integer array: a gather); a new axis has none of these.
    """

    start: Array | None = None
    size: Dim | None = None
    step: int = 1
    where: Array | None = None
    new: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Subscripts:
    """An array and what is to be read or written of it, one part an axis (and one a new axis)."""

    base: Array
    parts: tuple[Part, ...]
    span: Span
    base_span: Span

    @property
    def axes(self) -> tuple[Part, ...]:
        return tuple(p for p in self.parts if not p.new)


def subscripts(cx: Context, e: tree.Index, base: Term) -> Walk[Subscripts]:
    """Evaluate what stands between the brackets against the shape of what stands before them."""
    if isinstance(base, Poison):
        raise Reported
    if not isinstance(base, Array):
        raise not_indexed(e, base)
    shape = base.tensor.shape
    if any(isinstance(d, Spread) for d in shape):
        raise Undecided
    given = sum(not isinstance(s, tree.Dots) and not is_newaxis(s) for s in e.subscripts)
    if given > len(shape):
        raise cx.error(
            "DL0333", f"{given} indices for an array of {len(shape)} axes", e.span, f"this is {show_type(base.tensor)}"
        )
    parts: list[Part] = []
    axis = 0
    for sub in e.subscripts:
        if isinstance(sub, tree.Dots):
            skipped = len(shape) - given
            parts += [whole(cx, shape[axis + i], sub.span) for i in range(skipped)]
            axis += skipped
        elif is_newaxis(sub):
            parts.append(Part(new=True))
        else:
            parts.append((yield subscript(cx, sub, shape[axis])))
            axis += 1
    parts += [whole(cx, size, e.span) for size in shape[axis:]]
    return Subscripts(base, tuple(parts), e.span, e.base.span)


def is_newaxis(e: tree.Expr) -> bool:
    return isinstance(e, tree.Name) and e.id == "newaxis"


def whole(cx: Context, size: Dim, span: Span) -> Part:
    return Part(cx.integer(0, span), size, whole=True)


def subscript(cx: Context, e: tree.Expr, size: Dim) -> Walk[Part]:
    """One subscript against the size of its axis."""
    if isinstance(e, (tree.Slice, tree.Range)):
        start = array(cx, (yield walk(cx, e.start)), e.start.span) if e.start is not None else cx.integer(0, e.span)
        stop = array(cx, (yield walk(cx, e.stop)), e.stop.span) if e.stop is not None else cx.integer(size, e.span)
        step = array(cx, (yield walk(cx, e.step)), e.step.span) if e.step is not None else None
        return ranged(cx, e, start, stop, step, size)
    index = yield walk(cx, e)
    if isinstance(index, Range):
        return ranged(cx, e, index.start, index.stop, index.step, size)
    index = array(cx, index, e.span, "an index")
    dtype = pruned(index.tensor.dtype)
    if dtype.name == "bool":
        raise cx.not_yet("indexing by a mask is", e.span, "choose with `where(mask, x, 0.0)`")
    if not cx.unifier.same(Tensor(index.tensor.dtype), Tensor(I32)) and dtype not in INTEGERS:
        raise cx.error("DL0313", "an index is an integer", e.span, f"this is {show_type(index.tensor)}")
    if index.tensor.shape:
        return Part(where=check_index(cx, index, size, e.span))
    return Part(point(cx, e, index, size))


def point(cx: Context, e: tree.Expr, index: Array, size: Dim) -> Array:
    static = index.static
    if not isinstance(static, (int, Poly)) or isinstance(static, bool):
        return check_index(cx, index, size, e.span)
    if isinstance(e, tree.Unary) and isinstance(static, int) and static < 0:
        static = static + size
    beyond = static - size
    if (isinstance(static, int) and static < 0) or (isinstance(beyond, int) and beyond >= 0):
        raise cx.error(
            "DL0326",
            f"index {index.static} is out of range",
            e.span,
            f"this axis has {size} places, 0 to {size - 1}" if size != 0 else "this axis is empty",
        )
    return cx.integer(static, e.span)


def ranged(cx: Context, e: tree.Expr, start: Array, stop: Array, step: Array | None, size: Dim) -> Part:
    stride = step.static if step is not None else 1
    if not isinstance(stride, int) or stride < 1:
        raise cx.error("DL0328", "the step of a range is a positive number known before the run", e.span)
    first, last = start.static, stop.static
    if isinstance(first, (int, Poly)) and isinstance(last, (int, Poly)):
        inside = not (isinstance(first, int) and first < 0) and not any(
            isinstance(d, int) and d < 0 for d in (size - last, last - first)
        )
        if not inside:
            raise cx.error(
                "DL0326", f"the range {first}..{last} does not lie in 0..{size}", e.span, f"this axis has {size} places"
            )
        length = floor_div(last - first + (stride - 1), stride)
        all_of_it = first == 0 and last == size and stride == 1
        return Part(cx.integer(first, e.span), length, stride, whole=all_of_it)
    length = run_time_length(cx, e)
    if length is None or stride != 1:
        raise cx.error(
            "DL0334",
            "the length of this range is known only to the run",
            e.span,
            "",
            "write `a[i..i + n]`, where n is a size",
        )
    return Part(check_index(cx, start, size - length + 1, e.span), length)


def run_time_length(cx: Context, e: tree.Expr) -> Dim | None:
    """The length of `i..i + n`, where the ends differ by a size however large `i` is."""
    from difflang.elaborate.expressions import lookup

    if (
        not isinstance(e, (tree.Range, tree.Slice))
        or e.start is None
        or not isinstance(e.stop, tree.Binary)
        or e.stop.op != "+"
    ):
        return None
    start = e.start.span.text
    lhs, rhs = e.stop.lhs, e.stop.rhs
    offset = rhs if lhs.span.text == start else lhs if rhs.span.text == start else None
    if isinstance(offset, tree.Int):
        return offset.value
    if isinstance(offset, tree.Name):
        return cx.static(lookup(cx, offset.id, offset.span), offset.span, "the length of this range")
    return None


# ---- Reading


def read(cx: Context, subs: Subscripts) -> Array:
    """`a[...]`. Where nothing can be there to read, a check fails or nobody comes by: any number will do."""
    subs = by_lanes(subs)
    if (wide := wanting(subs)) is not None:
        nothing = cx.emit("const", subs.span, value=0, type=Tensor(subs.base.tensor.dtype, wide))
        subs = replace(subs, base=Array(nothing))
    if any(p.where is not None for p in subs.parts):
        return gathered(cx, subs)
    window = windowed(cx, subs)
    shape: list[Dim] = []
    sizes = iter(window.tensor.shape)
    for part in subs.parts:
        if part.new:
            shape.append(1)
            continue
        size = next(sizes)
        if part.size is not None:
            shape.append(size)
    return reshaped(cx, window, tuple(shape), subs.span)


def wanting(subs: Subscripts) -> tuple[Dim, ...] | None:
    """The shape it would take for these subscripts to fit, where the array is known to have fewer places."""
    pairs = zip(subs.axes, subs.base.tensor.shape, strict=True)
    shape = tuple(d if p.whole else least(d, 1 if p.size is None else p.size) for p, d in pairs)
    return shape if shape != subs.base.tensor.shape else None


def least(size: Dim, wanted: Dim) -> Dim:
    return wanted if isinstance(size, int) and isinstance(wanted, int) and size < wanted else size


def reshaped(cx: Context, x: Array, shape: tuple[Dim, ...], span: Span) -> Array:
    return x if x.tensor.shape == shape else Array(cx.emit("reshape", span, x.value, shape=shape))


def windowed(cx: Context, subs: Subscripts) -> Array:
    """The block that the parts of all axes cut out, every axis kept."""
    axes = subs.axes
    if all(p.whole for p in axes):
        return subs.base
    starts = [p.start.static if p.start is not None else None for p in axes]
    sizes = tuple(1 if p.size is None else p.size for p in axes)
    if all(isinstance(s, (int, Poly)) for s in starts):
        firsts = tuple(s for s in starts if isinstance(s, (int, Poly)))
        steps = tuple(p.step for p in axes)
        full = zip(axes, subs.base.tensor.shape, firsts, sizes, strict=True)
        stops = tuple(d if p.whole else f + (n - 1) * p.step + 1 if n != 0 else f for p, d, f, n in full)
        return Array(cx.emit("slice", subs.span, subs.base.value, starts=firsts, stops=stops, steps=steps))
    stepped = [i for i, p in enumerate(axes) if p.step != 1]
    if stepped:
        raise cx.not_yet("a stepped range beside a run-time index is", subs.span, "index twice")
    return Array(cx.emit("dynamic_slice", subs.span, subs.base.value, *offsets(axes), sizes=sizes))


def offsets(axes: Sequence[Part]) -> list[Value]:
    return [p.start.value for p in axes if p.start is not None]


def gathered(cx: Context, subs: Subscripts) -> Array:
    """Positions given by arrays, as in NumPy: they broadcast together; their axes stand where the first one stood."""
    base, axes, indexed, positions = gather_plan(cx, subs)
    shape = positions[0].tensor.shape
    result = Array(cx.emit("gather", subs.span, base.value, *[p.value for p in positions], axes=indexed))
    if adjacent(indexed) and indexed[0] > 0:
        lead, before = len(shape), indexed[0]
        order = (*range(lead, lead + before), *range(lead), *range(lead + before, result.tensor.rank))
        result = Array(cx.emit("transpose", subs.span, result.value, perm=order))
    if any(p.new for p in subs.parts):
        raise cx.not_yet("`newaxis` beside an array of positions is", subs.span, "index twice")
    del axes
    return result


def gather_plan(cx: Context, subs: Subscripts) -> tuple[Array, tuple[Part, ...], tuple[int, ...], list[Array]]:
    """The array with its ranges cut out, and the axes that positions index with those positions."""
    axes = subs.axes
    indexed = tuple(i for i, p in enumerate(axes) if p.size is None)
    rest = [
        Part(cx.integer(0, subs.span), d, whole=True) if i in indexed else p
        for i, (p, d) in enumerate(zip(axes, subs.base.tensor.shape, strict=True))
    ]
    base = windowed(cx, Subscripts(subs.base, tuple(rest), subs.span, subs.base_span))
    found = [p.where if p.where is not None else p.start for i, p in enumerate(axes) if i in indexed]
    positions = [f for f in found if f is not None]
    shape = broadcast_shape(cx, positions, (), subs.span)
    return base, axes, indexed, [broadcast_to(cx, settled_index(p), shape, subs.span) for p in positions]


def settled_index(p: Array) -> Array:
    dtype = pruned(p.tensor.dtype)
    if hasattr(dtype, "candidates") and I32 in getattr(dtype, "candidates", ()):
        unified(dtype, I32)
    return p


def adjacent(axes: tuple[int, ...]) -> bool:
    return all(b - a == 1 for a, b in pairwise(axes))


# ---- Writing


# How an update goes to positions, which may name a place more than once.
SCATTERS = {"=": "scatter", "+": "scatter_add", "*": "scatter_mul", "max": "scatter_max", "min": "scatter_min"}


def written(cx: Context, subs: Subscripts, value: Term, span: Span, op: str = "=") -> Array:
    """The array with a part of it replaced, or with `+` added to; other operations need an array of positions."""
    change = array(cx, value, span)
    if any(p.new for p in subs.parts):
        raise cx.error("DL0207", "a new axis cannot be assigned to", subs.span)
    if not unified(subs.base.tensor.dtype, change.tensor.dtype):
        raise no_conversion(cx, "assignment", span, [subs.base, change], (subs.base_span, span))
    if wanting(subs) is not None:
        return subs.base
    if any(p.where is not None or p.step != 1 for p in subs.parts):
        return scattered(cx, subs, change, span, op)
    axes = subs.axes
    sizes = tuple(1 if p.size is None else p.size for p in axes)
    visible = tuple(p.size for p in axes if p.size is not None)
    part = reshaped(cx, fitted(cx, change, visible, span, subs), sizes, span)
    if all(p.whole for p in axes):
        return part if op == "=" else sum_of(cx, subs.base, part, span)
    if op == "+":
        part = sum_of(cx, windowed(cx, subs), part, span)
    return Array(cx.emit("dynamic_update", span, subs.base.value, part.value, *offsets(axes)))


def combined(cx: Context, op: str, old: Term, value: Term, span: Span, spans: Sequence[Span] = ()) -> Term:
    """What an update makes of what is there. `max=` and `min=` are assignments that happen if the value is better."""
    if op not in ("max", "min"):
        return elementwise(cx, ARITHMETIC[op], span, (old, value), spans)
    better = elementwise(cx, "gt" if op == "max" else "lt", span, (value, old), spans[::-1])
    return elementwise(cx, "select", span, (better, value, old))


def sum_of(cx: Context, a: Array, b: Array, span: Span) -> Array:
    total = elementwise(cx, "add", span, (a, b))
    assert isinstance(total, Array)
    return total


def fitted(cx: Context, change: Array, shape: tuple[Dim, ...], span: Span, subs: Subscripts) -> Array:
    """What is written, broadcast to where it goes. Errors: DL0310 if it does not fit there."""
    target = Array(cx.emit("const", span, value=0, type=Tensor(subs.base.tensor.dtype, shape)))
    if broadcast_shape(cx, (target, change), (subs.span, span), span) != shape:
        raise cx.error(
            "DL0310",
            "this does not fit into the place it is written to",
            span,
            f"{show_type(change.tensor)} into {show_type(target.tensor)}",
        )
    return broadcast_to(cx, change, shape, span)


def scattered(cx: Context, subs: Subscripts, change: Array, span: Span, op: str) -> Array:
    """Writes to positions given by arrays or by a stepped range, in their order where one names a place again."""
    if op not in ("=", "+") and pruned(subs.base.tensor.dtype) in COMPLEXES:
        raise cx.not_yet(f"`{op}=` at an array of positions in complex numbers is", span, "loop over the positions")
    axes = [stepped_positions(cx, p, subs.span) if p.step != 1 else p for p in subs.axes]
    plan = Subscripts(subs.base, tuple(axes), subs.span, subs.base_span)
    if any(p.size is not None and not p.whole for p in axes):
        raise cx.not_yet("assigning to a range beside an array of positions is", subs.span, "loop over one of them")
    _, _, indexed, positions = gather_plan(cx, plan)
    lead = positions[0].tensor.shape
    rest = tuple(d for i, d in enumerate(subs.base.tensor.shape) if i not in indexed)
    before = indexed[0] if adjacent(indexed) else 0
    shape = (*rest[:before], *lead, *rest[before:])
    update = fitted(cx, change, shape, span, subs)
    if before:
        order = (*range(before, before + len(lead)), *range(before), *range(before + len(lead), len(shape)))
        update = Array(cx.emit("transpose", span, update.value, perm=order))
    return cx.op(SCATTERS[op], span, subs.base, update, *positions, axes=indexed)


def stepped_positions(cx: Context, part: Part, span: Span) -> Part:
    assert part.start is not None and part.size is not None
    iota = Array(cx.emit("iota", span, type=Tensor(I32, (part.size,)), axis=0))
    scaled = elementwise(cx, "mul", span, (iota, cx.integer(part.step, span)))
    moved = elementwise(cx, "add", span, (scaled, part.start))
    assert isinstance(moved, Array)
    return Part(where=moved)
