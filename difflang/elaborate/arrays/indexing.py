"""Subscripts `a[i, 1..n, .., mask]` and reading by them: slices, gathers, new axes.

Every index is proved to be in range, or checked at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.check_sites import IndexTarget, LoopCounter
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of, length_text
from difflang.elaborate.arrays.scan_inputs import scan_loop_axes
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate
from difflang.elaborate.expressions.broadcasting import as_array, broadcast_shape, broadcast_to
from difflang.elaborate.reports.operand_mismatches import not_indexable_error
from difflang.elaborate.runtime_checks import check_index
from difflang.elaborate.statements.iterables import range_stride
from difflang.elaborate.terms import Array, PoisonTerm, RangeTerm, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.ir.tensor_types import I32, INTEGERS, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import AxisSpread, show_type
from difflang.types.type_errors import DeferCheck
from difflang.types.unify import unify_dtypes


class SubscriptPart(Struct, frozen=True):
    """One subscript of one axis: `size` elements from `start` in steps, or a single point if `size` is None.

    `where` holds positions (an integer array: a gather). A new axis has none of these.
    """

    start: Array | None = None
    size: Dim | None = None
    step: Dim = 1
    where: Array | None = None
    new_axis: bool = False
    full_axis: bool = False


class IndexMask(Struct, frozen=True):
    """A boolean mask that selects items: it covers the axes from part number `first_part` on, which are whole."""

    first_part: int
    truths: Array
    span: Span


class Subscripts(Struct, frozen=True):
    """An array and the part of it to read or write: one `SubscriptPart` for each axis and each new axis."""

    base: Array
    parts: tuple[SubscriptPart, ...]
    span: Span
    base_span: Span
    mask: IndexMask | None = None

    @property
    def axes(self) -> tuple[SubscriptPart, ...]:
        return tuple(p for p in self.parts if not p.new_axis)


def evaluate_subscripts(cx: ElabContext, e: tree.Index, base: Term) -> Walk[Subscripts]:
    """Evaluate the subscripts between the brackets against the shape of the indexed array."""
    if isinstance(base, PoisonTerm):
        raise AlreadyReported
    if not isinstance(base, Array):
        raise not_indexable_error(e, base)
    shape = base.tensor.shape
    if any(isinstance(d, AxisSpread) for d in shape):
        raise DeferCheck
    # `..` stands for as many axes as the other subscripts leave.
    given = sum(not isinstance(s, tree.Dots) and not is_newaxis(s) for s in e.subscripts)
    if given > len(shape):
        raise too_many_indices(cx, given, base.tensor, e.span)
    parts: list[SubscriptPart] = []
    masks: list[IndexMask] = []
    axis = 0
    for sub in e.subscripts:
        if isinstance(sub, tree.Dots):
            skipped = len(shape) - given
            parts += [full_axis(cx, shape[axis + i], sub.span) for i in range(skipped)]
            axis += skipped
        elif is_newaxis(sub):
            parts.append(SubscriptPart(new_axis=True))
        else:
            if axis >= len(shape):
                raise too_many_indices(cx, given, base.tensor, e.span)
            part = yield evaluate_subscript(
                cx, sub, SubscriptedAxis(shape[axis], e.base, axis if len(shape) > 1 else None)
            )
            if isinstance(part, SubscriptPart):
                parts.append(part)
                axis += 1
            else:
                # A mask covers as many axes as it has, but is one subscript.
                given += part.tensor.rank - 1
                if given > len(shape):
                    raise too_many_indices(cx, given, base.tensor, e.span)
                sizes = axes_of_mask(cx, part, shape[axis:], sub.span)
                masks.append(IndexMask(len(parts), part, sub.span))
                parts += [full_axis(cx, size, sub.span) for size in sizes]
                axis += len(sizes)
    if len(masks) > 1:
        way = "combine them into one mask: `a[.., newaxis] and b`"
        raise cx.error("DL0313", "an array is indexed by one mask at a time", masks[1].span, "a second mask", way)
    parts += [full_axis(cx, size, e.span) for size in shape[axis:]]
    return Subscripts(base, tuple(parts), e.span, e.base.span, masks[0] if masks else None)


def too_many_indices(cx: ElabContext, given: int, type: Tensor, span: Span) -> DifflangError:
    message = f"{count_of(given, 'index', 'indices')} for an array of {count_of(type.rank, 'axis', 'axes')}"
    return cx.error("DL0333", message, span, f"this is {show_type(type)}")


def axes_of_mask(cx: ElabContext, mask: Array, sizes: tuple[Dim, ...], span: Span) -> tuple[Dim, ...]:
    """The axes that a mask covers. Errors: DL0310 where its shape differs from theirs."""
    axes = sizes[: mask.tensor.rank]
    if len(axes) == mask.tensor.rank and all(map(cx.unifier.equal, axes, mask.tensor.shape)):
        return axes
    places = f"the mask selects from shape [{', '.join(map(str, axes))}]"
    raise cx.error(
        "DL0310", "a mask must have the shape of the axes it selects from", span, f"{show_type(mask.tensor)}; {places}"
    )


def is_newaxis(e: tree.Expr) -> bool:
    return isinstance(e, tree.Name) and e.id == "newaxis"


def full_axis(cx: ElabContext, size: Dim, span: Span) -> SubscriptPart:
    return SubscriptPart(cx.integer_array(0, span), size, full_axis=True)


class SubscriptedAxis(Struct, frozen=True):
    """The axis that a subscript indexes: its size, the array, and its number if the array has several axes."""

    size: Dim
    array: tree.Expr
    number: int | None

    def access_site(self, cx: ElabContext, e: tree.Expr, index: Array, reach: Dim | None = None) -> IndexTarget:
        """The data for the report of an index out of range."""
        length, many = reach if isinstance(reach, int) else None, index.tensor.rank > 0
        return IndexTarget(self.array.span, self.number, length, many, loop_counters(cx, e, index))


def loop_counters(cx: ElabContext, e: tree.Expr, index: Array) -> tuple[LoopCounter, ...]:
    """The loop variables in an index, each with the index's offset from it, if that is known."""
    found: dict[Span, int | None] = {}
    for name in all_nodes(e):
        binding = cx.scope.find(name.id) if isinstance(name, tree.Name) else None
        if (
            binding is not None
            and binding.is_loop_variable
            and binding.span is not None
            and isinstance(binding.term, Array)
        ):
            found[binding.span] = offset_from_counter(index, binding.term)
    return tuple(found.items())


