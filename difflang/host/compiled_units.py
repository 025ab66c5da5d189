"""Compiled units of host code: each expression or assignment is staged to a graph. `unit_cache` compiles it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from difflang.base.gc_pause import pause_gc
from difflang.elaborate.context import AlreadyReported, ElabContext, Session
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.elaborated_graphs import RootGraph
from difflang.elaborate.scope import BlockScope
from difflang.elaborate.terms import Array, Term, leaves, type_of
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.execution.check_failures import ArrayProgram
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.lower.capacity import Growable
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import LangType, default_open_dtypes
from difflang.types.layered_bindings import LayeredBindings
from difflang.types.module_scope import GlobalName, HostNumber, ModuleScope
from difflang.types.type_resolver import TypeBinding
from difflang.types.unify import Unifier

Body = Callable[[ElabContext], Walk[list[Term]]]


class UnitStaging(Struct, eq=False):
    """A unit being staged: its context, and the host's values that it demands."""

    cx: ElabContext
    demanded: dict[HostNumber, Dim] = field(default_factory=dict[HostNumber, Dim])
    # The names that the expected type binds.
    binds: dict[str, TypeBinding] = field(default_factory=dict[str, Any])


class HostUnit(Struct, frozen=True, eq=False):
    """A staged unit: its graph, the variables that it reads, and the type of each result."""

    graph: Graph
    reads: tuple[GlobalName, ...]
    types: tuple[LangType, ...]
    statics: tuple[Any, ...]
    random: bool
    fails: bool
    # What a cached unit depends on: the types of the top-level names it mentions, and the numbers used as sizes.
    seen: tuple[tuple[str, LangType, Any], ...]
    demanded: tuple[tuple[HostNumber, Dim], ...]
    # The names that the expected type binds.
    binds: tuple[tuple[str, TypeBinding], ...]
    # For each result that is one of the arguments, its place among them; None for one that is computed.
    forwards: tuple[int | None, ...] = ()
    program: Growable[ArrayProgram] | None = None


def host_context(
    session: Session,
    module: ModuleScope,
    demand: Callable[[HostNumber], Dim],
    host: Any,
    *,
    definition: bool,
    signature: AnnotationResolver | None = None,
) -> ElabContext:
    """The context of a piece of host code; its names include the element types of the surrounding signature."""
    unifier = Unifier()
    builder = Builder(solver=unifier)
    # The sizes of the file are shared: a copy for each statement would cost the square of a program's length.
    annotations = AnnotationResolver(
        unifier, module.records.get, LayeredBindings(module.host.sizes), {}, rigid=definition
    )
    if signature is not None:
        annotations.generics |= signature.generics
        annotations.bound |= {n: b for n, b in signature.bound.items() if not isinstance(b, (int, Poly))}
    return ElabContext(
        session,
        module,
        RootGraph(builder, definition, demand=demand),
        builder,
        BlockScope(),
        unifier,
        annotations,
        host=host,
    )


def stage_unit(
    session: Session,
    module: ModuleScope,
    node: tree.Node,
    body: Body,
    host: Any,
    demand: Callable[[HostNumber], Dim],
    *,
    definition: bool,
    signature: AnnotationResolver | None = None,
) -> HostUnit:
    """Stage a piece of host code into a unit. Errors: DifflangError, AlreadyReported."""

    def record_demand(number: HostNumber) -> Dim:
        staging.demanded[number] = size = demand(number)
        return size

    staging = UnitStaging(
        host_context(session, module, record_demand, None, definition=definition, signature=signature)
    )
    cx = staging.cx
    cx.host = host
    host.staging.append(staging)
    fresh, errors = cx.failure_word.term, session.errors
    try:
        with pause_gc():
            terms = run_walk(body(cx))
    finally:
        host.staging.pop()
    # The errors are in the session already.
    if session.errors > errors:
        raise AlreadyReported
    word = leaves(cx.failure) if cx.failure_word.term is not fresh else []
    results = [*[v for t in terms for v in leaves(t)], *word]
    # A variable that the graph does not use is no input of it.
    used = {*results, *[v for e in cx.root.builder.eqns for v in e.operands]}
    reads = {g: leaves(t) for g, t in cx.root.globals.items() if not used.isdisjoint(leaves(t))}
    order = [*[v for values in reads.values() for v in values], *([cx.root.key] if cx.root.key else [])]
    graph = cx.root.builder.finish(results, params=order)
    resolve_dtypes(graph, session.finalized_graphs)
    names = [n for n in mentioned_names(node) if n in module.host]
    unit = HostUnit(
        graph,
        tuple(reads),
        tuple(default_open_dtypes(type_of(t)) for t in terms),
        tuple(t.static if isinstance(t, Array) else None for t in terms),
        cx.root.key is not None,
        bool(word),
        tuple((n, module.host[n].type, module.host[n].static) for n in names),
        tuple(staging.demanded.items()),
        tuple(staging.binds.items()),
        tuple(
            map(
                {param: place for place, param in enumerate(graph.params)}.get,
                graph.results[: len(results) - len(word)],
            )
        ),
    )
    return unit
