"""Loops: from variables that change to regions with operands, carries and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.calls.apply import bind_pattern
from difflang.elaborate.context import Context, walk, walks
from difflang.elaborate.expressions.operators import array
from difflang.elaborate.patterns.sum_types import grown, held_as, stays
from difflang.elaborate.runtime_checks import check_steps, still_well
from difflang.elaborate.scope import Binding
from difflang.elaborate.statements.branches import again, carried, closed
from difflang.elaborate.statements.decorators import kept, obey
from difflang.elaborate.statements.desugar_jumps import Until
from difflang.elaborate.statements.iterables import INDEX, Source, source
from difflang.elaborate.statements.loop_writes import InTurn
from difflang.elaborate.statements.printing import anew, quiet, well_of
from difflang.elaborate.statements.yield_histories import (
    NUMBER,
    Yielded,
    check_room,
    collected,
    over_steps,
    within_room,
)
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Lane,
    Steps,
    Term,
    leaves,
    rebuild,
    rebuilt,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import BOOL, Tensor, item_of, stacked
from difflang.syntax import tree
from difflang.syntax.tree_queries import free_names
from difflang.types.join_types import tagged
from difflang.types.language_types import leaf_types
from difflang.types.type_errors import no_condition

FOREVER = -1  # the limit of a loop that only its condition ends


@walks(tree.For, tree.While, Until)
def loop_statement(cx: Context, e: tree.For | tree.While) -> Walk[Term]:
    return loop_expression(cx, e)


def loop_expression(cx: Context, e: tree.For | tree.While) -> Walk[Term]:
    """The walk of a loop; what it yields, stacked, is its value."""
    obey(cx, e.attributes, e.span, loop=True)
    return for_loop(cx, e) if isinstance(e, tree.For) else while_loop(cx, e)


class Step(Struct, frozen=True):
    """The body of a loop, walked. `variables` are those it carries."""

    builder: Builder
    params: list[Value]  # index, carry, items
    results: list[Value]
    yielded: Yielded | None
    variables: list[Binding]
    arrays: list[Value]  # read item by item because the body indexes them by the loop's index


def step(
    cx: Context,
    e: tree.For | tree.While,
    variables: list[Binding],
    items: list[Value],
    bind: Callable[[Array, list[Value]], None],
    length: Dim | None,
    rounds: int = 0,
) -> Walk[Step]:
    """Walk a loop's body, its variables standing for the carry: again where these turn out to be of more options."""
    before, everything, draws = [b.term for b in variables], variables, cx.root.draws
    with cx.region(e.span) as builder:
        index = builder.param(INDEX, "step")
        enter(builder, variables)
        entered = cx.failure
        rows = [builder.param(item_of(v.type)) for v in items]
        cx.keys.append((builder, index))
        cx.loops.append([])
        try:
            lane = Lane(builder, length) if length is not None else None
            bind(Array(index, below=length, lane=lane), rows)
            with cx.block():
                for stmt in (e.body,):
                    yield walk(cx, stmt)
            after = [b.term for b in variables]
            if after[-1] is entered:  # nothing in the body can fail: the word is not carried
                uncarried(builder, leaves(entered), before[-1])
                variables, after = variables[:-1], after[:-1]
        finally:
            cx.keys.pop()
            yields = cx.loops.pop()
            for binding, term in zip(everything, before, strict=True):
                binding.term = term
    if grown(cx, variables, after, rounds, e.span):
        cx.root.draws = draws
        return (yield step(cx, e, everything, items, bind, length, rounds + 1))
    found: Yielded | None = yields[0] if yields else None
    if found is not None:
        found = replace(found, value=held_as(builder, found.value, tagged(type_of(found.value))))
    results = [v for b, t in zip(variables, after, strict=True) for v in leaves(stays(builder, t, b.term))]
    if found is not None:
        results += [*leaves(found.value), *([found.here.value] if found.here is not None else [])]
    return Step(builder, builder.params, results, found, variables, lane.arrays if lane is not None else [])


def uncarried(builder: Builder, word: list[Value], outside: Term | Dim) -> None:
    """Take the failure, which no step changes, from outside if a step reads it."""
    assert not isinstance(outside, (int, Poly)) and builder.outer is not None
    for value in word:
        builder.params.remove(value)
    if any(word[0] in eqn.operands for eqn in builder.eqns):  # its other two numbers nobody reads
        builder.captured[builder.outer.own(leaves(outside)[0])] = word[0]


