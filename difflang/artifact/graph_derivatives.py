"""Derivatives of a graph in its parameters: each wraps the graph in one more derivative equation.

It builds from the graph alone what elaboration builds for the language's derivative operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from difflang.ad.linear_maps import linearize_function, transpose_map
from difflang.artifact.artifact_graph import GraphFunction
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.error_codes import suggestion
from difflang.base.source import NO_SPAN
from difflang.driver.python_parameters import tangent_name
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value, Values
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import Mask
from difflang.ops.control.derivative_operators import jvp as jvp_op
from difflang.ops.control.derivative_operators import vjp as vjp_op
from difflang.runtime.record_classes import RecordShape
from difflang.runtime.value_layouts import (
    FunctionLayout,
    LeafLayout,
    RecordLayout,
    TupleLayout,
    ValueLayout,
    leaf_count,
    leaves_of,
    tangent_layout,
    tangent_leaves,
)
from difflang.tools.export.artifact_contents import ArtifactParam


class WrtTarget(Struct, frozen=True):
    """A part of the arguments to differentiate in: its parameter, name, path, first leaf and layout."""

    param: ArtifactParam
    name: str
    path: tuple[str, ...]
    first_leaf: int
    layout: ValueLayout

    @property
    def tangent_leaves(self) -> list[tuple[int, bool]]:
        """For each leaf of its tangent the graph's param, and whether the leaf is a number rather than a tag."""
        return [(self.first_leaf + i, number) for i, number in tangent_leaves(self.layout)]


def wrt_targets(body: GraphFunction, requested: Sequence[int | str]) -> list[WrtTarget]:
    """The targets with these names. Errors: DL0401 for one without tangent, DL0403 for an unknown or repeated one."""
    places = [wrt_target(body, w) for w in requested]
    taken = [i for place in places for i, _ in place.tangent_leaves]
    # Overlapping targets would give one leaf two derivatives.
    if len(set(taken)) != len(taken) or len({p.name for p in places}) != len(places):
        raise artifact_error(body, "DL0403", "this asks for one derivative twice", "name each part once")
    return places


def wrt_target(body: GraphFunction, requested: Any) -> WrtTarget:
    names = [p.name for p in body.params]
    first, *path = requested.split(".") if isinstance(requested, str) else (requested,)
    if isinstance(first, int) and not isinstance(first, bool) and -len(names) <= first < len(names):
        first = names[first]
    if first not in names:
        way = suggestion(first if isinstance(first, str) else "", names)
        raise artifact_error(body, "DL0403", f"`{body.name}` has no parameter {first!r:.40}", way)
    at = names.index(first)
    start, layout = sum([leaf_count(p.layout) for p in body.params[:at]]), body.params[at].layout
    for name in path:
        if not isinstance(layout, RecordLayout) or name not in layout.shape.fields:
            has = (
                f"it has {', '.join(layout.shape.fields)}" if isinstance(layout, RecordLayout) else "it is not a record"
            )
            raise artifact_error(body, "DL0403", f"{layout} has no field `{name}`", has)
        field = layout.shape.fields.index(name)
        start, layout = start + sum([leaf_count(p) for p in layout.parts[:field]]), layout.parts[field]
    place = WrtTarget(body.params[at], path[-1] if path else first, tuple(path), start, layout)
    if not any(number for _, number in place.tangent_leaves):
        way = "differentiate with respect to a float; convert with `f32(x)` outside"
        message = f"{layout} has no tangent, so there is no derivative with respect to it"
        raise artifact_error(body, "DL0401", message, way, body.params[at])
    return place


def artifact_error(
    body: GraphFunction, code: str, message: str, way: str, param: ArtifactParam | None = None
) -> DifflangError:
    spans = [p.span for p in (param,) if p is not None and p.span != NO_SPAN]
    return DifflangError(Diagnostic(code, message, tuple([Label(s, "declared here") for s in spans]), (way,)))


def wrt_mask(body: GraphFunction, places: Sequence[WrtTarget]) -> Mask:
    """Which params of the graph a derivative is taken in."""
    moved = {i for place in places for i, number in place.tangent_leaves if number}
    return tuple([i in moved for i in range(len(body.graph.params))])


def pack_derivatives(places: Sequence[WrtTarget], layouts: Sequence[ValueLayout], body: GraphFunction) -> ValueLayout:
    """A single derivative as it is, several as a record with the names they were requested by."""
    if len(layouts) == 1:
        return layouts[0]
    module = next((p.layout.shape.module for p in body.params if isinstance(p.layout, RecordLayout)), body.name)
    return RecordLayout(RecordShape(module, "grad", tuple([p.name for p in places]), ()), tuple(layouts))


