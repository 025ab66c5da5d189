"""`for` and `while` loops: turns assigned variables into carries and emits the `loop` op with its regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext, elaborate, elaborates
from difflang.elaborate.effects import YieldItem
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.names import bind_pattern
from difflang.elaborate.patterns.sum_types import keep_loop_type, widen_loop_variables, widen_to_type
from difflang.elaborate.runtime_checks import and_no_failure, check_step_limit
from difflang.elaborate.scope import LocalBinding
from difflang.elaborate.statements.decorators import apply_decorators, checkpoint_attrs
from difflang.elaborate.statements.desugar_jumps import ForUntil
from difflang.elaborate.statements.iterables import as_iterable
from difflang.elaborate.statements.loop_iterable import INDEX_TYPE, LoopIterable
from difflang.elaborate.statements.printing import (
    no_failure_for_loop,
    no_failure_in,
    separate_failures,
    suppress_prints,
)
from difflang.elaborate.statements.regions import assigned_variables, close_regions, rebind_term
from difflang.elaborate.statements.scatter_loops import loop_as_scatter, write_logs
from difflang.elaborate.statements.write_logs import NotScatterable
from difflang.elaborate.statements.yield_histories import (
    NUMBER_NAME,
    check_capacity,
    collect_yields,
    limit_to_capacity,
    skip_empty_steps,
)
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    IndexedLoop,
    Term,
    YieldSteps,
    build_term,
    leaves,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import BOOL, Tensor, sequence_item_type, stacked_type
from difflang.ops.loop.loop_op import loop as loop_op
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.language_types import add_tags, leaf_types
from difflang.types.type_errors import condition_type_error

FOREVER = -1  # the limit of a loop that ends only by its condition


@elaborates(tree.For, tree.While, ForUntil)
def loop_statement(cx: ElabContext, e: tree.Loop) -> Walk[Term]:
    return loop_expression(cx, e)


def loop_expression(cx: ElabContext, e: tree.Loop) -> Walk[Term]:
    """Elaborate a loop; its value is what it yields, stacked."""
    apply_decorators(cx, e.attributes, e.span, loop=True)
    return for_loop(cx, e) if isinstance(e, tree.For) else while_loop(cx, e)


class LoopBody(Struct, frozen=True):
    """The elaborated body of a loop. `variables` are the carried ones."""

    builder: Builder
    params: list[Value]  # index, carry, items
    results: list[Value]
    yields: YieldItem | None
    variables: list[LocalBinding]
    # Arrays to scan because the body indexes them by the loop's counter.
    arrays: list[Value]


def elaborate_body(
    cx: ElabContext,
    e: tree.Loop,
    variables: list[LocalBinding],
    items: list[Value],
    bind: Callable[[Array, list[Value]], None],
    length: Dim | None,
    rounds: int = 0,
) -> Walk[LoopBody]:
    """Elaborate a loop's body with its variables as carries, repeatedly while their types gain options."""
    before, everything, draws = [b.term for b in variables], variables, cx.root.draw_count
    with cx.nested_graph(e.span) as builder:
        # The first param is always the counter, also for `while`.
        index = builder.param(INDEX_TYPE, "step")
        bind_carries(builder, variables)
        entered = cx.failure
        rows = [builder.param(sequence_item_type(v.type)) for v in items]
        cx.keys.append((builder, index))
        cx.loop_yields.append([])
        try:
            indexed = IndexedLoop(builder, length) if length is not None else None
            bind(Array(index, upper_bound=length, index_of_loop=indexed), rows)
            with cx.child_scope():
                for stmt in (e.body,):
                    yield elaborate(cx, stmt)
            after = [b.term for b in variables]
            # Nothing in the body can fail: the failure word need not be carried.
            if after[-1] is entered:
                hoist_failure(builder, leaves(entered), before[-1])
                variables, after = variables[:-1], after[:-1]
        finally:
            cx.keys.pop()
            yields = cx.loop_yields.pop()
            for binding, term in zip(everything, before, strict=True):
                binding.term = term
    if widen_loop_variables(cx, variables, after, rounds, e.span):
        cx.root.draw_count = draws
        return (yield elaborate_body(cx, e, everything, items, bind, length, rounds + 1))
    found: YieldItem | None = yields[0] if yields else None
    if found is not None:
        found = replace(found, value=widen_to_type(builder, found.value, add_tags(type_of(found.value))))
    results = [v for b, t in zip(variables, after, strict=True) for v in leaves(keep_loop_type(builder, t, b.term))]
    if found is not None:
        results += [*leaves(found.value), *([found.present.value] if found.present is not None else [])]
    return LoopBody(builder, builder.params, results, found, variables, indexed.arrays if indexed is not None else [])


