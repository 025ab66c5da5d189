"""Functions traced for a derivative: their graphs over the numbers that it is taken of, and derivative equations.

A `jvp` or `vjp` equation holds the function's graph as its region; the pass in `ad` expands it later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.byte_sizes import tightest_limit
from difflang.base.source import Span
from difflang.elaborate.calls.application import apply
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.derivatives.wrt import WrtPath
from difflang.elaborate.reports.missing_tangents import argument_without_tangent
from difflang.elaborate.runtime_checks import absorb_failure
from difflang.elaborate.statements.regions import close_regions
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    PoisonTerm,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    VariantTerm,
    leaves,
    record_of_fields,
    type_of,
    variant_of_fields,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import DTypeVar, default_dtype, prune_dtype
from difflang.types.join_types import has_tangent_in_other_variant
from difflang.types.language_types import leaf_types, show_type
from difflang.types.unify import narrow_candidates


class TracedFunction(Struct, frozen=True):
    """A function's graph over the numbers that it is differentiated with respect to; all else it reads is a const."""

    graph: Graph
    points: list[Value]  # the primal values at which the derivative is taken
    consts: list[Value]
    result: Term  # over the graph's own values
    fails: bool
    branch_elided: bool  # a static condition left a branch of the function out
    # The memory budget, in bytes, of a program with a reverse-mode derivative of it; 0 for none.
    memory_limit: int = 0


def trace_function(cx: ElabContext, f: Term, args: CallArgs, wrt: Sequence[WrtPath]) -> Walk[TracedFunction]:
    """Elaborate the function in a region whose params are the numbers it is differentiated with respect to."""
    points: list[Value] = []
    items = list(args.items)
    if cx.loop_yields:
        cx.loop_yields.append(None)
    before, chosen, limit = cx.failure_word.term, cx.root.chosen, cx.root.memory_limit
    # Save and reset what the function may change: its failures and limits are those of the traced graph.
    cx.root.chosen, cx.root.memory_limit = False, 0
    with cx.nested_graph(args.span) as builder:
        for position, path in wrt:
            term, span = items[position]
            found = len(points)
            items[position] = (replace_with_params(cx, term, path, points, span), span)
            if len(points) == found and not isinstance(term, (Closure, OpaqueTerm)):
                part = type_of(wrt_part(cx, items[position], path))
                if not has_tangent_in_other_variant(cx.unifier, part):
                    raise argument_without_tangent(f, args, wrt, (position, path), part)
        cx.root.derivative_depth += 1
        try:
            result = yield apply(cx, f, CallArgs(args.span, items))
            word = leaves(cx.failure) if cx.failure_word.term is not before else []
        finally:
            cx.root.derivative_depth -= 1
            cx.failure_word.term = before
            inside, cx.root.chosen = cx.root.chosen, cx.root.chosen or chosen
            within, cx.root.memory_limit = cx.root.memory_limit, tightest_limit(cx.root.memory_limit, limit)
            if cx.loop_yields:
                cx.loop_yields.pop()
    if isinstance(result, PoisonTerm):
        raise AlreadyReported
    default_result_dtypes(cx, result)
    consts, (graph,) = close_regions([builder], [[*leaves(result), *word]], [builder.params], [len(builder.params)])
    return TracedFunction(graph, points, consts, result, bool(word), inside, within)


def of_loss(traced: TracedFunction) -> TracedFunction:
    """The function that gives only the first item of a result `(loss, …)`; any other function itself."""
    if not isinstance(traced.result, Tuple):
        return traced
    return replace(traced, graph=traced.graph.with_results(traced.graph.results[:1]), result=traced.result.items[0])


def is_real_scalar(term: Term) -> bool:
    return isinstance(term, Array) and not term.tensor.shape and prune_dtype(term.tensor.dtype).is_float


