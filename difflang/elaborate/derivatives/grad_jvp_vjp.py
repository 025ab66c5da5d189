"""Derivative operators applied: `grad f` becomes an equation that holds f's graph, expanded later by `ad`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from difflang.base.byte_sizes import tightest
from difflang.base.source import NOWHERE, Span
from difflang.elaborate.calls.apply import apply
from difflang.elaborate.calls.arguments import Args
from difflang.elaborate.calls.signatures import is_dim, names_around
from difflang.elaborate.context import Context, Reported
from difflang.elaborate.derivatives.wrt import Place, apart, by_position, located
from difflang.elaborate.expressions.structural_arithmetic import changes_along
from difflang.elaborate.patterns.sum_types import held_as
from difflang.elaborate.reports.zero_derivative_warnings import watch
from difflang.elaborate.runtime_checks import absorb
from difflang.elaborate.statements.branches import closed
from difflang.elaborate.statements.printing import quiet
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Closure,
    Key,
    Opaque,
    Poison,
    Record,
    Sum,
    Term,
    Tuple,
    Variant,
    closure_type,
    leaves,
    like,
    rebuilt_record,
    rebuilt_variant,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import DTypeVar, pruned, settled
from difflang.types.function_code import AscribedCode, DerivativeCode, FnCode, LambdaCode, Wrt
from difflang.types.join_types import joint, may_move
from difflang.types.language_types import LangType, RecordType, VariantType, leaf_types, show_type, tangent_type
from difflang.types.unify import narrow


class Traced(Struct, frozen=True):
    """A function's graph over the numbers it is differentiated in; everything else it reads is a const."""

    graph: Graph
    points: list[Value]  # where the derivative is taken
    consts: list[Value]
    result: Term  # over the graph's own values
    fails: bool
    chosen: bool  # a condition known beforehand left a part of the function out
    limit: int = 0  # the most bytes that a program with a derivative of it in reverse may take


def derivative(cx: Context, code: DerivativeCode, f: Term, args: Args) -> Walk[Term]:
    """Apply `grad[w](f)` and its kin."""
    from difflang.elaborate.reports.missing_tangents import WithoutTangent

    try:
        return (yield derived(cx, code, f, args))
    except WithoutTangent as error:
        raise error.where_asked(code.at) from None


def derived(cx: Context, code: DerivativeCode, f: Term, args: Args) -> Walk[Term]:
    from difflang.elaborate.derivatives import jacobians, linear_functions, taylor_coefficients
    from difflang.elaborate.derivatives.scalar_derivative import slope
    from difflang.elaborate.reports.missing_tangents import real_result, result_with_tangent

    if args.named:
        args = yield by_position(cx, f, args)
    if code.operator in ("hvp", "hessian"):
        return (yield (jacobians.hessian_product if code.operator == "hvp" else jacobians.hessian)(cx, code, f, args))
    wrt, operator = [located(cx, f, w, args.span) for w in code.wrt], code.operator
    apart(cx, code.wrt, wrt, args.span)
    tangents: list[tuple[Term, Span]] = []
    if operator == "jvp":
        tangents = args.items[len(args.items) - len(wrt) :] if len(args.items) > len(wrt) else []
        args = Args(args.span, args.items[: len(args.items) - len(wrt)])
        if not tangents:
            message, way = "`jvp` takes the arguments, then a tangent for each it is taken in", "write `jvp(f)(x, dx)`"
            raise cx.error("DL0404", message, args.span, "", way)
    args = yield by_position(cx, f, args, 1 + max(position for position, _ in wrt))
    for position, _ in wrt:
        if position >= len(args.items):
            raise cx.error("DL0403", f"there is no argument {position} to differentiate in", args.span)
    ask(cx, f, args.items)
    if operator in ("vjp", "linearize"):
        return (yield linear_functions.linearized(cx, code, f, args, wrt))
    if operator in ("jacobian", "jacfwd", "jacrev"):
        return (yield jacobians.jacobian(cx, code, f, args, wrt))
    if operator == "jet":
        return (yield taylor_coefficients.taylor(cx, code, f, args, wrt))
    if operator == "deriv":
        return (yield slope(cx, f, args, wrt))
    traced = yield trace(cx, f, args, wrt)
    if operator == "jvp":
        yield result_with_tangent(cx, operator, f, traced, args, wrt)
        watch(cx, f, traced, args, wrt)
        return pushed(cx, traced, args, wrt, tangents)
    yield real_result(cx, str(code), f, traced, args, wrt)
    watch(cx, f, traced, args, wrt)
    return gradient(cx, traced, args, wrt, code, with_value=operator == "value_and_grad")


