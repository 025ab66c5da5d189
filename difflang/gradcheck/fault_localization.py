"""Locates the equation at fault for a wrong derivative: each equation is checked alone, on its operands in the run.

If an equation with regions is wrong, the equations inside are checked first. If no equation is wrong by itself, the
graph is truncated: the first equation up to which the derivative is wrong is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from difflang.gradcheck.decision_replay import coarsest_precision
from difflang.gradcheck.directional_derivatives import (
    ROUNDING,
    DirectionalDerivative,
    GraphAtPoint,
    Mask,
    PreciseRun,
    active_mask,
    single_equation_graph,
)
from difflang.gradcheck.extended_precision import EPSILON, Array, cast, flatten_numbers, wide_type
from difflang.gradcheck.finite_differences import Row, estimate_slopes
from difflang.gradcheck.report import DerivativeComparison, DerivativeFault, Kink, compare_numbers
from difflang.ir.graph import Eqn, Graph
from difflang.ir.tensor_types import History
from difflang.ops.arrays.constants import stop
from difflang.passes.dce import dce

RecordedOperands = dict[Eqn, list[list[Array]]]
Program = Callable[..., Sequence[Any]]
# What is compared: mode, how it is computed, and against what.
FORWARD = ("forward mode", "exact", "differences")
REVERSE = ("reverse mode", "exact", "forward mode")
VALUE = ("value", "beside the derivative", "by itself")
BY_FORWARD, BY_REVERSE = ("forward mode", "differences"), ("reverse mode", "forward mode")
BY_VALUE = ("the rule", "the function")


def compare_modes(direction: DirectionalDerivative) -> tuple[DerivativeComparison, DerivativeComparison]:
    """Compare forward mode with usable differences, and reverse mode with forward mode."""
    d = direction
    return compare_numbers(FORWARD, d.forward, d.slopes.values, d.allowed, d.size, d.slopes.usable), compare_adjoint(d)


def compare_value(direction: DirectionalDerivative) -> DerivativeComparison:
    """Compare the value that each mode gives with that of the function by itself."""
    d = direction
    allowed = d.rounding * d.value_size
    forward, reverse = (compare_numbers(VALUE, found, d.values, allowed, d.value_size) for found in d.mode_values)
    return forward.merge(reverse)


def compare_at_kinks(direction: DirectionalDerivative) -> DerivativeComparison:
    """Check that forward mode lies between the slopes on both sides of a kink."""
    d = direction
    outside = d.slopes.kinked & np.isfinite(d.slopes.sides[0]) & np.isfinite(d.slopes.sides[1])
    allowed = np.where(d.slopes.between_sides(d.forward), np.inf, 0)
    return compare_numbers(FORWARD, d.forward, d.slopes.values, allowed, d.size, outside)


def compare_adjoint(direction: DirectionalDerivative) -> DerivativeComparison:
    """Check <ct, J dx> = <Jᵀ ct, dx>."""
    forward, reverse, bound = direction.product
    got, want = np.array([reverse]), np.array([forward])
    size = np.array([bound / direction.rounding])
    return compare_numbers(REVERSE, got, want, np.array([bound]), size)


class FaultSearch(Struct):
    """A search through the equations of a graph and its regions. `kinks` collects points without a derivative."""

    recorded_operands: RecordedOperands
    rng: np.random.Generator
    kinks: list[Kink] = field(default_factory=list[Kink])
    within: bool = False  # whether the equations are those of another equation's rule

    def find_fault(self, graph: Graph, inside: bool = False) -> DerivativeFault | None:
        """The first equation at fault, in the order of the graph."""
        # Regions are searched if their equation is suspect; then completely, as not every run of an equation was
        # recorded, so an inner equation with regions may look right by chance.
        for eqn in graph.eqns:
            seen = len(self.kinks)
            found = first_fault(self.check_equation(eqn, x) for x in self.recorded_operands.get(eqn, ()))
            if eqn.regions and (inside or found is not None or len(self.kinks) > seen):
                del self.kinks[seen:]
                found = first_fault(self.find_fault(region, True) for region in eqn.regions) or found
            if found is not None:
                return found
        return None

    def check_equation(self, eqn: Eqn, exact: Sequence[Array]) -> DerivativeFault | None:
        """The fault of one equation by itself, if it has one."""
        wrt = differentiable_operands(eqn)
        if not any(wrt) or not any(r.type.tangent is not None for r in eqn.results):
            return None
        if eqn.op.inactive:
            return None if eqn.op is stop else self.check_inactive(eqn, exact, wrt)
        direction = GraphAtPoint(single_equation_graph(eqn), exact, wrt).random_derivative(self.rng)
        found, (forward, reverse) = compare_value(direction), compare_modes(direction)
        if found.worst is not None:
            return DerivativeFault(eqn, "its value", BY_VALUE, found.worst)
        if direction.at_kink:
            self.kinks.append(Kink(eqn, "has no slope here, or more than one"))
            forward = forward if forward.worst is not None else compare_at_kinks(direction)
        if forward.worst is not None:
            return DerivativeFault(eqn, "its derivative", BY_FORWARD, forward.worst)
        if reverse.worst is None:
            return None
        return self.find_transpose_fault(eqn, direction) or DerivativeFault(
            eqn, "its transpose", BY_REVERSE, reverse.worst
        )

    def find_transpose_fault(self, eqn: Eqn, direction: DirectionalDerivative) -> DerivativeFault | None:
        """The fault in the transpose of another op that the equation's derivative rule uses."""
        met: RecordedOperands = {}
        push = PreciseRun.evaluate(direction.push.graph, direction.push.exact, met)
        for inner in push.graph.eqns if not self.within and not eqn.regions else ():
            if inner.op is not eqn.op:
                search = FaultSearch(met, self.rng, within=True)
                if found := first_fault(search.check_equation(inner, x) for x in met.get(inner, ())):
                    return found
        return None

    def check_inactive(self, eqn: Eqn, exact: Sequence[Array], wrt: Mask) -> DerivativeFault | None:
        """The fault of an inactive op whose results do change with its operands."""
        plain = PreciseRun.evaluate(single_equation_graph(eqn), exact)
        # No random direction: an inactive op such as `floor` is constant along any.
        directions = [np.ones_like(x) if w else None for x, w in zip(exact, wrt, strict=True)]

        def at(t: float, _: bool) -> Any:
            arrays = [x if d is None else x + np.longdouble(t) * d for x, d in zip(exact, directions, strict=True)]
            return flatten_numbers(PreciseRun.evaluate(plain.graph, arrays).results)

        size = np.abs(flatten_numbers(plain.results))
        found = estimate_slopes(at, size, max(plain.epsilon, EPSILON))
        none = np.zeros_like(found.values)
        answer = compare_numbers(FORWARD, none, found.values, 16 * found.errors + 1e-9 * size, size, found.usable)
        if answer.worst is None:
            return None
        return DerivativeFault(eqn, "that it has no derivative", BY_FORWARD, answer.worst)

    # ---- Compiled code

    def find_lowering_fault(
        self, graph: Graph, compile: Callable[[Graph], Program], inside: bool = False
    ) -> DerivativeFault | None:
        """The first equation whose compiled results differ from the interpreted ones."""
        for eqn in graph.eqns:
            runs = self.recorded_operands.get(eqn, ())
            found = first_fault(check_lowering(eqn, x, self.rng, compile) for x in runs)
            if eqn.regions and (inside or found is not None):
                found = first_fault(self.find_lowering_fault(r, compile, True) for r in eqn.regions) or found
            if found is not None:
                return found
        return None


