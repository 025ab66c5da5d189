"""What elaboration makes: the graph of a function, of its rule, of a host expression, and what is known of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    """A function specialized: its graph takes the leaves of captures, arguments, globals and, if random, a key."""

    graph: Graph
    result: Term  # over the graph's own values: gives the structure of what it returns
    type: LangType
    globals: tuple[tuple[GlobalName, LangType], ...] = ()
    random: bool = False
    fails: bool = False  # its last three results are a failure
    takes_ok_flag: bool = False  # its last param says whether all was well before
    branch_elided: bool = False  # a condition known beforehand left a part of it out
    effects: frozenset[str] = frozenset()
    calls: frozenset[tree.Fn] = frozenset()
    memory_limit: int = 0  # bytes of memory for a program with a derivative of it; 0: it says nothing
    call_depth: int = 1  # functions one in another, itself among them


class RuleInstance(Struct, frozen=True):
    """In a rule: the instance that it is for, the top-level names that both read, and whether either can fail."""

    instance: FunctionInstance
    globals: tuple[GlobalName, ...]
    fails: bool


class CheckedDefinition(Struct, frozen=True, eq=False):
    """A definition as it was checked: its result, its own effects, and the functions whose effects it has too."""

    type: LangType
    effects: frozenset[str]
    calls: frozenset[tree.Fn]


class HostComputedSize(Struct, eq=False):
    """A whole number that host code makes of others that the host has: by `fold`, which may not know it."""

    fold: Callable[..., Dim | None]
    operands: tuple[Array, ...]
    chain_length: int  # one behind the other, it and what it is made of
    value: Dim | None = None  # once it was asked for


class RootGraph(Struct, eq=False):
    """One graph from its outermost builder: a function's instance, or a host expression."""

    builder: Builder
    definition_only: bool = False  # only checking: sizes are names, and the graph is thrown away
    follows_calls: bool = False  # and all the same the bodies of called functions are looked into
    globals: dict[GlobalName, Term] = field(default_factory=dict[GlobalName, Term])
    global_types: dict[GlobalName, LangType] = field(default_factory=dict[GlobalName, LangType])
    demand: Callable[[HostNumber], Dim] | None = None  # reads a host number that a size depends on
    host_numbers: dict[Value, HostNumber | HostComputedSize] = field(default_factory=dict[Value, Any])
    key: Value | None = None
    draw_count: int = 0
    lambda_calls: int = 0  # calls that were written out
    caller_key: Value | None = None  # in a rule: the key with which its function was called
    is_function: bool = False  # it is the graph of a function, to which a call can say whether all was well before
    ok_flag: Value | None = None  # that, where it is asked for
    silence_depth: int = 0  # says nothing while this is not 0
    output_suppressed: bool = False  # and has kept something back
    checked_indices: set[tuple[Builder, Value, Dim]] = field(
        default_factory=set[Any]
    )  # checked: where, which, below what
    effects: set[str] = field(default_factory=set[str])
    calls: set[tree.Fn] = field(default_factory=set[tree.Fn])  # declared functions whose bodies were not looked into
    result: tree.TypeExpr | None = None
    rule: RuleInstance | None = None  # where this is the graph of one
    derivative_depth: int = 0  # how many derivatives are being traced here
    chosen: bool = False  # a condition known beforehand has left a branch out
    implicit_derivative: bool = False  # a derivative is being taken that a rule needs and nobody wrote
    memory_limit: int = 0  # the least that a function says which was called here of memory: see `Instance`
    call_depth: int = 0  # of the functions that are called here

    def absorb_callee(self, instance: FunctionInstance) -> None:
        """What is so of a function is so of who calls it."""
        self.effects |= instance.effects
        self.calls |= instance.calls
        self.chosen |= instance.branch_elided
        self.memory_limit = tightest_limit(self.memory_limit, instance.memory_limit)
        self.call_depth = max(self.call_depth, instance.call_depth)
