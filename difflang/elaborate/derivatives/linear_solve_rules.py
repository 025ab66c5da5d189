"""Linear solver rules, `rule cg(A, b, tol) by linear_solve A`: derivatives of a function that solves A x = b.

A call is an equation that holds the solver for A and for its transpose, as in JAX's `custom_linear_solve`. See
`ops.control.custom_linear_solve`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from msgspec import Struct

from difflang.base.source import Span
from difflang.elaborate.context import FAILURE_TYPES, FAILURE_WORD, ElabContext
from difflang.elaborate.derivatives import linear_functions
from difflang.elaborate.derivatives.tangents import is_tangent_number, number_types, tag_count, tags_of
from difflang.elaborate.elaborated_graphs import FunctionInstance
from difflang.elaborate.specialization import call_operands, call_result, instantiate
from difflang.elaborate.statements.printing import silence_if_suppressed
from difflang.elaborate.terms import Closure, Term, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ops.ad_interface import zeros
from difflang.ops.arrays.axis_reductions import any_broadcast_like
from difflang.ops.control.custom_linear_solve import custom_linear_solve
from difflang.ops.control.print_effect import without_prints
from difflang.syntax import tree
from difflang.types.annotations import AnnotationResolver
from difflang.types.function_code import FnCode, LinearMapCode
from difflang.types.language_types import leaf_types, prune_type, show_type, tangent_type
from difflang.types.type_errors import make_error


class SolverRoles(Struct, frozen=True):
    """The parameters of a solver that are the map and the right-hand side."""

    map: str
    rhs: str


def solver_roles(code: FnCode, rule: tree.Rule) -> SolverRoles:
    """The function's parameters that a rule names, `A` or `(A, b)`. Errors: DL1104 where they do not fit.

    If the rule names only the map, the right-hand side is the one parameter of the type that the map takes.
    """
    items = rule.body.items if isinstance(rule.body, tree.TupleExpr) else (rule.body,)
    theirs = {m.name: p for m, p in zip(rule.params, code.decl.params, strict=False)}
    named = [theirs.get(e.id) if isinstance(e, tree.Name) else None for e in items]
    if None in named or len(named) > 2 or len(rule.params) != len(code.decl.params):
        names = [p.name for p in rule.params] or ["A", "b"]
        message = "a rule by linear_solve must name the parameter that is the linear map, and the right-hand side"
        way = f"`rule {code}({', '.join(names)}) by linear_solve ({', '.join(names[:2])})`"
        raise make_error("DL1104", message, (rule.body.span, ""), (code.decl.name_span, ""), help=way)
    map, *rest = [p for p in named if p is not None]
    if not isinstance(map.type, tree.TypeFn) or not map.type.linear:
        message = f"`{map.name}` of `{code}` is not a linear function"
        raise make_error("DL1104", message, (rule.body.span, ""), (map.span, ""), help="declare it `V -o V`")
    space = map.type.param.span.text
    alike = rest or [p for p in code.decl.params if p.type is not None and p.type.span.text == space]
    if len(alike) != 1:
        labels = [(p.span, f"this is {space}") for p in alike] or [(map.span, f"`{map.name}` takes {space}")]
        message = "it is not clear which parameter is the right-hand side"
        way = f"name both: `by linear_solve ({items[0].span.text}, b)`"
        raise make_error("DL1104", message, (rule.body.span, ""), *labels, help=way)
    return SolverRoles(map.name, alike[0].name)


def call_solver(
    cx: ElabContext, code: FnCode, rule: tree.Rule, terms: dict[str, Term], annotations: AnnotationResolver, span: Span
) -> Walk[Term]:
    """The `custom_linear_solve` equation of a solver call."""
    roles = solver_roles(code, rule)
    name, rhs = roles.map, terms[roles.rhs]
    back = yield linear_functions.transpose_function(cx, terms[name], span, tags_of(rhs))
    forth = linear_functions.transpose_map(cx, back, span)
    check_same_space(code, forth, rhs, span)
    solve: FunctionInstance = yield instantiate(cx, code, (), {**terms, name: forth}, annotations, span)
    adjoint: FunctionInstance = yield instantiate(cx, code, (), {**terms, name: back}, annotations, span)
    given = {**terms, name: forth}
    operands = call_operands(cx, solve, list(given.values()), span)
    place, kinds = operand_offset(given, roles.rhs), [is_tangent_number(t) for t in leaf_types(type_of(rhs))]
    at = [place + i for i, number in enumerate(kinds) if number]
    fails = solve.fails or adjoint.fails
    assert isinstance(forth, Closure) and isinstance(forth.code, LinearMapCode)
    apply = map_as_graph(forth.code, solve.graph, operand_offset(given, name), at)
    solver, other = [move_params_last(drop_tag_results(i, kinds, fails), at) for i in (solve, adjoint)]
    regions = (silence_if_suppressed(cx, solver), without_prints(other), without_prints(move_params_last(apply, at)))
    types = tuple(r.type for r in regions[0].results)
    order = [*[v for i, v in enumerate(operands) if i not in at], *[operands[i] for i in at]]
    found = cx.builder.append(custom_linear_solve, tuple(order), types, regions, consts=len(order) - len(at))
    numbers, tags = iter(found), iter(tags_of(rhs))
    results = [next(numbers if number else tags) for number in kinds]
    return call_result(cx, solve, (*results, *numbers), fails, span)


def check_same_space(code: FnCode, map: Term, rhs: Term, span: Span) -> None:
    """Check that the map goes from the space of the right-hand side into itself. Errors: DL1104."""
    assert isinstance(map, Closure) and isinstance(map.code, LinearMapCode)
    takes, gives, found = map.code.domain, map.code.gives, prune_type(type_of(rhs))
    if not found == takes == gives == tangent_type(takes):
        message = f"`{code}` must solve with a linear map from a space to itself, and a right-hand side in that space"
        label = f"the map is {show_type(takes)} -o {show_type(gives)}, but the right-hand side is {show_type(found)}"
        raise make_error("DL1104", message, (span, label))


def operand_offset(terms: dict[str, Term], name: str) -> int:
    """The number of operands before those of an argument."""
    place = 0
    for other, term in terms.items():
        if other == name:
            return place
        place += len(leaves(term))
    raise AssertionError(name)


def drop_tag_results(instance: FunctionInstance, kinds: Sequence[bool], fails: bool) -> Graph:
    """An instance without its result tags, which are those of the right-hand side, and with a failure if `fails`."""
    graph = instance.graph
    kept = graph.with_results([r for i, r in enumerate(graph.results) if i >= len(kinds) or kinds[i]])
    if not fails:
        return kept
    builder = Builder()
    outs = builder.inline(kept, *[builder.param(p.type, p.hint) for p in graph.params])
    if not instance.fails:
        return builder.finish([*outs, *[zeros(builder, t) for t in FAILURE_TYPES]], name=graph.name)
    numbers, word = outs[: -len(FAILURE_TYPES)], outs[-len(FAILURE_TYPES) :]
    # Derivatives are solutions too, and their failures are not reported: a failed solve gives NaN.
    well = builder.one("eq", word[0], builder.const(0, FAILURE_WORD))
    numbers = [builder.one("select", any_broadcast_like(well, x), x, builder.const(nan, x.type)) for x in numbers]
    return builder.finish([*numbers, *word], name=graph.name)


def move_params_last(graph: Graph, at: Sequence[int]) -> Graph:
    """The graph with the params at these positions, the numbers of the right-hand side, moved last."""
    params = (*[p for i, p in enumerate(graph.params) if i not in at], *[graph.params[i] for i in at])
    return Graph(params, graph.eqns, graph.results, graph.name)


def map_as_graph(code: LinearMapCode, like: Graph, map_at: int, at: Sequence[int]) -> Graph:
    """The map as a graph with its solver's params, where the unknown replaces the right-hand side."""
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in like.params]
    first = map_at + tag_count(code.domain) + tag_count(code.gives)
    residuals = len(code.graph.params) - len(number_types(code.domain))
    given = [*params[first : first + residuals], *[params[i] for i in at]]
    return builder.finish(builder.inline(code.graph, *given), name=code.graph.name)
