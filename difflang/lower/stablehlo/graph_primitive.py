"""A JAX primitive that holds a whole graph or a run of equations, and emits StableHLO directly when it is lowered.

JAX traces each operation and then lowers it, at a tenth of a millisecond per operation; `digamma` alone has thousands.
Other uses of the trace (vmap, memory models) expand the primitive into its equations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from difflang.base.source import Span
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.lower.source_locations import FRAME_NAME, SourceFrame, SourceFrames, utf8_position
from difflang.lower.stablehlo.hlo_array import HloArray
from difflang.lower.stablehlo.jax_facade import JaxFacade
from difflang.ops.batching_rules import Mask
from difflang.passes.vectorize_maps import vectorize_graph

Array = Any
# Called with `jax` or a `JaxFacade`, source frames, the graph and its operands.
LowerGraph = Callable[[Any, Any, Graph, Sequence[Array]], list[Array]]
graph_p = Primitive("straight")
graph_p.multiple_results = True


class PrimitiveBody:
    """A graph and the function that lowers it."""

    def __init__(self, graph: Graph, taken: LowerGraph, frames: SourceFrames) -> None:
        self.graph, self.lower_graph, self.frames = graph, taken, frames
        self.batched: dict[tuple[Mask, int], tuple[PrimitiveBody, Mask] | None] = {}

    def trace(self, *arrays: Array) -> list[Array]:
        """The results as JAX traces them, equation by equation: always with 64-bit types."""
        with jax.enable_x64(True):
            return self.lower_graph(jax, self.frames, self.graph, arrays)

    def side_by_side(self, wide: Mask, length: int) -> tuple[PrimitiveBody, Mask] | None:
        """The batched graph and which of its results are batched, or None (`passes/vectorize_maps`)."""
        key = (wide, length)
        if key not in self.batched:
            found = vectorize_graph(self.graph, wide, length)
            self.batched[key] = found and (PrimitiveBody(found[0], self.lower_graph, self.frames), found[1])
        return self.batched[key]

    def avals(self) -> list[Any]:
        types = [r.type for r in self.graph.results]
        return [jax.core.ShapedArray(t.shape, numpy_dtype(t.dtype)) for t in types if isinstance(t, Tensor)]


def bind_graph(body: PrimitiveBody, arrays: Sequence[Array]) -> list[Array]:
    """The results of a run of equations, in a trace of JAX."""
    return graph_p.bind(*arrays, body=body)


def graph_jaxpr(avals: Sequence[Any], *, body: PrimitiveBody) -> Any:
    """The equations of a run on such arrays, as a jaxpr."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(body.trace)(*[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]).jaxpr


def lower_to_stablehlo(ctx: Any, *operands: Any, body: PrimitiveBody) -> Any:
    frames = MlirFrames(body.frames)
    writer = JaxFacade(ctx, frames.call)
    cells = [HloArray(writer, v, a.dtype, a.shape) for v, a in zip(operands, ctx.avals_in, strict=True)]
    with jax.enable_x64(True):
        found = body.lower_graph(writer, frames, body.graph, cells)
    return [writer.array(x).value for x in found]


class MlirFrames:
    """Frames that set the MLIR location while a rule emits, and a Python frame while JAX lowers something itself."""

    def __init__(self, frames: SourceFrames) -> None:
        self.frames = frames
        self.made: dict[Span, SourceFrame] = {}
        self.span: Span | None = None

    def at(self, span: Span) -> SourceFrame:
        found = self.made.get(span)
        if found is None:
            found = self.made[span] = self.make_frame(span)
        return found

    def make_frame(self, span: Span) -> SourceFrame:
        place = mlir_location(span)

        def frame(rule: Callable[..., Any], first: Any, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
            before, self.span = self.span, span
            try:
                with place:
                    return rule(first, *arrays, **attrs)
            finally:
                self.span = before

        return frame

    def call(self, function: Callable[..., Any], first: Any, *others: Any) -> Any:
        """Call a function of JAX's, which looks for a frame."""
        if self.span is None:
            return function(first, *others)
        return self.frames.at(self.span)(function, first, others, {})


def mlir_location(span: Span) -> Any:
    """The location that JAX would give to what a frame of `source_locations` emits, without its callers."""
    (line, column), (last, end) = (utf8_position(span.source, at) for at in (span.start, span.end))
    file = mlir.ir.Location.file(span.source.name, line, column, last, end)
    return mlir.ir.Location.name(FRAME_NAME, childLoc=file)


def batch_graph(
    arrays: Sequence[Array], dims: Sequence[Any], *, body: PrimitiveBody
) -> tuple[list[Array], Sequence[int | None]]:
    """Batch the whole graph, or let `jax.vmap` batch it equation by equation."""
    (length,) = {x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None}
    found = body.side_by_side(tuple([d is not None for d in dims]), length)
    if found is None:
        traced = jax.vmap(body.trace, in_axes=tuple(dims))(*arrays)
        return traced, [0] * len(traced)
    whole, wide = found
    moved = [jnp.moveaxis(x, d, 0) if d else x for x, d in zip(arrays, dims, strict=True)]
    return bind_graph(whole, moved), [0 if differs else None for differs in wide]


graph_p.def_impl(lambda *arrays, body: body.trace(*arrays))
graph_p.def_abstract_eval(lambda *avals, body: body.avals())
mlir.register_lowering(graph_p, lower_to_stablehlo)
batching.primitive_batchers[graph_p] = batch_graph
