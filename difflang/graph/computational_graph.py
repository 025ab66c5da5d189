"""The graph of a program in the hand: read, run, drawn, written to a file, edited and rewritten by passes.

A `Graph` never changes: each edit gives a new one, which is verified. What stands in other modules here is only called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

from msgspec.structs import replace

from difflang.base.error_codes import suggestion
from difflang.base.errors import classify_errors
from difflang.base.wording import with_article
from difflang.execution.check_failures import FAILURE_RESULTS
from difflang.graph.builder import GraphBuilder
from difflang.graph.dataflow_machine import DataflowMachine, MachineOptions, Place
from difflang.graph.drawing import draw, notebook_html
from difflang.graph.edits import rename_values, replace_value, with_outputs
from difflang.graph.graph_errors import graph_error, verified
from difflang.graph.graph_json import record_from_json, record_to_json
from difflang.graph.graph_passes import apply_pass, has_known_sizes
from difflang.graph.graph_view import GraphView, Value
from difflang.graph.run_graph import Programs, RunContext, free_context, run_graph
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.structural_equality import graphs_equal
from difflang.ir.symbolic_dims import dim_name, dim_names
from difflang.ir.tensor_types import History
from difflang.ir.text_parser import graph_from_text
from difflang.passes.substitute_dims import substitute_graph_dims
from difflang.tools.memory_report import MemoryReport, graph_memory


class Graph(GraphView):
    """A computational graph: typed inputs, equations in order, outputs. `f.graph(…)` of a loaded function gives one.

    Two graphs are equal if they have the same equations in the same order, with the same names, attributes and regions;
    positions in a source and facts do not count.
    """

    def __init__(
        self,
        ir: IrGraph,
        context: RunContext | None = None,
        *,
        can_fail: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(ir, FAILURE_RESULTS if can_fail else 0)
        self._context = context or free_context()
        self._facts: Mapping[str, Any] = MappingProxyType(dict(facts or {}))
        self._programs: Programs = {}

    @property
    def can_fail(self) -> bool:
        """Whether a check of the program, of an index or an `assert`, may fail in a run."""
        return self._hidden_outputs > 0

    @property
    def facts(self) -> Mapping[str, Any]:
        """What passes have found out about the graph. An edit, or a pass that changes it, drops them."""
        return self._facts

    @property
    def filled_inputs(self) -> int:
        """How many of the last inputs a run may fill in: a random key, and arrays that the file declares."""
        return self._context.random + len(self._context.constants)

    @property
    def dropped_rules(self) -> tuple[str, ...]:
        """The functions that had a derivative rule of their own in the program, which this graph does not have."""
        return self._context.dropped_rules

    def derive(self, ir: IrGraph, facts: Mapping[str, Any] | None = None, dropped_rules: Sequence[str] = ()) -> Self:
        """A graph in place of this one, for runs in the same program, maybe without some derivative rules."""
        if ir is self._ir and facts is None:
            return self
        context = self._context
        if dropped_rules:
            context = replace(context, dropped_rules=tuple(dict.fromkeys([*context.dropped_rules, *dropped_rules])))
        return self.__class__(ir, context, can_fail=self.can_fail, facts=facts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self is other or (self._hidden_outputs == other._hidden_outputs and graphs_equal(self._ir, other._ir))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self._ir.type, tuple([eqn.op.name for eqn in self._ir.eqns])))

    # ---- Texts and pictures

    @classmethod
    def parse(cls, text: str) -> Self:
        """The graph that a text describes, its last definition.

        A text does not tell that the last results are those of checks: they are outputs like others. Errors: DL1203.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise graph_error("DL1203", f"the text of a graph is a `str`, not {with_article(type(text).__name__)}")
        with classify_errors():
            return cls(graph_from_text(text))

    def to_json(self, *, source: bool = True) -> str:
        """The graph as one line of JSON, with its checks and, if `source`, the texts that its positions are in.

        Errors: DL1233 if it calls a Python function.
        """
        checks = self._context.checks if self.can_fail else None
        return record_to_json(self._ir, checks, self.dropped_rules, source=source)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The graph that `to_json` wrote, equal to it.

        Errors: DL1204 for any other text; DL1272 for an op that is not declared.
        """
        found = record_from_json(text)
        return cls(found.graph, free_context(found.sites or (), found.dropped_rules), can_fail=found.sites is not None)

    def show(self, form: str = "mermaid", *, everything: bool = False) -> str:
        """Its picture: `dot`, `mermaid`, `svg`, `html` or `json`. Large graphs are folded unless `everything` is set.

        Errors: DL1207 for another format; DL0709 for SVG and HTML without Graphviz.
        """
        return draw(self._ir, form, everything=everything)

    def _repr_html_(self) -> str:
        return notebook_html(self._ir, self.text())

    # ---- Runs

    def run(self, /, *arrays: Any, engine: str = "xla", **named: Any) -> tuple[Any, ...]:
        """Its outputs for these inputs, by position and by name. The engine `xla` compiles it, `interpret` runs it in
        NumPy, `dataflow` by tokens.

        Symbolic sizes follow from the shapes; each new set of sizes is compiled. A random key may be an integer.
        Errors: those of the program if a check fails; DL1201, DL1202, DL1206, DL1207 for wrong inputs; DL1250 for an
        output that only a loop can read.
        """
        if engine == "dataflow":
            return self.dataflow().run(*arrays, **named)
        return run_graph(self, self._context, self._programs, (arrays, named), engine, self.can_fail)

    def dataflow(
        self,
        devices: int = 1,
        place: Place = None,
        *,
        parallel_iterations: int = 32,
        swap_above: str | int | None = None,
        record: bool = False,
    ) -> DataflowMachine:
        """The graph on a dataflow machine, where control flow is tokens: to see how it runs, on several devices.

        `place` says where: a function of each equation, the text of a placement, or `auto`; what it does not place is
        where the program says by `@device`, or on device 0. At most `parallel_iterations` of a loop are under way. What
        loops keep on stacks beyond `swap_above`, as `"64 MiB"` or in bytes, goes to a file and comes back when it is
        read. With `record` each node that fires is kept, for a timeline. Errors: DL1260, here or where the machine is
        used; DL0710 if a file has no room.
        """
        options = MachineOptions(devices, place, parallel_iterations, swap_above, record)
        return DataflowMachine(self, self._context, self.can_fail, options)

    def memory(self, *, compiled: bool = False) -> MemoryReport:
        """The memory that a run on the CPU takes, as predicted; if `compiled`, beside XLA's own figure.

        `report.account.peak` is in bytes, `str` of the report a table by lines. Errors: DL1250 for symbolic sizes.
        """
        if not has_known_sizes(self._ir):
            way = "give the sizes numbers: `g.with_sizes(n=3)`"
            raise graph_error("DL1250", "the memory of this graph depends on its sizes", help=way)
        with classify_errors():
            what = f"the graph `{self.name}`" if self.name else "the graph"
            return graph_memory(self._ir, what, compiled=compiled)

    # ---- Edits

    def replace(self, value: Value, with_: Callable[[GraphBuilder, Value], Value]) -> Self:
        """The graph where all that reads `value`, outputs too, reads `with_(b, value)`; `b` has every op as a method.

        Values that the edit does not touch are values of the new graph too.
        Errors: DL1250 at the equation that refuses the new value, for a value of another graph, and for a cycle.
        """
        return self.derive(replace_value(self._ir, value, with_))

    def with_outputs(self, *values: Value) -> Self:
        """The graph with these outputs. What they do not need stays, until `dce` drops it. Errors: DL1250."""
        return self.derive(with_outputs(self._ir, values, self._hidden_outputs))

    def rename(self, names: Mapping[Value, str] | None = None, *, name: str | None = None) -> Self:
        """The graph with other names for some values, and maybe for itself. Errors: DL1250."""
        return self.derive(rename_values(self._ir, names or {}, name))

    def with_sizes(self, /, **sizes: int) -> Self:
        """The graph with numbers for symbolic sizes. Errors: DL1250 for a size that it does not have, or no number."""
        types = [p.type for p in self._ir.params if not isinstance(p.type, History)]
        known = sorted({name for type in types for dim in type.shape for name in dim_names(dim)})
        for name, size in sizes.items():
            if name not in known:
                raise graph_error("DL1250", f"the graph has no size `{name}`", help=suggestion(name, known))
            if type(size) is not int or size < 0:
                raise graph_error("DL1250", f"{size!r} is no number for the size `{name}`")
        return self.derive(verified(substitute_graph_dims(self._ir, lambda n: sizes.get(n, dim_name(n)))))

    # ---- Passes

    def apply(self, *names: str, auto: bool = False) -> Self:
        """The graph after these passes, one after the other; `dg.passes()` lists them.

        With `auto`, a pass that needs a fact which the graph lacks is preceded by one that gives it.
        Errors: DL0201 for an unknown pass; DL1251 for one that lacks a fact which it needs, or breaks its promise.
        """
        graph = self
        for name in names:
            graph = apply_pass(graph, name, auto=auto)
        return graph
