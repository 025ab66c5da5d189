"""Straight code as one primitive of JAX, written straight into StableHLO when that is lowered.

JAX traces each step of a program and lowers what it traced, at a tenth of a millisecond a step; `digamma` alone has
thousands. Equations in a row are one step to it here, and so is an op of many steps. In what else JAX does with a trace
(lanes, what memory it takes) they are their steps again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from difflang.base.source import Span
from difflang.ir.evaluate import numpy_dtype
from difflang.ir.op import OPS, Op
from difflang.ir.types import Tensor, Type
from difflang.lower.cells import Cell
from difflang.lower.locations import CALLED, Frame, Frames, utf8_position
from difflang.lower.standin import Writer

Array = Any
Attributes = tuple[tuple[str, Any], ...]
Taken = Callable[..., list[Array]]  # (jax or a stand-in, frames, *arrays) -> results
formula_p = Primitive("formula")
run_p = Primitive("straight")
run_p.multiple_results = True


def written(op: Op, array: Array, **attrs: Any) -> Array:
    """An op of one array whose lowering is long, in a trace of JAX."""
    return formula_p.bind(array, name=op.name, attrs=tuple(sorted(attrs.items())))


def traced(name: str, attrs: Attributes) -> Callable[..., Array]:
    """The op of that name as JAX's own function, step by step."""
    return partial(OPS[name].lower, jax, **dict(attrs))


def steps_of(aval: Any, *, name: str, attrs: Attributes) -> Any:
    """The steps that the op of that name takes on an array of such a type, as a jaxpr."""
    return steps_on(name, attrs, aval.shape, aval.dtype)


@lru_cache(maxsize=64)
def steps_on(name: str, attrs: Attributes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return jax.make_jaxpr(traced(name, attrs))(jax.ShapeDtypeStruct(shape, dtype)).jaxpr


def open_sizes(ctx: Any) -> bool:
    """Whether `jax.export` leaves sizes open."""
    return not all([isinstance(n, int) for aval in ctx.avals_in for n in aval.shape])


def lowered(ctx: Any, operand: Any, *, name: str, attrs: Attributes) -> Any:
    (aval,) = ctx.avals_in
    if open_sizes(ctx):
        return mlir.lower_fun(traced(name, attrs), multiple_results=False)(ctx, operand)
    writer = Writer(ctx)
    return [OPS[name].lower(writer, Cell(writer, operand, aval.dtype, aval.shape), **dict(attrs)).value]


formula_p.def_impl(lambda x, *, name, attrs: traced(name, attrs)(x))
formula_p.def_abstract_eval(lambda x, *, name, attrs: x)
mlir.register_lowering(formula_p, lowered)
batching.defvectorized(formula_p)


# ---- equations in a row


class Body:
    """What a run of equations is: `taken(jax, frames, *arrays)` takes its steps, on a stand-in for `jax` too."""

    def __init__(self, taken: Taken, frames: Frames, avals: list[Any]) -> None:
        self.taken, self.frames, self.avals = taken, frames, avals

    def traced(self, *arrays: Array) -> list[Array]:
        """Step by step, as JAX traces it."""
        return self.taken(jax, self.frames, *arrays)


def written_run(taken: Taken, frames: Frames, types: Sequence[Type], arrays: Sequence[Array]) -> list[Array]:
    """The results of a run of equations, of those types, in a trace of JAX."""
    avals = [jax.core.ShapedArray(t.shape, numpy_dtype(t.dtype)) for t in types if isinstance(t, Tensor)]
    return run_p.bind(*arrays, body=Body(taken, frames, avals))


def steps_of_run(avals: Sequence[Any], *, body: Body) -> Any:
    """The steps of a run on such arrays, as a jaxpr."""
    return jax.make_jaxpr(body.traced)(*[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]).jaxpr


def run_lowered(ctx: Any, *operands: Any, body: Body) -> Any:
    if open_sizes(ctx):
        return mlir.lower_fun(body.traced)(ctx, *operands)
    writer = Writer(ctx)
    cells = [Cell(writer, v, a.dtype, a.shape) for v, a in zip(operands, ctx.avals_in, strict=True)]
    found = body.taken(writer, Written(body.frames, str(ctx.name_stack)), *cells)
    return [x.value for x in found]


class Written:
    """Frames that also tell MLIR where what is written stands."""

    def __init__(self, frames: Frames, stack: str) -> None:
        self.frames, self.stack = frames, stack
        self.places: dict[Span, Any] = {}

    def at(self, span: Span) -> Frame:
        frame = self.frames.at(span)
        place = self.places.get(span)
        if place is None:
            place = self.places[span] = located(span, self.stack)

        def framed(rule: Callable[..., Any], first: Any, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
            with place:
                return frame(rule, first, arrays, attrs)

        return framed


def located(span: Span, stack: str) -> Any:
    """The location that JAX would give what a frame of `locations` emits, without those that called it."""
    (line, column), (last, end) = (utf8_position(span.source, at) for at in (span.start, span.end))
    file = mlir.ir.Location.file(span.source.name, line, column, last, end)
    return mlir.ir.Location.name(stack, childLoc=mlir.ir.Location.name(CALLED, childLoc=file))


def run_batched(arrays: Sequence[Array], dims: Sequence[Any], *, body: Body) -> tuple[list[Array], list[int]]:
    found = jax.vmap(body.traced, in_axes=tuple(dims))(*arrays)
    return found, [0] * len(found)


run_p.def_impl(lambda *arrays, body: body.traced(*arrays))
run_p.def_abstract_eval(lambda *avals, body: body.avals)
mlir.register_lowering(run_p, run_lowered)
batching.primitive_batchers[run_p] = run_batched
