"""Programs inside JAX transformations, and the programs derived from them (jvp, vjp, transpose, vmap), each cached.

Nothing is differentiated here: a derived program is a graph with one more derivative equation, which the ordinary
pipeline expands. So each of them can be derived again, to any order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value, Values
from difflang.ir.interpreter import TextSink
from difflang.ir.tensor_types import Tensor, Type, stacked_type
from difflang.ops.ad_interface import Mask
from difflang.ops.control.derivative_operators import jvp as jvp_op
from difflang.ops.control.derivative_operators import vjp
from difflang.ops.control.map import map_
from difflang.ops.control.print_effect import without_prints

ReverseAttrs = Mapping[str, Any]  # attributes of a `vjp` equation


class PipelineHooks(Struct, frozen=True):
    """Hooks of the driver: `finish` makes the graph to be lowered, `on_print` receives what it prints, `report` the
    number of a failed check. `limit` is the memory limit of its reverse-mode derivatives in bytes, 0 for none."""

    finish: Callable[[Graph], Graph]
    on_print: TextSink
    report: Callable[[int], None]
    limit: int = 0

    @property
    def reverse_attrs(self) -> dict[str, Any]:
        """The memory limit as an attribute of a `vjp` equation."""
        return {"limit": self.limit} if self.limit else {}


class TangentOrigin(Struct, frozen=True, eq=False):
    """The program that a jvp or a tangent program was derived from, and its active params."""

    base: EmbeddedProgram
    active: Mask
    tangent_only: bool


class PrimalTangentSplit(Struct, frozen=True, eq=False):
    """A program split into primal and tangent: `first` gives the results, then the residuals of `tangent`.

    With `residuals_are_arguments`, the residuals are the arguments, and `first` does not give them.
    """

    first: EmbeddedProgram
    tangent: EmbeddedProgram
    residuals_are_arguments: bool


class EmbeddedProgram:
    """A graph that is one operation for JAX. `checked` is the index of the result that numbers a failed check.

    Programs are compared by identity, so each keeps its derived programs itself.
    """

    __slots__ = ("derived", "failure_index", "graph", "hooks", "lock", "origin")

    def __init__(
        self, graph: Graph, hooks: PipelineHooks, checked: int | None = None, origin: TangentOrigin | None = None
    ) -> None:
        self.graph, self.hooks = graph, hooks
        self.failure_index, self.origin = checked, origin
        self.lock = threading.RLock()
        self.derived: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return self.graph.name or "function"

    def cached(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The derived value under a key, made at the first call."""
        with self.lock:
            if key not in self.derived:
                self.derived[key] = make()
            return self.derived[key]

    @property
    def finished_graph(self) -> Graph:
        """The graph as it is lowered."""
        return self.cached("finished", lambda: self.hooks.finish(self.graph))

    @property
    def differentiable_results(self) -> Mask:
        """Which results have a tangent."""
        return tuple([r.type.tangent is not None for r in self.graph.results])

    def derive(
        self, build: Callable[[Builder, Graph], Graph], first: bool, origin: TangentOrigin | None = None
    ) -> EmbeddedProgram:
        """The program of another graph, built around this one's."""
        # Only the `first` run of a program prints; a tangent or cotangent that runs it again does not.
        graph = self.graph if first else without_prints(self.graph)
        return EmbeddedProgram(build(Builder(), graph), self.hooks, self.failure_index if first else None, origin)

    # ---- Derived programs

    def jvp(self, active: Mask) -> EmbeddedProgram:
        """xs, tangents of the `active` ones -> ys, tangents of the differentiable ones."""
        origin = TangentOrigin(self, active, tangent_only=False)
        return self.cached(("pushed", active), lambda: self.derive(lambda b, f: jvp_graph(b, f, active), True, origin))

    def tangent_program(self, active: Mask) -> EmbeddedProgram:
        """The same without the primal results."""
        make = lambda: self.derive(  # noqa: E731
            lambda b, f: jvp_graph(b, f, active, tangent_only=True),
            False,
            TangentOrigin(self, active, tangent_only=True),
        )
        return self.cached(("tangent", active), make)

    def pulled(self, wrt: Mask, present: Mask) -> EmbeddedProgram:
        """xs, the `present` cotangents of differentiable results -> cotangents of the `wrt` params."""
        return self.cached(
            ("pulled", wrt, present),
            lambda: self.derive(lambda b, f: vjp_graph(b, f, wrt, present, self.hooks.reverse_attrs), False),
        )

    def transposed(self, linear: Mask, arriving: Mask) -> EmbeddedProgram:
        """The params that are not `linear`, cotangents -> cotangents of the linear params, in which it is linear."""
        key = ("transposed", linear, arriving)
        return self.cached(
            key,
            lambda: self.derive(lambda b, f: transposed_graph(b, f, linear, arriving, self.hooks.reverse_attrs), False),
        )

    def vmap(self, batched: Mask, length: int) -> EmbeddedProgram:
        """The same for each item of the `batched` params, the results stacked."""
        return self.cached(
            ("mapped", batched, length), lambda: self.derive(lambda b, f: map_graph(b, f, batched, length), True)
        )

    def split(self, active: Mask) -> PrimalTangentSplit:
        """The split into a primal program with residuals, and a linear program of residuals and tangents."""
        # For one real result the residual is its gradient, and the tangent a product. Otherwise the tangent program
        # runs the function again: histories of loops cannot pass from one program to another.
        return self.cached(
            ("split", active), lambda: split_by_gradient(self, active) or split_by_recomputing(self, active)
        )


