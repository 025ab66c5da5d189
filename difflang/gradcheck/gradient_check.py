"""The gradient check: compares derivatives by both modes and both engines with numerical ones, to any order.

Derivative rules are compared with differences in extended precision, where rounding is negligible. Results in the
program's own numbers, interpreted and compiled, are compared with the exact ones (see `engine_comparison`). No
tolerance is guessed: differences have an error estimate, and rounding is measured by perturbing every value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.ad.expand_derivatives import expand_derivatives
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.gradcheck.decision_replay import ReplayRun
from difflang.gradcheck.directional_derivatives import (
    DirectionalDerivative,
    GraphAtPoint,
    Mask,
    cast_arguments,
    jvp_graph,
    vjp_graph,
)
from difflang.gradcheck.engine_comparison import CheckPipeline, ModePrograms, decided_by_rounding
from difflang.gradcheck.extended_precision import Array
from difflang.gradcheck.fault_localization import FaultSearch, bisect_fault, compare_modes, compare_value
from difflang.gradcheck.nan_provenance import NonFiniteOrigin
from difflang.gradcheck.nan_provenance import NonFiniteRun as NonFinite
from difflang.gradcheck.report import DerivativeComparison, DerivativeFault, GradcheckReport, Kink, unlocated_fault
from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph

PRECISE = 1e-6  # differences with a larger relative error say little
INNER_POINTS = 2  # a derivative inside the program is checked at this many of its recorded arguments


class GradientCheck(Struct):
    """One gradient check in progress. Comparisons of the same kind are merged into one row."""

    pipeline: CheckPipeline
    rng: np.random.Generator
    directions: int
    rows: dict[tuple[str, ...], DerivativeComparison] = field(
        default_factory=dict[tuple[str, ...], DerivativeComparison]
    )
    kinks: list[Kink] = field(default_factory=list[Kink])
    notes: dict[str, None] = field(default_factory=dict[str, None])

    def check_graph(
        self, graph: Graph, arrays: Sequence[Array], wrt: Mask, order: int, over: str = ""
    ) -> DerivativeFault | None:
        """Check the derivatives of a graph up to an order; returns the first fault found."""
        fault = self.inner(graph, arrays, over)
        if fault is not None:
            return fault
        subject = GraphAtPoint(self.pipeline.derived(graph), arrays, wrt)
        programs = ModePrograms.compile_modes(self, graph, wrt, over)
        directions = [subject.random_derivative(self.rng) for _ in range(self.directions)]
        if not over and not any(np.any(d.forward) for d in directions):
            self.notes["the derivative is 0 along every direction, so this check proves little"] = None
        for i, direction in enumerate(directions):
            fault = self.check_rules(subject, direction, over) or programs.find_fault(
                subject, direction, value=i == 0 and not over
            )
            if fault is not None:
                return fault
        return self.check_higher_orders(subject, directions[0], order, over) if order > 1 else None

    def inner(self, graph: Graph, arrays: Sequence[Array], over: str) -> DerivativeFault | None:
        """Check the derivatives that the program itself takes, each at its recorded arguments."""
        inner_eqns = derivative_equations(graph)
        if not inner_eqns:
            return None
        met: dict[Eqn, list[list[Array]]] = {}
        ReplayRun(recorded_operands=met)(graph, *cast_arguments(graph, arrays))
        for eqn in inner_eqns:
            (function,) = eqn.regions
            for operands in met.get(eqn, ())[:INNER_POINTS]:
                given = operands[: len(function.params)]
                fault = self.check_graph(function, given, eqn.attrs["wrt"], 1, f"{over} inside")
                if fault is not None:
                    return fault
        return None

    # ---- Rules

    def check_rules(self, subject: GraphAtPoint, direction: DirectionalDerivative, over: str) -> DerivativeFault | None:
        """Compare both modes, differences and values in extended precision; returns the located fault."""
        found = [self.add_comparison(c, over) for c in (*compare_modes(direction), compare_value(direction))]
        self.note_uncertain_slopes(direction)
        wrong = [c for c in found if c.worst is not None]
        worst = next(iter(wrong), None)
        if worst is None and (self.kinks or not direction.at_kink):
            return None
        if worst is not None and (fault := self.check_operators(subject)) is not None:
            return fault
        search = FaultSearch(subject.met, self.rng)
        fault = search.find_fault(subject.graph)
        self.kinks += search.kinks
        if direction.slopes.crossed is not None:
            self.kinks.append(Kink(direction.slopes.crossed, "changes its result as soon as the arguments move"))
        if fault is not None or worst is None or worst.worst is None:
            return fault
        if found[2] in wrong and decided_by_rounding(self, subject.primal, *wrong):
            return None
        if search.kinks and worst is found[0] and found[2] not in wrong:
            # At several kinks the conventional values may compose to a number outside all slopes.
            self.accept_difference(worst, "with kinks")
            return None
        if worst is found[1] and np.isnan(worst.worst.got) and (lost := find_domain_error(subject)) is not None:
            self.kinks.append(Kink(lost.eqn, "is NaN, and so is the reverse-mode derivative through it"))
            self.accept_difference(worst, "outside its domain")
            return None
        return bisect_fault(subject.graph, "the derivative", self.truncation_test(subject)) or unlocated_fault(
            worst, worst.worst
        )

    def check_operators(self, subject: GraphAtPoint) -> DerivativeFault | None:
        """Check the derivative operators themselves, on the identity: if these are wrong, no equation is to blame."""
        types = [p.type for p, w in zip(subject.graph.params, subject.wrt, strict=True) if w]
        identity, wrt = build_region(types, lambda *xs: xs), tuple(True for _ in types)
        probe = GraphAtPoint(identity, subject.select_wrt(subject.exact), wrt).random_derivative(self.rng)
        for answer, wrapped in zip(compare_modes(probe), (jvp_graph, vjp_graph), strict=True):
            if answer.worst is not None:
                return DerivativeFault(
                    wrapped(identity, wrt).eqns[0], "the operator", (answer.mode, answer.against), answer.worst
                )
        return None

    def truncation_test(self, subject: GraphAtPoint) -> Callable[[Graph], DerivativeComparison | None]:
        def wrong(graph: Graph) -> DerivativeComparison | None:
            direction = GraphAtPoint(graph, subject.exact, subject.wrt).random_derivative(self.rng)
            return next((c for c in (*compare_modes(direction), compare_value(direction)) if c.worst is not None), None)

        return wrong

    def note_uncertain_slopes(self, direction: DirectionalDerivative) -> None:
        """Add notes where differences are inexact or unknown."""
        s = direction.slopes
        with np.errstate(all="ignore"):
            vague = s.usable & (s.errors > PRECISE * np.maximum(np.abs(s.values), direction.size))
        slopes, numbers = count_of(vague.size, "slope"), count_of(vague.size, "number")
        if vague.any():
            self.notes[f"differences determine {vague.sum()} of {slopes} only to within {PRECISE:.0e}"] = None
        if (hidden := int((np.isfinite(s.values) & np.isinf(s.errors) & ~s.kinked).sum())) > 0:
            self.notes[f"differences cannot determine {hidden} of {slopes}: no step is small enough"] = None
        if (kinked := int(s.kinked.sum())) > 0:
            self.notes[
                f"{kinked} of {numbers} {'has' if kinked == 1 else 'have'} a kink here, so differences are not compared"
            ] = None
        if (lost := int((~np.isfinite(s.values) & ~s.kinked).sum())) > 0:
            self.notes[f"{lost} of {numbers} {'has' if lost == 1 else 'have'} no finite slope to compare with"] = None

    # ---- Higher orders

    def check_higher_orders(
        self, subject: GraphAtPoint, direction: DirectionalDerivative, order: int, over: str
    ) -> DerivativeFault | None:
        """Check the derivatives of the vjp and the jvp as functions of the arguments."""
        n = len(subject.graph.results)
        for mode, program, more in (
            ("reverse", vjp_graph(subject.graph, subject.wrt), direction.cotangents),
            ("forward", jvp_graph(subject.graph, subject.wrt), direction.tangents),
        ):
            wrt = (*subject.wrt, *(False for _ in more))
            # Declared rules are kept, as in a program that takes further derivatives.
            whole = expand_derivatives(program)
            derivative = whole.with_results(whole.results[n:])
            fault = self.check_graph(derivative, [*subject.exact, *more], wrt, order - 1, f" over {mode}{over}")
            if fault is not None:
                return fault
        return None

    def add_comparison(self, found: DerivativeComparison, over: str = "") -> DerivativeComparison:
        found = replace(found, mode=found.mode + over)
        before = self.rows.get(comparison_key(found))
        self.rows[comparison_key(found)] = found if before is None else before.merge(found)
        return found

    def accept_difference(self, found: DerivativeComparison, why: str) -> None:
        """Accept a difference and record the reason."""
        row = self.rows[comparison_key(found)]
        self.rows[comparison_key(found)] = replace(row, worst=None, against=f"{found.against}, {why}")


def find_domain_error(subject: GraphAtPoint) -> NonFiniteOrigin | None:
    """The first equation that makes NaN from numbers."""
    # Even if no result depends on the NaN, a cotangent of 0 times its derivative is NaN.
    run = NonFinite(nan_only=True)
    with np.errstate(all="ignore"):
        run.run_graph(subject.graph, *cast_arguments(subject.graph, subject.exact))
    return next((made for made in run.origins.values() if np.isnan(made.value)), None)


def comparison_key(row: DerivativeComparison) -> tuple[str, ...]:
    return row.mode, row.how, row.against


def derivative_equations(graph: Graph) -> list[Eqn]:
    """The outermost derivative equations of a graph and its regions."""
    found: list[Eqn] = []
    todo, seen = [graph], {graph}
    while todo:
        current = todo.pop()
        for eqn in current.eqns:
            if eqn.op.is_derivative:
                found.append(eqn)
                continue
            inner = [r for r in eqn.regions if r not in seen]
            seen.update(inner)
            todo += inner
    return found


def check_gradient(
    graph: Graph,
    arrays: Sequence[Array],
    wrt: Mask,
    *,
    name: str = "",
    pipeline: CheckPipeline = CheckPipeline(),
    order: int = 1,
    directions: int = 3,
    seed: int = 0,
    drawn: str = "",
    rules: Mapping[str, Span] | None = None,
) -> GradcheckReport:
    """Check the derivatives of a graph at these arrays with respect to the params in `wrt`.

    Every differentiable result counts, and every derivative that the program itself takes. The report names the first
    equation at fault; it also names kinks, which are no fault. `rules` maps functions to their declared derivatives.
    Cost: for each direction some 20 runs of the interpreter, more for difficult differences; one compilation per mode.
    Source: Ridders 1982, Accurate computation of F'(x) and F'(x) F''(x).
    """
    work = GradientCheck(pipeline, np.random.default_rng(seed), directions)
    fault = work.check_graph(graph, arrays, wrt, order)
    kinks = {k.eqn: k for k in reversed(work.kinks)}
    rows, notes = tuple(work.rows.values()), tuple(work.notes)
    placed = None if fault is None else fault.with_rule_span(rules or {})
    return GradcheckReport(name, order, directions, drawn, rows, placed, tuple(reversed(kinks.values())), notes)
