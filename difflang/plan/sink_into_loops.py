"""Sinks arrays that a loop reads item by item into its steps, where the array is larger than its inputs.

`x @ w` over all times before a recurrent network is one quick product. It is also larger than everything the network
saves, and so is its cotangent. In the step it is the product for one time: as many operations, but recomputed whenever
the step is. So this is done only where memory is short.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import Tensor, sequence_item_type
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type


def sink_into_loops(graph: Graph) -> Graph:
    """The graph with arrays that only its loops of known length read computed in their steps. Cost: linear."""
    reads = Counter([*graph.results, *[v for e in graph.eqns for v in e.operands]])
    makers = {r: e for e in graph.eqns for r in e.results}
    return graph.with_eqns([LoopSinking(e, makers, reads).rewritten_loop if e.op is loop else e for e in graph.eqns])


class LoopSinking(Struct):
    """Rewrites one loop to compute such arrays in its steps."""

    loop: Eqn
    makers: dict[Value, Eqn]
    reads: Counter[Value]

    @property
    def rewritten_loop(self) -> Eqn:
        form = LoopAttrs.of(self.loop)
        if not form.exact or form.history_outputs or len(self.loop.regions) != 1:
            return self.loop
        at = form.parts(self.loop.operands)
        # Only arrays that nothing else reads: otherwise they stay in memory anyway.
        once = Counter(at.xs)
        made_of = {x: self.leaf_operands(x) for x in dict.fromkeys(at.xs) if once[x] == self.reads[x]}
        moved = {x: leaves for x, leaves in made_of.items() if is_smaller(leaves[1], x)}
        if not moved:
            return self.loop
        stay = [x for x in at.xs if x not in moved]
        consts = list(dict.fromkeys([v for whole, _ in moved.values() for v in whole]))
        new = [v for v in dict.fromkeys([v for _, items in moved.values() for v in items]) if v not in stay]
        step = self.step_graph(form, list(moved), consts, [*stay, *new])
        operands = (at.first, *at.consts, *consts, *at.carry, *stay, *new)
        attrs = {**self.loop.attrs, "consts": form.consts + len(consts)}
        return Eqn(loop, operands, self.loop.results, attrs, (step,), self.loop.span)

    def leaf_operands(self, x: Value) -> tuple[list[Value], list[Value]]:
        """The inputs from which steps can compute an array's items: those read whole, and those read by item."""
        eqn = self.makers.get(x)
        if eqn is None or (self.reads[x] > 1 and eqn.op not in (broadcast, const)):
            return [], [x]
        # Descend through equations whose items are independent; stop at the others.
        wholes = full_operands(eqn)
        if wholes is None:
            return [], [x]
        consts, items = list[Value](), list[Value]()
        for v, whole in zip(eqn.operands, wholes, strict=True):
            more = ([v], []) if whole else self.leaf_operands(v)
            consts += more[0]
            items += more[1]
        return consts, items

    def step_graph(self, form: LoopAttrs, moved: list[Value], consts: list[Value], xs: list[Value]) -> Graph:
        builder, old = Builder(), self.loop.regions[0]
        at, given = form.parts(old.params), form.parts(self.loop.operands)
        first = [builder.param(p.type, p.hint) for p in (at.first, *at.consts)]
        whole = {v: builder.param(v.type, v.hint) for v in consts}
        carry = [builder.param(p.type, p.hint) for p in at.carry]
        item = {v: builder.param(sequence_item_type(v.type), v.hint) for v in xs}
        for v in moved:
            item[v] = self.made(builder, v, whole, item)
        return builder.finish(builder.inline(old, *first, *carry, *[item[v] for v in given.xs]), name=old.name)

    def made(self, builder: Builder, x: Value, whole: dict[Value, Value], item: dict[Value, Value]) -> Value:
        """The item of an array in a step."""
        if x in item:
            return item[x]
        eqn, wholes = self.makers[x], full_operands(self.makers[x])
        assert wholes is not None
        builder.span = eqn.span
        pairs = zip(eqn.operands, wholes, strict=True)
        operands = [whole[v] if w else self.made(builder, v, whole, item) for v, w in pairs]
        return emit_item_eqn(builder, eqn, operands)


def is_smaller(items: list[Value], x: Value) -> bool:
    """Whether the arrays whose items are read take less memory than the array computed from them."""
    takes = [v.type.bytes for v in dict.fromkeys(items) if isinstance(v.type, Tensor)]
    return isinstance(x.type, Tensor) and sum(takes) < x.type.bytes


def full_operands(eqn: Eqn) -> tuple[bool, ...] | None:
    """For each operand, whether an item of the result reads it whole or by item; None if items are not independent."""
    if eqn.op.elementwise:
        return (False,) * len(eqn.operands)
    if eqn.op is const:
        return ()
    if eqn.op is broadcast:
        axes = eqn.attrs["axes"]
        assert isinstance(axes, tuple)
        if 0 in axes and (
            axes != tuple(sorted(axes)) or tensor_type(eqn.operands[0]).shape[0] != eqn.attrs["shape"][0]
        ):
            return None
        return (0 not in axes,)
    # The first axis of a product without batch axes is a row of its left factor, unless that axis is contracted.
    if eqn.op is dot_general and eqn.attrs["batch"] == ((), ()):
        return None if 0 in eqn.attrs["contract"][0] else (False, True)
    return None


def emit_item_eqn(builder: Builder, eqn: Eqn, operands: list[Value]) -> Value:
    """One item of the result of an equation whose items are independent."""
    attrs = dict(eqn.attrs)
    if eqn.op is const:
        attrs["type"] = sequence_item_type(eqn.results[0].type)
    elif eqn.op is broadcast:
        attrs["shape"] = eqn.attrs["shape"][1:]
        attrs["axes"] = tuple([a - 1 for a in eqn.attrs["axes"] if a])
    elif eqn.op is dot_general:
        left, right = eqn.attrs["contract"]
        attrs["contract"] = (tuple([a - 1 for a in left]), right)
    return builder.emit(eqn.op, operands, **attrs)[0]
