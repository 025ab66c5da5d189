"""Compiled units of host code: each expression or assignment is staged to a graph, compiled, and cached."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic
from difflang.base.gc_pause import pause_gc
from difflang.base.recently_used import PROGRAM_LIMITS, RecentlyUsed
from difflang.elaborate.context import AlreadyReported, ElabContext, Session
from difflang.elaborate.dtype_resolution import resolve_dtypes
from difflang.elaborate.elaborated_graphs import RootGraph
from difflang.elaborate.scope import BlockScope
from difflang.elaborate.terms import Array, Term, leaves, type_of
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.execution.check_failures import explain_failure
from difflang.execution.engine import ArrayProgram, Engine
from difflang.host.values import HostValue, resolve_texts
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.structural_equality import StructuralKeys
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.lower.capacity import Capacity, Growable
from difflang.ops.control.print_sink import PrintSink
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names
from difflang.types.annotations import AnnotationResolver
from difflang.types.language_types import LangType, default_open_dtypes, leaf_types
from difflang.types.layered_bindings import LayeredBindings
from difflang.types.module_scope import GlobalName, HostNumber, HostVar, ModuleScope
from difflang.types.type_resolver import TypeBinding
from difflang.types.unify import Unifier

GRAPHS_PER_PROGRAM = 16  # of regions, for which keys are made too

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
    )
    return unit


class UnitCache:
    """Compiled units, cached by the syntax they come from."""

    def __init__(self, session: Session, engine: Engine, voice: PrintSink) -> None:
        # `voice` receives what units print.
        self.session, self.engine, self.voice = session, engine, voice
        self.by_node: dict[tuple[tree.Node, Hashable], RecentlyUsed[HostUnit, None]] = {}
        self.keys, self.programs = StructuralKeys(), RecentlyUsed[Hashable, ArrayProgram]()
        self.call: Callable[[ArrayProgram, Sequence[Any]], list[Any]] = lambda program, arrays: list(program(*arrays))

    def find(
        self, node: tree.Node, key: Hashable, module: ModuleScope, demand: Callable[[HostNumber], Dim]
    ) -> HostUnit | None:
        """A cached unit of this syntax, staged for these types and these numbers used as sizes.

        `key` is what else the expected type depends on.
        """
        kept = self.by_node.get((node, key))
        for unit in reversed(kept.entries) if kept is not None else ():
            if (
                all(same_binding(module.host.get(n), t, s) for n, t, s in unit.seen)
                and all(demand(n) == s for n, s in unit.demanded)
                and (key is not None or not any(n in module.host for n, _ in unit.binds))
            ):
                self.keep(node, key, unit)  # it is used now
                return unit
        return None

    def keep(self, node: tree.Node, key: Hashable, unit: HostUnit) -> None:
        self.by_node.setdefault((node, key), RecentlyUsed()).add(unit, None)

    def program(self, unit: HostUnit) -> Growable[ArrayProgram]:
        """The executable of a unit, shared with structurally equal units.

        It is not shared if lines are profiled or if notes must name its own lines.
        """
        engine = replace(self.engine, in_order=self.session.deterministic)

        def build(capacity: Capacity) -> ArrayProgram:
            # The keys hold the graphs that they were made for.
            if len(self.keys.numbers) > GRAPHS_PER_PROGRAM * PROGRAM_LIMITS[0]:
                self.keys, self.programs = StructuralKeys(), RecentlyUsed()
            # Equal graphs share an executable, but not if lines are profiled or notes name lines.
            key = (self.keys.graph_key(unit.graph), unit.fails, capacity, engine.in_order)
            known = self.programs.get(key)
            if known is None or engine.profile is not None or getattr(known, "offload_warnings", ()):
                known = engine.program(unit.graph, guard=unit.fails, capacity=capacity, on_print=self.voice)
                self.programs.add(key, known)
            return known

        return Growable(build)

    def notes(self, unit: HostUnit) -> list[Diagnostic]:
        """Notes on where the device deviates from the program; the interpreter has none."""
        assert unit.program is not None
        return list(getattr(unit.program.made, "offload_warnings", ()))

    def execute(self, unit: HostUnit, arguments: Sequence[Any], key: Any) -> list[HostValue]:
        """Run a unit. Errors: DL09 if a check fails."""
        arrays = [*arguments, *([key] if unit.random else [])]
        assert unit.program is not None
        met = self.voice.met
        results = self.call(unit.program.made, arrays)
        self.voice.raise_error()
        while unit.fails and (site := results.pop().item()):
            if not unit.program.grow(self.session, site, interpreted=self.engine.name == "interpret"):
                engine = self.engine.explaining(unit.program.capacity)
                raise explain_failure(self.session, site, unit.graph, engine, arrays)
            # Output of the failed run is dropped, since the program with more capacity prints it again.
            self.voice.rewind(met)
            results = self.call(unit.program.made, arrays)
            self.voice.raise_error()
        if self.engine.check_nans:
            self.check_nans(unit, results, arrays)
        values: list[HostValue] = []
        for type, static in zip(unit.types, unit.statics, strict=True):
            count = len(leaf_types(type))
            values.append(resolve_texts(HostValue(type, tuple(results[:count]), static)))
            del results[:count]
        return values

    def check_nans(self, unit: HostUnit, results: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Errors: DL0908 if an operation of this unit produces a result that is not finite."""
        from difflang.gradcheck.nan_provenance import check_finite
        from difflang.lower.lowering_pipeline import finalize_graph

        assert unit.program is not None
        capacity = unit.program.capacity
        check_finite(lambda: finalize_graph(unit.graph, capacity), results, arrays)


def same_binding(var: HostVar | None, type: LangType, static: Any) -> bool:
    return var is not None and var.type == type and var.static == static
