"""Custom derivative rules, `rule f(…)`: explicit ones, and those by `implicit`, `linear_solve` or `inverse`.

A rule is elaborated once for each instance of its function, to a graph from arguments and tangents to the value and its
tangent. It is proved to be linear in the tangents. A call is then a `custom_derivative` equation that holds both
graphs.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.application import apply
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import FAILURE_TYPES, AlreadyReported, ElabContext, Session, elaborate
from difflang.elaborate.derivatives import implicit_differentiation, inverse_rules, linear_solve_rules
from difflang.elaborate.derivatives.rule_parameters import RULE_KINDS, bind_parameters, check_same_parameters
from difflang.elaborate.derivatives.tangents import build_tangent, is_tangent_number, tags_of, tangent_numbers_along
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.elaborated_graphs import FunctionInstance, RuleGraphs, RuleInstance
from difflang.elaborate.patterns.sum_types import widen_to_type
from difflang.elaborate.reports.size_claims import with_differing_sizes
from difflang.elaborate.specialization import (
    bind_arguments,
    call_operands,
    call_result,
    function_context,
    instantiate,
    parameter_terms,
    require_conditions,
    with_call_site,
)
from difflang.elaborate.statements.decorators import check_rule_attributes
from difflang.elaborate.statements.desugar_jumps import desugar_function
from difflang.elaborate.statements.printing import no_failure_in_caller, silence_if_suppressed
from difflang.elaborate.terms import (
    Array,
    Closure,
    PoisonTerm,
    Term,
    Tuple,
    leaf_hints,
    leaves,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ops.ad_interface import unread_params, zeros
from difflang.ops.control.custom_derivative import custom_derivative, self_call
from difflang.syntax import tree
from difflang.syntax.tree_queries import body_value
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import default_dtype
from difflang.types.function_code import FnCode, LambdaCode
from difflang.types.join_types import least_common_type
from difflang.types.language_types import (
    KEY_DATA,
    UNIT,
    FnType,
    LangType,
    leaf_types,
    prune_type,
    show_type,
    tangent_type,
)
from difflang.types.module_scope import GlobalName, ModuleScope
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.unify import Unifier


def rule_of(code: FnCode) -> tree.Rule | None:
    """The rule of a function, if it has one."""
    if code.names or code.module.fns.get(code.decl.name) is not code.decl:
        return None
    return code.module.rules.get(code.decl.name)


# ---- Calls


def call_with_rule(
    cx: ElabContext, code: FnCode, rule: tree.Rule, terms: dict[str, Term], annotations: AnnotationResolver, span: Span
) -> Walk[Term]:
    """A call of a function with a rule. Inside that rule it calls the function itself."""
    for leaf in [leaf for t in terms.values() for leaf in leaf_types(type_of(t))]:
        default_dtype(leaf.dtype)
    if rule.by == "linear_solve":
        return (yield linear_solve_rules.call_solver(cx, code, rule, terms, annotations, span))
    if rule.by == "inverse":
        return (yield inverse_rules.call_invertible(cx, code, rule, terms, annotations, span))
    instance: FunctionInstance = yield instantiate(cx, code, (), terms, annotations, span)
    if cx.root.rule is not None and cx.root.rule.instance is instance:
        return call_own_function(cx, code, cx.root.rule, list(terms.values()), span)
    # Only a direct call inside the rule means the function itself; through another one it would never end.
    if instance.graph in cx.session.ruling:
        raise make_error(
            "DL1105",
            f"the rule of `{code}` calls `{code}` through another function",
            (span, "called here"),
            (rule.name_span, "while elaborating its rule"),
            help=f"call `{code}` in the rule itself, and pass its result on",
        )
    try:
        ruled: RuleGraphs = yield rule_graphs(cx.session, code, rule, instance, terms, annotations)
    except DifflangError as error:
        if not rule.span.in_library:  # the rule itself is to be mended
            raise
        raise DifflangError(*[with_call_site(d, code, terms, span, rule) for d in error.diagnostics]) from None
    operands = [*call_operands(cx, instance, list(terms.values()), span)]
    operands += rule_only_globals(cx, instance, ruled.globals)
    types = tuple(r.type for r in ruled.primal.results)
    graphs = (silence_if_suppressed(cx, ruled.primal), ruled.jvp)
    results = cx.builder.append(custom_derivative, tuple(operands), types, graphs, name=code.decl.name, wrt=ruled.wrt)
    return call_result(cx, instance, results, ruled.fails, span)


def rule_only_globals(cx: ElabContext, instance: FunctionInstance, names: Sequence[GlobalName]) -> list[Value]:
    """The top-level values that a rule reads and its function does not."""
    terms = [cx.global_term(name) for name in names[len(instance.globals) :]]
    return [cx.builder.capture(v) for t in terms for v in leaves(t)]


def call_own_function(cx: ElabContext, code: FnCode, rule: RuleInstance, terms: list[Term], span: Span) -> Term:
    """The call of a function in its own rule; it draws the same random numbers as the outer call."""
    if cx.root.derivative_depth:
        message = f"the rule of `{code}` takes a derivative of `{code}`"
        raise make_error("DL1105", message, (span, "here"), help="the rule defines that derivative: write it out")
    # The caller's key repeats the draws of the call being differentiated.
    key = cx.root.key if cx.root.key is cx.root.caller_key else None
    operands = [*call_operands(cx, rule.instance, terms, span, key)]
    operands += rule_only_globals(cx, rule.instance, rule.globals)
    types = tuple(r.type for r in rule.instance.graph.results)
    types += tuple(v.type for v in leaves(cx.no_failure())) if rule.fails and not rule.instance.fails else ()
    results = cx.builder.append(self_call, tuple(operands), types, name=code.decl.name, results=types)
    return call_result(cx, rule.instance, results, rule.fails, span)


# ---- The rule of an instance


def rule_graphs(
    session: Session,
    code: FnCode,
    rule: tree.Rule,
    instance: FunctionInstance,
    terms: dict[str, Term],
    annotations: AnnotationResolver,
) -> Walk[RuleGraphs]:
    """The graphs of an instance and its rule, elaborated once."""
    # Which top-level values the rule reads, and whether it fails, is known after elaboration: repeat until stable.
    if instance.graph in session.derivative_rules:
        return session.derivative_rules[instance.graph]
    assumed = RuleInstance(instance, tuple(n for n, _ in instance.globals), instance.fails)
    session.ruling.append(instance.graph)
    try:
        while True:
            ruled: RuleGraphs = yield elaborate_rule(session, code, rule, assumed, terms, annotations)
            found = RuleInstance(instance, ruled.globals, ruled.fails)
            if found == assumed:
                break
            assumed = found
    finally:
        session.ruling.pop()
    session.derivative_rules[instance.graph] = ruled
    return ruled


def elaborate_rule(
    session: Session,
    code: FnCode,
    rule: tree.Rule,
    instance: RuleInstance,
    terms: dict[str, Term],
    annotations: AnnotationResolver,
) -> Walk[RuleGraphs]:
    cx = function_context(session, code.module, annotations, definition=False)
    cx.root.rule = instance
    types = {name: prune_type(type_of(term)) for name, term in terms.items()}
    params: list[Value] = []
    for name, type in types.items():
        params += [cx.builder.param(t, h) for t, h in zip(leaf_types(type), leaf_hints(type, name), strict=True)]
    rest = iter(params)
    arguments = {name: term_from_leaves(type, [next(rest) for _ in leaf_types(type)]) for name, type in types.items()}
    for name in instance.globals:
        cx.global_term(name)
    if instance.instance.random:
        cx.root.key = cx.root.caller_key = cx.builder.param(KEY_DATA, "key")
    key = [] if cx.root.key is None else [cx.root.key]
    cx.root.is_function = instance.instance.takes_ok_flag  # a rule has the params of its function
    ok_flag = [] if (before := no_failure_in_caller(cx)) is None else [before]
    cx.root.silence_depth += 1  # the primal prints; its derivative must not print again
    errors, fresh = session.errors, cx.failure_word.term
    value, changes, tangents = yield rule_value_and_tangent(cx, code, rule, arguments, instance.instance.type)
    if session.errors > errors:
        raise AlreadyReported
    if cx.root.key is not None and not key:
        message = f"the rule of `{code}` draws random numbers, but `{code}` does not"
        way = "draw outside, and pass in the result"
        raise make_error("DL1104", message, (rule.name_span, ""), (code.decl.name_span, ""), help=way)
    names = tuple(cx.root.globals)
    fails = instance.fails or cx.failure_word.term is not fresh
    theirs = len(instance.instance.globals)
    # Globals of the function first, in its order; then those that only the rule reads.
    read, more = ([v for n in part for v in leaves(cx.root.globals[n])] for part in (names[:theirs], names[theirs:]))
    read = [*read, *key, *ok_flag, *more]
    word = leaves(cx.failure) if fails else []
    pushed = cx.builder.finish(
        [*leaves(value), *word, *changes], params=[*params, *read, *tangents], name=f"{code}.rule"
    )
    resolve_dtypes(pushed, cx.session.finalized_graphs)
    wrt = (*[p.type.tangent is not None for p in params], *[False] * len(read))
    return RuleGraphs(
        add_rule_params(instance.instance, len(params) + len(read), read, fails), pushed, wrt, names, fails
    )


def add_rule_params(instance: FunctionInstance, count: int, read: Sequence[Value], fails: bool) -> Graph:
    """The function's graph with params that only its rule reads, and a failure result if only its rule can fail."""
    graph = instance.graph
    more = unread_params(read[len(read) - (count - len(graph.params)) :]) if count > len(graph.params) else []
    if not more and fails == instance.fails:
        return graph
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in (*graph.params, *more)]
    results = builder.inline(graph, *params[: len(graph.params)])
    word = [] if fails == instance.fails else [zeros(builder, t) for t in FAILURE_TYPES]
    return builder.finish([*results, *word], name=graph.name)


