"""Buffer assignment: the buffers a compiled program needs, their live ranges, and its peak memory.

Walks the kernels of `fusion_model` in execution order, once through each loop body and through every branch. A loop
carry has one buffer for the whole loop. A kernel may write over an operand that it is the last to read. Results have
buffers of their own, which temporaries may use before the result exists.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from difflang.lower.fusion_model import Kernel, KernelOrder, build_kernels, order_by_readiness
from difflang.lower.jaxpr_reader import ArrayValue, Computation, JaxprInstruction, SourceLine

BufferRole = Literal["argument", "result", "between"]
END_OF_PROGRAM = 1 << 60


class Buffer(Struct, eq=False):
    """A number of bytes, live from kernel `first` to kernel `last`, with the source line it is made for."""

    bytes: int
    source_line: SourceLine | None
    first: int
    last: int
    role: BufferRole = "between"


class BufferAssignment(Struct, frozen=True):
    """The buffers of a program. Moments count kernels."""

    buffers: tuple[Buffer, ...]
    # Temporaries that reuse the memory of a result.
    lent: frozenset[Buffer]
    moments: int

    @property
    def arguments(self) -> int:
        return sum([b.bytes for b in self.buffers if b.role == "argument"])

    @property
    def results(self) -> int:
        return sum([b.bytes for b in self.buffers if b.role == "result"])

    @property
    def temporaries(self) -> int:
        """The peak of everything but arguments and results."""
        return max(self.usage_over_time(), default=0)

    @property
    def peak(self) -> int:
        return self.arguments + self.results + self.temporaries

    @property
    def temporary_buffers(self) -> list[Buffer]:
        """The buffers that are neither arguments nor results, and do not reuse a result's memory."""
        return [b for b in self.buffers if b.role == "between" and b not in self.lent]

    def usage_over_time(self) -> list[int]:
        """The bytes in use at each moment, without arguments and results."""
        change = [0] * (self.moments + 2)
        for b in self.temporary_buffers:
            change[b.first] += b.bytes
            change[b.last + 1] -= b.bytes
        return list(accumulate(change))[:-1]

    def live_at_peak(self) -> list[Buffer]:
        """The buffers that are live when usage is highest; arguments and results always are."""
        course = self.usage_over_time()
        moment = course.index(max(course))
        return [b for b in self.buffers if b.role != "between" or (b.first <= moment <= b.last and b not in self.lent)]


def assign_buffers(part: Computation, order: KernelOrder = order_by_readiness) -> BufferAssignment:
    """The buffers of a whole program, its kernels in the given order (by default XLA's usual one).

    Cost: linear in the kernels, except for placing temporaries in the memory of results.
    """
    walk = BufferAssigner(order)
    for v in part.takes:
        walk.add_buffer(v, "argument")
    results = walk.part(part, walk.buffers[:], owned=[False] * len(part.takes), into=[None] * len(part.gives))
    for i, buffer in enumerate(results):
        # An argument, or one value returned twice, is copied.
        if buffer.role != "between":
            results[i] = buffer = walk.copy_buffer(buffer)
        buffer.role, buffer.last = "result", walk.now
    for b in walk.buffers:
        b.last = min(b.last, walk.now)
        if b.role == "argument":
            b.first, b.last = 0, walk.now
    return BufferAssignment(tuple(walk.buffers), frozenset(reuse_result_buffers(walk.buffers)), walk.now)


