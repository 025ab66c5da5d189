"""Linearity analysis: proves that a graph is linear in some of its params, or finds the first equation that is not.

A value is zero, fixed (independent of those params), linear in them, or open: its definition is unknown, in graphs that
are only checked. Any other dependence is an error, so a graph that passes is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.region_dataflow import RegionSlot
from difflang.ir.tensor_types import History


class LinearityStatus(Enum):
    """How a value depends on the linear params."""

    ZERO = "zero"
    FIXED = "fixed"
    LINEAR = "linear"
    OPEN = "open"


class LinearityFault(Enum):
    """Why a step is not linear."""

    FUNCTION = "function"  # the op is not linear in this operand
    PRODUCT = "product"  # of two values that are linear
    OFFSET = "offset"  # a value that does not depend on the params is added or concatenated
    CONDITION = "condition"  # a bool or an integer computed from a linear value
    CHOICE = "choice"  # one branch is linear and the other is not; or a loop variable before and after a step
    RESULT = "result"  # a result that does not depend on the params and is not zero


class NotLinear(Exception):
    """A graph is not linear. `eqn` is the step, `operand` the operand at fault, `outer` the equation around it."""

    def __init__(self, fault: LinearityFault, eqn: Eqn | None, operand: int | None = None) -> None:
        super().__init__(fault.value)
        self.fault, self.eqn, self.operand = fault, eqn, operand
        self.outer = eqn


Statuses = tuple[LinearityStatus, ...]


def prove_linear(graph: Graph, linear: Sequence[bool]) -> None:
    """Prove that every result with a tangent is linear in the `linear` params together. Errors: NotLinear."""
    given = tuple([LinearityStatus.LINEAR if is_linear else LinearityStatus.FIXED for is_linear in linear])
    for status, result in zip(LinearityProof().graph(graph, given), graph.results, strict=True):
        if status is LinearityStatus.FIXED and result.type.tangent is not None:
            raise NotLinear(LinearityFault.RESULT, next((e for e in graph.eqns if result in e.results), None))


class LinearityProof:
    """Walks a graph and its regions, each once for each combination of statuses of its params."""

    def __init__(self) -> None:
        self.done: dict[tuple[Graph, Statuses], Statuses] = {}

    def graph(self, graph: Graph, given: Statuses) -> Statuses:
        key = graph, given
        if key not in self.done:
            status: dict[Value, LinearityStatus] = dict(zip(graph.params, given, strict=True))
            for eqn in graph.eqns:
                operands = tuple([status.get(v, LinearityStatus.OPEN) for v in eqn.operands])
                status.update(zip(eqn.results, self.results(eqn, operands), strict=True))
            self.done[key] = tuple([status.get(r, LinearityStatus.OPEN) for r in graph.results])
        return self.done[key]

    def results(self, eqn: Eqn, given: Statuses) -> Sequence[LinearityStatus]:
        if not eqn.results and not eqn.regions:  # a print
            return []
        if eqn.regions and eqn.op.region_dataflow is not None:
            try:
                return self.through_regions(eqn, given)
            except NotLinear as fault:
                fault.outer = eqn
                raise
        rules = eqn.op.equation_rules
        if rules is not None and rules.linear_in is not None:
            return [linear_op_status(eqn, given, rules.linear_in(eqn))] * len(eqn.results)
        if eqn.regions:
            return [region_status(eqn, given)] * len(eqn.results)
        return [op_status(eqn, given)] * len(eqn.results)

    def through_regions(self, eqn: Eqn, given: Statuses) -> Sequence[LinearityStatus]:
        """The statuses of results of regions that declare their dataflow: a fixed point over the carries of a loop."""
        assert eqn.op.region_dataflow is not None
        slots = eqn.op.region_dataflow(eqn).slots
        inside = {s.operand for s in slots}
        # Operands in no slot are predicates, limits and counts: they may not depend on the linear params.
        for i, status in enumerate(given):
            if i not in inside and status is LinearityStatus.LINEAR:
                raise NotLinear(LinearityFault.CONDITION, eqn, i)
        held = [LinearityStatus.FIXED if s.operand is None else given[s.operand] for s in slots]
        while True:
            found = self.run_regions(eqn, slots, held)
            next_held = [f if is_carried(s) else h for f, h, s in zip(found, held, slots, strict=True)]
            if next_held == held:
                break
            held = next_held
        results = [LinearityStatus.FIXED] * len(eqn.results)
        for slot, status in zip(slots, found, strict=True):
            if slot.result is not None:
                results[slot.result] = status
        return results

    def run_regions(
        self, eqn: Eqn, slots: Sequence[RegionSlot], held: Sequence[LinearityStatus]
    ) -> list[LinearityStatus]:
        """The statuses of the slots after the regions ran once: what they return, or else as before."""
        # A carry also keeps its status on entry, as the loop may run no step at all.
        made: list[list[LinearityStatus]] = [[h] if is_carried(s) else [] for s, h in zip(slots, held, strict=True)]
        for number, region in enumerate(eqn.regions):
            params = [LinearityStatus.FIXED] * len(region.params)
            for slot, status in zip(slots, held, strict=True):
                if slot.params and (place := slot.params[number]) is not None:
                    params[place] = status
            results = self.graph(region, tuple(params))
            for slot, statuses in zip(slots, made, strict=True):
                if slot.returns and (place := slot.returns[number]) is not None:
                    statuses.append(results[place])
        return [join_statuses(eqn, m) if m else h for m, h in zip(made, held, strict=True)]


def is_carried(slot: RegionSlot) -> bool:
    """Whether the slot's result enters the next step."""
    return slot.operand is not None and slot.result is not None


