"""Units: the pieces of host code that are compiled, an expression or an assignment each, found by what they read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic
from difflang.base.gc_pause import paused
from difflang.elaborate.context import Context, Reported, Session
from difflang.elaborate.dtype_resolution import settle
from difflang.elaborate.elaborated_graphs import Root
from difflang.elaborate.scope import Scope
from difflang.elaborate.terms import Array, Term, leaves, type_of
from difflang.elaborate.trampoline import Walk, run
from difflang.execution.check_failures import explain
from difflang.execution.engine import Engine, Program
from difflang.host.values import HostValue, with_texts_said
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.structural_equality import Keys
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.lower.capacity import Elastic, Room
from difflang.ops.control.print_sink import Voice
from difflang.syntax import tree
from difflang.syntax.tree_queries import free_names
from difflang.types.annotations import Annotations, Binding
from difflang.types.language_types import LangType, leaf_types, settled_type
from difflang.types.module_scope import Global, HostNumber, HostVar, Module
from difflang.types.unify import Unifier

Body = Callable[[Context], Walk[list[Term]]]


class Staging(Struct, eq=False):
    """A unit while it is walked: its context, and what it asks of the host."""

    cx: Context
    demanded: dict[HostNumber, Dim] = field(default_factory=dict[HostNumber, Dim])
    binds: dict[str, Binding] = field(default_factory=dict[str, Any])  # the new names of the type that is asked of it


class Unit(Struct, frozen=True, eq=False):
    """A unit, walked: its graph, what it reads, and what each result is."""

    graph: Graph
    reads: tuple[Global, ...]
    types: tuple[LangType, ...]
    statics: tuple[Any, ...]
    random: bool
    fails: bool
    seen: tuple[tuple[str, LangType, Any], ...]  # the top-level names it mentions, as they were
    demanded: tuple[tuple[HostNumber, Dim], ...]
    binds: tuple[tuple[str, Binding], ...]  # the new names of the type that is asked of it
    program: Elastic[Program] | None = None


def context(
    session: Session,
    module: Module,
    demand: Callable[[HostNumber], Dim],
    host: Any,
    *,
    definition: bool,
    signature: Annotations | None = None,
) -> Context:
    """The context of a piece of host code, the element types that the signature around it names among its names."""
    unifier = Unifier()
    builder = Builder(solver=unifier)
    sizes = {
        n: v.static
        for n, v in module.host.items()
        if isinstance(v.static, Dim) and not isinstance(v.static, bool) and not v.mutable
    }
    annotations = Annotations(unifier, module.records.get, dict(sizes), {}, rigid=definition)
    if signature is not None:
        annotations.generics |= signature.generics
        annotations.bound |= {n: b for n, b in signature.bound.items() if not isinstance(b, (int, Poly))}
    return Context(
        session, module, Root(builder, definition, demand=demand), builder, Scope(), unifier, annotations, host=host
    )


def stage(
    session: Session,
    module: Module,
    node: tree.Node,
    body: Body,
    host: Any,
    demand: Callable[[HostNumber], Dim],
    *,
    definition: bool,
    signature: Annotations | None = None,
) -> Unit:
    """Walk a piece of host code into a unit. Errors: DifflangError, Reported."""

    def ask(number: HostNumber) -> Dim:
        staging.demanded[number] = size = demand(number)
        return size

    staging = Staging(context(session, module, ask, None, definition=definition, signature=signature))
    cx = staging.cx
    cx.host = host
    host.staging.append(staging)
    fresh, errors = cx.word.term, session.errors
    try:
        with paused():
            terms = run(body(cx))
    finally:
        host.staging.pop()
    if session.errors > errors:
        raise Reported
    word = leaves(cx.failure) if cx.word.term is not fresh else []
    results = [*[v for t in terms for v in leaves(t)], *word]
    used = {*results, *[v for e in cx.root.builder.eqns for v in e.operands]}
    reads = {g: leaves(t) for g, t in cx.root.globals.items() if not used.isdisjoint(leaves(t))}
    order = [*[v for values in reads.values() for v in values], *([cx.root.key] if cx.root.key else [])]
    graph = cx.root.builder.finish(results, params=order)
    settle(graph, session.settled)
    names = [n for n in free_names(node) if n in module.host]
    unit = Unit(
        graph,
        tuple(reads),
        tuple(settled_type(type_of(t)) for t in terms),
        tuple(t.static if isinstance(t, Array) else None for t in terms),
        cx.root.key is not None,
        bool(word),
        tuple((n, module.host[n].type, module.host[n].static) for n in names),
        tuple(staging.demanded.items()),
        tuple(staging.binds.items()),
    )
    return unit


class Units:
    """Compiled units by the syntax they come from."""

    def __init__(self, session: Session, engine: Engine, voice: Voice) -> None:
        self.session, self.engine, self.voice = session, engine, voice  # which is told what they print
        self.known: dict[tuple[tree.Node, Hashable], list[Unit]] = {}
        self.keys, self.programs = Keys(), dict[Hashable, Program]()
        self.call: Callable[[Program, Sequence[Any]], list[Any]] = lambda program, arrays: list(program(*arrays))

    def find(self, node: tree.Node, key: Hashable, module: Module, demand: Callable[[HostNumber], Dim]) -> Unit | None:
        """A unit of this syntax made for names of these types, and for these numbers where sizes need them.

        `key` is what the type that is asked of it depends on besides.
        """
        for unit in self.known.get((node, key), ()):
            if (
                all(same(module.host.get(n), t, s) for n, t, s in unit.seen)
                and all(demand(n) == s for n, s in unit.demanded)
                and (key is not None or not any(n in module.host for n, _ in unit.binds))
            ):
                return unit
        return None

    def keep(self, node: tree.Node, key: Hashable, unit: Unit) -> None:
        self.known.setdefault((node, key), []).append(unit)

    def program(self, unit: Unit) -> Elastic[Program]:
        """What runs a unit: that of another one which is the same program.

        Unless lines are timed, or something is to be said of it, which is said of its own lines.
        """
        engine = replace(self.engine, in_order=self.session.in_order)

        def made(room: Room) -> Program:
            key = (self.keys.of(unit.graph), unit.fails, room, engine.in_order)
            known = self.programs.get(key)
            if known is None or engine.profile is not None or getattr(known, "notes", ()):
                self.programs[key] = engine.program(unit.graph, guard=unit.fails, room=room, says=self.voice)
            return self.programs[key]

        return Elastic(made)

    def notes(self, unit: Unit) -> list[Diagnostic]:
        """What its device does not do as the program says; the interpreter has no device."""
        assert unit.program is not None
        return list(getattr(unit.program.made, "notes", ()))

    def execute(self, unit: Unit, arguments: Sequence[Any], key: Any) -> list[HostValue]:
        """Run a unit. Errors: DL09 where a check fails."""
        arrays = [*arguments, *([key] if unit.random else [])]
        assert unit.program is not None
        met = self.voice.met
        results = self.call(unit.program.made, arrays)
        self.voice.settle()
        while unit.fails and (site := results.pop().item()):
            if not unit.program.grows(self.session, site, interpreted=self.engine.name == "interpret"):
                room = unit.program.room
                raise explain(self.session, site, unit.graph, self.engine.explaining(room), arrays)
            self.voice.again(met)
            results = self.call(unit.program.made, arrays)
            self.voice.settle()
        if self.engine.watch:
            self.watch(unit, results, arrays)
        values: list[HostValue] = []
        for type, static in zip(unit.types, unit.statics, strict=True):
            count = len(leaf_types(type))
            values.append(with_texts_said(HostValue(type, tuple(results[:count]), static)))
            del results[:count]
        return values

    def watch(self, unit: Unit, results: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Errors: DL0908 where a result is not finite for something that this unit does."""
        from difflang.gradcheck.nan_errors import check
        from difflang.lower.lowering_pipeline import finished

        assert unit.program is not None
        room = unit.program.room
        check(lambda: finished(unit.graph, room), results, arrays)


def same(var: HostVar | None, type: LangType, static: Any) -> bool:
    return var is not None and var.type == type and var.static == static
