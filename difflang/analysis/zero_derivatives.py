"""Structurally zero derivatives: which params reach which results through differentiable steps, and where they stop.

`reaching_params` is quick and runs for every derivative. `find_dropped_derivatives` runs where it found none, and gives
the steps that drop the derivative. A derivative equation or a declared rule inside counts as differentiable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from difflang.analysis.dataflow import DataflowAnalysis, bit_indices
from difflang.base.partial_equality import PartialEquality
from difflang.ir.graph import Eqn, Graph

# How many dropping steps are remembered for a result, besides one for each param. The report names only a few, and
# their number could grow with the product of the regions.
MAX_REMEMBERED = 16


def reaching_params(graph: Graph) -> tuple[int, ...]:
    """For each result, the params whose tangents reach it: bit i for param i."""
    return ReachabilityAnalysis().results(graph)


class DependencyStep(Struct, frozen=True, eq=False):
    """An equation on a path from a param: the step before it in the same graph, and the step inside its region."""

    eqn: Eqn
    before: DependencyStep | None = None
    inner: DependencyStep | None = None

    @property
    def path(self) -> list[Eqn]:
        """The equations from the param to here, outer ones before those in their regions."""
        found: list[Eqn] = []
        step: DependencyStep | None = self
        while step is not None:
            here, at = list[Eqn](), step
            while at is not None:
                here.append(at.eqn)
                at = at.before
            found += reversed(here)
            step = step.inner
        return found


def find_dropped_derivatives(
    graph: Graph, points: int, *, include_zero: bool = True
) -> list[dict[DependencyStep, int]]:
    """For each result, the first steps that drop the derivative on paths from the params in the mask `points`.

    Each step comes with the mask of the params whose derivative it drops. Without `include_zero`, only steps to types
    without a tangent count, and not those like `floor`, whose derivative is 0.
    """
    found = DroppedDerivativeAnalysis(include_zero).results(graph)
    return [{step: of & points for step, of in fact.dropped.items() if of & points} for fact in found]


class ReachabilityAnalysis(DataflowAnalysis[int]):
    """Which params reach a value with a tangent. A fact is a mask of params."""

    bottom = 0

    def param_fact(self, graph: Graph, place: int) -> int:
        return 1 << place if graph.params[place].type.tangent is not None else 0

    def after(self, eqn: Eqn, facts: Sequence[int]) -> Sequence[int]:
        mask = 0 if eqn.op.inactive else self.join(facts)
        return [mask if mask and r.type.tangent is not None else 0 for r in eqn.results]

    def join(self, facts: Sequence[int]) -> int:
        mask = 0
        for fact in facts:
            mask |= fact
        return mask

    def lift_from_region(self, eqn: Eqn, fact: int, param: Callable[[int], int]) -> int:
        return self.join([param(i) for i in bit_indices(fact)])

    def add_control_fact(self, fact: int, by: Sequence[int]) -> int:
        return fact


class ParamDependence(PartialEquality, frozen=True, eq=False):
    """How a value depends on params: on which with a tangent, on which at all, and which steps dropped the others."""

    live: int = 0
    all_params: int = 0
    dropped: Mapping[DependencyStep, int] = field(default_factory=dict[DependencyStep, int])
    last: DependencyStep | None = None  # on one of the paths with a tangent


class DroppedDerivativeAnalysis(DataflowAnalysis[ParamDependence]):
    """Which steps drop the derivative. A fact is how a value depends on the params."""

    bottom = ParamDependence()

    def __init__(self, zero: bool) -> None:
        self.zero = zero
        # From a step inside an equation to that step in the outer graph: one object each, as steps are keys.
        self.lifted_steps: dict[tuple[Eqn, DependencyStep], DependencyStep] = {}

    def param_fact(self, graph: Graph, place: int) -> ParamDependence:
        return ParamDependence(1 << place if graph.params[place].type.tangent is not None else 0, 1 << place)

    def join(self, facts: Sequence[ParamDependence]) -> ParamDependence:
        live = everything = 0
        dropped: dict[DependencyStep, int] = {}
        last: DependencyStep | None = None
        for fact in facts:
            live, everything = live | fact.live, everything | fact.all_params
            if fact.dropped:
                merge_dropped(dropped, fact.dropped)
            last = last or (fact.last if fact.live else None)
        return ParamDependence(live, everything, dropped, last)

    def after(self, eqn: Eqn, facts: Sequence[ParamDependence]) -> Sequence[ParamDependence]:
        given = self.join(facts)
        if not given.all_params:
            return [self.bottom] * len(eqn.results)
        step = DependencyStep(eqn, given.last)
        through = ParamDependence(given.live, given.all_params, given.dropped, step)
        dropped = dict(given.dropped)
        if given.live:
            merge_dropped(dropped, {step: given.live})
        ended = ParamDependence(0, given.all_params, dropped)
        zero = self.zero and eqn.op.inactive
        return [ended if zero or r.type.tangent is None else through for r in eqn.results]

    def lift_from_region(
        self, eqn: Eqn, fact: ParamDependence, param: Callable[[int], ParamDependence]
    ) -> ParamDependence:
        found = self.join([param(i) for i in bit_indices(fact.all_params)])
        live = 0
        for i in bit_indices(fact.live):
            live |= param(i).live
        dropped = dict(found.dropped)
        for step, of in fact.dropped.items():
            mask = 0
            for i in bit_indices(of):
                mask |= param(i).live
            if mask:
                merge_dropped(dropped, {self.lift_step(eqn, step, found.last): mask})
        return ParamDependence(
            live,
            found.all_params,
            dropped,
            self.lift_step(eqn, fact.last, found.last) if live and fact.last else found.last,
        )

    def lift_step(self, eqn: Eqn, inner: DependencyStep, before: DependencyStep | None) -> DependencyStep:
        """A step inside an equation as a step of the graph that holds the equation."""
        return self.lifted_steps.setdefault((eqn, inner), DependencyStep(eqn, before, inner))

    def add_control_fact(self, fact: ParamDependence, by: Sequence[ParamDependence]) -> ParamDependence:
        what = self.join(by)
        if not what.all_params:
            return fact
        return ParamDependence(fact.live, fact.all_params | what.all_params, self.join([fact, what]).dropped, fact.last)


def merge_dropped(into: dict[DependencyStep, int], more: Mapping[DependencyStep, int]) -> None:
    """Add dropping steps to others, as far as `MAX_REMEMBERED` allows."""
    for step, of in more.items():
        if (
            step in into
            or len(into) < MAX_REMEMBERED
            or not all(any(m >> i & 1 for m in into.values()) for i in bit_indices(of))
        ):
            into[step] = into.get(step, 0) | of
