"""A graph as JAX's transformations see it: a program, and the programs derived of it, each made once.

Nothing is differentiated here: a derived program is a graph with one more derivative equation, and the road that every
graph goes expands it. So each of them can be derived again, to any order.
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
from difflang.ir.interpreter import Says
from difflang.ir.op import OPS
from difflang.ir.tensor_types import Tensor, Type, stacked
from difflang.ops.ad_interface import Mask
from difflang.ops.control.print_effect import silent

JVP, VJP, MAP = OPS["jvp"], OPS["vjp"], OPS["map"]
Said = Mapping[str, Any]  # attributes of a derivative in reverse


class Road(Struct, frozen=True):
    """What the driver lends: the way of a graph to one that is lowered, who hears what it prints, who is told the
    number of a failed check, and how many bytes its derivatives in reverse may take, 0 for any."""

    finish: Callable[[Graph], Graph]
    says: Says
    report: Callable[[int], None]
    limit: int = 0

    @property
    def said(self) -> dict[str, Any]:
        """Of memory, to a derivative in reverse."""
        return {"limit": self.limit} if self.limit else {}


class Origin(Struct, frozen=True, eq=False):
    """Of which program, and in which of its params, this is the value with its tangent, or the tangent alone."""

    base: Program
    active: Mask
    alone: bool


class Split(Struct, frozen=True, eq=False):
    """A program and its tangent in two: `first` gives the results and then what `rest` takes before the tangents.

    Where `arguments` holds, that is the arguments themselves, and `first` gives none of it.
    """

    first: Program
    rest: Program
    arguments: bool


class Program:
    """A graph that is one operation for JAX. `checked` is which of its results is the number of a failed check.

    Two are equal if they are the same, so what is derived of one is kept with it.
    """

    __slots__ = ("checked", "derived", "graph", "lock", "origin", "road")

    def __init__(self, graph: Graph, road: Road, checked: int | None = None, origin: Origin | None = None) -> None:
        self.graph, self.road = graph, road
        self.checked, self.origin = checked, origin
        self.lock = threading.RLock()
        self.derived: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return self.graph.name or "function"

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made of it under a key, by the first who asks."""
        with self.lock:
            if key not in self.derived:
                self.derived[key] = make()
            return self.derived[key]

    @property
    def finished(self) -> Graph:
        """The graph as it is lowered."""
        return self.once("finished", lambda: self.road.finish(self.graph))

    @property
    def smooth(self) -> Mask:
        """Which results have a tangent."""
        return tuple([r.type.tangent is not None for r in self.graph.results])

    def grown(self, build: Callable[[Builder, Graph], Graph], first: bool, origin: Origin | None = None) -> Program:
        """The program of another graph, built around this one's. What is not the `first` run of it says nothing."""
        graph = self.graph if first else silent(self.graph)
        return Program(build(Builder(), graph), self.road, self.checked if first else None, origin)

    # ---- what JAX's rules ask for

    def pushed(self, active: Mask) -> Program:
        """xs, tangents of the `active` ones -> ys, tangents of those that have one."""
        make = lambda: self.grown(lambda b, f: jvp_graph(b, f, active), True, Origin(self, active, alone=False))  # noqa: E731
        return self.once(("pushed", active), make)

    def tangent(self, active: Mask) -> Program:
        """The tangents alone."""
        make = lambda: self.grown(  # noqa: E731
            lambda b, f: jvp_graph(b, f, active, alone=True), False, Origin(self, active, alone=True)
        )
        return self.once(("tangent", active), make)

    def pulled(self, wrt: Mask, arriving: Mask) -> Program:
        """xs, those cotangents of smooth results that are `arriving` -> cotangents of the `wrt` params."""
        return self.once(
            ("pulled", wrt, arriving),
            lambda: self.grown(lambda b, f: vjp_graph(b, f, wrt, arriving, self.road.said), False),
        )

    def transposed(self, linear: Mask, arriving: Mask) -> Program:
        """The params that are not `linear`, cotangents -> cotangents of the linear params, in which it is linear."""
        key = ("transposed", linear, arriving)
        return self.once(
            key, lambda: self.grown(lambda b, f: transposed_graph(b, f, linear, arriving, self.road.said), False)
        )

    def mapped(self, batched: Mask, length: int) -> Program:
        """The same for each item of the `batched` params, the results stacked."""
        return self.once(
            ("mapped", batched, length), lambda: self.grown(lambda b, f: map_graph(b, f, batched, length), True)
        )

    def split(self, active: Mask) -> Split:
        """Value and tangent in two, so that the first half needs no tangents and what it gives is enough for the other.

        Of one real number the gradient is had at once, and its tangent is a product. Else the second half runs the
        function again: what a loop of unknown length keeps is nothing that one program can hand to another.
        """
        return self.once(("split", active), lambda: by_gradient(self, active) or by_running_again(self, active))


def by_running_again(program: Program, active: Mask) -> Split:
    return Split(program, program.tangent(active), arguments=True)


def by_gradient(program: Program, active: Mask) -> Split | None:
    """The split of a program with one real result, apart from those that have no derivative."""
    graph = program.graph
    smooth = [r.type for r in graph.results if r.type.tangent is not None]
    if len(smooth) != 1 or not is_one_real(smooth[0]) or not all(is_real(p.type) for p in on(graph.params, active)):
        return None
    first = program.grown(lambda b, f: gradient_graph(b, f, active, program.road.said), True)
    gradients = [r.type for r in first.graph.results[len(graph.results) :]]
    road = replace(program.road, limit=0)  # a product keeps nothing
    return Split(first, Program(product_graph(Builder(), gradients, smooth[0]), road), arguments=False)


