"""Index notation becomes contractions, slices and gathers on whole arrays, in the value and in its derivative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.graph import Eqn, Graph
from difflang.ir.tensor_types import Tensor
from difflang.passes.contractions import contraction_plan, masked_contractions
from difflang.passes.contractions.contraction_plan import MAX_SMALL_PRODUCT

RNG = np.random.default_rng(0)
A, B, C = (RNG.normal(size=s) for s in ((4, 5), (5, 3), (2, 4, 5)))
X, Y, W = RNG.normal(size=5), RNG.normal(size=5), RNG.normal(size=3)
P = np.array([4, 0, 4, 2, 1, 4, 3], np.int32)

# Each: parameters, result, body, arguments, the same in NumPy, and how often some ops occur in the optimized graph.
Form = tuple[str, str, str, tuple[Any, ...], Any, dict[str, int]]
ONE = {"dot_general": 1, "mul": 0, "reduce_sum": 0}
FORMS: dict[str, Form] = {
    "matrices": (
        "a: f64[n, m], b: f64[m, p]", "f64[n, p]", "[for i, k => sum(for j => a[i, j] * b[j, k])]",
        (A, B), lambda a, b: a @ b, {**ONE, "transpose": 0},
    ),
    "in another order": (
        "a: f64[n, m], b: f64[m, p]", "f64[p, n]", "[for k, i => sum(for j => b[j, k] * a[i, j])]",
        (A, B), lambda a, b: (a @ b).T, {**ONE, "transpose": 0},
    ),
    "a matrix and a vector": (
        "a: f64[n, m], x: f64[m]", "f64[n]", "[for i => sum(for j => a[i, j] * x[j])]", (A, X), np.matmul, ONE,
    ),
    "a bilinear form": (
        "x: f64[n], a: f64[n, m], y: f64[m]", "f64", "sum(for i => x[i] * sum(for j => a[i, j] * y[j]))",
        (A[:, 0], A, X), lambda x, a, y: x @ a @ y, {"dot_general": 1},
    ),
    "all at once": (
        "x: f64[n], a: f64[n, m], y: f64[m]", "f64", "sum(for i, j => x[i] * a[i, j] * y[j])",
        (A[:, 0], A, X), lambda x, a, y: x @ a @ y, {"dot_general": 1},
    ),
    "a batch": (
        "c: f64[b, n, m], x: f64[b, m]", "f64[b, n]", "[for l, i => sum(for j => c[l, i, j] * x[l, j])]",
        (C, C[:, 0]), lambda c, x: np.einsum("lij,lj->li", c, x), ONE,
    ),
    "a factor of two arrays": (
        "a: f64[n, m], w: f64[m], b: f64[m, p]", "f64[n, p]",
        "[for i, k => sum(for j => a[i, j] * exp(w[j]) * b[j, k])]",
        (A, X, B), lambda a, w, b: (a * np.exp(w)) @ b, {"dot_general": 1, "reduce_sum": 0},
    ),
    "a product within": (
        "c: f64[b, n, m], x: f64[m]", "f64[b, n]", "[for l => c[l] @ x]", (C, X), np.matmul, ONE,
    ),
    "windows": (
        "x: f64[n], w: f64[m]", "f64[n - m + 1]", "[for i in 0..n - m + 1 => sum(for k => x[i + k] * w[k])]",
        (X, W), lambda x, w: np.correlate(x, w, "valid"), {**ONE, "gather": 1, "ge": 0},
    ),
    "a short window": (
        "x: f64[n]", "f64[n // 2]", "[for i in 0..n // 2 => sum(for k in 0..2 => x[2 * i + k])]",
        (X,), lambda x: x[:-1:2] + x[1::2], {"slice": 2, "gather": 0, "ge": 0},
    ),
    "a trace": (
        "a: f64[n, n]", "f64", "sum(for i => a[i, i])", (A[:, :4],), np.trace, {"slice": 1, "gather": 0},
    ),
    "backwards": (
        "x: f64[n]", "f64[n]", "[for i in 0..n => x[n - 1 - i]]", (X,), lambda x: x[::-1], {"reverse": 1, "ge": 0},
    ),
    "a lookup": (
        "t: f64[n, m], p: i32[k]", "f64[k, m]", "[for i => t[p[i]]]", (A[:, :], P % 4), lambda t, p: t[p],
        {"gather": 1},
    ),
}  # fmt: skip


def equations(graph: Graph) -> Iterator[Eqn]:
    for eqn in graph.eqns:
        yield eqn
        for region in eqn.regions:
            yield from equations(region)


def ops(graph: Graph) -> Counter[str]:
    return Counter(eqn.op.name for eqn in equations(graph))


def largest(graph: Graph) -> int:
    values = [v for e in equations(graph) for v in e.results if isinstance(v.type, Tensor)]
    return max(prod(int(str(d)) for d in v.type.shape) for v in values)


def module(form: Form) -> Any:
    parameters, result, body, *_ = form
    names = ", ".join(p.split(":")[0] for p in parameters.replace("[n, m]", "[n m]").split(", ") if ":" in p)
    source = f"fn f({parameters}) -> {result} = {body}\nfn loss({parameters}) -> f64 = sum(f({names})^2)\n"
    return difflang.loads("float f64\n" + source, name="forms")


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_notation_is_done_on_whole_arrays(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction_plan, "MAX_SMALL_PRODUCT", 0)
    *_, arguments, twin, counts = form
    f = module(form).f
    found = ops(f.lower(*arguments).graph)
    assert found["map"] == 0
    assert {name: found[name] for name in counts} == counts
    np.testing.assert_allclose(f(*arguments), twin(*arguments), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(f.interpret(*arguments), twin(*arguments), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_its_gradient_is_too(form: Form) -> None:
    """Against differences: the functions are polynomials of degree two in each parameter, but for the exponential."""
    parameters, *_, arguments, _, _ = form
    m, name = module(form), parameters.split(":")[0]
    gradient = m.loss.grad(name)
    assert ops(gradient.lower(*arguments).graph)["map"] == 0
    direction = RNG.normal(size=arguments[0].shape)
    ends = [float(m.loss(arguments[0] + h * direction, *arguments[1:])) for h in (0.5, -0.5)]
    np.testing.assert_allclose(np.vdot(gradient(*arguments), direction), ends[0] - ends[1], rtol=1e-10)


def test_few_products_of_a_matrix_and_a_vector_are_summed_where_they_are_made() -> None:
    """More are a contraction, and so are those of two matrices, of which each number is read several times."""
    f = module(FORMS["a matrix and a vector"]).f
    for rows, found in ((MAX_SMALL_PRODUCT // 5, 0), (MAX_SMALL_PRODUCT // 5 + 1, 1)):
        a = RNG.normal(size=(rows, 5))
        assert ops(f.lower(a, X).graph)["dot_general"] == found
        np.testing.assert_allclose(f(a, X), a @ X, rtol=1e-13, atol=1e-14)
    assert ops(module(FORMS["matrices"]).f.lower(A, B).graph)["dot_general"] == 1


LOOKUPS = {
    "plain": "t[p[i]]^2",
    "behind a filter": "if p[i] >= 0 { t[p[i]]^2 } else { 0.0 }",
    "in both branches": "if p[i] > 2 { t[p[i]] } else { t[p[i] + 1]^2 }",
    "two branches deep": "if p[i] > 0 { if i > 3 { t[p[i] - 1]^2 } else { t[p[i]] } } else { 1.0 }",
    "in a function": "at(t, p[i])",
    "a window": "sum(t[p[i]..p[i] + 2])",
}


@pytest.mark.parametrize("body", LOOKUPS.values(), ids=LOOKUPS)
def test_the_gradient_of_a_lookup_does_not_grow_with_the_table(body: str) -> None:
    source = f"fn at(t: f64[n], i: i32) -> f64 = t[i]^2 / 2.0\nfn f(t: f64[n], p: i32[m]) -> f64 = sum(for i => {body})"
    m = difflang.loads("float f64\n" + source, name="lookups")
    table, places = RNG.normal(size=100), RNG.integers(0, 98, 50).astype(np.int32)
    gradient = m.f.grad("t")
    assert largest(gradient.lower(table, places).graph) <= 100
    np.testing.assert_allclose(gradient(table, places), gradient.interpret(table, places), rtol=1e-14)
    direction, h = RNG.normal(size=100), 0.5
    ends = [float(m.f(table + s * direction, places)) for s in (h, -h)]
    np.testing.assert_allclose(np.vdot(gradient(table, places), direction), ends[0] - ends[1], rtol=1e-11)


def test_a_branch_not_taken_reads_and_fails_nowhere() -> None:
    """Its lookup is done before it, at a place that may be out of range: no value and no gradient shows it."""
    source = "fn f(t: f64[n], p: i32[m]) -> f64 = sum(for i if p[i] >= 0 and p[i] < n => 1.0 / t[p[i]])"
    m = difflang.loads("float f64\n" + source, name="not_taken")
    table, places = np.array([0.0, 2.0, 0.0]), np.array([-1, 1, 7, -5, 1], np.int32)
    assert float(m.f(table, places)) == 1.0
    np.testing.assert_array_equal(m.f.grad("t")(table, places), [0.0, -0.5, 0.0])


KEPT = {
    "differences": ("x: f64[n], y: f64[m]", "sum(for i, j => (x[i] - y[j])^2)"),
    "a factor of its own size": ("x: f64[n], y: f64[n]", "sum(for i => x[i] * y[i])"),
    "a product with no sum in common": ("x: f64[n], y: f64[m]", "sum(for i, j => x[i] * y[j])"),
}


@pytest.mark.parametrize(("parameters", "body"), KEPT.values(), ids=KEPT)
def test_what_is_no_contraction_stays_a_sum(parameters: str, body: str) -> None:
    m = difflang.loads(f"float f64\nfn f({parameters}) -> f64 = {body}", name="kept")
    found = ops(m.f.lower(X, Y).graph)
    assert (found["dot_general"], found["reduce_sum"]) == (0, 1)


def test_no_factor_leaves_a_sum() -> None:
    """0 times Inf is NaN wherever it was before, and what a filter leaves out is not multiplied by 0 instead."""
    source = """
