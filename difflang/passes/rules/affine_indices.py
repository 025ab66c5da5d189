"""Affine indices: rewrite rules that turn gathers such as `x[2 * i + 1]` or `x[n - 1 - i]` into slices, without checks.

An index array is traced back to iotas. If it is affine in these and stays in range, the gather reads elements at equal
distances: a slice with a step, perhaps reversed. The cotangent of a slice is a pad, that of a gather a scatter-add,
which is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from msgspec import Struct

from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.tensor_types import BOOL, F64, I32, I64, U32, Tensor
from difflang.ops.arrays.gather_scatter import gather
from difflang.ops.op_factories import remaining_axes, static_size, tensor_type
from difflang.passes.rules.reshapes_and_constants import (
    apply_op,
    const_like,
    int_tuple,
    on_matrix,
    on_vector,
    sample_program,
)
from difflang.passes.rules.rewriter import GuardedRule, Replacement, Rewriter

MakerMap = Mapping[Value, Eqn]
Emit = Callable[..., Value]  # (name of an op, *operands, **attrs) -> its result

SEARCH_DEPTH = 12  # how many equations back an index is traced
INDEX_RANGES = {I32: (-(2**31), 2**31), I64: (-(2**63), 2**63), U32: (0, 2**32)}  # half-open


class AffineIndex(Struct, frozen=True):
    """An array of integers: `start`, and along each axis a multiple of the position."""

    start: int
    steps: tuple[int, ...]

    def bounds(self, shape: Sequence[int]) -> tuple[int, int]:
        """The least and the greatest index. No axis may be empty."""
        reach = [step * (n - 1) for step, n in zip(self.steps, shape, strict=True)]
        return self.start + sum(r for r in reach if r < 0), self.start + sum(r for r in reach if r > 0)

    def plus(self, other: AffineIndex, times: int = 1) -> AffineIndex:
        steps = tuple([a + times * b for a, b in zip(self.steps, other.steps, strict=True)])
        return AffineIndex(self.start + times * other.start, steps)

    def times(self, number: int) -> AffineIndex:
        return AffineIndex(number * self.start, tuple([number * s for s in self.steps]))


def affine_index(value: Value, made: MakerMap, depth: int = SEARCH_DEPTH) -> AffineIndex | None:
    """The affine form of an array of integers, if it has one and no integer on the way overflows."""
    eqn = made.get(value)
    shape = tensor_type(value).shape
    if (
        eqn is None
        or depth == 0
        or tensor_type(value).dtype not in INDEX_RANGES
        or not all(isinstance(n, int) and n for n in shape)
    ):
        return None
    rule = AFFINE_OPS.get(eqn.op.name)
    inner = [affine_index(v, made, depth - 1) for v in eqn.operands] if rule is not None else []
    operands = [a for a in inner if a is not None]
    if rule is None or len(operands) < len(inner):
        return None
    found = rule(eqn, *operands)
    least, most = found.bounds(static_shape(value)) if found is not None else (0, 0)
    first, end = INDEX_RANGES[tensor_type(value).dtype]
    return found if first <= least and most < end else None


def static_shape(value: Value) -> tuple[int, ...]:
    return tuple(map(static_size, tensor_type(value).shape))


def affine_const(eqn: Eqn) -> AffineIndex | None:
    value = eqn.attrs["value"]
    return AffineIndex(value, (0,) * tensor_type(eqn.results[0]).rank) if isinstance(value, int) else None


def affine_iota(eqn: Eqn) -> AffineIndex:
    return AffineIndex(0, tuple([int(a == eqn.attrs["axis"]) for a in range(tensor_type(eqn.results[0]).rank)]))


def affine_product(_: Eqn, x: AffineIndex, y: AffineIndex) -> AffineIndex | None:
    if any(x.steps):
        x, y = y, x
    return None if any(x.steps) else y.times(x.start)


def affine_broadcast(eqn: Eqn, x: AffineIndex) -> AffineIndex:
    places = int_tuple(eqn.attrs["axes"])
    small = static_shape(eqn.operands[0])
    steps = {a: s for a, s, n in zip(places, x.steps, small, strict=True) if n != 1}
    return AffineIndex(x.start, tuple([steps.get(a, 0) for a in range(tensor_type(eqn.results[0]).rank)]))


def affine_reshape(eqn: Eqn, x: AffineIndex) -> AffineIndex | None:
    """Axes of size 1 come and go."""
    before, after = static_shape(eqn.operands[0]), static_shape(eqn.results[0])
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    steps = iter([s for s, n in zip(x.steps, before, strict=True) if n != 1])
    return AffineIndex(x.start, tuple([next(steps) if n != 1 else 0 for n in after]))


def affine_slice(eqn: Eqn, x: AffineIndex) -> AffineIndex:
    starts, strides = int_tuple(eqn.attrs["starts"]), int_tuple(eqn.attrs["steps"])
    start = x.start + sum(s * first for s, first in zip(x.steps, starts, strict=True))
    return AffineIndex(start, tuple([s * stride for s, stride in zip(x.steps, strides, strict=True)]))


def affine_reverse(eqn: Eqn, x: AffineIndex) -> AffineIndex:
    reversed_axes, shape = int_tuple(eqn.attrs["axes"]), static_shape(eqn.operands[0])
    start = x.start + sum(x.steps[a] * (shape[a] - 1) for a in reversed_axes)
    return AffineIndex(start, tuple([-s if a in reversed_axes else s for a, s in enumerate(x.steps)]))


AFFINE_OPS: dict[str, Callable[..., AffineIndex | None]] = {
    "const": affine_const,
    "iota": affine_iota,
    "add": lambda eqn, x, y: x.plus(y),
    "sub": lambda eqn, x, y: x.plus(y, -1),
    "neg": lambda eqn, x: x.times(-1),
    "mul": affine_product,
    "truncate": lambda eqn, x: x,
    "broadcast": affine_broadcast,
    "reshape": affine_reshape,
    "transpose": lambda eqn, x: AffineIndex(x.start, tuple([x.steps[a] for a in int_tuple(eqn.attrs["perm"])])),
    "slice": affine_slice,
    "reverse": affine_reverse,
}


# ---- Gathers


def gather_to_slice(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a gather with affine indices by a slice."""
    x, *indices = eqn.operands
    places = [affine_index(v, to.makers) for v in indices]
    found = [p for p in places if p is not None]
    if len(found) < len(places):
        return None

    def emit(name: str, *operands: Value, **attrs: Any) -> Value:
        return to.emit(eqn, name, *operands, **attrs)[0]

    result = emit_gather_slice(emit, x, found, int_tuple(eqn.attrs["axes"]), static_shape(indices[0]))
    return None if result is None else [result]


