"""A loop, or a comprehension, whose steps call within the group: a block that asks for another step, and the step.

What the steps read item by item is cut out where it is read; what they give item by item is written into arrays that
pass from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, I32, History, Tensor, Type, item_of
from difflang.ops.ad_interface import zeros
from difflang.ops.control.recursive_call import computed_again
from difflang.ops.loop.step_transpose import cut

if TYPE_CHECKING:
    from difflang.recursion.basic_blocks import Blocks, Piece

INDEX, TRUTH = Tensor(I32), Tensor(BOOL)


class Cycle(Struct, frozen=True, eq=False):
    """A loop taken apart. A comprehension is a loop that carries nothing."""

    limit: Value | None  # none for as many steps as there are items
    length: int
    consts: Values
    carry: Values
    xs: Values
    regions: tuple[Graph, ...]
    indexed: bool  # whether a step takes its index, and the equation gives the number of steps

    @classmethod
    def of(cls, eqn: Eqn) -> Cycle:
        """Errors: DL0801 where `@checkpoint` says what is kept; InternalError for a loop with histories.

        What loops yield is in arrays here.
        """
        if "keep" in eqn.attrs or "host" in eqn.attrs:
            raise computed_again(eqn.span)
        if any(isinstance(v.type, History) for v in (*eqn.operands, *eqn.results)):
            raise InternalError("a function that calls itself inside a loop with histories")
        consts, carry, length = eqn.attrs["consts"], eqn.attrs.get("carry", 0), eqn.attrs["length"]
        first = int(eqn.op.name == "loop")
        at = (first, first + consts, first + consts + carry)
        parts = [eqn.operands[a:b] for a, b in zip(at, (*at[1:], None), strict=True)]
        limit = eqn.operands[0] if first and not eqn.attrs["exact"] else None
        return cls(limit, length or 0, parts[0], parts[1], parts[2], eqn.regions, bool(first))


class Writer:
    """Equations on values of anywhere."""

    def __init__(self, eqn: Eqn) -> None:
        self.builder = Builder(span=eqn.span)

    def one(self, name: str, type: Type, *operands: Value, **attrs: Any) -> Value:
        return self.builder.append(OPS[name], operands, (type,), **attrs)[0]

    def number(self, value: int) -> Value:
        return self.builder.const(value, INDEX)

    def item(self, x: Value, index: Value) -> Value:
        type = item_of(x.type)
        assert isinstance(type, Tensor)
        row = Tensor(type.dtype, (1, *type.shape))
        starts = [index, *[self.number(0)] * type.rank]
        return self.one("reshape", type, self.one("dynamic_slice", row, x, *starts, sizes=row.shape), shape=type.shape)

    def put(self, xs: Value, x: Value, index: Value) -> Value:
        assert isinstance(x.type, Tensor)
        row = Tensor(x.type.dtype, (1, *x.type.shape))
        starts = [index, *[self.number(0)] * x.type.rank]
        return self.one("dynamic_update", xs.type, xs, self.one("reshape", row, x, shape=row.shape), *starts)

    @property
    def eqns(self) -> tuple[Eqn, ...]:
        return tuple(self.builder.eqns)


def cycle(blocks: Blocks, eqn: Eqn, rest: Piece) -> Piece:
    """The code that enters a loop; `rest` is the code after it."""
    from difflang.recursion.basic_blocks import Block, Branch, Jump, Piece, pruned

    it = Cycle.of(eqn)
    if any(map(blocks.calls, [e for go in it.regions[1:] for e in go.eqns])):
        ahead = asking_ahead(eqn)
        blocks.look_into(ahead)
        return blocks.cut(ahead, eqn.operands, blocks.after(eqn, rest))
    start, home = Writer(eqn), Builder()
    kept = eqn.results[int(it.indexed) + len(it.carry) :]
    first = [start.number(0), *it.carry, *[zeros(start.builder, v.type) for v in kept]]
    index, *state = [Value(v.type, home, v.hint) for v in first]
    carry, ys = state[: len(it.carry)], state[len(it.carry) :]
    done = blocks.after(eqn, rest)((index, *state) if it.indexed else tuple(ys))
    asked, running = another(blocks, it, eqn, index, carry)
    always = (*it.consts, *it.xs, *([it.limit] if it.limit else ()))
    end = Branch(running, (Piece((), Jump(blocks.nowhere, always)), done))
    head: Block = blocks.add((index, *state), Piece(asked, end))

    def again(results: Values) -> Piece:
        to = Writer(eqn)
        count = to.one("add", INDEX, index, to.number(1))
        new = [to.put(y, v, index) for y, v in zip(ys, results[len(carry) :], strict=True)]
        return Piece(to.eqns, Jump(head, (count, *results[: len(carry)], *new, *head.live)))

    reads = Writer(eqn)
    items = [reads.item(x, index) for x in it.xs]
    body = blocks.cut(it.regions[0], (*([index] if it.indexed else ()), *it.consts, *carry, *items), again)
    step = pruned(Piece((*reads.eqns, *body.eqns), body.end))
    head.piece = Piece(head.piece.eqns, Branch(running, (step, done)))
    return Piece(start.eqns, Jump(head, (*first, *head.live)))


def asking_ahead(eqn: Eqn) -> Graph:
    """A loop whose condition calls, as one whose steps do: they carry what the condition will say.

    It is asked before the loop and at the end of each step, so as often as before.
    """
    step, go = eqn.regions
    builder = Builder(span=eqn.span)
    operands = [builder.param(v.type, v.hint) for v in eqn.operands]
    consts, carry = eqn.attrs["consts"], eqn.attrs["carry"]
    limit, fixed, state, xs = cut(operands, 1, 1 + consts, 1 + consts + carry)
    (on,) = builder.inline(go, builder.const(0, INDEX), *fixed, *state)
    types = [r.type for r in eqn.results]
    regions = (with_condition(step, go, consts, carry), condition_carried(go))
    outs = builder.append(
        eqn.op, (*limit, *fixed, *state, on, *xs), (*types[: 1 + carry], TRUTH, *types[1 + carry :]), regions,
        **{**eqn.attrs, "carry": carry + 1},
    )  # fmt: skip
    return builder.finish([*outs[: 1 + carry], *outs[2 + carry :]])


def with_condition(step: Graph, go: Graph, consts: int, carry: int) -> Graph:
    """A step that ends by asking whether there is another."""
    builder = Builder()
    index, *rest = [builder.param(p.type, p.hint) for p in step.params[: 1 + consts + carry]]
    builder.param(TRUTH)
    items = [builder.param(p.type, p.hint) for p in step.params[1 + consts + carry :]]
    results = builder.inline(step, index, *rest, *items)
    after = builder.one("add", index, builder.const(1, INDEX))
    (on,) = builder.inline(go, after, *rest[:consts], *results[:carry])
    return builder.finish([*results[:carry], on, *results[carry:]])


def condition_carried(go: Graph) -> Graph:
    builder = Builder()
    for param in go.params:
        builder.param(param.type, param.hint)
    return builder.finish([builder.param(TRUTH)])


def another(blocks: Blocks, it: Cycle, eqn: Eqn, index: Value, carry: Sequence[Value]) -> tuple[tuple[Eqn, ...], Value]:
    """The equations that say whether there is another step, and what says so."""
    to = Writer(eqn)
    limit = to.number(it.length) if it.limit is None else it.limit
    below = to.one("lt", TRUTH, index, limit)
    if len(it.regions) == 1:
        return to.eqns, below
    below = to.one("logical_or", TRUTH, below, to.one("lt", TRUTH, limit, to.number(0)))
    eqns, (on,) = blocks.copied(it.regions[1], (index, *it.consts, *carry))
    both = Writer(eqn)
    running = both.one("logical_and", TRUTH, below, on)
    return (*to.eqns, *eqns, *both.eqns), running
