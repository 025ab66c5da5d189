"""Extrema are differentiated at the selected elements: the same derivatives, also at ties, NaN and zeros times Inf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.passes.reductions import index_extrema as passes

PROGRAMS = {
    "nearest": "sum(for i => min(for j => sum((x[i] - c[j])^2)))",
    "farthest": "sum(for i => max(for j => sum(abs(x[i] - c[j]))^1.5))",
    "products": "sum(for i => max(for j => dot(x[i], c[j]) + sin(c[j, 0]))^2)",
    "matrix": "sum(max(exp(0.1 * (x @ transpose(c))), axis = 0)^2)",
    "both axes": "min(for i, j => sum((x[i] - 2.0 * c[j])^2))^2",
    "position": "sum(for i => min(for j => f64(j) * 0.01 + norm(x[i] - c[j])))",
    "in a loop": "walk(x, c)",
    "scaled": "sum(for i => min(for j => (x[i, 0] - sqrt(abs(c[j, 1])))^2))",
}
SOURCE = """float f64
fn walk(x: f64[n, d], c: f64[k, d]) -> f64 where k > 0 {
  var y = x
  for _ in 0..3 { y = y * 0.9 + 0.1 * [for i => min(for j => sum((y[i] - c[j])^2))][.., newaxis] }
  sum(y^2)
}
"""
R = np.random.default_rng(3)
X, C = R.normal(size=(12, 2)), R.normal(size=(5, 2))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MIN_BYTES", 1)
    monkeypatch.setattr(passes, "LEAST_GROWTH", 1)


def derivatives(body: str) -> tuple[Any, Any]:
    """A module whose `h` is a Hessian times a vector, and the gradient in both arguments."""
    source = SOURCE + f"fn f(x: f64[n, d], c: f64[k, d]) -> f64 where k > 0 = {body}\n"
    source += "fn h(x: f64[n, d], c: f64[k, d]) -> f64[k, d] where k > 0 {\n"
    source += "  let (_, along) = jvp(grad(|c| f(x, c)))(c, ones(k, d))\n  along\n}\n"
    module = difflang.loads(source, name="extrema")
    return module, module.f.grad(("x", "c"))


def gradients(body: str, x: Any = X, c: Any = C) -> tuple[list[Any], str]:
    """The gradient in both arguments, a Hessian times a vector, and the graph of the gradient, compiled."""
    module, both = derivatives(body)
    found = both(x, c)
    return [np.asarray(found.x), np.asarray(found.c), np.asarray(module.h(x, c))], both.ir("optimized", x, c)


def with_masks(body: str, x: Any = X, c: Any = C) -> list[Any]:
    module, both = derivatives(body)
    found = both.interpret(x, c)
    return [np.asarray(found.x), np.asarray(found.c), np.asarray(module.h.interpret(x, c))]


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_the_derivatives_are_those_of_masks(body: str) -> None:
    found, text = gradients(body)
    assert "unique_position" in text
    for a, b in zip(found, with_masks(body), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("body", [PROGRAMS[name] for name in ("nearest", "matrix", "both axes")])
def test_ties_share_the_derivative(body: str) -> None:
    c = np.concatenate([C, C[:2], C[:1]])
    for a, b in zip(gradients(body, X, c)[0], with_masks(body, X, c), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(bad: float) -> None:
    c = C.copy()
    c[1, 0] = bad
    for body in (PROGRAMS["nearest"], PROGRAMS["matrix"]):
        with np.errstate(all="ignore"):
            for a, b in zip(gradients(body, X, c)[0], with_masks(body, X, c), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_elements_that_are_not_selected_have_no_derivative() -> None:
    c = C.copy()
    c[:, 1] = [0.0, 1.0, 4.0, 9.0, 16.0]  # `sqrt` has no slope at 0, which no point selects
    x = np.full((12, 2), 3.0)
    found, _ = gradients("sum(for i => min(for j => (x[i, 0] - sqrt(c[j, 1]))^2 + c[j, 0]^2))", x, c)
    assert np.isfinite(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_only_the_selected_elements_are_computed_again() -> None:
    _, text = gradients(PROGRAMS["nearest"])
    then = text[text.index("cond") :]
    assert "12, 5" not in then[: then.index("checkpoint")]


def test_values_and_small_arrays_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCE + f"fn f(x: f64[n, d], c: f64[k, d]) -> f64 where k > 0 = {PROGRAMS['nearest']}\n"
    module = difflang.loads(source, name="values")
    assert "unique_position" not in module.f.ir("optimized", X, C)
    monkeypatch.setattr(passes, "MIN_BYTES", 1 << 15)
    assert "unique_position" not in module.f.grad("c").ir("optimized", X, C)


def test_f32() -> None:
    source = "fn f(x: f32[n, d], c: f32[k, d]) -> f32 where k > 0 = " + PROGRAMS["nearest"] + "\n"
    x, c = X.astype(np.float32), C.astype(np.float32)
    found = difflang.loads(source, name="narrow").f.grad("c")(x, c)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, with_masks(PROGRAMS["nearest"])[1], rtol=1e-4)
