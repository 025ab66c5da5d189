"""What is known of a loop's step, and the form of what its steps do with a carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import ClassVar

from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.arrays.constants import const
from difflang.ops.elementwise.linear_arithmetic import add
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.index_bounds import MAX_INDEX, Affine, Forms, Symbol, counter_bound, enter_loop, learn

Stacked = Mapping[Value, Value]


class Shift(Struct, frozen=True, eq=False):
    """`for i in first..limit`, whose steps are not counted from 0 but from `first`, an integer known in the run.

    Then the steps of all such loops that write or read at `i` do that at the same places.
    """

    position: Value  # `i` in the step
    first: Value  # the param of the step
    length: int  # `i` is below it


class StepFacts(Struct, frozen=True, eq=False):
    """A step, who makes and who reads its values, and what is known of its integers."""

    graph: Graph
    carry: Sequence[Value]  # the params of the carries
    places: Mapping[Value, int]  # and their order
    makers: Mapping[Value, Eqn]
    users: Mapping[Value, Sequence[Eqn]]  # an equation as often as it reads the value
    yielded: Counter[Value]  # how often it is a result
    forms: Forms
    counter: Symbol
    length: int
    shift: Shift | None  # how positions are counted, if not from 0
    invariant: Set[Value]  # what every step computes alike, from consts
    carried: Set[Value]  # what depends on a carry

    def read_count(self, value: Value) -> int:
        """How often the equations and the results of the step read a value."""
        return len(self.users.get(value, ())) + self.yielded[value]

    def offset(self, value: Value) -> int | None:
        """The number that is added to the step's own number, if an integer is their sum."""
        form = self.forms.get(value)
        return form.start if form is not None and form.terms == {self.counter: 1} else None


def shifted_positions(eqn: Eqn, forms: Forms, length: int) -> Shift | None:
    """The positions that a loop of at most `length` steps counts from an integer that loops around it count."""
    form, step = LoopAttrs.of(eqn), eqn.regions[0]
    params, operands, last = form.parts(step.params), form.parts(eqn.operands), counter_bound(forms, eqn)
    for e in step.eqns if last is not None and not form.exact else ():
        if e.op is not add or params.first not in e.operands:
            continue
        left, right = e.operands
        first = right if left is params.first else left
        start = forms.get(operands.consts[params.consts.index(first)]) if first in params.consts else None
        end = start.plus(last).maximum if start is not None and start.terms and last is not None else None
        # Places before the first count for nothing, but take their time: at most as much as the steps themselves.
        if start is not None and end is not None and start.within(0, MAX_INDEX) and end < 2 * length:
            return Shift(e.results[0], first, end + 1)
    return None


def step_facts(eqn: Eqn, forms: Forms, depth: int, length: int, shift: Shift | None) -> StepFacts:
    """What is known of the step of a loop that takes at most `length` steps, from what is known around it."""
    length = length if shift is None else shift.length
    step, form = eqn.regions[0], LoopAttrs.of(eqn)
    inside = enter_loop(forms, eqn, depth)[0]
    counter = Symbol(depth + 1, Affine(length - 1))
    if shift is not None:
        inside[step.params[0]] = Affine(0, {counter: 1}).plus(inside[shift.first], -1)
    else:
        (counter,) = inside[step.params[0]].terms
    makers: dict[Value, Eqn] = {}
    users: dict[Value, list[Eqn]] = {}
    params = form.parts(step.params)
    invariant, carried = set(params.consts), set(params.carry)
    for e in step.eqns:
        learn(inside, e, depth + 1)
        makers |= dict.fromkeys(e.results, e)
        for v in e.operands:
            users.setdefault(v, []).append(e)
        if not e.regions and (e.op is const or e.op.elementwise) and invariant.issuperset(e.operands):
            invariant.update(e.results)
        if not carried.isdisjoint(e.operands):
            carried.update(e.results)
    places = {p: place for place, p in enumerate(params.carry)}
    yielded = Counter(step.results)
    return StepFacts(
        step, params.carry, places, makers, users, yielded, inside, counter, length, shift, invariant, carried
    )


class Accumulator(Struct, frozen=True, eq=False):
    """A carry. `values` are what all steps must compute for it."""

    param: Value
    values: tuple[Value, ...]

    # Whether the values may depend on the state of their own carry.
    reads_state: ClassVar[bool] = False

    @property
    def state(self) -> Value | None:
        """The carry of which a step must know what the steps before made of it; None if it is known at once."""
        return self.param

    def prepare(self, steps: AllSteps) -> None:
        """Say what the steps read of the carry, where that is not what it is before the loop."""

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        """The carry after the loop."""
        raise NotImplementedError


def are_independent(facts: StepFacts, carries: Sequence[Accumulator]) -> bool:
    """Whether nothing that the steps compute for carries and outputs depends on the state of any carry."""
    # The state that each value depends on; None if there are several.
    states: dict[Value, Value | None] = {c.param: c.state for c in carries if c.state is not None}
    for e in facts.graph.eqns:
        found = {states[v] for v in e.operands if v in states}
        if found:
            states |= dict.fromkeys(e.results, found.pop() if len(found) == 1 else None)
    return states.keys().isdisjoint(facts.graph.results[len(carries) :]) and all(
        v not in states or (c.reads_state and states[v] is c.state) for c in carries for v in c.values
    )
