"""Drops host transfers inside maps: JAX would batch a read from host memory into a gather on the host."""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder, nested_regions
from difflang.ops.control.map import map_
from difflang.ops.loop.host_offload import to_device, to_host


def drop_transfers_in_maps(graph: Graph) -> Graph:
    """The graph without `to_host` and `to_device` inside maps; the same graph if it has none. Cost: linear."""
    graphs, _ = graphs_postorder(graph)
    if not any(e.op is to_host for g in graphs for e in g.eqns):
        return graph
    in_maps = nested_regions(graphs, lambda eqn: eqn.op is map_)
    done: dict[Graph, Graph] = {}
    for inner in graphs:
        done[inner] = rewrite_graph(inner, done, in_map=inner in in_maps)
    return done[graph]


def rewrite_graph(graph: Graph, done: dict[Graph, Graph], *, in_map: bool) -> Graph:
    to: dict[Value, Value] = {}
    eqns: list[Eqn] = []
    for old in graph.eqns:
        eqn = old.replace_operands(to)
        if in_map and eqn.op in (to_host, to_device):
            to[eqn.results[0]] = eqn.operands[0]
        else:
            eqns.append(eqn.with_regions([done[r] for r in eqn.regions]) if eqn.regions else eqn)
    same = len(eqns) == len(graph.eqns) and all(a is b for a, b in zip(eqns, graph.eqns, strict=True))
    return graph if same else graph.with_eqns(eqns).replace_results(to)
