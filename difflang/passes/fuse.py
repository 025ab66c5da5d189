"""Fusion: a loop, map or branch that follows another step by step is run within it, so nothing between is stored.

Here it is decided what joins what, and in which order; `join.py` knows loops, maps and branches and builds the one
that does what several did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from msgspec import Struct, field

from difflang.ir.graph import Eqn, Graph, Value
from difflang.passes.fused_op_builders import FUSION_KINDS, FusionKind


def fuse(graph: Graph) -> Graph:
    """Join equations with regions that run alike, where the later needs of the earlier only what it has made so far.

    Loops run alike with one direction and count, maps with one length, branches with one condition. One joins another
    only if it reads what that gives. The outer ones come first: that brings the inner ones together.
    What was read between them is still a result; dce drops it where nobody else reads it.
    Cost: linear in equations, times the number of such equations of one graph over 64.
    """
    return Fuser().graph(graph)


class Fuser:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        joined = fuse_level(graph) if sum(e.op in FUSION_KINDS for e in graph.eqns) > 1 else graph
        eqns = [eqn.with_regions(map(self.graph, eqn.regions)) if eqn.regions else eqn for eqn in joined.eqns]
        return self.done.setdefault(graph, joined.with_eqns(eqns))


class FusionCluster(Struct, eq=False):
    """Equations that become one, in order. `waits` are the clusters that it needs, as bits."""

    number: int
    kind: FusionKind
    eqns: list[Eqn] = field(default_factory=list)
    depends: int = 0
    available: set[Value] = field(default_factory=set)  # what its regions have at hand


class FusionClusters:
    """Finds which equations of a graph become one, and what each value waits for, as bits of clusters.

    Joining is refused if it would close a circle: something else stands between, or effects would change their order.
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
        """Whether it runs like the cluster, reads what that gives, and needs nothing that comes after it."""
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
        """Whether what waits for these clusters waits for the target, be it through others."""
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
    """The numbers in a mask, the least first."""
    while mask:
        least = mask & -mask
        yield least.bit_length() - 1
        mask ^= least


def fuse_level(graph: Graph) -> Graph:
    """One level of a graph with what can be joined joined."""
    clusters = FusionClusters(graph)
    if all(len(c.eqns) == 1 for c in clusters.clusters):
        return graph
    to: dict[Value, Value] = {}
    nodes: list[Eqn] = []
    for eqn in graph.eqns:
        cluster = clusters.of.get(eqn)
        if cluster is None or len(cluster.eqns) == 1:
            nodes.append(eqn)
        elif eqn is cluster.eqns[-1]:
            nodes.append(cluster.kind.build(cluster.eqns, to))
    return graph.with_eqns(topological_order([node.replace_operands(to) for node in nodes])).replace_results(to)


def topological_order(eqns: Sequence[Eqn]) -> list[Eqn]:
    """The same equations, each after those that it needs and else in the order given; effects keep their order."""
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
    assert len(order) == len(eqns), "fusion closed a circle"
    return order