class DerivativeBuilder:
    """Builds a graph around a body's graph: the body's params, with more arguments between leaves and constants."""

    def __init__(self, body: GraphFunction, more: Sequence[ArtifactParam] = ()) -> None:
        self.body, self.builder = body, Builder()
        self.params = (*body.params, *more)
        leaves = body.leaf_count
        given = [self.builder.param(p.type, p.hint) for p in body.graph.params[:leaves]]
        self.added_params = [self.builder.param(leaf_type(leaf), p.name) for p in more for leaf in leaves_of(p.layout)]
        rest = [self.builder.param(p.type, p.hint) for p in body.graph.params[leaves:]]
        self.xs = [*given, *rest]

    def emit(self, op: Any, operands: Sequence[Value], **attrs: Any) -> Values:
        return self.builder.emit(op, operands, (self.body.graph,), **attrs)

    def finish(
        self, results: Sequence[Value], layout: ValueLayout, word: Sequence[Value], prefix: str
    ) -> GraphFunction:
        name = f"{prefix}_{self.body.name}"
        graph = self.builder.finish([*results, *word], name=name)
        return replace(self.body, name=name, graph=graph, params=self.params, result=layout)


def leaf_type(leaf: LeafLayout | Tensor | None) -> Tensor:
    assert leaf is not None, "nothing else has a tangent"
    return leaf.type if isinstance(leaf, LeafLayout) else leaf


def failure_values(body: GraphFunction, results: Sequence[Value]) -> Sequence[Value]:
    """The failure among the first results of a derivative equation."""
    count = len(body.graph.results)
    return results[count - body.failure_count : count]


def limit_attrs(body: GraphFunction) -> dict[str, Any]:
    return {"limit": body.limit} if body.limit else {}


# ---- Reverse mode


def gradient(body: GraphFunction, places: Sequence[WrtTarget], operator: str = "grad") -> GraphFunction:
    """The cotangents of the parameters where that of the result is one. Errors: DL0402 if that is no real number.

    For `value_and_grad` the result may also be a tuple that begins with the number: the gradient is that of the number.
    """
    result = body.result
    auxiliary = operator == "value_and_grad" and isinstance(result, TupleLayout) and result.parts
    number = result.parts[0] if auxiliary and isinstance(result, TupleLayout) else result
    if not is_real_leaf(number) or number.type.shape:
        way = "export a `sum` of it, or use `vjp`"
        raise artifact_error(body, "DL0402", f"`{operator}` takes a function whose result is a real number", way)
    new = DerivativeBuilder(body)
    smooth = [r.type for r in body.graph.results if r.type.tangent is not None]
    cotangents = [new.builder.const(0 if place else 1, type) for place, type in enumerate(smooth)]
    wrt = wrt_mask(body, places)
    found = new.emit(vjp_op, [*new.xs, *cotangents], wrt=wrt, **limit_attrs(body))
    # Derivatives by the index of the param that each belongs to.
    cts = dict(zip([i for i, here in enumerate(wrt) if here], found[len(body.graph.results) :], strict=True))
    slopes = [cts.get(i, new.xs[i]) for place in places for i, _ in place.tangent_leaves]
    layout = pack_derivatives(places, [tangent_layout(p.layout) for p in places], body)
    if operator == "value_and_grad":
        value = found[: leaf_count(result)]
        return new.finish([*value, *slopes], TupleLayout((result, layout)), failure_values(body, found), operator)
    return new.finish(slopes, layout, failure_values(body, found), operator)


# ---- Forward mode


def jvp(
    body: GraphFunction, places: Sequence[WrtTarget], prefix: str = "jvp", *, tangent_only: bool = False
) -> GraphFunction:
    """The value and its tangent along tangents given after the arguments, or the tangent only."""
    require_tangent(body, prefix)
    more: list[ArtifactParam] = []
    for p in places:
        name = tangent_name(p.param.name, p.path, [known.name for known in (*body.params, *more)])
        more.append(ArtifactParam(name, "", tangent_layout(p.layout), p.param.span))
    new = DerivativeBuilder(body, more)
    wrt = wrt_mask(body, places)
    numbers = [i for place in places for i, _ in place.tangent_leaves]
    given = dict(zip(numbers, new.added_params, strict=True))
    dxs = [given[i] for i, here in enumerate(wrt) if here]
    found = new.emit(jvp_op, [*new.xs, *dxs], wrt=wrt)
    values = found[: leaf_count(body.result)]
    dys = result_tangents(body, found)
    layout = tangent_layout(body.result)
    if tangent_only:
        return new.finish(dys, layout, failure_values(body, found), prefix)
    return new.finish([*values, *dys], TupleLayout((body.result, layout)), failure_values(body, found), prefix)


def require_tangent(body: GraphFunction, operator: str) -> None:
    """Errors: DL0402 if nothing in the result has a tangent."""
    if not any(number for _, number in tangent_leaves(body.result)):
        message = f"{body.result} has no derivative: `{operator}` takes functions that return floats"
        raise artifact_error(body, "DL0402", message, "return a float as well")


