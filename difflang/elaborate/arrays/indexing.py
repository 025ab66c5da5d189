"""Indexing: what stands between brackets, and reading it. Every index is proved in range, or checked as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.check_sites import Counter, Into
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.arrays.scan_inputs import by_lanes
from difflang.elaborate.context import Context, Reported, walk
from difflang.elaborate.expressions.operators import array, broadcast_shape, broadcast_to
from difflang.elaborate.reports.operand_mismatches import not_indexed
from difflang.elaborate.runtime_checks import check_index
from difflang.elaborate.terms import Array, Poison, Range, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.ir.tensor_types import I32, INTEGERS, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import nodes
from difflang.types.dtype_variables import pruned
from difflang.types.language_types import Spread, show_type
from difflang.types.type_errors import Undecided
from difflang.types.unify import unified


class Part(Struct, frozen=True):
    """What one subscript does to one axis: `size` of it from `start` in steps; a point when `size` is None.

    `where` are positions (an integer array: a gather); a new axis has none of these.
    """

    start: Array | None = None
    size: Dim | None = None
    step: int = 1
    where: Array | None = None
    new: bool = False
    whole: bool = False


class Mask(Struct, frozen=True):
    """Truths that pick items: they stand for the axes from part number `first` on, which are whole."""

    first: int
    truths: Array
    span: Span


class Subscripts(Struct, frozen=True):
    """An array and what is to be read or written of it, one part an axis (and one a new axis)."""

    base: Array
    parts: tuple[Part, ...]
    span: Span
    base_span: Span
    mask: Mask | None = None

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
        raise too_many(cx, given, base.tensor, e.span)
    parts: list[Part] = []
    masks: list[Mask] = []
    axis = 0
    for sub in e.subscripts:
        if isinstance(sub, tree.Dots):
            skipped = len(shape) - given
            parts += [whole(cx, shape[axis + i], sub.span) for i in range(skipped)]
            axis += skipped
        elif is_newaxis(sub):
            parts.append(Part(new=True))
        else:
            if axis >= len(shape):
                raise too_many(cx, given, base.tensor, e.span)
            part = yield subscript(cx, sub, Axis(shape[axis], e.base, axis if len(shape) > 1 else None))
            if isinstance(part, Part):
                parts.append(part)
                axis += 1
            else:
                given += part.tensor.rank - 1
                if given > len(shape):
                    raise too_many(cx, given, base.tensor, e.span)
                sizes = masked_axes(cx, part, shape[axis:], sub.span)
                masks.append(Mask(len(parts), part, sub.span))
                parts += [whole(cx, size, sub.span) for size in sizes]
                axis += len(sizes)
    if len(masks) > 1:
        way = "make one of them: `a[.., newaxis] and b`"
        raise cx.error("DL0313", "an array is indexed by one mask at a time", masks[1].span, "a second one", way)
    parts += [whole(cx, size, e.span) for size in shape[axis:]]
    return Subscripts(base, tuple(parts), e.span, e.base.span, masks[0] if masks else None)


def too_many(cx: Context, given: int, type: Tensor, span: Span) -> DifflangError:
    message = f"{given} indices for an array of {type.rank} axes"
    return cx.error("DL0333", message, span, f"this is {show_type(type)}")


def masked_axes(cx: Context, mask: Array, sizes: tuple[Dim, ...], span: Span) -> tuple[Dim, ...]:
    """The axes that a mask stands for. Errors: DL0310 where it has not their shape."""
    axes = sizes[: mask.tensor.rank]
    if len(axes) == mask.tensor.rank and all(map(cx.unifier.equal, axes, mask.tensor.shape)):
        return axes
    places = f"what it picks from is of shape [{', '.join(map(str, axes))}]"
    raise cx.error("DL0310", "a mask has the shape of what it picks from", span, f"{show_type(mask.tensor)}; {places}")


def is_newaxis(e: tree.Expr) -> bool:
    return isinstance(e, tree.Name) and e.id == "newaxis"


def whole(cx: Context, size: Dim, span: Span) -> Part:
    return Part(cx.integer(0, span), size, whole=True)


class Axis(Struct, frozen=True):
    """An axis that a subscript is for: its size, the array, and its number, if there are others."""

    size: Dim
    array: tree.Expr
    number: int | None

    def into(self, cx: Context, e: tree.Expr, index: Array, reach: Dim | None = None) -> Into:
        """What a report of an index out of range tells."""
        length, many = reach if isinstance(reach, int) else None, index.tensor.rank > 0
        return Into(self.array.span, self.number, length, many, counters(cx, e, index))


def counters(cx: Context, e: tree.Expr, index: Array) -> tuple[Counter, ...]:
    """The loops' variables in an index, each with what the index is more, if that is known."""
    found: dict[Span, int | None] = {}
    for name in nodes(e):
        binding = cx.scope.find(name.id) if isinstance(name, tree.Name) else None
        if binding is not None and binding.counts and binding.span is not None and isinstance(binding.term, Array):
            found[binding.span] = apart(index, binding.term)
    return tuple(found.items())


