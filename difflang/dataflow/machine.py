"""A dataflow machine: devices, a placement, and whether they are in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from difflang.base.source_files import read_source
from difflang.dataflow.executor import Observer
from difflang.dataflow.nodes import DataflowProgram
from difflang.dataflow.partition import dataflow_program
from difflang.dataflow.placement import automatic_placement, placement_in_program, read_placement
from difflang.dataflow.run_dataflow import RunOptions, RunStatistics, RunTotals, run_dataflow
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import TextSink, discard_text

if TYPE_CHECKING:
    from difflang.dataflow.coordinator import Cluster

# Takes what the program itself says, by equation; gives what counts instead, or besides.
Place = Callable[[Graph, Mapping[Eqn, int]], Mapping[Eqn, int]]


class Machine:
    """Evaluates graphs with finished sizes, like the interpreter. `place` says which device computes each equation.

    With a cluster, devices are processes. `last_run` says what happened in the latest run, `totals` in all together.
    `observe` sees each node that fires.
    """

    def __init__(
        self, devices: int = 1, place: Place | None = None, parallel_iterations: int = 32, *,
        swap_above: int | None = None, cluster: Cluster | None = None, observe: Observer | None = None,
    ) -> None:  # fmt: skip
        self.devices, self.place, self.parallel_iterations = devices, place, parallel_iterations
        self.swap_above, self.cluster, self.observe = swap_above, cluster, observe
        self.last_run: RunStatistics | None = None
        self.totals = RunTotals()
        self.programs: dict[Graph, DataflowProgram] = {}

    def placement(self, graph: Graph) -> Mapping[Eqn, int]:
        """Where each equation is: as `place` says, else as the program does, else on device 0. Errors: DL1260."""
        if self.devices == 1:
            return {}
        said = placement_in_program(graph, self.devices)
        return {**said, **self.place(graph, said)} if self.place is not None else said

    def program(self, graph: Graph) -> DataflowProgram:
        """The nodes of a graph, made once. Errors: DL1010 for too many; DL1260 for a wrong placement."""
        if graph not in self.programs:
            self.programs[graph] = dataflow_program(graph, self.placement(graph), self.devices)
        return self.programs[graph]

    def evaluate(self, graph: Graph, *arrays: Any, text_sink: TextSink = discard_text) -> Sequence[Any]:
        """The graph's results. Errors: as `program`, and DL1261 if a process fails."""
        options = RunOptions(self.parallel_iterations, self.swap_above, observe=self.observe, text_sink=text_sink)
        if self.cluster is None:
            results, found = run_dataflow(self.program(graph), arrays, options)
        else:
            results, found = self.cluster.run(graph, self.placement, arrays, options)
        self.last_run = found
        self.totals.add(found)
        return results


def placement_by_name(where: str | None, devices: int) -> Place | None:
    """The placement for `auto` or the path of a file; None for None. Errors: DL1260 in the file, DL07 without it."""
    if where is None:
        return None
    if where == "auto":
        return partial(automatic_placement, devices=devices)
    return read_placement(read_source(Path(where), where), devices)
