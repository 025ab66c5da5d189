"""Fusion of loops: a loop that follows another step by step is run within it, so nothing between them is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from difflang.ir.builder import Builder
from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ops.loop import Form, loop


def fuse(graph: Graph) -> Graph:
    """Join loops of one count and direction, where the later needs of the earlier only what it has made so far.

    A loop joins another if it takes as many steps by its meaning (its limit is the other's count, or both have one
    limit) and reads what the other gives. Outer loops come first: that brings inner loops together.
    What was read between the loops is still an output of the new loop; dce drops it where nobody else reads it.
    Cost: linear in equations, times the number of loops of one graph over 64.
    """
    return Fuser().graph(graph)


class Fuser:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph in self.done:
            return self.done[graph]
        joined = fused(graph) if sum(e.op is loop for e in graph.eqns) > 1 else graph
        eqns = [eqn.with_regions(map(self.graph, eqn.regions)) if eqn.regions else eqn for eqn in joined.eqns]
        return self.done.setdefault(graph, joined.with_eqns(eqns))


@dataclass(eq=False, slots=True)
class Cluster:
    """Loops that become one, in order. `waits` are the clusters that it needs, as bits."""

    number: int
    loops: list[Eqn]
    form: Form
    place: int
    waits: int = 0
    made: set[Value] = field(default_factory=set)

    @property
    def first(self) -> Eqn:
        return self.loops[0]

    def counts(self, eqn: Eqn, form: Form) -> bool:
        """Whether a loop without condition takes exactly the steps of this one."""
        if (form.reverse, form.length) != (self.form.reverse, self.form.length) or form.exact != self.form.exact:
            return False
        if form.exact or any(eqn.operands[0] is other.results[0] for other in self.loops):
            return True
        return len(self.first.regions) == 1 and eqn.operands[0] is self.first.operands[0]


class Clusters:
    """Finds which loops of a graph become one, and what each value waits for, as bits of clusters.

    Joining is refused if it would close a circle: something else stands between, or effects would change their order.
    """

    def __init__(self, graph: Graph) -> None:
        self.clusters: list[Cluster] = []
        self.of: dict[Eqn, Cluster] = {}
        self.waits: dict[Value, int] = {}
        effects = 0
        for place, eqn in enumerate(graph.eqns):
            if eqn.op is loop and not eqn.effectful:
                self.join(eqn, place)
                continue
            waits = self.waiting(eqn.operands)
            if eqn.effectful:
                effects = waits = waits | effects
            for result in eqn.results:
                self.waits[result] = waits

    def waiting(self, values: Sequence[Value]) -> int:
        waits = 0
        for value in values:
            waits |= self.waits.get(value, 0)
        return waits

    def join(self, eqn: Eqn, place: int) -> None:
        form = Form.of(eqn)
        cluster = self.joinable(eqn, form)
        if cluster is None:
            cluster = Cluster(len(self.clusters), [], form, place)
            self.clusters.append(cluster)
        here = set(cluster.made)
        cluster.waits |= self.waiting([v for v in eqn.operands if v not in here]) & ~(1 << cluster.number)
        cluster.loops.append(eqn)
        cluster.place = place
        cluster.made.update(eqn.results)
        self.of[eqn] = cluster
        for result in eqn.results:
            self.waits[result] = 1 << cluster.number

    def joinable(self, eqn: Eqn, form: Form) -> Cluster | None:
        """A cluster that gives something to this loop, and that it can join."""
        if len(eqn.regions) > 1:
            return None
        parts = form.parts(eqn.operands)
        direct = self.waiting([parts.first, *parts.xs])
        for cluster in self.clusters:
            if not direct >> cluster.number & 1 or not cluster.counts(eqn, form):
                continue
            outputs = {y for other in cluster.loops for y in other.results[1 + Form.of(other).carry :]}
            counts = {other.results[0] for other in cluster.loops}
            linked = parts.first in counts or any(x in outputs for x in parts.xs)
            limit = () if parts.first in counts or form.exact else (parts.first,)
            others = [*limit, *parts.consts, *parts.carry, *(x for x in parts.xs if x not in outputs)]
            if linked and not self.reaches(self.waiting(others), cluster.number):
                return cluster
        return None

    def reaches(self, waits: int, target: int) -> bool:
        """Whether what waits for these clusters waits for the target, be it through others."""
        seen = 0
        todo = waits
        while todo:
            if todo >> target & 1:
                return True
            seen |= todo
            todo = self.all_waits(todo) & ~seen
        return False

    def all_waits(self, clusters: int) -> int:
        waits = 0
        for cluster in self.clusters:
            if clusters >> cluster.number & 1:
                waits |= cluster.waits
        return waits


def fused(graph: Graph) -> Graph:
    """One level of a graph with its loops joined."""
    clusters = Clusters(graph)
    if all(len(c.loops) == 1 for c in clusters.clusters):
        return graph
    to: dict[Value, Value] = {}
    one: dict[Cluster, Eqn] = {}
    for cluster in clusters.clusters:
        one[cluster] = joined(cluster) if len(cluster.loops) > 1 else cluster.first
        to.update((other.results[0], one[cluster].results[0]) for other in cluster.loops[1:])
    nodes = [
        one[clusters.of[eqn]] if eqn in clusters.of else eqn
        for place, eqn in enumerate(graph.eqns)
        if eqn not in clusters.of or clusters.of[eqn].place == place
    ]
    return graph.with_eqns(in_order([node.renamed(to) for node in nodes])).renamed_results(to)


def joined(cluster: Cluster) -> Eqn:
    """One loop that does what all of a cluster do. A const or an array that several read is read once."""
    home = Builder()
    index = Value(cluster.first.regions[0].params[0].type, home)
    consts: dict[Value, Value] = {}
    items: dict[Value, Value] = {}
    made: dict[Value, Value] = {}
    carry: list[tuple[Value, Value]] = []  # operand and param
    body: list[Eqn] = []
    next_carry: list[Value] = []
    ys: list[Value] = []
    for eqn in cluster.loops:
        form = Form.of(eqn)
        outer, inner = form.parts(eqn.operands), form.parts(eqn.regions[0].params)
        to = {inner.first: index}
        for value, param in zip(outer.consts, inner.consts, strict=True):
            to[param] = consts.setdefault(value, Value(param.type, home, param.hint))
        for value, param in zip(outer.carry, inner.carry, strict=True):
            to[param] = Value(param.type, home, param.hint)
            carry.append((value, to[param]))
        for value, param in zip(outer.xs, inner.xs, strict=True):
            here = made.get(value)
            to[param] = here if here is not None else items.setdefault(value, Value(param.type, home, param.hint))
        outs = copied(eqn.regions[0], to, body)
        next_carry += outs[: form.carry]
        ys += outs[form.carry :]
        made.update(zip(eqn.results[1 + form.carry :], outs[form.carry :], strict=True))
    step_params = (index, *consts.values(), *(param for _, param in carry), *items.values())
    step = Graph(step_params, tuple(body), (*next_carry, *ys), cluster.first.regions[0].name)
    attrs: dict[str, Attr] = {**cluster.first.attrs, "consts": len(consts), "carry": len(carry)}
    operands = (cluster.first.operands[0], *consts, *(value for value, _ in carry), *items)
    regions = (step, *conditions(cluster.first, len(consts), [param for _, param in carry], consts))
    return Eqn(loop, operands, tuple(results_of(cluster)), attrs, regions, cluster.first.span)


def copied(body: Graph, to: dict[Value, Value], eqns: list[Eqn]) -> list[Value]:
    """Copy a body's equations to the end of `eqns`, its params being what `to` says; gives its results."""
    for eqn in body.eqns:
        results = tuple([Value(r.type, r.home, r.hint) for r in eqn.results])
        eqns.append(Eqn(eqn.op, tuple([to[v] for v in eqn.operands]), results, eqn.attrs, eqn.regions, eqn.span))
        to.update(zip(eqn.results, results, strict=True))
    return [to[r] for r in body.results]


