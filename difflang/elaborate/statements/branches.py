"""`if` and `cond`: elaborates each side in a region and joins its value, assigned variables, writes and yields."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.patterns.sum_types import branches_have_value, join_types, widen_to_type
from difflang.elaborate.scope import LocalBinding
from difflang.elaborate.statements.write_only_arrays import WriteLog, out_of_range_writes, take_writes_since
from difflang.elaborate.statements.yield_histories import YieldItem, pack_yields, unpack_yields
from difflang.elaborate.terms import UNIT_TERM, Array, PoisonTerm, Term, Tuple, build_term, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.syntax import tree
from difflang.syntax.tree_queries import assigned_names, body_value
from difflang.types.type_errors import condition_type_error


def assigned_variables(cx: ElabContext, *parts: tree.Node | None) -> list[LocalBinding]:
    """The outer variables that a piece of code assigns, with the failure word last."""
    names = dict.fromkeys(name for part in parts if part is not None for name in assigned_names(part))
    found = [*[cx.scope.find(name) for name in names], cx.failure_word]
    return [b for b in found if b is not None and b.mutable and not isinstance(b.term, (PoisonTerm, int, Poly))]


def close_regions(
    builders: Sequence[Builder],
    results: Sequence[Sequence[Value]],
    own: Sequence[Sequence[Value]],
    split: Sequence[int],
) -> tuple[list[Value], list[Graph]]:
    """Finish regions that take the same consts. Returns the consts and the graphs.

    `own[i]` are the other params of region i; the consts are inserted after the first `split[i]` of them.
    """
    for builder, values in zip(builders, results, strict=True):
        for value in values:
            builder.capture(value)
    # A dict keeps the order of first capture, so graphs are the same from run to run.
    consts = list(dict.fromkeys(c for b in builders for c in b.captures))
    graphs: list[Graph] = []
    for builder, values, params, at in zip(builders, results, own, split, strict=True):
        shared = [builder.captures.get(c) or Value(c.type, builder, c.hint) for c in consts]
        graphs.append(builder.finish(values, params=[*params[:at], *shared, *params[at:]]))
    return consts, graphs


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
    results = iter(cx.builder.append(OPS["cond"], operands, tuple(r.type for r in graphs[0].results), tuple(graphs)))
    term, *terms = [build_term(t, results) for t in types]
    for i, new in zip(changed, terms, strict=True):
        variables[i].term = rebind_term(variables[i].term, new)
    return term


def rebind_term(old: Term | Dim, new: Term) -> Term:
    """A variable's new term, which keeps only the origin of its declared type."""
    return Array(new.value, origin=old.origin) if isinstance(new, Array) and isinstance(old, Array) else new


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
