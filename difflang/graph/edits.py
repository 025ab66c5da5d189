"""Edits of a graph: other equations for a value, other outputs, other names. Each gives a new, verified graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from difflang.graph.builder import GraphBuilder, require_function, require_name, require_value
from difflang.graph.graph_errors import graph_error, verified
from difflang.graph.graph_view import GraphView, Value
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, graphs_postorder, rewrite_graphs
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.graph import Value as IrValue


def replace_value(root: IrGraph, value: Value, with_: Callable[[GraphBuilder, Value], Value]) -> IrGraph:
    """The graph where all that reads `value` reads `with_(b, value)`, whose equations stand behind that of `value`.

    Errors: DL1250 for a value of another graph, one that is computed from its readers, or of a type that they refuse.
    """
    scope = defining_graph(root, value)
    require_function(with_, "what replaces a value")
    maker = next((eqn for eqn in scope.eqns if value.ir in eqn.results), None)
    builder = GraphBuilder(Builder() if maker is None else Builder(span=maker.span), GraphView(scope))
    result = builder.own(require_value(with_(builder, Value(value.ir, builder)), "what replaces a value"))
    builder.closed = True
    real = {param: outside for outside, param in builder.borrowed.items()}
    added = [eqn.replace_operands(real) for eqn in builder.home.eqns]
    builder.home.release()
    new = reading(scope, value, real.get(result, result), maker, added)
    return verified(rewrite_graphs(root, lambda old, inside: new if old is scope else inside))


def reading(scope: IrGraph, value: Value, new: IrValue, maker: Eqn | None, added: Sequence[Eqn]) -> IrGraph:
    """The graph whose equations and results read `new` in place of a value, with the equations that make `new`."""
    eqns = [eqn.replace_operands({value.ir: new}) for eqn in scope.eqns]
    at = 0 if maker is None else scope.eqns.index(maker) + 1
    ordered = in_order([*eqns[:at], *added, *eqns[at:]], value)
    return scope.with_eqns(ordered).replace_results({value.ir: new})


def in_order(eqns: Sequence[Eqn], value: Value) -> list[Eqn]:
    """The equations, each after those that it reads, else in the order in which they are.

    Equations with an effect stay in their order. Errors: DL1250 if some read each other.
    """
    makers = {result: i for i, eqn in enumerate(eqns) for result in eqn.results}
    before = [{makers[v] for v in eqn.operands if v in makers} for eqn in eqns]
    effects = [i for i, eqn in enumerate(eqns) if eqn.effectful]
    for earlier, later in pairwise(effects):
        before[later].add(earlier)
    readers: list[list[int]] = [[] for _ in eqns]
    for i, needed in enumerate(before):
        for k in needed:
            readers[k].append(i)
    ready = [i for i, needed in enumerate(before) if not needed]
    heapify(ready)
    order: list[Eqn] = []
    while ready:
        i = heappop(ready)
        order.append(eqns[i])
        for k in readers[i]:
            before[k].discard(i)
            if not before[k]:
                heappush(ready, k)
    if len(order) < len(eqns):
        stuck = next(eqn for i, eqn in enumerate(eqns) if before[i])
        message = f"what replaces `%{value.name}` is computed from it: `{stuck.op}` would be in a cycle"
        raise graph_error("DL1250", message, (stuck.span, "in the cycle"))
    return order


def with_outputs(root: IrGraph, values: Sequence[Value], kept: int) -> IrGraph:
    """The graph with other outputs, before its last `kept` results. Errors: DL1250 for a value of another graph."""
    for value in values:
        if defining_graph(root, value) is not root:
            message = f"`%{value.name}` is a value of a region, which is no output of the graph around it"
            raise graph_error("DL1250", message, help="a region gives its results to the equation that it is in")
    return verified(root.with_results([*[v.ir for v in values], *root.results[len(root.results) - kept :]]))


def rename_values(root: IrGraph, names: Mapping[Value, str], name: str | None) -> IrGraph:
    """The graph with other names for some values, and maybe for itself. Errors: DL1250 for a value of another graph."""
    if not isinstance(names, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        way = 'write `g.rename({value: "x"})`, or for the graph `g.rename(name="f")`'
        raise graph_error("DL1250", f"{names!r:.40} does not say which value gets which name", help=way)
    to: dict[IrGraph, dict[IrValue, IrValue]] = {}
    for value, text in names.items():
        scope = defining_graph(root, value)
        require_name(text, value)
        to.setdefault(scope, {})[value.ir] = IrValue(value.ir.type, value.ir.home, text)
    root = rewrite_graphs(root, lambda old, inside: inside.rename_values(to[old]) if old in to else inside)
    if name is not None:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise graph_error("DL1250", f"{name!r} is no name for a graph")
        root = IrGraph(root.params, root.eqns, root.results, name)
    return verified(root)


def defining_graph(root: IrGraph, value: Value) -> IrGraph:
    """The graph, at any depth inside `root`, that defines a value. Errors: DL1250 if none does.

    Regions may share values, as the two directions of an invertible function do: of several graphs it is the one where
    the value was found. Errors: DL1250 if that one was edited since.
    """
    if not isinstance(value, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise graph_error("DL1250", f"{value!r} is not a value of a graph", help='`g["name"]` finds a value')
    graphs = graphs_postorder(root)[0]
    found = [g for g in graphs if value.ir in g.params or any(value.ir in eqn.results for eqn in g.eqns)]
    seen_in = value.scope.ir if isinstance(value.scope, GraphView) else None
    if len(found) == 1 or seen_in in found:
        return found[0] if len(found) == 1 else next(g for g in found if g is seen_in)
    if found:
        message = f"`%{value.name}: {value.type}` is a value of {len(found)} regions"
        raise graph_error("DL1250", message, help="take it from one of them in this graph, such as `eqn.regions[0]`")
    way = f'look it up in this graph: `g["{value.name}"]`' if isinstance(value.scope, GraphView) else ""
    raise graph_error("DL1250", f"`%{value.name}: {value.type}` belongs to another graph", help=way)