def offset_from_counter(index: Array, counter: Array) -> int | None:
    """The constant difference between an index and a loop variable, or None if there is none."""
    if index.value is counter.value:
        return 0
    more = index.index_offset - counter.index_offset
    return (
        more
        if index.index_of_loop is not None and index.index_of_loop is counter.index_of_loop and isinstance(more, int)
        else None
    )


def evaluate_subscript(cx: ElabContext, e: tree.Expr, axis: SubscriptedAxis) -> Walk[SubscriptPart | Array]:
    """One subscript against its axis. A mask is returned as it is, since it may cover more than one axis."""
    size = axis.size
    if isinstance(e, (tree.Slice, tree.Range)):
        start = (
            as_array(cx, (yield elaborate(cx, e.start)), e.start.span)
            if e.start is not None
            else cx.integer_array(0, e.span)
        )
        stop = (
            as_array(cx, (yield elaborate(cx, e.stop)), e.stop.span)
            if e.stop is not None
            else cx.integer_array(size, e.span)
        )
        step = as_array(cx, (yield elaborate(cx, e.step)), e.step.span) if e.step is not None else None
        return range_index(cx, e, start, stop, step, axis)
    index = yield elaborate(cx, e)
    if isinstance(index, RangeTerm):
        return range_index(cx, e, index.start, index.stop, index.step, axis)
    index = as_array(cx, index, e.span, "an index")
    dtype = prune_dtype(index.tensor.dtype)
    if dtype.name == "bool" and index.tensor.shape:
        return index
    if not cx.unifier.same(Tensor(index.tensor.dtype), Tensor(I32)) and dtype not in INTEGERS:
        way = "`i32(x)` rounds toward zero; `//` divides integers" if dtype.is_float else ""
        raise cx.error("DL0313", "an index must be an integer", e.span, f"this is {show_type(index.tensor)}", way)
    if index.tensor.shape:
        return SubscriptPart(where=check_index(cx, index, size, e.span, axis.access_site(cx, e, index)))
    return SubscriptPart(point_index(cx, e, index, axis))


def point_index(cx: ElabContext, e: tree.Expr, index: Array, axis: SubscriptedAxis) -> Array:
    static, size = index.static, axis.size
    if not isinstance(static, (int, Poly)) or isinstance(static, bool):
        return check_index(cx, index, size, e.span, axis.access_site(cx, e, index))
    # Only a written minus counts from the end: `a[-1]` does, `a[n]` with a negative `n` is an error.
    if isinstance(e, tree.Unary) and isinstance(static, int) and static < 0:
        static = static + size
    beyond = static - size
    if (isinstance(static, int) and static < 0) or (isinstance(beyond, int) and beyond >= 0):
        raise cx.error(
            "DL0326",
            f"index {index.static} is out of range",
            e.span,
            f"this axis {length_text(size)}",
        )
    return cx.integer_array(static, e.span)


def any_negative(*ends: Dim) -> bool:
    """Whether one of them is a negative number, which counts from the end of an axis in other languages."""
    return any(isinstance(end, int) and end < 0 for end in ends)