# ---- The value and tangent of a rule


def rule_value_and_tangent(
    cx: ElabContext, code: FnCode, rule: tree.Rule, arguments: dict[str, Term], result: LangType | None
) -> Walk[tuple[Term, list[Value], list[Value]]]:
    """The value, the numbers of its tangent, and the params for the numbers of the arguments' tangents."""
    bind_parameters(cx, code, rule, arguments)
    tangents: list[Term] = []
    params: list[Value] = []
    for name, term in arguments.items():
        type = tangent_type(type_of(term))
        hints = zip(leaf_types(type), leaf_hints(type, name), strict=True)
        made = [cx.builder.param(t, f"d_{h}") for t, h in hints if is_tangent_number(t)]
        tangents.append(build_tangent(type, tags_of(term), map(Array, made)))
        params += made
    if rule.by == "implicit":
        value, change = yield implicit_differentiation.solve_with_tangent(cx, code, rule, arguments, tangents)
    else:
        value, change = yield evaluate_rule(cx, code, rule, arguments, tangents)
    if result is not None and least_common_type(cx.unifier, result, type_of(value)) != result:
        place = body_value(rule.body).span
        found = f"the rule returns {show_type(type_of(value))}"
        message = f"`{code}` returns {show_type(result)}, but its rule has a different type"
        raise make_error("DL1104", message, (place, found), (code.decl.name_span, ""))
    value = value if result is None else widen_to_type(cx.builder, value, result)
    wanted = tangent_type(type_of(value))
    if least_common_type(cx.unifier, wanted, type_of(change)) != wanted:
        message = f"the linear part must return a tangent of the value, {show_type(wanted)}"
        raise make_error("DL1104", message, (body_value(rule.body).span, f"this returns {show_type(type_of(change))}"))
    numbers = tangent_numbers_along(cx, value, widen_to_type(cx.builder, change, wanted), body_value(rule.body).span)
    return value, numbers, params