def join_statuses(eqn: Eqn, statuses: Sequence[LinearityStatus]) -> LinearityStatus:
    """The status of a value that is one of these at run time. Errors: NotLinear for both linear and fixed."""
    kinds = set(statuses) - {LinearityStatus.ZERO}
    if LinearityStatus.OPEN in kinds:
        return LinearityStatus.OPEN
    if len(kinds) > 1:
        raise NotLinear(LinearityFault.CHOICE, eqn)
    return kinds.pop() if kinds else LinearityStatus.ZERO


def region_status(eqn: Eqn, given: Statuses) -> LinearityStatus:
    """The status of an equation with regions of unknown dataflow: a derivative, in checked graphs, or a rule."""
    if LinearityStatus.LINEAR not in given:
        return LinearityStatus.OPEN if LinearityStatus.OPEN in given else LinearityStatus.FIXED
    if eqn.op.is_derivative:
        return LinearityStatus.OPEN
    raise NotLinear(LinearityFault.FUNCTION, eqn, given.index(LinearityStatus.LINEAR))


def op_status(eqn: Eqn, given: Statuses) -> LinearityStatus:
    if not eqn.operands:
        return LinearityStatus.ZERO if is_zero_eqn(eqn) else LinearityStatus.FIXED
    rules = eqn.op.operand_rules.transpose
    if rules is None:
        if LinearityStatus.LINEAR in given:
            kind = (
                LinearityFault.CONDITION
                if all(r.type.tangent is None for r in eqn.results)
                else LinearityFault.FUNCTION
            )
            raise NotLinear(kind, eqn, given.index(LinearityStatus.LINEAR))
        return LinearityStatus.OPEN if LinearityStatus.OPEN in given else LinearityStatus.FIXED
    return linear_op_status(eqn, given, tuple([rules[min(i, len(rules) - 1)] is not None for i in range(len(given))]))


def linear_op_status(eqn: Eqn, given: Statuses, linear: Sequence[bool]) -> LinearityStatus:
    """An equation that is linear in some operands: in each by itself if the op is multilinear, else together."""
    for i, (status, here) in enumerate(zip(given, linear, strict=True)):
        if status is LinearityStatus.LINEAR and not here:
            raise NotLinear(LinearityFault.FUNCTION, eqn, i)
    inside = [s for s, here in zip(given, linear, strict=True) if here]
    # A product is zero if one factor is, and linear if exactly one factor is; a sum needs all terms linear.
    if eqn.op.operand_rules.linear_in_each:
        return product_status(eqn, inside, given)
    if all(s is LinearityStatus.ZERO for s in inside):
        return LinearityStatus.ZERO
    if LinearityStatus.OPEN in inside:
        return LinearityStatus.OPEN
    if LinearityStatus.LINEAR in inside and LinearityStatus.FIXED in inside:
        at = next(
            i for i, (s, here) in enumerate(zip(given, linear, strict=True)) if here and s is LinearityStatus.FIXED
        )
        raise NotLinear(LinearityFault.OFFSET, eqn, at)
    return LinearityStatus.LINEAR if LinearityStatus.LINEAR in inside else LinearityStatus.FIXED


def product_status(eqn: Eqn, inside: Sequence[LinearityStatus], given: Statuses) -> LinearityStatus:
    if LinearityStatus.ZERO in inside:
        return LinearityStatus.ZERO
    if inside.count(LinearityStatus.LINEAR) > 1:
        raise NotLinear(LinearityFault.PRODUCT, eqn, given.index(LinearityStatus.LINEAR))
    if LinearityStatus.OPEN in given:
        return LinearityStatus.OPEN
    return LinearityStatus.LINEAR if LinearityStatus.LINEAR in inside else LinearityStatus.FIXED


def is_zero_eqn(eqn: Eqn) -> bool:
    """Whether an equation without operands gives zeros only."""
    if "value" in eqn.attrs:
        return bool(eqn.attrs["value"] == 0)
    data: Any = eqn.attrs.get("data")
    return all(x == 0 for x in data) if isinstance(data, tuple) else isinstance(eqn.results[0].type, History)
