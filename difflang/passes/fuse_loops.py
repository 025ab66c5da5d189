"""Loop fusion: a loop, map or branch that reads another step by step runs within it, so nothing between is stored.

This module decides which equations fuse, and orders them; `fused_op_builders.py` builds the fused loop, map or branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from msgspec import Struct, field

from difflang.ir.graph import Eqn, Graph, Value
from difflang.passes.fused_op_builders import FUSION_KINDS, FusionKind


def fuse(graph: Graph) -> Graph:
    """Fuse compatible equations with regions, where each step of the later one reads only that step of the earlier one.

    Loops are compatible with the same direction and count, maps with the same length, branches with the same condition.
    One fuses into another only if it reads its results. What is read between them stays a result, which dce may drop.
    Cost: linear in equations, times the number of such equations of one graph over 64.
    """
    return Fuser().graph(graph)


class Fuser:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        # Outer equations first: fusing them brings the inner ones into one graph.
        joined = fuse_level(graph) if sum(e.op in FUSION_KINDS for e in graph.eqns) > 1 else graph
        eqns = [eqn.with_regions(map(self.graph, eqn.regions)) if eqn.regions else eqn for eqn in joined.eqns]
        return self.done.setdefault(graph, joined.with_eqns(eqns))


class FusionCluster(Struct, eq=False):
    """Equations that become one, in order. `depends` is the set of clusters that it depends on, as bits."""

    number: int
    kind: FusionKind
    eqns: list[Eqn] = field(default_factory=list)
    depends: int = 0
    available: set[Value] = field(default_factory=set)  # results that a fused region can read step by step


class FusionClusters:
    """Groups the equations of a graph that become one, and tracks the clusters that each value depends on, as bits.

    An equation does not join a cluster if that would close a cycle of dependencies or reorder effects.
    """

    def __init__(self, graph: Graph) -> None:
        self.clusters: list[FusionCluster] = []
        self.of: dict[Eqn, FusionCluster] = {}
        self.depends: dict[Value, int] = {}
        effects = 0
        for eqn in graph.eqns:
            if eqn.op in FUSION_KINDS and not eqn.effectful:
                self.enter(eqn, FUSION_KINDS[eqn.op])
                continue
            waits = self.dependencies(eqn.operands)
            if eqn.effectful:
                effects = waits = waits | effects
            for result in eqn.results if waits else ():
                self.depends[result] = waits

    def dependencies(self, values: Iterable[Value]) -> int:
        waits = 0
        for value in values:
            waits |= self.depends.get(value, 0)
        return waits

    def enter(self, eqn: Eqn, kind: FusionKind) -> None:
        """Put an equation into the cluster that it joins, or into a new one."""
        # Only clusters that it reads directly are candidates, the earliest first.
        near = bit_indices(self.dependencies(eqn.operands))
        cluster = next((c for c in map(self.clusters.__getitem__, near) if self.can_join(eqn, kind, c)), None)
        if cluster is None:
            cluster = FusionCluster(len(self.clusters), kind)
            self.clusters.append(cluster)
        cluster.depends |= self.dependencies(eqn.operands) & ~(1 << cluster.number)
        cluster.eqns.append(eqn)
        cluster.available.update(kind.fusable_results(eqn))
        self.of[eqn] = cluster
        for result in eqn.results:
            self.depends[result] = 1 << cluster.number

    def can_join(self, eqn: Eqn, kind: FusionKind, cluster: FusionCluster) -> bool:
        """Whether it is compatible with the cluster and depends on it only step by step."""
        if kind is not cluster.kind or not kind.compatible(cluster.eqns, eqn):
            return False
        free = set(kind.reads(eqn))
        others = [
            v
            for i, v in enumerate(eqn.operands)
            if i >= kind.shared_operands and not (i in free and v in cluster.available)
        ]
        return not self.depends_on(self.dependencies(others), cluster.number)

    def depends_on(self, waits: int, target: int) -> bool:
        """Whether any of these clusters depends on the target, directly or through others."""
        seen = 0
        todo = waits
        while todo:
            if todo >> target & 1:
                return True
            seen |= todo
            more = 0
            for number in bit_indices(todo):
                more |= self.clusters[number].depends
            todo = more & ~seen
        return False


def bit_indices(mask: int) -> Iterator[int]:
    """The indices of the set bits, the least first."""
    while mask:
        least = mask & -mask
        yield least.bit_length() - 1
        mask ^= least


def fuse_level(graph: Graph) -> Graph:
    """One graph with its compatible equations fused; its regions are not changed."""
    clusters = FusionClusters(graph)
    if all(len(c.eqns) == 1 for c in clusters.clusters):
        return graph
    to: dict[Value, Value] = {}
    nodes: list[Eqn] = []
    for eqn in graph.eqns:
        cluster = clusters.of.get(eqn)
        if cluster is None or len(cluster.eqns) == 1:
            nodes.append(eqn)
        # The fused equation stands where the last of them stood; sorting moves its readers behind it.
        elif eqn is cluster.eqns[-1]:
            nodes.append(cluster.kind.build(cluster.eqns, to))
    return graph.with_eqns(topological_order([node.replace_operands(to) for node in nodes])).replace_results(to)


def topological_order(eqns: Sequence[Eqn]) -> list[Eqn]:
    """The same equations, each after those that it reads and otherwise in their order; effects keep their order."""
    # Kahn's algorithm with a heap, which makes the order deterministic and as close to the old one as possible.
    maker = {result: i for i, eqn in enumerate(eqns) for result in eqn.results}
    readers: list[list[int]] = [[] for _ in eqns]
    missing: list[int] = []
    effect: int | None = None
    for i, eqn in enumerate(eqns):
        needs = {maker[v] for v in eqn.operands if v in maker}
        if eqn.effectful:
            needs |= set() if effect is None else {effect}
            effect = i
        missing.append(len(needs))
        for j in needs:
            readers[j].append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[Eqn] = []
    while ready:
        i = heappop(ready)
        order.append(eqns[i])
        for j in readers[i]:
            missing[j] -= 1
            if not missing[j]:
                heappush(ready, j)
    assert len(order) == len(eqns), "fusion created a cycle"
    return order
