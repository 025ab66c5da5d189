"""`rule cg(A, b, tol) by linear_solve A`: a function that solves A x = b for a linear map A is differentiated by that.

A call is an equation that holds the solver for A and the same solver for the transposed map; see `ops.solved`.
"""

from __future__ import annotations

from dataclasses import dataclass

from difflang.base.source import Span
from difflang.check.annotations import Annotations
from difflang.check.closures import FnCode, MapCode
from difflang.check.reports import mistake
from difflang.check.types import leaf_types, pruned_type, show_type, tangent_type
from difflang.elaborate import linear
from difflang.elaborate.context import FAILURE, Context, Instance
from difflang.elaborate.functions import called, instantiate, operands_of
from difflang.elaborate.terms import Closure, Term, leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.op import OPS
from difflang.ops.regions import zeros
from difflang.syntax import tree


@dataclass(frozen=True, slots=True)
class Roles:
    """Which parameters of a solver are the map and the right-hand side."""

    map: str
    rhs: str


def check(code: FnCode, rule: tree.Rule) -> str:
    """The function's parameter that a rule names as its map. Errors: DL1104."""
    names = [p.name for p in rule.params]
    if not isinstance(rule.body, tree.Name) or rule.body.id not in names or len(names) != len(code.decl.params):
        message = "a rule by linear_solve names the parameter that is the linear map"
        way = f"`rule {code}({', '.join(names) or 'A, b'}) by linear_solve {names[0] if names else 'A'}`"
        raise mistake("DL1104", message, (rule.body.span, ""), (code.decl.name_span, ""), help=way)
    param = code.decl.params[names.index(rule.body.id)]
    if not isinstance(param.type, tree.TypeFn) or not param.type.linear:
        message = f"`{param.name}` of `{code}` is not a linear function"
        raise mistake("DL1104", message, (rule.body.span, ""), (param.span, ""), help="declare it `V -o V`")
    return param.name


def call(
    cx: Context, code: FnCode, rule: tree.Rule, terms: dict[str, Term], annotations: Annotations, span: Span
) -> Walk[Term]:
    """The equation of a solver applied."""
    name = check(code, rule)
    back = yield linear.transpose(cx, terms[name], span)
    forth = linear.transposed(cx, back, span)
    roles = Roles(name, right_hand_side(code, name, forth, terms, span))
    solve: Instance = yield instantiate(cx, code, (), {**terms, name: forth}, annotations, span)
    turned: Instance = yield instantiate(cx, code, (), {**terms, name: back}, annotations, span)
    if solve.random:
        raise mistake("DL0801", "a rule of a function that draws is not there yet", (rule.name_span, ""))
    given = {**terms, name: forth}
    operands = operands_of(cx, code, solve, list(given.values()), span)
    at = place_of(given, roles.rhs)
    count = len(leaves(given[roles.rhs]))
    fails = solve.fails or turned.fails
    assert isinstance(forth, Closure) and isinstance(forth.code, MapCode)
    apply = applied(forth.code, solve.graph, place_of(given, name), at, count)
    regions = (ordered(solve, at, count, fails), ordered(turned, at, count, fails), ordered_graph(apply, at, count, 0))
    types = tuple(r.type for r in regions[0].results)
    order = [*operands[:at], *operands[at + count :], *operands[at : at + count]]
    results = cx.builder.append(OPS["solved"], tuple(order), types, regions, consts=len(order) - count)
    return called(cx, solve, results, fails, span)


def right_hand_side(code: FnCode, name: str, map: Term, terms: dict[str, Term], span: Span) -> str:
    """The first other parameter of the type that the map takes. Errors: DL1104."""
    assert isinstance(map, Closure) and isinstance(map.code, MapCode)
    takes, gives = map.code.takes, map.code.gives
    for other, term in terms.items():
        if other != name and pruned_type(type_of(term)) == takes == gives == tangent_type(takes):
            return other
    message = f"`{code}` solves with a linear map of a space into itself, for a right-hand side in it"
    raise mistake("DL1104", message, (span, f"the map is {show_type(takes)} -o {show_type(gives)}"))


def place_of(terms: dict[str, Term], name: str) -> int:
    """How many operands come before those of an argument."""
    place = 0
    for other, term in terms.items():
        if other == name:
            return place
        place += len(leaves(term))
    raise AssertionError(name)


def ordered(instance: Instance, at: int, count: int, fails: bool) -> Graph:
    """An instance with the right-hand side last, and a failure among its results if the other solver has one."""
    return ordered_graph(instance.graph, at, count, 3 if fails and not instance.fails else 0)


def ordered_graph(graph: Graph, at: int, count: int, words: int) -> Graph:
    params = (*graph.params[:at], *graph.params[at + count :], *graph.params[at : at + count])
    if not words:
        return Graph(params, graph.eqns, graph.results, graph.name)
    builder = Builder()
    env = {p: builder.param(p.type, p.hint) for p in params}
    results = builder.inline(graph, *[env[p] for p in graph.params])
    return builder.finish([*results, *[zeros(builder, t) for t in FAILURE]], name=graph.name)


def applied(code: MapCode, like: Graph, map_at: int, rhs_at: int, count: int) -> Graph:
    """The map itself as a graph of what its solver takes, the unknown in place of the right-hand side."""
    builder = Builder()
    params = [builder.param(p.type, p.hint) for p in like.params]
    residuals = len(code.graph.params) - len(leaf_types(code.takes))
    given = [*params[map_at : map_at + residuals], *params[rhs_at : rhs_at + count]]
    return builder.finish(builder.inline(code.graph, *given), name=code.graph.name)