def ask(cx: Context, f: Term, items: Sequence[tuple[Term, Span]]) -> None:
    """Numbers as written take the types that the parameters ask of them; what does not fit is reported by the call."""
    while isinstance(f, Closure) and isinstance(f.code, DerivativeCode):
        (f,) = f.captures
    match f:
        case Closure(code=AscribedCode(type=type)):
            for wanted, (term, _) in zip(type.params, items, strict=False):
                cx.unifier.same(wanted, type_of(term))
            return
        case Closure(code=FnCode() | LambdaCode() as code, captures=captures):
            annotations = names_around(cx, code, captures)
            for param, (term, _) in zip(code.decl.params, items, strict=False):
                if param.type is not None and not is_dim(param.type):
                    annotations.match(param.type, type_of(term))
        case _:
            return


def drawn_once(cx: Context, f: Term, args: Args) -> Walk[tuple[Term, Value | None]]:
    """The function's value, and, if it draws, the one key that it drew from: who applies it again does so too."""
    before, key, cx.root.muted = cx.root.draws, None, False
    with quiet(cx):
        value = yield apply(cx, f, Args(args.span, list(args.items)))
    drawn = cx.root.draws > before
    if drawn or cx.root.muted:
        key = cx.draw(args.span) if drawn else None
        with cx.keyed(key):
            value = yield apply(cx, f, Args(args.span, list(args.items)))
    return value, key


# ---- The graph of the function


def trace(cx: Context, f: Term, args: Args, wrt: Sequence[Place]) -> Walk[Traced]:
    """Walk the function in a region whose params are the numbers that it is differentiated in."""
    from difflang.elaborate.reports.missing_tangents import without_tangent

    points: list[Value] = []
    items = list(args.items)
    if cx.loops:
        cx.loops.append(None)
    before, chosen, limit = cx.word.term, cx.root.chosen, cx.root.limit
    cx.root.chosen, cx.root.limit = False, 0
    with cx.region(args.span) as builder:
        for position, path in wrt:
            term, span = items[position]
            found = len(points)
            items[position] = (replaced(cx, term, path, points, span), span)
            if len(points) == found and not isinstance(term, (Closure, Opaque)):
                part = type_of(differentiable_part(cx, items[position], path))
                if not may_move(cx.unifier, part):
                    raise without_tangent(f, args, wrt, (position, path), part)
        cx.root.deriving += 1
        try:
            result = yield apply(cx, f, Args(args.span, items))
            word = leaves(cx.failure) if cx.word.term is not before else []
        finally:
            cx.root.deriving -= 1
            cx.word.term = before
            inside, cx.root.chosen = cx.root.chosen, cx.root.chosen or chosen
            within, cx.root.limit = cx.root.limit, tightest(cx.root.limit, limit)
            if cx.loops:
                cx.loops.pop()
    if isinstance(result, Poison):
        raise Reported
    settle_results(cx, result)
    consts, (graph,) = closed([builder], [[*leaves(result), *word]], [builder.params], [len(builder.params)])
    return Traced(graph, points, consts, result, bool(word), inside, within)


