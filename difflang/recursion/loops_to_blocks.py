"""Turns loops and comprehensions whose steps make recursive calls into basic blocks: a loop head, and the step.

Items are sliced out of the input arrays where they are read; outputs are written into arrays that pass from step to
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, I32, History, Tensor, Type, sequence_item_type
from difflang.ops.ad_interface import zeros
from difflang.ops.control.recursive_call import recursion_in_checkpoint_error
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import split_at

if TYPE_CHECKING:
    from difflang.recursion.basic_blocks import CodeFragment, ControlFlowGraph

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


def loop_to_blocks(blocks: ControlFlowGraph, eqn: Eqn, rest: CodeFragment) -> CodeFragment:
    """The code that enters a loop; `rest` is the code after the loop."""
    from difflang.recursion.basic_blocks import (
        BasicBlock,
        BranchTerminator,
        CodeFragment,
        JumpTerminator,
        prune_fragment,
    )

    it = RecursiveLoop.of(eqn)
    if any(map(blocks.has_group_call, [e for go in it.regions[1:] for e in go.eqns])):
        ahead = carry_condition(eqn)
        blocks.look_into(ahead)
        return blocks.split_at_calls(ahead, eqn.operands, blocks.continuation(eqn, rest))
    start, home = EquationWriter(eqn), Builder()
    kept = eqn.results[int(it.indexed) + len(it.carry) :]
    first = [start.number(0), *it.carry, *[zeros(start.builder, v.type) for v in kept]]
    index, *state = [Value(v.type, home, v.hint) for v in first]
    carry, ys = state[: len(it.carry)], state[len(it.carry) :]
    done = blocks.continuation(eqn, rest)((index, *state) if it.indexed else tuple(ys))
    test_eqns, running = has_next_step(blocks, it, eqn, index, carry)
    always = (*it.consts, *it.xs, *([it.limit] if it.limit else ()))
    end = BranchTerminator(running, (CodeFragment((), JumpTerminator(blocks.placeholder_block, always)), done))
    # The step jumps to the head and the head branches to the step: the head starts with a placeholder jump, whose
    # operands keep live what every step reads, and gets its real branch when the step exists.
    head: BasicBlock = blocks.add((index, *state), CodeFragment(test_eqns, end))

    def next_step(results: Values) -> CodeFragment:
        to = EquationWriter(eqn)
        count = to.one("add", INDEX, index, to.number(1))
        new = [to.set_item(y, v, index) for y, v in zip(ys, results[len(carry) :], strict=True)]
        return CodeFragment(to.eqns, JumpTerminator(head, (count, *results[: len(carry)], *new, *head.live)))

    reads = EquationWriter(eqn)
    items = [reads.item(x, index) for x in it.xs]
    body = blocks.split_at_calls(
        it.regions[0], (*([index] if it.indexed else ()), *it.consts, *carry, *items), next_step
    )
    step = prune_fragment(CodeFragment((*reads.eqns, *body.eqns), body.end))
    head.code = CodeFragment(head.code.eqns, BranchTerminator(running, (step, done)))
    return CodeFragment(start.eqns, JumpTerminator(head, (*first, *head.live)))


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


def has_next_step(
    blocks: ControlFlowGraph, it: RecursiveLoop, eqn: Eqn, index: Value, carry: Sequence[Value]
) -> tuple[tuple[Eqn, ...], Value]:
    """The equations that decide whether there is another step, and the value that says so."""
    # A negative limit means no limit: only the condition ends the loop.
    to = EquationWriter(eqn)
    limit = to.number(it.length) if it.limit is None else it.limit
    in_range = to.one("lt", BOOL_SCALAR, index, limit)
    if len(it.regions) == 1:
        return to.eqns, in_range
    in_range = to.one("logical_or", BOOL_SCALAR, in_range, to.one("lt", BOOL_SCALAR, limit, to.number(0)))
    eqns, (on,) = blocks.copy_equations(it.regions[1], (index, *it.consts, *carry))
    both = EquationWriter(eqn)
    running = both.one("logical_and", BOOL_SCALAR, in_range, on)
    return (*to.eqns, *eqns, *both.eqns), running
