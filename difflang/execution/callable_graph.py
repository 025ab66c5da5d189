"""Callable graphs behind Python functions: compiled, inside JAX transformations, or interpreted, with their failures.

Reading arguments and building results is left to the callers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import numpy as np
from msgspec import Struct

from difflang.base.check_sites import CheckTable
from difflang.base.diagnostics import Diagnostic, DifflangError, printable, render
from difflang.base.gc_pause import pause_gc
from difflang.embed.derived_programs import EmbeddedProgram, PipelineHooks, poison_with_nan
from difflang.embed.jax_primitive import bind_program
from difflang.embed.mesh_program import Mesh, compile_on_devices, place_arguments
from difflang.execution.check_failures import (
    FAILURE_RESULTS,
    drop_proved_checks,
    explain_failure,
    failure_warning,
    with_check_number,
)
from difflang.execution.check_failures import ArrayProgram as Runs
from difflang.execution.random_keys import seed_to_key
from difflang.ir.graph import Graph
from difflang.ir.interpreter import TextSink, evaluate
from difflang.lower.capacity import INITIAL_CAPACITY, Capacity, Growable, with_capacity
from difflang.lower.lowering_pipeline import COMPILE, COMPILE_ON_MESH, INTERPRET, finalize_graph
from difflang.ops.control.print_effect import without_check_messages
from difflang.ops.control.print_sink import PrintSink
from difflang.passes.dce import dce
from difflang.passes.pipelines import Pipeline
from difflang.passes.substitute_dims import has_symbolic_dims
from difflang.plan.budget_search import memory_limit
from difflang.plan.compile_within_limit import compile_within_limit
from difflang.runtime import pytrees
from difflang.runtime.adaptive_wait import AdaptiveWaiter
from difflang.runtime.compile import Executable, compile_graph


class PartOfProgram(Struct, frozen=True):
    """A graph that becomes a part of a program of JAX, which chooses the kernel order. It is measured alone."""

    memory_bytes: int
    orders: bool = False


def measure_part(graph: Graph, *, sparing: bool = False) -> PartOfProgram:
    assert not sparing
    return PartOfProgram(compile_graph(graph).memory_bytes)


def finalize_within_limit(
    graph: Graph,
    capacity: Capacity = INITIAL_CAPACITY,
    mesh: Mesh | None = None,
    pipeline: Pipeline = COMPILE_ON_MESH,
) -> Graph:
    """The graph as it is lowered; under a memory limit, the plan that XLA keeps within it on each device of the mesh.

    Errors: DL1012.
    """
    with pause_gc():
        limit = memory_limit(graph)
        if limit and mesh is not None:
            make = partial(compile_on_devices, mesh=mesh)
            return compile_within_limit(graph, limit, capacity, make, COMPILE_ON_MESH, dict(mesh.shape))[0].graph
        if limit:
            return compile_within_limit(graph, limit, capacity, measure_part, pipeline)[0].graph
        return finalize_graph(graph, capacity, pipeline=pipeline)


class PreparedGraph(Struct, frozen=True):
    """A finished graph and its executable. If it may fail, its last three results are a failure."""

    graph: Graph
    executable: Executable
    fails: bool

    @property
    def memory_bytes(self) -> int:
        return self.executable.memory_bytes

    @property
    def orders(self) -> bool:
        return self.executable.orders


MakeProgram = Callable[[], Growable[PreparedGraph]]


class SharedContext(Struct, frozen=True, eq=False):
    """The state that programs of one file share. `capacities` holds those of functions that needed to grow.

    If there is a `mesh`, calls run on it.
    """

    checks: CheckTable
    lock: AbstractContextManager[Any]
    capacities: MutableMapping[Any, Capacity]
    mesh: Mesh | None = None


class CallableGraph:
    """An elaborated graph that can be called. If it can fail, its last three results are a failure.

    Graphs with the same key `of` share their capacity; `byte_limit` is the memory limit of its derivatives, 0 for none.
    """

    evaluate: Callable[..., Sequence[Any]] = staticmethod(evaluate)  # what `interpreted` runs a finished graph with
    build_result: Callable[[Iterator[Any]], Any]  # makes a value from the leaves of a result
    build_interpreted: Callable[[Iterator[Any]], Any]  # the same for `reference`, which may have another capacity

    def __init__(self, shared: SharedContext, graph: Graph, can_fail: bool, of: Hashable, byte_limit: int) -> None:
        self.shared, self.elaborated, self.can_fail, self.of, self.byte_limit = shared, graph, can_fail, of, byte_limit
        self.limit = memory_limit(graph)
        self.programs: dict[int, Growable[PreparedGraph]] = {}  # by memory limit
        self.voice = PrintSink(to_stdout)
        self.waiter = AdaptiveWaiter()

    @property
    def program(self) -> Growable[PreparedGraph]:
        """The program that XLA runs, if it is not on a mesh, where JAX makes one within the limit. Errors: DL1012."""
        return self.program_under(self.limit if self.shared.mesh is None else 0)

    @property
    def unlimited(self) -> Growable[PreparedGraph]:
        """The program that XLA would run without a limit on memory."""
        return self.program_under(0)

    @cached_property
    def reference(self) -> Growable[PreparedGraph]:
        """The program that the interpreter runs, whose sums are added in their order. Limits are on XLA's memory."""
        with self.shared.lock:
            capacity = self.shared.capacities.get(self.of, INITIAL_CAPACITY)
            return Growable(partial(self.compile_under, 0, pipeline=INTERPRET), capacity)

    def program_under(self, limit: int) -> Growable[PreparedGraph]:
        """The program under a limit, made at the first call. Errors: DL1012."""
        if limit not in self.programs:
            with self.shared.lock:
                if limit not in self.programs:
                    capacity = self.shared.capacities.get(self.of, INITIAL_CAPACITY)
                    self.programs[limit] = Growable(partial(self.compile_under, limit), capacity)
        return self.programs[limit]

    def compile_under(self, limit: int, capacity: Capacity, *, pipeline: Pipeline = COMPILE) -> PreparedGraph:
        """The finished graph, and an executable that gives only the number of a failed check."""
        # One thread at a time: the programs of a file share their check table and capacities.
        with self.shared.lock, pause_gc():
            if limit:
                return compile_within_limit(self.elaborated, limit, capacity, self.prepare)[1]
            graph = finalize_graph(self.elaborated, capacity, pipeline=pipeline)
        return self.prepare(graph)

    def prepare(self, graph: Graph, *, sparing: bool = False) -> PreparedGraph:
        proved = drop_proved_checks(graph) if self.can_fail else None
        fails = self.can_fail and proved is None
        graph = graph if proved is None else proved
        runs = with_check_number(graph) if fails else graph
        in_order = self.shared.checks.deterministic
        return PreparedGraph(
            graph, compile_graph(runs, on_print=self.voice, deterministic=in_order, sparing=sparing), fails
        )

    @property
    def graph(self) -> Graph:
        return self.program.made.graph

    @property
    def executable(self) -> Executable:
        return self.program.made.executable

    @property
    def fails(self) -> bool:
        """Whether a check may fail."""
        return self.program.made.fails

    def grow_capacity(self, program: Growable[PreparedGraph], number: int, *, interpreted: bool = False) -> bool:
        """Whether a check failed because of a capacity, which has grown now."""
        more = program.grow(self.shared.checks, number, interpreted=interpreted)
        if more and program is self.programs.get(self.limit):
            self.shared.capacities[self.of] = program.capacity
            self.drop_jax_programs()
        return more

    def sync_capacity(self, *, raises: bool = True) -> None:
        """Use the capacity that another program of the function has needed."""
        # Needed inside JAX, where a failure cannot be raised and retried. Under a memory limit each program takes only
        # what it needs itself.
        if self.limit and raises and not pytrees.is_tracing():
            return
        capacity = self.shared.capacities.get(self.of, self.program.capacity)
        if capacity != self.program.capacity:
            self.programs[self.limit] = Growable(partial(self.compile_under, self.limit), capacity)
            self.drop_jax_programs()

    def drop_jax_programs(self) -> None:
        """Drop the cached programs for JAX, which have the old capacity."""
        for name in ("whole", "jax_program", "raw_program"):
            vars(self).pop(name, None)

    def converted(self, arrays: Sequence[Any]) -> list[Any]:
        """The arguments as arrays of the types that the program takes."""
        return [c(x) for c, x in zip(self.executable.converters, arrays, strict=True)]

    # ---- Calls

    def call(self, arrays: Sequence[Any]) -> Any:
        """The value for these arrays: tracers, or arrays on any devices. Errors: DL0609 for several that differ."""
        if pytrees.has_tracers(arrays):
            return self.build_result(iter(self.apply_in_jax(arrays)))
        met = self.voice.met
        return self.checked_value(self.results(arrays), arrays, met)

    def results(self, arrays: Sequence[Any]) -> list[Any]:
        """The program's results, where the arrays are."""
        executable = self.executable
        here = self.shared.mesh is None and executable.serves(arrays)
        return executable(*arrays) if here else self.call_placed(arrays)

    def checked_value(self, results: list[Any], arrays: Sequence[Any], met: int) -> Any:
        """The value of the program's results, if no check failed; `met` counts the texts printed before the call."""
        # A check that failed for lack of capacity leads to a larger program, which runs, and prints, anew.
        while self.fails and (number := self.waiter.read_item(results.pop())):
            if not self.grow_capacity(self.program, number):
                given = arrays if self.executable.serves(arrays) else pytrees.to_host(arrays)
                raise self.failure_error(number, Executable, given, self.program.capacity)
            self.voice.rewind(met)
            results = self.results(arrays)
        self.voice.raise_error()
        return self.build_result(iter(results))

    def failure_error(
        self,
        number: int,
        runs: Callable[[Graph, None, TextSink], Runs],
        arrays: Sequence[Any],
        capacity: Capacity,
        pipeline: Pipeline = COMPILE,
    ) -> DifflangError:
        """The error of a failed check, from a second run without a limit that gives all details."""

        def full(graph: Graph, says: TextSink) -> Runs:
            with self.shared.lock, pause_gc():
                explained = finalize_graph(graph, capacity, explained=True, pipeline=pipeline)
            return runs(explained, None, says)

        return explain_failure(self.shared.checks, number, self.elaborated, full, arrays)

    def interpreted(self, arrays: Sequence[Any]) -> Any:
        """The value in NumPy, by the reference of each op."""
        program = self.reference
        converted = self.concrete_arrays(arrays, "the interpreter")
        met = self.voice.met
        results = self.evaluate_graph(program.made, converted)
        while program.made.fails and (site := results[-3].item()):
            if not self.grow_capacity(program, site, interpreted=True):
                raise self.failure_error(site, interpreter_program, converted, program.capacity, INTERPRET)
            self.voice.rewind(met)
            results = self.evaluate_graph(program.made, converted)
        return self.build_interpreted(iter(results))

    def evaluate_graph(self, made: PreparedGraph, arrays: Sequence[Any]) -> list[Any]:
        results = [np.asarray(x) for x in self.evaluate(made.graph, *arrays, text_sink=self.voice)]
        self.voice.raise_error()
        return results

    def concrete_arrays(self, arrays: Sequence[Any], who: str) -> list[Any]:
        """The arrays in NumPy. Errors: DL1206 for values inside a JAX transformation."""
        if pytrees.has_tracers(arrays):
            message = f"{who} takes arrays, not values inside a JAX transformation"
            raise DifflangError(Diagnostic("DL1206", message))
        converters = self.unlimited.made.executable.converters
        return [pytrees.host_array(c(x)) for c, x in zip(converters, arrays, strict=True)]

    # ---- Inside JAX

    def apply_in_jax(self, arrays: Sequence[Any]) -> list[Any]:
        """The results inside a JAX transformation, by our own rules."""
        results = bind_program(self.jax_program, self.converted(arrays))
        return results[:-1] if self.fails else results

    def call_placed(self, arrays: Sequence[Any]) -> list[Any]:
        """The results for arrays that JAX compiles the program for: XLA partitions it as they are split."""
        arrays, mesh = self.converted(arrays), self.shared.mesh
        return bind_program(self.whole, arrays if mesh is None else place_arguments(arrays, self.whole.graph, mesh))

    @cached_property
    def whole(self) -> EmbeddedProgram:
        """The program of `executable` as a JAX primitive, for any placement of its arguments."""
        graph = self.jax_graph
        if not self.fails:
            return EmbeddedProgram(
                dce(graph.with_results(graph.results[:-FAILURE_RESULTS])) if self.can_fail else graph, self.jax_pipeline
            )
        return EmbeddedProgram(with_check_number(graph), self.jax_pipeline)

    @cached_property
    def jax_program(self) -> EmbeddedProgram:
        """The program in JAX transformations, where a failed check makes floats and their derivatives NaN."""
        if not self.fails:
            return self.whole
        graph, last = self.whole.graph, len(self.whole.graph.results) - 1
        return EmbeddedProgram(poison_with_nan(graph, last), self.jax_pipeline, last)

    def call_with_failure(self, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
        """The three numbers of a failure, and the value."""
        found = bind_program(self.raw_program, self.converted(arrays))
        if not self.can_fail:
            return [np.int32(0)] * FAILURE_RESULTS, self.build_result(iter(found))
        return found[-FAILURE_RESULTS:], self.build_result(iter(found[:-FAILURE_RESULTS]))

    @cached_property
    def raw_program(self) -> EmbeddedProgram:
        """The program with all three numbers of a failure as results, which are not reported otherwise."""
        return EmbeddedProgram(self.jax_graph, self.jax_pipeline)

    @property
    def jax_graph(self) -> Graph:
        """The graph for JAX: its results have sizes that are numbers."""
        graph = without_check_messages(self.elaborated)
        if not any(has_symbolic_dims(r.type) for r in graph.results):
            return graph
        return with_capacity(graph, self.program.capacity, arrays=True)

    @cached_property
    def jax_pipeline(self) -> PipelineHooks:
        return PipelineHooks(
            lambda graph: finalize_within_limit(graph, self.program.capacity, self.shared.mesh),
            self.voice,
            self.report_failure,
            self.byte_limit,
        )

    def report_failure(self, number: int) -> None:
        """Print a warning on stderr for a failed check where nothing can be raised."""
        site = self.shared.checks.sites[number - 1]
        sys.stderr.write(f"{printable(render([failure_warning(site)]))}\n")


def interpreter_program(graph: Graph, _: None, says: TextSink) -> Runs:
    return partial(evaluate, graph, text_sink=says)


def to_stdout(text: str) -> None:
    """Write what a program prints where Python's `print` would."""
    sys.stdout.write(f"{printable(text)}\n")


def random_key(key: Any) -> Any:
    """A random key from a seed or a key."""
    if isinstance(key, int) and not isinstance(key, bool):
        return seed_to_key(key)
    return pytrees.key_data(key)
