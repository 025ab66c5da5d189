"""A program, or equations of one in a row, as one primitive of JAX, written into StableHLO when that is lowered.

JAX traces each step of a program and lowers what it traced, at a tenth of a millisecond a step; `digamma` alone has
thousands. In what else JAX does with a trace (lanes, what memory it takes) they are their steps again.
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
from difflang.ir.interpreter import numpy_dtype
from difflang.ir.tensor_types import Tensor
from difflang.lower.source_locations import CALLED, Frame, Frames, utf8_position
from difflang.lower.stablehlo.hlo_array import Cell
from difflang.lower.stablehlo.jax_facade import StandIn
from difflang.ops.batching_rules import Mask
from difflang.passes.vectorize_maps import side_by_side

Array = Any
Taken = Callable[[Any, Any, Graph, Sequence[Array]], list[Array]]  # (jax or a stand-in, frames, graph, arrays)
run_p = Primitive("straight")
run_p.multiple_results = True


class Body:
    """A run of equations, and what takes their steps."""

    def __init__(self, graph: Graph, taken: Taken, frames: Frames) -> None:
        self.graph, self.taken, self.frames = graph, taken, frames
        self.batched: dict[tuple[Mask, int], tuple[Body, Mask] | None] = {}

    def traced(self, *arrays: Array) -> list[Array]:
        """Step by step, as JAX traces it: whenever that is, with 64-bit types."""
        with jax.enable_x64(True):
            return self.taken(jax, self.frames, self.graph, arrays)

    def side_by_side(self, wide: Mask, length: int) -> tuple[Body, Mask] | None:
        """The same for all lanes at once, and which results differ between lanes, or None (`passes/vectorize_maps`)."""
        key = (wide, length)
        if key not in self.batched:
            found = side_by_side(self.graph, wide, length)
            self.batched[key] = found and (Body(found[0], self.taken, self.frames), found[1])
        return self.batched[key]

    def avals(self) -> list[Any]:
        types = [r.type for r in self.graph.results]
        return [jax.core.ShapedArray(t.shape, numpy_dtype(t.dtype)) for t in types if isinstance(t, Tensor)]


def written(body: Body, arrays: Sequence[Array]) -> list[Array]:
    """The results of a run of equations, in a trace of JAX."""
    return run_p.bind(*arrays, body=body)


def steps_of(avals: Sequence[Any], *, body: Body) -> Any:
    """The steps of a run on such arrays, as a jaxpr."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(body.traced)(*[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]).jaxpr


def run_lowered(ctx: Any, *operands: Any, body: Body) -> Any:
    frames = Written(body.frames)
    writer = StandIn(ctx, frames.called)
    cells = [Cell(writer, v, a.dtype, a.shape) for v, a in zip(operands, ctx.avals_in, strict=True)]
    with jax.enable_x64(True):
        found = body.taken(writer, frames, body.graph, cells)
    return [writer.array(x).value for x in found]


class Written:
    """Frames that tell MLIR where what is written stands, and JAX where it lowers something itself."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.made: dict[Span, Frame] = {}
        self.span: Span | None = None

    def at(self, span: Span) -> Frame:
        found = self.made.get(span)
        if found is None:
            found = self.made[span] = self.framed(span)
        return found

    def framed(self, span: Span) -> Frame:
        place = located(span)

        def frame(rule: Callable[..., Any], first: Any, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
            before, self.span = self.span, span
            try:
                with place:
                    return rule(first, *arrays, **attrs)
            finally:
                self.span = before

        return frame

    def called(self, function: Callable[..., Any], first: Any, *others: Any) -> Any:
        """A call in which JAX looks for a frame."""
        if self.span is None:
            return function(first, *others)
        return self.frames.at(self.span)(function, first, others, {})


def located(span: Span) -> Any:
    """The location that JAX would give what a frame of `locations` emits, without those that called it."""
    (line, column), (last, end) = (utf8_position(span.source, at) for at in (span.start, span.end))
    file = mlir.ir.Location.file(span.source.name, line, column, last, end)
    return mlir.ir.Location.name(CALLED, childLoc=file)


def run_batched(
    arrays: Sequence[Array], dims: Sequence[Any], *, body: Body
) -> tuple[list[Array], Sequence[int | None]]:
    """In all lanes at once, or step by step as JAX traces them in lanes."""
    (length,) = {x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None}
    found = body.side_by_side(tuple([d is not None for d in dims]), length)
    if found is None:
        traced = jax.vmap(body.traced, in_axes=tuple(dims))(*arrays)
        return traced, [0] * len(traced)
    whole, wide = found
    moved = [jnp.moveaxis(x, d, 0) if d else x for x, d in zip(arrays, dims, strict=True)]
    return written(whole, moved), [0 if differs else None for differs in wide]


run_p.def_impl(lambda *arrays, body: body.traced(*arrays))
run_p.def_abstract_eval(lambda *avals, body: body.avals())
mlir.register_lowering(run_p, run_lowered)
batching.primitive_batchers[run_p] = run_batched