def apart(index: Array, counter: Array) -> int | None:
    """How much more an index is than a loop's variable at every step."""
    if index.value is counter.value:
        return 0
    more = index.offset - counter.offset
    return more if index.lane is not None and index.lane is counter.lane and isinstance(more, int) else None


def subscript(cx: Context, e: tree.Expr, axis: Axis) -> Walk[Part | Array]:
    """One subscript against its axis; a mask, which may stand for more than one, as it is."""
    size = axis.size
    if isinstance(e, (tree.Slice, tree.Range)):
        start = array(cx, (yield walk(cx, e.start)), e.start.span) if e.start is not None else cx.integer(0, e.span)
        stop = array(cx, (yield walk(cx, e.stop)), e.stop.span) if e.stop is not None else cx.integer(size, e.span)
        step = array(cx, (yield walk(cx, e.step)), e.step.span) if e.step is not None else None
        return ranged(cx, e, start, stop, step, axis)
    index = yield walk(cx, e)
    if isinstance(index, Range):
        return ranged(cx, e, index.start, index.stop, index.step, axis)
    index = array(cx, index, e.span, "an index")
    dtype = pruned(index.tensor.dtype)
    if dtype.name == "bool" and index.tensor.shape:
        return index
    if not cx.unifier.same(Tensor(index.tensor.dtype), Tensor(I32)) and dtype not in INTEGERS:
        way = "`i32(x)` rounds toward zero; `//` divides integers" if dtype.is_float else ""
        raise cx.error("DL0313", "an index is an integer", e.span, f"this is {show_type(index.tensor)}", way)
    if index.tensor.shape:
        return Part(where=check_index(cx, index, size, e.span, axis.into(cx, e, index)))
    return Part(point(cx, e, index, axis))


def point(cx: Context, e: tree.Expr, index: Array, axis: Axis) -> Array:
    static, size = index.static, axis.size
    if not isinstance(static, (int, Poly)) or isinstance(static, bool):
        return check_index(cx, index, size, e.span, axis.into(cx, e, index))
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


def is_negative(*ends: Dim) -> bool:
    """Whether one of them is a negative number, as other languages have it for the end of an axis."""
    return any(isinstance(end, int) and end < 0 for end in ends)


def ranged(cx: Context, e: tree.Expr, start: Array, stop: Array, step: Array | None, axis: Axis) -> Part:
    stride, size = step.static if step is not None else 1, axis.size
    if not isinstance(stride, int) or stride < 1:
        raise cx.error("DL0328", "the step of a range is a positive number known before the run", e.span)
    first, last = start.static, stop.static
    if isinstance(first, (int, Poly)) and isinstance(last, (int, Poly)):
        inside = not (isinstance(first, int) and first < 0) and not any(
            isinstance(d, int) and d < 0 for d in (size - last, last - first)
        )
        if not inside:
            way = f"a range counts from the front: the end of the axis is {size}" if is_negative(first, last) else ""
            message = f"the range {first}..{last} does not lie in 0..{size}"
            raise cx.error("DL0326", message, e.span, f"this axis has {size} places", way)
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
    return Part(check_index(cx, start, size - length + 1, e.span, axis.into(cx, e, start, length)), length)


