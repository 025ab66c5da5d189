"""The `map` equation of a body over an iterable of known length, and the loop that replaces it where items print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difflang.base.source import Span
from difflang.elaborate.context import FAILURE_WORD, AlreadyReported, ElabContext
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.runtime_checks import absorb_map_failure, has_single_check, no_failure_value
from difflang.elaborate.statements.loop_iterable import LoopIterable
from difflang.elaborate.statements.printing import (
    BOOL_SCALAR,
    PriorInstancesOk,
    no_failure_for_loop,
    no_failure_so_far,
    separate_failures,
)
from difflang.elaborate.statements.regions import close_regions
from difflang.elaborate.terms import Array, IndexedLoop, PoisonTerm, Term, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value, Values
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.control.map import map_ as map_op
from difflang.ops.loop.loop_op import loop as loop_op
from difflang.types.join_types import contains_kind, has_runtime_text
from difflang.types.language_types import KeyType, LangType, RangeType, add_axes, add_tags, leaf_types, show_type
from difflang.types.type_errors import make_error


def emit_map(
    cx: ElabContext,
    span: Span,
    iterable: LoopIterable,
    body: Callable[[Array, list[Value]], Walk[Term]],
    *,
    in_order: bool = False,
    check_body: Callable[[Graph, int], None] = lambda graph, consts: None,
) -> Walk[Term]:
    """The `map` equation of a body over an iterable of known length.

    With `in_order`, the first failing item is the one reported. `check_body` receives the body's graph and the number
    of leading params that all items share, and may raise.
    """
    length = iterable.length
    assert length is not None
    iota = cx.emit("iota", span, type=Tensor(I32, (length,)), axis=0)
    if cx.loop_yields:
        cx.loop_yields.append(None)
    with cx.nested_graph(span) as builder:
        cx.scope.outer_is_read_only = True
        index = builder.param(Tensor(I32), "lane")
        rows = [builder.param(row_type(v)) for v in iterable.arrays]
        cx.keys.append((builder, index))
        outer, since, outer_word = cx.failure, cx.ok_before, cx.failure_word.term
        fresh = cx.failure_word.term = cx.no_failure()
        indexed = IndexedLoop(builder, length)
        before = PriorInstancesOk(builder, lambda span: no_failure_for_loop(cx, outer, since, span))
        try:
            with separate_failures(cx, before):
                value = yield body(Array(index, upper_bound=length, index_of_loop=indexed), rows)
            word = leaves(cx.failure) if cx.failure_word.term is not fresh else []
            still_well = [ok_after_item(cx, before.param, word, span)] if before.param is not None else []
        finally:
            cx.failure_word.term = outer_word
            cx.keys.pop()
            if cx.loop_yields:
                cx.loop_yields.pop()
    if isinstance(value, PoisonTerm):
        raise AlreadyReported
    check_item_type(type_of(value), span)
    value = widen_to_type(builder, value, add_tags(type_of(value)))
    own = [v for v in builder.params if v is not before.param]
    own[1:1] = [before.param] if before.param is not None else []
    # A body that prints, or calls what prints, must know whether an earlier item failed: it becomes a loop.
    consts, (graph,) = close_regions([builder], [[*still_well, *leaves(value), *word]], [own], [len(still_well)])
    check_body(graph, len(consts))
    types = tuple(
        [Tensor(t.dtype, (length, *t.shape)) for t in [*leaf_types(type_of(value)), *[FAILURE_WORD] * len(word)]]
    )
    if still_well:
        results = map_sequentially(cx, graph, consts, [*iterable.arrays, *indexed.arrays], types, length, span)
    else:
        cx.builder.span = span
        operands = tuple(map(cx.builder.capture, [*consts, iota, *iterable.arrays, *indexed.arrays]))
        results = cx.builder.append(map_op, operands, types, (graph,), consts=len(consts), length=length)
    if word:
        one_check = has_single_check(graph)
        absorb_map_failure(cx, results[-3:], span, in_order=in_order or bool(still_well), one_check=one_check)
        results = results[:-3]
    return term_from_leaves(add_axes(type_of(value), (length,)), results)


def ok_after_item(cx: ElabContext, before: Value, word: list[Value], span: Span) -> Value:
    """Whether no check failed before an item or in it."""
    return cx.emit("logical_and", span, before, no_failure_value(cx, cx.failure, span)) if word else before


def map_sequentially(
    cx: ElabContext,
    body: Graph,
    consts: list[Value],
    xs: list[Value],
    types: tuple[Tensor, ...],
    length: Dim,
    span: Span,
) -> Values:
    """Run items that print in sequence: a loop that carries the flag whether no check has failed."""
    start = no_failure_so_far(cx, span) or cx.emit("const", span, value=True, type=BOOL_SCALAR)
    cx.builder.span = span
    operands = tuple(map(cx.builder.capture, [cx.integer_array(length, span).value, *consts, start, *xs]))
    attrs: dict[str, Any] = {"consts": len(consts), "carry": 1, "length": length, "exact": True, "reverse": False}
    return cx.builder.append(loop_op, operands, (Tensor(I32), BOOL_SCALAR, *types), (body,), **attrs)[2:]


def check_item_type(type: LangType, span: Span) -> None:
    """Errors: DL0327 for texts with run-time parts, DL0313 for keys and ranges, which cannot be items of an array."""
    if has_runtime_text(type):
        way = (
            "print the text there, or create it from an item of the array where you need it; a host loop can `yield` it"
        )
        label = (span, "the content of this text is known only at run time")
        raise make_error(
            "DL0327", "a compiled function cannot put a text with run-time parts into an array", label, help=way
        )
    if contains_kind(type, (KeyType, RangeType)):
        raise make_error("DL0313", "an array cannot hold keys or ranges", (span, f"an item is {show_type(type)}"))


def row_type(value: Value) -> Tensor:
    assert isinstance(value.type, Tensor)
    return Tensor(value.type.dtype, value.type.shape[1:])
