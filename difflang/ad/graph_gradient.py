"""Reverse mode inside a graph: the derivatives of some of its values towards others, appended to its equations.

The graph is linearized and transposed as a function is. Towards a value that an equation computes, it is the derivative
with respect to what is added to that value: `x` is read as `x + shift` while the graph is linearized.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from difflang.ad.derivative_cache import DerivativeCache
from difflang.ad.expand_derivatives import expand_derivatives
from difflang.ad.linearize import pushforward, tangent_param
from difflang.ad.recomputation import RecomputeBlocks
from difflang.ad.transpose import pullback
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import MaybeValue
from difflang.ops.ad_interface import CotangentSum, addition
from difflang.passes.dce import dce, live_equations

SumCotangents = Callable[[Builder, Sequence[Value]], Value]


class GraphGradient(Struct, frozen=True):
    """A graph with the equations of a gradient behind its own, and the cotangents; `None` for one that is zero."""

    graph: Graph
    cotangents: Sequence[MaybeValue]


def gradient(
    graph: Graph,
    ys: Sequence[Value],
    xs: Sequence[Value],
    seeds: Sequence[Value],
    *,
    sum_cotangents: SumCotangents | None = None,
    recomputed: Collection[Value] = (),
) -> GraphGradient:
    """Append the cotangents of the values `xs`, for the cotangents `seeds` of the values `ys`.

    All of these are values of the graph itself, which has no derivative operator; its values stay values. Several
    cotangents of one value are summed by `sum_cotangents`. The values in `recomputed` are recomputed where cotangents
    need them, and not kept. Cost: linear.
    """
    shifted = ShiftedGraph(graph, xs)
    core, _ = live_equations(shifted.graph.eqns, [*map(shifted.read, ys), *seeds])
    values = (*shifted.graph.params, *[r for eqn in core for r in eqn.results])
    primal = Builder()
    tangent = Builder(outer=primal)
    params = [primal.param(p.type, p.hint) for p in shifted.graph.params]
    moving = [tangent_param(tangent, p) if p in shifted.origin else None for p in shifted.graph.params]
    ad = DerivativeCache()
    made, dots = pushforward(ad, Graph(shifted.graph.params, core, values), primal, params, tangent, moving)
    new, dot = dict(zip(values, made, strict=True)), dict(zip(values, dots, strict=True))
    pairs = [(dot.get(shifted.read(y)), new[seed]) for y, seed in zip(ys, seeds, strict=True)]
    arriving = [(tangent.capture(d), ct) for d, ct in pairs if d is not None]
    eqns, _ = live_equations(tangent.eqns, [d for d, _ in arriving])
    summed = {d for d in dots if d is not None}
    if sum_cotangents is not None:
        ad.total = CotangentSum(summed, sum_cotangents)
    without = shifted.remove_shifts(primal, new)
    env = {inside: without.get(outside, outside) for outside, inside in tangent.captures.items()}
    if recomputed:
        own = {new[v]: v in recomputed for eqn in graph.eqns for v in eqn.results if v in new}
        blocks = RecomputeBlocks(tangent, env, primal.eqns, own, summed)
        eqns = blocks.isolated(eqns, [d for d, _ in arriving])
    forward = len(primal.eqns)
    found = pullback(ad, eqns, primal, env, {d for d in moving if d is not None}, arriving)
    cts: dict[Value, MaybeValue] = {}
    for param, d in zip(shifted.graph.params, moving, strict=True):
        if d is not None:
            x = shifted.origin[param]
            cts[x] = ct = found.take(d)
            if ct is not None:
                ct.name_as_tangent_of(x)
    whole = with_own_values(graph, primal.eqns, forward, new, [cts[x] for x in xs])
    primal.release()
    tangent.release()
    return whole


class ShiftedGraph:
    """A graph that reads `x + shift` in place of some values `x`, where `shift` is a new param."""

    def __init__(self, graph: Graph, xs: Sequence[Value]) -> None:
        self.origin: dict[Value, Value] = {x: x for x in xs if x in graph.params}  # what a param moves
        self.sums: dict[Value, Value] = {}
        wanted, eqns, shifts = set(xs), list[Eqn](), list[Value]()
        for old in graph.eqns:
            eqn = old.replace_operands(self.sums)
            eqns.append(eqn)
            for x in eqn.results:
                if x in wanted:
                    shift, self.sums[x] = Value(x.type, x.home), Value(x.type, x.home)
                    eqns.append(Eqn(addition(x.type), (x, shift), (self.sums[x],), span=eqn.span))
                    shifts.append(shift)
                    self.origin[shift] = x
        self.graph = Graph((*graph.params, *shifts), tuple(eqns), graph.results, graph.name)

    def read(self, x: Value) -> Value:
        """What its equations read in place of a value."""
        return self.sums.get(x, x)

    def remove_shifts(self, primal: Builder, new: Mapping[Value, Value]) -> dict[Value, Value]:
        """Take the sums out of what was made of it; `new` are the values there. Returns what they are sums of."""
        real = {new[total]: new[x] for x, total in self.sums.items() if total in new}
        kept = [eqn for eqn in primal.eqns if real.keys().isdisjoint(eqn.results)]
        primal.eqns[:] = [eqn.replace_operands(real) for eqn in kept]
        return real


def with_own_values(
    graph: Graph, eqns: Sequence[Eqn], forward: int, new: Mapping[Value, Value], cotangents: Sequence[MaybeValue]
) -> GraphGradient:
    """The equations with the values of the graph in place of `new` ones; and the other equations of the graph.

    The first `forward` equations are those that do not compute cotangents.
    """
    own: dict[Value, Value] = {}
    for v in defined_values(graph):
        if v in new:
            own.setdefault(new[v], v)
    here = {*own.values()}
    # Equations that no y needs, and equal ones, of which one was made.
    others = [eqn for eqn in graph.eqns if eqn.results and here.isdisjoint(eqn.results)]
    here.update([r for eqn in others for r in eqn.results])
    # Two results of one equation that turned out to be one value.
    merged = {v: own[n] for v, n in new.items() if v not in here and n in own}
    renamed = Graph((), tuple(eqns), ()).rename_values(own).eqns
    cts = [None if ct is None else own.get(ct, ct) for ct in cotangents]
    results = tuple([merged.get(r, r) for r in graph.results])
    whole = [*renamed[:forward], *[eqn.replace_operands(merged) for eqn in others], *renamed[forward:]]
    live, _ = live_equations(whole, [*here, *results, *[ct for ct in cts if ct is not None]])
    return GraphGradient(Graph(graph.params, live, results, graph.name), cts)


def defined_values(graph: Graph) -> Values:
    """The params of a graph, and the results of its equations."""
    return (*graph.params, *[r for eqn in graph.eqns for r in eqn.results])


def expand_in_place(graph: Graph) -> tuple[Graph, Mapping[Value, Value]]:
    """The graph without derivative operators, and by which values those that merged with others are replaced."""
    values = defined_values(graph)
    whole = graph.with_results(values)
    found = expand_derivatives(whole)
    if found is whole:
        return graph, {}
    # A derivative leaves dead code, which would be differentiated.
    found, own = dce(found), dict[Value, Value]()
    for old, new in zip(values, found.results, strict=True):
        own.setdefault(new, old)
    merged = {old: own[new] for old, new in zip(values, found.results, strict=True) if own[new] is not old}
    results = tuple([merged.get(r, r) for r in graph.results])
    return Graph(graph.params, found.rename_values(own).eqns, results, graph.name), merged
