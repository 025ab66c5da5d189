"""Values that a gather reads many times are stored first, where XLA on the CPU would compute them for each read.

XLA fuses a gather with what computes its operand, sums included. A sum of gathered sums of gathered sums is then
computed for each read of a read, which multiplies from gather to gather. The equations behind such a value become a
segment that XLA does not inline (`outlining`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from math import prod

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.lower.cpu.outlining import EqnOrSegment, SegmentBuilder, stays_inline
from difflang.ops.arrays.axis_reductions import AXIS_REDUCTIONS

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
