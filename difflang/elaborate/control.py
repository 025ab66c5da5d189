"""Branches and loops: from variables that change to regions with operands, carries and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from difflang.base.source import Span
from difflang.check.sums import tagged
from difflang.check.types import leaf_types, show_type
from difflang.elaborate.attributes import ALL_AS_USUAL, keep, obey
from difflang.elaborate.calls import bind_pattern
from difflang.elaborate.context import Binding, Context, Reported, walk, walks
from difflang.elaborate.failure import still_well
from difflang.elaborate.histories import NUMBER, Yielded, collected, over_steps, taken_out, with_yields
from difflang.elaborate.jumps import Until
from difflang.elaborate.names import assigned, last
from difflang.elaborate.operators import array
from difflang.elaborate.sources import INDEX, Source, source
from difflang.elaborate.sums import agree, grown, held_as, meeting, stays
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Lane,
    Poison,
    Steps,
    Term,
    Tuple,
    leaves,
    rebuild,
    rebuilt,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.elaborate.writes import InTurn, Log, nowhere, since
from difflang.ir.builder import Builder
from difflang.ir.dims import Dim, Poly
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.types import BOOL, Tensor, item_of, stacked
from difflang.syntax import tree

FOREVER = -1  # the limit of a loop that only its condition ends


def carried(cx: Context, *parts: tree.Node | None) -> list[Binding]:
    """The variables around a piece of code that it assigns, the failure word last."""
    names = dict.fromkeys(name for part in parts if part is not None for name in assigned(part))
    found = [*[cx.scope.find(name) for name in names], cx.word]
    return [b for b in found if b is not None and b.mutable and not isinstance(b.term, (Poison, int, Poly))]


def closed(
    builders: Sequence[Builder],
    results: Sequence[Sequence[Value]],
    own: Sequence[Sequence[Value]],
    split: Sequence[int],
) -> tuple[list[Value], list[Graph]]:
    """Finish regions that take the same consts: those, and the graphs.

    `own[i]` are the params of region i besides the consts, which are put in after the first `split[i]` of them.
    """
    for builder, values in zip(builders, results, strict=True):
        for value in values:
            builder.own(value)
    consts = list(dict.fromkeys(c for b in builders for c in b.captured))
    graphs: list[Graph] = []
    for builder, values, params, at in zip(builders, results, own, split, strict=True):
        shared = [builder.captured.get(c) or Value(c.type, builder, c.hint) for c in consts]
        graphs.append(builder.finish(values, params=[*params[:at], *shared, *params[at:]]))
    return consts, graphs


# ---- if


@walks(tree.If)
def if_(cx: Context, e: tree.If) -> Walk[Term]:
    condition = yield walk(cx, e.condition)
    predicate = array(cx, condition, e.condition.span, "a condition")
    if not cx.unifier.same(predicate.tensor, Tensor(BOOL)):
        raise cx.error(
            "DL0313",
            "a condition is a bool",
            e.condition.span,
            f"this is {show_type(predicate.tensor)}",
            "compare it, or reduce it with `any` or `all`",
        )
    if isinstance(predicate.static, bool):
        cx.root.chosen = True
        taken = e.then if predicate.static else e.orelse
        return (yield walk(cx, taken)) if taken is not None else UNIT_TERM
    variables = carried(cx, e.then, e.orelse)
    then = yield branch(cx, lambda: walk(cx, e.then), variables, e.then.span)
    other = yield branch(cx, (lambda: walk(cx, orelse)) if (orelse := e.orelse) else None, variables, e.span)
    ends = last(e.then).span, last(e.orelse or e).span
    return decided(cx, predicate, then, other, variables, e.span, ends, "`if`")


def decided(
    cx: Context,
    predicate: Array,
    then: Branch,
    other: Branch,
    variables: list[Binding],
    span: Span,
    ends: tuple[Span, Span],
    word: str,
) -> Term:
    """A branch from its two sides; `ends` are where they give their values, `word` is what the program calls it."""
    if not agree(cx, predicate.value, then.value, other.value, ends, word):
        then, other = replace(then, value=UNIT_TERM), replace(other, value=UNIT_TERM)
    yielding = bool(then.yields or other.yields)
    if yielding:
        then, other = with_yields(then, other)
    either = either_writes if then.writes or other.writes else joined
    value = either(cx, predicate, then, other, variables, span)
    return taken_out(cx, value, span) if yielding else value


@dataclass(frozen=True, slots=True)
class Branch:
    builder: Builder
    value: Term
    variables: list[Term]  # what the variables stand for at its end
    span: Span
    writes: Sequence[tuple[Log, Tuple]] = ()  # what it writes into arrays that the loop around only writes into
    yields: Sequence[Yielded] = ()  # what the loop around yields there


def branch(cx: Context, body: Callable[[], Walk[Term]] | None, variables: list[Binding], span: Span) -> Walk[Branch]:
    """One side of a branch as a region; the variables are put back as they were."""
    before, marks = [b.term for b in variables], [len(log.sites) for log in cx.logs.values()]
    cx.loops.append([] if cx.loops and cx.loops[-1] is not None else None)
    with cx.region(span) as builder:
        try:
            value = (yield body()) if body is not None else UNIT_TERM
            after = [b.term for b in variables]
            writes = since(cx, marks, span)
        finally:
            for binding, term in zip(variables, before, strict=True):
                binding.term = term
            yields = cx.loops.pop()
    if isinstance(value, Poison):
        raise Reported
    return Branch(builder, value, [t for t in after if not isinstance(t, (int, Poly))], span, writes, yields or ())


def joined(cx: Context, predicate: Array, then: Branch, other: Branch, variables: list[Binding], span: Span) -> Term:
    """The equation of a branch: its value, of one type on both sides, and the variables that either side changed."""
    if then.yields or other.yields:
        raise cx.error("DL0501", "`yield` stands in a condition", span, "", "yield in a statement of the loop's body")
    changed = [
        i for i, b in enumerate(variables) if then.variables[i] is not b.term or other.variables[i] is not b.term
    ]
    pairs = [("this", then.value, other.value)]
    pairs += [(f"`{variables[i].name}`", then.variables[i], other.variables[i]) for i in changed]
    types = [meeting(cx, type_of(a), type_of(b), span, what) for what, a, b in pairs]
    sides = [
        [v for t, (_, *both) in zip(types, pairs, strict=True) for v in leaves(held_as(side.builder, both[k], t))]
        for k, side in enumerate((then, other))
    ]
    consts, graphs = closed([then.builder, other.builder], sides, [[], []], [0, 0])
    cx.builder.span = span
    operands = tuple(map(cx.builder.own, [predicate.value, *consts]))
    results = iter(cx.builder.append(OPS["cond"], operands, tuple(r.type for r in graphs[0].results), tuple(graphs)))
    term, *terms = [rebuilt(t, results) for t in types]
    for i, new in zip(changed, terms, strict=True):
        variables[i].term = again(variables[i].term, new)
    return term


def again(old: Term | Dim, new: Term) -> Term:
    """A variable's new term: only where its type was declared is still known of it."""
    return Array(new.value, origin=old.origin) if isinstance(new, Array) and isinstance(old, Array) else new


