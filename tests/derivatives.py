"""Writing graphs by hand, and taking their derivatives: what the tests of `ad` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import difflang.ops  # noqa: F401  fills the registry
from difflang.ad.expand_derivatives import differentiate
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F64, I32, Tensor, Type

FLOAT, INT, TRUTH = Tensor(F64), Tensor(I32), Tensor(BOOL)
FOREVER = 2**31 - 1
Body = Callable[..., Iterable[Value]]


def op(name: str, *operands: Value, **attrs: Any) -> Value:
    return OPS[name].one(*operands, **attrs)


def literal(like: Value, number: complex, type: Type | None = None) -> Value:
    return like.home.const(number, like.type if type is None else type)


def total(x: Value) -> Value:
    return op("reduce_sum", x, axes=tuple(range(len(x.type.shape))))


def wide(x: Value, *shape: int) -> Value:
    return op("broadcast", x, shape=shape, axes=())


def matvec(a: Value, x: Value) -> Value:
    return op("dot_general", a, x, contract=((1,), (0,)), batch=((), ()))


def repeat(
    limit: int | Value,
    step: Body,
    consts: Sequence[Value],
    carry: Sequence[Value],
    xs: Sequence[Value] = (),
    *,
    go: Callable[..., Value] | None = None,
    length: int | None = None,
    exact: bool = False,
    reverse: bool = False,
) -> list[Value]:
    """At most `limit` steps of step(index, *consts, *carry, *items), while go(index, *consts, *carry)."""
    fixed = [INT, *[v.type for v in (*consts, *carry)]]
    items = [Tensor(x.type.dtype, x.type.shape[1:]) for x in xs]
    regions = [build_region([*fixed, *items], step)]
    if go is not None:
        regions.append(build_region(fixed, lambda *args: [go(*args)]))
    first = literal([*consts, *carry, *xs][0], limit, INT) if isinstance(limit, int) else limit
    attrs = {"consts": len(consts), "carry": len(carry), "length": length, "exact": exact, "reverse": reverse}
    return list(OPS["loop"](first, *consts, *carry, *xs, regions=tuple(regions), **attrs))


def scan(
    length: int, step: Body, consts: Sequence[Value], carry: Sequence[Value], xs: Sequence[Value] = (), **more: Any
) -> list[Value]:
    """The same, exactly `length` times; without the count."""
    return repeat(length, step, consts, carry, xs, length=length, exact=True, **more)[1:]


def choose(pred: Value, then: Body, other: Body, *operands: Value) -> list[Value]:
    types = [v.type for v in operands]
    return list(OPS["cond"](pred, *operands, regions=(build_region(types, then), build_region(types, other))))


def mapped(length: int, body: Body, consts: Sequence[Value], xs: Sequence[Value]) -> list[Value]:
    items = [Tensor(x.type.dtype, x.type.shape[1:]) for x in xs]
    inside = build_region([*[c.type for c in consts], *items], body)
    return list(OPS["map"](*consts, *xs, regions=(inside,), consts=len(consts), length=length))


def called(function: Graph, *operands: Value, name: str = "f") -> list[Value]:
    return list(OPS["call"](*operands, regions=(function,), name=name))


def differentiable(types: Iterable[Type]) -> tuple[bool, ...]:
    return tuple(t.tangent is not None for t in types)


def tangents(types: Iterable[Type]) -> list[Type]:
    return [t.tangent for t in types if t.tangent is not None]


def unexpanded(name: str, f: Graph, wrt: tuple[bool, ...] | None = None) -> Graph:
    """The graph of one `jvp` or `vjp` equation over `f`."""
    params, results = f.type
    asked = differentiable(params) if wrt is None else wrt
    wanted = [p for p, w in zip(params, asked, strict=True) if w]
    more = tangents(wanted) if name == "jvp" else tangents(results)
    return build_region([*params, *more], lambda *args: OPS[name](*args, regions=(f,), wrt=asked))


def jvp(f: Graph, wrt: tuple[bool, ...] | None = None) -> Graph:
    return differentiate(unexpanded("jvp", f, wrt))


def vjp(f: Graph, wrt: tuple[bool, ...] | None = None) -> Graph:
    return differentiate(unexpanded("vjp", f, wrt))


DERIVATIVE = {"J": jvp, "V": vjp}


def composed(order: str, f: Graph) -> Graph:
    """`JV` is the jvp of the vjp."""
    for letter in reversed(order):
        f = DERIVATIVE[letter](f)
    return f


def nested(order: str, f: Graph) -> Graph:
    """The same as equations in equations, expanded all at once."""
    for letter in reversed(order):
        f = unexpanded({"J": "jvp", "V": "vjp"}[letter], f)
    return differentiate(f)
