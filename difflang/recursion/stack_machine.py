"""Recursion as a loop: a stack machine that runs the basic blocks of mutually recursive functions.

Each step runs the current block. A call pushes the values needed after it in a frame and goes to the function's entry
block; a return pops a frame and goes to the block that it names. Arguments and results pass in registers. The stack
holds `FRAME_CAPACITY` frames and the machine stops after `STEP_CAPACITY` steps. Both are symbolic sizes, set before the
program is lowered. If one is too small the failure says so, and the caller runs the program with a greater one.

The loop is an ordinary one, and `swap_item` writes and reads the stack, so derivatives, batching and both engines need
nothing new. Where all calls are tail calls there is no stack, and the loop is a `while`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from difflang.base.source import Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import I32, Tensor, Type
from difflang.ops.ad_interface import zeros
from difflang.ops.arrays.swap_item import swap_item
from difflang.ops.control.cond import cond
from difflang.ops.control.recursive_call import recur
from difflang.ops.elementwise.comparison_and_logic import eq, ge, gt, logical_and, logical_or, lt, ne
from difflang.ops.elementwise.linear_arithmetic import select
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.step_transpose import split_at
from difflang.passes.substitute_dims import capacity_dim
from difflang.recursion.basic_blocks import (
    FAILURE_WORDS,
    BasicBlock,
    BranchTerminator,
    CallTerminator,
    CodeFragment,
    GroupFunction,
    JumpTerminator,
    ReturnTerminator,
    free_values,
)
from difflang.recursion.control_flow_graph import ControlFlowGraph

FRAME_CAPACITY, STEP_CAPACITY = capacity_dim("frames"), capacity_dim("steps")
INDEX = Tensor(I32)
# The block after the first call has returned. Zero, so that the bottom of a stack of zeros returns to it.
HALT_BLOCK = 0
PUSH, POP = 1, -1
UNLIMITED_STEPS = -1  # the limit of a loop that only its condition ends


def build_stack_machine(
    members: Mapping[int, GroupFunction],
    first: int,
    overflow: tuple[int, int],
    span: Span,
    name: str,
    tail_call_limit: tuple[int, int] | None = None,
) -> tuple[Graph, tuple[object, ...]]:
    """The graph of the `first` function of a group, without calls within the group, and the names of shared values.

    Shapes: takes the arguments of a call, then the shared values; gives the results and a failure. The failure is
            `overflow[0]` for too few frames and `overflow[1]` for too few steps. `tail_call_limit` is the greatest
            number of tail calls, and the failure beyond it.
    Errors: DL0410 for a call in a derivative, DL1108 in a rule.
    Cost:   linear in the equations of the group.
    """
    builder = Builder(span=span)
    given = [builder.param(p.type, p.hint) for p in members[first].call_params]
    shared: dict[object, Value] = {}
    constants = find_invariant_params(members, first, given)
    for number, member in members.items():
        start = len(member.call_params)
        for i, (label, param) in enumerate(zip(member.shared, member.graph.params[start:], strict=True), start):
            if label not in shared:
                shared[label] = builder.param(param.type, param.hint)
            constants[number, i] = shared[label]
    blocks = ControlFlowGraph(members, constants)
    for number in members:
        blocks.add_function(number)
    results = StackMachine(blocks, (*given, *shared.values()), overflow, tail_call_limit).run(builder, first, given)
    return builder.finish(results, name=name), tuple(shared)


class StackMachine:
    """Emits the loop that runs the blocks of a group, with the layout of frames and registers."""

    def __init__(
        self, blocks: ControlFlowGraph, params: Values, overflow: tuple[int, int], most: tuple[int, int] | None = None
    ) -> None:
        self.blocks, self.params, self.overflow = blocks, params, overflow
        after = [b for b in blocks.all_blocks if b.after_call]
        self.uses_stack = bool(after)
        self.most = None if self.uses_stack else most
        self.failure_size = FAILURE_WORDS * (
            self.uses_stack or self.most is not None or any(m.fails for m in blocks.members.values())
        )
        # Frames and registers have a slot for each type as often as some block needs it at a time: a loop carries
        # values of fixed types.
        self.frame = RegisterSlots.covering([value_types(b.live) for b in after])
        demands = [
            value_types(b.block_params if b.after_call else (*b.block_params, *b.live)) for b in blocks.all_blocks
        ]
        demands += [value_types(m.results) for m in blocks.members.values()]
        self.registers = RegisterSlots.covering(demands)

    # ---- The loop

    def run(self, builder: Builder, first: int, given: Sequence[Value]) -> list[Value]:
        """The results of the first function, and the failure."""
        entry = self.blocks.entries[first]
        start = self.state(builder, builder.const(entry.number, INDEX))
        passed = self.blocks.varying_operands(first, given)
        places = self.registers.assign(value_types(passed))
        for place, value in zip(places, passed, strict=True):
            start.registers[place] = value
        limit = STEP_CAPACITY if self.uses_stack else self.most[0] + 1 if self.most is not None else UNLIMITED_STEPS
        operands = [emit_const(builder, limit), *self.params, *start.values]
        step, go = self.step(), self.continue_condition()
        outs = builder.emit(
            loop, operands, (step, go), consts=len(self.params), carry=len(start.values),
            length=STEP_CAPACITY if self.uses_stack else None, exact=False, reverse=False,
        )  # fmt: skip
        end = self.unpack_state(outs[1:])
        results = value_types(self.blocks.members[first].results)
        word = self.step_limit_failure(builder, end) if self.uses_stack or self.most is not None else end.failure
        return [*[end.registers[i] for i in self.registers.assign(results)], *word]

    def step_limit_failure(self, builder: Builder, end: MachineState) -> list[Value]:
        """The failure, which is the step limit if the machine is still running."""
        on = self.is_running(builder, end)
        stopped = (self.overflow[1], STEP_CAPACITY, 0) if self.most is None else (self.most[1], 0, 0)
        return [select.one(on, emit_const(builder, n), w) for n, w in zip(stopped, end.failure, strict=True)]

    def state(self, builder: Builder, at: Value) -> MachineState:
        """The initial state: all zeros except the current block."""
        stacks = [stack_type(t) for t in (INDEX, *self.frame.types)] if self.uses_stack else []
        return MachineState(
            at,
            [builder.const(1, INDEX)] * self.uses_stack,
            [builder.const(0, INDEX)] * self.failure_size,
            [zeros(builder, t) for t in self.frame.types],
            [zeros(builder, t) for t in self.registers.types],
            [zeros(builder, t) for t in stacks],
        )

    def unpack_state(self, values: Sequence[Value]) -> MachineState:
        sizes = (1, int(self.uses_stack), self.failure_size, len(self.frame.types), len(self.registers.types))
        edges = [sum(sizes[:i]) for i in range(1, len(sizes) + 1)]
        (at,), height, word, frame, registers, stacks = map(list, split_at(values, *edges))
        return MachineState(at, height, word, frame, registers, stacks)

    def step_params(self, builder: Builder) -> tuple[list[Value], MachineState]:
        """The params of a step: shared values and state. The index of the step is not used."""
        builder.param(INDEX)
        fixed = [builder.param(p.type, p.hint) for p in self.params]
        scratch = Builder()
        like = self.state(scratch, scratch.const(HALT_BLOCK, INDEX))
        return fixed, self.unpack_state([builder.param(v.type) for v in like.values])

    def continue_condition(self) -> Graph:
        builder = Builder()
        _, state = self.step_params(builder)
        return builder.finish([self.is_running(builder, state)])

    def is_running(self, builder: Builder, state: MachineState) -> Value:
        """Whether the first call has not returned and nothing has failed."""
        on = ne.one(state.at, builder.const(HALT_BLOCK, INDEX))
        if not state.failure:
            return on
        return logical_and.one(on, eq.one(state.failure[0], builder.const(0, INDEX)))

    def step(self) -> Graph:
        builder = Builder()
        fixed, state = self.step_params(builder)
        outs = self.chosen(builder, self.blocks.all_blocks, state.at, [*fixed, *state.frame, *state.registers])
        sizes = (1, 2 * self.uses_stack, self.failure_size, len(self.registers.types))
        edges = [sum(sizes[:i]) for i in range(1, len(sizes) + 1)]
        (at,), move, word, registers, frame = map(list, split_at(outs, *edges))
        if not self.uses_stack:
            return builder.finish([at, *word, *registers])
        (height,), (moved, then) = state.height, move
        place, full = self.stack_index(builder, height, moved)
        pairs = [swap_item(s, place, x) for s, x in zip(state.stacks, [then, *frame], strict=True)]
        (old_at, *old_frame) = [old for _, old in pairs]
        at = select.one(lt.one(moved, builder.const(0, INDEX)), old_at, at)
        overflow = (builder.const(self.overflow[0], INDEX), height, builder.const(0, INDEX))
        word = [select.one(full, o, w) for o, w in zip(overflow, word, strict=True)]
        end = MachineState(at, [height + moved], word, old_frame, registers, [s for s, _ in pairs])
        return builder.finish(end.values)

    def stack_index(self, builder: Builder, height: Value, moved: Value) -> tuple[Value, Value]:
        """The stack index at which this step reads and writes, and whether a push would overflow."""
        # Every step exchanges one frame, so that the loop has no branch: a jump uses a spare one beyond the end.
        spare = emit_const(builder, FRAME_CAPACITY)
        still = eq.one(moved, builder.const(0, INDEX))
        pushed = gt.one(moved, builder.const(0, INDEX))
        full = logical_and.one(pushed, ge.one(height, spare))
        top = select.one(pushed, height, height - 1)
        return select.one(logical_or.one(still, full), spare, top), full

    # ---- Blocks

    def chosen(self, builder: Builder, blocks: Sequence[BasicBlock], at: Value, given: list[Value]) -> Sequence[Value]:
        """The results of the block with the number `at`."""
        # A binary search by nested `cond`s: log n comparisons for n blocks.
        if len(blocks) == 1:
            return builder.inline(self.block_graph(blocks[0]), *given)
        half = len(blocks) // 2
        below = lt.one(at, builder.const(blocks[half].number, INDEX))
        operands, regions = [at, *given], list[Graph]()
        for side in (blocks[:half], blocks[half:]):
            inner = Builder()
            params = [inner.param(v.type) for v in operands]
            regions.append(inner.finish(self.chosen(inner, side, params[0], params[1:])))
        return builder.emit(cond, [below, *operands], tuple(regions))

    def block_graph(self, block: BasicBlock) -> Graph:
        """A block as a graph of the shared values, the frame popped last, and the registers."""
        builder = Builder()
        env = {p: builder.param(p.type, p.hint) for p in self.params}
        frame = [builder.param(t) for t in self.frame.types]
        registers = [builder.param(t) for t in self.registers.types]
        passed = block.block_params if block.after_call else (*block.block_params, *block.live)
        for value, place in zip(passed, self.registers.assign(value_types(passed)), strict=True):
            env[value] = registers[place]
        if block.after_call:
            for value, place in zip(block.live, self.frame.assign(value_types(block.live)), strict=True):
                env[value] = frame[place]
        return builder.finish(self.emit_fragment(builder, block.code, env))

    def emit_fragment(self, builder: Builder, piece: CodeFragment, env: dict[Value, Value]) -> Sequence[Value]:
        """The next block, the stack move and the return block, a failure, registers, and a frame."""
        for eqn in piece.eqns:
            env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))
        entries = self.blocks.entries
        match piece.end:
            case BranchTerminator(condition, sides):
                return self.emit_branch(builder, condition, sides, env)
            case ReturnTerminator(values, word):
                return self.emit_next_state(builder, env, HALT_BLOCK, values, word, move=POP)
            case JumpTerminator(block, values):
                return self.emit_next_state(builder, env, block.number, values)
            case CallTerminator(function, operands, word, None):
                return self.emit_next_state(builder, env, entries[function].number, operands, word)
            case CallTerminator(function, operands, word, then):
                return self.emit_next_state(builder, env, entries[function].number, operands, word, then)

    def emit_branch(
        self, builder: Builder, condition: Value, sides: tuple[CodeFragment, CodeFragment], env: dict[Value, Value]
    ) -> Sequence[Value]:
        captured = [*dict.fromkeys((*free_values(sides[0]), *free_values(sides[1])))]
        regions: list[Graph] = []
        for side in sides:
            inner = Builder()
            known = {v: inner.param(v.type, v.hint) for v in captured}
            regions.append(inner.finish(self.emit_fragment(inner, side, known)))
        return builder.emit(cond, [env[condition], *[env[v] for v in captured]], tuple(regions))

    def emit_next_state(
        self, builder: Builder, env: Mapping[Value, Value], at: int, values: Values, word: Values = (),
        then: BasicBlock | None = None, move: int = 0,
    ) -> list[Value]:  # fmt: skip
        kept = () if then is None else then.live
        numbers = [at, *((PUSH if then else move, then.number if then else HALT_BLOCK) if self.uses_stack else ())]
        failure = [env[v] for v in word] or [builder.const(0, INDEX)] * self.failure_size
        return [
            *[builder.const(n, INDEX) for n in numbers],
            *failure,
            *fill_slots(builder, self.registers, [env[v] for v in values]),
            *fill_slots(builder, self.frame, [env[v] for v in kept]),
        ]


class MachineState(Struct, frozen=True):
    """The carry of the machine's loop."""

    at: Value  # the number of the next block
    height: list[Value]  # of the stack, whose first frame returns to the halt block
    failure: list[Value]
    frame: list[Value]
    registers: list[Value]
    stacks: list[Value]  # of return blocks, then one for each slot of a frame

    @property
    def values(self) -> list[Value]:
        return [self.at, *self.height, *self.failure, *self.frame, *self.registers, *self.stacks]


