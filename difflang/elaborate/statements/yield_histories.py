"""Values that loops yield: arrays for loops of known length, else histories, and how loops read histories.

A history is a sequence of run-time length. Only loops of the same function read it, from either end. It has an item for
each step of its loop and, if not every step reaches the `yield`, a flag for each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec.structs import replace

from difflang.base.check_sites import CheckSite
from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.runtime_checks import record_failure
from difflang.elaborate.statements.desugar_jumps import ForUntil
from difflang.elaborate.statements.loop_iterable import INDEX_TYPE, LoopIterable
from difflang.elaborate.terms import Array, HistoryTerm, Term, Tuple, YieldSteps, term_from_leaves
from difflang.ir.graph import Value
from difflang.passes.dynamic_loop_outputs import ITEM_CAPACITY
from difflang.syntax import tree
from difflang.types.join_types import contains_kind
from difflang.types.language_types import KeyType, LangType, RangeType, TupleType, add_axes, leaf_types, show_type
from difflang.types.type_errors import make_error

# Names in loops that read a history. They begin with a space, so no program can use them.
HERE_NAME, NUMBER_NAME = " here", " number"


# ---- Yielding


def collect_yields(
    type: LangType, values: Sequence[Value], over: LoopIterable, steps: YieldSteps | None, span: Span
) -> Term:
    """The value of a loop that yields items of a type: arrays, or histories where it has `steps`. Errors: DL0313."""
    length = over.length
    if steps is not None:
        return history_terms(type, iter(values), steps, backwards=over.backwards)
    assert length is not None
    if contains_kind(type, (KeyType, RangeType)):
        raise make_error(
            "DL0313", "an array cannot hold the values that this loop yields", (span, f"this is {show_type(type)}")
        )
    return term_from_leaves(add_axes(type, (length,)), values)


def history_terms(type: LangType, values: Iterator[Value], steps: YieldSteps, *, backwards: bool) -> Term:
    """A history, or a tuple of histories if the items are tuples."""
    if isinstance(type, TupleType):
        return Tuple(tuple([history_terms(t, values, steps, backwards=backwards) for t in type.items]))
    return HistoryTerm(type, tuple([next(values) for _ in leaf_types(type)]), steps, backwards)


# ---- Loops of run-time length


def limit_to_capacity(cx: ElabContext, e: tree.Loop, over: LoopIterable) -> LoopIterable:
    """The iterable of a loop of run-time length that yields, limited to the capacity for its items."""
    # The capacity is a size that the host sets before lowering, and enlarges when the check below fails.
    most = Array(cx.emit("const", e.span, value=ITEM_CAPACITY, type=INDEX_TYPE))
    limit = most if isinstance(e, tree.While) else Array(cx.emit("min", e.span, over.limit.value, most.value))
    return replace(over, limit=limit, capacity=ITEM_CAPACITY)


def check_capacity(cx: ElabContext, count: Value, span: Span) -> None:
    """Check that a loop that yields stayed within the capacity for its items."""
    if not cx.root.definition_only:
        full = cx.emit("ge", span, count, cx.emit("const", span, value=ITEM_CAPACITY, type=INDEX_TYPE))
        record_failure(cx, full, CheckSite(span, capacity="items"), span)


# ---- Reading


def skip_empty_steps(
    cx: ElabContext, loop: tree.For, over: LoopIterable, steps: YieldSteps
) -> tuple[tree.For, LoopIterable]:
    """A loop over histories and its iterable, rewritten to skip steps that yielded nothing.

    If the items are recomputed while they are read, or are read backwards, the loop has no condition that ends it:
    after a `break` its remaining steps do nothing.
    """
    item, here, last = over.item, steps.reached_yield, over.limit
    if isinstance(loop, ForUntil) and (over.backwards or steps.capacity == ITEM_CAPACITY):
        loop = guard_after_break(loop)
    if here is not None:

        def numbered_item(_: Array, values: list[Value]) -> Term:
            number = cx.scope.find(NUMBER_NAME)
            assert number is not None and isinstance(number.term, Array)
            cx.scope.bind(HERE_NAME, Array(values[-1]))
            return item(number.term, values[:-1])

        return guard_present_items(loop), replace(over, arrays=[*over.arrays, here], item=numbered_item)
    if not over.backwards:
        return loop, over

    def from_the_end(index: Array, values: list[Value]) -> Term:
        after = cx.emit("sub", loop.span, last.value, cx.integer_array(1, loop.span).value)
        return item(Array(cx.emit("sub", loop.span, after, index.value)), values)

    return loop, replace(over, item=from_the_end)


@lru_cache(maxsize=4096)
def guard_present_items(loop: tree.For) -> tree.For:
    """The loop with a body that skips absent items and counts the present ones."""
    at = loop.body.span
    count = tree.Update(at, tree.Name(at, NUMBER_NAME), "+", tree.Int(at, 1), at)
    return replace(loop, body=guarded_block(tree.Name(at, HERE_NAME), tree.Block(at, (loop.body, count))))


@lru_cache(maxsize=4096)
def guard_after_break(loop: ForUntil) -> tree.For:
    """The loop with steps that do nothing after a `break`."""
    at = loop.body.span
    go_on = tree.Unary(at, "not", tree.Name(at, loop.stop))
    return tree.For(loop.span, loop.pattern, loop.iterable, guarded_block(go_on, loop.body), loop.attributes)


def guarded_block(condition: tree.Expr, body: tree.Block) -> tree.Block:
    return tree.Block(body.span, (tree.If(body.span, condition, body, None),))
