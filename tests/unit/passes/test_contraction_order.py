"""Sums of products of many factors are contracted two by two, in the cheapest order, in values and in gradients."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F16, F64, DType, Tensor
from difflang.passes.contractions import sums_to_contractions
from difflang.passes.contractions.contraction_order import Order, OrderSearch, Pair
from difflang.passes.contractions.einsum_form import AxisRange, EinsumFactor, EinsumForm
from difflang.passes.contractions.sums_to_contractions import contract
from difflang.passes.dce import dce

RNG = np.random.default_rng(0)
Arrays = tuple[np.ndarray[Any, Any], ...]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape)


def equations(graph: Graph) -> Iterator[Eqn]:
    for eqn in graph.eqns:
        yield eqn
        for region in eqn.regions:
            yield from equations(region)


def largest(graph: Graph) -> int:
    """The size of the largest array that an equation makes."""
    types = [v.type for e in equations(graph) for v in e.results]
    return max(prod(map(int, map(str, t.shape))) for t in types if isinstance(t, Tensor))


def contractions(graph: Graph) -> int:
    return sum(e.op.name == "dot_general" for e in equations(graph))


A, B, C = normal(20, 20), normal(20, 20), normal(20, 20)
# Each: parameters, result, body, arguments, the same as an einsum.
FORMS: dict[str, tuple[str, str, str, Arrays, str]] = {
    "a chain": (
        "a: f64[n, m], b: f64[m, p], c: f64[p, q]", "f64[n, q]",
        "[for i, l => sum(for j, k => a[i, j] * b[j, k] * c[k, l])]", (A, B, C), "ij,jk,kl->il",
    ),
    "a trace": (
        "a: f64[n, n], b: f64[n, n], c: f64[n, n]", "f64", "sum(for i, j, k => a[i, j] * b[j, k] * c[k, i])",
        (A, B, C), "ij,jk,ki->",
    ),
    "a tensor train": (
        "a: f64[n, r], b: f64[r, n, r], c: f64[r, n, r], d: f64[r, n]", "f64",
        "sum(for i, j, k, l, p, q, s => a[i, p] * b[p, j, q] * c[q, k, s] * d[s, l])",
        (normal(6, 5), normal(5, 6, 5), normal(5, 6, 5), normal(5, 6)), "ip,pjq,qks,sl->",
    ),
    "bilinear forms": (
        "x: f64[n, d], b: f64[d, e], y: f64[m, e]", "f64[m, n]",
        "[for l, i => sum(for j, k => x[i, j] * b[j, k] * y[l, k])]", (normal(20, 5), normal(5, 6), normal(30, 6)),
        "ij,jk,lk->li",
    ),
    "quadratic forms": (
        "x: f64[n, d], b: f64[k, d, d]", "f64[n, k]", "[for i, c => sum(for p, q => x[i, p] * b[c, p, q] * x[i, q])]",
        (normal(50, 6), normal(5, 6, 6)), "ip,cpq,iq->ic",
    ),
    "sums within sums, and numbers": (
        "a: f64[n, m], b: f64[m, p], c: f64[p, q]", "f64[n, q]",
        "[for i, l => 0.5 * sum(for j => a[i, j] * sum(for k => -b[j, k] * c[k, l]) * -2.0)]", (A, B, C),
        "ij,jk,kl->il",
    ),
    "a cut product": (
        "a: f64[v, m], b: f64[m, 4, 4], p: f64[v, 4]", "f64[v, 2]",
        "[for k => sum(for j => a[k, j] * (b[j] @ p[k])[1..3])]", (normal(50, 8), normal(8, 4, 4), normal(50, 4)),
        "kj,jil,kl->ki",
    ),
}  # fmt: skip
CUT = {"a cut product": np.s_[:, 1:3]}


def module(form: tuple[str, str, str, Arrays, str]) -> Any:
    parameters, result, body, *_ = form
    names = ", ".join([part.split(":")[0].strip() for part in parameters.split("], ")])
    square = f"f({names})^2" if result == "f64" else f"sum(f({names})^2)"
    return difflang.loads(
        f"float f64\nfn f({parameters}) -> {result} = {body}\nfn loss({parameters}) -> f64 = {square}"
    )


@pytest.mark.parametrize("name", FORMS)
def test_factors_are_contracted_two_by_two(name: str) -> None:
    *_, arguments, einsum = FORMS[name]
    m = module(FORMS[name])
    factors = [*arguments, arguments[0]][: einsum.count(",") + 1]
    expected = np.einsum(einsum, *factors, optimize=True)[CUT.get(name, np.s_[...])]
    graph = m.f.lower(*arguments).graph
    assert contractions(graph) >= 1
    assert largest(graph) <= 5 * max([400, expected.size, *[a.size for a in arguments]])
    np.testing.assert_allclose(m.f(*arguments), expected, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(m.f.interpret(*arguments), expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("name", FORMS)
def test_so_are_those_of_gradients(name: str) -> None:
    """A step along a direction and back: the loss is of degree two in `b`."""
    *_, arguments, _ = FORMS[name]
    m, gradient = module(FORMS[name]), module(FORMS[name]).loss.grad("b")
    assert largest(gradient.lower(*arguments).graph) <= 5 * max([400, *[a.size for a in arguments]])
    direction = normal(*arguments[1].shape)
    ends = [float(m.loss(arguments[0], arguments[1] + s * direction, *arguments[2:])) for s in (0.5, -0.5)]
    np.testing.assert_allclose(np.vdot(gradient(*arguments), direction), ends[0] - ends[1], rtol=1e-9)
    np.testing.assert_allclose(gradient(*arguments), gradient.interpret(*arguments), rtol=1e-10, atol=1e-10)


def random_sum(seed: int, dtype: DType = F64) -> tuple[Graph, list[np.ndarray[Any, Any]]]:
    """A sum of a product of two to nine arrays with random axes, some of them summed or cut before."""
    rng = np.random.default_rng(seed)
    sizes = tuple([int(n) for n in rng.integers(2, 4, 5)])
    chosen = [tuple(sorted(rng.permutation(5)[: rng.integers(0, 4)].tolist())) for _ in range(rng.integers(2, 10))]
    chosen[-1] = tuple(range(5)) if seed % 3 else chosen[-1]
    if set(range(5)) - {a for axes in chosen for a in axes}:
        chosen.append(tuple(range(5)))
    types = [Tensor(dtype, tuple([sizes[a] + seed % 2 for a in axes])) for axes in chosen]

    def body(*arrays: Value) -> list[Value]:
        total = None
        for array, axes in zip(arrays, chosen, strict=True):
            rank, stops = len(axes), tuple([sizes[a] + seed % 2 for a in axes])
            part = OPS["slice"].one(array, starts=(seed % 2,) * rank, stops=stops, steps=(1,) * rank)
            whole = OPS["broadcast"].one(part, shape=sizes, axes=axes)
            total = whole if total is None else -total * whole
        assert total is not None
        first = OPS["reduce_sum"].one(total, axes=(1,))
        again = OPS["broadcast"].one(first, shape=(2, sizes[0], *sizes[2:]), axes=(1, 2, 3, 4))
        last = OPS["broadcast"].one(arrays[0].home.const(0.5, Tensor(dtype)), shape=(2, sizes[0], *sizes[2:]), axes=())
        return [OPS["reduce_sum"].one(again * last, axes=(2, 4))]

    arrays = [rng.normal(size=tuple([sizes[a] + seed % 2 for a in axes])) for axes in chosen]
    return build_region(types, body), arrays


@pytest.mark.parametrize("seed", range(60))
def test_every_order_gives_the_same_sum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_to_contractions, "MIN_COST", 0.0)
    monkeypatch.setattr(sums_to_contractions, "MIN_GAIN", float("inf"))
    graph, arrays = random_sum(seed)
    after = dce(contract(graph))
    np.testing.assert_allclose(evaluate(after, *arrays)[0], evaluate(graph, *arrays)[0], rtol=1e-11, atol=1e-11)


def form_of(einsum: str, **sizes: int) -> EinsumForm:
    inputs, result = einsum.split("->")
    names = {a: i for i, a in enumerate(sizes)}
    home = build_region([Tensor(F64)], lambda x: [x]).params[0]
    factors = [EinsumFactor(home, tuple([AxisRange(names[a]) for a in part])) for part in inputs.split(",")]
    return EinsumForm(tuple(factors), 1, dict(enumerate(sizes.values())), tuple([names[a] for a in result]), {}, ())


def written(order: Order) -> str:
    return f"({written(order.lhs)} {written(order.rhs)})" if isinstance(order, Pair) else str(order.number)


def test_the_smallest_intermediate_results_come_first() -> None:
    chain = "ij,jk,kl->il"
    assert written(OrderSearch(form_of(chain, i=100, j=100, k=100, l=2)).cheapest()[1]) == "(0 (1 2))"
    assert written(OrderSearch(form_of(chain, i=2, j=100, k=100, l=100)).cheapest()[1]) == "((0 1) 2)"


def test_more_factors_than_are_searched_exactly_keep_small_results() -> None:
    names = "abcdefghijkl"
    einsum = ",".join(a + b for a, b in zip(names, names[1:] + names[0], strict=True)) + "->"
    cost, order = OrderSearch(form_of(einsum, **dict.fromkeys(names, 10))).cheapest()
    assert written(order).count("(") == 11
    assert cost < 20_000


def test_products_written_as_matrix_products_keep_their_order() -> None:
    m = difflang.loads("fn f(a: f64[n, n], b: f64[n, n], x: f64[n]) -> f64[n] = (a @ b) @ x")
    shapes = [e.results[0].type for e in m.f.lower(A, B, A[0]).graph.eqns]
    assert shapes == [Tensor(F64, (20, 20)), Tensor(F64, (20,))]


def test_a_factor_that_is_not_finite_reaches_the_same_results() -> None:
    parameters, result, body, *_ = FORMS["a chain"]
    f = difflang.loads(f"float f64\nfn f({parameters}) -> {result} = {body}").f
    for bad in (np.nan, np.inf):
        b = B.copy()
        b[3, 4] = bad
        a, c = A.copy(), C.copy()
        a[5, 3] = c[4, 7] = 0.0
        with np.errstate(invalid="ignore"):
            expected = (a[:, :, None, None] * b[:, :, None] * c).sum((1, 2))
        np.testing.assert_array_equal(np.isfinite(f(a, b, c)), np.isfinite(expected))


def test_16_bit_floats_keep_their_order() -> None:
    graph, _ = random_sum(4, F16)
    assert contractions(contract(graph)) <= 1


def test_a_contraction_gives_its_axes_as_the_next_one_reads_them() -> None:
    """Rows of weights are multiplied with matrices, and each found matrix with a vector: vertices lead in both."""
    source = """float f64
fn skinned(w: f64[v, b], bones: f64[b, 4, 4], p: f64[v, 4]) -> f64[v, 3] =
  [for k => sum(for j => (bones[j] @ p[k])[..3] * w[k, j])]
"""
    f = difflang.loads(source).skinned
    w, bones, p = normal(400, 22), normal(22, 4, 4), normal(400, 4)
    graph = f.lower(w, bones, p).graph
    assert contractions(graph) == 2
    batches = [b for e in equations(graph) if e.op.name == "dot_general" for b in e.attrs["batch"]]
    assert all(b == tuple(range(len(b))) for b in batches) and any(batches)
    np.testing.assert_allclose(f(w, bones, p), np.einsum("vb,bij,vj->vi", w, bones[:, :3], p), rtol=1e-11, atol=1e-13)
