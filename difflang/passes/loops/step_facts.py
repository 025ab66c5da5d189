"""What is known of a loop's step, and the form of what its steps do with a carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import ClassVar

from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.arrays.constants import const
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.index_bounds import Forms, Symbol, enter_loop, learn

Stacked = Mapping[Value, Value]


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
    invariant: Set[Value]  # what every step computes alike, from consts
    carried: Set[Value]  # what depends on a carry

    def read_count(self, value: Value) -> int:
        """How often the equations and the results of the step read a value."""
        return len(self.users.get(value, ())) + self.yielded[value]

    def offset(self, value: Value) -> int | None:
        """The number that is added to the step's own number, if an integer is their sum."""
        form = self.forms.get(value)
        return form.start if form is not None and form.terms == {self.counter: 1} else None


def step_facts(eqn: Eqn, forms: Forms, depth: int, length: int) -> StepFacts:
    """What is known of the step of a loop that takes at most `length` steps, from what is known around it."""
    step, form = eqn.regions[0], LoopAttrs.of(eqn)
    inside = enter_loop(forms, eqn, depth)[0]
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
    (counter,) = inside[step.params[0]].terms
    places = {p: place for place, p in enumerate(params.carry)}
    yielded = Counter(step.results)
    return StepFacts(step, params.carry, places, makers, users, yielded, inside, counter, length, invariant, carried)


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
