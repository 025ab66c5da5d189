"""Arrays to which every step adds at positions of its own, which the run may know: one scattered sum of all steps."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from difflang.ir.graph import Eqn, Value
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update, scatter_add
from difflang.ops.arrays.shape_manipulation import broadcast, reshape, transpose
from difflang.ops.batching_rules import clamp_index, iota_like
from difflang.ops.elementwise.linear_arithmetic import add, neg, sub
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.loops.accumulators import before_reshapes, signed_sum, window_terms
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.step_facts import Accumulator, Stacked, StepFacts

MAX_WINDOW = 64  # numbers of a window: a scatter adds them one by one, a step side by side


class Addition(Struct, frozen=True, eq=False):
    """What a step adds to an array: `values` as of an op, whose last ones are positions."""

    values: tuple[Value, ...]

    def apply(self, steps: AllSteps, stacked: Stacked, array: Value) -> Value:
        """The array with what all steps add."""
        raise NotImplementedError


class ScatteredSum(Accumulator, frozen=True, eq=False):
    """An array to which every step adds at some positions, or everywhere; nothing else reads it."""

    additions: tuple[Addition, ...]

    @property
    def state(self) -> None:
        return None

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        array = steps.before[self.param]
        for addition in self.additions:
            array = addition.apply(steps, stacked, array)
        return array


def classify_scattered_sum(facts: StepFacts, place: int) -> ScatteredSum | None:
    """An array that goes through additions alone, from the carry to the result."""
    value, result = facts.carry[place], facts.graph.results[place]
    type = tensor_type(value)
    # Sums of 16-bit floats are rounded at each step, as those of `added_terms`.
    if type.dtype.is_float and type.dtype.bits < 32:
        return None
    additions: list[Addition] = []
    while value is not result:
        users = facts.users.get(value, ())
        if facts.yielded[value] or not 1 <= len(users) <= 2:
            return None
        write = users[-1]
        found = added_window(facts, value, *users) if len(users) == 2 else added_items(value, write)
        if found is None:
            return None
        additions.append(found)
        (value,) = write.results
    if not additions or facts.read_count(result) > 1:
        return None
    return ScatteredSum(facts.carry[place], tuple([v for a in additions for v in a.values]), tuple(additions))


# ---- The additions


class AddedArray(Addition, frozen=True, eq=False):
    """A whole array that is added or subtracted."""

    sign: int

    def apply(self, steps: AllSteps, stacked: Stacked, array: Value) -> Value:
        return (add if self.sign > 0 else sub).one(array, steps.total(stacked[self.values[0]]))


class AddedItems(Addition, frozen=True, eq=False):
    """What a step scatters: the updates, then the positions along `axes`."""

    axes: tuple[int, ...]

    def apply(self, steps: AllSteps, stacked: Stacked, array: Value) -> Value:
        updates, *places = [stacked[v] for v in self.values]
        return scatter_steps(steps, array, updates, places, self.axes)


def added_items(value: Value, write: Eqn) -> Addition | None:
    """What the only reader of an array adds to it."""
    if write.op is scatter_add and write.operands[0] is value:
        return AddedItems(write.operands[1:], write.attrs["axes"])
    if write.op not in (add, sub) or (write.op is sub and write.operands[0] is not value):
        return None
    left, right = write.operands
    return AddedArray((right if left is value else left,), 1 if write.op is add else -1)


class AddedWindow(Addition, frozen=True, eq=False):
    """Terms that are added to a window: these, then where it starts along `axes`; along all others it is whole."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    signs: tuple[int, ...]

    def apply(self, steps: AllSteps, stacked: Stacked, array: Value) -> Value:
        count = len(self.signs)
        # An index for every element of a window, along the axes where it is neither whole nor one element long.
        long = [a for a in self.axes if self.shape[a] > 1]
        grid = (steps.length, *[self.shape[a] for a in long])
        places: list[Value] = []
        for axis, value in zip(self.axes, self.values[count:], strict=True):
            start = clamp_index(stacked[value], static_size(tensor_type(array).shape[axis]) - self.shape[axis])
            place = broadcast.one(start, shape=grid, axes=(0,)) if long else start
            places.append(place + iota_like(place, grid, 1 + long.index(axis)) if axis in long else place)
        rest = [a for a in range(len(self.shape)) if a not in self.axes]
        perm = (0, *[a + 1 for a in (*self.axes, *rest)])
        shape = (*grid, *[self.shape[a] for a in rest])
        terms = [reshape.one(stacked[v], shape=(steps.length, *self.shape)) for v in self.values[:count]]
        windows = signed_sum(terms, self.signs)
        windows = windows if list(perm) == sorted(perm) else transpose.one(windows, perm=perm)
        updates = reshape.one(windows if self.signs[0] > 0 else neg.one(windows), shape=shape)
        return scatter_steps(steps, array, updates, places, self.axes)


def added_window(facts: StepFacts, array: Value, read: Eqn, write: Eqn) -> AddedWindow | None:
    """The terms that are added to a window of an array, which is read for that alone."""
    if read.op is not dynamic_slice or write.op is not dynamic_update:
        return None
    (window,), (_, update, *starts) = read.results, write.operands
    if read.operands != (array, *starts) or write.operands[0] is not array or window.type != update.type:
        return None
    terms = window_terms(facts, update, window)
    if not terms or array in (update, *starts):
        return None
    shape = tuple(map(static_size, tensor_type(update).shape))
    axes = tuple([a for a, n in enumerate(tensor_type(array).shape) if shape[a] != n])
    if prod([shape[a] for a in axes]) > MAX_WINDOW:
        return None
    values = (*[before_reshapes(facts, v) for v, _ in terms], *[starts[a] for a in axes])
    return AddedWindow(values, axes, shape, tuple([sign for _, sign in terms])) if axes else None


def scatter_steps(steps: AllSteps, array: Value, updates: Value, places: list[Value], axes: tuple[int, ...]) -> Value:
    """The array with the updates of all steps that are taken added. Those of others go to no place."""
    updates = steps.where_taken(updates, array.home.const(0, updates.type))
    places = [steps.where_taken(p, array.home.const(-1, p.type)) for p in places]
    return scatter_add.one(array, updates, *places, axes=axes)