def hoist_failure(builder: Builder, word: list[Value], outside: Term | Dim) -> None:
    """Turn the failure word, which no step changes, from a carry into a const."""
    assert not isinstance(outside, (int, Poly)) and builder.outer is not None
    for value in word:
        builder.params.remove(value)
    # Only the check number is ever read inside; the other two numbers are for the report.
    if any(word[0] in eqn.operands for eqn in builder.eqns):
        builder.captures[builder.outer.capture(leaves(outside)[0])] = word[0]


def bind_carries(builder: Builder, variables: list[LocalBinding]) -> None:
    """Bind the variables to new params of a region."""
    for binding in variables:
        old = binding.term
        assert not isinstance(old, (int, Poly))
        type = type_of(old)
        binding.term = rebind_term(
            old, term_from_leaves(type, [builder.param(t, binding.name) for t in leaf_types(type)])
        )


def for_loop(cx: ElabContext, e: tree.For) -> Walk[Term]:
    """A `for` loop, possibly with a flag that ends it."""
    over = as_iterable(cx, (yield elaborate(cx, e.iterable)), e.iterable.span)
    if over.steps is None:
        return (yield loop_over(cx, e, over))
    with cx.child_scope() as scope:
        scope.bind(NUMBER_NAME, Array(cx.integer_array(0, e.span).value), mutable=True)
        return (yield loop_over(cx, *skip_empty_steps(cx, e, over, over.steps)))


def loop_over(cx: ElabContext, e: tree.For, over: LoopIterable) -> Walk[Term]:
    variables = assigned_variables(cx, e.body)
    if logs := write_logs(cx, e, over, variables[:-1]):
        draws = cx.root.draw_count
        try:
            return (yield loop_as_scatter(cx, e, over, logs))
        except NotScatterable:
            cx.root.draw_count = draws
    if not cx.write_logs.keys().isdisjoint(variables):
        raise NotScatterable

    def bind_items(index: Array, rows: list[Value]) -> None:
        bind_pattern(cx, e.pattern, over.item(index, rows), e.iterable.span, counts=True)

    body: LoopBody = yield elaborate_body(cx, e, variables, over.arrays, bind_items, over.length)
    builders, results, params, split = [body.builder], [body.results], [body.params], [1]
    if isinstance(e, ForUntil):
        builder, go = until_condition(cx, e, body.variables)
        builders, results, params, split = [*builders, builder], [*results, [go]], [*params, builder.params], [1, 1]
        if over.length is None:  # a negative limit would mean no limit
            over = replace(
                over, limit=Array(cx.emit("max", e.span, over.limit.value, cx.integer_array(0, e.span).value))
            )
    consts, graphs = close_regions(builders, results, params, split)
    over = replace(over, arrays=[*over.arrays, *body.arrays])
    return emit_loop(cx, e, over, body.variables, consts, graphs, body.yields)[0]


def until_condition(cx: ElabContext, e: ForUntil, variables: list[LocalBinding]) -> tuple[Builder, Value]:
    """The condition of a `for` loop with a flag that ends it."""
    before = [b.term for b in variables]
    with cx.nested_graph(e.span) as builder:
        builder.param(INDEX_TYPE, "step")
        bind_carries(builder, variables)
        flag = cx.scope.find(e.stop)
        assert flag is not None and isinstance(flag.term, Array)
        go = cx.emit("logical_not", e.span, flag.term.value)
        for binding, term in zip(variables, before, strict=True):
            binding.term = term
    return builder, go