def conditions(eqn: Eqn, consts: int, carry: Sequence[Value], shared: dict[Value, Value]) -> Iterator[Graph]:
    """The condition of the first loop, as the new loop's: it also takes what it does not read."""
    form = Form.of(eqn)
    outer = form.parts(eqn.operands)
    for go in eqn.regions[1:]:
        inner = form.parts(go.params)
        home = Builder()
        to: dict[Value, Value] = {inner.first: Value(inner.first.type, home)}
        new = {value: Value(param.type, home, param.hint) for value, param in shared.items()}
        to.update((param, new[value]) for value, param in zip(outer.consts, inner.consts, strict=True))
        states = [Value(param.type, home, param.hint) for param in carry]
        to.update(zip(inner.carry, states, strict=False))
        eqns: list[Eqn] = []
        results = copied(go, to, eqns)
        yield Graph((to[inner.first], *new.values(), *states), tuple(eqns), tuple(results), go.name)


def results_of(cluster: Cluster) -> Iterator[Value]:
    """The count, then the carries of all loops, then their outputs."""
    yield cluster.first.results[0]
    for eqn in cluster.loops:
        yield from eqn.results[1 : 1 + Form.of(eqn).carry]
    for eqn in cluster.loops:
        yield from eqn.results[1 + Form.of(eqn).carry :]


def in_order(eqns: Sequence[Eqn]) -> list[Eqn]:
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
