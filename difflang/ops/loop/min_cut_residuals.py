"""The least to keep of a primal graph so that its residuals can be had cheaply: a minimum cut.

Each value is an edge as wide as its bytes, from where it is made to where it is read. What is dear to make, a product,
a sum, a draw, a truth that decides, comes from the source; what the tangent reads leads to the sink. A cut through the
edges of values is a set from which cheap equations make all that is read, and the least cut the least such set.

Source: Jain et al. 2020, Checkmate (the choice as a problem on graphs); the theorem of Ford and Fulkerson.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, prod
from typing import Any

import numpy as np

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.loop.residual_selection import MAX_SUMMANDS, is_differentiable_elementwise, is_light, total_bytes
from difflang.ops.op_factories import tensor_type

MAX_CAPACITY = 1 << 29  # what all edges come to at most: scipy's flows are 32 bits wide
SOURCE, SINK = 0, 1


def is_cheap_to_recompute(eqn: Eqn) -> bool:
    """Whether an equation may be done again, as no rounding makes it jump: number by number, a move of numbers, or a
    product whose numbers are sums of few, since of small matrices the factors are often fewer bytes.
    """
    few = eqn.op.name == "dot_general" and contraction_size(eqn) <= MAX_SUMMANDS
    return (
        few or is_light(eqn) or is_differentiable_elementwise(eqn) or not (eqn.operands or eqn.regions or eqn.op.effect)
    )


def contraction_size(eqn: Eqn) -> float:
    """How many products each number of a contraction is the sum of."""
    shape = tensor_type(eqn.operands[0]).shape
    return prod([n if isinstance(n, int) else inf for n in [shape[a] for a in eqn.attrs["contract"][0]]])


def find_min_cut(graph: Graph, available: Iterable[Value], targets: Iterable[Value]) -> list[Value]:
    """The values to keep, fewest bytes in all, from which with what is `given` cheap equations make what is `wanted`.

    Of several such sets the one that leaves the least to be done again. In the order in which they are made.
    Cost: a maximum flow through as many nodes as there are values, twice.
    """
    free = set(available)
    cheap = {r: is_cheap_to_recompute(e) for e in graph.eqns for r in e.results}
    values = [v for v in (*graph.params, *cheap) if v not in free]
    enters = {v: 2 + 2 * i for i, v in enumerate(values)}
    unit = max(1, total_bytes(values) // MAX_CAPACITY + 1)
    wide = [max(1, total_bytes([v]) // unit) for v in values]
    endless = sum(wide) + 1
    edges = [(enters[v], enters[v] + 1, n) for v, n in zip(values, wide, strict=True)]
    edges += [(SOURCE, enters[v], endless) for v in values if not cheap.get(v, False)]
    edges += [(enters[v] + 1, SINK, endless) for v in dict.fromkeys(targets) if v in enters]
    for eqn in graph.eqns:
        if eqn.operands and is_cheap_to_recompute(eqn):
            read = [v for v in dict.fromkeys(eqn.operands) if v in enters]
            edges += [(enters[v] + 1, enters[r], endless) for r in eqn.results if r in enters for v in read]
    reaches_sink = nodes_reaching_sink(edges, 2 + 2 * len(values))
    return [v for v in values if enters[v] + 1 in reaches_sink and enters[v] not in reaches_sink]


def nodes_reaching_sink(edges: list[tuple[int, int, int]], nodes: int) -> set[int]:
    """From which nodes there is a way to the sink that the greatest flow leaves open."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    if not edges:
        return set()
    tails, heads, wide = np.array(edges, np.int32).T
    room: Any = csr_matrix((wide, (tails, heads)), (nodes, nodes))
    left: Any = room - maximum_flow(room, SOURCE, SINK).flow
    left.eliminate_zeros()
    return set(breadth_first_order(left.T.tocsr(), SINK, return_predecessors=False).tolist())
