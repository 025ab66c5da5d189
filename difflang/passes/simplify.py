"""Simplify equations by the local rewrite rules in `passes/rules`, until none applies."""

from __future__ import annotations

from functools import cache

from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import COMPLEXES
from difflang.passes.rules.affine_indices import AFFINE_INDEX_RULES
from difflang.passes.rules.algebraic_identities import ALGEBRAIC_IDENTITIES
from difflang.passes.rules.control_flow_rules import CONTROL_FLOW_RULES
from difflang.passes.rules.reshapes_and_constants import RESHAPE_AND_CONSTANT_RULES
from difflang.passes.rules.rewriter import OpPattern, OpRules, ProgramPairRewrite, Rewriter, pattern_from_graph
from difflang.passes.rules.stored_windows import STORED_WINDOW_RULES
from difflang.passes.rules.value_properties import VALUE_PROPERTY_RULES


def simplify(graph: Graph) -> Graph:
    """Rewrite each equation by the first rule that matches, until none does. Dead equations are left to dce.

    A rule never changes a bit of a result (all NaNs count as equal): so there is none for x * 0, x - x or x + 0.0.
    Cost: linear; a graph that is used many times is visited once.
    """
    return Simplifier().graph(graph)


class Simplifier:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}
        self.rules = rules_by_op()

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        to: dict[Value, Value] = {}
        rewriter = Rewriter(self.rules)
        for old in graph.eqns:
            eqn = old.replace_operands(to) if to else old
            if eqn.regions:
                eqn = eqn.with_regions(map(self.graph, eqn.regions))
            results = rewriter.add(eqn)
            if results is not eqn.results:
                to.update((a, b) for a, b in zip(eqn.results, results, strict=True) if a is not b)
        return self.done.setdefault(graph, graph.with_eqns(rewriter.eqns).replace_results(to))


GUARDED_RULES = (
    *(*RESHAPE_AND_CONSTANT_RULES, *CONTROL_FLOW_RULES, *VALUE_PROPERTY_RULES, *AFFINE_INDEX_RULES),
    *STORED_WINDOW_RULES,
)


@cache
def rules_by_op() -> dict[str, OpRules]:
    """Every rule, by the op of the equation that it rewrites."""
    table: dict[str, OpRules] = {}
    for guarded in GUARDED_RULES:
        for name in guarded.ops:
            table.setdefault(name, OpRules()).add(guarded.rewrite, guarded.operand_guard)
    for pair in ALGEBRAIC_IDENTITIES:
        root = pattern_from_graph(pair.lhs)
        assert isinstance(root, OpPattern)
        rewrite = ProgramPairRewrite(root, pair.rhs, any(d in COMPLEXES for d in pair.dtypes))
        table.setdefault(rewrite.root.name, OpRules()).add(rewrite, rewrite.operand_guard)
    return table