def reuse_result_buffers(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The temporaries that fit into the memory of a result while it is not live: largest first, one at a time."""
    results = sorted([b for b in buffers if b.role == "result"], key=lambda b: -b.bytes)
    times: list[list[tuple[int, int]]] = [[(b.first, b.last)] for b in results]
    found: list[Buffer] = []
    for b in sorted([b for b in buffers if b.role == "between"], key=lambda b: -b.bytes) if results else ():
        for result, busy in zip(results, times, strict=True):
            at = bisect(busy, (b.first, b.last))
            free = (not at or busy[at - 1][1] < b.first) and (at == len(busy) or b.last < busy[at][0])
            if result.bytes >= b.bytes and free:
                busy.insert(at, (b.first, b.last))
                found.append(b)
                break
    return found


class BufferAssigner:
    """Walks a program and records its buffers."""

    def __init__(self, order: KernelOrder) -> None:
        self.order = order
        self.buffers: list[Buffer] = []
        self.now = 0

    def add_buffer(self, v: ArrayValue, role: BufferRole = "between", place: SourceLine | None = None) -> Buffer:
        self.buffers.append(Buffer(v.bytes, v.source_line or place, self.now, self.now, role))
        return self.buffers[-1]

    def read_buffer(self, v: ArrayValue, here: ComputationBuffers) -> Buffer:
        """The buffer of a value that a loop or a branch only reads. A constant lies in the program and has no bytes."""
        v = here.root(v)
        return here.buffer.get(v) or self.add_buffer(ArrayValue(0, v.shape, v.source_line) if v.constant else v)

    def copy_buffer(self, of: Buffer) -> Buffer:
        self.buffers.append(Buffer(of.bytes, of.source_line, self.now, self.now))
        return self.buffers[-1]

    def part(
        self, part: Computation, operands: Sequence[Buffer], owned: Sequence[bool], into: Sequence[Buffer | None]
    ) -> list[Buffer]:
        """The buffers of a computation's results: those in `into` where they are named.

        A buffer in `operands` may be overwritten where `owned` is true.
        """
        here = ComputationBuffers(part, run := build_kernels(part, self.order), operands, owned, into)
        for at, kernel in enumerate(run):
            self.now += 1
            reads = [here.buffer[v] for v in kernel.reads]
            self.kernel(kernel, at, here)
            for b in reads:
                b.last = max(b.last, self.now)
            for v in kernel.step.makes:
                here.buffer[v].last = max(here.buffer[v].last, self.now)
        self.now += 1
        found: list[Buffer] = []
        for v, due in zip(part.gives, into, strict=True):
            buffer = here.buffer_of(v) or self.add_buffer(v)
            buffer.last = max(buffer.last, self.now)
            found.append(due or buffer)
        return found

    def kernel(self, kernel: Kernel, at: int, here: ComputationBuffers) -> None:
        step = kernel.step
        match step.kind:
            case "while" | "scan":
                self.loop(step, at, here)
            case "cond" | "call":
                for inner in step.bodies:
                    reads = step.reads[len(step.reads) - len(inner.takes) :]
                    operands = [self.read_buffer(v, here) for v in reads]
                    owned = [
                        step.kind == "call"
                        and operands.count(b) == 1
                        and here.dies_at(v, at)
                        and not here.root(v).constant
                        for v, b in zip(reads, operands, strict=True)
                    ]
                    self.part(inner, operands, owned, [None] * len(inner.gives))
                self.now += 1
                here.buffer.update({v: self.add_buffer(v) for v in step.makes})
            case _:
                for v in step.makes:
                    here.buffer[v] = (
                        here.overwritable_buffer(kernel, v, at) or here.result_buffer(v, at) or self.add_buffer(v)
                    )

    def loop(self, step: JaxprInstruction, at: int, here: ComputationBuffers) -> None:
        """An unchanged carry stays where it is. The others get a buffer: the initial value's if nothing reads that
        later.
        """
        body = step.bodies[-1]
        start, consts, carried = loop_operand_counts(step)
        changed = [result is not used for result, used in zip(body.gives, body.takes[consts:], strict=False)]
        carry: list[Buffer] = []
        used: set[Buffer] = {here.buffer[here.root(v)] for v in step.reads[:start] if here.root(v) in here.buffer}
        for v, made, changes in zip(step.reads[start : start + carried], step.makes, changed, strict=False):
            buffer = here.buffer_of(v) if changes else self.read_buffer(v, here)
            if buffer is None or (changes and (buffer in used or buffer.bytes < made.bytes or not here.dies_at(v, at))):
                buffer = self.add_buffer(made, place=step.makes[0].source_line)
            used.add(buffer)
            carry.append(buffer)
        fixed = [self.read_buffer(v, here) for v in step.reads[start - consts : start]]
        rest = [self.read_buffer(v, here) for v in step.reads[start + carried :]]
        ys = [self.add_buffer(v) for v in step.makes[carried:]]
        owned = [False] * consts + changed[:carried] + [False] * len(rest)
        into = [b if c else None for b, c in zip(carry, changed, strict=False)]
        if step.kind == "while":
            own = [self.read_buffer(v, here) for v in step.reads[: step.sizes[0]]]
            self.part(step.bodies[0], [*own, *carry], [False] * (len(own) + len(carry)), [None])
        self.part(body, [*fixed, *carry, *rest], owned, [*into, *[None] * len(ys)])
        here.buffer.update(zip(step.makes, [*carry, *ys], strict=True))
        self.now += 1


def loop_operand_counts(step: JaxprInstruction) -> tuple[int, int, int]:
    """The index of a loop's first carry operand, and the numbers of its body's constants and of its carries."""
    if step.kind == "while":
        first, second = step.sizes
        return first + second, second, len(step.reads) - first - second
    consts, carried = step.sizes
    return consts, consts, carried


class ComputationBuffers:
    """The values of one computation: which buffer holds each, and which kernel is the last to read it."""

    def __init__(
        self,
        part: Computation,
        run: Sequence[Kernel],
        operands: Sequence[Buffer],
        owned: Sequence[bool],
        into: Sequence[Buffer | None],
    ) -> None:
        self.alias = {s.makes[0]: s.reads[0] for s in part.steps if s.kind == "alias"}
        self.buffer: dict[ArrayValue, Buffer] = dict(zip(part.takes, operands, strict=True))
        self.fixed = {v for v, own in zip(part.takes, owned, strict=True) if not own}
        self.readers: dict[ArrayValue, list[int]] = {}
        for at, kernel in enumerate(run):
            for v in kernel.reads:
                self.readers.setdefault(v, []).append(at)
        self.last: dict[ArrayValue, int] = {v: of[-1] for v, of in self.readers.items()}
        self.run = run
        self.makers = {v: at for at, k in enumerate(run) for v in k.step.makes}
        self.takes = set(part.takes)
        for v in part.gives:
            self.last[self.root(v)] = END_OF_PROGRAM
        self.into = {self.root(v): b for v, b in zip(part.gives, into, strict=True) if b is not None}
        self.holds: dict[Buffer, ArrayValue] = {b: v for v, b in self.buffer.items()}

    def root(self, v: ArrayValue) -> ArrayValue:
        """The value that this one is a reshaped alias of."""
        while v in self.alias:
            v = self.alias[v]
        return v

    def buffer_of(self, v: ArrayValue) -> Buffer | None:
        return self.buffer.get(self.root(v))

    def dies_at(self, v: ArrayValue, at: int) -> bool:
        """Whether the computation owns a value and nothing reads it after kernel `at`."""
        v = self.root(v)
        return v not in self.fixed and self.last.get(v, -1) <= at

    def overwritable_buffer(self, kernel: Kernel, made: ArrayValue, at: int) -> Buffer | None:
        """The buffer of an operand of the same size that the kernel is the last to read."""
        due = self.into.get(made)
        for v in kernel.overwritable:
            v = self.root(v)
            buffer = self.buffer.get(v)
            if buffer is None or buffer.bytes != made.bytes or not self.dies_at(v, at) or made.bytes == 0:
                continue
            if due is not None and due is not buffer and kernel.step.kind != "update":
                continue
            if v in self.takes and not self.readers_precede(v, at):
                continue
            if any(self.buffer.get(o) is buffer for o in kernel.step.makes):
                continue
            return buffer
        return None

    def result_buffer(self, made: ArrayValue, at: int) -> Buffer | None:
        """The buffer in which a result must end up, if its current value is not read any more."""
        buffer = self.into.get(made)
        if buffer is None:
            return None
        held = self.holds.get(buffer)
        free = held is None or (
            self.last.get(held, -1) < at and (held not in self.takes or self.readers_precede(held, at))
        )
        return buffer if free else None

    def readers_precede(self, v: ArrayValue, at: int) -> bool:
        """Whether all other readers of a loop carry come before that kernel by data dependence."""
        # XLA inserts copies before it schedules: without a dependence it copies a carry that is overwritten.
        missing = {k for k in self.readers.get(v, ()) if k != at}
        before, todo = {at}, [at]
        while missing and todo:
            for read in self.run[todo.pop()].reads:
                maker = self.makers.get(read)
                if maker is not None and maker not in before:
                    before.add(maker)
                    todo.append(maker)
                    missing.discard(maker)
        return not missing