def emit_gather_slice(
    emit: Emit, x: Value, places: Sequence[AffineIndex], axes: Sequence[int], grid: tuple[int, ...]
) -> Value | None:
    """A gather with affine indices over a grid as slices, if it is expressible as such."""
    shape = static_shape(x)
    if 0 in grid or not all(in_bounds(p, grid, shape[a]) for p, a in zip(places, axes, strict=True)):
        return None
    along = [[d for d, (s, n) in enumerate(zip(p.steps, grid, strict=True)) if s and n > 1] for p in places]
    grid_axes = [d for ds in along for d in ds]
    if all(len(ds) <= 1 for ds in along) and len(set(grid_axes)) == len(grid_axes):
        return slice_axes(emit, x, places, axes, grid)
    if len(set(grid_axes)) > 1:
        return None
    # Several indices vary along one axis of the grid, as in a diagonal: a slice of the flattened axes.
    rest = remaining_axes(len(shape), tuple(axes))
    strides = [prod([shape[b] for b in axes[i + 1 :]]) for i in range(len(axes))]
    place = AffineIndex(0, (0,) * len(grid))
    for p, stride in zip(places, strides, strict=True):
        place = place.plus(p, stride)
    front = emit("transpose", x, perm=(*axes, *rest))
    flat = emit("reshape", front, shape=(prod([shape[a] for a in axes]), *[shape[a] for a in rest]))
    return slice_axes(emit, flat, [place], (0,), grid)


def in_bounds(place: AffineIndex, grid: Sequence[int], size: int) -> bool:
    least, most = place.bounds(grid)
    return least >= 0 and most < size


