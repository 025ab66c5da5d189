"""Carries that a step replaces on a condition: the first failure, and the first of the greatest or smallest numbers."""

from __future__ import annotations

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.control.cond import cond
from difflang.ops.elementwise.comparison_and_logic import eq, gt, logical_and, lt
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import tensor_type
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.index_bounds import is_index
from difflang.passes.loops.step_facts import Accumulator, Stacked, StepFacts

# ---- Failures


class FirstFailure(Accumulator, frozen=True, eq=False):
    """A part of the failure word, which the first step that fails sets. The first value is that of `status`, 0 if none.

    All steps are computed as if none before had failed.
    """

    status: Value

    def prepare(self, steps: AllSteps) -> None:
        steps.outside[self.status] = steps.builder.const(0, self.status.type)

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        status, own = [stacked[v] for v in self.values]
        # All parts of the word are chosen by one condition, so that a loop around this one finds its word too.
        if self.status not in steps.failures:
            steps.failures[self.status] = self.first(steps, status)
        sets, first = steps.failures[self.status]
        return select.one(sets, steps.step_at(own, first), steps.before[self.param])

    def first(self, steps: AllSteps, status: Value) -> tuple[Value, Value]:
        """Whether a step fails and none did before the loop, and the number of the first that fails."""
        build, none = steps.builder, steps.builder.const(0, status.type)
        failed = build.one("ne", steps.where_taken(status, none), none)
        first = build.one("argmax", build.one("truncate", failed, dtype=tensor_type(status).dtype), axis=0)
        before = steps.before[self.status]
        fine = build.one("eq", before, build.const(0, before.type))
        return build.one("logical_and", fine, build.one("reduce_any", failed, axes=(0,))), first


def failure_status(facts: StepFacts, place: int) -> tuple[Value, Value] | None:
    """The param and the result of the status of the failure word that a carry is part of.

    Values that depend on the word do not matter: once it is set, the program has failed.
    """
    choices = chosen_by(facts, place)
    for other, param in enumerate(facts.carry) if choices else ():
        # All parts of a word change by the same conditions, and these read the status.
        same = chosen_by(facts, other) or []
        if [c for c, _ in same] == [c for c, _ in choices or ()] and all(is_unset(facts, *pair) for pair in same):
            return param, facts.graph.results[other]
    return None


def chosen_by(facts: StepFacts, place: int) -> list[tuple[Value, Value]] | None:
    """The conditions on which a step replaces an integer that it carries, each with the integer that it replaces."""
    param, value = facts.carry[place], facts.graph.results[place]
    found: list[tuple[Value, Value]] = []
    while value is not param:
        eqn = facts.makers.get(value)
        if eqn is None or eqn.op is not select or not is_index(value):
            return None
        condition, _, value = eqn.operands
        found.append((condition, value))
    return found


def is_unset(facts: StepFacts, condition: Value, status: Value) -> bool:
    """Whether a condition holds only if a status is 0."""
    both = facts.makers.get(condition)
    for part in both.operands if both is not None and both.op is logical_and else ():
        compare = facts.makers.get(part)
        if compare is not None and compare.op is eq and compare.operands[0] is status:
            zero = facts.forms.get(compare.operands[1])
            return zero is not None and not zero.terms and zero.start == 0
    return False


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
    compare = facts.makers.get(own[0]) if own is not None else None
    if own is None or own[2] is not param or compare is None or compare.op not in (gt, lt):
        return None
    new, best = compare.operands if compare.operands[1] in facts.carry else compare.operands[::-1]
    if best not in facts.carry or not tensor_type(best).dtype.is_float or not only_chooses(facts, own[0]):
        return None
    leader = choice(facts, facts.carry.index(best))
    if leader is None or leader[0] is not own[0] or leader[1] is not new or leader[2] is not best:
        return None
    # The numbers are compared with what the best is then; no other value may depend on what is carried.
    if facts.read_count(param) != (2 if param is best else 1):
        return None
    greatest = (compare.op is gt) == (compare.operands[0] is new)
    return FirstExtremum(param, (new, own[1]), best, greatest)


def choice(facts: StepFacts, place: int) -> tuple[Value, Value, Value] | None:
    """The condition on which a step replaces a carry, what it becomes then, and otherwise."""
    result = facts.graph.results[place]
    eqn = facts.makers.get(result)
    if eqn is None or eqn.op not in (select, cond) or tensor_type(eqn.operands[0]).rank:
        return None
    if eqn.op is select:
        return eqn.operands[0], eqn.operands[1], eqn.operands[2]
    number = eqn.results.index(result)
    then, other = [passed_through(eqn, region, region.results[number]) for region in eqn.regions]
    return (eqn.operands[0], then, other) if then is not None and other is not None else None


def passed_through(eqn: Eqn, region: Graph, value: Value) -> Value | None:
    """The operand of a branch that one of its regions gives back."""
    return eqn.operands[1 + region.params.index(value)] if value in region.params else None


def only_chooses(facts: StepFacts, condition: Value) -> bool:
    """Whether a condition decides of nothing but carries."""
    results = facts.graph.results[: facts.form.carry]
    return condition not in facts.graph.results and all(
        e.op in (select, cond)
        and e.operands.count(condition) == 1
        and all(facts.read_count(r) == results.count(r) for r in e.results)
        for e in facts.users[condition]
    )