def first_fault(found: Iterable[DerivativeFault | None]) -> DerivativeFault | None:
    return next(filter(None, found), None)


def differentiable_operands(eqn: Eqn) -> Mask:
    """The operands that an equation may have a tangent in."""
    rules = eqn.op.operand_rules.of_operands
    found = active_mask([v.type for v in eqn.operands])
    if not rules:
        # A rule of the program takes no tangent of the top-level values that it reads.
        taken = eqn.attrs.get("wrt", found)
        return tuple([f and t for f, t in zip(found, taken, strict=True)])
    return tuple([f and rules[min(i, len(rules) - 1)] is not None for i, f in enumerate(found)])


def check_lowering(
    eqn: Eqn, exact: Sequence[Array], rng: np.random.Generator, compile: Callable[[Graph], Program]
) -> DerivativeFault | None:
    """The fault of one equation when it is compiled by itself."""
    values = (*eqn.operands, *eqn.results)
    if any(isinstance(v.type, History) for v in values) or eqn.op.is_derivative:
        return None
    wide = PreciseRun.evaluate(single_equation_graph(eqn), exact)
    answer = compare_with_exact(
        ("it", "compiled"), list(compile(wide.graph)(*wide.arrays)), wide, wide.results, wide.all_sensitivities(rng)
    )
    return (
        None if answer.worst is None else DerivativeFault(eqn, "its lowering", ("XLA", "the reference"), answer.worst)
    )


def compare_with_exact(
    names: tuple[str, str], got: Sequence[Any], wide: PreciseRun, exact: Sequence[Array], size: Row
) -> DerivativeComparison:
    """Compare results in a program's own numbers with exact ones, allowing for rounding.

    `size` is the size of the terms of each number; `names` are the mode and the engine.
    """
    numbers = flatten_numbers([cast(x, wide_type(r.type)) for x, r in zip(got, wide.graph.results, strict=True)])
    spacing, least = coarsest_precision(wide.graph)
    allowed = ROUNDING * (spacing * size + least)
    return compare_numbers((*names, "exact"), numbers, flatten_numbers(exact), allowed, size)


# ---- Bisection


def bisect_fault(
    graph: Graph, what: str, wrong: Callable[[Graph], DerivativeComparison | None]
) -> DerivativeFault | None:
    """The first equation up to which a graph is wrong, by bisection. `wrong` checks a truncated graph."""
    ends = [e for e in graph.eqns if any(r.type.tangent is not None for r in e.results) and not e.op.inactive]
    low, high, found = 0, len(ends) - 1, None
    while low <= high:
        middle = (low + high) // 2
        results = [r for r in ends[middle].results if not isinstance(r.type, History)]
        answer = wrong(dce(graph.with_results(results))) if results else None
        if answer is None or answer.worst is None:
            low = middle + 1
        else:
            found = DerivativeFault(
                ends[middle], f"{what} up to here", (f"{answer.mode}, {answer.how},", answer.against), answer.worst
            )
            high = middle - 1
    return found
