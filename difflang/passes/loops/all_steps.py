"""All steps of a loop at once: values of the step, stacked along a first axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.map import map_
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.op_factories import tensor_type


class AllSteps(Struct, eq=False):
    """Emits into `builder` what all steps compute. `outside` has what steps take for consts and carries."""

    builder: Builder
    step: Graph
    makers: Mapping[Value, Eqn]
    outside: dict[Value, Value]
    before: Mapping[Value, Value]  # the carries of the step before the loop
    count: Value  # the number of steps
    exact: bool  # whether that is `length`, and not less
    length: int
    first: Value | None = None  # the position of the first step that is taken, if that is not 0
    items: dict[Value, Value] = field(default_factory=dict)  # values of all steps that are known, in one array each
    after: dict[Value, Value] = field(default_factory=dict)  # carries after the loop that are known beforehand
    # By status of a failure word: whether a step sets it, which one is the first, and to what.
    failures: dict[Value, tuple[Value, Value, Value]] = field(default_factory=dict)

    def compute(self, values: Iterable[Value]) -> dict[Value, Value]:
        """Values of the step, those of all steps in one array."""
        results = tuple(dict.fromkeys(values))
        needed, eqns = set(results), list[Eqn]()
        for eqn in reversed(self.step.eqns):
            if eqn.effectful or not needed.difference(self.items).isdisjoint(eqn.results):
                needed.update(eqn.operands)
                eqns.append(eqn)
        params = [p for p in self.step.params if p in needed]
        shared, items = [p for p in params if p not in self.items], [v for v in self.items if v in needed]
        body = Graph((*shared, *items), tuple(eqns[::-1]), results, self.step.name)
        operands = [*[self.outside[p] for p in shared], *[self.items[p] for p in items]]
        found = self.builder.emit(map_, operands, (body,), consts=len(shared), length=self.length)
        return dict(zip(results, found, strict=True))

    def invariant(self, value: Value) -> Value:
        """The value that every step computes alike, outside the loop."""
        todo = [value]
        while todo:
            if todo[-1] in self.outside:
                todo.pop()
                continue
            eqn = self.makers[todo[-1]]
            missing = [v for v in eqn.operands if v not in self.outside]
            todo += missing
            if not missing:
                operands = tuple([self.outside[v] for v in eqn.operands])
                self.outside |= zip(eqn.results, self.builder.copy(eqn, operands), strict=True)
        return self.outside[value]

    def step_at(self, stacked: Value, number: Value) -> Value:
        """The value of the step of that number."""
        rest = tensor_type(stacked).shape[1:]
        starts = [number, *[self.builder.const(0, number.type) for _ in rest]]
        item = self.builder.one("dynamic_slice", stacked, *starts, sizes=(1, *rest))
        return self.builder.one("reshape", item, shape=rest)

    def where_taken(self, stacked: Value, otherwise: Value, axis: int = 0) -> Value:
        """An array of all steps along an axis, with another in place of the steps that are not taken."""
        if self.exact:
            return stacked
        type = tensor_type(stacked)
        number = self.builder.one("iota", type=Tensor(tensor_type(self.count).dtype, type.shape), axis=axis)
        end = self.count if self.first is None else self.first + self.count
        taken = self.builder.one("lt", number, self.builder.one("broadcast", end, shape=type.shape, axes=()))
        if self.first is not None:
            least = self.builder.one("broadcast", self.first, shape=type.shape, axes=())
            taken = self.builder.one("logical_and", self.builder.one("ge", number, least), taken)
        return select.one(taken, stacked, otherwise)

    def numbers(self) -> Value:
        """The numbers of the steps, counted from the first that is taken."""
        positions = self.builder.one("iota", type=Tensor(tensor_type(self.count).dtype, (self.length,)), axis=0)
        if self.first is None:
            return positions
        return positions - self.builder.one("broadcast", self.first, shape=(self.length,), axes=())

    def total(self, stacked: Value) -> Value:
        """The sum over the steps that are taken."""
        nothing = self.builder.const(0, stacked.type)
        return self.builder.one("reduce_sum", self.where_taken(stacked, nothing), axes=(0,))