def replaced(cx: Context, term: Term, path: tuple[str, ...], points: list[Value], span: Span) -> Term:
    """The argument with its differentiable numbers (under a path of fields) made params of the region."""
    if path:
        inner = field_of(cx, term, path[0], span)
        assert isinstance(term, Record)
        return term.with_field(path[0], replaced(cx, inner, path[1:], points, span))
    match term:
        case Array():
            if not differentiable(term):
                return term
            points.append(term.value)
            return Array(cx.builder.param(term.tensor, term.value.hint), origin=term.origin)
        case Tuple():
            return Tuple(tuple([replaced(cx, t, (), points, span) for t in term.items]), term.of)
        case Record():
            return rebuilt_record(term.type, tuple([replaced(cx, t, (), points, span) for t in term.fields]))
        case Variant():
            return rebuilt_variant(term.type, tuple([replaced(cx, t, (), points, span) for t in term.fields]))
        case Sum():
            return Sum(term.tag, tuple([replaced(cx, t, (), points, span) for t in term.parts]))
        case Closure():
            return Closure(term.code, tuple([replaced(cx, t, (), points, span) for t in term.captures]))
        case _:
            return term


def field_of(cx: Context, term: Term, name: str, span: Span) -> Term:
    """A field of an argument. Errors: DL0403 if there is none of that name."""
    if not isinstance(term, Record) or name not in term.type.names:
        has = f"it has {', '.join(term.type.names)}" if isinstance(term, Record) else "it is no record"
        what = show_type(type_of(term))
        raise cx.error("DL0403", f"{what} has no field `{name}`", span, f"this is {what}", has)
    return term.field(name)


def differentiable_part(cx: Context, item: tuple[Term, Span], path: tuple[str, ...]) -> Term:
    """The part of an argument that a derivative is taken in. Errors: DL0403."""
    term, span = item
    for name in path:
        term = field_of(cx, term, name, span)
    return term


def differentiable(term: Array) -> bool:
    """Whether an array has a tangent; a number as written becomes a float."""
    dtype = pruned(term.tensor.dtype)
    if isinstance(dtype, DTypeVar):
        return narrow(dtype, [c for c in dtype.candidates if c.is_float or dtype.is_complex])
    return dtype.differentiable


def settle_results(cx: Context, result: Term) -> None:
    """A result as written is what it would be by default: whether it has a tangent must be known now."""
    for leaf in leaf_types(type_of(result)):
        settled(leaf.dtype)


# ---- Reverse mode


def gradient(
    cx: Context, traced: Traced, args: Args, wrt: Sequence[Place], code: DerivativeCode, *, with_value: bool
) -> Term:
    result = traced.result
    assert isinstance(result, Array)
    cx.builder.span = args.span
    one = cx.builder.const(1, result.tensor)
    values, cts = reverse(cx, traced, [one], args.span)
    parts = iter(cts)
    grads = [cotangent(cx, args.items[p][0], path, parts) for p, path in wrt]
    found = together(code.wrt, grads)
    return Tuple((Array(values[0]), found)) if with_value else found


GRAD = tree.Record(NOWHERE, "grad", NOWHERE, (), ())  # what a record of several derivatives is called


def together(wrt: Sequence[Wrt], grads: Sequence[Term]) -> Term:
    """Several derivatives: a record with the names they were asked by."""
    type = together_type(wrt, [type_of(g) for g in grads])
    return Record(type, tuple(grads)) if len(grads) != 1 and isinstance(type, RecordType) else grads[0]


def together_type(wrt: Sequence[Wrt], types: Sequence[LangType]) -> LangType:
    if len(types) == 1:
        return types[0]
    names = tuple(str(w[-1]) if isinstance(w[-1], str) else f"_{w[0]}" for w in wrt)
    return RecordType(GRAD, names, tuple(types), tangent=True)


def reverse(cx: Context, traced: Traced, cts: Sequence[Value], span: Span) -> tuple[Values, Values]:
    """The `vjp` equation: the function's results, and a cotangent for each point."""
    wrt = (True,) * len(traced.points) + (False,) * len(traced.consts)
    attrs = {"limit": traced.limit} if traced.limit else {}
    return differentiated(cx, "vjp", traced, cts, [p.type for p in traced.points], wrt, span, **attrs)


