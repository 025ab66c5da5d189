"""A loop of each lane is one loop of all lanes: each ends where it would end by itself, and stays as it is then."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang import IndexFailure

HEADER = "float f64\n"
BODIES = {
    "each its own end": "var y = x\n while y < 20.0 {\n y = y * w[0] + sin(y)\n }\n y",
    "how many steps": "var y = x\n var k = 0\n while y < 20.0 {\n y = y * 1.5 + 1.0\n k += 1\n }\n f64(k)",
    "some take none": "var y = x\n while y > 1.0 {\n y = y / 2.0\n }\n y * y",
    "one end for all": "var y = x\n var k = w[0]\n while k < 5.0 {\n y = y * k\n k = k + w[1]\n }\n y + k",
    "a limit that all share": "var y = x\n for _ in 0..i32(w[0] + 2.0) {\n y = y * y - 0.3\n }\n y",
    "no number beyond the end": "var y = x\n while y >= 0.5 {\n y = sqrt(y - 0.5) * 0.9\n }\n y",
    "vectors": "var y = w * x\n while sum(y * y) < 50.0 {\n y = y * 1.3 + w\n }\n sum(y)",
    "a loop within": "var y = x\n while y < 20.0 {\n for _ in 0..3 {\n y = y * 1.1 + 0.2\n }\n }\n y",
    "a place of its own": "var k = 0\n while w[k] < x {\n k += 1\n }\n f64(k)",
}
KEPT = {
    "an end inside": "var y = x\n while true {\n y = y * 1.5 + 0.1\n if y > 7.0 { break }\n }\n y",
    "an open end within": "var y = x\n while y < 20.0 {\n while y < 2.0 {\n y = y + 0.4\n }\n y = y * 1.5\n }\n y",
    "a branch within": (
        "var y = x\n while y < 20.0 {\n if y > 3.0 { y = y * exp(0.1 * y) } else { y = y + 1.0 }\n }\n y"
    ),
}
X, W = np.array([0.3, 2.5, 40.0, 1.0]), np.array([1.5, 0.7, 60.0])


def module(body: str) -> Any:
    one = f"fn one(x: f64, w: f64[3]) -> f64 {{\n{body}\n}}\n"
    lanes = "fn f(x: f64[n], w: f64[3]) -> f64[n] = [for i => one(x[i], w)]\n"
    return difflang.loads(HEADER + one + lanes + "fn s(x: f64[n], w: f64[3]) -> f64 = sum(f(x, w)^2)\n", name="lanes")


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_lanes_end_one_by_one(body: str) -> None:
    m = module(body)
    assert " = map " not in m.f.ir("optimized", X, W)
    found = m.f(X, W)
    np.testing.assert_allclose(found, m.f.interpret(X, W), rtol=1e-12)
    np.testing.assert_allclose(found, [m.one(x, W) for x in X], rtol=1e-12)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_so_do_their_gradients(body: str) -> None:
    m = module(body)
    gradient = m.s.grad(("x", "w"))
    found, wanted = gradient(X, W), gradient.interpret(X, W)
    np.testing.assert_allclose(found.x, wanted.x, rtol=1e-10)
    np.testing.assert_allclose(found.w, wanted.w, rtol=1e-10)
    assert np.isfinite(wanted.x).all()


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_what_might_not_end_beyond_its_end_is_done_in_lanes(body: str) -> None:
    m = module(body)
    assert " = map " in m.f.ir("optimized", X, W)
    np.testing.assert_allclose(m.f(X, W), m.f.interpret(X, W), rtol=1e-12)


def test_no_lanes_and_one() -> None:
    m = module(BODIES["each its own end"])
    assert m.f(X[:0], W).shape == (0,)
    np.testing.assert_allclose(m.f(X[:1], W), [m.one(X[0], W)], rtol=1e-12)


def test_a_lane_that_goes_beyond_its_array_is_told_of() -> None:
    m = module(BODIES["a place of its own"])
    with pytest.raises(IndexFailure, match="3"):
        m.f(np.array([1.0, 70.0]), W)


DRAWS = """
fn walk(k: key, p: f64, x: f64) -> f64 = with_key(k) {
  var s = x
  while uniform() < p { s = sin(s) + x }
  s
}
fn walks(k: key, p: f64[n], x: f64) -> f64[n] = [for i => walk(k, p[i], x)]
"""


@pytest.mark.parametrize("word", range(4))
def test_a_lane_that_has_ended_is_over(word: int) -> None:
    """Its condition draws by the number of its own step: of another step's it might be let go on."""
    m: Any = difflang.loads(HEADER + DRAWS, name="draws")
    key, p = np.array([0, word], np.uint32), np.array([0.3, 0.6, 0.8, 0.9])
    alone = [float(m.walk(key, q, 0.5)) for q in p]
    np.testing.assert_allclose(m.walks(key, p, 0.5), alone, rtol=1e-12)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.vmap(lambda q: m.walk(key, q, 0.5))(p), alone, rtol=1e-12)
