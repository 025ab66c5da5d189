"""Branches: `if`, `cond`, switches on tags. The values, variables, writes and yields of their sides are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.effects import WriteLog, YieldItem
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.patterns.sum_types import branches_have_value, join_types, widen_to_type, zero_term
from difflang.elaborate.scope import LocalBinding
from difflang.elaborate.statements.regions import assigned_variables, close_regions, rebind_term
from difflang.elaborate.statements.write_logs import out_of_range_writes, take_writes_since
from difflang.elaborate.terms import UNIT_TERM, Array, PoisonTerm, Term, Tuple, build_term, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, I32, Tensor
from difflang.ops.control.cond import cond as cond_op
from difflang.syntax import tree
from difflang.syntax.tree_queries import body_value
from difflang.types.type_errors import condition_type_error

# ---- The if expression


@elaborates(tree.If)
def elaborate_if(cx: ElabContext, e: tree.If) -> Walk[Term]:
    condition = yield elaborate(cx, e.condition)
    predicate = as_array(cx, condition, e.condition.span, "a condition")
    if not cx.unifier.same(predicate.tensor, Tensor(BOOL)):
        raise condition_type_error(predicate.tensor, e.condition.span)
    if isinstance(predicate.static, bool):
        cx.root.chosen = True
        taken = e.then if predicate.static else e.orelse
        return (yield elaborate(cx, taken)) if taken is not None else UNIT_TERM
    variables = assigned_variables(cx, e.then, e.orelse)
    then = yield elaborate_side(cx, lambda: elaborate(cx, e.then), variables, e.then.span)
    other = yield elaborate_side(
        cx, (lambda: elaborate(cx, orelse)) if (orelse := e.orelse) else None, variables, e.span
    )
    ends = body_value(e.then).span, body_value(e.orelse or e).span
    return join_branches(cx, predicate, then, other, variables, e.span, ends, "`if`")


def join_branches(
    cx: ElabContext,
    predicate: Array,
    then: BranchSide,
    other: BranchSide,
    variables: list[LocalBinding],
    span: Span,
    ends: tuple[Span, Span],
    word: str,
) -> Term:
    """A branch from its two sides; `ends` are the spans of their values, `word` is its name in messages."""
    if not branches_have_value(cx, predicate.value, then.value, other.value, ends, word):
        then, other = replace(then, value=UNIT_TERM), replace(other, value=UNIT_TERM)
    yielding = bool(then.yields or other.yields)
    if yielding:
        then, other = pack_yields(then, other)
    either = emit_cond_with_writes if then.writes or other.writes else emit_cond
    value = either(cx, predicate, then, other, variables, span)
    return unpack_yields(cx, value, span) if yielding else value


class BranchSide(Struct, frozen=True):
    builder: Builder
    value: Term
    variables: list[Term]  # the values of the variables at its end
    span: Span
    # Writes to arrays that the enclosing loop only writes into.
    writes: Sequence[tuple[WriteLog, Tuple]] = ()
    yields: Sequence[YieldItem] = ()  # items yielded for the enclosing loop


def elaborate_side(
    cx: ElabContext, body: Callable[[], Walk[Term]] | None, variables: list[LocalBinding], span: Span
) -> Walk[BranchSide]:
    """One side of a branch as a region. The variables are restored afterwards."""
    before, marks = [b.term for b in variables], [len(log.writes) for log in cx.write_logs.values()]
    cx.loop_yields.append([] if cx.loop_yields and cx.loop_yields[-1] is not None else None)
    with cx.nested_graph(span) as builder:
        try:
            value = (yield body()) if body is not None else UNIT_TERM
            after = [b.term for b in variables]
            writes = take_writes_since(cx, marks, span)
        finally:
            for binding, term in zip(variables, before, strict=True):
                binding.term = term
            yields = cx.loop_yields.pop()
    if isinstance(value, PoisonTerm):
        raise AlreadyReported
    return BranchSide(builder, value, [t for t in after if not isinstance(t, (int, Poly))], span, writes, yields or ())


def emit_cond(
    cx: ElabContext, predicate: Array, then: BranchSide, other: BranchSide, variables: list[LocalBinding], span: Span
) -> Term:
    """The `cond` equation of a branch: its value, of a common type, and the variables that either side changed."""
    if then.yields or other.yields:
        raise cx.error(
            "DL0501",
            "`yield` cannot be inside a condition",
            span,
            "",
            "put the `yield` in a statement of the loop's body",
        )
    changed = [
        i for i, b in enumerate(variables) if then.variables[i] is not b.term or other.variables[i] is not b.term
    ]
    pairs = [("this", then.value, other.value)]
    pairs += [(f"`{variables[i].name}`", then.variables[i], other.variables[i]) for i in changed]
    types = [join_types(cx, type_of(a), type_of(b), span, what) for what, a, b in pairs]
    sides = [
        [v for t, (_, *both) in zip(types, pairs, strict=True) for v in leaves(widen_to_type(side.builder, both[k], t))]
        for k, side in enumerate((then, other))
    ]
    consts, graphs = close_regions([then.builder, other.builder], sides, [[], []], [0, 0])
    cx.builder.span = span
    operands = tuple(map(cx.builder.capture, [predicate.value, *consts]))
    results = iter(cx.builder.append(cond_op, operands, tuple(r.type for r in graphs[0].results), tuple(graphs)))
    term, *terms = [build_term(t, results) for t in types]
    for i, new in zip(changed, terms, strict=True):
        variables[i].term = rebind_term(variables[i].term, new)
    return term


def emit_cond_with_writes(
    cx: ElabContext, predicate: Array, then: BranchSide, other: BranchSide, variables: list[LocalBinding], span: Span
) -> Term:
    """A branch that writes to a loop's arrays."""
    # The scatter comes after the branch, so the side not taken writes out of range, which a scatter drops.
    mine = [*[w for _, w in then.writes], *[out_of_range_writes(then.builder, w) for _, w in other.writes]]
    yours = [*[out_of_range_writes(other.builder, w) for _, w in then.writes], *[w for _, w in other.writes]]
    sides = [replace(side, value=Tuple((side.value, *w))) for side, w in ((then, mine), (other, yours))]
    both = emit_cond(cx, predicate, sides[0], sides[1], variables, span)
    assert isinstance(both, Tuple)
    value, *writes = both.items
    for (log, _), written in zip((*then.writes, *other.writes), writes, strict=True):
        log.add(written)
    return value