def result_tangents(body: GraphFunction, found: Sequence[Value]) -> list[Value]:
    """The leaves of the result's tangent among the results of a `jvp` equation."""
    results = body.graph.results
    smooth = [i for i, r in enumerate(results) if r.type.tangent is not None]
    dys = dict(zip(smooth, found[len(results) :], strict=True))
    return [dys[i] if number else found[i] for i, number in tangent_leaves(body.result)]


def hvp(body: GraphFunction, places: Sequence[WrtTarget]) -> GraphFunction:
    """The change of the gradient along tangents: forward over reverse."""
    return jvp(gradient(body, places), places, "hvp", tangent_only=True)


def deriv(body: GraphFunction, places: Sequence[WrtTarget]) -> GraphFunction:
    """The derivative of a function of one real number. Errors: DL0405 for any other function."""
    (place,) = places
    result = body.result
    if not is_real_leaf(place.layout) or place.layout.type.shape or not is_real_leaf(result):
        way = "use `grad`, `jvp` or `vjp` for others; for complex numbers, export the derivative itself"
        raise artifact_error(body, "DL0405", "`deriv` takes a function of one real number", way)
    new = DerivativeBuilder(body)
    found = new.emit(jvp_op, [*new.xs, new.builder.const(1, place.layout.type)], wrt=wrt_mask(body, places))
    return new.finish(result_tangents(body, found), tangent_layout(result), failure_values(body, found), "deriv")


def is_real_leaf(layout: ValueLayout) -> TypeGuard[LeafLayout]:
    return isinstance(layout, LeafLayout) and layout.type.dtype.is_float


# ---- Linear maps


def build_linear_map(body: GraphFunction, places: Sequence[WrtTarget], operator: str) -> GraphFunction:
    """The value, and a linear function of a tangent or a cotangent that holds its residuals."""
    require_tangent(body, operator)
    # The residuals are captured values of the result: no plan can avoid them.
    if body.limit:
        message = f"`@memory` cannot limit the result of `{operator}`: a linear function keeps its residuals"
        raise artifact_error(
            body, "DL1014", message, f"`grad` obeys the limit; for `{operator}`, export the function without `@memory`"
        )
    parts = linearize_function(body.graph, wrt_mask(body, places))
    new = DerivativeBuilder(body)
    found = new.builder.inline(parts.primal, *new.xs)
    residuals = found[len(body.graph.results) :]
    at = [i for place in places for i, number in place.tangent_leaves if number]
    # `linearize_function` takes tangents in the order of the params.
    order = [at.index(i) for i in sorted(at)]
    inner = pack_derivatives(places, [tangent_layout(p.layout) for p in places], body)
    outer = tangent_layout(body.result)
    smooth = [i for i, r in enumerate(body.graph.results) if r.type.tangent is not None]
    dys = [parts.tangent.results[smooth.index(i)] for i, number in tangent_leaves(body.result) if number]
    graph = parts.tangent.with_results(dys)
    if operator == "vjp":
        tags = [new.xs[i] for place in places for i, number in place.tangent_leaves if not number]
        back = [order.index(k) for k in range(len(order))]
        transposed = transpose_map(graph, len(order))
        map = linear_function(
            LinearGraph(transposed, len(residuals), outer, inner, back=back), "ct", f"pullback_{body.name}"
        )
    else:
        tags = [found[i] for i, number in tangent_leaves(body.result) if not number]
        map = linear_function(
            LinearGraph(graph, len(residuals), inner, outer, order=order), "dx", f"derivative_{body.name}"
        )
    held = [*residuals, *tags]
    layout = TupleLayout((body.result, FunctionLayout(map, len(held))))
    return new.finish([*found[: leaf_count(body.result)], *held], layout, failure_values(body, found), operator)


class LinearGraph(Struct, frozen=True, eq=False):
    """A linear graph of residuals and numbers, with the layouts of its input and output.

    `order` permutes the input numbers, and `back` the output.
    """

    graph: Graph
    residuals: int
    takes: ValueLayout
    gives: ValueLayout
    order: Sequence[int] | None = None
    back: Sequence[int] | None = None


def linear_function(map: LinearGraph, name: str, of: str) -> GraphFunction:
    """A linear graph as a function that holds the residuals, then the tags of its result."""
    builder = Builder()
    given = [(builder.param(leaf_type(leaf), name), isinstance(leaf, LeafLayout)) for leaf in leaves_of(map.takes)]
    numbers = [x for x, number in given if number]
    residuals = [builder.param(p.type, p.hint) for p in map.graph.params[: map.residuals]]
    tags = iter([builder.param(leaf, "tag") for leaf in leaves_of(map.gives) if isinstance(leaf, Tensor)])
    found = builder.inline(map.graph, *residuals, *[numbers[k] for k in map.order or range(len(numbers))])
    results = iter([found[k] for k in map.back or range(len(found))])
    leaves = [next(results) if isinstance(leaf, LeafLayout) else next(tags) for leaf in leaves_of(map.gives)]
    graph = builder.finish(leaves, name=of)
    return GraphFunction(of, graph, (ArtifactParam(name, "", map.takes),), map.gives)
