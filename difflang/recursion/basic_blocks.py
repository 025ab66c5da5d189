"""Basic blocks of recursive functions: straight-line code that ends in a call, a return, a jump or a branch."""

from __future__ import annotations

from msgspec import Struct

from difflang.base.diagnostics import InternalError
from difflang.ir.graph import Eqn, Graph, Value, Values

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
