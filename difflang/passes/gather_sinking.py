"""Gather sinking: where only some rows of a computed array are read, only these rows are computed.

`vertices[corners]` reads 60 rows of an array of 10,000 vertices. If nothing else reads the array, its rows are gathered
from what it is computed from instead, as far back as each equation works row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct

from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ir.op import AxisPermutation, Op, result_types
from difflang.ops.arrays.axis_reductions import (
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.euclidean_norm import reduce_norm
from difflang.ops.arrays.gather_scatter import gather
from difflang.ops.arrays.shape_manipulation import broadcast, concat, reshape, slice_, transpose
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.contractions.contraction_order import NamedAxesProduct, dot_cost
from difflang.passes.graph_levels import rewrite_each_graph
from difflang.passes.rules.affine_indices import static_shape
from difflang.passes.rules.reshapes_and_constants import int_tuple

REDUCTIONS = (reduce_all, reduce_any, reduce_max, reduce_min, reduce_norm, reduce_prod, reduce_sum)
MIN_WORK = 4096.0  # multiplications and elements that are saved at least: some microseconds
MAX_PART = 0.5  # of the rows may be read, repetitions included
COST_PER_GATHERED = 4.0  # elements computed in a loop for one that is gathered


def sink_gathers(graph: Graph) -> Graph:
    """Compute only rows that are read. Dead equations are left to dce. Cost: linear."""
    return rewrite_each_graph(graph, sink_in_level)


def reads_rows(eqn: Eqn) -> bool:
    """Whether an equation gathers rows along one axis, fewer than there are."""
    if eqn.op is not gather or len(eqn.operands) != 2:
        return False
    sizes = [*tensor_type(eqn.operands[0]).shape, *tensor_type(eqn.operands[1]).shape]
    if not all([isinstance(n, int) for n in sizes]):
        return False
    (axis,) = int_tuple(eqn.attrs["axes"])
    return 0 < prod(static_shape(eqn.operands[1])) <= MAX_PART * static_shape(eqn.operands[0])[axis]


class Rows(Struct, frozen=True):
    """Which part of an array is read: at an index, along an axis."""

    index: Value
    axis: int


Demands = dict[Value, Rows | None]  # None: all of it


def row_demands(graph: Graph) -> Demands:
    """What is read of each value."""
    demands: Demands = dict.fromkeys(graph.results)

    def read(value: Value, rows: Rows | None) -> None:
        if demands.setdefault(value, rows) != rows:
            demands[value] = None

    for eqn in reversed(graph.eqns):
        rows = demands.get(eqn.results[0]) if len(eqn.results) == 1 else None
        axes = operand_axes(eqn, rows.axis) if rows is not None else None
        if reads_rows(eqn):
            read(eqn.operands[0], Rows(eqn.operands[1], int_tuple(eqn.attrs["axes"])[0]))
            read(eqn.operands[1], None)
        elif rows is None or axes is None:
            demands |= dict.fromkeys([*eqn.results, *eqn.operands])
        else:
            for operand, axis in zip(eqn.operands, axes, strict=True):
                read(operand, None if axis is None else Rows(rows.index, axis))
    return demands


def operand_axes(eqn: Eqn, axis: int) -> Sequence[int | None] | None:
    """The axes of the operands along which they have the rows of the result; None for an equation that mixes rows.

    An operand without rows has no such axis.
    """
    attrs, many = eqn.attrs, len(eqn.operands)
    if eqn.op.elementwise:
        return [axis] * many
    if isinstance(eqn.op.movement, AxisPermutation):
        return [eqn.op.movement.order(**attrs)[axis]]
    if eqn.op is broadcast:
        places, size = int_tuple(attrs["axes"]), tensor_type(eqn.results[0]).shape[axis]
        there = axis in places and tensor_type(eqn.operands[0]).shape[places.index(axis)] == size
        return [places.index(axis) if there else None]
    if eqn.op is reshape:
        return reshaped_axis(eqn, axis)
    if eqn.op in REDUCTIONS:
        return [[a for a in range(tensor_type(eqn.operands[0]).rank) if a not in int_tuple(attrs["axes"])][axis]]
    if eqn.op is dot_general:
        product = NamedAxesProduct.of(eqn)
        name = product.result[axis]
        return [side.index(name) if name in side else None for side in (product.lhs, product.rhs)]
    if eqn.op is slice_:
        bounds = attrs["starts"][axis], attrs["stops"][axis], attrs["steps"][axis]
        return [axis] if bounds == (0, tensor_type(eqn.operands[0]).shape[axis], 1) else None
    return [axis] * many if eqn.op is concat and attrs["axis"] != axis else None


def reshaped_axis(eqn: Eqn, axis: int) -> list[int | None] | None:
    """The axis of the operand that a reshape keeps as this one."""
    before, after = static_shape(eqn.operands[0]), static_shape(eqn.results[0])
    for place, size in enumerate(before):
        if size == after[axis] and prod(before[:place]) == prod(after[:axis]):
            return [place]
    return None


def attrs_for_rows(eqn: Eqn, axis: int, count: int) -> dict[str, Attr]:
    """The attributes of the same equation on `count` rows."""
    name = "stops" if eqn.op is slice_ else "shape"
    if name not in eqn.attrs:
        return dict(eqn.attrs)
    sizes = eqn.attrs[name]
    return {**eqn.attrs, name: (*sizes[:axis], count, *sizes[axis + 1 :])}


# ---- One graph


class SunkRows:
    """The equations of which only the rows at one index are read, and their rows."""

    def __init__(self, index: Value, demands: Demands, made: Mapping[Value, Eqn]) -> None:
        self.index, self.demands, self.made = index, demands, made
        self.eqns: list[Eqn] = []
        self.count = prod(static_shape(index))
        self.started = False  # rows are computed from the first gather on: then the index is known
        self.flat: Value | None = None  # the index as a vector
        self.rows: dict[tuple[Value, int], Value] = {}  # by array and axis

    def axis(self, value: Value) -> int:
        rows = self.demands[value]
        assert rows is not None
        return rows.axis

    def saves_work(self) -> bool:
        """Whether computing few rows, from rows that are gathered, is clearly less work."""
        saved = gathered = 0.0
        inside = {e.results[0] for e in self.eqns}
        for eqn in self.eqns:
            axis = self.axis(eqn.results[0])
            part = self.count / static_size(tensor_type(eqn.results[0]).shape[axis])
            saved += (1 - part) * work_of(eqn)
            axes = operand_axes(eqn, axis)
            assert axes is not None
            operands = dict(zip(eqn.operands, axes, strict=True))
            leaves = [v for v, a in operands.items() if a is not None and v not in inside and not self.is_constant(v)]
            gathered += sum([part * prod(static_shape(v)) for v in leaves])
        return saved > MIN_WORK + COST_PER_GATHERED * gathered

    def is_constant(self, value: Value) -> bool:
        eqn = self.made.get(value)
        return eqn is not None and eqn.op is const

    def compute(self, eqn: Eqn, eqns: list[Eqn], to: Mapping[Value, Value]) -> None:
        """Append the rows of an equation's result."""
        result, axis = eqn.results[0], self.axis(eqn.results[0])
        axes = operand_axes(eqn, axis)
        assert axes is not None
        pairs = zip(eqn.operands, axes, strict=True)
        operands = [to.get(v, v) if a is None else self.rows_of(v, a, eqn, eqns, to) for v, a in pairs]
        self.rows[result, axis] = append(eqns, eqn, eqn.op, operands, attrs_for_rows(eqn, axis, self.count))

    def rows_of(self, value: Value, axis: int, like: Eqn, eqns: list[Eqn], to: Mapping[Value, Value]) -> Value:
        """The rows of an operand: computed, or gathered from it."""
        key = value, axis
        if key not in self.rows and self.is_constant(value):
            type = tensor_type(value).resized(axis, self.count)
            self.rows[key] = append(eqns, like, const, [], {**self.made[value].attrs, "type": type})
        elif key not in self.rows:
            if self.flat is None:
                self.flat = append(eqns, like, reshape, [to.get(self.index, self.index)], {"shape": (self.count,)})
            found = append(eqns, like, gather, [to.get(value, value), self.flat], {"axes": (axis,)})
            self.rows[key] = permuted(eqns, like, found, (*range(1, axis + 1), 0))
        return self.rows[key]

    def gathered(self, eqn: Eqn, eqns: list[Eqn]) -> Value:
        """Append what a gather reads of the computed rows; returns its value."""
        (axis,) = int_tuple(eqn.attrs["axes"])
        array = permuted(eqns, eqn, self.rows[eqn.operands[0], axis], (axis, *range(axis)))
        return append(eqns, eqn, reshape, [array], {"shape": tensor_type(eqn.results[0]).shape})