def row(value: Value) -> Tensor:
    assert isinstance(value.type, Tensor)
    return Tensor(value.type.dtype, value.type.shape[1:])


def enter(builder: Builder, variables: list[Binding]) -> None:
    """The variables as params of a region."""
    for binding in variables:
        old = binding.term
        assert not isinstance(old, (int, Poly))
        type = type_of(old)
        binding.term = again(old, rebuild(type, [builder.param(t, binding.name) for t in leaf_types(type)]))


def for_loop(cx: Context, e: tree.For) -> Walk[Term]:
    """A loop over a source, perhaps one that a variable ends."""
    over = source(cx, (yield walk(cx, e.iterable)), e.iterable.span)
    if over.steps is None:
        return (yield through(cx, e, over))
    with cx.block() as scope:
        scope.bind(NUMBER, Array(cx.integer(0, e.span).value), mutable=True)
        return (yield through(cx, *over_steps(cx, e, over, over.steps)))


def through(cx: Context, e: tree.For, over: Source) -> Walk[Term]:
    from difflang.elaborate.statements.scatter_loops import at_once, logs_for

    variables = carried(cx, e.body)
    if logs := logs_for(cx, e, over, variables[:-1]):
        draws = cx.root.draws
        try:
            return (yield at_once(cx, e, over, logs))
        except InTurn:
            cx.root.draws = draws
    if not cx.logs.keys().isdisjoint(variables):
        raise InTurn

    def bind(index: Array, rows: list[Value]) -> None:
        bind_pattern(cx, e.pattern, over.item(index, rows), e.iterable.span, counts=True)

    body: Step = yield step(cx, e, variables, over.arrays, bind, over.length)
    builders, results, params, split = [body.builder], [body.results], [body.params], [1]
    if isinstance(e, Until):
        builder, go = not_stopped(cx, e, body.variables)
        builders, results, params, split = [*builders, builder], [*results, [go]], [*params, builder.params], [1, 1]
        if over.length is None:  # a negative limit would be none at all
            over = replace(over, limit=Array(cx.emit("max", e.span, over.limit.value, cx.integer(0, e.span).value)))
    consts, graphs = closed(builders, results, params, split)
    over = replace(over, arrays=[*over.arrays, *body.arrays])
    return emit_loop(cx, e, over, body.variables, consts, graphs, body.yielded)[0]


def not_stopped(cx: Context, e: Until, variables: list[Binding]) -> tuple[Builder, Value]:
    """The condition of a loop that a variable ends."""
    before = [b.term for b in variables]
    with cx.region(e.span) as builder:
        builder.param(INDEX, "step")
        enter(builder, variables)
        asked = cx.scope.find(e.stop)
        assert asked is not None and isinstance(asked.term, Array)
        go = cx.emit("logical_not", e.span, asked.term.value)
        for binding, term in zip(variables, before, strict=True):
            binding.term = term
    return builder, go