def evaluate_rule(
    cx: ElabContext, code: FnCode, rule: tree.Rule, arguments: dict[str, Term], tangents: Sequence[Term]
) -> Walk[tuple[Term, Term]]:
    """`(value, linear |dx| …)`: apply the linear part to the tangents of the parameters that have one, in order."""
    result: Term = yield elaborate(cx, desugar_function(rule.body))
    if isinstance(result, PoisonTerm):
        raise AlreadyReported
    place = body_value(rule.body).span
    match result:
        case Tuple(items=(value, Closure(code=how) as change)) if how.is_linear:
            pass
        case _:
            found = f"this is {show_type(type_of(result))}"
            if isinstance(result, Tuple) and len(result.items) == 2 and isinstance(result.items[1], Closure):
                items = getattr(body_value(rule.body), "items", ())
                place, found = items[1].span if items else place, "this function is not marked `linear`"
            message = "a rule must return a value and a linear function"
            raise make_error("DL1104", message, (place, found), help=RULE_SHAPE_HELP)
    moving = [
        (name, t)
        for (name, term), t in zip(arguments.items(), tangents, strict=True)
        if type_of(t) != UNIT or isinstance(term, Closure) or isinstance(type_of(term), FnType)
    ]
    count = len(how.decl.params) if isinstance(how, LambdaCode) else len(moving)
    if count != len(moving):
        names = ", ".join(f"d{n}" for n, _ in moving) or "nothing"
        message = f"the linear part takes one tangent for each parameter of `{code}` that has a tangent: {names}"
        raise make_error("DL1104", message, (place, f"this takes {count}"), (code.decl.name_span, ""))
    return value, (yield apply(cx, change, CallArgs(place, [(t, place) for _, t in moving])))


