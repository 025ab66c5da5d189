"""Expands the derivative equations of a graph (`grad`, `jvp`, `vjp`, ...), innermost first, until none is left.

Nested derivatives therefore need no tags: the inner one is ordinary equations before the outer one is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ad.derivative_cache import DerivativeCache
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.op import DerivativeOperator
from difflang.ops.loop.reversible_loop import is_call
from difflang.passes.dce import dce


def differentiate(graph: Graph) -> Graph:
    """The same function with every derivative equation replaced by primal, tangent and transposed equations.

    A graph without derivative equations is returned as it is. Regions that several equations share stay shared.
    A function with a derivative rule of its own becomes an ordinary call.
    Cost: linear in the equations at each level of nesting.
    """
    return drop_custom_rules(expand_derivatives(graph))


def expand_derivatives(graph: Graph) -> Graph:
    """The same, but functions keep their own derivative rules, for further differentiation."""
    return DerivativeExpansion().graph(graph)


def custom_rules(graph: Graph) -> tuple[str, ...]:
    """The functions of a graph, by name, that `drop_custom_rules` takes their own derivative from."""
    eqns = [eqn for inner in graphs_postorder(graph)[0] for eqn in inner.eqns if eqn.op.without_derivative is not None]
    return tuple(dict.fromkeys([name for eqn in eqns if (name := eqn.op.declared_name(eqn)) is not None]))


def drop_custom_rules(graph: Graph) -> Graph:
    """Replace each equation that differs from another one in its derivative alone by that other one.

    Inside the steps of reversible loops, equations with an inverse keep it.
    """
    order, _ = graphs_postorder(graph)
    if not any([e.op.without_derivative for inner in order for e in inner.eqns]):
        return graph
    reversible = reversible_steps(order)
    # One graph may serve both as a reversible step and as an ordinary function, so it is rewritten for each use.
    done: dict[tuple[Graph, bool], Graph] = {}

    def lower_eqn(eqn: Eqn, within: bool) -> Eqn:
        if eqn.regions:
            eqn = eqn.with_regions([done[g, g in reversible and runs_in_reverse(eqn, within)] for g in eqn.regions])
        return eqn if eqn.op.without_derivative is None else eqn.op.without_derivative(eqn, within)

    for inner in order:
        for within in (False, True) if inner in reversible else (False,):
            done[inner, within] = inner.with_eqns([lower_eqn(e, within) for e in inner.eqns])
    return done[graph, False]


def reversible_steps(graphs: Sequence[Graph]) -> set[Graph]:
    """The steps that reversible loops run backwards, and the functions that these steps call."""
    found: set[Graph] = set()
    todo = [e.regions[0] for g in graphs for e in g.eqns if runs_in_reverse(e, False)]
    while todo:
        graph = todo.pop()
        if graph not in found:
            found.add(graph)
            todo += [e.regions[0] for e in graph.eqns if runs_in_reverse(e, True)]
    return found


def runs_in_reverse(eqn: Eqn, within: bool) -> bool:
    """Whether the region of an equation runs backwards too; `within` says whether the equation itself does."""
    return bool(eqn.attrs.get("reversible")) or (within and is_call(eqn))


class DerivativeExpansion:
    """One run over a graph and its regions; `reused` if the tangent graphs will run many times."""

    def __init__(self, *, reused: bool = False) -> None:
        self.ad = DerivativeCache(often=reused)
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph not in self.done:
            self.done[graph] = self.expanded(graph)
        return self.done[graph]

    def expand_region(self, eqn: Eqn, region: Graph) -> Graph:
        """A region without derivative equations."""
        # An inner derivative leaves dead code, which an outer derivative would differentiate.
        plain = self.graph(region)
        return dce(plain) if eqn.op.is_derivative and plain is not region else plain

    def expanded(self, graph: Graph) -> Graph:
        eqns = [e.with_regions([self.expand_region(e, r) for r in e.regions]) if e.regions else e for e in graph.eqns]
        if not any(e.op.is_derivative for e in eqns):
            return graph if all(a is b for a, b in zip(eqns, graph.eqns, strict=True)) else graph.with_eqns(eqns)
        builder = Builder()
        env = {p: builder.param(p.type, p.hint) for p in graph.params}
        for eqn in eqns:
            operands = tuple([env[v] for v in eqn.operands])
            if not isinstance(derivative := eqn.op.derivative, DerivativeOperator):
                results = builder.copy(eqn, operands)
            else:
                builder.span = eqn.span
                results = derivative.expand(self.ad, builder, eqn, operands)
            env.update(zip(eqn.results, results, strict=True))
        results = [env[r] for r in graph.results]
        return builder.finish(results, name=graph.name)