def sink_in_level(graph: Graph) -> Graph:
    """One graph, whose regions have been rewritten."""
    if not any(map(reads_rows, graph.eqns)):
        return graph
    demands, made = row_demands(graph), {r: e for e in graph.eqns for r in e.results}
    groups: dict[Value, SunkRows] = {}
    group_of: dict[Eqn, SunkRows] = {}
    for eqn in graph.eqns:
        rows = demands.get(eqn.results[0]) if len(eqn.results) == 1 else None
        if rows is not None:
            group_of[eqn] = groups.setdefault(rows.index, SunkRows(rows.index, demands, made))
            group_of[eqn].eqns.append(eqn)
    chosen = {group for group in groups.values() if group.saves_work()}
    if not chosen:
        return graph
    waiting: dict[SunkRows, list[Eqn]] = {group: [] for group in chosen}
    eqns: list[Eqn] = []
    to: dict[Value, Value] = {}
    for eqn in graph.eqns:
        source = made.get(eqn.operands[0]) if reads_rows(eqn) else eqn
        group = group_of.get(source) if source is not None else None
        if group not in chosen:
            eqns.append(eqn.replace_operands(to))
        elif source is eqn and not group.started:
            waiting[group].append(eqn)
        elif source is eqn:
            group.compute(eqn, eqns, to)
        else:
            group.started = True
            for earlier in waiting.pop(group, ()):
                group.compute(earlier, eqns, to)
            to[eqn.results[0]] = group.gathered(eqn, eqns)
    return graph.with_eqns(eqns).replace_results(to)


def permuted(eqns: list[Eqn], like: Eqn, value: Value, first: tuple[int, ...]) -> Value:
    """Append a permutation of the first axes, if it is one; returns its result."""
    perm = (*first, *range(len(first), tensor_type(value).rank))
    return value if perm == tuple(sorted(perm)) else append(eqns, like, transpose, [value], {"perm": perm})


def append(eqns: list[Eqn], like: Eqn, op: Op, operands: Sequence[Value], attrs: dict[str, Attr]) -> Value:
    """Append an equation at the position of another one; returns its result."""
    (type,) = result_types(op, [v.type for v in operands], (), attrs)
    result = Value(type, like.results[0].home)
    eqns.append(Eqn(op, tuple(operands), (result,), attrs, (), like.span))
    return result


def work_of(eqn: Eqn) -> float:
    """The cost of an equation, in the unit of `contraction_order`."""
    if eqn.op is dot_general:
        return dot_cost(eqn)
    if eqn.op is broadcast or eqn.op is const or isinstance(eqn.op.movement, AxisPermutation):
        return 0.0
    return float(prod(static_shape(eqn.results[0])))
