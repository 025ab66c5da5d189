"""A function of an artifact as a graph with layouts, its arguments as leaves, and how it runs."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.artifact.argument_leaves import flatten_value
from difflang.base.diagnostics import Diagnostic, DifflangError, Label, printable
from difflang.base.recently_used import RecentlyUsed
from difflang.base.source import NO_SPAN
from difflang.execution.callable_graph import CallableGraph, MakeProgram, PreparedGraph, SharedContext, random_key
from difflang.execution.check_failures import FAILURE_RESULTS
from difflang.ir.graph import Graph
from difflang.lower.capacity import Capacity, capacity_numbers
from difflang.lower.lowering_pipeline import COMPILE
from difflang.passes.pipelines import Pipeline
from difflang.passes.substitute_dims import substitute_graph_dims
from difflang.runtime import pytrees
from difflang.runtime.item_access import item_methods
from difflang.runtime.record_classes import VariantShape, find_record_class, find_variant_class
from difflang.runtime.value_layouts import (
    FunctionBuilder,
    LeafLayout,
    RecordLayout,
    ValueLayout,
    leaf_count,
    value_builder,
)
from difflang.tools.export.artifact_contents import ArtifactContents, ArtifactParam


@contextmanager
def refuse_broken_graph() -> Generator[None, None, None]:
    """Errors: DL1241 where a graph that comes from a file cannot be compiled or interpreted.

    A graph may be well formed and make no sense: an attribute that its op does not have, a number that does not fit its
    type. The compiler, NumPy and LAPACK then raise what they like.
    """
    try:
        yield
    except (DifflangError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"
        message = f"the graph in this artifact cannot be run ({printable(reason)})"
        ways = ("it is damaged, or difflang did not write it: export it again",)
        raise DifflangError(Diagnostic("DL1241", message, helps=ways)) from error


class ArtifactContext:
    """What all functions of one artifact share: its checks, arrays and classes."""

    def __init__(self, contents: ArtifactContents) -> None:
        self.contents = contents
        self.run_context = SharedContext(contents, threading.RLock(), {})
        self.constants = tuple(map(pytrees.to_device, contents.constants))
        self.resized: dict[tuple[GraphFunction, Capacity], GraphFunction] = {}
        # Functions with symbolic sizes, for numbers.
        self.sized = RecentlyUsed[tuple[GraphFunction, tuple[int, ...]], Any]()

    def class_of(self, layout: RecordLayout) -> type:
        """The class of a record or a variant: the original module's class if it is loaded, else an equivalent one."""
        with self.run_context.lock:
            if not layout.enum:
                return find_record_class(layout.shape, layout_methods(layout))
            return find_variant_class(VariantShape(layout.enum, layout.variant_number, layout.shape))

    def with_capacity(self, body: GraphFunction, capacity: Capacity) -> GraphFunction:
        """A function value returned by a program with this capacity: its captured buffers have that size."""
        with self.run_context.lock:
            if (body, capacity) not in self.resized:
                graph = substitute_graph_dims(body.graph, capacity_numbers(capacity))
                self.resized[body, capacity] = body if graph is body.graph else replace(body, graph=graph)
            return self.resized[body, capacity]


class GraphFunction(Struct, frozen=True, eq=False):
    """A graph that takes the leaves of params, a key if it is `random`, and held arrays.

    It gives the leaves of the result and, if it `fails`, a failure.
    """

    name: str
    graph: Graph
    params: tuple[ArtifactParam, ...]
    result: ValueLayout
    random: bool = False
    fails: bool = False
    limit: int = 0
    sizes: tuple[str, ...] = ()  # symbolic sizes

    @staticmethod
    def from_contents(contents: ArtifactContents) -> GraphFunction:
        of = contents
        return GraphFunction(of.name, of.graph, of.params, of.result, of.random, of.fails, of.limit, of.sizes)

    @property
    def failure_count(self) -> int:
        """How many of the last results describe a failure."""
        return FAILURE_RESULTS if self.fails else 0

    @property
    def leaf_count(self) -> int:
        """How many params of the graph are leaves of arguments."""
        return sum([leaf_count(p.layout) for p in self.params])


class ArtifactProgram(CallableGraph):
    """A runnable body; `function` makes the function values in a result."""

    def __init__(self, surface: ArtifactContext, body: GraphFunction, function: FunctionBuilder) -> None:
        super().__init__(surface.run_context, body.graph, body.fails, body.graph, body.limit)
        self.body = body

        def function_value(made: MakeProgram, map: GraphFunction, leaves: tuple[Any, ...]) -> Any:
            return function(surface.with_capacity(map, made().capacity), leaves)

        self.build_result, self.build_interpreted = [
            value_builder(body.result, surface.class_of, partial(function_value, made))
            for made in (lambda: self.program, lambda: self.reference)
        ]

    def compile_under(self, limit: int, capacity: Capacity, *, pipeline: Pipeline = COMPILE) -> PreparedGraph:
        with refuse_broken_graph():
            return super().compile_under(limit, capacity, pipeline=pipeline)

    def call(self, arrays: Sequence[Any]) -> Any:
        executable = self.executable
        if executable.compiled is None and not pytrees.has_tracers(arrays):
            with refuse_broken_graph():
                executable.build()
        return super().call(arrays)

    def evaluate_graph(self, made: PreparedGraph, arrays: Sequence[Any]) -> list[Any]:
        with refuse_broken_graph():
            return super().evaluate_graph(made, arrays)

    def program_inputs(self, given: Sequence[Any], key: Any, held: Sequence[Any]) -> list[Any]:
        """The inputs of the program. Errors: DL1206, DL1207, DL1208."""
        found: list[Any] = []
        for param, value in zip(self.body.params, given, strict=True):
            try:
                found += flatten_value(param.layout, value, param.name)
            except DifflangError as error:
                raise label_parameter(error, param) from None
        if self.body.random:
            found.append(self.random_key(key))
        elif key is not None:
            raise DifflangError(Diagnostic("DL1207", "a key was given, but this function draws no random numbers"))
        return [*found, *held]

    def random_key(self, key: Any) -> Any:
        if key is not None:
            return random_key(key)
        message = f"`{self.body.name}` draws random numbers: a function loaded from a file needs a key"
        raise DifflangError(Diagnostic("DL1208", message, helps=("pass one: `key=key`",)))


def layout_methods(layout: RecordLayout) -> dict[str, Any]:
    """The methods of a record's class for arrays of such records, if a field is an array."""
    names, pairs = layout.shape.fields, zip(layout.shape.fields, layout.parts, strict=True)
    ranks = {n: part.type.rank - layout.axes for n, part in pairs if isinstance(part, LeafLayout) and not part.key}
    if not ranks:
        return {}
    first, rank = next(iter(ranks.items()))
    return item_methods(layout.shape.name, names, lambda record: max(np.ndim(getattr(record, first)) - rank, 0), {})


def label_parameter(error: DifflangError, param: ArtifactParam) -> DifflangError:
    """The same error with a label at the parameter's declaration."""
    (found,) = error.diagnostics
    labels = (Label(param.span, "declared here"),) if param.span != NO_SPAN else ()
    return DifflangError(Diagnostic(found.code, found.message, labels, found.helps))