def either_writes(
    cx: Context, predicate: Array, then: Branch, other: Branch, variables: list[Binding], span: Span
) -> Term:
    """A branch in which a loop's arrays are written into: what the side that is not taken writes goes nowhere."""
    mine = [*[w for _, w in then.writes], *[nowhere(then.builder, w) for _, w in other.writes]]
    yours = [*[nowhere(other.builder, w) for _, w in then.writes], *[w for _, w in other.writes]]
    sides = [replace(side, value=Tuple((side.value, *w))) for side, w in ((then, mine), (other, yours))]
    both = joined(cx, predicate, sides[0], sides[1], variables, span)
    assert isinstance(both, Tuple)
    value, *writes = both.items
    for (log, _), written in zip((*then.writes, *other.writes), writes, strict=True):
        log.add(written)
    return value


# ---- Loops


@walks(tree.For, tree.While, Until)
def loop_statement(cx: Context, e: tree.For | tree.While) -> Walk[Term]:
    return loop_expression(cx, e)


def loop_expression(cx: Context, e: tree.For | tree.While) -> Walk[Term]:
    """The walk of a loop; what it yields, stacked, is its value."""
    obey(cx, e.attributes, e.span)
    return for_loop(cx, e) if isinstance(e, tree.For) else while_loop(cx, e)


@dataclass(frozen=True, slots=True)
class Step:
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
                for value in leaves(entered):
                    builder.params.remove(value)
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
    from difflang.elaborate.scatters import at_once, logs_for

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
        bind_pattern(cx, e.pattern, over.item(index, rows), e.iterable.span)

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
        cx.keys.append((builder, builder.param(INDEX, "step")))
        enter(builder, body.variables)
        fresh = cx.word.term = cx.word.term if failing else cx.no_failure()
        draws = cx.root.draws
        try:
            condition = array(cx, (yield walk(cx, e.condition)), e.condition.span, "a condition")
            checked = cx.word.term is not fresh
            go = still_well(cx, condition, e.condition.span) if failing or checked else condition.value
        finally:
            cx.keys.pop()
            for binding, term in zip(variables, before, strict=True):
                binding.term = term
    if not cx.unifier.same(condition.tensor, Tensor(BOOL)):
        raise cx.error("DL0313", "a condition is a bool", e.condition.span, f"this is {show_type(condition.tensor)}")
    if condition.static is True:
        raise cx.error("DL0504", "this loop never ends", e.condition.span, "this is always true")
    consts, graphs = closed([body.builder, builder], [body.results, [go]], [body.params, builder.params], [1, 1])
    over = Source(None, cx.integer(FOREVER, e.span), [], lambda i, _: i)
    result, count = emit_loop(cx, e, over, body.variables, consts, graphs, body.yielded)
    if checked:  # once more after the loop, with what it drew last, for the failure that ended it
        cx.root.draws = draws
        cx.keys.append((cx.builder, count))
        yield walk(cx, e.condition)
        cx.keys.pop()
    return result


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
    operands = tuple(map(cx.builder.own, [over.limit.value, *consts, *carry, *over.arrays]))
    ys = [r.type for r in graphs[0].results[len(carry) :]]
    types = (INDEX, *[v.type for v in carry], *[stacked(t, over.rows) for t in ys])
    exact = over.length is not None and len(graphs) == 1
    attrs: dict[str, Any] = {"consts": len(consts), "carry": len(carry), "length": over.rows, "exact": exact}
    if (kept := keep(cx, e.span, over.rows)) != ALL_AS_USUAL:
        attrs["keep"] = kept
    results = iter(cx.builder.append(OPS["loop"], operands, types, tuple(graphs), **attrs, reverse=over.backwards))
    count = next(results)
    for binding in variables:
        old = binding.term
        assert not isinstance(old, (int, Poly))
        binding.term = again(old, rebuilt(type_of(old), results))
    if yielded is None:
        return UNIT_TERM, count
    steps = None
    if not exact or yielded.here is not None:
        *found, here = (*results, None) if yielded.here is None else results
        asks = e.iterable if isinstance(e, tree.For) else e.condition
        results, steps = iter(found), Steps(count, over.rows, here, asks.span)
    return collected(type_of(yielded.value), list(results), over, steps, e.span), count