def while_loop(cx: ElabContext, e: tree.While) -> Walk[Term]:
    """A `while` loop. It also ends at the first failure in its body, which may have invalidated the condition.

    After a failure before it, it takes no step: its condition may hold for ever.
    """
    for binding in assigned_variables(cx, e.condition)[:-1]:
        message = f"the condition of a loop assigns `{binding.name}`"
        raise cx.error(
            "DL0505", message, e.condition.span, "a condition cannot assign", "assign it in the body of the loop"
        )
    variables = assigned_variables(cx, e.condition, e.body)
    body: LoopBody = yield elaborate_body(cx, e, variables, [], lambda _index, _rows: None, None)
    failing = cx.failure_word in body.variables
    before = [b.term for b in variables]
    with cx.nested_graph(e.condition.span) as builder:
        index = builder.param(INDEX_TYPE, "step")
        cx.keys.append((builder, index))
        bind_carries(builder, body.variables)
        outer, since = cx.failure, cx.ok_before
        fresh = cx.failure_word.term = cx.failure_word.term if failing else cx.no_failure()
        draws = cx.root.draw_count
        try:
            with separate_failures(cx, cx.ok_before if failing else lambda span: no_failure_in(cx, outer, since, span)):
                condition = as_array(cx, (yield elaborate(cx, e.condition)), e.condition.span, "a condition")
            checked = cx.failure_word.term is not fresh
            go = and_no_failure(cx, condition, e.condition.span) if failing or checked else condition.value
            begun_well = no_failure_for_loop(cx, cx.no_failure() if failing else outer, since, e.condition.span)
            if begun_well is not None and cx.unifier.same(condition.tensor, Tensor(BOOL)):
                go = cx.emit("logical_and", e.condition.span, go, begun_well)
            go = enforce_step_limit(cx, go, index, e.condition.span)
        finally:
            cx.keys.pop()
            for binding, term in zip(variables, before, strict=True):
                binding.term = term
    if not cx.unifier.same(condition.tensor, Tensor(BOOL)):
        raise condition_type_error(condition.tensor, e.condition.span)
    if condition.static is True:
        way = "end it with `break` or `return`, or use a condition that can become false"
        raise cx.error("DL0504", "this loop never ends", e.condition.span, "this is always true", way)
    if condition.static is None and not condition_may_change(condition.value, builder, body):
        name = next((n for n in mentioned_names(e.condition) if cx.scope.find(n) is not None), "x")
        way = f"assign to the variable of the condition, `{name} = …`: a `let` in the loop creates a different `{name}`"
        message = "this loop either takes no step or never ends"
        raise cx.error("DL0504", message, e.condition.span, "no step changes the condition", way)
    consts, graphs = close_regions([body.builder, builder], [body.results, [go]], [body.params, builder.params], [1, 1])
    over = LoopIterable(None, cx.integer_array(FOREVER, e.span), [], lambda i, _: i)
    result, count = emit_loop(cx, e, over, body.variables, consts, graphs, body.yields)
    check_step_limit(cx, count, e.span)
    # Evaluate the condition again after the loop, with the same draws, to record the failure that ended it.
    if checked:
        cx.root.draw_count = draws
        cx.keys.append((cx.builder, count))
        with suppress_prints(cx):
            yield elaborate(cx, e.condition)
        cx.keys.pop()
    return result


def condition_may_change(condition: Value, builder: Builder, body: LoopBody) -> bool:
    """Whether steps may change the condition of their loop: it has effects, or reads a carry that they change.

    Values of unknown origin, as in the check of a definition, count as changing.
    """
    kept = zip(builder.params[1:], body.builder.params[1:], body.results, strict=False)
    same = {*builder.captures.values(), *[param for param, before, after in kept if after is before]}
    read = {condition}
    for eqn in reversed(builder.eqns):
        if not read.isdisjoint(eqn.results):
            if eqn.effectful:
                return True
            read.difference_update(eqn.results)
            read.update(eqn.operands)
    return not read <= same


def enforce_step_limit(cx: ElabContext, go: Value, index: Value, span: Span) -> Value:
    """The condition to continue, bounded by the step limit; one step more is allowed, so that the check sees it."""
    most = cx.session.most_steps
    if not most:
        return go
    within = cx.emit("le", span, index, cx.emit("const", span, value=most, type=INDEX_TYPE))
    return cx.emit("logical_and", span, go, within)


def emit_loop(
    cx: ElabContext,
    e: tree.Loop,
    over: LoopIterable,
    variables: list[LocalBinding],
    consts: list[Value],
    graphs: list[Graph],
    yielded: YieldItem | None,
) -> tuple[Term, Value]:
    """Emit the `loop` equation and rebind the variables to its results. Returns what it yields and its step count."""
    carry = [v for b in variables if not isinstance(b.term, (int, Poly)) for v in leaves(b.term)]
    cx.builder.span = e.span
    checkpoint = checkpoint_attrs(cx, e.span, over.row_count)
    open_ended = over.row_count is None and (yielded is not None or "host" in checkpoint)
    if open_ended:
        over = limit_to_capacity(cx, e, over)
    operands = tuple(map(cx.builder.capture, [over.limit.value, *consts, *carry, *over.arrays]))
    ys = [r.type for r in graphs[0].results[len(carry) :]]
    types = (INDEX_TYPE, *[v.type for v in carry], *[stacked_type(t, over.row_count) for t in ys])
    # `exact` promises as many steps as the length says, so that no condition is tested.
    exact = over.length is not None and len(graphs) == 1
    attrs: dict[str, Any] = {"consts": len(consts), "carry": len(carry), "length": over.row_count, "exact": exact}
    attrs |= checkpoint
    results = iter(cx.builder.append(loop_op, operands, types, tuple(graphs), **attrs, reverse=over.backwards))
    count = next(results)
    for binding in variables:
        old = binding.term
        assert not isinstance(old, (int, Poly))
        binding.term = rebind_term(old, build_term(type_of(old), results))
    if open_ended:
        check_capacity(cx, count, e.span)
    if yielded is None:
        return UNIT_TERM, count
    steps = None
    if not exact or yielded.present is not None:
        *found, here = (*results, None) if yielded.present is None else results
        asks = e.iterable if isinstance(e, tree.For) else e.condition
        results, steps = iter(found), YieldSteps(count, over.row_count, here, asks.span)
    return collect_yields(type_of(yielded.value), list(results), over, steps, e.span), count
