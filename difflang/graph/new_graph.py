"""Graphs that are built from nothing: `with build(x="f64[n]") as b: b.output(b.sin(b.x))`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from difflang.graph.builder import GraphBuilder, require_value
from difflang.graph.builder_attributes import type_from_spec
from difflang.graph.computational_graph import Graph
from difflang.graph.graph_errors import graph_error, verified
from difflang.graph.graph_view import Value
from difflang.ir.builder import Builder


class NewGraph(GraphBuilder):
    """A new graph under construction. Its inputs are attributes, also where an op has such a name.

    `graph` is the result, after the `with` block.
    """

    def __init__(self, name: str, inputs: dict[str, Any]) -> None:
        super().__init__(Builder())
        self.name = name
        self.inputs = {n: Value(self.home.param(type_from_spec(spec), n), self) for n, spec in inputs.items()}
        self.finished: Graph | None = None
        self.outputs: tuple[Value, ...] = ()
        for n in inputs:
            if hasattr(GraphBuilder, n) or n in vars(self):
                way = "choose another name, and `g.rename` afterwards"
                raise graph_error("DL1207", f"an input cannot be called `{n}`: the builder has that itself", help=way)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.finish_graph()

    def output(self, *values: Value) -> None:
        """Set the outputs. Errors: DL1250 for anything but values of this graph, and if there are outputs already."""
        self.require_open()
        if self.outputs:
            raise graph_error("DL1250", "this graph has its outputs already", help="pass all of them to one `output`")
        for value in values:
            self.own(require_value(value, "an output"))
        self.outputs = values

    def finish_graph(self) -> None:
        if not self.outputs:
            way = "call `b.output(…)` with one or more values"
            raise graph_error("DL1250", "this graph has no output", help=way)
        results = [self.own(value) for value in self.outputs]
        self.closed = True
        self.finished = Graph(verified(self.home.finish(results, name=self.name)))

    @property
    def graph(self) -> Graph:
        """The graph, once the `with` block has ended. Errors: DL1250 before."""
        if self.finished is None:
            raise graph_error("DL1250", "this graph is not finished", help="use it after its `with` block")
        return self.finished


def build(name: str = "", /, **inputs: Any) -> NewGraph:
    """A builder of a graph with these inputs: a text such as `f64[n]`, an array or a `jax.ShapeDtypeStruct` for each.

    Errors: DL1210 for anything else; DL1207 for a name that the builder has itself.
    """
    return NewGraph(name, inputs)
