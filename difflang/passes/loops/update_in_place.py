"""Writes into arrays touch only what they write: sums with zeros but for a window, and reads before writes.

The transpose of a read is an array of zeros but for what was read, added to the cotangent of the whole array: in a loop
that is a pass over the array at each step. The transpose of a write reads a window of a cotangent and sets it to zero.
XLA updates an array in place only if everything that reads it before comes first by data dependence; otherwise it
copies the array at each step, however small the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder, rewrite_graphs
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update, scatter_add
from difflang.ops.arrays.swap_item import swap_window
from difflang.ops.elementwise.comparison_and_logic import logical_or
from difflang.ops.elementwise.linear_arithmetic import add
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type

NEUTRAL = {add: 0, logical_or: False}  # what an operation leaves the other operand as it is with


def update_in_place(graph: Graph) -> Graph:
    """Add what is zero but for a window to that window; in loops, read and write the same window by one `swap_window`.

    A sum keeps -0.0 where it adds nothing. Cost: linear; a graph that is used many times is rewritten once.
    """
    steps = {region for g in graphs_postorder(graph)[0] for e in g.eqns if e.op is loop for region in e.regions[:1]}

    def change(old: Graph, inside: Graph) -> Graph:
        new = add_to_windows(inside)
        return swap_windows(new) if old in steps else new

    return rewrite_graphs(graph, change)


def add_to_windows(graph: Graph) -> Graph:
    """Add a window that stands in zeros to the window of the other term."""
    if not any(e.op in (dynamic_update, scatter_add) for e in graph.eqns):
        return graph
    makers = {r: e for e in graph.eqns for r in e.results}
    readers = Counter([*graph.results, *[v for e in graph.eqns for v in e.operands]])
    eqns: list[Eqn] = []
    to: dict[Value, Value] = {}
    for old in graph.eqns:
        eqn = old.replace_operands(to)
        found = windowed_sum(eqn, makers, readers) if eqn.op in NEUTRAL else None
        if found is None:
            eqns.append(eqn)
            continue
        eqns += found
        to[eqn.results[0]] = found[-1].results[0]
        makers[found[-1].results[0]] = found[-1]
        readers[found[-1].results[0]] = readers[eqn.results[0]]
    return graph.with_eqns(eqns).replace_results(to)


def windowed_sum(eqn: Eqn, makers: Mapping[Value, Eqn], readers: Mapping[Value, int]) -> list[Eqn] | None:
    """The equations of a sum of which one term is zero but for a window or some items, the last of them its result."""
    for total, term in (eqn.operands, eqn.operands[::-1]):
        write = makers.get(term)
        if total is term or write is None or write.op not in (dynamic_update, scatter_add) or readers[term] > 1:
            continue
        base = makers.get(write.operands[0])
        if (
            base is None
            or base.op is not const
            or base.attrs.get("value") != NEUTRAL[eqn.op]
            or term.type == write.operands[1].type
        ):
            continue
        builder = Builder(span=eqn.span)
        reads = (total, *write.operands[1:])
        whole, part, *places = [builder.param(v.type) for v in reads]
        if write.op is dynamic_update:
            (window,) = builder.emit(dynamic_slice, [whole, *places], sizes=tensor_type(part).shape)
            (part,) = builder.emit(eqn.op, [window, part])
        builder.emit(write.op, [whole, part, *places], **write.attrs)
        to = dict(zip((whole, *builder.params[1:]), reads, strict=True))
        return [e.replace_operands(to) for e in builder.eqns]
    return None


def swap_windows(graph: Graph) -> Graph:
    """Where a step reads a window and overwrites it with something else, do both by one equation."""
    reads = {e.operands: (i, e) for i, e in enumerate(graph.eqns) if e.op is dynamic_slice}
    at = {r: i for i, e in enumerate(graph.eqns) for r in e.results}
    swaps: dict[int, Eqn] = {}  # by the position of the equation that each of them replaces
    gone: set[int] = set()
    for i, write in enumerate(graph.eqns):
        if write.op is not dynamic_update:
            continue
        x, update, *starts = write.operands
        j, read = reads.get((x, *starts), (i, None))
        if read is None or read.results[0].type != update.type or update.type == x.type:
            continue
        first, value = min(i, j), at.get(update, -1)
        if value >= first and graph.eqns[value].operands:
            continue  # it may be or depend on what is read, and then the read comes first in any case
        del reads[read.operands]  # another write of that window is a copy in any case
        swaps[first] = Eqn(swap_window, write.operands, (*write.results, *read.results), {}, (), write.span)
        gone.add(max(i, j))
        gone.update([value] if value > first else [])
    if not swaps:
        return graph
    eqns: list[Eqn] = []
    moved = {e.results[0]: e for i, e in enumerate(graph.eqns) if i in gone and not e.operands}
    for i, eqn in enumerate(graph.eqns):
        if i in swaps:
            eqns += [moved.pop(v) for v in swaps[i].operands if v in moved]
            eqns.append(swaps[i])
        elif i not in gone:
            eqns.append(eqn)
    return graph.with_eqns(eqns)