def split_by_recomputing(program: EmbeddedProgram, active: Mask) -> PrimalTangentSplit:
    return PrimalTangentSplit(program, program.tangent_program(active), residuals_are_arguments=True)


def split_by_gradient(program: EmbeddedProgram, active: Mask) -> PrimalTangentSplit | None:
    """The split of a program with one real differentiable result."""
    graph = program.graph
    smooth = [r.type for r in graph.results if r.type.tangent is not None]
    if (
        len(smooth) != 1
        or not is_real_scalar(smooth[0])
        or not all(is_real(p.type) for p in select_by_mask(graph.params, active))
    ):
        return None
    first = program.derive(lambda b, f: gradient_graph(b, f, active, program.hooks.reverse_attrs), True)
    gradients = [r.type for r in first.graph.results[len(graph.results) :]]
    hooks = replace(program.hooks, limit=0)  # a product keeps nothing
    return PrimalTangentSplit(
        first, EmbeddedProgram(product_graph(Builder(), gradients, smooth[0]), hooks), residuals_are_arguments=False
    )


def is_real(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype.is_float


def is_real_scalar(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype.is_float and not type.shape


def select_by_mask(values: Sequence[Any], mask: Mask) -> list[Any]:
    return [x for x, here in zip(values, mask, strict=True) if here]


# ---- Graphs of derived programs


def params_like(builder: Builder, values: Sequence[Value], prefix: str = "") -> list[Value]:
    return [builder.param(v.type, f"{prefix}{v.hint}" if v.hint else "") for v in values]


def jvp_graph(builder: Builder, f: Graph, active: Mask, tangent_only: bool = False) -> Graph:
    xs = params_like(builder, f.params)
    dxs = params_like(builder, select_by_mask(f.params, active), "d")
    found = builder.emit(jvp_op, [*xs, *dxs], (f,), wrt=active)
    return builder.finish(found[len(f.results) :] if tangent_only else found, name=f"{f.name}_jvp")


def vjp_graph(builder: Builder, f: Graph, wrt: Mask, arriving: Mask, reverse_attrs: ReverseAttrs) -> Graph:
    xs = params_like(builder, f.params)
    cts = cotangent_params(builder, f, arriving)
    found = builder.emit(vjp, [*xs, *cts], (f,), wrt=wrt, **reverse_attrs)
    return builder.finish(found[len(f.results) :], name=f"{f.name}_vjp")


def cotangent_params(builder: Builder, f: Graph, arriving: Mask) -> list[Value]:
    """A cotangent of each differentiable result: a param where one arrives, else zeros."""
    smooth = [r for r in f.results if r.type.tangent is not None]
    return [
        builder.param(r.type) if here else builder.const(0, r.type) for r, here in zip(smooth, arriving, strict=True)
    ]


def transposed_graph(builder: Builder, f: Graph, linear: Mask, arriving: Mask, reverse_attrs: ReverseAttrs) -> Graph:
    """The transpose of a linear function, as its vjp."""
    # A linear function has the same derivative everywhere, so the vjp is taken at zero.
    xs = [builder.const(0, p.type) if z else builder.param(p.type) for p, z in zip(f.params, linear, strict=True)]
    cts = cotangent_params(builder, f, arriving)
    found = builder.emit(vjp, [*xs, *cts], (f,), wrt=linear, **reverse_attrs)
    return builder.finish(found[len(f.results) :], name=f"{f.name}_transposed")


def gradient_graph(builder: Builder, f: Graph, active: Mask, reverse_attrs: ReverseAttrs) -> Graph:
    """The results, and the gradient of the differentiable one: in forward mode for a single input number."""
    xs = params_like(builder, f.params)
    moved = select_by_mask(f.params, active)
    by, reverse_attrs = (jvp_op, {}) if sum(element_count(p.type) for p in moved) == 1 else (vjp, reverse_attrs)
    like = moved if by is jvp_op else [r for r in f.results if r.type.tangent is not None]
    found = builder.emit(by, [*xs, *[builder.const(1, v.type) for v in like]], (f,), wrt=active, **reverse_attrs)
    count = len(f.results)
    slopes = found[count:]
    if by is jvp_op:
        (param,) = moved
        slopes = (reshape_to(builder, convert_dtype(builder, slopes[0], param.type), param.type),)
    return builder.finish([*found[:count], *slopes], name=f"{f.name}_grad")


def product_graph(builder: Builder, gradients: Sequence[Type], result: Type) -> Graph:
    """Gradients, tangents -> the sum of their products."""
    gs = [builder.param(t) for t in gradients]
    dxs = [builder.param(t) for t in gradients]
    total = builder.const(0, result)
    for g, dx in zip(gs, dxs, strict=True):
        term = g * dx
        assert isinstance(term.type, Tensor)
        if term.type.shape:
            term = builder.one("reduce_sum", term, axes=tuple(range(term.type.rank)))
        total = total + convert_dtype(builder, term, result)
    return builder.finish([total], name="product")


def map_graph(builder: Builder, f: Graph, batched: Mask, length: int) -> Graph:
    params = [
        builder.param(stacked_type(p.type, length) if b else p.type, p.hint)
        for p, b in zip(f.params, batched, strict=True)
    ]
    fixed = tuple([not b for b in batched])
    order: Values = (*select_by_mask(f.params, fixed), *select_by_mask(f.params, batched))
    body = Graph(order, f.eqns, f.results, f.name)
    operands = [*select_by_mask(params, fixed), *select_by_mask(params, batched)]
    found = builder.emit(map_, operands, (body,), consts=sum(fixed), length=length)
    return builder.finish(found, name=f"{f.name}_vmap")


def poison_with_nan(f: Graph, site: int) -> Graph:
    """The same graph, but if the result at `site` is not zero, all floats and their derivatives are NaN."""
    # Each result is multiplied by one or NaN, a factor that derivatives keep.
    builder = Builder()
    found = builder.inline(f, *params_like(builder, f.params))
    word = found[site]
    failed = builder.one("ne", word, builder.const(0, word.type))
    return builder.finish([multiply_nan_factor(builder, x, failed) for x in found], name=f.name)


def multiply_nan_factor(builder: Builder, x: Value, failed: Value) -> Value:
    if not isinstance(x.type, Tensor) or not x.type.dtype.differentiable:
        return x
    one = Tensor(x.type.dtype)
    factor = builder.one("select", failed, builder.const(float("nan"), one), builder.const(1, one))
    return x * (builder.one("broadcast", factor, shape=x.type.shape, axes=()) if x.type.shape else factor)


def element_count(type: Type) -> int:
    assert isinstance(type, Tensor)
    return prod([n for n in type.shape if isinstance(n, int)])


def convert_dtype(builder: Builder, x: Value, like: Type) -> Value:
    assert isinstance(x.type, Tensor) and isinstance(like, Tensor)
    return x if x.type.dtype is like.dtype else builder.one("convert", x, dtype=like.dtype)


def reshape_to(builder: Builder, x: Value, like: Type) -> Value:
    assert isinstance(like, Tensor)
    return x if x.type == like else builder.one("reshape", x, shape=like.shape)
