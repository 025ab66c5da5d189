"""Linear functions: maps that `vjp` and `linearize` give, linear lambdas and the proof that they are, `transpose`.

A map is a closure of its residuals, so the function that it is of is computed once for all calls. While a definition is
checked, sizes are names and nothing can be differentiated: there a linear function is known by its type alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct

from difflang.analysis.linearity import NotLinear, prove
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.apply import call_lambda, not_its_vector, packed
from difflang.elaborate.calls.arguments import Args
from difflang.elaborate.calls.signatures import captured_sizes, held_to
from difflang.elaborate.context import Context, Reported, Session
from difflang.elaborate.derivatives.grad_jvp_vjp import Traced, differentiable_part, together_type, trace
from difflang.elaborate.derivatives.tangents import is_number, number_types, numbers_of, tag_count, tags_of, tangent_of
from difflang.elaborate.derivatives.wrt import Place
from difflang.elaborate.dtype_resolution import settle
from difflang.elaborate.expressions.structural_arithmetic import changes_along
from difflang.elaborate.instance_keys import known_of
from difflang.elaborate.patterns.sum_types import held_as
from difflang.elaborate.reports.linearity_errors import not_a_vector, not_linear, plain_function, unknown_domain
from difflang.elaborate.reports.missing_tangents import result_with_tangent
from difflang.elaborate.reports.zero_derivative_warnings import watch
from difflang.elaborate.runtime_checks import absorb
from difflang.elaborate.statements.branches import closed
from difflang.elaborate.statements.printing import quiet
from difflang.elaborate.terms import (
    Array,
    Closure,
    Opaque,
    Poison,
    Term,
    Tuple,
    leaves,
    like,
    rebuild,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.annotations import Annotations
from difflang.types.dtype_variables import DTypeVar, literal_dtype
from difflang.types.function_code import AscribedCode, DerivativeCode, LambdaCode, MapCode, meaning
from difflang.types.join_types import joint
from difflang.types.language_types import (
    FnType,
    LangType,
    TupleType,
    leaf_types,
    pruned_type,
    settled_type,
    show_type,
    tangent_type,
)
from difflang.types.type_errors import Undecided, mistake

# ---- Maps


def linearized(cx: Context, code: DerivativeCode, f: Term, args: Args, wrt: Sequence[Place]) -> Walk[Term]:
    """`linearize`: the value and the derivative as a linear map; `vjp`: the value and that map turned round."""
    traced = yield trace(cx, f, args, wrt)
    if traced.limit and not args.span.of_library and not cx.root.implied:
        way = f"`grad` keeps to it; leave `@memory` away from what `{code.operator}` is taken of, and what that calls"
        message = f"no limit on memory holds for what `{code.operator}` gives: a linear function keeps what it needs"
        raise mistake("DL1014", message, (args.span, ""), help=way)
    yield result_with_tangent(cx, code.operator, f, traced, args, wrt)
    watch(cx, f, traced, args, wrt)
    parts = [differentiable_part(cx, args.items[position], path) for position, path in wrt]
    takes = together_type(code.wrt, [settled_type(tangent_type(type_of(part))) for part in parts])
    value, map = value_and_map(cx, traced, takes, [tag for part in parts for tag in tags_of(part)], args.span)
    return Tuple((value, transposed(cx, map, args.span) if code.operator == "vjp" else map))


def value_and_map(cx: Context, traced: Traced, takes: LangType, tags: Sequence[Value], span: Span) -> tuple[Term, Term]:
    """The function's value at its points, and its derivative there, of tangents with the `tags` of the points."""
    gives = settled_type(tangent_type(type_of(traced.result)))
    if cx.root.definition:
        nowhere = [Value(v.type, cx.builder) for v in leaves(traced.result)]
        return like(traced.result, iter(nowhere)), Opaque(FnType((takes,), gives, linear=True))
    settle(traced.graph, cx.session.settled)
    cx.builder.span = span
    from difflang.ad.linear_maps import split  # with the passes, which most checks of a file do without

    parts = split(traced.graph, (True,) * len(traced.points) + (False,) * len(traced.consts))
    given = [*traced.points, *traced.consts]
    outs = cx.builder.inline(parts.primal, *given)
    results, residuals = outs[: len(traced.graph.results)], outs[len(traced.graph.results) :]
    if traced.fails:
        absorb(cx, results[-3:], span)
    value, code = like(traced.result, iter(results)), MapCode(shared(cx.session, parts.tangent), takes, gives)
    return value, Closure(code, tuple(map(Array, [*tags, *tags_of(value), *residuals])))


