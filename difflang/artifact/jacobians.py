"""Jacobians of artifact functions: a graph's `jvp` or `vjp` mapped over the standard basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from difflang.artifact.artifact_graph import GraphFunction
from difflang.artifact.graph_derivatives import (
    DerivativeBuilder,
    WrtTarget,
    artifact_error,
    gradient,
    limit_attrs,
    require_tangent,
    wrt_mask,
)
from difflang.ir.builder import Builder
from difflang.ir.graph import Value, Values
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.control.derivative_operators import jvp, vjp
from difflang.ops.control.map import map_
from difflang.ops.control.print_effect import without_prints
from difflang.runtime.value_layouts import (
    LeafLayout,
    ValueLayout,
    leaves_of,
    map_leaves,
    tangent_layout,
    tangent_leaves,
)


def hessian(body: GraphFunction, places: Sequence[WrtTarget]) -> GraphFunction:
    """The Jacobian of the gradient, in forward mode."""
    return build_jacobian(gradient(body, places), places, columns=True, operator="hessian")


def cheapest_jacobian(body: GraphFunction, places: Sequence[WrtTarget]) -> GraphFunction:
    """The Jacobian in the mode that needs fewer directions."""
    points, values = (sum(map(type_size, tangent_leaf_types(t))) for t in (places[0].layout, body.result))
    # Forward mode costs one pass per input, reverse mode one per output.
    return build_jacobian(body, places, columns=values >= points, operator="jacobian")


def tangent_leaf_types(layout: ValueLayout) -> list[Tensor]:
    """The types of the arrays in its tangent."""
    return [leaf.type for leaf in leaves_of(tangent_layout(layout)) if isinstance(leaf, LeafLayout)]


def type_size(type: Tensor) -> int:
    return prod([n for n in type.shape if isinstance(n, int)])


def build_jacobian(body: GraphFunction, places: Sequence[WrtTarget], *, columns: bool, operator: str) -> GraphFunction:
    """`[..result, ..argument]`; for structures one such array for each pair of a result leaf and an argument leaf."""
    (place,) = places
    require_tangent(body, operator)
    check_supported(body, place, operator)
    points, values = tangent_leaf_types(place.layout), tangent_leaf_types(body.result)
    new = DerivativeBuilder(body)
    blocks: dict[tuple[int, int], Value] = {}
    for k, side in enumerate(points if columns else values):
        found = (jacobian_columns if columns else jacobian_rows)(new, place, k, side)
        for other, block in enumerate(found):
            i, j = (other, k) if columns else (k, other)
            blocks[i, j] = reshape_block(new.builder, block, values[i], points[j], columns=columns)
    rows = iter(values)
    layout = map_leaves(tangent_layout(body.result), lambda _: jacobian_layout(next(rows), place.layout))
    values_count = len(body.graph.results) - body.failure_count
    word = new.builder.inline(body.graph, *new.xs)[values_count:] if body.failure_count else []
    return new.finish([blocks[i, j] for i in range(len(values)) for j in range(len(points))], layout, word, operator)


def jacobian_layout(value: Tensor, place: ValueLayout) -> ValueLayout:
    """The layout of an argument, with the axes of a result leaf before those of each array."""
    return map_leaves(
        tangent_layout(place), lambda leaf: LeafLayout(Tensor(value.dtype, (*value.shape, *leaf.type.shape)))
    )


def check_supported(body: GraphFunction, place: WrtTarget, operator: str) -> None:
    """Errors: DL0801 for complex numbers and for values chosen at run time."""
    layouts = [place.layout, body.result]
    if any(t.dtype.is_complex for layout in layouts for t in tangent_leaf_types(layout)):
        message = f"`{operator}` of a function from an artifact supports real numbers only"
        raise artifact_error(body, "DL0801", message, "export the Jacobian itself, or use `jvp` along each direction")
    if any(isinstance(leaf, Tensor) for layout in layouts for leaf in leaves_of(layout)):
        message = (
            f"`{operator}` of a function from an artifact does not support values whose variant is known "
            "only at run time"
        )
        raise artifact_error(body, "DL0801", message, "export the Jacobian itself, or one variant at a time")


def jacobian_columns(new: DerivativeBuilder, place: WrtTarget, k: int, side: Tensor) -> Values:
    """The tangents of the result along every basis direction of the k-th array of the argument."""
    at = [i for i, _ in place.tangent_leaves][k]
    wrt = tuple([i == at for i in range(len(new.xs))])

    def along(builder: Builder, xs: Sequence[Value], direction: Value) -> Sequence[Value]:
        graph = without_prints(new.body.graph)
        found = builder.emit(jvp, [*xs, direction], (graph,), wrt=wrt)
        results = graph.results
        smooth = [i for i, r in enumerate(results) if r.type.tangent is not None]
        return [found[len(results) + smooth.index(i)] for i, _ in tangent_leaves(new.body.result)]

    return map_over_basis(new, side, along)


def jacobian_rows(new: DerivativeBuilder, place: WrtTarget, k: int, side: Tensor) -> Values:
    """The cotangents of the argument for every basis direction of the k-th array of the result."""
    at = [i for i, _ in tangent_leaves(new.body.result)][k]
    attrs: dict[str, Any] = {"wrt": wrt_mask(new.body, [place]), **limit_attrs(new.body)}

    def along(builder: Builder, xs: Sequence[Value], direction: Value) -> Sequence[Value]:
        graph = without_prints(new.body.graph)
        one = graph.with_results([graph.results[at]])
        return builder.emit(vjp, [*xs, direction], (one,), **attrs)[1:]

    return map_over_basis(new, side, along)


def map_over_basis(
    new: DerivativeBuilder, side: Tensor, along: Callable[[Builder, Sequence[Value], Value], Sequence[Value]]
) -> Values:
    """A function mapped over the basis directions of an array of that type: the rows of the identity matrix."""
    length = type_size(side)
    inner = Builder()
    xs = [inner.param(x.type, x.hint) for x in new.xs]
    row = inner.param(Tensor(side.dtype, (length,)))
    direction = inner.one("reshape", row, shape=side.shape)
    body = inner.finish(along(inner, xs, direction), name=new.body.name)
    return new.builder.emit(
        map_, [*new.xs, identity_matrix(new.builder, length, side)], (body,), consts=len(xs), length=length
    )


def identity_matrix(builder: Builder, n: int, like: Tensor) -> Value:
    """The identity matrix."""
    rows, columns = [builder.one("iota", type=Tensor(I32, (n, n)), axis=a) for a in (0, 1)]
    one, zero = [builder.const(v, Tensor(like.dtype, (n, n))) for v in (1, 0)]
    return builder.one("select", builder.one("eq", rows, columns), one, zero)


def reshape_block(builder: Builder, found: Value, value: Tensor, point: Tensor, *, columns: bool) -> Value:
    """Move the axis of directions last if they are the argument's, and restore the arrays' shapes."""
    if columns:
        rank = len(value.shape)
        found = builder.one("transpose", found, perm=(*range(1, rank + 1), 0))
    return builder.one("reshape", found, shape=(*value.shape, *point.shape))
