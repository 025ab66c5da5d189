"""Recursion over sizes computes equal calls once, and all calls of one function at one level as one batch.

`f` that calls itself for smaller sizes, once for each column or half of its argument, makes a tree of calls, many of
them of equal arguments: the minors of a determinant, the intervals of a divided difference. What a call reads of the
arrays outside is a constant selection of elements, so that equal calls are known at compile time. See
`instance_walker` for how they are followed.
"""

from __future__ import annotations

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Values, graphs_postorder
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.call import call
from difflang.ops.control.map import map_
from difflang.passes.sharing.instance_walker import InstanceWalker, UnshareableError

MIN_SHARING = 2  # calls in the tree for each call that is left; below that sharing gains little


def share_recursive_calls(graph: Graph) -> Graph:
    """Compute equal calls of functions that call themselves, for other sizes, once. Cost: linear in distinct calls."""
    calls = CallCounts(graph)
    return CallSharer(calls).graph(graph) if calls.recursive else graph


class CallCounts:
    """For each graph how many calls run below it, and whether it is called for a function that it calls itself."""

    def __init__(self, root: Graph) -> None:
        self.bits: dict[str, int] = {}
        self.names: dict[Graph, int] = {}  # of the functions called inside, as bits
        self.tree: dict[Graph, int] = {}
        self.recursive: set[Graph] = set()
        for graph in graphs_postorder(root)[0]:
            self.names[graph] = self.tree[graph] = 0
            for eqn in graph.eqns:
                for region in eqn.regions:
                    self.add(graph, eqn, region)

    def add(self, graph: Graph, eqn: Eqn, region: Graph) -> None:
        length = eqn.attrs["length"] if eqn.op is map_ else 1
        self.tree[graph] += (length if isinstance(length, int) else 1) * (self.tree[region] + (eqn.op is call))
        self.names[graph] |= self.names[region]
        if eqn.op is call:
            bit = self.bits.setdefault(eqn.attrs["name"], 1 << len(self.bits))
            self.names[graph] |= bit
            if self.names[region] & bit:
                self.recursive.add(region)


class CallSharer:
    """Expands the outermost recursive calls in a graph and its regions, where that shares enough of them."""

    def __init__(self, calls: CallCounts) -> None:
        self.calls = calls
        self.done: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        if graph not in self.done:
            self.done[graph] = self.expanded(graph)
        return self.done[graph]

    def expanded(self, graph: Graph) -> Graph:
        if not any([e.regions for e in graph.eqns]):
            return graph
        builder, changed = Builder(), False
        env = {p: builder.param(p.type, p.hint) for p in graph.params}
        for eqn in graph.eqns:
            operands = tuple([env[v] for v in eqn.operands])
            results = self.shared_results(builder, eqn, operands)
            if results is None:
                inner = eqn.with_regions(map(self.graph, eqn.regions)) if eqn.regions else eqn
                results, changed = builder.copy(inner, operands), changed or inner is not eqn
            else:
                changed = True
            env.update(zip(eqn.results, results, strict=True))
        made = builder.finish([env[r] for r in graph.results], name=graph.name)
        return made if changed else graph

    def shared_results(self, builder: Builder, eqn: Eqn, operands: Values) -> Values | None:
        """The results of a recursive call with equal calls shared; None where that is not possible or gains nothing."""
        if eqn.op is not call or eqn.regions[0] not in self.calls.recursive or eqn.effectful:
            return None
        (body,), start, walker = eqn.regions, len(builder.eqns), InstanceWalker(builder)
        if not self.can_share(body):
            return None
        try:
            results = walker.expand(body, operands)
        except UnshareableError:
            results = None
        if results is None or walker.computed * MIN_SHARING > self.calls.tree[body] + 1:
            del builder.eqns[start:]
            self.calls.recursive.difference_update(graphs_postorder(body)[0])  # calls inside share less
            return None
        return results

    def can_share(self, body: Graph) -> bool:
        """Whether calls outnumber the graphs they are of."""
        inside = graphs_postorder(body)[0]
        called = {e.regions[0] for g in inside for e in g.eqns if e.op is call}
        if self.calls.tree[body] >= MIN_SHARING * len(called) and is_concrete(body):
            return True
        self.calls.recursive.difference_update(inside)
        return False


def is_concrete(graph: Graph) -> bool:
    """Whether all its params are arrays whose sizes are numbers."""
    return all([isinstance(p.type, Tensor) and all([isinstance(n, int) for n in p.type.shape]) for p in graph.params])
