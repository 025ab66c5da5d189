"""The IR verifier: checks that a graph is well formed. It runs after every pass where `DIFFLANG_VERIFY=1` is set."""

from __future__ import annotations

import os

from difflang.base.diagnostics import InternalError
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS, TypeMismatch, result_types
from difflang.ir.structural_equality import is_valid_attr
from difflang.ir.text_printer import eqn_text

ENABLED = os.environ.get("DIFFLANG_VERIFY") == "1"

# A type rule may raise any of these when attributes or operands are not at all what it expects.
TYPE_RULE_ERRORS = (TypeMismatch, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)


class MalformedGraph(Exception):
    """A graph breaks a rule of the IR. `eqn` is the culprit, or None if it is the params or the results."""

    def __init__(self, message: str, graph: Graph, eqn: Eqn | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.graph = graph
        self.eqn = eqn


def verify_if_enabled(graph: Graph, after: str) -> Graph:
    """The graph itself, verified if `DIFFLANG_VERIFY` is set. Passes return their graphs through this."""
    return verify(graph, after) if ENABLED else graph


def verify(graph: Graph, after: str = "") -> Graph:
    """The graph itself, if types follow from the ops' rules, values are defined once before use, regions are closed.

    Errors: InternalError that names the pass, the op and the equation.
    """
    try:
        check_graph(graph)
    except MalformedGraph as fault:
        name = f" `{fault.graph.name}`" if fault.graph.name else ""
        pass_name = f" after {after}" if after else ""
        where = f"\n  in: {eqn_text(fault.eqn)}\n  at: {fault.eqn.span}" if fault.eqn else ""
        raise InternalError(f"malformed graph{name}{pass_name}: {fault.message}{where}") from fault
    return graph


def check_graph(graph: Graph) -> None:
    """Check a graph and those inside it. Errors: MalformedGraph."""
    # Shared regions are checked once, so the cost is linear in the number of distinct graphs.
    checked: set[Graph] = set()

    def visit(graph: Graph) -> None:
        checked.add(graph)
        defined: set[Value] = set()
        for param in graph.params:
            define_value(param, graph, defined)
        for eqn in graph.eqns:
            for region in eqn.regions:
                if region not in checked:
                    visit(region)
            check_eqn(eqn, graph, defined)
        for result in graph.results:
            if result not in defined:
                raise MalformedGraph(
                    f"gives a {result.type} ({result.hint or 'unnamed'}) that it does not define", graph
                )

    visit(graph)


def define_value(value: Value, graph: Graph, defined: set[Value], eqn: Eqn | None = None) -> None:
    if value in defined:
        raise MalformedGraph(f"a {value.type} ({value.hint or 'unnamed'}) is defined twice", graph, eqn)
    defined.add(value)


def check_eqn(eqn: Eqn, graph: Graph, defined: set[Value]) -> None:
    for i, operand in enumerate(eqn.operands):
        if operand not in defined:
            raise MalformedGraph(f"operand {i} of {eqn.op} is not defined above it in its graph", graph, eqn)
    if OPS.get(eqn.op.name) is not eqn.op:
        raise MalformedGraph(f"no op {eqn.op} is declared", graph, eqn)
    for name, value in eqn.attrs.items():
        if not is_valid_attr(value):
            raise MalformedGraph(f"{value!r} cannot be the attribute {name} of {eqn.op}", graph, eqn)
    check_types(eqn, graph)
    for result in eqn.results:
        define_value(result, graph, defined, eqn)


def check_types(eqn: Eqn, graph: Graph) -> None:
    try:
        types = result_types(eqn.op, [v.type for v in eqn.operands], eqn.regions, eqn.attrs)
    except TYPE_RULE_ERRORS as fault:
        raise MalformedGraph(f"{eqn.op} refuses its operands: {fault}", graph, eqn) from fault
    if types != tuple([r.type for r in eqn.results]):
        have = ", ".join(str(r.type) for r in eqn.results)
        raise MalformedGraph(f"{eqn.op} gives ({', '.join(map(str, types))}), not ({have})", graph, eqn)