def run_time_length(cx: Context, e: tree.Expr) -> Dim | None:
    """The length of `i..i + n`, where the ends differ by a size however large `i` is."""
    from difflang.elaborate.expressions.primary_expressions import lookup

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
    if subs.mask is not None:
        raise picked(cx, subs.mask)
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


def picked(cx: Context, mask: Mask) -> DifflangError:
    """How many items a mask picks is no size."""
    message = "how many items a mask picks is known only to the run"
    way = "keep them all, `where(mask, x, 0.0)`, or reduce what is picked, `sum(for i if mask[i] => x[i])`"
    return cx.error("DL0334", message, mask.span, f"this is {show_type(mask.truths.tensor)}", way)


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
    if any(p.step != 1 for p in axes):
        return windowed(cx, without_steps(cx, subs))
    return Array(cx.emit("dynamic_slice", subs.span, subs.base.value, *offsets(axes), sizes=sizes))


def without_steps(cx: Context, subs: Subscripts) -> Subscripts:
    """The same with the stepped ranges, whose ends are sizes, cut out already."""
    pairs = list(zip(subs.axes, subs.base.tensor.shape, strict=True))
    steps = [p if p.step != 1 else whole(cx, d, subs.span) for p, d in pairs]
    rest = [whole(cx, p.size, subs.span) if p.step != 1 and p.size is not None else p for p in subs.axes]
    cut = windowed(cx, replace(subs, parts=tuple(steps)))
    return replace(subs, base=cut, parts=tuple(rest))


def offsets(axes: Sequence[Part]) -> list[Value]:
    return [p.start.value for p in axes if p.start is not None]


def gathered(cx: Context, subs: Subscripts) -> Array:
    """Positions given by arrays, as in NumPy: they broadcast together; their axes stand where the first one stood."""
    subs = with_new_axes(cx, subs)
    base, indexed, positions = gather_plan(cx, subs)
    shape = positions[0].tensor.shape
    result = Array(cx.emit("gather", subs.span, base.value, *[p.value for p in positions], axes=indexed))
    if adjacent(indexed) and indexed[0] > 0:
        lead, before = len(shape), indexed[0]
        order = (*range(lead, lead + before), *range(lead), *range(lead + before, result.tensor.rank))
        result = Array(cx.emit("transpose", subs.span, result.value, perm=order))
    return result


def with_new_axes(cx: Context, subs: Subscripts) -> Subscripts:
    """The same of an array that has the new axes already."""
    if not any(p.new for p in subs.parts):
        return subs
    sizes = iter(subs.base.tensor.shape)
    shape = tuple(1 if p.new else next(sizes) for p in subs.parts)
    parts = tuple(whole(cx, 1, subs.span) if p.new else p for p in subs.parts)
    return replace(subs, base=reshaped(cx, subs.base, shape, subs.span), parts=parts)


def gather_plan(cx: Context, subs: Subscripts) -> tuple[Array, tuple[int, ...], list[Array]]:
    """The array with its ranges cut out, and the axes that positions index with those positions."""
    axes = subs.axes
    indexed = tuple(i for i, p in enumerate(axes) if p.size is None)
    rest = [
        Part(cx.integer(0, subs.span), d, whole=True) if i in indexed else p
        for i, (p, d) in enumerate(zip(axes, subs.base.tensor.shape, strict=True))
    ]
    base = windowed(cx, replace(subs, parts=tuple(rest)))
    return base, indexed, together(cx, [axes[i] for i in indexed], subs.span)


def together(cx: Context, points: Sequence[Part], span: Span) -> list[Array]:
    """Positions along several axes, of one shape."""
    found = [p.where if p.where is not None else p.start for p in points]
    positions = [f for f in found if f is not None]
    shape = broadcast_shape(cx, positions, (), span)
    return [broadcast_to(cx, settled_index(p), shape, span) for p in positions]


def settled_index(p: Array) -> Array:
    dtype = pruned(p.tensor.dtype)
    if hasattr(dtype, "candidates") and I32 in getattr(dtype, "candidates", ()):
        unified(dtype, I32)
    return p


def adjacent(axes: tuple[int, ...]) -> bool:
    return all(b - a == 1 for a, b in pairwise(axes))
