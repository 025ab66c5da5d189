"""Derivatives of a graph by its parameters: each is the graph in one more derivative equation, as for JAX.

What a language's own operator would elaborate is built here from the graph alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from difflang.ad.linear_maps import split, turned
from difflang.artifact.artifact_program import Body
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.error_codes import nearest
from difflang.base.source import NOWHERE
from difflang.driver.python_parameters import tangent_name
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value, Values
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor
from difflang.ops.ad_interface import Mask
from difflang.runtime.record_classes import Shape
from difflang.runtime.value_layouts import Called, Fields, Items, Layout, Leaf, changes, count, each, tangent
from difflang.tools.export.artifact_contents import Param

JVP, VJP = OPS["jvp"], OPS["vjp"]


class Place(Struct, frozen=True):
    """A part of the arguments: of which parameter, what it is called, its first leaf, and what it is."""

    param: Param
    name: str
    path: tuple[str, ...]
    first: int
    layout: Layout

    @property
    def changes(self) -> list[tuple[int, bool]]:
        """For each leaf of its tangent the param of the graph that it belongs to, and whether it is a number."""
        return [(self.first + i, number) for i, number in changes(self.layout)]


def located(body: Body, wanted: Sequence[int | str]) -> list[Place]:
    """The places of these names. Errors: DL0401 for what has no tangent, DL0403 for what is not there, or twice."""
    places = [located_one(body, w) for w in wanted]
    taken = [i for place in places for i, _ in place.changes]
    if len(set(taken)) != len(taken) or len({p.name for p in places}) != len(places):
        raise wrong(body, "DL0403", "a derivative is asked for twice in one place", "name each part once")
    return places


def located_one(body: Body, wanted: Any) -> Place:
    names = [p.name for p in body.params]
    first, *path = wanted.split(".") if isinstance(wanted, str) else (wanted,)
    if isinstance(first, int) and not isinstance(first, bool) and -len(names) <= first < len(names):
        first = names[first]
    if first not in names:
        near = nearest(first, names) if isinstance(first, str) else None
        way = f"did you mean `{near}`?" if near else f"it has {', '.join(names) or 'none'}"
        raise wrong(body, "DL0403", f"`{body.name}` has no parameter {first!r:.40}", way)
    at = names.index(first)
    start, layout = sum([count(p.layout) for p in body.params[:at]]), body.params[at].layout
    for name in path:
        if not isinstance(layout, Fields) or name not in layout.shape.fields:
            has = f"it has {', '.join(layout.shape.fields)}" if isinstance(layout, Fields) else "it is no record"
            raise wrong(body, "DL0403", f"{layout} has no field `{name}`", has)
        field = layout.shape.fields.index(name)
        start, layout = start + sum([count(p) for p in layout.parts[:field]]), layout.parts[field]
    place = Place(body.params[at], path[-1] if path else first, tuple(path), start, layout)
    if not any(number for _, number in place.changes):
        way = "differentiate in a float; convert with `f32(x)` outside"
        raise wrong(body, "DL0401", f"{layout} has no derivative: it has no tangent", way, body.params[at])
    return place


def wrong(body: Body, code: str, message: str, way: str, param: Param | None = None) -> DifflangError:
    spans = [p.span for p in (param,) if p is not None and p.span != NOWHERE]
    return DifflangError(Diagnostic(code, message, tuple([Label(s, "declared here") for s in spans]), (way,)))


def mask_of(body: Body, places: Sequence[Place]) -> Mask:
    """Which params of the graph a derivative is taken in."""
    moved = {i for place in places for i, number in place.changes if number}
    return tuple([i in moved for i in range(len(body.graph.params))])


def together(places: Sequence[Place], layouts: Sequence[Layout], body: Body) -> Layout:
    """One derivative as it is, several as a record with the names they were asked by."""
    if len(layouts) == 1:
        return layouts[0]
    module = next((p.layout.shape.module for p in body.params if isinstance(p.layout, Fields)), body.name)
    return Fields(Shape(module, "grad", tuple([p.name for p in places]), ()), tuple(layouts))


class Wrapped:
    """A graph under construction around that of a body: its params again, with more arguments between."""

    def __init__(self, body: Body, more: Sequence[Param] = ()) -> None:
        self.body, self.builder = body, Builder()
        self.params = (*body.params, *more)
        leaves = body.leaves
        given = [self.builder.param(p.type, p.hint) for p in body.graph.params[:leaves]]
        self.more = [self.builder.param(type_of(leaf), p.name) for p in more for leaf in each(p.layout)]
        rest = [self.builder.param(p.type, p.hint) for p in body.graph.params[leaves:]]
        self.xs = [*given, *rest]

    def emit(self, op: Any, operands: Sequence[Value], **attrs: Any) -> Values:
        return self.builder.emit(op, operands, (self.body.graph,), **attrs)

    def body_of(self, results: Sequence[Value], layout: Layout, word: Sequence[Value], prefix: str) -> Body:
        name = f"{prefix}_{self.body.name}"
        graph = self.builder.finish([*results, *word], name=name)
        return replace(self.body, name=name, graph=graph, params=self.params, result=layout)


def type_of(leaf: Leaf | Tensor | None) -> Tensor:
    assert leaf is not None, "nothing else has a tangent"
    return leaf.type if isinstance(leaf, Leaf) else leaf


def failure(body: Body, results: Sequence[Value]) -> Sequence[Value]:
    """The failure among the first results of a derivative equation."""
    count = len(body.graph.results)
    return results[count - body.word : count]


def limited(body: Body) -> dict[str, Any]:
    return {"limit": body.limit} if body.limit else {}


# ---- Reverse mode


def gradient(body: Body, places: Sequence[Place]) -> Body:
    return of_gradient(body, places, "grad")


def value_and_gradient(body: Body, places: Sequence[Place]) -> Body:
    return of_gradient(body, places, "value_and_grad")


def of_gradient(body: Body, places: Sequence[Place], operator: str) -> Body:
    """The cotangents of the parameters where that of the result is one. Errors: DL0402 if that is no real number."""
    result = body.result
    if not isinstance(result, Leaf) or result.type.shape or not result.type.dtype.is_float:
        way = "take a `sum` of it before it is exported, or use `vjp`"
        raise wrong(body, "DL0402", f"`{operator}` takes a function with a real number as its result", way)
    new = Wrapped(body)
    one = new.builder.const(1, result.type)
    wrt = mask_of(body, places)
    found = new.emit(VJP, [*new.xs, one], wrt=wrt, **limited(body))
    cts = by_param(wrt, found[len(body.graph.results) :])
    slopes = [cts.get(i, new.xs[i]) for place in places for i, _ in place.changes]
    layout = together(places, [tangent(p.layout) for p in places], body)
    if operator == "value_and_grad":
        return new.body_of([found[0], *slopes], Items((result, layout)), failure(body, found), operator)
    return new.body_of(slopes, layout, failure(body, found), operator)


def by_param(wrt: Mask, values: Sequence[Value]) -> dict[int, Value]:
    """Values of the params that are differentiated in, by the place of each."""
    return dict(zip([i for i, here in enumerate(wrt) if here], values, strict=True))


# ---- Forward mode


def pushed(body: Body, places: Sequence[Place]) -> Body:
    return of_tangents(body, places, "jvp", alone=False)


def of_tangents(body: Body, places: Sequence[Place], prefix: str, *, alone: bool) -> Body:
    """The value and its change along tangents that are given after the arguments, or the change `alone`."""
    with_result(body, prefix)
    more: list[Param] = []
    for p in places:
        name = tangent_name(p.param.name, p.path, [known.name for known in (*body.params, *more)])
        more.append(Param(name, "", tangent(p.layout), p.param.span))
    new = Wrapped(body, more)
    wrt = mask_of(body, places)
    numbers = [i for place in places for i, _ in place.changes]
    given = dict(zip(numbers, new.more, strict=True))
    dxs = [given[i] for i, here in enumerate(wrt) if here]
    found = new.emit(JVP, [*new.xs, *dxs], wrt=wrt)
    values = found[: count(body.result)]
    dys = tangents_of(body, found)
    layout = tangent(body.result)
    if alone:
        return new.body_of(dys, layout, failure(body, found), prefix)
    return new.body_of([*values, *dys], Items((body.result, layout)), failure(body, found), prefix)


def with_result(body: Body, operator: str) -> None:
    """Errors: DL0402 where nothing in the result has a tangent."""
    if not any(number for _, number in changes(body.result)):
        message = f"{body.result} has no derivative: `{operator}` is of functions that give floats"
        raise wrong(body, "DL0402", message, "give a float beside it")


def tangents_of(body: Body, found: Sequence[Value]) -> list[Value]:
    """The leaves of the result's tangent among the results of a `jvp` equation."""
    results = body.graph.results
    smooth = [i for i, r in enumerate(results) if r.type.tangent is not None]
    dys = dict(zip(smooth, found[len(results) :], strict=True))
    return [dys[i] if number else found[i] for i, number in changes(body.result)]


