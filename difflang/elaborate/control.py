"""Branches and loops: from variables that change to regions with operands, carries and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from difflang.base.source import Span
from difflang.check.sums import tagged
from difflang.check.types import leaf_types, mapped, show_type
from difflang.elaborate.attributes import ALL_AS_USUAL, keep, obey
from difflang.elaborate.calls import bind_pattern
from difflang.elaborate.context import Binding, Context, Reported, walk, walks
from difflang.elaborate.failure import all_is_well
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
from difflang.ir.types import BOOL, Tensor, stacked
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
    if then.writes or other.writes:
        return either_writes(cx, predicate, then, other, variables, span)
    return joined(cx, predicate, then, other, variables, span)


@dataclass(frozen=True, slots=True)
class Branch:
    builder: Builder
    value: Term
    variables: list[Term]  # what the variables stand for at its end
    span: Span
    writes: Sequence[tuple[Log, Tuple]] = ()  # what it writes into arrays that the loop around only writes into


def branch(cx: Context, body: Callable[[], Walk[Term]] | None, variables: list[Binding], span: Span) -> Walk[Branch]:
    """One side of a branch as a region; the variables are put back as they were."""
    before, marks = [b.term for b in variables], [len(log.sites) for log in cx.logs.values()]
    if cx.loops:
        cx.loops.append(None)
    with cx.region(span) as builder:
        try:
            value = (yield body()) if body is not None else UNIT_TERM
            after = [b.term for b in variables]
            writes = since(cx, marks, span)
        finally:
            for binding, term in zip(variables, before, strict=True):
                binding.term = term
            if cx.loops:
                cx.loops.pop()
    if isinstance(value, Poison):
        raise Reported
    return Branch(builder, value, [t for t in after if not isinstance(t, (int, Poly))], span, writes)


def joined(cx: Context, predicate: Array, then: Branch, other: Branch, variables: list[Binding], span: Span) -> Term:
    """The equation of a branch: its value, of one type on both sides, and the variables that either side changed."""
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
    yielded: Term | None
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
        rows = [builder.param(row(v)) for v in items]
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
    yielded = held_as(builder, yields[0], tagged(type_of(yields[0]))) if yields else None
    results = [v for b, t in zip(variables, after, strict=True) for v in leaves(stays(builder, t, b.term))]
    results += leaves(yielded) if yielded is not None else []
    return Step(builder, builder.params, results, yielded, variables, lane.arrays if lane is not None else [])


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
    from difflang.elaborate.scatters import at_once, logs_for

    over = source(cx, (yield walk(cx, e.iterable)), e.iterable.span)
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
        if body.yielded is not None:
            raise cx.not_yet("a `yield` in a loop that `break` or `return` leaves is", e.span, "store into an array")
        if over.length is None:  # a negative limit would be none at all
            over = replace(over, limit=Array(cx.emit("max", e.span, over.limit.value, cx.integer(0, e.span).value)))
    consts, graphs = closed(builders, results, params, split)
    over = replace(over, arrays=[*over.arrays, *body.arrays])
    return emit_loop(cx, e, over, body.variables, consts, graphs, body.yielded)


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
            if checked and cx.root.draws > draws:
                raise cx.not_yet("a draw in a condition that may fail is", e.condition.span, "draw in the loop's body")
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
    result = emit_loop(cx, e, over, body.variables, consts, graphs, body.yielded)
    if checked:
        yield walk(cx, e.condition)  # once more after the loop, for the failure that ended it
    return result


def still_well(cx: Context, condition: Array, span: Span) -> Value:
    """The condition, and no failure so far."""
    return cx.emit("logical_and", span, condition.value, all_is_well(cx, span))


def emit_loop(
    cx: Context,
    e: tree.For | tree.While,
    over: Source,
    variables: list[Binding],
    consts: list[Value],
    graphs: list[Graph],
    yielded: Term | None,
) -> Term:
    """The equation of a loop; the variables stand for its results from here on."""
    if yielded is not None and over.length is None:
        raise cx.not_yet(
            "a `yield` in a loop whose length only the run knows is", e.span, "loop over a size, `for i in 0..n`"
        )
    carry = [v for b in variables if not isinstance(b.term, (int, Poly)) for v in leaves(b.term)]
    cx.builder.span = e.span
    operands = tuple(map(cx.builder.own, [over.limit.value, *consts, *carry, *over.arrays]))
    ys = leaf_types(type_of(yielded)) if yielded is not None else []
    types = (INDEX, *[v.type for v in carry], *[stacked(t, over.length) for t in ys])
    attrs: dict[str, Any] = {"consts": len(consts), "carry": len(carry), "length": over.length}
    if (kept := keep(cx, e.span, over.length)) != ALL_AS_USUAL:
        attrs["keep"] = kept
    exact = over.length is not None and len(graphs) == 1
    results = iter(cx.builder.append(OPS["loop"], operands, types, tuple(graphs), **attrs, exact=exact, reverse=False))
    next(results)
    for binding in variables:
        old = binding.term
        assert not isinstance(old, (int, Poly))
        binding.term = again(old, rebuilt(type_of(old), results))
    if yielded is None:
        return UNIT_TERM
    length = over.length
    assert length is not None
    return rebuild(mapped(type_of(yielded), lambda t: Tensor(t.dtype, (length, *t.shape))), list(results))
