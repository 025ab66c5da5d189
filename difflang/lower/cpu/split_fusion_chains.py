"""Cuts long elementwise chains into outlined segments, so that XLA on the CPU neither recomputes endlessly nor crashes.

XLA fuses a chain of elementwise operations into one kernel and recomputes shared operands for each reader: a chain a
few hundred deep takes for ever to compile or to run (tests/canary keeps these programs). The equations on such a chain
go into short segments, each a function that XLA does not inline and so cannot fuse with its neighbours. XLA's passes
are also quadratic in what they cannot fuse, so a graph of thousands of equations has its products and reductions
grouped too, in longer segments. `outlining` builds the segments, `graph_to_jax` emits them; nothing here uses XLA's
API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from functools import cache
from math import prod
from typing import NamedTuple

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import Placement
from difflang.ir.tensor_types import Tensor
from difflang.lower.cpu.outlining import (
    EqnOrSegment,
    SegmentBuilder,
    is_fusion_barrier,
    link_weight,
    stays_inline,
)
from difflang.lower.cpu.polynomial_sines import branch_on_small_arguments
from difflang.ops.arrays.axis_reductions import AXIS_REDUCTIONS
from difflang.passes.measured_rewrites import LEFT_OUT

# XLA compiles chains and graphs up to these sizes well.
MAX_CHAIN_DEPTH = 48
MAX_GRAPH_LENGTH = 1000


class ChainLengths(NamedTuple):
    """The longest chains through an equation or graph: to each result from the operands (`through`) and from anywhere
    inside (`tail`), and those that end inside (`head`).

    `through` is negative where no chain leads through, because a product or a sum lies between.
    """

    through: Lengths
    tail: Lengths
    head: int


Lengths = tuple[int, ...]
# The length of a chain that does not exist.
NO_CHAIN = -(1 << 30)


@cache
def single_link(results: int) -> ChainLengths:
    """The chains of an equation that is one link, with that many results."""
    ones = (1,) * results
    return ChainLengths(ones, ones, 1)


def is_fusible(eqn: Eqn) -> bool:
    return bool(eqn.operands) and not is_fusion_barrier(eqn)


class ChainSplitter:
    """Plans the segments of one program's graphs. Each graph is analysed once."""

    def __init__(self) -> None:
        self.depths: dict[Graph, int] = {}
        self.flows: dict[Graph, ChainLengths] = {}
        self.left: dict[Graph, ChainLengths] = {}
        self.ends: dict[Graph, dict[Value, int]] = {}
        self.plans: dict[Graph, tuple[EqnOrSegment, ...]] = {}

    def plan(self, graph: Graph, in_loop: bool = False) -> tuple[EqnOrSegment, ...]:
        """The graph's equations in an order that respects dependence, long chains cut into segments."""
        found = self.plans.get(graph)
        if found is None:
            if self.hard(graph):
                found = self.cut(graph)
            elif "split_fusion_chains" not in LEFT_OUT and (stored := stored_before_gathers(graph)):
                found = cut_after(graph, stored)
            else:
                found = self.branch_on_sines(graph, in_loop)
            self.plans[graph] = found
        return found

    def branch_on_sines(self, graph: Graph, inside: bool) -> tuple[EqnOrSegment, ...]:
        """A graph without long chains, which may run `inside` a loop: only its sines are rewritten."""
        steps, fallbacks = branch_on_small_arguments(graph.eqns, inside)
        self.plans.update({region: region.eqns for region in fallbacks})
        return tuple(steps)

    def hard(self, graph: Graph) -> bool:
        if "split_fusion_chains" in LEFT_OUT:
            return False
        if len(graph.eqns) <= MAX_CHAIN_DEPTH and not any([e.regions for e in graph.eqns]):
            return False  # no chain is longer than its graph
        return len(graph.eqns) > MAX_GRAPH_LENGTH or self.depth(graph) > MAX_CHAIN_DEPTH

    def eqn_weight(self, eqn: Eqn) -> int:
        """How many links an equation adds to a chain at most; for a region that is itself cut, what remains of it."""
        inner = max(map(self.depth, eqn.regions), default=1)
        if inner > MAX_CHAIN_DEPTH:
            flow = self.eqn_chains(eqn)
            inner = max(flow.head, *flow.through, *flow.tail)
        return max(inner, 1)

    def eqn_chains(self, eqn: Eqn) -> ChainLengths:
        """The chains through an equation: those of its regions, after these have been cut."""
        if not eqn.regions:
            return single_link(len(eqn.results))
        flows, count = list(map(self.flow_left, eqn.regions)), len(eqn.results)
        head = max([flow.head for flow in flows])
        # Without a dataflow rule any result may depend on any chain.
        if eqn.op.region_dataflow is None:
            ends = max([n for flow in flows for n in flow.tail], default=0)
            return ChainLengths((max(ends, head),) * count, (ends,) * count, head)
        through, tail = [1] * count, [1] * count
        for slot in eqn.op.region_dataflow(eqn).slots:
            places = [(flow, p) for flow, p in zip(flows, slot.returns, strict=False) if p is not None]
            if slot.result is not None and places:
                through[slot.result] = max([flow.through[p] for flow, p in places])
                tail[slot.result] = max([flow.tail[p] for flow, p in places])
        return ChainLengths(tuple(through), tuple(tail), head)

    def depth(self, graph: Graph) -> int:
        """The length of the longest chain, regions included."""
        self.graph_chains(graph)
        return self.depths[graph]

    def graph_chains(self, graph: Graph) -> ChainLengths:
        """The chains through a graph, from its params to its results."""
        found = self.flows.get(graph)
        if found is None:
            found, self.depths[graph], self.ends[graph] = self.measure_chains(graph, set())
            self.flows[graph] = found
        return found

    def flow_left(self, graph: Graph) -> ChainLengths:
        """The chains through a graph after it has been cut: segments end them, and a segment is one link."""
        if self.depth(graph) <= MAX_CHAIN_DEPTH:
            return self.graph_chains(graph)
        found = self.left.get(graph)
        if found is None:
            flow, _, _ = self.measure_chains(graph, self.eqns_on_long_chains(graph))
            through, tail = (tuple([max(n, 1) for n in lengths]) for lengths in (flow.through, flow.tail))
            found = self.left[graph] = ChainLengths(through, tail, max(flow.head, 1))
        return found

    def measure_chains(self, graph: Graph, cut: set[Eqn]) -> tuple[ChainLengths, int, dict[Value, int]]:
        """The chains through a graph without the equations in `cut`, the longest in it, and those that end in each
        value.
        """
        ends, reached, head, depth = dict[Value, int](), dict.fromkeys(graph.params, 0), 0, 0
        for eqn in graph.eqns:
            if is_fusible(eqn) and eqn not in cut:
                flow = self.eqn_chains(eqn)
                end = max([ends.get(v, 0) for v in eqn.operands])
                far = max([reached.get(v, NO_CHAIN) for v in eqn.operands])
                for r, through, tail in zip(eqn.results, flow.through, flow.tail, strict=True):
                    ends[r] = max(tail, through + end)
                    reached[r] = max(through + far, NO_CHAIN)
                head = max(head, flow.head + far)
                within = [n for r in eqn.regions if (n := self.depth(r)) <= MAX_CHAIN_DEPTH]
                depth = max([depth, flow.head + end, *[ends[r] for r in eqn.results], *within])
        through = tuple([reached.get(r, NO_CHAIN) for r in graph.results])
        return ChainLengths(through, tuple([ends.get(r, 0) for r in graph.results]), head), depth, ends

    def chains_ending_at(self, graph: Graph) -> dict[Value, int]:
        """For each value made by a fusible equation, the longest chain that ends in it."""
        self.graph_chains(graph)
        return self.ends[graph]

    def eqns_on_long_chains(self, graph: Graph) -> set[Eqn]:
        """The equations on a chain deeper than `MAX_CHAIN_DEPTH`."""
        before, after, found = self.chains_ending_at(graph), dict[Value, int](), set[Eqn]()
        for eqn in reversed(graph.eqns):
            if not eqn.results or eqn.results[0] not in before:
                continue
            flow, rests = self.eqn_chains(eqn), [after.get(r, 0) for r in eqn.results]
            length = max([flow.head, *[through + rest for through, rest in zip(flow.through, rests, strict=True)]])
            start = max([before.get(v, 0) for v in eqn.operands])
            ends = [before[r] + rest for r, rest in zip(eqn.results, rests, strict=True)]
            if max(*ends, start + length) > MAX_CHAIN_DEPTH:
                found.add(eqn)
            for v in eqn.operands:
                after[v] = max(after.get(v, 0), length)
        return found

    def cut(self, graph: Graph) -> tuple[EqnOrSegment, ...]:
        cutter, long = SegmentBuilder(graph), self.eqns_on_long_chains(graph)
        everywhere = len(graph.eqns) > MAX_GRAPH_LENGTH
        for eqn in graph.eqns:
            # What a standalone equation gives is placed on devices beside it.
            if eqn in long and (not isinstance(eqn.op.movement, Placement) or cutter.waits_for(eqn)):
                cutter.add_to_run(eqn, self.eqn_weight(eqn) * link_weight(eqn))
            elif (
                eqn.operands
                and not stays_inline(eqn)
                and (everywhere if is_fusion_barrier(eqn) else cutter.waits_for(eqn))
            ):
                cutter.add_to_run(eqn, 1)
            else:
                cutter.add_standalone(eqn)
        return cutter.finish()