def slice_axes(
    emit: Emit, x: Value, places: Sequence[AffineIndex], axes: Sequence[int], grid: tuple[int, ...]
) -> Value:
    """Slice each indexed axis; its index is constant, or varies along one axis of the grid."""
    shape = static_shape(x)
    starts, stops, strides = [0] * len(shape), list(shape), [1] * len(shape)
    backwards: list[int] = []
    axis_of_grid: dict[int, int] = {}  # axis of the grid: axis of x
    for place, axis in zip(places, axes, strict=True):
        grid_axis = next((d for d, (s, n) in enumerate(zip(place.steps, grid, strict=True)) if s and n > 1), None)
        least, most = place.bounds(grid)
        starts[axis], stops[axis] = least, most + 1
        if grid_axis is not None:
            axis_of_grid[grid_axis] = axis
            strides[axis] = abs(place.steps[grid_axis])
            backwards += [axis] if place.steps[grid_axis] < 0 else []
    found = emit("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(strides))
    if backwards:
        found = emit("reverse", found, axes=tuple(backwards))
    grid_axes = sorted(axis_of_grid)
    points = [a for a in axes if a not in axis_of_grid.values()]
    rest = remaining_axes(len(shape), tuple(axes))
    found = emit("transpose", found, perm=(*[axis_of_grid[d] for d in grid_axes], *points, *rest))
    found = emit("reshape", found, shape=(*[grid[d] for d in grid_axes], *[shape[a] for a in rest]))
    spread = (*grid_axes, *range(len(grid), len(grid) + len(rest)))
    return emit("broadcast", found, shape=(*grid, *[shape[a] for a in rest]), axes=spread)


def dynamic_slice_to_slice(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a dynamic slice with constant starts by a slice; starts are clamped to the array, as XLA does."""
    x, *starts = eqn.operands
    numbers, shape, wanted = [to.number(s) for s in starts], tensor_type(x).shape, int_tuple(eqn.attrs["sizes"])
    first: list[int] = []
    for n, whole, size in zip(numbers, shape, wanted, strict=True):
        end = whole - size
        if not isinstance(n, int) or not (n == 0 or isinstance(end, int)):
            return None  # with a symbolic size it is unknown whether the slice stays in the array
        first.append(min(max(n, 0), end) if isinstance(end, int) else 0)
    stops = tuple([f + size for f, size in zip(first, wanted, strict=True)])
    return to.emit(eqn, "slice", x, starts=tuple(first), stops=stops, steps=(1,) * len(shape))


def padded_reshape_to_diagonal(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a vector padded and reshaped into a diagonal matrix by a select on row and column numbers."""
    made = to.maker(eqn.operands[0], "pad")
    shape = static_shape(eqn.results[0])
    if made is None or len(shape) != 2 or shape[0] != shape[1] or tensor_type(made.operands[0]).rank != 1:
        return None
    between = (made.attrs["low"], made.attrs["high"], made.attrs["interior"])
    if static_shape(made.operands[0]) != shape[:1] or between != ((0,), (0,), (shape[0],)):
        return None
    row, column = (to.emit(eqn, "iota", type=Tensor(I32, shape), axis=a)[0] for a in (0, 1))
    (here,) = to.emit(eqn, "eq", row, column)
    numbers, between = (
        to.emit(eqn, "broadcast", v, shape=shape, axes=a)[0] for v, a in zip(made.operands, ((0,), ()), strict=True)
    )
    return to.emit(eqn, "select", here, numbers, between)


# ---- Bounds checks

# For each comparison, its value where the difference of the operands is below a number; elsewhere it is the opposite.
COMPARISON_SIDES = {"lt": (True, 0), "le": (True, 1), "ge": (False, 0), "gt": (False, 1)}


def fold_affine_comparison(to: Rewriter, eqn: Eqn) -> Replacement:
    """Fold a comparison of affine integers whose bounds decide it."""
    x, y = (affine_index(v, to.makers) for v in eqn.operands)
    if x is None or y is None:
        return None
    least, most = x.plus(y, -1).bounds(static_shape(eqn.operands[0]))
    below, reached = COMPARISON_SIDES[eqn.op.name]
    answer = below if most < reached else not below if least >= reached else None
    return None if answer is None else [to.const(eqn, answer, eqn.results[0].type)]


def fold_constant_reduction(to: Rewriter, eqn: Eqn) -> Replacement:
    """Replace a maximum, minimum, any or all of a constant array by the constant."""
    number = to.number(eqn.operands[0])
    if number is None or 0 in tensor_type(eqn.operands[0]).shape:
        return None
    return [to.const(eqn, number, eqn.results[0].type)]


# ---- Sample programs and the table of rules


on_bools = sample_program(Tensor(BOOL, (2, 3)))


def index_const(x: Value, place: int) -> Value:
    return const_like(x, place, Tensor(I32))


def sample_diagonal(x: Value) -> Value:
    spread = apply_op("pad", x, const_like(x, -0.0, Tensor(F64)), low=(0,), high=(0,), interior=(3,))
    return apply_op("reshape", spread, shape=(3, 3))


def sample_bounds_check(name: str, size: int) -> Graph:
    """A bounds check of 2 i + 3 for i from 0 to 4."""

    def body(x: Value) -> list[Value]:
        index = x.home.one("iota", type=Tensor(I32, (5,)), axis=0) * 2 + 3
        unsigned = apply_op("truncate", index, dtype=U32)
        return [apply_op(name, unsigned, const_like(unsigned, size))]

    return build_region([Tensor(I32)], body)


def sample_gather(shape: tuple[int, ...], axes: tuple[int, ...], *places: Callable[[Value, Value], Value]) -> Graph:
    """A gather on a grid of 2 by 3."""

    def body(x: Value) -> list[Value]:
        i, j = (x.home.one("iota", type=Tensor(I32, (2, 3)), axis=a) for a in (0, 1))
        return [gather.one(x, *[p(i, j) for p in places], axes=axes)]

    return build_region([Tensor(F64, shape)], body)


AFFINE_INDEX_RULES = (
    GuardedRule(
        ("gather",),
        gather_to_slice,
        (
            lambda: sample_gather((8,), (0,), lambda i, j: j * 2 + 1),
            lambda: sample_gather((4, 5), (1,), lambda i, j: const_like(j, 4) - j * 2),
            lambda: sample_gather((3, 2, 7), (0, 2), lambda i, j: j, lambda i, j: i * 3 + 2),
            lambda: sample_gather((3, 3, 2), (0, 1), lambda i, j: j, lambda i, j: const_like(j, 2) - j),
            lambda: sample_gather((2, 4), (1,), lambda i, j: const_like(j, 3)),
            lambda: sample_gather(
                (3, 4), (0, 1), lambda i, j: apply_op("reverse", j, axes=(1,)), lambda i, j: const_like(j, 1)
            ),
        ),
    ),
    GuardedRule(
        ("dynamic_slice",),
        dynamic_slice_to_slice,
        (
            on_matrix(lambda x: apply_op("dynamic_slice", x, index_const(x, 1), index_const(x, 1), sizes=(1, 2))),
            on_matrix(lambda x: apply_op("dynamic_slice", x, index_const(x, -7), index_const(x, 9), sizes=(1, 2))),
        ),
    ),
    GuardedRule(
        ("reshape",),
        padded_reshape_to_diagonal,
        (on_vector(sample_diagonal),),
        operand_guard=(0, "pad"),
    ),
    GuardedRule(
        ("lt", "le", "gt", "ge"),
        fold_affine_comparison,
        (
            lambda: sample_bounds_check("ge", 12),
            lambda: sample_bounds_check("ge", 3),
            lambda: sample_bounds_check("gt", 11),
            lambda: sample_bounds_check("lt", 12),
            lambda: sample_bounds_check("le", 2),
        ),
    ),
    GuardedRule(
        ("reduce_any", "reduce_all", "reduce_max", "reduce_min"),
        fold_constant_reduction,
        (
            on_bools(lambda p: apply_op("reduce_any", const_like(p, True), axes=(0,))),
            on_bools(lambda p: apply_op("reduce_all", const_like(p, False), axes=(0, 1))),
            on_matrix(lambda x: apply_op("reduce_max", const_like(x, -0.0), axes=(1,))),
            on_matrix(lambda x: apply_op("reduce_min", const_like(x, float("nan")), axes=())),
        ),
        operand_guard=(0, "const"),
    ),
)
