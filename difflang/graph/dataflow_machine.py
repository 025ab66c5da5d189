"""A graph on the dataflow machine: placed on devices, read as nodes, run by tokens, with what happened in the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from difflang.base.byte_sizes import parse_bytes
from difflang.base.errors import classify_errors
from difflang.base.source import Source
from difflang.dataflow.executor import Firing
from difflang.dataflow.machine import Machine
from difflang.dataflow.nodes import DataflowProgram
from difflang.dataflow.placement import automatic_placement, placement_error, read_placement
from difflang.dataflow.run_dataflow import RunStatistics
from difflang.dataflow.timeline import chrome_trace
from difflang.graph.graph_errors import graph_error
from difflang.graph.graph_view import Equation, GraphView
from difflang.graph.run_graph import GraphProgram, RunContext, run_graph
from difflang.ir.graph import Eqn
from difflang.ir.graph import Graph as IrGraph
from difflang.ir.interpreter import TextSink, discard_text
from difflang.lower.lowering_pipeline import INTERPRET, finalize_graph
from difflang.passes.substitute_dims import has_symbolic_dims
from difflang.syntax.placed_spans import MAX_DEVICES
from difflang.tools.viz.dataflow_picture import draw_program

Place = Callable[[Equation], int | None] | str | None


class MachineOptions(Struct, frozen=True):
    """What `g.dataflow(…)` is given."""

    devices: int
    place: Place
    parallel_iterations: int
    swap_above: str | int | None
    record: bool

    def limit_of_stacks(self) -> int | None:
        """`swap_above` in bytes. Errors: DL1260."""
        given = self.swap_above
        found = parse_bytes(given) if isinstance(given, str) else given
        if found is None and given is None:
            return None
        if type(found) is not int or found < 0:
            way = 'a text with a unit, "64 MiB", or a number of bytes'
            raise graph_error(
                "DL1260", f"`swap_above` is no amount of memory: {given!r}", help=f"`swap_above` is {way}"
            )
        return found


class DataflowMachine:
    """A graph whose equations are on devices of the dataflow machine. `g.dataflow(…)` makes one.

    `last_run` says what happened in the latest run: how often nodes of each kind fired, how many of them on a dead
    token, work, span, and the most iterations under way.
    """

    def __init__(self, graph: GraphView, context: RunContext, can_fail: bool, options: MachineOptions) -> None:
        devices, place, parallel_iterations = options.devices, options.place, options.parallel_iterations
        for name, number in (("devices", devices), ("parallel_iterations", parallel_iterations)):
            if type(number) is not int or number < 1:
                raise graph_error("DL1260", f"`{name}` is a number from 1, not {number!r}")
        if devices > MAX_DEVICES:
            raise graph_error("DL1260", f"there are at most {MAX_DEVICES} devices, not {devices:,}")
        if place is not None and not isinstance(place, str) and not callable(place):
            way = 'a function of an equation, the text of a placement, or "auto"'
            raise graph_error("DL1260", f"{place!r} is no placement", help=f"`place` is {way}")
        self.graph, self.devices, self.place = graph, devices, place
        self._firings: list[Firing] = []  # of the latest run
        self._machine = Machine(
            devices, self._placement, parallel_iterations, swap_above=options.limit_of_stacks(),
            observe=self._firings.append if options.record else None,
        )  # fmt: skip
        self._can_fail = can_fail
        if isinstance(place, str) and place != "auto":
            with classify_errors():
                self._placed = read_placement(Source("<placement>", place), devices)
        self._context, self._programs = context, dict[tuple[tuple[str, int], ...], GraphProgram]()

    def __repr__(self) -> str:
        return f"<{self.graph.name or 'graph'} on {self.devices} device{'s' * (self.devices > 1)}>"

    @cached_property
    def _program(self) -> DataflowProgram:
        ir = self.graph.ir
        if any(has_symbolic_dims(p.type) for p in ir.params):
            raise graph_error(
                "DL1202", "the dataflow machine runs sizes that are numbers", help="use `g.with_sizes(…)`"
            )
        with classify_errors():
            return self._machine.program(finalize_graph(ir, pipeline=INTERPRET))

    @property
    def last_run(self) -> RunStatistics | None:
        """What happened in the latest run; None before it."""
        return self._machine.last_run

    def _placement(self, graph: IrGraph, said: Mapping[Eqn, int]) -> Mapping[Eqn, int]:
        """Errors: DL1260 for a device that is not there, or another value in its place."""
        if self.place is None:
            return said
        if self.place == "auto":
            return automatic_placement(graph, said, self.devices)
        if isinstance(self.place, str):
            return self._placed(graph, said)
        view = GraphView(graph)
        found: dict[Eqn, int] = {}
        for equation in view.walk():
            device = self.place(equation)
            if device is None:
                continue
            if type(device) is not int or not 0 <= device < self.devices:
                span = equation.span
                way = f"devices are numbers from 0 to {self.devices - 1}"
                raise placement_error(f"`place` gives {device!r} for `{equation.op}`", span, way)
            found[equation.ir] = device
        return found

    def text(self) -> str:
        """The nodes, a line each: `%7 = Switch(%3, %5:0)  frame 1  device 0  # line 4`."""
        return self._program.text()

    @property
    def counts(self) -> Counter[str]:
        """How many nodes of each kind there are."""
        return self._program.counts()

    def show(self, form: str = "dot") -> str:
        """Its picture: `dot`, `mermaid`, `svg` or `json`, boxes by device, frames nested, each Send beside its Recv.

        Errors: DL1207 for another format; DL0709 for SVG without Graphviz.
        """
        with classify_errors():
            return draw_program(self._program, form, self.graph.name or "graph")

    def run(self, /, *arrays: Any, **named: Any) -> tuple[Any, ...]:
        """The outputs for these inputs, as `g.run` gives them; afterwards `last_run` says what happened.

        Errors: those of the program if a check fails; DL1201, DL1202, DL1206, DL1207 for wrong inputs.
        """
        return run_graph(
            self.graph, self._context, self._programs, (arrays, named), "dataflow", self._can_fail, self._make
        )

    def timeline(self) -> str:
        """The latest run as a trace that Chrome and Perfetto open. Errors: DL1260 without a record of one."""
        if not self._firings:
            way = "make the machine with `g.dataflow(…, record=True)`, and call `run(…)`"
            raise graph_error("DL1260", "no run was recorded", help=way)
        return chrome_trace(self._firings)

    def _make(self, graph: IrGraph, context: RunContext, can_fail: bool) -> GraphProgram:
        program = GraphProgram(graph, context, can_fail)
        program.evaluate = self._evaluate
        return program

    def _evaluate(self, graph: IrGraph, *arrays: Any, text_sink: TextSink = discard_text) -> Sequence[Any]:
        self._firings.clear()
        return self._machine.evaluate(graph, *arrays, text_sink=text_sink)
