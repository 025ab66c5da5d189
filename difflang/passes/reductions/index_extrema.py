"""Extrema by index: the derivative of `min(f(i, j))` over j is that of f at the j that it selects.

The derivative of an extremum is a mask over its whole operand, and what the operand is computed from gets cotangents of
that size too: zeros, but for one element. So where the operand is computed from smaller arrays, the position of each
selected element is found first, and f is computed there alone, from gathered elements. Ties share a derivative, and NaN
has none: if there are any, which is found out at run time, the derivative is that of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import AxisPermutation
from difflang.ir.tensor_types import FLOATS, Tensor
from difflang.ops.arrays.axis_reductions import reduce_all, reduce_max, reduce_min
from difflang.ops.arrays.constants import const, iota
from difflang.ops.arrays.selected_elements import MAX_POSITIONS, unique_position, with_derivative
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.control.checkpoint_block import emit_checkpoint
from difflang.ops.control.cond import cond
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import remaining_axes, static_size, tensor_type
from difflang.passes.graph_levels import replace_equations, rewrite_levels
from difflang.passes.reductions.axis_labels import FreshLabels, Labels, operand_labels
from difflang.passes.rules.reshapes_and_constants import int_tuple

MIN_BYTES = 1 << 15  # of the operand: below, the branch takes longer than a mask
MAX_EQNS = 64  # that are computed a second time
LEAST_GROWTH = 2  # how much larger the largest array on the way must be than what all is computed from

MakerMap = Mapping[Value, Eqn]


def index_extrema(graph: Graph) -> Graph:
    """Differentiate extrema of large computed arrays at the selected elements alone. Cost: linear.

    Only within derivatives; values stay as they are. Not in maps, where both sides of a branch would run.
    """
    return rewrite_levels(graph, index_level)


def index_level(graph: Graph, differentiated: bool) -> Graph:
    """One graph, whose regions have been rewritten."""
    if not differentiated:
        return graph
    made = {r: e for e in graph.eqns for r in e.results}
    order = {e: i for i, e in enumerate(graph.eqns)}
    plans = {e: plan.emit for e in graph.eqns if (plan := plan_selection(e, made, order)) is not None}
    return replace_equations(graph, plans)


class LabeledValue(Struct, frozen=True):
    """A value, and the label of each of its axes."""

    value: Value
    labels: Labels


class Selection(Struct, frozen=True):
    """An extremum of an array that equations compute from smaller ones, the `inputs`."""

    eqn: Eqn
    eqns: tuple[Eqn, ...]  # that compute its operand, in order
    inputs: tuple[Value, ...]
    # Computed at the selected elements, in order, each from its operands; those without operands are inputs.
    steps: tuple[tuple[LabeledValue, tuple[LabeledValue, ...] | None], ...]
    sizes: Mapping[int, int]  # by label
    searched: Labels  # the labels of the axes of the extremum
    kept: Labels  # the labels of its result

    def emit(self, builder: Builder, env: Mapping[Value, Value]) -> list[Value]:
        """The extremum itself, with the derivative of the selected elements."""
        axes = self.eqn.attrs["axes"]
        x = env[self.eqn.operands[0]]
        y = self.eqn.op.one(builder.one("stop", x), axes=axes)
        position = unique_position.one(x, y, axes=axes)
        known = builder.one("ge", position, builder.const(0, position.type))
        inputs = [env[v] for v in self.inputs]
        types = [position.type, *[v.type for v in inputs]]
        regions = build_region(types, self.at_selected), build_region(types, self.at_all)
        everywhere = reduce_all.one(known, axes=tuple(range(tensor_type(known).rank)))
        (z,) = builder.emit(cond, [everywhere, position, *inputs], regions)
        return [with_derivative.one(y, z)]

    def at_all(self, position: Value, *inputs: Value) -> list[Value]:
        """The extremum of the whole operand, recomputed where its derivative needs it."""
        builder = Builder()
        env = {v: builder.param(v.type, v.hint) for v in self.inputs}
        for eqn in (*self.eqns, self.eqn):
            builder.span = eqn.span
            env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))
        body = builder.finish([env[self.eqn.results[0]]])
        return emit_checkpoint(position.home, body, inputs, 1, False)

    def at_selected(self, position: Value, *inputs: Value) -> list[Value]:
        """The operand at the selected elements."""
        builder, outside = position.home, dict(zip(self.inputs, inputs, strict=True))
        index = self.indices(position)
        env: dict[LabeledValue, Value] = {}
        for at, operands in self.steps:
            if operands is None:
                env[at] = self.gathered(outside[at.value], at.labels, index)
            else:
                env[at] = self.step(builder, at, operands, [env[v] for v in operands])
        x = env[self.steps[-1][0]]
        # All are known here. The choice says that elements which are not selected have no derivative, not even that of
        # zero times infinity.
        known = builder.one("ge", position, builder.const(0, position.type))
        return [builder.one("select", known, x, builder.const(0.0, x.type))]

    def indices(self, position: Value) -> dict[int, Value]:
        """The index along each labeled axis of the operand, for each element of the result."""
        builder, type = position.home, tensor_type(position)
        index = {a: builder.one("iota", axis=i, type=type) for i, a in enumerate(self.kept)}
        for a in reversed(self.searched):
            if a == self.searched[0]:
                index[a] = position
            else:
                size = builder.const(self.sizes[a], type)
                index[a], position = builder.one("rem", position, size), builder.one("floor_div", position, size)
        return index

    def layout(self, labels: Labels) -> Labels:
        """The labels of a value at the selected elements: those of the result come first."""
        if not is_searched(labels, self.searched):
            return labels
        return *self.kept, *[a for a in labels if a not in self.searched and a not in self.kept]

    def shape(self, layout: Labels) -> tuple[int, ...]:
        return tuple([self.sizes[a] for a in layout])

    def gathered(self, value: Value, labels: Labels, index: Mapping[int, Value]) -> Value:
        if not is_searched(labels, self.searched):
            return value
        axes = tuple([i for i, a in enumerate(labels) if a in index])
        return value.home.one("gather", value, *[index[labels[i]] for i in axes], axes=axes)

    def step(self, builder: Builder, at: LabeledValue, of: tuple[LabeledValue, ...], operands: list[Value]) -> Value:
        """One of the equations, at the selected elements."""
        (eqn,) = [e for e in self.eqns if at.value in e.results]
        builder.span = eqn.span
        layout, dtype = self.layout(at.labels), tensor_type(at.value).dtype
        if eqn.op is const:
            return builder.const(eqn.attrs["value"], Tensor(dtype, self.shape(layout)))
        if eqn.op is iota:
            axis = layout.index(at.labels[eqn.attrs["axis"]])
            return builder.one("iota", axis=axis, type=Tensor(dtype, self.shape(layout)))
        if eqn.op.elementwise:
            return builder.one(eqn.op.name, *operands, **eqn.attrs)
        layouts = [self.layout(v.labels) for v in of]
        if eqn.op is broadcast or isinstance(eqn.op.movement, AxisPermutation):
            return self.aligned(operands[0], layouts[0], layout)
        if eqn.op is dot_general:
            whole = (*layout, *[a for a in of[0].labels if a not in at.labels and a not in self.searched])
            left, right = (self.aligned(v, a, whole) for v, a in zip(operands, layouts, strict=True))
            return builder.one("reduce_sum", left * right, axes=tuple(range(len(layout), len(whole))))
        axes = tuple([i for i, a in enumerate(layouts[0]) if a not in layout])
        return builder.one(eqn.op.name, *operands, **{**eqn.attrs, "axes": axes})

    def aligned(self, value: Value, have: Labels, want: Labels) -> Value:
        """A value with its axes in the order of `want`, broadcast along those that it lacks."""
        order = sorted(range(len(have)), key=lambda i: want.index(have[i]))
        if order != list(range(len(have))):
            value = value.home.one("transpose", value, perm=tuple(order))
        axes = tuple(sorted([want.index(a) for a in have]))
        if len(axes) == len(want):
            return value
        return value.home.one("broadcast", value, shape=self.shape(want), axes=axes)


def is_searched(labels: Labels, searched: Labels) -> bool:
    return not set(labels).isdisjoint(searched)


def plan_selection(eqn: Eqn, made: MakerMap, order: Mapping[Eqn, int]) -> Selection | None:
    """The plan for an extremum whose operand is large and is computed from smaller arrays."""
    if eqn.op not in (reduce_min, reduce_max) or not is_large(eqn):
        return None
    x, axes = eqn.operands[0], tuple(sorted(int_tuple(eqn.attrs["axes"])))
    rank = tensor_type(x).rank
    root = LabeledValue(x, tuple(range(rank)))
    walk = SelectionWalk(made, axes, remaining_axes(rank, axes))
    if not walk.from_root(root):
        return None
    eqns = sorted(
        {made[at.value] for at, operands in walk.found.items() if operands is not None}, key=order.__getitem__
    )
    results = {r for e in eqns for r in e.results}
    inputs = tuple(dict.fromkeys(v for e in eqns for v in e.operands if v not in results))
    largest = max([size_of(r) for r in results], default=0)
    if root.value not in results or LEAST_GROWTH * sum(map(size_of, inputs)) > largest:
        return None
    leaves = [(at, None) for at, operands in walk.found.items() if operands is None]
    if not {at.value for at, _ in leaves} <= set(inputs):
        return None
    steps = [(at, operands) for at, operands in walk.found.items() if operands is not None]
    steps.sort(key=lambda step: order[made[step[0].value]])
    return Selection(eqn, tuple(eqns), inputs, (*leaves, *steps), walk.sizes, axes, remaining_axes(rank, axes))


def is_large(eqn: Eqn) -> bool:
    type = tensor_type(eqn.operands[0])
    if type.dtype not in FLOATS or not all([isinstance(n, int) for n in type.shape]) or 0 in type.shape:
        return False
    positions = prod([type.shape[a] for a in int_tuple(eqn.attrs["axes"])])
    return type.bytes >= MIN_BYTES and 1 < positions < MAX_POSITIONS


def size_of(value: Value) -> int:
    return prod([n for n in tensor_type(value).shape if isinstance(n, int)])


class SelectionWalk:
    """The walk from an extremum back to the arrays that its operand is computed from."""

    def __init__(self, made: MakerMap, searched: Labels, kept: Labels) -> None:
        self.made, self.searched, self.kept = made, searched, kept
        self.sizes: dict[int, int] = {}
        self.found: dict[LabeledValue, tuple[LabeledValue, ...] | None] = {}

    def from_root(self, root: LabeledValue) -> bool:
        """Whether the walk ends within `MAX_EQNS` equations."""
        fresh, todo = FreshLabels(len(root.labels)), [root]
        while todo:
            at = todo.pop()
            if at in self.found:
                continue
            self.sizes.update(zip(at.labels, map(static_size, tensor_type(at.value).shape), strict=True))
            labels = self.operands(at, fresh)
            if labels is None:
                self.found[at] = None
            else:
                operands = self.made[at.value].operands
                self.found[at] = tuple([LabeledValue(v, a) for v, a in zip(operands, labels, strict=True)])
                todo += self.found[at] or ()
            if len(self.found) > MAX_EQNS:
                return False
        return True

    def operands(self, at: LabeledValue, fresh: FreshLabels) -> list[Labels] | None:
        """The labels of the operands of a value that is cheaper to compute at the selected elements, else None."""
        eqn = self.made.get(at.value)
        if eqn is None or not is_searched(at.labels, self.searched) or self.grows(at):
            return None
        if eqn.op is iota and at.labels[eqn.attrs["axis"]] in self.searched:
            return None
        return operand_labels(eqn, at.labels, fresh)

    def grows(self, at: LabeledValue) -> bool:
        """Whether a value has fewer elements than there are at the selected positions."""
        rest = [a for a in at.labels if a not in self.searched and a not in self.kept]
        return prod([self.sizes[a] for a in (*self.kept, *rest)]) > size_of(at.value)