def hessian_product(body: Body, places: Sequence[Place]) -> Body:
    """How the gradient changes along tangents: forward over reverse."""
    return of_tangents(gradient(body, places), places, "hvp", alone=True)


def slope(body: Body, places: Sequence[Place]) -> Body:
    """The change along one. Errors: DL0405 for a function of more than one real number."""
    (place,) = places
    result = body.result
    if not is_real(place.layout) or place.layout.type.shape or not is_real(result):
        way = "use `grad`, `jvp` or `vjp` for others; of complex numbers, export the derivative itself"
        raise wrong(body, "DL0405", "`deriv` is the derivative of a function of one real number", way)
    new = Wrapped(body)
    found = new.emit(JVP, [*new.xs, new.builder.const(1, place.layout.type)], wrt=mask_of(body, places))
    return new.body_of(tangents_of(body, found), tangent(result), failure(body, found), "deriv")


def is_real(layout: Layout) -> TypeGuard[Leaf]:
    return isinstance(layout, Leaf) and layout.type.dtype.is_float


# ---- Linear maps


def linearized(body: Body, places: Sequence[Place]) -> Body:
    return of_map(body, places, "linearize")


def pullback(body: Body, places: Sequence[Place]) -> Body:
    return of_map(body, places, "vjp")


def of_map(body: Body, places: Sequence[Place], operator: str) -> Body:
    """The value, and a linear function that holds what it needs of the arguments: of a tangent, or of a cotangent."""
    with_result(body, operator)
    if body.limit:
        message = f"no limit on memory holds for what `{operator}` gives: a linear function keeps what it needs"
        raise wrong(body, "DL1014", message, f"`grad` keeps to it; export without `@memory` what `{operator}` is for")
    parts = split(body.graph, mask_of(body, places))
    new = Wrapped(body)
    found = new.builder.inline(parts.primal, *new.xs)
    residuals = found[len(body.graph.results) :]
    at = [i for place in places for i, number in place.changes if number]
    order = [at.index(i) for i in sorted(at)]  # the split takes tangents in the order of the params
    inner = together(places, [tangent(p.layout) for p in places], body)
    outer = tangent(body.result)
    smooth = [i for i, r in enumerate(body.graph.results) if r.type.tangent is not None]
    wanted = [parts.tangent.results[smooth.index(i)] for i, number in changes(body.result) if number]
    graph = parts.tangent.with_results(wanted)
    if operator == "vjp":
        tags = [new.xs[i] for place in places for i, number in place.changes if not number]
        back = [order.index(k) for k in range(len(order))]
        turned_round = turned(graph, len(order))
        map = linear(Map(turned_round, len(residuals), outer, inner, back=back), "ct", f"pullback_{body.name}")
    else:
        tags = [found[i] for i, number in changes(body.result) if not number]
        map = linear(Map(graph, len(residuals), inner, outer, order=order), "dx", f"derivative_{body.name}")
    held = [*residuals, *tags]
    layout = Items((body.result, Called(map, len(held))))
    return new.body_of([*found[: count(body.result)], *held], layout, failure(body, found), operator)


