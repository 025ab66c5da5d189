"""Splits mutually recursive functions into basic blocks: straight-line code that ends in a call, return or jump.

Functions are split at each call within the group, and at each branch that holds one. They are processed backwards, so
the code after a split exists before the code that leads to it, and its live values are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value, Values, graphs_postorder
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
from difflang.recursion.loops_to_blocks import loop_to_blocks

FAILURE_WORDS = 3  # a failure is three numbers
# At most so many equations after a branch are copied into both sides. A block of their own would cost a step of the
# machine.
MAX_DUPLICATED_EQNS = 8


class GroupFunction(Struct, frozen=True, eq=False):
    """A function of a group. Its graph takes the arguments of calls, then values shared by the whole group."""

    graph: Graph
    shared: tuple[object, ...]  # the names of the last params
    fails: bool  # the last three results are a failure

    @property
    def call_params(self) -> Values:
        return self.graph.params[: len(self.graph.params) - len(self.shared)]

    @property
    def results(self) -> Values:
        """Its results without its failure."""
        return self.graph.results[: len(self.graph.results) - FAILURE_WORDS * self.fails]


class ReturnTerminator(Struct, frozen=True, eq=False):
    values: Values
    failure: Values


class CallTerminator(Struct, frozen=True, eq=False):
    function: int
    operands: Values
    failure: Values
    return_block: BasicBlock | None  # None for a tail call


class JumpTerminator(Struct, frozen=True, eq=False):
    block: BasicBlock
    values: Values  # the block's params, then its live values


class BranchTerminator(Struct, frozen=True, eq=False):
    condition: Value
    sides: tuple[CodeFragment, CodeFragment]


Terminator = ReturnTerminator | CallTerminator | JumpTerminator | BranchTerminator


class CodeFragment(Struct, frozen=True, eq=False):
    """Equations in order, and a terminator."""

    eqns: tuple[Eqn, ...]
    end: Terminator


class BasicBlock(Struct, eq=False):
    """A block: code, its params, and the live values it reads from code that ran before."""

    block_params: Values
    code: CodeFragment
    live: Values = ()
    after_call: bool = False  # its live values are saved in a frame of the stack
    number: int = 0


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


def free_values(piece: CodeFragment) -> dict[Value, None]:
    """The values that a piece of code reads from outside, in a deterministic order."""
    # A dict serves as an ordered set: frames and registers must be assigned alike in every run.
    needed = terminator_values(piece.end)
    for eqn in reversed(piece.eqns):
        for result in eqn.results:
            needed.pop(result, None)
        needed.update(dict.fromkeys(eqn.operands))
    return needed


def terminator_values(end: Terminator) -> dict[Value, None]:
    match end:
        case ReturnTerminator(values, word):
            return dict.fromkeys((*values, *word))
        case CallTerminator(_, operands, word, then):
            live: Values = () if then is None else then.live
            return dict.fromkeys((*operands, *word, *live))
        case JumpTerminator(_, values):
            return dict.fromkeys(values)
        case BranchTerminator(condition, sides):
            return {condition: None, **free_values(sides[0]), **free_values(sides[1])}


def prune_fragment(piece: CodeFragment) -> CodeFragment:
    """The same without dead equations."""
    needed = terminator_values(piece.end)
    kept: list[Eqn] = []
    for eqn in reversed(piece.eqns):
        if eqn.effectful or not needed.keys().isdisjoint(eqn.results):
            needed.update(dict.fromkeys(eqn.operands))
            kept.append(eqn)
    return CodeFragment(tuple(reversed(kept)), piece.end)


def is_worth_duplicating(piece: CodeFragment) -> bool:
    """Whether copying the code is better than a jump to it: it is short and ends without a frame or a branch."""
    leaves = isinstance(piece.end, (ReturnTerminator, JumpTerminator)) or (
        isinstance(piece.end, CallTerminator) and piece.end.return_block is None
    )
    return leaves and len(piece.eqns) <= MAX_DUPLICATED_EQNS and not any(e.regions for e in piece.eqns)


def copy_fragment(piece: CodeFragment, to: dict[Value, Value]) -> CodeFragment:
    """A short piece of code on other values."""
    eqns: list[Eqn] = []
    for eqn in piece.eqns:
        results = tuple([Value(r.type, r.home, r.hint) for r in eqn.results])
        operands = tuple([to.get(v, v) for v in eqn.operands])
        eqns.append(Eqn(eqn.op, operands, results, eqn.attrs, eqn.regions, eqn.span))
        to.update(zip(eqn.results, results, strict=True))

    def renamed(values: Values) -> Values:
        return tuple([to.get(v, v) for v in values])

    match piece.end:
        case ReturnTerminator(values, word):
            end: Terminator = ReturnTerminator(renamed(values), renamed(word))
        case CallTerminator(function, operands, word, None):
            end = CallTerminator(function, renamed(operands), renamed(word), None)
        case JumpTerminator(block, values):
            end = JumpTerminator(block, renamed(values))
        case _:
            raise InternalError("code that calls or branches is not short")
    return CodeFragment(tuple(eqns), end)
