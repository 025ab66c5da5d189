"""Execution engines: a finished graph is compiled by XLA, or interpreted in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from difflang.base.gc_pause import pause_gc
from difflang.base.process_group import ALONE, ProcessGroup
from difflang.execution.check_failures import ArrayProgram, with_check_number
from difflang.execution.python_source import NumberProgram, count_number_ops
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import TextSink, discard_text, evaluate
from difflang.ir.tensor_types import Tensor
from difflang.lower.capacity import INITIAL_CAPACITY, Capacity
from difflang.lower.lowering_pipeline import COMPILE, COMPILE_ON_MESH, INTERPRET, finalize_graph
from difflang.ops.arrays.reshard import Split
from difflang.passes.pipelines import Pipeline
from difflang.plan.budget_search import memory_limit
from difflang.plan.compile_within_limit import compile_within_limit

if TYPE_CHECKING:
    from difflang.dataflow.machine import Machine
    from difflang.embed.mesh_program import MeshProgram
    from difflang.execution.line_profiler import LineProfile, TimedProgram
    from difflang.runtime.compile import Executable

MAX_NUMBER_OPS = 400  # a host expression on numbers with at most so many ops is not worth a compilation by XLA
MAX_SMALL_EQUATIONS = 24  # nor is one that moves a few elements, with at most so many equations
MAX_SMALL_ELEMENTS = 4096  # on arrays with at most so many elements


class Engine(Struct, frozen=True):
    """`interpret` runs every graph in NumPy, `dataflow` on its `machine`; `device` is a platform of JAX, None for its
    default.

    A compiled program with a derivative takes at most `budget` bytes, if it is not 0. With `in_order`, scatters add in
    a fixed order. With `check_nans`, a NaN or infinity in a result is an error at the step that made it. `profile`
    records the time of every line. `on_limit` receives the memory limit of each compiled program that has one. With a
    `mesh`, the sizes of its axes, compiled programs run on all of its devices.
    """

    name: Literal["xla", "interpret", "dataflow"] = "xla"
    device: str | None = None
    budget: int = 0
    in_order: bool = False
    check_nans: bool = False
    profile: LineProfile | None = None
    on_limit: Callable[[int], object] | None = None
    machine: Machine | None = None
    mesh: tuple[tuple[str, int], ...] = ()  # each axis with its size
    group: ProcessGroup = ALONE  # the processes that share it

    def program(
        self,
        graph: Graph,
        *,
        guard: bool = False,
        capacity: Capacity = INITIAL_CAPACITY,
        on_print: TextSink = discard_text,
    ) -> ArrayProgram:
        """A callable for a graph. Both engines interpret small graphs on the host.

        With `guard` the last result is the number of the failed check, in place of the whole failure.
        Errors: DL1012 if a memory limit cannot be kept.
        """
        with pause_gc():
            if self.name == "xla" and (limit := memory_limit(graph, self.budget)):
                make = partial(self.compiled, says=on_print, guard=guard)
                made = compile_within_limit(graph, limit, capacity, make, self.pipeline, dict(self.mesh))[1]
                if self.on_limit is not None:
                    self.on_limit(limit)
                return made
            ready = self.finished(graph, guard=guard, capacity=capacity)
        return self.run_finished(ready, on_print)

    def finished(self, graph: Graph, *, guard: bool = False, capacity: Capacity = INITIAL_CAPACITY) -> Graph:
        """The graph as it runs. With `guard` its last result is the number of the failed check."""
        ready = finalize_graph(graph, capacity, pipeline=self.pipeline)
        return with_check_number(ready) if guard else ready

    def explaining(self, capacity: Capacity = INITIAL_CAPACITY) -> Callable[[Graph, TextSink], ArrayProgram]:
        """A function that makes a graph callable for a second run after a failure, with all its details."""
        return lambda graph, says: self.run_finished(
            finalize_graph(graph, capacity, explained=True, pipeline=self.pipeline), says
        )

    @property
    def pipeline(self) -> Pipeline:
        return INTERPRET if self.name != "xla" else COMPILE_ON_MESH if self.mesh else COMPILE

    def run_finished(self, ready: Graph, says: TextSink) -> ArrayProgram:
        if self.machine is not None:
            return partial(self.machine.evaluate, ready, text_sink=says)
        # A small graph is not worth compiling by XLA.
        if self.runs_numbers(ready):
            return NumberProgram(ready)
        if self.name == "interpret" or is_small_graph(ready):
            if self.profile is not None and self.name == "interpret" and not is_small_graph(ready):
                return self.profile.interpreted(ready, says)
            return interpreted_program(ready, says)
        return self.compiled(ready, says)

    def runs_numbers(self, ready: Graph) -> bool:
        """Whether a finished graph runs number by number, as Python: a statement of the host on a few numbers."""
        count = count_number_ops(ready) if self.machine is None else None
        return count is not None and count <= MAX_NUMBER_OPS

    def compiled(
        self, ready: Graph, says: TextSink, *, guard: bool = False, sparing: bool = False
    ) -> Executable | MeshProgram | TimedProgram:
        if self.mesh:
            meshes = import_mesh_program()
            ready = with_check_number(ready) if guard else ready
            return meshes.MeshProgram(ready, meshes.find_mesh(dict(self.mesh)), says)
        from difflang.runtime import compile, devices

        device = devices.find_device(self.device) if self.device is not None else None
        ready = with_check_number(ready) if guard else ready
        make = partial(
            compile.compile_graph, device=device, on_print=says, deterministic=self.in_order, sparing=sparing
        )
        return make(ready) if self.profile is None else self.profile.timed(ready, make)

    def put_parts(self, split: Split, shape: tuple[int, ...], part: Callable[[tuple[slice, ...]], Any]) -> Any:
        """An array on the mesh; `part` gives the parts of it that are on devices of this process."""
        meshes = import_mesh_program()
        return meshes.put_parts(meshes.find_mesh(dict(self.mesh)), split, shape, part)


def import_mesh_program() -> Any:
    """The module that runs programs on a mesh; it imports JAX."""
    from difflang.embed import mesh_program

    return mesh_program


def is_small_graph(graph: Graph) -> bool:
    """Whether a graph is arithmetic on a few numbers, or moves a few elements too."""
    if len(graph.eqns) > MAX_SMALL_EQUATIONS or any(e.regions for e in graph.eqns):
        return False
    return all(map(is_few, graph.params)) and all(is_small_equation(e) for e in graph.eqns)


def is_small_equation(eqn: Eqn) -> bool:
    """Whether an equation is on numbers, or moves a few elements."""
    values = (*eqn.operands, *eqn.results)
    if not all(map(is_few, values)):
        return False
    return "bit exact" in eqn.op.traits or all(isinstance(v.type, Tensor) and not v.type.shape for v in values)


def is_few(value: Value) -> bool:
    """Whether a value is one number, or an array of a few."""
    type = value.type
    if not isinstance(type, Tensor):
        return False
    return not type.shape or prod([n for n in type.shape if isinstance(n, int)]) <= MAX_SMALL_ELEMENTS


def interpreted_program(graph: Graph, says: TextSink = discard_text) -> ArrayProgram:
    import numpy as np

    def program(*arrays: Any) -> Sequence[Any]:
        return evaluate(graph, *[np.asarray(a) for a in arrays], text_sink=says)

    return program