def range_index(
    cx: ElabContext, e: tree.Expr, start: Array, stop: Array, step: Array | None, axis: SubscriptedAxis
) -> SubscriptPart:
    by = e.step if isinstance(e, (tree.Slice, tree.Range)) else None
    stride, size = 1 if step is None else range_stride(cx, step, (by or e).span), axis.size
    first, last = start.static, stop.static
    if isinstance(first, (int, Poly)) and isinstance(last, (int, Poly)):
        inside = not (isinstance(first, int) and first < 0) and not any(
            isinstance(d, int) and d < 0 for d in (size - last, last - first)
        )
        if not inside:
            way = f"a range counts from the front: the end of the axis is {size}" if any_negative(first, last) else ""
            message = f"the range {first}..{last} is not within 0..{size}"
            raise cx.error("DL0326", message, e.span, f"this axis has {count_of(size, 'element')}", way)
        length = floor_div(last - first + (stride - 1), stride)
        all_of_it = first == 0 and last == size and stride == 1
        return SubscriptPart(cx.integer_array(first, e.span), length, stride, full_axis=all_of_it)
    length, end = static_window_length(cx, e), getattr(e, "stop", None)
    if length is None or stride != 1:
        raise cx.error(
            "DL0334",
            "the length of this range is known only at run time",
            e.span,
            "",
            "write `a[i..i + n]`, where n is a size"
            + (f", or make `{end.id}` a parameter `{end.id}: dim`" if isinstance(end, tree.Name) else ""),
        )
    return SubscriptPart(
        check_index(cx, start, size - length + 1, e.span, axis.access_site(cx, e, start, length)), length
    )


def static_window_length(cx: ElabContext, e: tree.Expr) -> Dim | None:
    """The length of `i..i + n`, whose ends differ by a size whatever `i` is; None for other ranges."""
    from difflang.elaborate.expressions.primary_expressions import lookup_name

    if (
        not isinstance(e, (tree.Range, tree.Slice))
        or e.start is None
        or not isinstance(e.stop, tree.Binary)
        or e.stop.op != "+"
    ):
        return None
    start = e.start.span.text
    lhs, rhs = e.stop.lhs, e.stop.rhs
    # Source text is compared, not values: the start of the range must be the same expression.
    offset = rhs if lhs.span.text == start else lhs if rhs.span.text == start else None
    if isinstance(offset, tree.Int):
        return offset.value
    if isinstance(offset, tree.Name):
        return cx.static(lookup_name(cx, offset.id, offset.span), offset.span, "the length of this range")
    return None


# ---- Reading


def read_indexed(cx: ElabContext, subs: Subscripts) -> Array:
    """`a[...]`."""
    if subs.mask is not None:
        # A masked write is a select; a masked read would have a run-time length.
        raise mask_length_error(cx, subs.mask)
    subs = scan_loop_axes(subs)
    # The array is too small: a run-time check fails before the read, or the code never runs. Any value will do.
    if (wide := padded_shape(subs)) is not None:
        nothing = cx.emit("const", subs.span, value=0, type=Tensor(subs.base.tensor.dtype, wide))
        subs = replace(subs, base=Array(nothing))
    if any(p.where is not None for p in subs.parts):
        return gather_elements(cx, subs)
    window = slice_window(cx, subs)
    shape: list[Dim] = []
    sizes = iter(window.tensor.shape)
    for part in subs.parts:
        if part.new_axis:
            shape.append(1)
            continue
        size = next(sizes)
        if part.size is not None:
            shape.append(size)
    return reshape_to(cx, window, tuple(shape), subs.span)


def mask_length_error(cx: ElabContext, mask: IndexMask) -> DifflangError:
    """The report of a read by a mask, whose number of items is not a size."""
    message = "the number of items that a mask selects is known only at run time"
    way = "keep all items, `where(mask, x, 0.0)`, or reduce the selected ones, `sum(for i if mask[i] => x[i])`"
    return cx.error("DL0334", message, mask.span, f"this is {show_type(mask.truths.tensor)}", way)


def padded_shape(subs: Subscripts) -> tuple[Dim, ...] | None:
    """The smallest shape that fits these subscripts, if the array is known to be smaller; else None."""
    pairs = zip(subs.axes, subs.base.tensor.shape, strict=True)
    shape = tuple(d if p.full_axis else at_least(d, 1 if p.size is None else p.size) for p, d in pairs)
    return shape if shape != subs.base.tensor.shape else None


def at_least(size: Dim, wanted: Dim) -> Dim:
    return wanted if isinstance(size, int) and isinstance(wanted, int) and size < wanted else size


def reshape_to(cx: ElabContext, x: Array, shape: tuple[Dim, ...], span: Span) -> Array:
    return x if x.tensor.shape == shape else Array(cx.emit("reshape", span, x.value, shape=shape))


