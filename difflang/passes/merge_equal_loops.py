"""Merges loops: equal ones, of a function and its derivative, run once; and a loop reads the histories of one loop.

Histories are only made by loops of run-time length: others save arrays, which are read by index.
"""

from __future__ import annotations

from collections.abc import Hashable

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.structural_equality import StructuralKeys, attrs_key
from difflang.ir.tensor_types import History, sequence_item_type
from difflang.ops.loop.loop_op import loop
from difflang.passes.dce import dce
from difflang.passes.graph_levels import rewrite_each_graph


def merge_history_sources(graph: Graph) -> Graph:
    """The graph in which each loop reads histories of one loop only, which forwards those of earlier loops."""
    # Linear, times the number of loops that one reads.
    return rewrite_each_graph(graph, lambda inner: inner.with_eqns(HistorySourceMerger(list(inner.eqns)).eqns))


class HistorySourceMerger:
    """Rewrites the equations of one graph."""

    def __init__(self, eqns: list[Eqn]) -> None:
        self.eqns = eqns
        self.maker: dict[Value, int] = {}
        self.forwarded: dict[tuple[int, Value], Value] = {}
        self.original_history: dict[Value, Value] = {}  # from a forwarded history to that of the loop that made it
        for number, eqn in enumerate(eqns):
            if is_dynamic_loop(eqn):
                self.read_of_one(number)
            self.maker |= {r: number for r in self.eqns[number].results if isinstance(r.type, History)}

    def read_of_one(self, number: int) -> None:
        eqn = self.eqns[number]
        makers = [self.maker[v] for v in eqn.operands if v in self.maker]
        if len(set(makers)) < 2:
            return
        last = max(makers)
        if not is_dynamic_loop(self.eqns[last]):
            return
        operands = [self.forward_history(last, v) if self.maker.get(v, last) != last else v for v in eqn.operands]
        self.eqns[number] = Eqn(eqn.op, tuple(operands), eqn.results, eqn.attrs, eqn.regions, eqn.span)
        self.read_of_one(last)  # the histories that it forwards are new operands of it

    def forward_history(self, maker: int, history: Value) -> Value:
        """The history of an earlier loop as a result of the loop `maker`, which reads it and saves it again."""
        history = self.original_history.get(history, history)
        if (maker, history) in self.forwarded:
            return self.forwarded[maker, history]
        eqn = self.eqns[maker]
        step, *go = eqn.regions
        operands, params = eqn.operands, step.params
        reads = [self.original_history.get(v, v) for v in operands]
        if history in reads:
            param = params[reads.index(history)]
        else:
            param = Value(sequence_item_type(history.type), params[0].home, history.hint)
            operands, params = (*operands, history), (*params, param)
        result = Value(history.type, eqn.results[0].home, history.hint)
        step = Graph(params, step.eqns, (*step.results, param), step.name)
        self.eqns[maker] = Eqn(eqn.op, operands, (*eqn.results, result), eqn.attrs, (step, *go), eqn.span)
        self.maker[result], self.original_history[result] = maker, history
        self.forwarded[maker, history] = result
        return result


def is_dynamic_loop(eqn: Eqn) -> bool:
    """Whether it is a loop whose number of steps is only known at run time."""
    return "reverse" in eqn.attrs and "carry" in eqn.attrs and eqn.attrs["length"] is None


# ---- Equal loops

CarryKey = tuple[tuple[Value, ...], Hashable]


def merge_equal_loops(graph: Graph) -> Graph:
    """Replace a loop without outputs by a later loop with the same carry and some outputs. Cost: linear in loops."""
    # A function's own loop and that of its derivative, which saves residuals as well.
    keys = StructuralKeys()
    return rewrite_each_graph(graph, lambda inner: merge_level(inner, keys))


def merge_level(graph: Graph, keys: StructuralKeys) -> Graph:
    eqns: list[Eqn | None] = list(graph.eqns)
    made = {r: number for number, eqn in enumerate(graph.eqns) for r in eqn.results}
    same: dict[Value, Value] = {}
    plain: dict[CarryKey, int] = {}  # loops without outputs, by their carry
    for number, eqn in enumerate(graph.eqns):
        carried = carry_key(eqn, keys) if eqn.op is loop and not eqn.effectful else None
        if carried is None:
            continue
        if len(eqn.results) == carry_result_count(eqn):
            plain.setdefault(carried, number)
        elif carried in plain and all(made.get(v, -1) < plain[carried] for v in eqn.operands):
            first = plain.pop(carried)
            same.update(zip(graph.eqns[first].results, eqn.results, strict=False))
            eqns[first], eqns[number] = eqn, None
    if not same:
        return graph
    return graph.with_eqns([e.replace_operands(same) for e in eqns if e is not None]).replace_results(same)


def carry_result_count(eqn: Eqn) -> int:
    """The number of results that are the step count and the carry."""
    carry = eqn.attrs["carry"]
    assert isinstance(carry, int)
    return 1 + carry


def carry_key(eqn: Eqn, keys: StructuralKeys) -> CarryKey | None:
    """The operands and the program that compute the carry of a loop; None without a carry."""
    carry = eqn.results[1 : carry_result_count(eqn)]
    if not carry:
        return None
    # Dead code elimination leaves the part of the loop that its carry depends on.
    alone = dce(Graph(tuple(dict.fromkeys(eqn.operands)), (eqn,), tuple(carry), ""))
    (core,) = alone.eqns
    return core.operands, (attrs_key(core.attrs), tuple([keys.graph_key(g) for g in core.regions]))
