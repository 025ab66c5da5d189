"""What is known of a loop's step, and the form of what its steps do with a carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value
from difflang.ops.arrays.constants import const
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.index_bounds import Forms, Symbol

Stacked = Mapping[Value, Value]


class StepFacts(Struct, frozen=True, eq=False):
    """A step, who makes and who reads its values, and what is known of its integers."""

    graph: Graph
    form: LoopAttrs
    makers: Mapping[Value, Eqn]
    users: Mapping[Value, Sequence[Eqn]]  # an equation as often as it reads the value
    forms: Forms
    counter: Symbol
    length: int

    def read_count(self, value: Value) -> int:
        """How often the equations and the results of the step read a value."""
        return len(self.users.get(value, ())) + self.graph.results.count(value)

    @property
    def carry(self) -> Sequence[Value]:
        """The params of the carries."""
        return self.form.parts(self.graph.params).carry

    def is_invariant(self, value: Value) -> bool:
        """Whether every step computes it alike, from consts."""
        todo = [value]
        while todo:
            value = todo.pop()
            if value in self.form.parts(self.graph.params).consts:
                continue
            eqn = self.makers.get(value)
            if eqn is None or eqn.regions or not (eqn.op is const or eqn.op.elementwise):
                return False
            todo += eqn.operands
        return True

    def needs_carry(self, value: Value) -> bool:
        """Whether a value depends on a carry."""
        carries, seen, todo = set(self.carry), set[Value](), [value]
        while todo:
            value = todo.pop()
            if value in carries:
                return True
            if value not in seen and value in self.makers:
                seen.add(value)
                todo += self.makers[value].operands
        return False

    def offset(self, value: Value) -> int | None:
        """The number that is added to the step's own number, if an integer is their sum."""
        form = self.forms.get(value)
        return form.start if form is not None and form.terms == {self.counter: 1} else None


class Accumulator(Struct, frozen=True, eq=False):
    """A carry. `values` are what all steps must compute for it."""

    param: Value
    values: tuple[Value, ...]

    def prepare(self, steps: AllSteps) -> None:
        """Say what the steps read of the carry, where that is not what it is before the loop."""

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        """The carry after the loop."""
        raise NotImplementedError
