"""Results of elaboration: function instances, rule instances, checked definitions, and graphs under construction."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from difflang.base.byte_sizes import tightest_limit
from difflang.elaborate.terms import Array, Term
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import Dim
from difflang.syntax import tree
from difflang.types.language_types import LangType
from difflang.types.module_scope import GlobalName, HostNumber


class FunctionInstance(Struct, frozen=True, eq=False):
    """A specialized function. Its graph takes the leaves of captures, arguments, globals and, if random, a key."""

    graph: Graph
    result: Term  # over the graph's own values: the structure of the result
    type: LangType
    globals: tuple[tuple[GlobalName, LangType], ...] = ()
    random: bool = False
    fails: bool = False  # its last three results are a failure
    takes_ok_flag: bool = False  # its last param says whether no check failed before the call
    branch_elided: bool = False  # a static condition left a branch out
    effects: frozenset[str] = frozenset()
    calls: frozenset[tree.Fn] = frozenset()
    # The memory budget, in bytes, of a program with a derivative of it; 0 for none.
    memory_limit: int = 0
    call_depth: int = 1  # the longest chain of nested calls, including itself


class RuleInstance(Struct, frozen=True):
    """A function instance in its rule, with the top-level names that either reads, and whether either can fail."""

    instance: FunctionInstance
    globals: tuple[GlobalName, ...]
    fails: bool


class RuleGraphs(Struct, frozen=True, eq=False):
    """The primal and jvp graphs of a function with a rule, and the top-level names they take after the arguments."""

    primal: Graph
    jvp: Graph
    wrt: tuple[bool, ...]
    globals: tuple[GlobalName, ...]
    fails: bool


class InvertibleFunction(Struct, frozen=True, eq=False):
    """The graphs of a function and its inverse. Their params: the state, the other arguments, then global values."""

    step: Graph
    inverse: Graph
    order: tuple[int, ...]  # a permutation: the state's operands first
    state: int
    globals: tuple[GlobalName, ...]


class CheckedDefinition(Struct, frozen=True, eq=False):
    """The outcome of checking a definition: its result type, its own effects, and the functions that it calls."""

    type: LangType
    effects: frozenset[str]
    calls: frozenset[tree.Fn]


class HostComputedSize(Struct, eq=False):
    """An integer that host code computes from host numbers; `fold` gives its value, or None if it cannot."""

    fold: Callable[..., Dim | None]
    operands: tuple[Array, ...]
    chain_length: int  # the longest chain of computed operands, including itself
    value: Dim | None = None  # cached by the first request


class RootGraph(Struct, eq=False):
    """The state of one graph under construction: a function instance or a host expression."""

    builder: Builder
    # Checking a definition: sizes are names, and the graph is discarded.
    definition_only: bool = False
    # While checking, elaborate the bodies of called functions nevertheless.
    follows_calls: bool = False
    # While checking, emit calls with the bodies of called functions, to see what they do with arrays that are split.
    follows_splits: bool = False
    globals: dict[GlobalName, Term] = field(default_factory=dict[GlobalName, Term])
    global_types: dict[GlobalName, LangType] = field(default_factory=dict[GlobalName, LangType])
    # Reads a host number that a size depends on; None outside host code.
    demand: Callable[[HostNumber], Dim] | None = None
    host_numbers: dict[Value, HostNumber | HostComputedSize] = field(
        default_factory=dict[Value, HostNumber | HostComputedSize]
    )
    key: Value | None = None
    draw_count: int = 0
    lambda_calls: int = 0  # calls of lambdas inlined so far
    caller_key: Value | None = None  # in a rule: the key of the function's call
    # A function's graph: its caller can pass the flag whether no check failed before.
    is_function: bool = False
    ok_flag: Value | None = None  # the param for that flag, once something reads it
    silence_depth: int = 0  # prints are suppressed while it is positive
    output_suppressed: bool = False  # a print was suppressed
    # Index checks emitted so far: the builder, the index, its bound.
    checked_indices: set[tuple[Builder, Value, Dim]] = field(default_factory=set[tuple[Builder, Value, Dim]])
    effects: set[str] = field(default_factory=set[str])
    # Declared functions whose bodies were not elaborated.
    calls: set[tree.Fn] = field(default_factory=set[tree.Fn])
    result: tree.TypeExpr | None = None
    rule: RuleInstance | None = None  # set in the graph of a rule
    derivative_depth: int = 0  # the number of derivatives being traced
    chosen: bool = False  # a static condition left a branch out
    # The current derivative is needed by a rule; the program did not write it.
    implicit_derivative: bool = False
    # The smallest memory budget of the functions called so far: see `FunctionInstance`.
    memory_limit: int = 0
    call_depth: int = 0  # the largest of the functions called so far

    def absorb_callee(self, instance: FunctionInstance) -> None:
        """Take over the effects, limits and depth of a called function."""
        self.effects |= instance.effects
        self.calls |= instance.calls
        self.chosen |= instance.branch_elided
        self.memory_limit = tightest_limit(self.memory_limit, instance.memory_limit)
        self.call_depth = max(self.call_depth, instance.call_depth)
