"""Where derivatives are zero by structure: no result depends on a param through steps that all have a tangent.

`reached` is quick, and asked of every derivative. `losses` is asked where it found none, and tells the steps that lose
the derivative on the way. A derivative equation or a rule inside counts as a way: whether a second derivative is zero
is not asked, and what a rule says holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from difflang.analysis.dataflow import DataflowAnalysis, bit_indices
from difflang.base.partial_equality import PartialEquality
from difflang.ir.graph import Eqn, Graph

MAX_REMEMBERED = 16  # how many lost ways to a result are remembered, and at least one of each param


def reaching_params(graph: Graph) -> tuple[int, ...]:
    """For each result, the params whose tangents reach it: bit i for param i."""
    return ReachabilityAnalysis().results(graph)


class DependencyStep(Struct, frozen=True, eq=False):
    """An equation on a way from a param: after which step of the same graph, and where the way goes on inside it."""

    eqn: Eqn
    before: DependencyStep | None = None
    inner: DependencyStep | None = None

    @property
    def way(self) -> list[Eqn]:
        """The equations from the param to here, those around before those inside."""
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


def find_dropped_derivatives(graph: Graph, points: int, *, zero: bool = True) -> list[dict[DependencyStep, int]]:
    """For each result, the first steps that lose the derivative on the ways to it from the params `points`, a mask.

    With each step, the mask of those params that it loses. Without `zero`, only steps to what has no tangent count, and
    not those like `floor`, whose derivative is 0.
    """
    found = DroppedDerivativeAnalysis(zero).results(graph)
    return [{step: of & points for step, of in fact.losses.items() if of & points} for fact in found]


class ReachabilityAnalysis(DataflowAnalysis[int]):
    """A fact is a mask of params."""

    nothing = 0

    def entering(self, graph: Graph, place: int) -> int:
        return 1 << place if graph.params[place].type.tangent is not None else 0

    def after(self, eqn: Eqn, facts: Sequence[int]) -> Sequence[int]:
        mask = 0 if eqn.op.inactive else self.joined(facts)
        return [mask if mask and r.type.tangent is not None else 0 for r in eqn.results]

    def joined(self, facts: Sequence[int]) -> int:
        mask = 0
        for fact in facts:
            mask |= fact
        return mask

    def outside(self, eqn: Eqn, fact: int, param: Callable[[int], int]) -> int:
        return self.joined([param(i) for i in bit_indices(fact)])

    def governed(self, fact: int, by: Sequence[int]) -> int:
        return fact


class ParamDependence(PartialEquality, frozen=True, eq=False):
    """How a value depends on params: on which with a tangent, on which at all, and what lost it on the other ways."""

    live: int = 0
    all: int = 0
    losses: Mapping[DependencyStep, int] = field(default_factory=dict[DependencyStep, int])
    last: DependencyStep | None = None  # on one of the ways with a tangent


class DroppedDerivativeAnalysis(DataflowAnalysis[ParamDependence]):
    """A fact is how a value depends on the params."""

    nothing = ParamDependence()

    def __init__(self, zero: bool) -> None:
        self.zero = zero
        self.around: dict[
            tuple[Eqn, DependencyStep], DependencyStep
        ] = {}  # steps inside an equation, as they are seen outside

    def entering(self, graph: Graph, place: int) -> ParamDependence:
        return ParamDependence(1 << place if graph.params[place].type.tangent is not None else 0, 1 << place)

    def joined(self, facts: Sequence[ParamDependence]) -> ParamDependence:
        live = everything = 0
        lost: dict[DependencyStep, int] = {}
        last: DependencyStep | None = None
        for fact in facts:
            live, everything = live | fact.live, everything | fact.all
            if fact.losses:
                merge_dropped(lost, fact.losses)
            last = last or (fact.last if fact.live else None)
        return ParamDependence(live, everything, lost, last)

    def after(self, eqn: Eqn, facts: Sequence[ParamDependence]) -> Sequence[ParamDependence]:
        given = self.joined(facts)
        if not given.all:
            return [self.nothing] * len(eqn.results)
        step = DependencyStep(eqn, given.last)
        through = ParamDependence(given.live, given.all, given.losses, step)
        lost = dict(given.losses)
        if given.live:
            merge_dropped(lost, {step: given.live})
        ended = ParamDependence(0, given.all, lost)
        zero = self.zero and eqn.op.inactive
        return [ended if zero or r.type.tangent is None else through for r in eqn.results]

    def outside(self, eqn: Eqn, fact: ParamDependence, param: Callable[[int], ParamDependence]) -> ParamDependence:
        found = self.joined([param(i) for i in bit_indices(fact.all)])
        live = 0
        for i in bit_indices(fact.live):
            live |= param(i).live
        lost = dict(found.losses)
        for step, of in fact.losses.items():
            mask = 0
            for i in bit_indices(of):
                mask |= param(i).live
            if mask:
                merge_dropped(lost, {self.seen(eqn, step, found.last): mask})
        return ParamDependence(
            live, found.all, lost, self.seen(eqn, fact.last, found.last) if live and fact.last else found.last
        )

    def seen(self, eqn: Eqn, inner: DependencyStep, before: DependencyStep | None) -> DependencyStep:
        """A step inside an equation as a step of the graph that holds the equation."""
        return self.around.setdefault((eqn, inner), DependencyStep(eqn, before, inner))

    def governed(self, fact: ParamDependence, by: Sequence[ParamDependence]) -> ParamDependence:
        what = self.joined(by)
        if not what.all:
            return fact
        return ParamDependence(fact.live, fact.all | what.all, self.joined([fact, what]).losses, fact.last)


def merge_dropped(into: dict[DependencyStep, int], more: Mapping[DependencyStep, int]) -> None:
    """Add lost ways to others."""
    for step, of in more.items():
        if (
            step in into
            or len(into) < MAX_REMEMBERED
            or not all(any(m >> i & 1 for m in into.values()) for i in bit_indices(of))
        ):
            into[step] = into.get(step, 0) | of