class RegisterSlots(Struct, frozen=True):
    """Typed slots for values: of each type as many as are live at a time."""

    types: tuple[Type, ...]

    @classmethod
    def covering(cls, demands: Sequence[Sequence[Type]]) -> RegisterSlots:
        most: Counter[Type] = Counter()
        for types in demands:
            most |= Counter(types)
        return cls(tuple(most.elements()))

    def assign(self, types: Sequence[Type]) -> list[int]:
        """The slot of each of several values."""
        free: dict[Type, list[int]] = {}
        for i, type in reversed(list(enumerate(self.types))):
            free.setdefault(type, []).append(i)
        return [free[t].pop() for t in types]


# ---- Types and slots


def emit_const(builder: Builder, value: Dim) -> Value:
    return builder.one("const", value=value, type=INDEX)


def value_types(values: Sequence[Value]) -> list[Type]:
    return [v.type for v in values]


def stack_type(item: Type) -> Tensor:
    """A stack of `FRAME_CAPACITY` frames, and a spare one."""
    assert isinstance(item, Tensor)
    return Tensor(item.dtype, (FRAME_CAPACITY + 1, *item.shape))


def fill_slots(builder: Builder, slots: RegisterSlots, values: Sequence[Value]) -> list[Value]:
    """Values in their slots, and zeros in the others."""
    there = dict(zip(slots.assign(value_types(values)), values, strict=True))
    return [there[i] if i in there else zeros(builder, t) for i, t in enumerate(slots.types)]


