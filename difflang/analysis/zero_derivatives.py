"""Where derivatives are zero by structure: no result depends on a param through steps that all have a tangent.

`reached` is quick, and asked of every derivative. `losses` is asked where it found none, and tells the steps that lose
the derivative on the way. A derivative equation or a rule inside counts as a way: whether a second derivative is zero
is not asked, and what a rule says holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from difflang.analysis.dataflow import Flow, members
from difflang.base.partial_equality import Partly
from difflang.ir.graph import Eqn, Graph

MOST = 16  # how many lost ways to a result are remembered, and at least one of each param


def reached(graph: Graph) -> tuple[int, ...]:
    """For each result, the params whose tangents reach it: bit i for param i."""
    return Reach().results(graph)


class Step(Struct, frozen=True, eq=False):
    """An equation on a way from a param: after which step of the same graph, and where the way goes on inside it."""

    eqn: Eqn
    before: Step | None = None
    inner: Step | None = None

    @property
    def way(self) -> list[Eqn]:
        """The equations from the param to here, those around before those inside."""
        found: list[Eqn] = []
        step: Step | None = self
        while step is not None:
            here, at = list[Eqn](), step
            while at is not None:
                here.append(at.eqn)
                at = at.before
            found += reversed(here)
            step = step.inner
        return found


def losses(graph: Graph, points: int, *, zero: bool = True) -> list[dict[Step, int]]:
    """For each result, the first steps that lose the derivative on the ways to it from the params `points`, a mask.

    With each step, the mask of those params that it loses. Without `zero`, only steps to what has no tangent count, and
    not those like `floor`, whose derivative is 0.
    """
    found = Losses(zero).results(graph)
    return [{step: of & points for step, of in fact.losses.items() if of & points} for fact in found]


class Reach(Flow[int]):
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
        return self.joined([param(i) for i in members(fact)])

    def governed(self, fact: int, by: Sequence[int]) -> int:
        return fact


class Ways(Partly, frozen=True, eq=False):
    """How a value depends on params: on which with a tangent, on which at all, and what lost it on the other ways."""

    live: int = 0
    all: int = 0
    losses: Mapping[Step, int] = field(default_factory=dict[Step, int])
    last: Step | None = None  # on one of the ways with a tangent


class Losses(Flow[Ways]):
    """A fact is how a value depends on the params."""

    nothing = Ways()

    def __init__(self, zero: bool) -> None:
        self.zero = zero
        self.around: dict[tuple[Eqn, Step], Step] = {}  # steps inside an equation, as they are seen outside

    def entering(self, graph: Graph, place: int) -> Ways:
        return Ways(1 << place if graph.params[place].type.tangent is not None else 0, 1 << place)

    def joined(self, facts: Sequence[Ways]) -> Ways:
        live = everything = 0
        lost: dict[Step, int] = {}
        last: Step | None = None
        for fact in facts:
            live, everything = live | fact.live, everything | fact.all
            if fact.losses:
                merge(lost, fact.losses)
            last = last or (fact.last if fact.live else None)
        return Ways(live, everything, lost, last)

    def after(self, eqn: Eqn, facts: Sequence[Ways]) -> Sequence[Ways]:
        given = self.joined(facts)
        if not given.all:
            return [self.nothing] * len(eqn.results)
        step = Step(eqn, given.last)
        through = Ways(given.live, given.all, given.losses, step)
        lost = dict(given.losses)
        if given.live:
            merge(lost, {step: given.live})
        ended = Ways(0, given.all, lost)
        zero = self.zero and eqn.op.inactive
        return [ended if zero or r.type.tangent is None else through for r in eqn.results]

    def outside(self, eqn: Eqn, fact: Ways, param: Callable[[int], Ways]) -> Ways:
        found = self.joined([param(i) for i in members(fact.all)])
        live = 0
        for i in members(fact.live):
            live |= param(i).live
        lost = dict(found.losses)
        for step, of in fact.losses.items():
            mask = 0
            for i in members(of):
                mask |= param(i).live
            if mask:
                merge(lost, {self.seen(eqn, step, found.last): mask})
        return Ways(live, found.all, lost, self.seen(eqn, fact.last, found.last) if live and fact.last else found.last)

    def seen(self, eqn: Eqn, inner: Step, before: Step | None) -> Step:
        """A step inside an equation as a step of the graph that holds the equation."""
        return self.around.setdefault((eqn, inner), Step(eqn, before, inner))

    def governed(self, fact: Ways, by: Sequence[Ways]) -> Ways:
        what = self.joined(by)
        if not what.all:
            return fact
        return Ways(fact.live, fact.all | what.all, self.joined([fact, what]).losses, fact.last)


def merge(into: dict[Step, int], more: Mapping[Step, int]) -> None:
    """Add lost ways to others."""
    for step, of in more.items():
        if step in into or len(into) < MOST or not all(any(m >> i & 1 for m in into.values()) for i in members(of)):
            into[step] = into.get(step, 0) | of
