"""`reduce` and `scan` with a user-defined operation: a sequential loop, or a tree for an associative operation.

The sequential form is a loop: the running value may differ in type from the items, or change the variant of an enum.
An operation that the program declares associative is applied to whole levels of a tree at once, if the number of items
is known, so the depth is the logarithm of that number. Both emit ordinary equations and need no derivative rule.
"""

from __future__ import annotations

from collections.abc import Callable

from difflang.base.source import Span
from difflang.elaborate.calls.application import apply, placeholder_term
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, register_builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.map_equations import emit_map
from difflang.elaborate.statements.iterables import as_iterable
from difflang.elaborate.statements.loop_iterable import LoopIterable
from difflang.elaborate.statements.loops import loop_expression
from difflang.elaborate.statements.regions import drop_static
from difflang.elaborate.terms import Array, PoisonTerm, Term, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.join_types import contains_kind, least_common_type
from difflang.types.language_types import (
    ClosureType,
    LangType,
    SumType,
    VariantType,
    add_axes,
    drop_axes,
    show_type,
)
from difflang.types.type_errors import make_error

# The names in the loop of a fold. They begin with a space, so no program can use them.
OP_NAME, STATE_NAME, ITEMS_NAME, ITEM_NAME = " op", " state", " items", " item"


class FoldStep(tree.Assign, frozen=True, eq=False):
    """The assignment of a fold's loop: the operation combines the running value with the next item."""

    name: str
    op_span: Span


def elaborate_fold(cx: ElabContext, args: CallArgs, name: str) -> Walk[Term]:
    """`reduce(op, init, xs)` is the last running value, `scan(op, init, xs)` all of them except `init`."""
    took = BuiltinArgs(cx, args, name)
    for part in ("op", "init", "xs"):
        took.term(part)
    chosen = (VariantType, SumType, ClosureType)
    if took.flag("associative") and not contains_kind(type_of(took.term("init")), chosen):
        grouped = TreeReduction(cx, took, args.span, name)
        if grouped.iterable.length is not None:
            return (yield grouped.value(grouped.iterable.length))
    return (yield fold_sequentially(cx, took, args.span, name))


register_builtin("reduce", lambda cx, args: elaborate_fold(cx, args, "reduce"), "op init xs associative?")
register_builtin("scan", lambda cx, args: elaborate_fold(cx, args, "scan"), "op init xs associative?")


# ---- Sequential


def fold_sequentially(cx: ElabContext, took: BuiltinArgs, span: Span, name: str) -> Walk[Term]:
    """The fold as the `for` loop that a user would write."""
    at = took.span("xs")
    fn, state, items, item = (
        tree.Name(s, n) for s, n in ((took.span("op"), OP_NAME), (span, STATE_NAME), (at, ITEMS_NAME), (at, ITEM_NAME))
    )
    value = tree.Call(span, fn, tuple(tree.Arg(span, None, n) for n in (state, item)))
    step = (FoldStep(span, state, value, name, fn.span), *([tree.Yield(span, state)] if name == "scan" else []))
    loop = tree.For(span, tree.NamePattern(at, ITEM_NAME), items, tree.Block(span, step), ())
    with cx.child_scope() as scope:
        scope.bind(OP_NAME, took.term("op"))
        scope.bind(ITEMS_NAME, took.term("xs"))
        scope.bind(STATE_NAME, drop_static(took.term("init")), mutable=True, span=took.span("init"))
        running = yield loop_expression(cx, loop)
        last = scope.names[STATE_NAME].term
    assert not isinstance(last, (int, Poly))
    return running if name == "scan" else last


@elaborates(FoldStep)
def elaborate_fold_step(cx: ElabContext, e: FoldStep) -> Walk[Term]:
    binding = cx.scope.find(STATE_NAME)
    value = yield elaborate(cx, e.value)
    assert binding is not None and binding.span is not None
    assert not isinstance(binding.term, (int, Poly))
    check_carry_type(cx, e.name, type_of(binding.term), value, binding.span, e.op_span)
    binding.term = drop_static(value)
    return value


def check_carry_type(cx: ElabContext, name: str, running: LangType, value: Term, init: Span, op: Span) -> None:
    """Errors: DL0304 for an operation whose result type differs from the running value's."""
    if isinstance(value, PoisonTerm):
        raise AlreadyReported
    if least_common_type(cx.unifier, running, type_of(value)) is None:
        raise make_error(
            "DL0304",
            f"the carry of `{name}` is {show_type(running)} and keeps that type",
            (op, f"this gives {show_type(type_of(value))}"),
            (init, f"it starts as {show_type(running)}"),
        )


# ---- As a tree