def shared(session: Session, graph: Graph) -> Graph:
    """The one graph that stands for all equal ones: maps are of one type if they compute the same."""
    return session.maps.setdefault(session.keys.of(graph), graph)


def apply_map(cx: Context, code: MapCode, captures: tuple[Term, ...], args: Args) -> Walk[Term]:
    """A map at a tangent; the parts of a tuple or of a record of derivatives may stand one by one."""
    if not args.items or args.named:
        raise cx.error("DL0404", f"this linear function takes {show_type(code.takes)}", args.span)
    given, span = args.items[0] if len(args.items) == 1 else (packed(code.takes, args), args.span)
    if not number_types(code.takes) or joint(cx.unifier, code.takes, type_of(given)) != code.takes:
        raise not_its_vector(code.takes, given, span)
    theirs, ours, residuals = parted(code, [v for t in captures for v in leaves(t)])
    given = held_as(cx.builder, given, code.takes)
    numbers = changes_along(cx, tangent_of(code.takes, theirs, numbers_of(given)), given, span)
    cx.builder.span = span
    types = tuple([r.type for r in code.graph.results])
    owned = tuple(map(cx.builder.own, [*residuals, *numbers]))
    results = cx.builder.append(OPS["call"], owned, types, (code.graph,), name="linear")
    return tangent_of(code.gives, ours, results)
    yield


T = TypeVar("T")


