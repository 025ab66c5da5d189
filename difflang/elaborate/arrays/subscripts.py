"""Subscripts `a[i, 1..n, .., mask]`. Every index is proved to be in range, or checked at run time."""

from __future__ import annotations

from msgspec import Struct

from difflang.base.check_sites import IndexTarget, LoopCounter
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of, length_text
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate
from difflang.elaborate.expressions.broadcasting import as_array, require_rank
from difflang.elaborate.expressions.names import lookup_name
from difflang.elaborate.reports.operand_mismatches import not_indexable_error
from difflang.elaborate.runtime_checks import check_index
from difflang.elaborate.statements.iterables import range_stride
from difflang.elaborate.terms import Array, PoisonTerm, RangeTerm, Term, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.ir.tensor_types import I32, INTEGERS, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes
from difflang.types.dtype_variables import prune_dtype
from difflang.types.language_types import show_type


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


def evaluate_subscripts(cx: ElabContext, e: tree.Index, base: Term, items: Term | None = None) -> Walk[Subscripts]:
    """Evaluate the subscripts between the brackets against the shape of an array, or of the grid of `items`."""
    if isinstance(base, PoisonTerm):
        raise AlreadyReported
    if not isinstance(base, Array):
        raise not_indexable_error(e, base)
    shape = require_rank(base).tensor.shape
    # `..` stands for as many axes as the other subscripts leave.
    given = sum(not isinstance(s, tree.Dots) and not is_newaxis(s) for s in e.subscripts)
    if given > len(shape):
        raise too_many_indices(cx, given, len(shape), items or base, e.span)
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
                raise too_many_indices(cx, given, len(shape), items or base, e.span)
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
                    raise too_many_indices(cx, given, len(shape), items or base, e.span)
                sizes = axes_of_mask(cx, part, shape[axis:], sub.span)
                masks.append(IndexMask(len(parts), part, sub.span))
                parts += [full_axis(cx, size, sub.span) for size in sizes]
                axis += len(sizes)
    if len(masks) > 1:
        way = "combine them into one mask: `a[.., newaxis] and b`"
        raise cx.error("DL0313", "an array is indexed by one mask at a time", masks[1].span, "a second mask", way)
    parts += [full_axis(cx, size, e.span) for size in shape[axis:]]
    return Subscripts(base, tuple(parts), e.span, e.base.span, masks[0] if masks else None)


def too_many_indices(cx: ElabContext, given: int, rank: int, array: Term, span: Span) -> DifflangError:
    message = f"{count_of(given, 'index', 'indices')} for an array of {count_of(rank, 'axis', 'axes')}"
    return cx.error("DL0333", message, span, f"this is {show_type(type_of(array))}")


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
