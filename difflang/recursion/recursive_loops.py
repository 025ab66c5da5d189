"""Loops and comprehensions whose steps make recursive calls: their parts, and the equations that read and write items.

Items are sliced out of the input arrays where they are read; outputs are written into arrays that pass from step to
step. A condition that makes a recursive call is moved into the step.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, I32, History, Tensor, Type, sequence_item_type
from difflang.ops.control.recursive_call import recursion_in_checkpoint_error
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import split_at

INDEX, BOOL_SCALAR = Tensor(I32), Tensor(BOOL)


class RecursiveLoop(Struct, frozen=True, eq=False):
    """The parts of a loop. A comprehension is a loop without a carry."""

    limit: Value | None  # None for as many steps as there are items
    length: int
    consts: Values
    carry: Values
    xs: Values
    regions: tuple[Graph, ...]
    indexed: bool  # whether a step takes its index, and the equation gives the number of steps

    @classmethod
    def of(cls, eqn: Eqn) -> RecursiveLoop:
        """Errors: DL0801 for a loop with a `@checkpoint` policy; InternalError for a loop with histories."""
        if "keep" in eqn.attrs or "host" in eqn.attrs:
            raise recursion_in_checkpoint_error(eqn.span)
        if any(isinstance(v.type, History) for v in (*eqn.operands, *eqn.results)):
            raise InternalError("a function that calls itself inside a loop with histories")
        consts, carry, length = eqn.attrs["consts"], eqn.attrs.get("carry", 0), eqn.attrs["length"]
        first = int(eqn.op is loop)
        at = (first, first + consts, first + consts + carry)
        parts = [eqn.operands[a:b] for a, b in zip(at, (*at[1:], None), strict=True)]
        limit = eqn.operands[0] if first and not eqn.attrs["exact"] else None
        return cls(limit, length or 0, parts[0], parts[1], parts[2], eqn.regions, bool(first))


class EquationWriter:
    """Emits equations on values of any builder."""

    def __init__(self, eqn: Eqn) -> None:
        self.builder = Builder(span=eqn.span)

    def one(self, name: str, type: Type, *operands: Value, **attrs: Any) -> Value:
        return self.builder.append(OPS[name], operands, (type,), **attrs)[0]

    def number(self, value: int) -> Value:
        return self.builder.const(value, INDEX)

    def item(self, x: Value, index: Value) -> Value:
        type = sequence_item_type(x.type)
        assert isinstance(type, Tensor)
        row = Tensor(type.dtype, (1, *type.shape))
        starts = [index, *[self.number(0)] * type.rank]
        return self.one("reshape", type, self.one("dynamic_slice", row, x, *starts, sizes=row.shape), shape=type.shape)

    def set_item(self, xs: Value, x: Value, index: Value) -> Value:
        assert isinstance(x.type, Tensor)
        row = Tensor(x.type.dtype, (1, *x.type.shape))
        starts = [index, *[self.number(0)] * x.type.rank]
        return self.one("dynamic_update", xs.type, xs, self.one("reshape", row, x, shape=row.shape), *starts)

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        return tuple(self.builder.eqns)


def carry_condition(eqn: Eqn) -> Graph:
    """Rewrite a loop whose condition makes recursive calls: its steps compute the condition and carry its value."""
    # The condition is evaluated before the loop and at the end of each step, so as often as before.
    step, go = eqn.regions
    builder = Builder(span=eqn.span)
    operands = [builder.param(v.type, v.hint) for v in eqn.operands]
    consts, carry = eqn.attrs["consts"], eqn.attrs["carry"]
    limit, fixed, state, xs = split_at(operands, 1, 1 + consts, 1 + consts + carry)
    (on,) = builder.inline(go, builder.const(0, INDEX), *fixed, *state)
    types = [r.type for r in eqn.results]
    regions = (step_with_condition(step, go, consts, carry), carried_condition(go))
    outs = builder.append(
        eqn.op, (*limit, *fixed, *state, on, *xs), (*types[: 1 + carry], BOOL_SCALAR, *types[1 + carry :]), regions,
        **{**eqn.attrs, "carry": carry + 1},
    )  # fmt: skip
    return builder.finish([*outs[: 1 + carry], *outs[2 + carry :]])


def step_with_condition(step: Graph, go: Graph, consts: int, carry: int) -> Graph:
    """A step that ends by evaluating the condition for the next one."""
    builder = Builder()
    index, *rest = [builder.param(p.type, p.hint) for p in step.params[: 1 + consts + carry]]
    builder.param(BOOL_SCALAR)
    items = [builder.param(p.type, p.hint) for p in step.params[1 + consts + carry :]]
    results = builder.inline(step, index, *rest, *items)
    after = builder.one("add", index, builder.const(1, INDEX))
    (on,) = builder.inline(go, after, *rest[:consts], *results[:carry])
    return builder.finish([*results[:carry], on, *results[carry:]])


def carried_condition(go: Graph) -> Graph:
    builder = Builder()
    for param in go.params:
        builder.param(param.type, param.hint)
    return builder.finish([builder.param(BOOL_SCALAR)])