# ---- Invariant params: arguments that are the same in every call, as captured values are

ParamIndex = tuple[int, int]  # a function, and which of its params
# The value that a param always has, or `None` if it changes; no entry as long as no call is known.
ParamFacts = dict[ParamIndex, Value | None]


def find_invariant_params(
    members: Mapping[int, GroupFunction], first: int, given: list[Value]
) -> dict[ParamIndex, Value]:
    """The params of a group that always equal one of the values `given` to the `first` function from outside.

    Cost: linear in the group, at most once for each param that turns out to change.
    """
    # Optimistic constant propagation: a param is invariant until a call with another value is found.
    facts: ParamFacts = {(first, i): value for i, value in enumerate(given)}
    todo, reached = [first], {first}
    while todo:
        caller = todo.pop()
        known = {p: facts.get((caller, i)) for i, p in enumerate(members[caller].graph.params)}
        for eqn, passed in group_calls(members[caller].graph, known):
            callee = eqn.attrs["function"]
            new = changed_facts(facts, callee, passed[: len(members[callee].call_params)])
            if new or callee not in reached:
                facts.update(new)
                reached.add(callee)
                todo.append(callee)
    return {param: value for param, value in facts.items() if value is not None}


def changed_facts(facts: ParamFacts, function: int, passed: list[Value | None]) -> ParamFacts:
    """The facts of a function's params that one more call changes."""
    found = {
        (function, i): value if facts.get((function, i), value) is value else None for i, value in enumerate(passed)
    }
    return {param: value for param, value in found.items() if param not in facts or facts[param] is not value}


def group_calls(graph: Graph, known: Mapping[Value, Value | None]) -> Iterator[tuple[Eqn, list[Value | None]]]:
    """The calls within the group, also those in regions, with the known values of their operands."""
    # Only invariant params of a region are followed; a carry or an item may change.
    todo = [(graph, known)]
    while todo:
        at, known = todo.pop()
        for eqn in at.eqns:
            if eqn.op is recur:
                yield eqn, [known.get(v) for v in eqn.operands]
            if not eqn.regions or eqn.op.region_dataflow is None:
                continue
            fixed = [(s.operand, s.params) for s in eqn.op.region_dataflow(eqn).slots if s.invariant]
            for k, region in enumerate(eqn.regions):
                inside: dict[Value, Value | None] = {}
                for operand, params in fixed:
                    place = params[k] if params else None
                    if operand is not None and place is not None:
                        inside[region.params[place]] = known.get(eqn.operands[operand])
                todo.append((region, inside))