fn all(a: f64[n, m], x: f64[m]) -> f64[n] = [for i => sum(for j => a[i, j] * x[j])]
fn lower(a: f64[n, m], x: f64[m]) -> f64[n] = [for i in 0..n => sum(for j if j <= i => a[i, j] * x[j])]
fn scaled(a: f64[n, m], w: f64[n]) -> f64[n] = [for i => sum(for j => a[i, j] * w[i])]
"""
    m = difflang.loads("float f64\n" + source, name="nans")
    a, x = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([3.0, np.inf])
    np.testing.assert_array_equal(m["all"](a, x), [np.nan, np.inf])
    np.testing.assert_array_equal(m.lower(a, x), [3.0, np.inf])
    np.testing.assert_array_equal(m.scaled(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([1.0, np.inf])), [1.0, np.nan])


CHAIN = """float f64
fn chained(a: f64[n, m], b: f64[m, p], c: f64[p, q]) -> f64[n, q] {
  [for i, l => sum(for k => sum(for j => a[i, j] * b[j, k]) * c[k, l])]
}
fn layer(w: f64[n, m], x: f64[m, p]) -> f64 = sum(for i, k => relu(sum(for j => w[i, j] * x[j, k])))
fn chosen(w: f64[n, m], x: f64[m], c: f64[n]) -> f64 {
  sum(for i => where(c[i] > 0.0, sum(for j => w[i, j] * x[j]), 0.0))
}
"""


def test_sums_within_sums_are_contractions_of_contractions() -> None:
    m = difflang.loads(CHAIN, name="chain")
    assert ops(m.chained.lower(A, B, B.T).graph)["dot_general"] == 2
    np.testing.assert_allclose(m.chained(A, B, B.T), A @ B @ B.T, rtol=1e-13)


def test_a_gradient_that_leaves_terms_out_is_a_contraction_where_all_is_finite() -> None:
    m = difflang.loads(CHAIN, name="chain")
    gradient = m.layer.grad("w")
    assert ops(gradient.lower(A, B).graph) >= Counter({"dot_general": 2, "cond": 1})
    np.testing.assert_allclose(gradient(A, B), (A @ B > 0) @ B.T, rtol=1e-13)
    np.testing.assert_allclose(gradient.interpret(A, B), (A @ B > 0) @ B.T, rtol=1e-13)


def test_a_side_not_chosen_contributes_nothing_even_where_a_factor_is_infinite() -> None:
    m = difflang.loads(CHAIN, name="chain")
    w, x, c = np.array([[1.0, 2.0], [np.inf, 3.0]]), np.array([4.0, 5.0]), np.array([1.0, -1.0])
    np.testing.assert_array_equal(m.chosen.grad("x")(w, x, c), [1.0, 2.0])
    np.testing.assert_array_equal(m.chosen.grad("x").interpret(w, x, c), [1.0, 2.0])
    np.testing.assert_array_equal(m.chosen.grad("w")(w, np.array([np.inf, 5.0]), c), [[np.inf, 5.0], [0.0, 0.0]])
    finite = np.where(np.isfinite(w), w, 7.0)
    np.testing.assert_array_equal(m.chosen.grad("x")(finite, x, c), [1.0, 2.0])


MASKED = """float f64
fn rows(a: f64[k, d, d], x: f64[n, k, d]) -> f64[n, k, d] =
  [for i, c, p => sum(for j => where(p > j, a[c, p, j] * x[i, c, j], 0.0))]