def slice_window(cx: ElabContext, subs: Subscripts) -> Array:
    """The slice that the parts of all axes select, with every axis kept."""
    axes = subs.axes
    if all(p.full_axis for p in axes):
        return subs.base
    starts = [p.start.static if p.start is not None else None for p in axes]
    sizes = tuple(1 if p.size is None else p.size for p in axes)
    if all(isinstance(s, (int, Poly)) for s in starts):
        firsts = tuple(s for s in starts if isinstance(s, (int, Poly)))
        steps = tuple(p.step for p in axes)
        full = zip(axes, subs.base.tensor.shape, firsts, sizes, strict=True)
        stops = tuple(d if p.full_axis else f + (n - 1) * p.step + 1 if n != 0 else f for p, d, f, n in full)
        return Array(cx.emit("slice", subs.span, subs.base.value, starts=firsts, stops=stops, steps=steps))
    if any(p.step != 1 for p in axes):
        # `dynamic_slice` has no steps: cut the static stepped ranges first.
        return slice_window(cx, slice_strides(cx, subs))
    return Array(cx.emit("dynamic_slice", subs.span, subs.base.value, *start_offsets(axes), sizes=sizes))


def slice_strides(cx: ElabContext, subs: Subscripts) -> Subscripts:
    """The same subscripts of an array whose stepped ranges, with static ends, are already sliced out."""
    pairs = list(zip(subs.axes, subs.base.tensor.shape, strict=True))
    steps = [p if p.step != 1 else full_axis(cx, d, subs.span) for p, d in pairs]
    rest = [full_axis(cx, p.size, subs.span) if p.step != 1 and p.size is not None else p for p in subs.axes]
    cut = slice_window(cx, replace(subs, parts=tuple(steps)))
    return replace(subs, base=cut, parts=tuple(rest))


def start_offsets(axes: Sequence[SubscriptPart]) -> list[Value]:
    return [p.start.value for p in axes if p.start is not None]


def gather_elements(cx: ElabContext, subs: Subscripts) -> Array:
    """Index by arrays of positions as in NumPy: they broadcast, and their axes replace the first indexed axis."""
    subs = insert_new_axes(cx, subs)
    base, indexed, positions = gather_operands(cx, subs)
    shape = positions[0].tensor.shape
    result = Array(cx.emit("gather", subs.span, base.value, *[p.value for p in positions], axes=indexed))
    # The op puts position axes first. NumPy puts them in place of adjacent indexed axes, else first.
    if are_adjacent(indexed) and indexed[0] > 0:
        lead, before = len(shape), indexed[0]
        order = (*range(lead, lead + before), *range(lead), *range(lead + before, result.tensor.rank))
        result = Array(cx.emit("transpose", subs.span, result.value, perm=order))
    return result


def insert_new_axes(cx: ElabContext, subs: Subscripts) -> Subscripts:
    """The same subscripts of an array that already has the new axes."""
    if not any(p.new_axis for p in subs.parts):
        return subs
    sizes = iter(subs.base.tensor.shape)
    shape = tuple(1 if p.new_axis else next(sizes) for p in subs.parts)
    parts = tuple(full_axis(cx, 1, subs.span) if p.new_axis else p for p in subs.parts)
    return replace(subs, base=reshape_to(cx, subs.base, shape, subs.span), parts=parts)


def gather_operands(cx: ElabContext, subs: Subscripts) -> tuple[Array, tuple[int, ...], list[Array]]:
    """The array with its ranges sliced out, the axes that positions index, and those positions."""
    axes = subs.axes
    indexed = tuple(i for i, p in enumerate(axes) if p.size is None)
    rest = [
        SubscriptPart(cx.integer_array(0, subs.span), d, full_axis=True) if i in indexed else p
        for i, (p, d) in enumerate(zip(axes, subs.base.tensor.shape, strict=True))
    ]
    base = slice_window(cx, replace(subs, parts=tuple(rest)))
    return base, indexed, broadcast_positions(cx, [axes[i] for i in indexed], subs.span)


def broadcast_positions(cx: ElabContext, points: Sequence[SubscriptPart], span: Span) -> list[Array]:
    """Positions along several axes, broadcast to one shape."""
    found = [p.where if p.where is not None else p.start for p in points]
    positions = [f for f in found if f is not None]
    shape = broadcast_shape(cx, positions, (), span)
    return [broadcast_to(cx, default_index_dtype(p), shape, span) for p in positions]


def default_index_dtype(p: Array) -> Array:
    dtype = prune_dtype(p.tensor.dtype)
    if hasattr(dtype, "candidates") and I32 in getattr(dtype, "candidates", ()):
        unify_dtypes(dtype, I32)
    return p


def are_adjacent(axes: tuple[int, ...]) -> bool:
    return all(b - a == 1 for a, b in pairwise(axes))
