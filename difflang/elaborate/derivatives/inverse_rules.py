"""Invertible functions, `rule step(q, dt) by inverse |q| step(q, -dt)`: reverse mode recomputes states by the inverse.

The lambda's parameter has the name of the state that it returns; it takes the function's value in its place. A tuple
names several. `by inverse g` is short for `|x| g(x, …)` of the first parameter, with the others as they are.

The derivative of such a function is that of its body. Only reverse mode of loops uses the inverse: see
`ops.loop.reversible_loop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from difflang.base.source import Span
from difflang.elaborate.calls.application import apply
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext, Session, elaborate
from difflang.elaborate.derivatives.rule_parameters import bind_parameters, dim_argument
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.elaborated_graphs import FunctionInstance, InvertibleFunction
from difflang.elaborate.runtime_checks import no_failure_value
from difflang.elaborate.specialization import call_operands, call_result, emit_call, function_context, instantiate
from difflang.elaborate.statements.printing import no_failure_in_caller, silence_if_suppressed
from difflang.elaborate.terms import (
    Closure,
    PoisonTerm,
    Term,
    Tuple,
    leaf_hints,
    leaves,
    term_from_leaves,
    type_of,
    with_leaves,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import unread_params
from difflang.ops.loop.invertible_op import invertible
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode, LambdaCode
from difflang.types.language_types import LangType, TupleType, leaf_types, prune_type, show_type
from difflang.types.type_errors import make_error


def call_invertible(
    cx: ElabContext, code: FnCode, rule: tree.Rule, terms: dict[str, Term], annotations: AnnotationResolver, span: Span
) -> Walk[Term]:
    """A call of an invertible function. Inside its inverse it is an ordinary call."""
    instance: FunctionInstance = yield instantiate(cx, code, (), terms, annotations, span)
    given = list(terms.values())
    types = {name: prune_type(type_of(term)) for name, term in terms.items()}
    if instance.graph in cx.session.ruling or state_type(types, inverse_state_params(code, rule)) != prune_type(
        instance.type
    ):
        return emit_call(cx, code, instance, given, span)
    made: InvertibleFunction = yield invertible_graphs(cx.session, code, rule, instance, types, annotations)
    operands = [*call_operands(cx, instance, given, span)]
    extra = [cx.global_term(name) for name in made.globals[len(instance.globals) :]]
    operands += [cx.builder.capture(v) for term in extra for v in leaves(term)]
    ordered = tuple([operands[i] for i in made.order])
    results = tuple(r.type for r in made.step.results)
    graphs = (silence_if_suppressed(cx, made.step), made.inverse)
    found = cx.builder.append(invertible, ordered, results, graphs, state=made.state, name=code.decl.name)
    return call_result(cx, instance, found, instance.fails, span)


def state_type(types: dict[str, LangType], state: Sequence[str]) -> LangType:
    """The type of the state, which the inverse takes and returns: its parameter's type, or a tuple of several."""
    found = [types[name] for name in state if name in types]
    return found[0] if len(state) == 1 and found else TupleType(tuple(found))


def inverse_state_params(code: FnCode, rule: tree.Rule) -> tuple[str, ...]:
    """The function's parameters that the inverse recovers. Errors: DL1104."""
    theirs = {m.name: p.name for m, p in zip(rule.params, code.decl.params, strict=False)}
    body = rule.body
    if not isinstance(body, tree.Lambda):
        return tuple([p.name for p in code.decl.params[:1]])
    pattern = body.params[0].pattern if len(body.params) == 1 and not body.linear else None
    items = pattern.items if isinstance(pattern, tree.TuplePattern) else (pattern,)
    names = [theirs.get(p.name) if isinstance(p, tree.NamePattern) else None for p in items]
    if None in names or len(set(names)) < len(names):
        others = [p.name for p in code.decl.params]
        message = f"the inverse of `{code}` takes the result under the name of the parameter that it recovers"
        way = f"`rule {code}({', '.join(others)}) by inverse |{', '.join(others[:1])}| …`"
        raise make_error("DL1104", message, (body.span, ""), (code.decl.name_span, ""), help=way)
    return tuple([n for n in names if n is not None])


# ---- The inverse of an instance