fn outer(x: f64[n, k, d], y: f64[n, k, d]) -> f64[k, d, d] =
  [for c, p, j => sum(for i => where(p > j, x[i, c, p] * y[i, c, j], 0.0))]
"""


def test_a_mask_of_what_is_not_summed_is_applied_to_the_contraction() -> None:
    m: Any = difflang.loads(MASKED)
    x, y = RNG.normal(size=(2, 40, 3, 12))
    text = m.outer.ir("optimized", x, y)
    assert text.count("= dot_general ") == 1
    assert "= cond " not in text
    x[0, 0, 0] = np.inf
    np.testing.assert_allclose(m.outer(x, y), m.outer.interpret(x, y), rtol=1e-12)


def test_a_masked_product_with_a_factor_as_large_is_summed_where_it_is_made() -> None:
    """To mask that factor, or to ask whether it is finite, would cost as much as to add the terms up."""
    body = "[for j => sum(for i if x[i] > 0.0 => a[i, j] * x[i])]"
    m: Any = difflang.loads(f"float f64\nfn f(a: f64[n, m], x: f64[n]) -> f64[m] = {body}")
    a, x = RNG.normal(size=(2000, 5)), RNG.normal(size=2000)
    found = ops(m.f.lower(a, x).graph)
    assert (found["dot_general"], found["cond"], found["reduce_sum"]) == (0, 0, 1)
    np.testing.assert_allclose(m.f(a, x), np.maximum(x, 0.0) @ a, rtol=1e-12)
    x[0], x[1], a[1] = np.inf, -1.0, np.nan
    np.testing.assert_allclose(m.f(a, x), m.f.interpret(a, x), rtol=1e-12)


SUMS_BEFORE = {
    "rows": "sum(a @ b, axis = 0)",
    "columns": "sum(-(a @ b), axis = 1)",
    "both": "sum(a @ b)",
    "of a transpose": "sum(transpose(a @ b), axis = 1)",
}


@pytest.mark.parametrize("body", SUMS_BEFORE.values(), ids=SUMS_BEFORE)
def test_what_is_summed_after_a_contraction_is_summed_before_it(body: str) -> None:
    result = "f64[n]" if "axis" in body else "f64"
    m: Any = difflang.loads(f"float f64\nfn f(a: f64[n, n], b: f64[n, n]) -> {result} = {body}")
    a, b = RNG.normal(size=(2, 60, 60))
    assert largest(m.f.lower(a, b).graph) <= 60
    np.testing.assert_allclose(m.f(a, b), m.f.interpret(a, b), rtol=1e-10)
    a[3, 4], b[7, 8] = np.inf, np.nan
    np.testing.assert_array_equal(np.isnan(m.f(a, b)), np.isnan(m.f.interpret(a, b)))


@pytest.mark.parametrize("terms", [0, 1 << 18])
def test_masked_terms_are_added_item_by_item_where_a_factor_is_infinite(
    terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_contractions, "MAX_TERMS", terms)
    m: Any = difflang.loads(MASKED)
    a, x = RNG.normal(size=(3, 12, 12)), RNG.normal(size=(40, 3, 12))
    text = m.rows.ir("optimized", a, x)
    assert text.count("= dot_general ") == 1
    assert text.count("= loop ") == (terms == 0)
    for number in (1.0, np.inf, np.nan):
        x[1, 2, 5] = number
        np.testing.assert_allclose(m.rows(a, x), m.rows.interpret(a, x), rtol=1e-12, atol=1e-14)