def while_loop(cx: Context, e: tree.While) -> Walk[Term]:
    """A loop of unknown length. It also ends at the first failure in its body, which may have spoilt the condition."""
    for binding in carried(cx, e.condition)[:-1]:
        message = f"the condition of a loop assigns `{binding.name}`"
        raise cx.error("DL0505", message, e.condition.span, "a condition only asks", "assign it in the loop's body")
    variables = carried(cx, e.condition, e.body)
    body: Step = yield step(cx, e, variables, [], lambda _index, _rows: None, None)
    failing = cx.word in body.variables
    before = [b.term for b in variables]
    with cx.region(e.condition.span) as builder:
        index = builder.param(INDEX, "step")
        cx.keys.append((builder, index))
        enter(builder, body.variables)
        outer, since = cx.failure, cx.before
        fresh = cx.word.term = cx.word.term if failing else cx.no_failure()
        draws = cx.root.draws
        try:
            with anew(cx, cx.before if failing else lambda span: well_of(cx, outer, since, span)):
                condition = array(cx, (yield walk(cx, e.condition)), e.condition.span, "a condition")
            checked = cx.word.term is not fresh
            go = still_well(cx, condition, e.condition.span) if failing or checked else condition.value
            go = within_most(cx, go, index, e.condition.span)
        finally:
            cx.keys.pop()
            for binding, term in zip(variables, before, strict=True):
                binding.term = term
    if not cx.unifier.same(condition.tensor, Tensor(BOOL)):
        raise no_condition(condition.tensor, e.condition.span)
    if condition.static is True:
        way = "leave it with `break` or `return`, or say while what it goes on"
        raise cx.error("DL0504", "this loop never ends", e.condition.span, "this is always true", way)
    if condition.static is None and not may_change(condition.value, builder, body):
        asked = next((n for n in free_names(e.condition) if cx.scope.find(n) is not None), "x")
        way = f"assign what it asks, `{asked} = …`: a `let` in the loop makes another `{asked}`"
        message = "this loop ends before its first step or never"
        raise cx.error("DL0504", message, e.condition.span, "no step changes what this asks", way)
    consts, graphs = closed([body.builder, builder], [body.results, [go]], [body.params, builder.params], [1, 1])
    over = Source(None, cx.integer(FOREVER, e.span), [], lambda i, _: i)
    result, count = emit_loop(cx, e, over, body.variables, consts, graphs, body.yielded)
    check_steps(cx, count, e.span)
    if checked:  # once more after the loop, with what it drew last, for the failure that ended it
        cx.root.draws = draws
        cx.keys.append((cx.builder, count))
        with quiet(cx):
            yield walk(cx, e.condition)
        cx.keys.pop()
    return result


def may_change(condition: Value, builder: Builder, body: Step) -> bool:
    """Whether steps may change the condition of their loop: it draws, calls Python, or reads what they do not keep.

    So it may where nobody knows yet what it reads, as of a function that is only looked at.
    """
    kept = zip(builder.params[1:], body.builder.params[1:], body.results, strict=False)
    same = {*builder.captured.values(), *[asked for asked, before, after in kept if after is before]}
    read = {condition}
    for eqn in reversed(builder.eqns):
        if not read.isdisjoint(eqn.results):
            if eqn.effectful:
                return True
            read.difference_update(eqn.results)
            read.update(eqn.operands)
    return not read <= same


def within_most(cx: Context, go: Value, index: Value, span: Span) -> Value:
    """Whether a loop goes on, one step beyond what is allowed at most."""
    most = cx.session.most_steps
    if not most:
        return go
    room = cx.emit("le", span, index, cx.emit("const", span, value=most, type=INDEX))
    return cx.emit("logical_and", span, go, room)


def emit_loop(
    cx: Context,
    e: tree.For | tree.While,
    over: Source,
    variables: list[Binding],
    consts: list[Value],
    graphs: list[Graph],
    yielded: Yielded | None,
) -> tuple[Term, Value]:
    """The equation of a loop: what it yields, and how many steps it took. The variables stand for its results now."""
    carry = [v for b in variables if not isinstance(b.term, (int, Poly)) for v in leaves(b.term)]
    cx.builder.span = e.span
    asked = kept(cx, e.span, over.rows)
    open_ended = over.rows is None and (yielded is not None or "host" in asked)
    if open_ended:
        over = within_room(cx, e, over)
    operands = tuple(map(cx.builder.own, [over.limit.value, *consts, *carry, *over.arrays]))
    ys = [r.type for r in graphs[0].results[len(carry) :]]
    types = (INDEX, *[v.type for v in carry], *[stacked(t, over.rows) for t in ys])
    exact = over.length is not None and len(graphs) == 1
    attrs: dict[str, Any] = {"consts": len(consts), "carry": len(carry), "length": over.rows, "exact": exact}
    attrs |= asked
    results = iter(cx.builder.append(OPS["loop"], operands, types, tuple(graphs), **attrs, reverse=over.backwards))
    count = next(results)
    for binding in variables:
        old = binding.term
        assert not isinstance(old, (int, Poly))
        binding.term = again(old, rebuilt(type_of(old), results))
    if open_ended:
        check_room(cx, count, e.span)
    if yielded is None:
        return UNIT_TERM, count
    steps = None
    if not exact or yielded.here is not None:
        *found, here = (*results, None) if yielded.here is None else results
        asks = e.iterable if isinstance(e, tree.For) else e.condition
        results, steps = iter(found), Steps(count, over.rows, here, asks.span)
    return collected(type_of(yielded.value), list(results), over, steps, e.span), count
