"""A value and its pullback as one unexpanded `vjp` equation.

Elaboration expands `vjp(f)(x)` at once, which fixes what its loops store. An unexpanded equation leaves that open.
"""

from __future__ import annotations

from collections.abc import Sequence

from difflang.driver.elaborate_call import CallArgument, ElaboratedCall
from difflang.elaborate.terms import leaf_hints
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ops.ad_interface import zeros
from difflang.types.language_types import leaf_types


def value_and_pullback(
    plain: ElaboratedCall, arguments: Sequence[CallArgument], cotangent: CallArgument, paths: Sequence[str]
) -> Graph:
    """The graph of a function with its pullback, given a cotangent of the value.

    Shapes: takes the function's params with the cotangent after the arguments; gives the value, the cotangents of the
    arguments at these paths, and the failure.
    """
    builder = Builder()
    f = plain.graph
    hints = [h for a in arguments if a.size is None for h in leaf_hints(a.type, a.name)]
    own = [builder.param(p.type, p.hint) for p in f.params[: len(hints)]]
    given = [builder.param(t, h) for t, h in zip(leaf_types(cotangent.type), argument_hints(cotangent), strict=True)]
    hidden = [builder.param(p.type, p.hint) for p in f.params[len(hints) :]]
    places = [place for path in paths for place in leaves_at_path(path, hints, own)]
    wrt = tuple([i in places for i in range(len(f.params))])
    values = len(leaf_types(plain.type))
    left = iter(given)
    smooth = [(i, r.type) for i, r in enumerate(f.results) if r.type.tangent is not None]
    cts = [next(left) if i < values else zeros(builder, type) for i, type in smooth]
    found = builder.emit(OPS["vjp"], [*own, *hidden, *cts], (f,), wrt=wrt)
    count = len(f.results)
    pulled: dict[int, Value] = dict(zip([i for i, w in enumerate(wrt) if w], found[count:], strict=True))
    results = [*found[:values], *[pulled[p] for p in places], *found[values:count]]
    return builder.finish(results, params=[*own, *given, *hidden], name=f.name)


def argument_hints(argument: CallArgument) -> list[str]:
    return leaf_hints(argument.type, argument.name)


def leaves_at_path(path: str, hints: Sequence[str], params: Sequence[Value]) -> list[int]:
    """The indices of the differentiable leaves below a path of fields."""
    inside = [i for i, h in enumerate(hints) if h == path or h.startswith(f"{path}.")]
    return [i for i in inside if params[i].type.tangent is not None]
