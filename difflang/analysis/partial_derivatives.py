"""Derivatives that are lost in part: where a value loses its tangent and still reaches a result.

Two kinds of loss are wrong almost everywhere. A rounded number that comes back as a float (`round`, an integer) has
derivative 0, though on average it moves with its operand. A choice by a draw whose distribution depends on a param
(`uniform() < p`) has the derivative of one outcome, not of the mean. Other comparisons choose between smooth pieces,
and other indices between elements; they lose nothing except where they jump.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from difflang.analysis.dataflow import DataflowAnalysis, bit_indices
from difflang.analysis.zero_derivatives import MAX_REMEMBERED, DependencyStep
from difflang.base.partial_equality import PartialEquality
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import BOOL, Tensor


class PartialLoss(Struct, frozen=True):
    """What a step loses: the derivative with respect to `live` params, of a value that depends on `params`."""

    live: int
    params: int
    drawn: bool  # the value depends on a draw inside the graph
    as_data: bool  # a rounded number that arrives as a number, not as a condition or an index
    decides: bool  # if drawn, the mean of the outcomes depends on it

    def merged(self, other: PartialLoss) -> PartialLoss:
        return PartialLoss(
            self.live | other.live,
            self.params | other.params,
            self.drawn or other.drawn,
            self.as_data or other.as_data,
            self.decides or other.decides,
        )


Losses = Mapping[DependencyStep, PartialLoss]


def find_partial_losses(graph: Graph, points: int) -> list[Losses]:
    """For each result, the steps that lose a part of the derivative with respect to the params in the mask `points`."""
    graphs = graphs_postorder(graph)[0]
    drawing = drawing_graphs(graphs)
    # Most graphs neither draw nor round.
    if not drawing and not any(rounds(eqn, r) for each in graphs for eqn in each.eqns for r in eqn.results):
        return [{} for _ in graph.results]
    found = PartialLossAnalysis(drawing).results(graph)
    return [
        {
            step: PartialLoss(loss.live & points, loss.params, loss.drawn, loss.as_data, loss.decides)
            for step, loss in fact.losses.items()
            if loss.live & points and (loss.as_data or (loss.drawn and loss.decides))
        }
        for fact in found
    ]


def drawing_graphs(graphs: Sequence[Graph]) -> set[Graph]:
    """The graphs that draw random numbers, themselves or in their regions."""
    found: set[Graph] = set()
    for graph in graphs:
        if any(draws(eqn) or not found.isdisjoint(eqn.regions) for eqn in graph.eqns):
            found.add(graph)
    return found


def draws(eqn: Eqn) -> bool:
    """Whether an equation draws random numbers, or says of its operand that it was drawn, as from numbers given."""
    return eqn.op.why_inactive in ("draw", "drawn")


def rounds(eqn: Eqn, result: Value) -> bool:
    """Whether a result is a number that moves in steps, as its operands move evenly: an integer, `floor`."""
    op, type = eqn.op, result.type
    return (
        op.inactive
        and op.why_inactive == "steps"
        and isinstance(type, Tensor)
        and type.dtype is not BOOL
        and any(v.type.tangent is not None for v in eqn.operands)
    )


def decides_outcomes(eqn: Eqn, result: Value) -> bool:
    """Whether the mean over draws may depend on how often a result without a tangent has which value.

    The library's own comparisons choose between pieces that meet, except where it says `discrete`. `isnan` and its kin
    hold almost everywhere or nowhere.
    """
    type = result.type
    if not eqn.op.inactive:
        return False
    predicate = isinstance(type, Tensor) and type.dtype is BOOL and len(eqn.operands) == 1
    return eqn.op.why_inactive == "drawn" or not (eqn.span.in_library or predicate)


class PartialDependence(PartialEquality, frozen=True, eq=False):
    """How a value depends on params: masks, each part of the next, and the losses inside on the way."""

    live: int = 0  # with a tangent
    data: int = 0  # as a number
    moved: int = 0  # as a number, or by a condition or an index; but not behind `stop`
    params: int = 0
    drawn: bool = False
    losses: Losses = field(default_factory=dict[DependencyStep, PartialLoss])
    last: DependencyStep | None = None  # on one of the paths with a tangent

    def as_choice(self) -> PartialDependence:
        """The same of a value that only chooses among others."""
        return PartialDependence(0, 0, self.moved, self.params, self.drawn, choices_of(self.losses), self.last)


def choices_of(losses: Losses) -> Losses:
    """The losses that still count where the value only chooses."""
    if not losses:
        return losses
    return {
        step: loss if not loss.as_data else PartialLoss(loss.live, loss.params, loss.drawn, False, True)
        for step, loss in losses.items()
        if loss.decides
    }


class PartialLossAnalysis(DataflowAnalysis[PartialDependence]):
    """Which steps lose a part of the derivative. A fact is how a value depends on the params."""

    bottom = PartialDependence()

    def __init__(self, drawing: set[Graph]) -> None:
        self.drawing = drawing
        self.lifted_steps: dict[tuple[Eqn, DependencyStep], DependencyStep] = {}

    def originates(self, eqn: Eqn) -> bool:
        return draws(eqn) or not self.drawing.isdisjoint(eqn.regions)

    def param_fact(self, graph: Graph, place: int) -> PartialDependence:
        bit = 1 << place
        return PartialDependence(bit if graph.params[place].type.tangent is not None else 0, bit, bit, bit)

    def join(self, facts: Sequence[PartialDependence]) -> PartialDependence:
        live = data = moved = params = 0
        drawn, last = False, None
        losses: Losses = {}
        for fact in facts:
            live, data, moved, params = live | fact.live, data | fact.data, moved | fact.moved, params | fact.params
            drawn = drawn or fact.drawn
            losses = merge_losses(losses, fact.losses)
            last = last or (fact.last if fact.live else None)
        return PartialDependence(live, data, moved, params, drawn, losses, last)

    def after(self, eqn: Eqn, facts: Sequence[PartialDependence]) -> Sequence[PartialDependence]:
        op = eqn.op
        # An index only chooses among the elements of the first operand.
        if "gather" in op.traits or "scatter" in op.traits:
            facts = [fact if i == 0 or v.type.tangent is not None else index_fact(eqn, fact)
                     for i, (v, fact) in enumerate(zip(eqn.operands, facts, strict=True))]  # fmt: skip
        given = self.join(facts)
        drawn = given.drawn or self.originates(eqn)
        if not given.params and not drawn:
            return [self.bottom] * len(eqn.results)
        # The program says that it is meant. What was drawn is still drawn.
        if op.why_inactive == "stop":
            return [PartialDependence(0, 0, 0, given.params, drawn)] * len(eqn.results)
        step = DependencyStep(eqn, given.last)
        through = PartialDependence(given.live, given.data, given.moved, given.params, drawn, given.losses, step)
        return [through if not op.inactive and r.type.tangent is not None else self.lost(eqn, r, through, step)
                for r in eqn.results]  # fmt: skip

    def lost(self, eqn: Eqn, result: Value, given: PartialDependence, step: DependencyStep) -> PartialDependence:
        """The fact of a result without a tangent."""
        as_data, decides = rounds(eqn, result), bool(self.drawing) and decides_outcomes(eqn, result)
        is_number = isinstance(result.type, Tensor) and result.type.dtype is not BOOL
        losses = given.losses if is_number else choices_of(given.losses)
        if given.live and (as_data or decides):
            losses = merge_losses(losses, {step: PartialLoss(given.live, given.params, given.drawn, as_data, decides)})
        return PartialDependence(0, given.data if is_number else 0, given.moved, given.params, given.drawn, losses)

    def lift_from_region(
        self, eqn: Eqn, fact: PartialDependence, param: Callable[[int], PartialDependence]
    ) -> PartialDependence:
        # What the region says of its params, said of what they are given: as numbers, as choices, or behind `stop`.
        numbers = self.join([param(i) for i in bit_indices(fact.data)])
        choices = self.join([param(i).as_choice() for i in bit_indices(fact.moved & ~fact.data)])
        others = self.join([param(i) for i in bit_indices(fact.params & ~fact.moved)])
        found = self.join([numbers, choices])
        live = self.join([param(i) for i in bit_indices(fact.live)]).live
        losses = found.losses
        for step, loss in fact.losses.items():
            by = self.join([param(i) for i in bit_indices(loss.params)])
            lost = self.join([param(i) for i in bit_indices(loss.live)]).live
            if lost:
                outer = PartialLoss(lost, by.params, loss.drawn or by.drawn, loss.as_data, loss.decides)
                losses = merge_losses(losses, {self.lift_step(eqn, step, by.last): outer})
        drawn = fact.drawn or found.drawn or others.drawn
        last = self.lift_step(eqn, fact.last, found.last) if live and fact.last else found.last
        return PartialDependence(
            live, found.data, found.moved, found.params | others.params, drawn, losses, last if live else None
        )

    def lift_step(self, eqn: Eqn, inner: DependencyStep, before: DependencyStep | None) -> DependencyStep:
        """A step inside an equation as a step of the graph that holds the equation."""
        return self.lifted_steps.setdefault((eqn, inner), DependencyStep(eqn, before, inner))

    def add_control_fact(self, fact: PartialDependence, by: Sequence[PartialDependence]) -> PartialDependence:
        what = self.join(by)
        if not what.params and not what.drawn:
            return fact
        return PartialDependence(
            fact.live,
            fact.data,
            fact.moved | what.moved,
            fact.params | what.params,
            fact.drawn or what.drawn,
            merge_losses(fact.losses, choices_of(what.losses)),
            fact.last,
        )


def index_fact(eqn: Eqn, fact: PartialDependence) -> PartialDependence:
    """The fact of an index; an array that is read in its own order, as by `sort`, has no jump there."""
    own = [step for step in fact.losses if step.inner is None and step.eqn.operands[:1] == eqn.operands[:1]]
    if own:
        losses = {step: loss for step, loss in fact.losses.items() if step not in own}
        fact = PartialDependence(fact.live, fact.data, fact.moved, fact.params, fact.drawn, losses, fact.last)
    return fact.as_choice()


def merge_losses(losses: Losses, more: Losses) -> Losses:
    """All losses, of those with nothing new only the first `MAX_REMEMBERED`."""
    if not more or not losses:
        return losses or more
    found = dict(losses)
    for step, loss in more.items():
        if step in found:
            found[step] = found[step].merged(loss)
        elif len(found) < MAX_REMEMBERED or is_new(loss, found):
            found[step] = loss
    return found


def is_new(loss: PartialLoss, known: Losses) -> bool:
    """Whether no known loss of the same kind has its params."""
    covered = 0
    for other in known.values():
        if (other.as_data, other.decides) == (loss.as_data, loss.decides) and other.drawn >= loss.drawn:
            covered |= other.live
    return bool(loss.live & ~covered)
