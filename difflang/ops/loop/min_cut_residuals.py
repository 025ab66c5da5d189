"""Min-cut rematerialization: the fewest bytes of a primal graph from which its residuals are cheap to recompute.

Each value is an edge with its bytes as capacity, from its producer to its readers. Values that are expensive to
recompute (products, sums, random draws, predicates) are connected to the source, values that the tangent reads to the
sink. A cut through value edges is a set from which cheap equations recompute all residuals; the minimum cut is the
smallest.

Source: Jain et al. 2020, Checkmate (rematerialization as an optimization on graphs); the theorem of Ford and Fulkerson.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, prod
from typing import Any

import numpy as np

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.residual_selection import MAX_SUMMANDS, is_differentiable_elementwise, is_light, total_bytes
from difflang.ops.op_factories import tensor_type

# The bound on the sum of all capacities: scipy's flows are 32 bits wide.
MAX_CAPACITY = 1 << 29
SOURCE, SINK = 0, 1


def is_cheap_to_recompute(eqn: Eqn) -> bool:
    """Whether an equation is cheap to recompute and rounding cannot make it jump.

    That is elementwise or data movement, or a contraction over few elements: the factors of small matrices often take
    fewer bytes.
    """
    few = eqn.op is dot_general and contraction_size(eqn) <= MAX_SUMMANDS
    return (
        few or is_light(eqn) or is_differentiable_elementwise(eqn) or not (eqn.operands or eqn.regions or eqn.op.effect)
    )


def contraction_size(eqn: Eqn) -> float:
    """The number of products in each sum of a contraction."""
    shape = tensor_type(eqn.operands[0]).shape
    return prod([n if isinstance(n, int) else inf for n in [shape[a] for a in eqn.attrs["contract"][0]]])


def find_min_cut(graph: Graph, available: Iterable[Value], targets: Iterable[Value]) -> list[Value]:
    """The values to store, fewest bytes in all, from which and `available` cheap equations recompute the `targets`.

    Of several minimum cuts the one that recomputes least. In definition order.
    Cost: a maximum flow through twice as many nodes as there are values.
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
    # The cut nearest to the sink leaves the least to recompute.
    reaches_sink = nodes_reaching_sink(edges, 2 + 2 * len(values))
    return [v for v in values if enters[v] + 1 in reaches_sink and enters[v] not in reaches_sink]


def nodes_reaching_sink(edges: list[tuple[int, int, int]], nodes: int) -> set[int]:
    """The nodes from which the sink is reachable in the residual network of a maximum flow."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    if not edges:
        return set()
    tails, heads, wide = np.array(edges, np.int32).T
    capacity: Any = csr_matrix((wide, (tails, heads)), (nodes, nodes))
    left: Any = capacity - maximum_flow(capacity, SOURCE, SINK).flow
    left.eliminate_zeros()
    return set(breadth_first_order(left.T.tocsr(), SINK, return_predecessors=False).tolist())
