"""What the steps of a loop do with a carry, where none needs the carry of another: add to it, write a window, count."""

from __future__ import annotations

from difflang.ir.graph import Eqn, Value
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update
from difflang.ops.arrays.shape_manipulation import reshape
from difflang.ops.elementwise.linear_arithmetic import add, sub
from difflang.ops.loop.step_transpose import INDEX
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.loops.all_steps import AllSteps
from difflang.passes.loops.first_choices import FirstFailure, classify_extremum, failure_status
from difflang.passes.loops.step_facts import Accumulator, Stacked, StepFacts


def classify_carry(facts: StepFacts, place: int) -> Accumulator | None:
    """What the steps do with a carry; None if one needs what another has made of it."""
    param, result = facts.carry[place], facts.graph.results[place]
    if result is param:
        return Unchanged(param, ())
    if (status := failure_status(facts, place)) is not None:
        return FirstFailure(param, (status[1], result), status[0])
    write = facts.makers.get(result)
    if write is not None and write.op is dynamic_update and write.operands[0] is param:
        return classify_write(facts, param, write)
    terms = added_terms(facts, result, param)
    if terms is not None:
        return Sum(param, tuple(v for v, _ in terms), tuple(sign for _, sign in terms))
    return classify_counter(facts, param, result) or classify_extremum(facts, place)


class Unchanged(Accumulator, frozen=True, eq=False):
    @property
    def state(self) -> None:
        return None

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        return steps.before[self.param]


# ---- Sums


class Sum(Accumulator, frozen=True, eq=False):
    """A carry to which every step adds terms, or subtracts them."""

    signs: tuple[int, ...]

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        terms = steps.total(signed_sum([stacked[v] for v in self.values], self.signs))
        return (add if self.signs[0] > 0 else sub).one(steps.before[self.param], terms)


def signed_sum(terms: list[Value], signs: tuple[int, ...]) -> Value:
    """The sum of the terms of each step, as if the first one had no sign."""
    # Within a step first: large terms that cancel there would not if each were summed over all steps.
    total, *others = terms
    for value, sign in zip(others, signs[1:], strict=True):
        total = (add if sign == signs[0] else sub).one(total, value)
    return total


def added_terms(facts: StepFacts, result: Value, param: Value) -> list[tuple[Value, int]] | None:
    """The terms that are added to a value, with their signs, if nothing else reads it."""
    type = tensor_type(result)
    # Sums of 16-bit floats are rounded at each step: a sum at once is another number.
    if type.dtype.is_float and type.dtype.bits < 32:
        return None
    terms: list[tuple[Value, int]] = []
    value = param
    while value is not result:
        users = facts.users.get(value, ())
        if facts.read_count(value) != 1 or not users or users[0].op not in (add, sub):
            return None
        (eqn,) = users
        left, right = eqn.operands
        if eqn.op is sub and value is right:
            return None
        terms.append((right if value is left else left, 1 if eqn.op is add else -1))
        value = eqn.results[0]
    return terms if facts.read_count(result) == 1 else None


class Count(Accumulator, frozen=True, eq=False):
    """An integer that grows by `step`, and that the steps read."""

    step: Value
    invariant: bool

    @property
    def state(self) -> None:
        return None

    def prepare(self, steps: AllSteps) -> None:
        # Not from the map of all steps, which reads it: a loop around this one would find that it depends on itself.
        build, before = steps.builder, steps.before[self.param]
        if self.invariant:
            one = steps.invariant(self.step)
            each = build.one("broadcast", one, shape=(steps.length,), axes=())
            grown, total = steps.numbers() * each, steps.count * one
        else:
            each = steps.compute([self.step])[self.step]
            each = steps.where_taken(each, build.const(0, each.type))
            grown = build.one("cumsum", each, axis=0, reverse=False) - each
            total = build.one("reduce_sum", each, axes=(0,))
        steps.items[self.param] = build.one("broadcast", before, shape=(steps.length,), axes=()) + grown
        steps.after[self.param] = before + total

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        return steps.after[self.param]


def classify_counter(facts: StepFacts, param: Value, result: Value) -> Count | None:
    """An integer to which a step adds what does not depend on the steps before it."""
    eqn = facts.makers.get(result)
    if eqn is None or eqn.op is not add or param.type != INDEX or param not in eqn.operands:
        return None
    left, right = eqn.operands
    step = right if left is param else left
    return None if step in facts.carried else Count(param, (), step, step in facts.invariant)


# ---- Windows of arrays