RULE_SHAPE_HELP = "end with `(value, linear |dx| …)`"


# ---- Definitions


def check_rule(session: Session, module: ModuleScope, rule: tree.Rule) -> Walk[None]:
    """Check a rule definition: its function exists, its shape is right, its linear part is linear."""
    try:
        yield elaborate_rule_alone(session, module, rule)
    except DeferCheck:
        pass
    except DifflangError as error:
        session.report(error)
    except AlreadyReported:
        pass


def elaborate_rule_alone(session: Session, module: ModuleScope, rule: tree.Rule) -> Walk[None]:
    check_rule_attributes(rule)
    decl = module.fns.get(rule.name)
    if decl is None or decl.host:
        way = "a rule must be in the file of its function"
        raise make_error("DL1104", f"there is no function `{rule.name}` in this file", (rule.name_span, ""), help=way)
    if rule.by is not None and rule.by not in RULE_KINDS:
        message = f"there is no kind of rule called `{rule.by}`"
        raise make_error("DL1104", message, (rule.name_span, ""), help=f"the kinds are {', '.join(RULE_KINDS)}")
    if session.checked_definitions.get(decl) is False:
        raise AlreadyReported
    annotations = AnnotationResolver(
        Unifier(), module.records.get, {}, {g.name: g.bound for g in decl.generics}, rigid=True
    )
    cx = function_context(session, module, annotations, definition=True)
    code = FnCode(decl, module)
    check_same_parameters(code, rule)
    if rule.by == "linear_solve":
        linear_solve_rules.solver_roles(code, rule)
    arguments = parameter_terms(cx, decl)
    with cx.child_scope():
        bind_arguments(cx, arguments)
        yield require_conditions(cx, decl)
    if rule.by == "linear_solve":
        bind_parameters(cx, code, rule, arguments)
        return
    result = cx.annotations.type(decl.result) if decl.result is not None else None
    how = inverse_rules.check_inverse_rule if rule.by == "inverse" else rule_value_and_tangent
    try:
        yield how(cx, code, rule, arguments, result)
    except DifflangError as error:
        raise with_differing_sizes(cx.unifier, error) from None
