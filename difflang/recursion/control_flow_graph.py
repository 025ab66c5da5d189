"""The control-flow graph of mutually recursive functions: their code is split at each call within the group.

A branch or a loop that holds such a call is split too. Functions are processed backwards, so the code after a split
exists before the code that leads to it, and its live values are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values, graphs_postorder
from difflang.ops.ad_interface import zeros
from difflang.ops.control.checkpoint_block import checkpoint
from difflang.ops.control.cond import cond
from difflang.ops.control.custom_derivative import custom_derivative
from difflang.ops.control.custom_linear_solve import custom_linear_solve
from difflang.ops.control.map import map_
from difflang.ops.control.recursive_call import (
    recur,
    recursion_in_checkpoint_error,
    recursion_in_derivative_error,
    recursion_in_rule_error,
)
from difflang.ops.loop.invertible_op import invertible
from difflang.ops.loop.loop_op import loop
from difflang.recursion.basic_blocks import (
    FAILURE_WORDS,
    BasicBlock,
    BranchTerminator,
    CallTerminator,
    CodeFragment,
    GroupFunction,
    JumpTerminator,
    ReturnTerminator,
    Terminator,
    copy_fragment,
    free_values,
    is_worth_duplicating,
    prune_fragment,
)
from difflang.recursion.recursive_loops import BOOL_SCALAR, INDEX, EquationWriter, RecursiveLoop, carry_condition


class ControlFlowGraph(Struct, eq=False):
    """The blocks of a group, the entry block of each function, and the values that never change."""

    members: Mapping[int, GroupFunction]
    constants: Mapping[tuple[int, int], Value]  # by function and param: the same in every call, so never passed
    entries: dict[int, BasicBlock] = field(default_factory=dict[int, BasicBlock])
    all_blocks: list[BasicBlock] = field(default_factory=list["BasicBlock"])
    numbers: dict[Value, Eqn] = field(default_factory=dict[Value, Eqn])  # equations without operands, by their result
    calls_group: dict[Graph, bool] = field(default_factory=dict[Graph, bool])  # whether a graph calls within the group

    def add(self, received: Iterable[Value], piece: CodeFragment, *, after_call: bool = False) -> BasicBlock:
        """Add a block. It recomputes the constants that it reads, instead of keeping them live."""
        received = tuple(received)
        there = {*received, *self.constants.values()}
        needed = [v for v in free_values(piece) if v not in there]
        numbers = [self.numbers[v] for v in needed if v in self.numbers]
        live = tuple([v for v in needed if v not in self.numbers])
        code = CodeFragment((*numbers, *piece.eqns), piece.end)
        # Block 0 is the halt, so blocks are numbered from 1.
        block = BasicBlock(received, code, live, after_call, len(self.all_blocks) + 1)
        self.all_blocks.append(block)
        return block

    def varying_operands(self, function: int, operands: Sequence[Value]) -> Values:
        """The operands that a call of a function has to pass: those that are not constant."""
        return tuple([v for i, v in enumerate(operands) if (function, i) not in self.constants])

    def add_function(self, number: int) -> None:
        """Split a function into blocks. Errors: DL0410, DL1108 for a call where a function cannot be split."""
        member = self.members[number]
        self.look_into(member.graph)
        params = member.graph.params
        home = Builder()
        fresh = [self.constants.get((number, i)) or Value(p.type, home, p.hint) for i, p in enumerate(params)]

        def make_return(results: Values) -> CodeFragment:
            values = len(member.results)
            return CodeFragment((), ReturnTerminator(results[:values], results[values:]))

        piece = self.split_at_calls(member.graph, fresh, make_return)
        self.entries[number] = self.add(self.varying_operands(number, fresh[: len(member.call_params)]), piece)
        if self.entries[number].live:
            raise InternalError("the entry block of a function reads a value that nothing defines")

    def look_into(self, graph: Graph) -> None:
        """Record which regions of a graph call within the group."""
        for inner in graphs_postorder(graph)[0]:
            self.calls_group[inner] = any(map(self.has_group_call, inner.eqns))

    def split_at_calls(
        self, graph: Graph, operands: Sequence[Value], after: Callable[[Values], CodeFragment]
    ) -> CodeFragment:
        """The code of a graph up to its first split, followed by `after` on its results."""
        eqns, results = self.copy_equations(graph, operands)
        rest = after(results)
        # Backwards, so that each block after a split is complete before the code that leads to it.
        pending, end = list(reversed(rest.eqns)), rest.end
        for eqn in reversed(eqns):
            if not self.has_group_call(eqn):
                pending.append(eqn)
                continue
            rest = prune_fragment(CodeFragment(tuple(reversed(pending)), end))
            ended = self.ended(eqn, rest)
            pending, end = list(reversed(ended.eqns)), ended.end
        return CodeFragment(tuple(reversed(pending)), end)

    def has_group_call(self, eqn: Eqn) -> bool:
        """Whether it calls a function of the group, directly or in a region."""
        return eqn.op is recur or any(self.calls_group[r] for r in eqn.regions)

    def copy_equations(self, graph: Graph, operands: Sequence[Value]) -> tuple[list[Eqn], Values]:
        """The equations of a graph on these operands, and its results, all as new values: a graph may be used often."""
        to = dict(zip(graph.params, operands, strict=True))
        eqns: list[Eqn] = []
        for eqn in graph.eqns:
            results = tuple([Value(r.type, r.home, r.hint) for r in eqn.results])
            to.update(zip(eqn.results, results, strict=True))
            new = Eqn(eqn.op, tuple([to[v] for v in eqn.operands]), results, eqn.attrs, eqn.regions, eqn.span)
            eqns.append(new)
            if not eqn.operands and not eqn.regions:
                self.numbers.update((r, new) for r in results)
        return eqns, tuple([to[r] for r in graph.results])

    def ended(self, eqn: Eqn, rest: CodeFragment) -> CodeFragment:
        """The code for an equation that calls within the group, followed by `rest`."""
        if eqn.op in (loop, map_):
            return loop_to_blocks(self, eqn, rest)
        return CodeFragment((), self.make_terminator(eqn, rest))

    def make_terminator(self, eqn: Eqn, rest: CodeFragment) -> Terminator:
        if eqn.op is recur:
            operands, word = eqn.operands, ()
            if eqn.attrs["word"]:
                operands, word = operands[:-FAILURE_WORDS], operands[-FAILURE_WORDS:]
            then = None if self.is_last(eqn, rest) else self.add(eqn.results, rest, after_call=True)
            function = eqn.attrs["function"]
            if [v.type for v in eqn.results] != [v.type for v in self.members[function].results]:
                raise InternalError("a call expects other results than its function returns")
            return CallTerminator(function, self.varying_operands(function, operands), word, then)
        if eqn.op is not cond:
            raise unsupported_call(eqn)
        after = self.continuation(eqn, rest)
        condition, *operands = eqn.operands
        then, other = [prune_fragment(self.split_at_calls(region, operands, after)) for region in eqn.regions]
        return BranchTerminator(condition, (then, other))

    def continuation(self, eqn: Eqn, rest: CodeFragment) -> Callable[[Values], CodeFragment]:
        """The code after an equation, as a function of the equation's results."""
        if is_worth_duplicating(rest):
            return lambda results: copy_fragment(rest, dict(zip(eqn.results, results, strict=True)))
        joined = self.add(eqn.results, rest)
        return lambda results: CodeFragment((), JumpTerminator(joined, (*results, *joined.live)))

    @property
    def placeholder_block(self) -> BasicBlock:
        """The target of a jump as long as the real one does not exist."""
        return BasicBlock((), CodeFragment((), ReturnTerminator((), ())))

    def is_last(self, eqn: Eqn, rest: CodeFragment) -> bool:
        """Whether it is a tail call: its results are the function's, with no effect or failure after it."""
        end = rest.end
        if any(e.effectful for e in rest.eqns):
            return False
        return isinstance(end, ReturnTerminator) and end.values == eqn.results and all(map(self.is_zero, end.failure))

    def is_zero(self, value: Value) -> bool:
        return value in self.numbers and self.numbers[value].attrs.get("value") == 0