# ---- Yields of branches


def record_yield(cx: ElabContext, found: YieldItem, span: Span) -> None:
    """Record a yield of the enclosing loop. Errors: DL0501 without a loop, DL0502 for a second one, DL0508."""
    leaves(found.value)
    collected = cx.loop_yields[-1] if cx.loop_yields else None
    if collected is None:
        way = "a comprehension already makes one item for each index" if cx.loop_yields else ""
        raise cx.error("DL0501", "`yield` is outside a loop", span, "", way)
    if collected:
        raise cx.error("DL0502", "a loop can yield only once per step", span, "a second `yield`", "yield a tuple")
    collected.append(found)


def pack_yields(then: BranchSide, other: BranchSide) -> tuple[BranchSide, BranchSide]:
    """Both sides of a branch with what they yield beside their values; zeros for a side that yields nothing."""
    both = all(side.yields and side.yields[0].present is None for side in (then, other))
    type = type_of((then.yields or other.yields)[0].value)

    def pack_side(given: BranchSide) -> BranchSide:
        found = given.yields[0] if given.yields else YieldItem(zero_term(given.builder, type))
        here = found.present or Array(given.builder.const(bool(given.yields), Tensor(BOOL)))
        items = (given.value, found.value) if both else (given.value, found.value, here)
        return replace(given, value=Tuple(items), yields=())

    return pack_side(then), pack_side(other)


def unpack_yields(cx: ElabContext, decided: Term, span: Span) -> Term:
    """The value of a branch from `pack_yields`; records what it yields."""
    assert isinstance(decided, Tuple)
    value, found, *here = decided.items
    record_yield(cx, YieldItem(found, yield_flag(here)), span)
    return value


def yield_flag(here: list[Term]) -> Array | None:
    """The flag whether a step reached its `yield`, or None if every step does."""
    found = here[0] if here else None
    assert found is None or isinstance(found, Array)
    return found


# ---- Switches


class MatchArm(Struct, frozen=True):
    """One arm of a switch."""

    body: Callable[[], Walk[Term]]
    span: Span


def binary_switch(
    cx: ElabContext,
    arms: Sequence[MatchArm],
    is_before: Callable[[int], Value],
    variables: list[LocalBinding],
    word: str,
    first: int = 0,
) -> Walk[Term]:
    """A switch as nested `cond`s by binary search: `is_before(i)` says whether the arm to run comes before arm `i`."""
    if len(arms) == 1:
        return (yield arms[0].body())
    middle = len(arms) // 2
    mine, yours = arms[:middle], arms[middle:]
    predicate = Array(is_before(first + middle))
    then = yield elaborate_side(
        cx, lambda: binary_switch(cx, mine, is_before, variables, word, first), variables, mine[0].span
    )
    last = first + middle
    other = yield elaborate_side(
        cx, lambda: binary_switch(cx, yours, is_before, variables, word, last), variables, yours[0].span
    )
    span = arms[0].span.to(arms[-1].span) if arms[0].span.source is arms[-1].span.source else arms[0].span
    return join_branches(cx, predicate, then, other, variables, span, (mine[-1].span, yours[0].span), word)


def switch_on_tag(
    cx: ElabContext,
    tag: Value,
    marks: Sequence[int],
    arms: Sequence[MatchArm],
    variables: list[LocalBinding],
    word: str,
) -> Walk[Term]:
    """A switch on a tag; `marks` are the tag values of the arms, in ascending order."""

    def is_before(place: int) -> Value:
        span = arms[0].span
        return cx.emit("lt", span, tag, cx.emit("const", span, value=marks[place], type=Tensor(I32)))

    return binary_switch(cx, arms, is_before, variables, word)