def replace_with_params(cx: ElabContext, term: Term, path: tuple[str, ...], points: list[Value], span: Span) -> Term:
    """The argument with its differentiable numbers (under a path of fields) replaced by params of the region."""
    if path:
        inner = record_field(cx, term, path[0], span)
        assert isinstance(term, RecordTerm)
        return term.with_field(path[0], replace_with_params(cx, inner, path[1:], points, span))
    match term:
        case Array():
            if not is_differentiable(term):
                return term
            points.append(term.value)
            return Array(cx.builder.param(term.tensor, term.value.hint), origin=term.origin)
        case Tuple():
            return Tuple(tuple([replace_with_params(cx, t, (), points, span) for t in term.items]), term.function_type)
        case RecordTerm():
            return record_of_fields(
                term.type, tuple([replace_with_params(cx, t, (), points, span) for t in term.fields])
            )
        case VariantTerm():
            return variant_of_fields(
                term.type, tuple([replace_with_params(cx, t, (), points, span) for t in term.fields])
            )
        case SumTerm():
            return SumTerm(term.tag, tuple([replace_with_params(cx, t, (), points, span) for t in term.parts]))
        case Closure():
            return Closure(term.code, tuple([replace_with_params(cx, t, (), points, span) for t in term.captures]))
        case _:
            return term


def record_field(cx: ElabContext, term: Term, name: str, span: Span) -> Term:
    """A field of an argument. Errors: DL0403 if it does not exist."""
    if not isinstance(term, RecordTerm) or name not in term.type.names:
        has = f"it has {', '.join(term.type.names)}" if isinstance(term, RecordTerm) else "it is not a record"
        what = show_type(type_of(term))
        raise cx.error("DL0403", f"{what} has no field `{name}`", span, f"this is {what}", has)
    return term.field(name)


def wrt_part(cx: ElabContext, item: tuple[Term, Span], path: tuple[str, ...]) -> Term:
    """The part of an argument that a derivative is taken with respect to. Errors: DL0403."""
    term, span = item
    for name in path:
        term = record_field(cx, term, name, span)
    return term


def is_differentiable(term: Array) -> bool:
    """Whether an array has a tangent; a literal becomes a float."""
    dtype = prune_dtype(term.tensor.dtype)
    if isinstance(dtype, DTypeVar):
        return narrow_candidates(dtype, [c for c in dtype.candidates if c.is_float or dtype.is_complex])
    return dtype.differentiable


def default_result_dtypes(cx: ElabContext, result: Term) -> None:
    """Give open element types in a result their defaults: whether it has a tangent must be known now."""
    for leaf in leaf_types(type_of(result)):
        default_dtype(leaf.dtype)


# ---- Derivative equations


def emit_vjp(
    cx: ElabContext, traced: TracedFunction, cts: Sequence[Value], span: Span, *, only_first: bool = False
) -> tuple[Values, Values]:
    """The `vjp` equation: the function's results, and a cotangent for each point.

    If `only_first`, the one cotangent given is that of the first result.
    """
    wrt = (True,) * len(traced.points) + (False,) * len(traced.consts)
    attrs: dict[str, Any] = {"limit": traced.memory_limit} if traced.memory_limit else {}
    if only_first:
        attrs["seeded"] = (True,) + (False,) * (len(traced.graph.results) - 1)
    return emit_derivative(cx, "vjp", traced, cts, [p.type for p in traced.points], wrt, span, **attrs)


def emit_jvp(
    cx: ElabContext, traced: TracedFunction, tangents: Sequence[Value], span: Span, only: int | None = None
) -> tuple[Values, Values]:
    """The `jvp` equation: results and their tangents, with respect to all points or to the point `only`."""
    wrt = (*[only is None or i == only for i in range(len(traced.points))], *[False] * len(traced.consts))
    types = [r.type for r in traced.graph.results]
    moving = [t for t in types if isinstance(t, Tensor) and prune_dtype(t.dtype).differentiable]
    return emit_derivative(cx, "jvp", traced, tangents, moving, wrt, span)


def emit_derivative(
    cx: ElabContext,
    op: str,
    traced: TracedFunction,
    extra: Sequence[Value],
    types: Sequence[object],
    wrt: tuple[bool, ...],
    span: Span,
    **attrs: Any,
) -> tuple[Values, Values]:
    """A derivative equation. A failure inside the function is passed on to the current one."""
    cx.builder.span = span
    operands = tuple(map(cx.builder.capture, [*traced.points, *traced.consts, *extra]))
    results = tuple(r.type for r in traced.graph.results)
    all_types = (*results, *[t for t in types if isinstance(t, Tensor)])
    found = cx.builder.append(OPS[op], operands, all_types, (traced.graph,), wrt=wrt, **attrs)
    if traced.fails:
        absorb_failure(cx, found[len(results) - 3 : len(results)], span)
    return found[: len(results)], found[len(results) :]