def unsupported_call(eqn: Eqn) -> DifflangError:
    """A call where code cannot be split. Errors: DL0410 in a derivative, DL0801 in a checkpoint, DL1108 in a rule."""
    if eqn.op.is_derivative:
        return recursion_in_derivative_error(eqn.span)
    if eqn.op is checkpoint:
        return recursion_in_checkpoint_error(eqn.span)
    if eqn.op not in (custom_derivative, custom_linear_solve, invertible):
        raise InternalError(f"a function that calls itself inside {eqn.op}")
    return recursion_in_rule_error(eqn.span)


# ---- Loops and comprehensions: a block for the head, and one for the step


def loop_to_blocks(blocks: ControlFlowGraph, eqn: Eqn, rest: CodeFragment) -> CodeFragment:
    """The code that enters a loop; `rest` is the code after the loop."""
    it = RecursiveLoop.of(eqn)
    if any(map(blocks.has_group_call, [e for go in it.regions[1:] for e in go.eqns])):
        ahead = carry_condition(eqn)
        blocks.look_into(ahead)
        return blocks.split_at_calls(ahead, eqn.operands, blocks.continuation(eqn, rest))
    start, home = EquationWriter(eqn), Builder()
    kept = eqn.results[int(it.indexed) + len(it.carry) :]
    first = [start.number(0), *it.carry, *[zeros(start.builder, v.type) for v in kept]]
    index, *state = [Value(v.type, home, v.hint) for v in first]
    carry, ys = state[: len(it.carry)], state[len(it.carry) :]
    done = blocks.continuation(eqn, rest)((index, *state) if it.indexed else tuple(ys))
    test_eqns, running = has_next_step(blocks, it, eqn, index, carry)
    always = (*it.consts, *it.xs, *([it.limit] if it.limit else ()))
    end = BranchTerminator(running, (CodeFragment((), JumpTerminator(blocks.placeholder_block, always)), done))
    # The step jumps to the head and the head branches to the step: the head starts with a placeholder jump, whose
    # operands keep live what every step reads, and gets its real branch when the step exists.
    head = blocks.add((index, *state), CodeFragment(test_eqns, end))

    def next_step(results: Values) -> CodeFragment:
        to = EquationWriter(eqn)
        count = to.one("add", INDEX, index, to.number(1))
        new = [to.set_item(y, v, index) for y, v in zip(ys, results[len(carry) :], strict=True)]
        return CodeFragment(to.eqns, JumpTerminator(head, (count, *results[: len(carry)], *new, *head.live)))

    reads = EquationWriter(eqn)
    items = [reads.item(x, index) for x in it.xs]
    body = blocks.split_at_calls(
        it.regions[0], (*([index] if it.indexed else ()), *it.consts, *carry, *items), next_step
    )
    step = prune_fragment(CodeFragment((*reads.eqns, *body.eqns), body.end))
    head.code = CodeFragment(head.code.eqns, BranchTerminator(running, (step, done)))
    return CodeFragment(start.eqns, JumpTerminator(head, (*first, *head.live)))


def has_next_step(
    blocks: ControlFlowGraph, it: RecursiveLoop, eqn: Eqn, index: Value, carry: Sequence[Value]
) -> tuple[tuple[Eqn, ...], Value]:
    """The equations that decide whether there is another step, and the value that says so."""
    # A negative limit means no limit: only the condition ends the loop.
    to = EquationWriter(eqn)
    limit = to.number(it.length) if it.limit is None else it.limit
    in_range = to.one("lt", BOOL_SCALAR, index, limit)
    if len(it.regions) == 1:
        return to.eqns, in_range
    in_range = to.one("logical_or", BOOL_SCALAR, in_range, to.one("lt", BOOL_SCALAR, limit, to.number(0)))
    eqns, (on,) = blocks.copy_equations(it.regions[1], (index, *it.consts, *carry))
    both = EquationWriter(eqn)
    running = both.one("logical_and", BOOL_SCALAR, in_range, on)
    return (*to.eqns, *eqns, *both.eqns), running
