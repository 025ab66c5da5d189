"""Compares the rule of one call with its function: value, tangent and transpose, or the inverse.

The function is a black box here: its slopes are differences of whole runs in extended precision, each on its own
path. So an iteration that stops by a test, and a body with `stop`, are compared as the map that they compute.
`gradient_check` compares a program's derivative with that of the path taken instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from difflang.gradcheck.decision_replay import DOUBLE, ReplayRun, coarsest_precision
from difflang.gradcheck.directional_derivatives import (
    ROUNDING,
    DirectionalDerivative,
    GraphAtPoint,
    single_equation_graph,
)
from difflang.gradcheck.extended_precision import Array, flatten_numbers, random_direction, step_along
from difflang.gradcheck.fault_localization import differentiable_operands
from difflang.gradcheck.finite_differences import Row
from difflang.gradcheck.report import DerivativeComparison, NumberDifference, compare_numbers
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import StepLimitExceeded

MAX_STEPS = 20_000  # equations of one run of the function


class RuleFault(Struct, frozen=True):
    """A rule that disagrees with its function: in its value, its tangent, its transpose or its inverse."""

    component: str
    difference: NumberDifference
    operand: str = ""  # the parameter in which the derivative is wrong, if it is wrong in one


class RuleResult(Struct, frozen=True):
    """How many numbers of a rule were compared, and its fault."""

    numbers: int
    fault: RuleFault | None = None


class LimitedRun(ReplayRun):
    """A run that takes its own path, of limited length. Errors: StepLimitExceeded."""

    left: int = MAX_STEPS

    def step(self, eqn: Eqn, operands: list[Array]) -> list[Array]:
        self.left -= 1
        if self.left < 0:
            raise StepLimitExceeded
        return super().step(eqn, operands)


class BlackBoxAtPoint(GraphAtPoint):
    """A graph whose slopes are differences of runs that each take their own path."""

    def results_along(self, tangents: Sequence[Array], t: float, watch: bool) -> Row:
        rest = iter(tangents)
        arrays = [step_along(x, next(rest), t) if w else x for x, w in zip(self.exact, self.wrt, strict=True)]
        run = LimitedRun()
        results = run(self.primal.widening.graph(self.graph), *arrays)
        return flatten_numbers([results[i] for i in self.moving])


def compare_rule_call(
    eqn: Eqn, operands: Sequence[Array], rng: np.random.Generator, status_results: int = 0
) -> RuleResult:
    """Compare the rule of a call with its function at these operands, which are in wide or in the call's own numbers.

    The last `status_results` results say whether a check failed: a rule that fails gives no number to compare.
    Errors: StepLimitExceeded if the function takes too long.
    Cost: between 20 and 80 runs of the function.
    """
    graph, wrt = single_equation_graph(eqn), differentiable_operands(eqn)
    if not any(wrt) or not any(r.type.tangent is not None for r in eqn.results):
        return RuleResult(0)
    subject = BlackBoxAtPoint(graph, operands, wrt)
    compare = partial(compare_direction, precision=coarsest_precision(graph)[0], status_results=status_results)
    found = compare(subject.random_derivative(rng))
    if found.fault is None or found.fault.component != "derivative":
        return found
    for tangents, name in single_operand_directions(subject, eqn, rng):
        one = compare(subject.derivative_along(tangents, rng)).fault
        if one is not None:
            return RuleResult(found.numbers, RuleFault(one.component, one.difference, name))
    return found


def single_operand_directions(
    subject: GraphAtPoint, eqn: Eqn, rng: np.random.Generator
) -> list[tuple[list[Array], str]]:
    """For each differentiable operand the tangents that move it alone, by 1 if it is a number, and its name."""
    moving = subject.select_wrt(subject.exact)
    names = subject.select_wrt([p.hint for p in eqn.regions[0].params])
    found: list[tuple[list[Array], str]] = []
    for i, name in enumerate(names):
        tangents = [np.zeros_like(x) for x in moving]
        tangents[i] = np.ones_like(moving[i]) if moving[i].shape == () else random_direction(rng, moving[i])
        found.append((tangents, name))
    return found


def compare_direction(d: DirectionalDerivative, precision: float, status_results: int) -> RuleResult:
    """Compare value, tangent and transpose. `precision` is that of the call's own numbers.

    The value agrees to rounding; the derivative to half the digits, as far as a truncated iteration is exact.
    """
    if status_results and any(
        not np.array_equal(v[-status_results:], d.values[-status_results:]) for v in d.mode_values
    ):
        return RuleResult(0)
    half = np.sqrt(precision)
    value_allowed = ROUNDING * max(precision, DOUBLE) * d.value_size
    values = [compare_numbers(("value", "", ""), v, d.values, value_allowed, d.value_size) for v in d.mode_values]
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(d.slopes.values), initial=0, where=d.slopes.usable)
        allowed = d.allowed + half * largest
    forward = compare_numbers(
        ("derivative", "", ""), d.forward, d.slopes.values, allowed, d.forward_size, d.slopes.usable
    )
    pushed, pulled, bound = d.product
    size = bound / d.rounding
    adjoint = compare_numbers(
        ("transpose", "", ""), *[np.array([x]) for x in (pulled, pushed, bound + half * size, size)]
    )
    comparisons: list[DerivativeComparison] = [*values, forward, adjoint]
    fault = next((RuleFault(c.mode, c.worst) for c in comparisons if c.worst is not None), None)
    return RuleResult(forward.numbers, fault)


def compare_inverse(eqn: Eqn, operands: Sequence[Array]) -> RuleResult:
    """Compare the state before an invertible step with what its inverse restores, in the call's own numbers.

    The error is relative to the largest number of each array, before or after the step.
    """
    step, back = eqn.regions
    count = len(back.results)
    run = LimitedRun()
    after = run(step, *operands)[:count]
    restored = run(back, *after, *operands[count:])
    numbers = 0
    for found, wanted, between in zip(restored, operands, after, strict=False):
        got, want = (np.asarray(flatten_numbers([x]), np.longdouble) for x in (found, wanted))
        numbers += got.size
        size = np.max(np.abs(np.concatenate([want, flatten_numbers([between])])), initial=0)
        allowed = np.full(got.shape, size * np.sqrt(coarsest_precision(back)[0]))
        answer = compare_numbers(("inverse", "", ""), got, want, allowed, np.full(got.shape, size))
        if answer.worst is not None:
            return RuleResult(numbers, RuleFault("inverse", answer.worst))
    return RuleResult(numbers)


def record_calls(
    graph: Graph, arrays: Sequence[Array], wanted: Callable[[Eqn], bool], most: int
) -> list[tuple[Eqn, list[Array]]]:
    """Wanted equations with the operands of at most `most` of their runs. Errors: StepLimitExceeded."""
    recorded: dict[Eqn, list[list[Array]]] = {}
    LimitedRun(recorded_operands=recorded)(graph, *arrays)
    return [(eqn, operands) for eqn, runs in recorded.items() if wanted(eqn) for operands in runs[:most]]
