"""All derivatives of arrays in arrays: a graph pushed forward along every direction, or pulled back along every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from difflang.artifact.artifact_program import Body
from difflang.artifact.graph_derivatives import JVP, VJP, Place, Wrapped, gradient, limited, mask_of, with_result, wrong
from difflang.ir.builder import Builder
from difflang.ir.graph import Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.control.print_effect import silent
from difflang.runtime.value_layouts import Layout, Leaf, changes, each, mapped, tangent

MAP = OPS["map"]


def hessian(body: Body, places: Sequence[Place]) -> Body:
    """The Jacobian of the gradient, in forward mode."""
    return jacobian(gradient(body, places), places, columns=True, operator="hessian")


def by_columns(body: Body, places: Sequence[Place]) -> Body:
    return jacobian(body, places, columns=True, operator="jacfwd")


def by_rows(body: Body, places: Sequence[Place]) -> Body:
    return jacobian(body, places, columns=False, operator="jacrev")


def cheaper(body: Body, places: Sequence[Place]) -> Body:
    """In the mode that takes fewer directions."""
    points, values = numbers(places[0].layout), numbers(body.result)
    return jacobian(body, places, columns=total(values) >= total(points), operator="jacobian")


def numbers(layout: Layout) -> list[Tensor]:
    """The types of the arrays in its tangent."""
    return [leaf.type for leaf in each(tangent(layout)) if isinstance(leaf, Leaf)]


def total(types: Sequence[Tensor]) -> int:
    return sum([size(t) for t in types])


def size(type: Tensor) -> int:
    return prod([n for n in type.shape if isinstance(n, int)])


def jacobian(body: Body, places: Sequence[Place], *, columns: bool, operator: str) -> Body:
    """`[..result, ..argument]`; of structures such an array for each array of the result in each of the argument."""
    (place,) = places
    with_result(body, operator)
    refuse_others(body, place, operator)
    points, values = numbers(place.layout), numbers(body.result)
    new = Wrapped(body)
    blocks: dict[tuple[int, int], Value] = {}
    for k, side in enumerate(points if columns else values):
        found = (swept_columns if columns else swept_rows)(new, place, k, side)
        for other, block in enumerate(found):
            i, j = (other, k) if columns else (k, other)
            blocks[i, j] = shaped(new.builder, block, values[i], points[j], columns=columns)
    rows = iter(values)
    layout = mapped(tangent(body.result), lambda _: around(next(rows), place.layout))
    word = new.builder.inline(body.graph, *new.xs)[len(body.graph.results) - body.word :] if body.word else []
    return new.body_of([blocks[i, j] for i in range(len(values)) for j in range(len(points))], layout, word, operator)


def around(value: Tensor, place: Layout) -> Layout:
    """The structure of an argument, each array in it with the axes of an array of the result before its own."""
    return mapped(tangent(place), lambda leaf: Leaf(Tensor(value.dtype, (*value.shape, *leaf.type.shape))))


def refuse_others(body: Body, place: Place, operator: str) -> None:
    """Errors: DL0801 for complex numbers and for what the run chooses."""
    layouts = [place.layout, body.result]
    if any(t.dtype.is_complex for layout in layouts for t in numbers(layout)):
        message = f"`{operator}` of a function out of an artifact is of real numbers"
        raise wrong(body, "DL0801", message, "export the Jacobian itself, or use `jvp` along each direction")
    if any(isinstance(leaf, Tensor) for layout in layouts for leaf in each(layout)):
        message = f"`{operator}` of a function out of an artifact is not of what the run chooses"
        raise wrong(body, "DL0801", message, "export the Jacobian itself, or one variant at a time")


def swept_columns(new: Wrapped, place: Place, k: int, side: Tensor) -> Values:
    """The changes of the result along every direction of the k-th array of the argument."""
    at = [i for i, _ in place.changes][k]
    wrt = tuple([i == at for i in range(len(new.xs))])

    def along(builder: Builder, xs: Sequence[Value], direction: Value) -> Sequence[Value]:
        graph = silent(new.body.graph)
        found = builder.emit(JVP, [*xs, direction], (graph,), wrt=wrt)
        results = graph.results
        smooth = [i for i, r in enumerate(results) if r.type.tangent is not None]
        return [found[len(results) + smooth.index(i)] for i, _ in changes(new.body.result)]

    return swept(new, side, along)


def swept_rows(new: Wrapped, place: Place, k: int, side: Tensor) -> Values:
    """What every direction of the k-th array of the result pulls back to."""
    at = [i for i, _ in changes(new.body.result)][k]
    attrs: dict[str, Any] = {"wrt": mask_of(new.body, [place]), **limited(new.body)}

    def along(builder: Builder, xs: Sequence[Value], direction: Value) -> Sequence[Value]:
        graph = silent(new.body.graph)
        one = graph.with_results([graph.results[at]])
        return builder.emit(VJP, [*xs, direction], (one,), **attrs)[1:]

    return swept(new, side, along)


def swept(new: Wrapped, side: Tensor, along: Callable[[Builder, Sequence[Value], Value], Sequence[Value]]) -> Values:
    """Something for every direction of an array of that type, stacked: each row of the identity is one."""
    length = size(side)
    inner = Builder()
    xs = [inner.param(x.type, x.hint) for x in new.xs]
    row = inner.param(Tensor(side.dtype, (length,)))
    direction = inner.one("reshape", row, shape=side.shape)
    lane = inner.finish(along(inner, xs, direction), name=new.body.name)
    return new.builder.emit(MAP, [*new.xs, identity(new.builder, length, side)], (lane,), consts=len(xs), length=length)


def identity(builder: Builder, n: int, like: Tensor) -> Value:
    """Ones on the diagonal."""
    rows, columns = [builder.one("iota", type=Tensor(I32, (n, n)), axis=a) for a in (0, 1)]
    one, nothing = [builder.const(v, Tensor(like.dtype, (n, n))) for v in (1, 0)]
    return builder.one("select", builder.one("eq", rows, columns), one, nothing)


def shaped(builder: Builder, found: Value, value: Tensor, point: Tensor, *, columns: bool) -> Value:
    """The directions' axis goes last if they are the argument's, and is that of the array again."""
    if columns:
        rank = len(value.shape)
        found = builder.one("transpose", found, perm=(*range(1, rank + 1), 0))
    return builder.one("reshape", found, shape=(*value.shape, *point.shape))