def is_real(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype.is_float


def is_one_real(type: Type) -> bool:
    return isinstance(type, Tensor) and type.dtype.is_float and not type.shape


def on(values: Sequence[Any], mask: Mask) -> list[Any]:
    return [x for x, here in zip(values, mask, strict=True) if here]


# ---- graphs


def params_like(builder: Builder, values: Sequence[Value], prefix: str = "") -> list[Value]:
    return [builder.param(v.type, f"{prefix}{v.hint}" if v.hint else "") for v in values]


def jvp_graph(builder: Builder, f: Graph, active: Mask, alone: bool = False) -> Graph:
    xs = params_like(builder, f.params)
    dxs = params_like(builder, on(f.params, active), "d")
    found = builder.emit(JVP, [*xs, *dxs], (f,), wrt=active)
    return builder.finish(found[len(f.results) :] if alone else found, name=f"{f.name}_jvp")


def vjp_graph(builder: Builder, f: Graph, wrt: Mask, arriving: Mask, said: Said) -> Graph:
    xs = params_like(builder, f.params)
    cts = cotangents(builder, f, arriving)
    found = builder.emit(VJP, [*xs, *cts], (f,), wrt=wrt, **said)
    return builder.finish(found[len(f.results) :], name=f"{f.name}_vjp")


def cotangents(builder: Builder, f: Graph, arriving: Mask) -> list[Value]:
    """A cotangent of each smooth result: a param where one arrives, else zeros."""
    smooth = [r for r in f.results if r.type.tangent is not None]
    return [
        builder.param(r.type) if here else builder.const(0, r.type) for r, here in zip(smooth, arriving, strict=True)
    ]


def transposed_graph(builder: Builder, f: Graph, linear: Mask, arriving: Mask, said: Said) -> Graph:
    """A linear function is its own derivative, at zero as anywhere else."""
    xs = [builder.const(0, p.type) if z else builder.param(p.type) for p, z in zip(f.params, linear, strict=True)]
    cts = cotangents(builder, f, arriving)
    found = builder.emit(VJP, [*xs, *cts], (f,), wrt=linear, **said)
    return builder.finish(found[len(f.results) :], name=f"{f.name}_transposed")


def gradient_graph(builder: Builder, f: Graph, active: Mask, said: Said) -> Graph:
    """The results, and the gradient of the smooth one: in forward mode where there is one number to move."""
    xs = params_like(builder, f.params)
    moved = on(f.params, active)
    by, said = (JVP, {}) if sum(elements(p.type) for p in moved) == 1 else (VJP, said)
    like = moved if by is JVP else [r for r in f.results if r.type.tangent is not None]
    found = builder.emit(by, [*xs, *[builder.const(1, v.type) for v in like]], (f,), wrt=active, **said)
    count = len(f.results)
    slopes = found[count:]
    if by is JVP:
        (param,) = moved
        slopes = (shaped(builder, converted(builder, slopes[0], param.type), param.type),)
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
        total = total + converted(builder, term, result)
    return builder.finish([total], name="product")


def map_graph(builder: Builder, f: Graph, batched: Mask, length: int) -> Graph:
    params = [
        builder.param(stacked(p.type, length) if b else p.type, p.hint) for p, b in zip(f.params, batched, strict=True)
    ]
    fixed = tuple([not b for b in batched])
    order: Values = (*on(f.params, fixed), *on(f.params, batched))
    body = Graph(order, f.eqns, f.results, f.name)
    operands = [*on(params, fixed), *on(params, batched)]
    found = builder.emit(MAP, operands, (body,), consts=sum(fixed), length=length)
    return builder.finish(found, name=f"{f.name}_vmap")


def poisoned(f: Graph, site: int) -> Graph:
    """The same graph where each float is NaN, and so is every derivative of it, if the result at `site` is not zero.

    They are multiplied by one or by NaN, which transformations carry along like any factor.
    """
    builder = Builder()
    found = builder.inline(f, *params_like(builder, f.params))
    word = found[site]
    failed = builder.one("ne", word, builder.const(0, word.type))
    return builder.finish([factored(builder, x, failed) for x in found], name=f.name)


def factored(builder: Builder, x: Value, failed: Value) -> Value:
    if not isinstance(x.type, Tensor) or not x.type.dtype.differentiable:
        return x
    one = Tensor(x.type.dtype)
    factor = builder.one("select", failed, builder.const(float("nan"), one), builder.const(1, one))
    return x * (builder.one("broadcast", factor, shape=x.type.shape, axes=()) if x.type.shape else factor)


def elements(type: Type) -> int:
    assert isinstance(type, Tensor)
    return prod([n for n in type.shape if isinstance(n, int)])


def converted(builder: Builder, x: Value, like: Type) -> Value:
    assert isinstance(x.type, Tensor) and isinstance(like, Tensor)
    return x if x.type.dtype is like.dtype else builder.one("convert", x, dtype=like.dtype)


def shaped(builder: Builder, x: Value, like: Type) -> Value:
    assert isinstance(like, Tensor)
    return x if x.type == like else builder.one("reshape", x, shape=like.shape)