def parted(code: MapCode, captures: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """What a map captures: the tags of what it takes, of what it gives, and its residuals."""
    first = tag_count(code.takes)
    second = first + tag_count(code.gives)
    return captures[:first], captures[first:second], captures[second:]


# ---- Transposition


def transpose(cx: Context, term: Term, span: Span, tags: Sequence[Value] = ()) -> Walk[Term]:
    """`transpose(L)` of a linear function, of tangents with these `tags` if it is known which.

    Errors: DL1102 for another one, DL1103 where nobody says what it takes, DL1107 where it takes other tags than these.
    """
    match term:
        case Closure(code=MapCode()) | Opaque(type=FnType(linear=True)):
            return transposed(cx, term, span)
        case Closure(code=AscribedCode(type=FnType(linear=True) as type), captures=(f,)):
            return (yield transpose_as(cx, f, type.params, span, tags))
        case Closure(code=LambdaCode() as code) if code.decl.linear:
            return (yield transpose_as(cx, term, domain(cx, code, term, span), span, tags))
        case _:
            raise plain_function(term, span, "`transpose` takes a linear function")


def transpose_as(cx: Context, f: Term, takes: Sequence[LangType], span: Span, tags: Sequence[Value] = ()) -> Walk[Term]:
    """A linear function turned round that takes values of these types."""
    if isinstance(f, Closure) and isinstance(f.code, LambdaCode) and f.code.decl.linear:
        return transposed(cx, (yield as_map(cx, f, takes, span, tags)), span)
    return (yield transpose(cx, f, span, tags))


def transposed(cx: Context, map: Term, span: Span) -> Term:
    """A map turned round; turned round again it is itself."""
    if isinstance(map, Opaque):
        params = map.type.params
        return Opaque(FnType((map.type.result,), params[0] if len(params) == 1 else TupleType(params), linear=True))
    assert isinstance(map, Closure) and isinstance(map.code, MapCode)
    from difflang.ad.linear_maps import turned

    code = map.code
    back = code.back or shared(cx.session, turned(code.graph, len(number_types(code.takes))))
    theirs, ours, residuals = parted(code, map.captures)
    return Closure(MapCode(back, code.gives, code.takes, code.graph), (*ours, *theirs, *residuals))


def as_map(cx: Context, f: Closure, takes: Sequence[LangType], span: Span, tags: Sequence[Value] = ()) -> Walk[Term]:
    """A linear lambda as a map: the derivative of a linear function, anywhere, is the function itself."""
    yield proved(cx, f, takes, span)
    takes = [settled_type(t) for t in takes]
    whole = takes[0] if len(takes) == 1 else TupleType(tuple(takes))
    if cx.root.definition:
        body = yield body_of(cx, f, takes, span)
        return Opaque(FnType(tuple(takes), body.gives, linear=True))
    cx.builder.span = span
    if len(tags) != tag_count(whole):
        raise of_any_variant("what a linear lambda that is turned round takes", span, HOW)
    rest = iter(tags)
    zeros = [
        rebuild(t, [cx.builder.const(0, leaf) if is_number(leaf) else next(rest) for leaf in leaf_types(t)])
        for t in takes
    ]
    with quiet(cx):  # it is applied to nothing yet
        traced = yield trace(cx, f, Args(span, [(z, span) for z in zeros]), [(i, ()) for i in range(len(takes))])
    return value_and_map(cx, traced, whole, tags, span)[1]


def of_any_variant(what: str, span: Span, way: str) -> DifflangError:
    """A linear equation in what has one variant or another: how many unknowns it has, only the run would know."""
    message = f"{what} has a variant, or is a function, that only the run chooses"
    return mistake("DL1107", message, (span, "of another variant it has other numbers"), help=way)


HOW = "take the map from `linearize` at the value: there its variant is known"


def domain(cx: Context, code: LambdaCode, f: Closure, span: Span, *, rigid: bool = False) -> list[LangType]:
    """What a linear lambda takes, as its parameters say. Errors: DL1103."""
    if any(p.type is None for p in code.decl.params):
        raise unknown_domain(code, span)
    bound, generics = {**cx.annotations.bound}, {**cx.annotations.generics}
    inner = Annotations(cx.unifier, code.module.records.get, bound, generics, rigid)
    with meaning(inner, code.types, captured_sizes(code, f.captures)):
        return [inner.type(p.type) for p in code.decl.params if p.type is not None]


# ---- Linear lambdas


def call(cx: Context, code: LambdaCode, captures: tuple[Term, ...], args: Args) -> Walk[Term]:
    """A linear lambda applied: it is proved to be linear first, once for each kind of arguments."""
    items = args.items
    if len(items) == 1 and len(code.decl.params) > 1 and isinstance(items[0][0], Tuple):
        args = Args(args.span, [(t, args.span) for t in items[0][0].items])
    if len(args.items) == len(code.decl.params) and not args.named:
        types = [type_of(t) for t, _ in args.items]
        yield proved(cx, Closure(code, captures), types, args.span)
    return (yield call_lambda(cx, code, captures, args))


def proved(cx: Context, f: Closure, takes: Sequence[LangType], span: Span) -> Walk[None]:
    """A linear lambda is linear in arguments of these types. Errors: DL1101 at the step that is not."""
    assert isinstance(f.code, LambdaCode)
    types = tuple(map(pruned_type, takes))
    captured = tuple([pruned_type(type_of(t)) for t in f.captures])
    key: Any = (f.code, types, captured, tuple(map(known_of, f.captures)), cx.root.definition)
    if key in cx.session.proved:
        return
    body: Body = yield body_of(cx, f, types, span)
    graph = body.graph
    if not cx.root.definition and derivatives_in(graph):
        from difflang.ad.expand_derivatives import expanded

        settle(graph, cx.session.settled)
        graph = expanded(graph)
    try:
        prove(graph, body.linear)
    except NotLinear as fault:
        raise not_linear(fault, f.code.decl) from None
    if not any(isinstance(t.dtype, DTypeVar) for type in (*types, *captured) for t in leaf_types(type)):
        cx.session.proved.add(key)


def derivatives_in(graph: Graph) -> bool:
    """Whether there is a derivative equation in a graph or its regions."""
    seen, todo = {graph}, [graph]
    while todo:
        for eqn in todo.pop().eqns:
            if eqn.op.expand is not None:
                return True
            todo += [g for g in eqn.regions if g not in seen]
            seen.update(eqn.regions)
    return False


class Body(Struct, frozen=True):
    """A lambda by itself: its graph, which of the params are the lambda's own, and the type of what it gives."""

    graph: Graph
    linear: tuple[bool, ...]
    gives: LangType


def body_of(cx: Context, f: Closure, takes: Sequence[LangType], span: Span) -> Walk[Body]:
    """A lambda walked for arguments of these types. Nothing of it stays."""
    assert isinstance(f.code, LambdaCode)
    before, draws = cx.word.term, cx.root.draws
    if cx.loops:
        cx.loops.append(None)
    try:
        with cx.region(span) as builder:
            args = Args(span)
            for type in takes:
                if type != tangent_type(type):
                    raise not_a_vector(f.code.decl, show_type(type), span)
                args.items.append((rebuild(type, [builder.param(t) for t in leaf_types(type)]), span))
            result = yield call_lambda(cx, f.code, f.captures, args)
            drawn = cx.root.draws > draws
    finally:
        cx.word.term, cx.root.draws = before, draws
        if cx.loops:
            cx.loops.pop()
    check_result(f.code, result, drawn)
    params = builder.params
    consts, (graph,) = closed([builder], [leaves(result)], [params], [len(params)])
    return Body(graph, (*[p.type.tangent is not None for p in params], *[False] * len(consts)), type_of(result))


def check_result(code: LambdaCode, result: Term, drawn: bool) -> None:
    """What a linear function gives is a vector, the same each time. Errors: DL1101."""
    if isinstance(result, Poison):
        raise Reported
    place = code.decl.body.span
    if drawn:
        way = "draw before, and let the lambda use what was drawn"
        raise mistake("DL1101", "a linear function does not draw", (place, "this draws"), help=way)
    type = type_of(result)
    if tangent_type(type) != type:
        raise mistake(
            "DL1101", "a linear function gives numbers that can be scaled", (place, f"this is {show_type(type)}")
        )


def told_by_body(
    cx: Context, decl: tree.Fn, terms: dict[str, Term], spans: dict[str, Span], annotations: Annotations
) -> Walk[None]:
    """Sizes of a linear type that only the body of the lambda given for it tells: the types are matched with that."""
    for param in decl.params:
        term, type = terms.get(param.name), param.type
        lone = isinstance(term, Closure) and isinstance(term.code, LambdaCode) and term.code.decl.linear
        if not lone or not isinstance(type, tree.TypeFn) or not type.linear:
            continue
        written = type.param.items if isinstance(type.param, tree.TypeTuple) else (type.param,)
        try:
            takes = [annotations.type(w) for w in written]
        except (DifflangError, Undecided):
            continue
        assert isinstance(term, Closure)
        body: Body = yield body_of(cx, term, takes, spans[param.name])
        if annotations.match(type.result, body.gives):
            terms[param.name] = held_to(type, term, spans[param.name], annotations, param.name)


def prove_made(cx: Context, f: Closure) -> Walk[None]:
    """A linear lambda whose parameters have written types is linear in these, whether anybody applies it or not.

    A size that only its arguments tell is a name of its own while a definition is checked. What says too little is
    proved for numbers, and where it is applied.
    """
    assert isinstance(f.code, LambdaCode)
    decl, bound, checking = f.code.decl, dict(cx.annotations.bound), cx.root.definition
    if all(p.type is None for p in decl.params):
        return (yield prove_of_numbers(cx, f))
    if any(p.type is None for p in decl.params):
        return
    try:
        takes = domain(cx, f.code, f, decl.span, rigid=checking)
    except (DifflangError, Undecided) as error:
        if checking and isinstance(error, DifflangError):
            raise
        return
    try:
        yield proved(cx, f, takes, decl.span)
    except Undecided:
        return
    finally:  # in place: who walks this put back what names mean in the same table
        cx.annotations.bound.clear()
        cx.annotations.bound.update(bound)


def prove_of_numbers(cx: Context, f: Closure) -> Walk[None]:
    """What takes numbers and is not linear in these is not linear at all; what does not take them says nothing."""
    assert isinstance(f.code, LambdaCode)
    decl, session = f.code.decl, cx.session
    reported, errors = len(session.diagnostics), session.errors
    try:
        yield proved(cx, f, [Tensor(literal_dtype(0.0, cx.module.default_float)) for _ in decl.params], decl.span)
    except DifflangError as error:
        if error.diagnostics[0].code == "DL1101":
            raise
    except (Reported, Undecided):
        return
    finally:
        del session.diagnostics[reported:]
        session.errors = errors


def prove_given(cx: Context, terms: Sequence[Term]) -> Walk[None]:
    """Linear lambdas that were given for parameters of linear type are linear in what those say."""
    for term in terms:
        match term:
            case Closure(code=AscribedCode(type=FnType(linear=True) as type), captures=(Closure() as f,)):
                if isinstance(f.code, LambdaCode) and f.code.decl.linear:
                    yield proved(cx, f, type.params, f.code.decl.span)
            case _:
                pass