def invertible_graphs(
    session: Session,
    code: FnCode,
    rule: tree.Rule,
    instance: FunctionInstance,
    types: dict[str, LangType],
    annotations: AnnotationResolver,
) -> Walk[InvertibleFunction]:
    """The graphs of an instance and its inverse, elaborated once."""
    if instance.graph in session.inverses:
        return session.inverses[instance.graph]
    # The backward run has no way to repeat the draws.
    if instance.random:
        message = f"`{code}` draws random numbers, and its inverse would draw different ones"
        raise make_error("DL1104", message, (rule.name_span, ""), help="draw outside, and pass in the result")
    session.ruling.append(instance.graph)
    try:
        cx = function_context(session, code.module, annotations, definition=False)
        # The forward run prints; the inverse must not print again.
        cx.root.silence_depth += 1
        errors = session.errors
        for name, _ in instance.globals:
            cx.global_term(name)
        cx.root.is_function = instance.takes_ok_flag  # an inverse has the params of its function
        ok_flag = [] if (before_call := no_failure_in_caller(cx)) is None else [before_call]
        params = {
            name: [cx.builder.param(t, h) for t, h in zip(leaf_types(type), leaf_hints(type, name), strict=True)]
            for name, type in types.items()
        }
        before: Term = yield apply_inverse(
            cx, code, rule, {n: term_from_leaves(t, params[n]) for n, t in types.items()}
        )
        if session.errors > errors:
            raise AlreadyReported
    finally:
        session.ruling.pop()
    names = tuple(cx.root.globals)
    theirs = len(instance.globals)
    read, more = ([v for n in part for v in leaves(cx.root.globals[n])] for part in (names[:theirs], names[theirs:]))
    read = [*read, *ok_flag, *more]
    state = inverse_state_params(code, rule)
    places, start = dict[str, range](), 0
    for name, values in params.items():
        places[name] = range(start, start + len(values))
        start += len(values)
    every = [*[v for values in params.values() for v in values], *read]
    # The op expects the state first, whatever its position in the signature.
    first = [i for name in state for i in places[name]]
    order = (*first, *[i for i in range(len(every)) if i not in set(first)])
    back = cx.builder.finish(leaves(before), params=[every[i] for i in order], name=f"{code}.inverse")
    resolve_dtypes(back, session.finalized_graphs)
    made = InvertibleFunction(reorder_params(instance.graph, every, order), back, order, len(first), names)
    session.inverses[instance.graph] = made
    return made


def reorder_params(graph: Graph, every: Sequence[Value], order: Sequence[int]) -> Graph:
    """The function's graph with its params permuted, and params that only its inverse reads added."""
    params = [*graph.params, *unread_params(every[len(graph.params) :])]
    return Graph(tuple([params[i] for i in order]), graph.eqns, graph.results, graph.name)


def apply_inverse(cx: ElabContext, code: FnCode, rule: tree.Rule, arguments: dict[str, Term]) -> Walk[Term]:
    """Apply the inverse to the function's value, which replaces the state among the arguments.

    Errors: DL1104 if it draws, or if its result or the function's does not have the type of the state.
    """
    bind_parameters(cx, code, rule, arguments)
    state, span = inverse_state_params(code, rule), rule.body.span
    taken = [arguments[name] for name in state]
    value = taken[0] if len(taken) == 1 else Tuple(tuple(taken))
    fresh = cx.failure_word.term
    inverse: Term = yield elaborate(cx, rule.body)
    given = [(value, span)]
    if not (isinstance(inverse, Closure) and isinstance(inverse.code, LambdaCode)):
        given += [
            (arguments[p.name] if p.name in arguments else dim_argument(cx, p, span), span)
            for p in code.decl.params[1:]
        ]
    found: Term = yield apply(cx, inverse, CallArgs(span, given))
    if isinstance(found, PoisonTerm):
        raise AlreadyReported
    if cx.root.key is not None:
        way = "draw outside, and pass in the result"
        raise make_error("DL1104", f"the inverse of `{code}` draws random numbers", (span, ""), help=way)
    wanted = prune_type(type_of(value))
    if not cx.unifier.same(type_of(found), wanted):
        label = f"this returns {show_type(type_of(found))}, but `{', '.join(state)}` is {show_type(wanted)}"
        raise make_error("DL1104", f"the inverse of `{code}` must return the argument of `{code}`", (span, label))
    return found if cx.failure_word.term is fresh else nan_after_failure(cx, found, span)


def nan_after_failure(cx: ElabContext, term: Term, span: Span) -> Term:
    """The value, or NaN if a check of the inverse failed: a failure in reverse mode cannot be reported."""
    well = no_failure_value(cx, cx.failure, span)

    def nan_if_failed(value: Value) -> Value:
        if not isinstance(value.type, Tensor) or value.type.tangent is None:
            return value
        shape = value.type.shape
        truth = cx.emit("broadcast", span, well, shape=shape, axes=()) if shape else well
        return cx.emit("select", span, truth, value, cx.emit("const", span, value=nan, type=value.type))

    return with_leaves(term, iter([nan_if_failed(v) for v in leaves(term)]))


def check_inverse_rule(
    cx: ElabContext, code: FnCode, rule: tree.Rule, arguments: dict[str, Term], result: LangType | None
) -> Walk[None]:
    """Check a rule definition: the inverse maps the function's result type to its state type. Errors: DL1104."""
    types = {name: prune_type(type_of(term)) for name, term in arguments.items()}
    wanted, state = state_type(types, inverse_state_params(code, rule)), ", ".join(inverse_state_params(code, rule))
    if result is not None and not cx.unifier.same(result, wanted):
        found = f"`{code}` returns {show_type(result)}"
        message = f"the result of an invertible function must have the type of its argument: {found}"
        label = f"`{state}` is {show_type(wanted)}"
        raise make_error("DL1104", message, (rule.body.span, label), (code.decl.name_span, ""))
    yield apply_inverse(cx, code, rule, arguments)