# ---- Values that a gather reads many times, and that XLA would compute for each read: sums of gathered sums multiply


# The operations that are computed again before a value is stored: about the time of a call for a run of the program,
# and little beside the time that XLA takes to compile one more function.
MAX_RECOMPUTED = 10_000


def stored_before_gathers(graph: Graph) -> set[Value]:
    """The operands of gathers that are stored, so that nothing is recomputed too often. Cost: linear."""
    # The operations that XLA runs for one element of a value, from what is stored. A value of several readers is.
    work: dict[Value, int] = {}
    readers = Counter([*graph.results, *[v for e in graph.eqns for v in set(e.operands)]])
    stored: set[Value] = set()
    for eqn in graph.eqns:
        if "gather" in eqn.op.traits and (each := work.get(eqn.operands[0], 0)):
            operand = eqn.operands[0]
            if each * (elements(eqn.results[0]) - elements(operand)) > MAX_RECOMPUTED:
                stored.add(operand)
                work[operand] = 0
        if (each := work_of_element(eqn, work)) is not None:
            work.update({r: each for r in eqn.results if readers[r] == 1})
    return stored


def work_of_element(eqn: Eqn, work: dict[Value, int]) -> int | None:
    """The operations for one element of an equation's result if it is fused with its operands; None if it is not."""
    each = sum([work.get(v, 0) for v in eqn.operands])
    if eqn.op in AXIS_REDUCTIONS:
        return elements(eqn.operands[0]) // max(elements(eqn.results[0]), 1) * (each + 1)
    if eqn.op.elementwise:
        return each + 1
    return each if {"data movement", "gather"} & set(eqn.op.traits) and "scatter" not in eqn.op.traits else None


def elements(value: Value) -> int:
    return prod([n for n in value.type.shape if isinstance(n, int)]) if isinstance(value.type, Tensor) else 0


def cut_after(graph: Graph, stored: Set[Value]) -> tuple[EqnOrSegment, ...]:
    """The graph's equations, those that compute the stored values in a segment for each."""
    needed = set(stored)
    inside: set[Eqn] = set()
    for eqn in reversed(graph.eqns):
        if eqn.operands and not stays_inline(eqn) and not needed.isdisjoint(eqn.results):
            inside.add(eqn)
            needed.update(eqn.operands)
    builder = SegmentBuilder(graph)
    for eqn in graph.eqns:
        if eqn in inside:
            builder.add_to_run(eqn, 0)
            if not stored.isdisjoint(eqn.results):
                builder.flush()
        else:
            builder.add_standalone(eqn)
    return builder.finish()