def differentiated(
    cx: Context,
    op: str,
    traced: Traced,
    extra: Sequence[Value],
    types: Sequence[object],
    wrt: tuple[bool, ...],
    span: Span,
    **attrs: Any,
) -> tuple[Values, Values]:
    """A derivative equation; a failure in the function travels on."""
    cx.builder.span = span
    operands = tuple(map(cx.builder.own, [*traced.points, *traced.consts, *extra]))
    results = tuple(r.type for r in traced.graph.results)
    all_types = (*results, *[t for t in types if isinstance(t, Tensor)])
    found = cx.builder.append(OPS[op], operands, all_types, (traced.graph,), wrt=wrt, **attrs)
    if traced.fails:
        absorb(cx, found[len(results) - 3 : len(results)], span)
    return found[: len(results)], found[len(results) :]


def cotangent(cx: Context, term: Term, path: tuple[str, ...], parts: Iterator[Value]) -> Term:
    """The derivative in a value, of its tangent type."""
    if path:
        assert isinstance(term, Record)
        return cotangent(cx, term.field(path[0]), path[1:], parts)
    return tangent_term(term, parts)


def tangent_term(term: Term, parts: Iterator[Value]) -> Term:
    """A term of type `D(type_of(term))` on these values."""
    match term:
        case Array():
            return Array(next(parts)) if pruned(term.tensor.dtype).differentiable else UNIT_TERM
        case Tuple():
            return Tuple(tuple([tangent_term(t, parts) for t in term.items]), term.of)
        case Closure():
            return Tuple(tuple([tangent_term(t, parts) for t in term.captures]), closure_type(term))
        case Sum():
            return Sum(term.tag, tuple([tangent_term(t, parts) for t in term.parts]))
        case Variant():
            inside = [(n, tangent_term(t, parts)) for n, t in zip(term.type.names, term.fields, strict=True)]
            of_variant = tangent_type(term.type)
            assert isinstance(of_variant, VariantType)
            return rebuilt_variant(of_variant, tuple(t for n, t in inside if n in of_variant.names))
        case Record():
            type = tangent_type(term.type)
            assert isinstance(type, RecordType)
            pairs = [(n, tangent_term(t, parts)) for n, t in zip(term.type.names, term.fields, strict=True)]
            return rebuilt_record(type, tuple(t for n, t in pairs if n in type.names))
        case Key():
            return UNIT_TERM
        case _:
            return UNIT_TERM


# ---- Forward mode


def pushed(
    cx: Context,
    traced: Traced,
    args: Args,
    wrt: Sequence[Place],
    tangents: Sequence[tuple[Term, Span]],
) -> Term:
    """`jvp`: the value, and how it changes along the tangents."""
    given: list[Value] = []
    for (position, path), (tangent, span) in zip(wrt, tangents, strict=True):
        term = differentiable_part(cx, args.items[position], path)
        wanted = tangent_type(type_of(term))
        if joint(cx.unifier, wanted, type_of(tangent)) != wanted:
            raise cx.error(
                "DL0404",
                f"the tangent of {show_type(type_of(term))} is {show_type(wanted)}",
                span,
                f"this is {show_type(type_of(tangent))}",
            )
        given += changes_along(cx, term, held_as(cx.builder, tangent, wanted), span)
    values, changes = forward(cx, traced, given, args.span)
    value = like(traced.result, iter(values))
    return Tuple((value, tangent_term(value, iter(changes))))


def forward(
    cx: Context, traced: Traced, tangents: Sequence[Value], span: Span, only: int | None = None
) -> tuple[Values, Values]:
    """The `jvp` equation: the function's results, and a tangent for each that has one; of one point `only`, or all."""
    wrt = (*[only is None or i == only for i in range(len(traced.points))], *[False] * len(traced.consts))
    types = [r.type for r in traced.graph.results]
    moving = [t for t in types if isinstance(t, Tensor) and pruned(t.dtype).differentiable]
    return differentiated(cx, "jvp", traced, tangents, moving, wrt, span)