class Window(Accumulator, frozen=True, eq=False):
    """An array of which step i writes the window at `starts`, moved by i along `axis`, or one window along none.

    It adds the values to what stands there if there are signs, otherwise there is one value, and it stands there then.
    """

    starts: tuple[Value, ...]
    shape: tuple[int, ...]
    signs: tuple[int, ...]
    axis: int | None = None
    offset: int = 0

    @property
    def state(self) -> None:
        # What a step reads of it is what it writes, and no other step does, or only what it adds to.
        return None

    def finish(self, steps: AllSteps, stacked: Stacked) -> Value:
        array, build = steps.before[self.param], steps.builder
        starts = [
            build.const(self.offset, s.type) if a == self.axis else steps.invariant(s)
            for a, s in enumerate(self.starts)
        ]
        sizes = tuple([steps.length if a == self.axis else n for a, n in enumerate(self.shape)])
        whole = sizes == tensor_type(array).shape
        block = array if whole else build.one("dynamic_slice", array, *starts, sizes=sizes)
        if not self.signs:
            block = steps.where_taken(self.along_axis(steps, stacked[self.values[0]]), block, self.axis or 0)
        elif self.axis is None:
            block = (add if self.signs[0] > 0 else sub).one(block, self.total(steps, stacked))
        else:
            for value, sign in zip(self.values, self.signs, strict=True):
                windows = self.along_axis(steps, stacked[value])
                taken = steps.where_taken(windows, steps.builder.const(0, windows.type), self.axis)
                block = (add if sign > 0 else sub).one(block, taken)
        return block if whole else build.one("dynamic_update", array, block, *starts)

    def total(self, steps: AllSteps, stacked: Stacked) -> Value:
        """What all steps add to one window, as if the first term had no sign."""
        terms = [stacked[v] for v in self.values]
        if len({tensor_type(t).shape for t in terms}) > 1:
            terms = [steps.builder.one("reshape", t, shape=(steps.length, *self.shape)) for t in terms]
        return steps.builder.one("reshape", steps.total(signed_sum(terms, self.signs)), shape=self.shape)

    def along_axis(self, steps: AllSteps, stacked: Value) -> Value:
        """The windows of all steps side by side."""
        assert self.axis is not None
        rest = (*self.shape[: self.axis], *self.shape[self.axis + 1 :])
        windows = steps.builder.one("reshape", stacked, shape=(steps.length, *rest))
        if self.axis == 0:
            return windows
        perm = (*range(1, self.axis + 1), 0, *range(self.axis + 1, len(self.shape)))
        return steps.builder.one("transpose", windows, perm=perm)


def classify_write(facts: StepFacts, param: Value, write: Eqn) -> Window | None:
    """An array of which each step writes a window of its own, or all add to the same one."""
    _, update, *starts = write.operands
    shape = tuple(map(static_size, tensor_type(update).shape))
    reads = [e for e in facts.users.get(param, ()) if e is not write]
    own = all(
        e.op is dynamic_slice and e.operands[1:] == tuple(starts) and e.results[0].type == update.type for e in reads
    )
    if not own or facts.read_count(write.results[0]) > 1 or facts.yielded[param] or param in (update, *starts):
        return None
    terms = window_terms(facts, update, reads[0].results[0]) if len(reads) == 1 else None
    # All steps are put into the shape of their windows at once: a sum of numbers is contracted, one of windows is not.
    found = [update] if not terms else [v for v, _ in terms]
    values, signs = tuple([before_reshapes(facts, v) for v in found]), tuple([n for _, n in terms or ()])
    moving = [a for a, s in enumerate(starts) if s not in facts.invariant]
    if not moving:
        return Window(param, values, tuple(starts), shape, signs) if signs else None
    if len(moving) > 1 or shape[moving[0]] != 1:
        return None
    (axis,) = moving
    offset = facts.offset(starts[axis])
    size = static_size(tensor_type(param).shape[axis])
    if offset is None or offset < 0 or offset + facts.length > size:
        return None
    return Window(param, values, tuple(starts), shape, signs, axis, offset)


def window_terms(facts: StepFacts, update: Value, window: Value) -> list[tuple[Value, int]] | None:
    """The terms that are added to a window, if nothing else reads what stood there."""
    update, window = without_reshapes(facts, update), window
    while (read := sole_reshape(facts, window)) is not None:
        window = read
    return added_terms(facts, update, window)


def without_reshapes(facts: StepFacts, value: Value) -> Value:
    """The value before reshapes that nothing else reads."""
    while (eqn := facts.makers.get(value)) is not None and eqn.op is reshape and facts.read_count(value) == 1:
        (value,) = eqn.operands
    return value


def before_reshapes(facts: StepFacts, value: Value) -> Value:
    """The value before reshapes."""
    while (eqn := facts.makers.get(value)) is not None and eqn.op is reshape:
        (value,) = eqn.operands
    return value


def sole_reshape(facts: StepFacts, value: Value) -> Value | None:
    """The reshape of a value, if it is its only reader."""
    users = facts.users.get(value, ())
    alone = facts.read_count(value) == 1 and len(users) == 1 and users[0].op is reshape
    return users[0].results[0] if alone else None
