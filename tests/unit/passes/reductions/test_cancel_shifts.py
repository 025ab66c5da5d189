"""An extremum on which no result depends has no derivative; one on which a result depends keeps it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang

CANCEL = {
    "log-sum-exp": "let m = max(x)\n m + log(sum(exp(x - m)))",
    "softmax": "let m = max(x)\n let e = exp(x - m)\n sum(e / sum(e) * w)",
    "log-softmax": "let m = max(x)\n let z = x - m\n sum((z - log(sum(exp(z)))) * w)",
    "temperature": "let m = max(x)\n m + 0.25 * log(mean(exp((x - m) / 0.25)))",
    "two numbers": "let m = max(x[0], x[1])\n m + log(exp(x[0] - m) + exp(x[1] - m))",
    "rows": "let s = [for i, j => x[i] * w[j]]\n let m = max(s, axis = 1)\n"
    " sum(m + log([for i => sum(for j => exp(s[i, j] - m[i]))]))",
    "product with weights": "let s = [for i, j => x[i] * w[j]]\n let e = exp(s - max(s, axis = 1)[.., newaxis])\n"
    " sum((e @ w) / sum(e, axis = 1))",
    "masked": "let m = max(x)\n m + log(sum(where(w > 0.0, exp(x - m), 0.0)))",
    "least": "let m = min(x)\n m - log(sum(exp(m - x)))",
}
STAY = {
    "one more term": "let m = max(x)\n m + log(1.0 + sum(exp(x - m)))",
    "not added": "let m = max(x)\n log(sum(exp(x - m)))",
    "twice": "let m = max(x)\n 2.0 * m + log(sum(exp(x - m)))",
    "a variable temperature": "let m = max(x)\n m + w[0] * log(sum(exp((x - m) / w[1])))",
    "sums over the shift": "let s = [for i, j => x[i] * w[j]]\n sum(exp(s - max(s, axis = 1)[.., newaxis]))",
    "read besides": "let m = max(x)\n (m + log(sum(exp(x - m)))) * m",
    "pairs": "let m = max(x, w)\n sum(for i, j => (m[i] - m[j])^2)",
    "pairs of rows": "let a = [for i, j => x[i] * w[j]]\n sum(for i, j => exp(max(a[i]) - max(a[j])))",
    "greatest of pairs": "let m = max(x, 0.1)\n max(for i in 0..n, j in 0..n => abs(m[i] - m[j]))",
    "weighted pairs": "let a = [for i, j => x[i] * w[j]]\n let m = max(a, axis = 1)\n"
    " sum(for i, j => a[i, j]^2 * (m[i] - m[j]))",
    "factors of pairs": "let a = [for i, j => x[i] * w[j]]\n let m = max(a, axis = 1)\n"
    " sum(for i, j => exp(a[i, j] - m[i]) * exp(m[j]))",
    "transpose": "let a = [for i, j => x[i] * w[j]]\n let m = max(a, 0.1)\n"
    " sum(for i, j => exp(a[i, j] - m[i, j] + m[j, i]))",
}
R = np.random.default_rng(1)
X, W = R.normal(size=5), R.normal(size=5) + 0.5


def gradient(body: str) -> Any:
    source = f"float f64\nfn f(x: f64[n], w: f64[n]) -> f64 where n > 1 {{\n {body}\n}}\n"
    return difflang.loads(source, name="shift").f.grad(("x", "w"))


@pytest.mark.parametrize("body", CANCEL.values(), ids=CANCEL)
def test_shifts_that_cancel(body: str) -> None:
    found = gradient(body)
    assert " = stop " in found.ir("optimized", X, W)
    value, wanted = found(X, W), found.interpret(X, W)
    np.testing.assert_allclose(value.x, wanted.x, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(value.w, wanted.w, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("body", STAY.values(), ids=STAY)
def test_shifts_that_count(body: str) -> None:
    found = gradient(body)
    assert " = stop " not in found.ir("optimized", X, W)
    np.testing.assert_allclose(found(X, W).x, found.interpret(X, W).x, rtol=1e-12)


def test_second_derivatives() -> None:
    body = CANCEL["log-sum-exp"].replace("\n", "\n ")
    source = f"""float f64
fn f(x: f64[n]) -> f64 where n > 0 {{
  {body}
}}
fn h(x: f64[n], v: f64[n]) -> f64[n] where n > 0 {{
  let (_, along) = jvp(grad(f))(x, v)
  along
}}
"""
    p = np.exp(X) / np.exp(X).sum()
    np.testing.assert_allclose(difflang.loads(source).h(X, W), p * W - p * (p @ W), rtol=1e-12)
