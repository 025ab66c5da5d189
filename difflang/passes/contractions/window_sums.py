"""Sums over short windows, `sum(for k in 0..4 => x[2 * i + k])`, as sums of slices."""

from __future__ import annotations

from functools import reduce

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Value
from difflang.ops.arrays.gather_scatter import gather as gather_op
from difflang.passes.contractions.einsum_form import Axes, MakerMap
from difflang.passes.rules.affine_indices import AffineIndex, affine_index, emit_gather_slice, static_shape
from difflang.passes.rules.reshapes_and_constants import int_tuple

MAX_WINDOW = 8  # the longest window that is summed slice by slice


class WindowSum(Struct, frozen=True):
    """A sum along one axis of a gather with affine indices."""

    x: Value
    indices: tuple[AffineIndex, ...]
    axes: Axes
    grid: Axes
    along: int

    @property
    def reads(self) -> tuple[Value, ...]:
        return (self.x,)

    def sum(self, builder: Builder, x: Value) -> Value:
        parts = [self.part(builder, x, k) for k in range(self.grid[self.along])]
        found = [p for p in parts if p is not None]
        assert len(found) == len(parts)
        return reduce(lambda a, b: builder.one("add", a, b), found)

    def part(self, builder: Builder, x: Value, k: int) -> Value | None:
        """The k-th element of each window, as a slice; None if it is no slice."""
        here = [AffineIndex(p.start + k * p.steps[self.along], self.drop_summed_axis(p.steps)) for p in self.indices]
        return emit_gather_slice(builder.one, x, here, self.axes, self.drop_summed_axis(self.grid))

    def drop_summed_axis(self, of_axes: Axes) -> Axes:
        return tuple([s for d, s in enumerate(of_axes) if d != self.along])


def plan_window_sum(eqn: Eqn, made: MakerMap) -> WindowSum | None:
    """The plan for a sum over short windows, if the k-th elements of all windows are a slice."""
    gather, summed = made.get(eqn.operands[0]), int_tuple(eqn.attrs["axes"])
    if gather is None or gather.op is not gather_op or len(summed) != 1:
        return None
    x, *indices = gather.operands
    places = [affine_index(v, made) for v in indices]
    found, grid = [p for p in places if p is not None], static_shape(indices[0])
    if len(found) < len(places) or summed[0] >= len(grid) or not 0 < grid[summed[0]] <= MAX_WINDOW:
        return None
    window = WindowSum(x, tuple(found), int_tuple(gather.attrs["axes"]), grid, summed[0])
    # If the first and the last element of all windows are slices, so are those in between.
    trial = Builder()
    ends = [window.part(trial, trial.param(x.type), k) for k in (0, grid[summed[0]] - 1)]
    return window if None not in ends else None
