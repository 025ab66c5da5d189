"""`vmap`: maps a function over a batch axis of its arguments, the first one or those that `in_axes` names."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.calls.application import applies, apply
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.context import ElabContext
from difflang.elaborate.derivatives.wrt import positional_arguments
from difflang.elaborate.expressions.map_equations import emit_map
from difflang.elaborate.statements.loop_iterable import LoopIterable
from difflang.elaborate.terms import Array, Term, Tuple, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import I32, Tensor
from difflang.types.function_code import VmapCode
from difflang.types.join_types import contains_kind
from difflang.types.language_types import (
    ClosureType,
    FnType,
    RecordType,
    drop_axes,
    leaf_types,
    map_tensors,
    show_type,
)

SpannedTerm = tuple[Term, Span]
AxisOrder = Callable[[Tensor], tuple[int, ...]]


@applies(VmapCode)
def apply_vmap(cx: ElabContext, code: VmapCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """`vmap(f)(xs, ys)`: apply f to each item and stack the results; or along the axes of `code`. Errors: DL0332."""
    (f,) = captures
    return vmap_along_axes(cx, f, args, code) if code.axes else map_first_axes(cx, f, args, "vmap")


def map_first_axes(cx: ElabContext, f: Term, args: CallArgs, name: str) -> Walk[Term]:
    """Map a function over the first axes of all arguments. Errors: DL0332 for `name`."""
    values = [v for term, _ in args.items for v in leaves(term)]
    if args.named or not have_equal_batch_size(cx, values):
        raise batch_size_error(cx, args, name)
    return map_over_batch(cx, f, args.span, args.items, [True] * len(args.items))


def vmap_along_axes(cx: ElabContext, f: Term, args: CallArgs, code: VmapCode) -> Walk[Term]:
    """Map along one axis of each argument, or none, and move the batch axes of the result to `code.out`."""
    given = {*range(len(args.items))}
    if args.named:
        names = parameter_names(f)
        given |= {names.index(name) for name in args.named if name in names}
        args = yield positional_arguments(cx, f, args)
    axes = [axis if i in given else None for i, axis in enumerate(code.axes[: len(args.items)])]
    items = [
        item if axis is None else (move_axis_first(cx, item, axis), item[1])
        for item, axis in zip(args.items, axes, strict=True)
    ]
    batched = [axis is not None for axis in axes]
    if not have_equal_batch_size(cx, values := batched_leaves(items, batched)):
        lengths = " and ".join(dict.fromkeys([str(batch_size(v)) for v in values])) or "none"
        raise cx.error("DL0332", "all arguments of `vmap` must have the same batch size", args.span, f"here {lengths}")
    return move_to_out_axes(cx, (yield map_over_batch(cx, f, args.span, items, batched)), code.out, args.span)


def map_over_batch(cx: ElabContext, f: Term, span: Span, items: list[SpannedTerm], batched: list[bool]) -> Walk[Term]:
    """Apply f to each item of the `batched` arguments; the others are shared."""
    values = batched_leaves(items, batched)
    length = batch_size(values[0])
    assert length is not None

    def body(_: Array, rows: list[Value]) -> Walk[Term]:
        rest = iter(rows)
        inner = [(batch_item(t, [next(rest) for _ in leaves(t)]) if b else t, at)
                 for (t, at), b in zip(items, batched, strict=True)]  # fmt: skip
        # One trace of f in a `map` region: the op's batching rule vectorizes it later.
        return apply(cx, f, CallArgs(span, inner))

    over = LoopIterable(length, cx.integer_array(length, span), values, lambda index, _: index)
    return (yield emit_map(cx, span, over, body))


def batched_leaves(items: list[SpannedTerm], batched: list[bool]) -> list[Value]:
    """The arrays in the batched arguments."""
    return [v for (term, _), along in zip(items, batched, strict=True) if along for v in leaves(term)]


def batch_item(term: Term, rows: list[Value]) -> Term:
    return term_from_leaves(drop_axes(type_of(term), 1), rows)


def have_equal_batch_size(cx: ElabContext, values: list[Value]) -> bool:
    """Whether there are values and their first axes have one size."""
    sizes = [batch_size(v) for v in values]
    return bool(sizes) and all(s is not None and cx.unifier.equal(s, sizes[0] or 0) for s in sizes)


def batch_size(value: Value) -> Dim | None:
    return value.type.shape[0] if isinstance(value.type, Tensor) and value.type.shape else None


def batch_size_error(cx: ElabContext, args: CallArgs, name: str) -> DifflangError:
    alone = next(((t, s) for t, s in args.items if isinstance(t, Array) and not t.tensor.shape), None)
    if alone is not None:
        message, way = f"`{name}` maps over the first axis, but a number has none", "call the function itself"
        return cx.error("DL0332", message, alone[1], f"this is {show_type(type_of(alone[0]))}", way)
    message = f"`{name}` maps over the first axis of every argument"
    sizes = dict.fromkeys([str(size) for t, _ in args.items for v in leaves(t) if (size := batch_size(v)) is not None])
    found = f"the first axes are {' and '.join(sizes)}" if sizes else "nothing here has an axis"
    return cx.error("DL0332", message, args.span, found)


# ---- Axes


def move_axis_first(cx: ElabContext, item: SpannedTerm, axis: int) -> Term:
    """An argument with that axis of its arrays moved to the front. Errors: DL0332 where one has no such axis."""
    term, span = item

    def axis_first(t: Tensor) -> tuple[int, ...]:
        if not -t.rank <= axis < t.rank:
            raise cx.error("DL0332", f"`vmap` maps over axis {axis} of this", span, f"{t} has none")
        return (axis % t.rank, *[a for a in range(t.rank) if a != axis % t.rank])

    def axes_of_batch(record: RecordType) -> tuple[Dim, ...]:
        moved = {axis_first(t) for t in leaf_types(record)} or {axis_first(Tensor(I32, record.axes))}
        own, (first, *_) = len(record.axes), sorted(moved)
        if all(perm[0] >= own for perm in moved):
            return (0, *record.axes)  # the size is that of the batch, which the items do not have
        if len({perm[0] for perm in moved}) > 1:
            message = f"axis {axis} is one of the array in some fields, and one of its items in others"
            raise cx.error("DL0332", message, span, f"this is {show_type(record)}", "count the axis from the front")
        return (record.axes[first[0]], *record.axes[: first[0]], *record.axes[first[0] + 1 :])

    return permute_leaves(cx, term, axis_first, span, axes_of_batch)


def move_to_out_axes(cx: ElabContext, result: Term, out: int | tuple[int, ...], span: Span) -> Term:
    """The result with its batch axis moved to `out`. Errors: DL0332."""
    if contains_kind(type_of(result), (ClosureType, FnType)):
        way = "take the derivative of the mapped function, `f.vmap().vjp()`, or return numbers"
        raise cx.error("DL0332", "a mapped function cannot return functions", span, "this returns functions", way)
    if isinstance(out, tuple):
        if not isinstance(result, Tuple) or len(result.items) != len(out):
            found = f"this is {type_of(result)}"
            raise cx.error(
                "DL0332",
                f"`out_axes` has {count_of(len(out), 'entry', 'entries')}",
                span,
                found,
                "one number applies to all results",
            )
        parts = tuple([move_to_out_axes(cx, part, axis, span) for part, axis in zip(result.items, out, strict=True)])
        return replace(result, items=parts)

    def axis_at_out(t: Tensor) -> tuple[int, ...]:
        if not -t.rank <= out < t.rank:
            raise cx.error(
                "DL0332", f"`out_axes` puts the batch axis at position {out}", span, f"a result then has type {t}"
            )
        rest = [*range(1, t.rank)]
        rest.insert(out % t.rank, 0)
        return tuple(rest)

    def axes_of_result(record: RecordType) -> tuple[Dim, ...]:
        # Elsewhere than among the axes of an array of records, it is an axis of the fields alone.
        batch, *rest = record.axes
        positions = {axis_at_out(t).index(0) for t in leaf_types(record)} or {0}
        at = min(positions)
        return (*rest[:at], batch, *rest[at:]) if positions == {at} and at <= len(rest) else tuple(rest)

    return permute_leaves(cx, result, axis_at_out, span, axes_of_result)


def permute_leaves(
    cx: ElabContext, term: Term, order: AxisOrder, span: Span, axes: Callable[[RecordType], tuple[Dim, ...]]
) -> Term:
    """A term with the axes of its arrays permuted; `axes` are then those of an array of records."""

    def permute_value(value: Value) -> Value:
        assert isinstance(value.type, Tensor)
        perm = order(value.type)
        return value if perm == (*range(len(perm)),) else cx.emit("transpose", span, value, perm=perm)

    values = [permute_value(v) for v in leaves(term)]
    permuted = map_tensors(type_of(term), lambda t: Tensor(t.dtype, tuple([t.shape[a] for a in order(t)])), axes)
    return term_from_leaves(permuted, values)
