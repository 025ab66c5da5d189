"""Whether a derivative is right: the same number by four roads of ours and by differences, to any order.

Rules are held against differences in extended precision, where rounding is out of the way; what runs in the program's
own numbers, interpreted and compiled, against that, within what rounding can do (see `programs`). No tolerance is
guessed: differences bring their own error, and rounding is measured by shaking every value on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from difflang.ad.expand_derivatives import expand_derivatives
from difflang.base.source import Span
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

PRECISE = 1e-6  # differences that are known less well than this say little
INNER_POINTS = 2  # at how many of the arguments that it meets a derivative in the program is audited


class GradientCheck(Struct):
    """One audit under way. Comparisons of the same two things are joined to one row."""

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
        """The derivatives of a graph up to an order; the first fault found."""
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
        """The derivatives that the program itself takes, each at what it is given there."""
        taken = derivative_equations(graph)
        if not taken:
            return None
        met: dict[Eqn, list[list[Array]]] = {}
        ReplayRun(recorded_operands=met)(graph, *cast_arguments(graph, arrays))
        for eqn in taken:
            (function,) = eqn.regions
            for operands in met.get(eqn, ())[:INNER_POINTS]:
                given = operands[: len(function.params)]
                fault = self.check_graph(function, given, eqn.attrs["wrt"], 1, f"{over} inside")
                if fault is not None:
                    return fault
        return None

    # ---- rules

    def check_rules(self, subject: GraphAtPoint, direction: DirectionalDerivative, over: str) -> DerivativeFault | None:
        """Both modes and differences, and the value that either mode gives, in extended precision."""
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
            # What is composed of conventions may be another number.
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
        """The derivative operators themselves, asked about the identity: where these are wrong, no equation is."""
        types = [p.type for p, w in zip(subject.graph.params, subject.wrt, strict=True) if w]
        identity, wrt = build_region(types, lambda *xs: xs), tuple(True for _ in types)
        asked = GraphAtPoint(identity, subject.select_wrt(subject.exact), wrt).random_derivative(self.rng)
        for answer, wrapped in zip(compare_modes(asked), (jvp_graph, vjp_graph), strict=True):
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
        """Say where differences say little or nothing."""
        s = direction.slopes
        with np.errstate(all="ignore"):
            vague = s.usable & (s.errors > PRECISE * np.maximum(np.abs(s.values), direction.size))
        if vague.any():
            self.notes[f"differences determine {vague.sum()} of {vague.size} slopes only to within {PRECISE:.0e}"] = (
                None
            )
        if (hidden := int((np.isfinite(s.values) & np.isinf(s.errors) & ~s.kinked).sum())) > 0:
            self.notes[f"differences cannot determine {hidden} of {vague.size} slopes: no step is small enough"] = None
        if (kinked := int(s.kinked.sum())) > 0:
            self.notes[f"{kinked} of {vague.size} numbers have a kink here, so differences are not compared"] = None
        if (lost := int((~np.isfinite(s.values) & ~s.kinked).sum())) > 0:
            self.notes[f"{lost} of {vague.size} numbers have no finite slope to compare with"] = None

    # ---- higher orders

    def check_higher_orders(
        self, subject: GraphAtPoint, direction: DirectionalDerivative, order: int, over: str
    ) -> DerivativeFault | None:
        """The pullback and the push as functions of the arguments, differentiated again."""
        n = len(subject.graph.results)
        for mode, program, more in (
            ("reverse", vjp_graph(subject.graph, subject.wrt), direction.cotangents),
            ("forward", jvp_graph(subject.graph, subject.wrt), direction.tangents),
        ):
            wrt = (*subject.wrt, *(False for _ in more))
            whole = expand_derivatives(program)  # rules are kept, as they are where a program takes further derivatives
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
        """Let a difference pass, and say why."""
        row = self.rows[comparison_key(found)]
        self.rows[comparison_key(found)] = replace(row, worst=None, against=f"{found.against}, {why}")


def find_domain_error(subject: GraphAtPoint) -> NonFiniteOrigin | None:
    """The first equation that makes NaN of numbers. Where the value does not show it, a cotangent of 0 becomes NaN."""
    run = NonFinite(nan_only=True)
    with np.errstate(all="ignore"):
        run.run_graph(subject.graph, *cast_arguments(subject.graph, subject.exact))
    return next((made for made in run.origins.values() if np.isnan(made.value)), None)


def comparison_key(row: DerivativeComparison) -> tuple[str, ...]:
    return row.mode, row.how, row.against


def derivative_equations(graph: Graph) -> list[Eqn]:
    """The derivative equations of a graph and its regions, but for those inside one another."""
    found: list[Eqn] = []
    todo, seen = [graph], {graph}
    while todo:
        current = todo.pop()
        for eqn in current.eqns:
            if eqn.op.expand is not None:
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
    """Whether the derivatives of a graph at these arrays are right, in the params that `wrt` names.

    Every result that has a tangent counts, and every derivative that the program itself takes. The first equation at
    fault is named; kinks are named and are no fault. `rules` says where the program declares derivatives, by function.
    Cost: for each direction some 20 runs of the interpreter, more where differences are hard; one compilation a mode.
    Source: Ridders 1982, Accurate computation of F'(x) and F'(x) F''(x).
    """
    work = GradientCheck(pipeline, np.random.default_rng(seed), directions)
    fault = work.check_graph(graph, arrays, wrt, order)
    kinks = {k.eqn: k for k in reversed(work.kinks)}
    rows, notes = tuple(work.rows.values()), tuple(work.notes)
    placed = None if fault is None else fault.with_rule_span(rules or {})
    return GradcheckReport(name, order, directions, drawn, rows, placed, tuple(reversed(kinks.values())), notes)
