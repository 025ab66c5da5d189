"""Laws of an op's derivatives: the jvp against differences, the transpose as the adjoint of the jvp.

Each law takes a graph, so the same ones serve an op, its derivatives, and derivatives of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from difflang.ad.expand_derivatives import differentiate
from difflang.gradcheck.extended_precision import GraphWidening, cast, evaluate_wide, wide_type
from difflang.gradcheck.op_calls import (
    DTYPE_OF,
    Array,
    LawBroken,
    Mask,
    OpCall,
    draw_array,
    epsilon,
    widened,
)
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate, evaluate_eqn
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.derivative_operators import jvp, vjp
from difflang.ops.op_factories import UniformSamples


def jvp_graph(f: Graph, wrt: Mask) -> Graph:
    """params ++ tangents -> tangents of the results."""
    params, results = f.type
    tangents = [p for p, w in zip(params, wrt, strict=True) if w]
    return differentiate(
        build_region([*params, *tangents], lambda *vs: jvp(*vs, regions=(f,), wrt=wrt)[len(results) :], "jvp")
    )


def vjp_graph(f: Graph, wrt: Mask) -> Graph:
    """params ++ cotangents of the results that have one -> cotangents of the params."""
    params, results = f.type
    cotangents = [r for r in results if r.tangent is not None]
    return differentiate(
        build_region([*params, *cotangents], lambda *vs: vjp(*vs, regions=(f,), wrt=wrt)[len(results) :], "vjp")
    )


def float_results(f: Graph) -> Graph:
    """The graph with only those results that have a tangent."""
    return f.with_results([r for r in f.results if r.type.tangent is not None])


def random_tangents(rng: np.random.Generator, like: Iterable[Array]) -> list[Array]:
    """Directions of length about one."""
    return [draw_array(rng, DTYPE_OF[x.dtype], x.shape, UniformSamples(-1.0, 1.0)) for x in like]


def active_arrays(xs: Sequence[Array], wrt: Mask) -> list[Array]:
    return [x for x, w in zip(xs, wrt, strict=True) if w]


def step_along(xs: Sequence[Array], dxs: Sequence[Array], wrt: Mask, step: float) -> list[Array]:
    left = iter(dxs)
    return [np.asarray(x + step * next(left)) if w else x for x, w in zip(xs, wrt, strict=True)]


def central_differences(
    f: Graph, xs: Sequence[Array], dxs: Sequence[Array], wrt: Mask, run: Callable[..., list[Array]] = evaluate
) -> list[Array]:
    """The derivative along `dxs` by central differences, extrapolated three times (Richardson)."""
    steps = [4e-3 / 2**k for k in range(4)]
    rows: list[list[Array]] = []
    for h in steps:
        ahead, behind = run(f, *step_along(xs, dxs, wrt, h)), run(f, *step_along(xs, dxs, wrt, -h))
        with np.errstate(invalid="ignore"):  # what stays at Inf does not move
            rows.append([np.where(a == b, 0.0, a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)])
    for k in range(1, 4):
        rows = [
            [fine + (fine - coarse) / (4**k - 1) for coarse, fine in zip(a, b, strict=True)] for a, b in pairwise(rows)
        ]
    return rows[0]


def check_jvp(
    f: Graph, xs: Sequence[Array], wrt: Mask, rng: np.random.Generator, what: object, *, wide: bool = False
) -> None:
    """The jvp of a graph in double precision against differences of the graph. Errors: LawBroken.

    With `wide`, graph and jvp run in extended precision: for ops that take no f64.
    """
    dxs, push, f = random_tangents(rng, active_arrays(xs, wrt)), jvp_graph(f, wrt), float_results(f)
    if wide:
        widening = GraphWidening()
        f, push = widening.graph(f), widening.graph(push)
        xs, dxs = [[cast(x, wide_type(Tensor(DTYPE_OF[x.dtype]))) for x in arrays] for arrays in (xs, dxs)]
    run = evaluate_wide if wide else evaluate
    got = run(push, *xs, *dxs)
    for dy, want in zip(got, central_differences(f, xs, dxs, wrt, run), strict=True):
        size = np.abs(want)
        bound = 1e-8 * np.maximum(size, 1.0)
        if not (np.abs(dy - want) <= bound).all():
            message = f"the jvp of {what} gives {dy}, differences {want}"
            raise LawBroken(f"the jvp of {what} against differences", dy, want, message, operands=xs, tangents=dxs)


def inner_product(xs: Sequence[Array], ys: Sequence[Array]) -> tuple[float, float]:
    """Re <x, y>, and the sum of its absolute terms."""
    terms = [(np.conj(widened(x)) * widened(y)).real for x, y in zip(xs, ys, strict=True)]
    return float(sum(t.sum() for t in terms)), float(sum(np.abs(t).sum() for t in terms))


def check_adjoint(f: Graph, xs: Sequence[Array], wrt: Mask, rng: np.random.Generator, what: object) -> None:
    """<ct, J dx> = <Jᵀ ct, dx>, within rounding of the sum of absolute terms. Errors: LawBroken."""
    dxs = random_tangents(rng, active_arrays(xs, wrt))
    dys = evaluate(jvp_graph(f, wrt), *xs, *dxs)
    cts = random_tangents(rng, dys)
    back = evaluate(vjp_graph(f, wrt), *xs, *cts)
    forward, size = inner_product(cts, dys)
    backward, also = inner_product(back, dxs)
    eps = max((epsilon(x.dtype) for x in (*dxs, *cts)), default=0.0)
    bound = 64 * eps * (size + also)
    if not abs(forward - backward) <= bound:
        message = f"{what}: <ct, J dx> = {forward}, <Jᵀ ct, dx> = {backward}"
        law = f"the vjp of {what} against its jvp, <Jᵀ ct, dx> = <ct, J dx>"
        raise LawBroken(law, backward, forward, message, operands=xs, tangents=dxs, cotangents=cts)


def check_second_order(call: OpCall, rng: np.random.Generator, *, wide: bool = False) -> None:
    """The jvp and the vjp of a call obey the laws themselves, as functions of operands and tangent or cotangent."""
    for kind, derived in (("vjp", vjp_graph(call.graph(), call.wrt)), ("jvp", jvp_graph(call.graph(), call.wrt))):
        results = evaluate(float_results(call.graph()), *call.arrays)
        given = active_arrays(call.arrays, call.wrt) if kind == "jvp" else results
        args = [*call.arrays, *random_tangents(rng, given)]
        wrt = (*call.wrt, *[x.dtype.kind in "fcV" for x in given])
        check_jvp(derived, args, wrt, rng, f"the {kind} of {call}", wide=wide)
        check_adjoint(derived, args, wrt, rng, f"the {kind} of {call}")


# ---- How far rounding moves results


def rounding_scales(call: OpCall) -> list[Array]:
    """For each result the sum of absolute terms: what rounding errors are to be compared with.

    For an op that is linear in every operand the op on absolute values; else |x f'(x)| over the operands, the effect of
    rounding the operands. A factorization is exact for operands that are off by rounding of their largest element.
    """
    if linear_in_all(call):
        sizes = (np.abs(x).astype(x.dtype) if w else x for x, w in zip(call.arrays, call.wrt, strict=True))
        return [np.abs(widened(y)) for y in call.references(*sizes)]
    if not call.active:
        return [np.zeros(())] * len(call.results)
    totals = [np.zeros(y.shape) for y in evaluate(call.graph(), *call.arrays)]
    for i, (x, w) in enumerate(zip(call.arrays, call.wrt, strict=True)):
        if w:
            push = jvp_graph(call.graph(), tuple(j == i for j in range(len(call.arrays))))
            for change in one_at_a_time(x) if call.mixes else [x]:
                dys = iter(evaluate(push, *call.arrays, change))
                moves = [np.abs(widened(next(dys))) if t.tangent is not None else 0.0 for t in call.results]
                totals = [total + move for total, move in zip(totals, moves, strict=True)]
    return totals


def linear_in_all(call: OpCall) -> bool:
    rules = call.op.operand_rules.transpose
    return rules is not None and all(rules[min(i, len(rules) - 1)] is not None for i, w in enumerate(call.wrt) if w)


def one_at_a_time(x: Array) -> Iterator[Array]:
    """The size of the array's largest element in each place by itself."""
    for place in np.ndindex(x.shape):
        only = np.zeros_like(x)
        only[place] = np.abs(x).max()
        yield only


