"""Compiles the units of host code and runs them: structurally equal units share one executable."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic
from difflang.base.recently_used import PROGRAM_LIMITS, RecentlyUsed
from difflang.elaborate.context import Session
from difflang.execution.check_failures import ArrayProgram, explain_failure
from difflang.execution.engine import Engine
from difflang.gradcheck.nan_provenance import check_finite
from difflang.host.compiled_units import HostUnit
from difflang.host.data.stored_columns import read_columns
from difflang.host.values import HostValue, resolve_texts
from difflang.ir.structural_equality import StructuralKeys
from difflang.ir.symbolic_dims import Dim
from difflang.lower.capacity import Capacity, Growable
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.ops.control.print_sink import PrintSink
from difflang.syntax import tree
from difflang.types.language_types import LangType, leaf_types
from difflang.types.module_scope import HostNumber, HostVar, ModuleScope

GRAPHS_PER_PROGRAM = 16  # of regions, for which keys are made too


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
        values, word = unit.graph.results[: len(unit.forwards)], unit.graph.results[len(unit.forwards) :]
        passed = zip(values, unit.forwards, strict=True)
        graph = unit.graph.with_results([*[value for value, place in passed if place is None], *word])

        def build(capacity: Capacity) -> ArrayProgram:
            # The keys hold the graphs that they were made for.
            if len(self.keys.numbers) > GRAPHS_PER_PROGRAM * PROGRAM_LIMITS[0]:
                self.keys, self.programs = StructuralKeys(), RecentlyUsed()
            # Equal graphs share an executable, but not if lines are profiled or notes name lines.
            key = (self.keys.graph_key(graph), unit.fails, capacity, engine.in_order)
            known = self.programs.get(key)
            if known is None or engine.profile is not None or getattr(known, "offload_warnings", ()):
                known = engine.program(graph, guard=unit.fails, capacity=capacity, on_print=self.voice)
                self.programs.add(key, known)
            return known

        return Growable(build)

    def notes(self, unit: HostUnit) -> list[Diagnostic]:
        """Notes on where the device deviates from the program; the interpreter has none."""
        assert unit.program is not None
        return list(getattr(unit.program.made, "offload_warnings", ()))

    def execute(self, unit: HostUnit, arguments: Sequence[Any], key: Any) -> list[HostValue]:
        """Run a unit. Errors: DL09 if a check fails."""
        stored = [*arguments, *([key] if unit.random else [])]
        arrays = read_columns(unit.graph, stored)
        assert unit.program is not None
        met = self.voice.met
        results = self.computed(unit, arrays, stored)
        while unit.fails and (site := results.pop().item()):
            if not unit.program.grow(self.session, site, interpreted=self.engine.name != "xla"):
                engine = self.engine.explaining(unit.program.capacity)
                raise explain_failure(self.session, site, unit.graph, engine, arrays)
            # Output of the failed run is dropped, since the program with more capacity prints it again.
            self.voice.rewind(met)
            results = self.computed(unit, arrays, stored)
        if self.engine.check_nans:
            self.check_nans(unit, results, arrays)
        values: list[HostValue] = []
        for type, static in zip(unit.types, unit.statics, strict=True):
            count = len(leaf_types(type))
            values.append(resolve_texts(HostValue(type, tuple(results[:count]), static)))
            del results[:count]
        return values

    def computed(self, unit: HostUnit, arrays: Sequence[Any], stored: Sequence[Any]) -> list[Any]:
        """The results of one run; what a unit only passes on, such as a name or a field, as it is stored."""
        assert unit.program is not None
        results: list[Any] = []
        if None in unit.forwards or unit.fails or unit.graph.effectful:
            results = self.call(unit.program.made, arrays)
            self.voice.raise_error()
        rest = iter(results)
        return [*[next(rest) if place is None else stored[place] for place in unit.forwards], *rest]

    def check_nans(self, unit: HostUnit, results: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Errors: DL0908 if an operation of this unit produces a result that is not finite."""
        assert unit.program is not None
        capacity = unit.program.capacity
        check_finite(lambda: finalize_graph(unit.graph, capacity), results, arrays)


def same_binding(var: HostVar | None, type: LangType, static: Any) -> bool:
    return var is not None and var.type == type and var.static == static
