"""Integers and conditions that are computed from constants alone, as positions of nested counters are."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from difflang.ir.array_types import Array
from difflang.ir.graph import Eqn, ExternalObject, Graph, Value
from difflang.ir.interpreter import evaluate_eqn
from difflang.ir.op import Fill
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, INTEGERS, Tensor
from difflang.ops.arrays.constants import const
from difflang.ops.control.cond import cond
from difflang.ops.elementwise.comparison_and_logic import logical_and, logical_or
from difflang.ops.op_factories import static_size
from difflang.passes.graph_levels import EquationEmitter, replace_equations, rewrite_each_graph

MAX_NUMBERS = 1 << 18  # constants of a program are small


class ConstantIntegers:
    """The integers in a graph that are known: computed from constants alone."""

    def __init__(self, graph: Graph) -> None:
        self.makers = {r: e for e in graph.eqns for r in e.results}
        self.found: dict[Value, Array | None] = {}

    def is_zero(self, value: Value) -> bool:
        """Whether an array is a constant of zeros."""
        eqn = self.makers.get(value)
        return eqn is not None and isinstance(eqn.op.movement, Fill) and not eqn.operands and eqn.attrs["value"] == 0

    def numbers(self, value: Value) -> Array | None:
        """The numbers of a value, if it is known."""
        todo = [value]  # not by recursion: chains are longer than Python's stack
        while todo:
            missing = [v for v in self.sources(todo[-1]) if v not in self.found]
            todo += missing
            if not missing:
                last = todo.pop()
                self.found[last] = self.computed(last)
        return self.found[value]

    def forget(self, values: Iterable[Value]) -> None:
        """Free the numbers of values that nobody reads any more."""
        for value in values:
            self.found.pop(value, None)

    def sources(self, value: Value) -> tuple[Value, ...]:
        """From what it may be computed."""
        return self.makers[value].operands if value not in self.found and self.is_computed(value) else ()

    def is_computed(self, value: Value) -> bool:
        """Whether it is small, and computed from its operands alone: no named sizes, no function of Python."""
        eqn, type = self.makers.get(value), value.type
        small = isinstance(type, Tensor) and (type.dtype is BOOL or type.dtype in INTEGERS) and is_small(type)
        if not small or eqn is None or eqn.regions or eqn.op.effect or len(eqn.results) > 1:
            return False
        parts = [part for a in eqn.attrs.values() for part in (a if isinstance(a, tuple) else (a,))]
        return not any([isinstance(part, (Poly, ExternalObject)) for part in parts])

    def computed(self, value: Value) -> Array | None:
        if value in self.found or not self.is_computed(value):
            return self.found.get(value)
        eqn = self.makers[value]
        operands = [self.found[v] for v in eqn.operands]
        if any(x is None for x in operands):
            return decided_by_one(eqn, operands)
        # A quotient by 0 is no result: a check of the run finds it, or nobody reads it.
        with np.errstate(all="ignore"):
            return np.asarray(evaluate_eqn(eqn, operands)[0])


def decided_by_one(eqn: Eqn, operands: list[Array | None]) -> Array | None:
    """What `and` or `or` gives whatever its unknown operand is."""
    if eqn.op not in (logical_and, logical_or):
        return None
    return next((x for x in operands if x is not None and (x == (eqn.op is logical_or)).all()), None)


def is_small(type: Tensor) -> bool:
    return all([isinstance(n, int) for n in type.shape]) and prod(map(static_size, type.shape)) <= MAX_NUMBERS


def fold_known_integers(graph: Graph) -> Graph:
    """Replace integers and conditions that are everywhere the same in every run by constants. Cost: linear."""
    return rewrite_each_graph(graph, fold_level)


def fold_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    facts = ConstantIntegers(graph)
    last = {v: e for e in graph.eqns for v in e.operands}
    eqns: list[Eqn] = []
    for eqn in graph.eqns:
        eqns.append(folded_integers(facts, eqn))
        facts.forget([v for v in {*eqn.operands, *eqn.results} if last.get(v, eqn) is eqn])
    return graph.with_eqns(eqns)


def folded_integers(facts: ConstantIntegers, eqn: Eqn) -> Eqn:
    """The equation, or a constant in its place."""
    type = eqn.results[0].type if len(eqn.results) == 1 else None
    if not isinstance(type, Tensor) or not eqn.operands:
        return eqn
    found = facts.numbers(eqn.results[0])
    if found is None or not found.size or found.min() != found.max():
        return eqn
    return Eqn(const, (), eqn.results, {"value": found.flat[0].item(), "type": type}, (), eqn.span)


def select_known_branches(graph: Graph) -> Graph:
    """Replace branches whose conditions are known by the selected region. The other one need not have valid types."""
    return rewrite_each_graph(graph, select_in_level)


def select_in_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    while True:  # a selected region may read a condition that is known out here
        facts = ConstantIntegers(graph)
        known = {e: facts.numbers(e.operands[0]) for e in graph.eqns if e.op is cond}
        selected = {e: inlined_region(e, bool(number)) for e, number in known.items() if number is not None}
        if not selected:
            return graph
        graph = replace_equations(graph, selected)


def inlined_region(eqn: Eqn, condition: bool) -> EquationEmitter:
    """Emits the region of a branch for a condition."""
    region = eqn.regions[0 if condition else 1]
    return lambda builder, env: builder.inline(region, *[env[v] for v in eqn.operands[1:]])