def rounding_sensitivity(graph: Graph, xs: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """How far each result moves, per unit of relative error, when every value on the way is a little off."""
    exact = evaluate(graph, *xs)
    found = [np.zeros(y.shape) for y in exact]
    with np.errstate(all="ignore"):
        for _ in range(3):
            for i, y in enumerate(evaluate_perturbed(graph, xs, rng)):
                off = 2.0**-4 if y.dtype.itemsize == 2 else 2.0**-10
                found[i] = np.fmax(found[i], np.abs(widened(y) - widened(exact[i])) / off)
    return found


def evaluate_perturbed(graph: Graph, xs: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """The results when each float on the way is off by a fixed relative amount, up or down."""

    def off(x: Array) -> Array:
        if x.dtype.kind not in "fcV":
            return x
        amount = 2.0**-4 if x.dtype.itemsize == 2 else 2.0**-10
        return (x * (1 + amount * rng.choice([-1.0, 1.0], x.shape))).astype(x.dtype)

    env = {p: off(x) for p, x in zip(graph.params, xs, strict=True)}
    for eqn in graph.eqns:
        found = evaluate_eqn(eqn, [env[v] for v in eqn.operands])
        env.update((r, off(np.asarray(y))) for r, y in zip(eqn.results, found, strict=True))
    return [env[r] for r in graph.results]
