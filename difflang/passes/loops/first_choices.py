"""Carries that a step replaces on a condition: the first failure, and the first of the greatest or smallest numbers."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import Op
from difflang.ops.control.cond import cond
from difflang.ops.elementwise.comparison_and_logic import eq, gt, logical_and, lt, ne
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import tensor_type
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.index_bounds import MAX_INDEX, is_index
from difflang.passes.loops.step_facts import Accumulator, Stacked, StepFacts

# ---- Failures


class FirstFailure(Accumulator, frozen=True, eq=False):
    """A part of a failure word, which the first step that fails sets. The first value is that of `status`, 0 if none.

    All steps are computed as if none before had failed.
    """

    status: Value
    reads_state: ClassVar[bool] = True

    @property
    def state(self) -> Value:
        return self.status

    def prepare(self, steps: AllSteps) -> None:
        # No step that counts reads a part that is set: so the map does not depend on the word around it.
        steps.outside |= {v: steps.builder.const(0, v.type) for v in (self.status, self.param)}

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        status, own = [stacked[v] for v in self.values]
        # All parts of the word are chosen by one condition, so that a loop around this one finds its word too.
        if self.status not in steps.failures:
            steps.failures[self.status] = self.first(steps, status)
        sets, first, number = steps.failures[self.status]
        return select.one(sets, number if own is status else steps.step_at(own, first), steps.before[self.param])

    def first(self, steps: AllSteps, status: Value) -> tuple[Value, Value, Value]:
        """Whether a step fails and none did before the loop, the first that fails, and the status that it sets."""
        build, none = steps.builder, steps.builder.const(0, self.status.type)
        taken = steps.where_taken(status, build.const(0, status.type))
        failed = build.one("ne", taken, build.const(0, status.type))
        first = build.one("argmax", build.one("truncate", failed, dtype=tensor_type(status).dtype), axis=0)
        number, fine = steps.step_at(taken, first), build.one("eq", steps.before[self.status], none)
        return build.one("logical_and", fine, build.one("ne", number, none)), first, number


def failure_status(facts: StepFacts, place: int) -> tuple[Value, Value] | None:
    """The param and the result of the status of the failure word that a carry is part of.

    A word is integers that a step replaces only while its status is 0. All but the status are replaced only where that
    becomes another number, for they keep what the first step that fails has made of them, and nothing reads them.
    """
    choices, param = chosen_by(facts, place), facts.carry[place]
    if not choices:
        return None
    for status in compared_with_zero(facts, choices[-1].condition, eq):
        if status not in facts.places:
            continue
        other = facts.places[status]
        same = chosen_by(facts, other) or []
        unset = all(c.old in compared_with_zero(facts, c.condition, eq) for c in same)
        sets = status is param or (facts.read_count(param) == 1 and all(is_set(facts, c) for c in same))
        if [c.condition for c in same] == [c.condition for c in choices] and unset and sets:
            return status, facts.graph.results[other]
    return None


class Choice(NamedTuple):
    """Where a condition holds there is a new value, else the old one."""

    condition: Value
    new: Value
    old: Value


def chosen_by(facts: StepFacts, place: int) -> list[Choice] | None:
    """The choices by which a step replaces an integer that it carries, the last one first."""
    param, value = facts.carry[place], facts.graph.results[place]
    found: list[Choice] = []
    while value is not param:
        eqn = facts.makers.get(value)
        if eqn is None or eqn.op is not select or not is_index(value):
            return None
        found.append(Choice(*eqn.operands))
        value = found[-1].old
    return found


def is_set(facts: StepFacts, choice: Choice) -> bool:
    """Whether a new value is surely not 0."""
    number = known_number(facts, choice.new)
    return number not in (0, None) or choice.new in compared_with_zero(facts, choice.condition, ne)


def compared_with_zero(facts: StepFacts, condition: Value, compare: Op) -> list[Value]:
    """Integers that surely are 0 where a condition holds, or surely are not."""
    both = facts.makers.get(condition)
    parts = both.operands if both is not None and both.op is logical_and else ()
    compares = [facts.makers[p] for p in parts if p in facts.makers and facts.makers[p].op is compare]
    return [e.operands[0] for e in compares if known_number(facts, e.operands[1]) == 0]


def known_number(facts: StepFacts, value: Value) -> int | None:
    """The number that an integer is, if it is always the same."""
    form = facts.forms.get(value)
    return form.start if form is not None and not form.terms and form.within(-MAX_INDEX, MAX_INDEX) else None


# ---- Extrema


class FirstExtremum(Accumulator, frozen=True, eq=False):
    """A carry that a step replaces if a number is beyond the one that it carries, which it replaces too.

    The values are that number and what the carry becomes. The first of equal numbers wins, and NaN never does.
    """

    best: Value  # the carry that the numbers are compared with
    greatest: bool

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        numbers, own = [stacked[v] for v in self.values]
        build, compare = steps.builder, "gt" if self.greatest else "lt"
        least = build.const(float("-inf") if self.greatest else float("inf"), numbers.type)
        there = steps.where_taken(select.one(build.one("eq", numbers, numbers), numbers, least), least)
        winner = build.one("argmax" if self.greatest else "argmin", there, axis=0)
        sets = build.one(compare, steps.step_at(there, winner), steps.before[self.best])
        before = steps.before[self.param]
        sets = build.one("broadcast", sets, shape=tensor_type(before).shape, axes=())
        return select.one(sets, steps.step_at(own, winner), before)


def classify_extremum(facts: StepFacts, place: int) -> FirstExtremum | None:
    """A carry that a step replaces where a comparison with one of the carries holds."""
    own, param = choice(facts, place), facts.carry[place]
    compare = facts.makers.get(own.condition) if own is not None else None
    if own is None or own.old is not param or compare is None or compare.op not in (gt, lt):
        return None
    new, best = compare.operands if compare.operands[1] in facts.places else compare.operands[::-1]
    if best not in facts.places or not tensor_type(best).dtype.is_float:
        return None
    if choice(facts, facts.places[best]) != (own.condition, new, best):
        return None
    greatest = (compare.op is gt) == (compare.operands[0] is new)
    return FirstExtremum(param, (new, own.new), best, greatest)


def choice(facts: StepFacts, place: int) -> Choice | None:
    """What a step replaces a carry by, and on which condition."""
    result = facts.graph.results[place]
    eqn = facts.makers.get(result)
    if eqn is None or eqn.op not in (select, cond) or tensor_type(eqn.operands[0]).rank:
        return None
    if eqn.op is select:
        return Choice(*eqn.operands)
    number = eqn.results.index(result)
    then, other = [passed_through(eqn, region, region.results[number]) for region in eqn.regions]
    return Choice(eqn.operands[0], then, other) if then is not None and other is not None else None


def passed_through(eqn: Eqn, region: Graph, value: Value) -> Value | None:
    """The operand of a branch that one of its regions gives back."""
    return eqn.operands[1 + region.params.index(value)] if value in region.params else None
