"""The `jvp`, `vjp` and `jet` operators as ops that hold the function they differentiate, with their types.

`ad.expand_derivatives` expands them; how a function is differentiated is in `ad`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS, DerivativeOperator, Op, TypeSolver
from difflang.ir.tensor_types import Type
from difflang.ops.ad_interface import Ad, Mask, or_zeros, require_same_types, spread_by_mask


def differentiable_mask(types: Sequence[Type]) -> Mask:
    return tuple([t.tangent is not None for t in types])


def tangent_types(types: Sequence[Type]) -> list[Type]:
    """The tangent types of the differentiable ones."""
    return [t.tangent for t in types if t.tangent is not None]


def wrt_tangent_types(same: TypeSolver, name: str, f: Graph, wrt: Mask) -> list[Type]:
    """The tangent types of the params that `wrt` selects."""
    same.require(len(wrt) == len(f.params), "{}: `wrt` has {} entries for {} params", name, len(wrt), len(f.params))
    selected = [p.type for p, w in zip(f.params, wrt, strict=True) if w]
    same.require(all(differentiable_mask(selected)), "{}: an integer or boolean has no derivative", name)
    return tangent_types(selected)


def jvp_type(same: TypeSolver, *types: Type, regions: tuple[Graph], wrt: Mask) -> tuple[Type, ...]:
    """jvp(*xs, *dxs) {f} -> *ys, *dys."""
    (f,) = regions
    params, results = f.type
    require_same_types(same, "jvp", types, [*params, *wrt_tangent_types(same, "jvp", f, wrt)])
    return *results, *tangent_types(results)


def vjp_type(
    same: TypeSolver, *types: Type, regions: tuple[Graph], wrt: Mask, limit: int = 0, seeded: Mask = ()
) -> tuple[Type, ...]:
    """vjp(*xs, *cts) {f} -> *ys, *ct_xs."""
    (f,) = regions
    params, results = f.type
    same.require(
        len(seeded) in (0, len(results)), "vjp: `seeded` has {} entries for {} results", len(seeded), len(results)
    )
    moving = tangent_types([t for t, s in zip(results, seeded, strict=True) if s] if seeded else results)
    require_same_types(same, "vjp", types, [*params, *moving])
    return *results, *wrt_tangent_types(same, "vjp", f, wrt)


def jvp_expand(ad: Ad, builder: Builder, eqn: Eqn, operands: Sequence[Value]) -> list[Value]:
    """Primal and tangent together, in the graph of the equation."""
    (f,), wrt = eqn.regions, eqn.attrs["wrt"]
    n = len(f.params)
    ys, dys = ad.push(f, builder, operands[:n], spread_by_mask(operands[n:], wrt))
    return [*ys, *(or_zeros(builder, d, y.type) for y, d in zip(ys, dys, strict=True) if y.type.tangent is not None)]


def vjp_expand(ad: Ad, builder: Builder, eqn: Eqn, operands: Sequence[Value]) -> list[Value]:
    """The primal, then its transposed tangent, in the graph of the equation."""
    (f,), wrt = eqn.regions, eqn.attrs["wrt"]
    n = len(f.params)
    seeded = eqn.attrs.get("seeded") or (True,) * len(f.results)
    moving = differentiable_mask([r.type for r in f.results])
    cts = spread_by_mask(operands[n:], tuple([m and s for m, s in zip(moving, seeded, strict=True)]))
    ys, back = ad.pull(f, builder, operands[:n], wrt, cts)
    return [*ys, *(or_zeros(builder, c, p.type) for p, c, w in zip(f.params, back, wrt, strict=True) if w)]


def jet_type(
    same: TypeSolver, *types: Type, regions: tuple[Graph], wrt: Mask, order: int, nests: bool = False
) -> tuple[Type, ...]:
    """jet(*xs, *dxs) {f} -> *ys, then their coefficients of order 1, of order 2, ..."""
    (f,) = regions
    params, results = f.type
    require_same_types(same, "jet", types, [*params, *wrt_tangent_types(same, "jet", f, wrt)])
    same.require(order >= 0, "jet: there is no order {}", order)
    return *results, *(tangent_types(results) * order)


def jet_expand(ad: Ad, builder: Builder, eqn: Eqn, operands: Sequence[Value]) -> list[Value]:
    """The Taylor series of the results, in the graph of the equation."""
    (f,), wrt, order = eqn.regions, eqn.attrs["wrt"], eqn.attrs["order"]
    n = len(f.params)
    dxs = spread_by_mask(operands[n:], wrt)
    series = ad.jet(f, builder, operands[:n], dxs, order, nests=eqn.attrs.get("nests", False))
    moving = [s for s in series if s[0].type.tangent is not None]
    return [*[s[0] for s in series], *(s[k] for k in range(1, order + 1) for s in moving)]


def reject_unexpanded(name: str) -> Callable[..., NoReturn]:
    def rule(*_: object, **__: object) -> NoReturn:
        raise InternalError(f"{name} must be expanded before it runs")

    return rule


jvp = OPS.declare(
    Op(
        "jvp",
        jvp_type,
        reject_unexpanded("jvp"),
        reject_unexpanded("jvp"),
        derivative=DerivativeOperator(jvp_expand),
        doc="""jvp(*xs, *dxs) {f}: f's results and their tangents. `wrt` says which params have a tangent.""",
    )
)
vjp = OPS.declare(
    Op(
        "vjp",
        vjp_type,
        reject_unexpanded("vjp"),
        reject_unexpanded("vjp"),
        traits=("not holomorphic",),
        derivative=DerivativeOperator(vjp_expand),
        doc="""vjp(*xs, *cts) {f}: f's results and the cotangents of the params that `wrt` names, where each result that
        has a tangent has the cotangent given, or only those that `seeded` names. The whole program is to take at most
        `limit` bytes, if it is not 0.""",
    )
)
jet = OPS.declare(
    Op(
        "jet",
        jet_type,
        reject_unexpanded("jet"),
        reject_unexpanded("jet"),
        derivative=DerivativeOperator(jet_expand),
        doc="""jet(*xs, *dxs) {f}: f's results along the line `xs + t dxs`, and their Taylor coefficients in t up to
        `order`. `wrt` says which params move. With `nests`, nested tangents give the coefficients of a function with
        an op that has no series.""",
    )
)