class Map(Struct, frozen=True, eq=False):
    """A linear graph of residuals and numbers, and the layouts of what it takes and gives.

    It takes the numbers in that `order`, and what it gives is put `back` into that.
    """

    graph: Graph
    residuals: int
    takes: Layout
    gives: Layout
    order: Sequence[int] | None = None
    back: Sequence[int] | None = None


def linear(map: Map, name: str, of: str) -> Body:
    """A linear graph as a function: it holds the residuals, then the tags of what it gives."""
    builder = Builder()
    given = [(builder.param(type_of(leaf), name), isinstance(leaf, Leaf)) for leaf in each(map.takes)]
    numbers = [x for x, number in given if number]
    residuals = [builder.param(p.type, p.hint) for p in map.graph.params[: map.residuals]]
    tags = iter([builder.param(leaf, "tag") for leaf in each(map.gives) if isinstance(leaf, Tensor)])
    found = builder.inline(map.graph, *residuals, *[numbers[k] for k in map.order or range(len(numbers))])
    results = iter([found[k] for k in map.back or range(len(found))])
    leaves = [next(results) if isinstance(leaf, Leaf) else next(tags) for leaf in each(map.gives)]
    graph = builder.finish(leaves, name=of)
    return Body(of, graph, (Param(name, "", map.takes),), map.gives)