class TreeReduction:
    """A fold by an associative operation. Terms hold many values at once: their leaves have an extra leading axis."""

    def __init__(self, cx: ElabContext, took: BuiltinArgs, span: Span, name: str) -> None:
        self.cx, self.span, self.name = cx, span, name
        self.op, self.init = took.term("op"), took.term("init")
        self.op_span, self.init_span, self.items_span = (took.span(n) for n in ("op", "init", "xs"))
        self.iterable = as_iterable(cx, took.term("xs"), self.items_span)
        self.type = type_of(drop_static(self.init))

    def value(self, length: Dim) -> Walk[Term]:
        items = yield emit_map(self.cx, self.items_span, self.iterable, self.item)
        one = drop_axes(type_of(items), 1)
        if not self.cx.unifier.same(self.type, one):
            raise make_error(
                "DL0304",
                f"the initial value of an associative `{self.name}` must have the type of its items",
                (self.init_span, f"this is {show_type(self.type)}"),
                (self.items_span, f"an item is {show_type(one)}"),
            )
        if self.cx.root.definition_only or not isinstance(length, int):
            return (yield self.type_only(length))
        if length == 0:
            return drop_static(self.init) if self.name == "reduce" else items
        first = yield self.applied(self.init, self.drop_lead_axis(self.slice_items(items, 0, 1)))
        whole = self.concat_items(
            self.map_leaves(first, lambda x: self.reshape_value(x, (1, *shape_of_value(x)))), self.slice_items(items, 1)
        )
        return (yield self.reduce_pairwise(whole, length) if self.name == "reduce" else self.prefix_scan(whole, length))

    def type_only(self, length: Dim) -> Walk[Term]:
        """Check the operation and give a placeholder, before the number of items is known."""
        with self.cx.nested_graph(self.span):
            yield self.applied(placeholder_term(self.cx, self.type), placeholder_term(self.cx, self.type))
        if self.name == "reduce":
            return placeholder_term(self.cx, self.type)
        return placeholder_term(self.cx, add_axes(self.type, (length,)))

    def item(self, index: Array, rows: list[Value]) -> Walk[Term]:
        return self.iterable.item(index, rows)
        yield

    def applied(self, a: Term, b: Term) -> Walk[Term]:
        args = CallArgs(self.span, [(a, self.span), (b, self.items_span)], fn_span=self.op_span)
        value = yield apply(self.cx, self.op, args)
        check_carry_type(self.cx, self.name, self.type, value, self.init_span, self.op_span)
        return drop_static(value)

    def reduce_pairwise(self, items: Term, length: int) -> Walk[Term]:
        """Combine neighbours level by level until one value is left."""
        while length > 1:
            half = length // 2
            pairs = yield self.combine_pairs(
                self.slice_items(items, 0, 2 * half, 2), self.slice_items(items, 1, 2 * half, 2), half
            )
            items = self.concat_items(pairs, self.slice_items(items, 2 * half)) if length % 2 else pairs
            length = half + length % 2
        return self.drop_lead_axis(items)

    def prefix_scan(self, items: Term, length: int) -> Walk[Term]:
        """All running values: the scan of combined neighbours gives every second one, the others need one more step."""
        # The recursive-doubling scan of `jax.lax.associative_scan`, with the recursion unrolled.
        levels: list[tuple[Term, int]] = []
        while length > 1:
            half = length // 2
            levels.append((items, length))
            items = yield self.combine_pairs(
                self.slice_items(items, 0, 2 * half, 2), self.slice_items(items, 1, 2 * half, 2), half
            )
            length = half
        for level, count in reversed(levels):
            rest = (count - 1) // 2
            evens = self.slice_items(level, 0, 1)
            if rest:
                after = yield self.combine_pairs(
                    self.slice_items(items, 0, rest), self.slice_items(level, 2, None, 2), rest
                )
                evens = self.concat_items(evens, after)
            items = self.interleaved(evens, items, count)
        return items

    def combine_pairs(self, a: Term, b: Term, length: int) -> Walk[Term]:
        """Apply the operation to corresponding values of `a` and `b`."""
        values = [*leaves(a), *leaves(b)]

        def body(_: Array, rows: list[Value]) -> Walk[Term]:
            half = len(rows) // 2
            return self.applied(term_from_leaves(self.type, rows[:half]), term_from_leaves(self.type, rows[half:]))

        over = LoopIterable(length, self.cx.integer_array(length, self.span), values, lambda index, _: index)
        return emit_map(self.cx, self.span, over, body)

    # ---- Slices and concatenations of batched terms

    def map_leaves(self, term: Term, change: Callable[[Value], Value]) -> Term:
        return term_from_leaves(self.type, [change(x) for x in leaves(term)])

    def slice_items(self, items: Term, start: int, stop: int | None = None, step: int = 1) -> Term:
        return self.map_leaves(items, lambda x: self.slice_value(x, start, stop, step))

    def drop_lead_axis(self, items: Term) -> Term:
        """The single value of a term that holds one."""
        return self.map_leaves(items, lambda x: self.reshape_value(x, shape_of_value(x)[1:]))

    def concat_items(self, a: Term, b: Term) -> Term:
        pairs = zip(leaves(a), leaves(b), strict=True)
        return term_from_leaves(self.type, [self.cx.emit("concat", self.span, x, y, axis=0) for x, y in pairs])

    def interleaved(self, evens: Term, odds: Term, count: int) -> Term:
        pairs = zip(leaves(evens), leaves(odds), strict=True)
        return term_from_leaves(self.type, [self.interleave_values(x, y, count) for x, y in pairs])

    def interleave_values(self, x: Value, y: Value, count: int) -> Value:
        """x[0], y[0], x[1], y[1] and so on, `count` in all; x may be longer by one."""
        half, rest = count // 2, shape_of_value(x)[1:]
        rows = [self.reshape_value(v, (half, 1, *rest)) for v in (self.slice_value(x, 0, half), y)]
        both = self.reshape_value(self.cx.emit("concat", self.span, *rows, axis=1), (2 * half, *rest))
        return self.cx.emit("concat", self.span, both, self.slice_value(x, half), axis=0) if count % 2 else both

    def slice_value(self, x: Value, start: int, stop: int | None = None, step: int = 1) -> Value:
        size, *rest = shape_of_value(x)
        starts, steps = (start, *(0 for _ in rest)), (step, *(1 for _ in rest))
        return self.cx.emit(
            "slice", self.span, x, starts=starts, stops=(size if stop is None else stop, *rest), steps=steps
        )

    def reshape_value(self, x: Value, shape: tuple[Dim, ...]) -> Value:
        return self.cx.emit("reshape", self.span, x, shape=shape)


def shape_of_value(x: Value) -> tuple[Dim, ...]:
    assert isinstance(x.type, Tensor)
    return x.type.shape
