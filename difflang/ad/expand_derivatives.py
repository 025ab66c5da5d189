"""Expands the derivative equations of a graph, innermost first, until none is left.

Nesting therefore needs no tags: when an outer derivative is taken, the inner one is ordinary equations.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ad.derivative_cache import DerivativeCache
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ops.loop.reversible_loop import is_call
from difflang.passes.dce import dce


def differentiate(graph: Graph) -> Graph:
    """The same function without derivative equations: primal, tangent and transposed equations stand in their place.

    A graph without derivative equations is given back as it is. Regions that several equations share stay shared.
    Rules have done their work then: what has one is an ordinary call.
    Cost: linear in the equations at each level of nesting.
    """
    return drop_custom_rules(expand_derivatives(graph))


def expand_derivatives(graph: Graph) -> Graph:
    """The same, but what has a rule keeps it: to be differentiated further."""
    return DerivativeExpansion().graph(graph)


def drop_custom_rules(graph: Graph) -> Graph:
    """The same function for good: equations that differ from others in their derivative alone are those others.

    What can be undone stays so in steps that a loop is to undo.
    """
    order, _ = graphs_postorder(graph)
    if not any([e.op.without_derivative for inner in order for e in inner.eqns]):
        return graph
    undone = reversible_steps(order)
    done: dict[tuple[Graph, bool], Graph] = {}

    def lower_eqn(eqn: Eqn, within: bool) -> Eqn:
        if eqn.regions:
            eqn = eqn.with_regions([done[g, g in undone and runs_in_reverse(eqn, within)] for g in eqn.regions])
        return eqn if eqn.op.without_derivative is None else eqn.op.without_derivative(eqn, within)

    for inner in order:
        for within in (False, True) if inner in undone else (False,):
            done[inner, within] = inner.with_eqns([lower_eqn(e, within) for e in inner.eqns])
    return done[graph, False]


def reversible_steps(graphs: Sequence[Graph]) -> set[Graph]:
    """The steps that loops are to undo, and the functions that these call."""
    found: set[Graph] = set()
    todo = [e.regions[0] for g in graphs for e in g.eqns if runs_in_reverse(e, False)]
    while todo:
        graph = todo.pop()
        if graph not in found:
            found.add(graph)
            todo += [e.regions[0] for e in graph.eqns if runs_in_reverse(e, True)]
    return found


def runs_in_reverse(eqn: Eqn, within: bool) -> bool:
    """Whether what the equation runs is to be undone; `within` says whether itself is."""
    return bool(eqn.attrs.get("reversible")) or (within and is_call(eqn))


class DerivativeExpansion:
    """One run over a graph and its regions; `often` if what it linearizes is pushed or pulled through many times."""

    def __init__(self, *, reused: bool = False) -> None:
        self.ad = DerivativeCache(often=reused)
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph not in self.done:
            self.done[graph] = self.expanded(graph)
        return self.done[graph]

    def expand_region(self, eqn: Eqn, region: Graph) -> Graph:
        """A region without derivative equations; one that is differentiated again brings no dead code along."""
        plain = self.graph(region)
        return dce(plain) if eqn.op.expand and plain is not region else plain

    def expanded(self, graph: Graph) -> Graph:
        eqns = [e.with_regions([self.expand_region(e, r) for r in e.regions]) if e.regions else e for e in graph.eqns]
        if not any(e.op.expand for e in eqns):
            return graph if all(a is b for a, b in zip(eqns, graph.eqns, strict=True)) else graph.with_eqns(eqns)
        builder = Builder()
        env = {p: builder.param(p.type, p.hint) for p in graph.params}
        for eqn in eqns:
            operands = tuple([env[v] for v in eqn.operands])
            if eqn.op.expand is None:
                results = builder.copy(eqn, operands)
            else:
                builder.span = eqn.span
                results = eqn.op.expand(self.ad, builder, eqn, operands)
            env.update(zip(eqn.results, results, strict=True))
        results = [env[r] for r in graph.results]
        return builder.finish(results, name=graph.name)
