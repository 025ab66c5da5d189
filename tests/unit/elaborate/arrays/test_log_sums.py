"""`logsumexp`, `logaddexp` and `log_softmax`: small terms, impossible events, and what is built of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import difflang

SMALL = math.log1p(math.exp(-20.0))
TAILS = """
fn two(x: T, y: T) -> T = logaddexp(x, y)
fn several(x: T[n]) -> T = logsumexp(x)
fn shares(x: T[n]) -> T[n] = log_softmax(x)
fn curve(x: T, y: T) -> T = grad[y](|x: T, y: T| grad[x](two)(x, y))(x, y)
"""


@pytest.mark.parametrize(("dtype", "rtol"), [("f64", 1e-15), ("f32", 3e-7)])
def test_a_small_term_beside_a_large_one_keeps_its_digits(dtype: str, rtol: float) -> None:
    m = difflang.loads(TAILS.replace("T", dtype))
    kind = {"f64": np.float64, "f32": np.float32}[dtype]
    x, y = kind(0), kind(-20)
    rest = math.exp(-20.0) / (1 + math.exp(-20.0)) ** 2
    found = [m.two(x, y), m.two(y, x), m.several(np.array([y, x])), -np.asarray(m.shares(np.array([x, y])))[0]]
    found.append(-np.asarray(m.curve(x, y)))
    np.testing.assert_allclose(np.array(found, np.float64), [SMALL, SMALL, SMALL, SMALL, rest], rtol=rtol)


def test_ties_at_the_top_are_all_counted() -> None:
    m = difflang.loads("float f64\nfn f(x: f64[n, k]) -> f64[k] = logsumexp(x, axis = 0)\n")
    x = np.array([[3.0, 1.0, np.inf], [3.0, -np.inf, 0.0], [3.0, 1.0, 1.0]])
    np.testing.assert_allclose(m.f(x), [3 + math.log(3), 1 + math.log(2), np.inf], rtol=1e-15)


IMPOSSIBLE = """float f64
fn sums(x: f64[n]) -> f64 = logsumexp(x)
fn slopes(x: f64[n]) -> f64[n] = grad(sums)(x)
fn pair(x: f64[2]) -> f64 = logaddexp(x[0], x[1])
fn pair_slopes(x: f64[2]) -> f64[2] = grad(pair)(x)
"""


def test_a_sum_of_nothing_has_slope_zero() -> None:
    """It stays 0, and its logarithm -Inf, however the terms move."""
    m = difflang.loads(IMPOSSIBLE)
    none = np.array([-np.inf, -np.inf])
    assert float(m.sums(none)) == float(m.pair(none)) == -np.inf
    np.testing.assert_array_equal([m.slopes(none), m.pair_slopes(none)], np.zeros((2, 2)))
    np.testing.assert_array_equal(m.slopes(np.array([1.0, -np.inf])), [1, 0])
    np.testing.assert_array_equal(m.pair_slopes(-none), [0.5, 0.5])


CTC = """float f64
fn ctc(logits: f64[t, k], label: i32[l]) -> f64 where t > 0 and l > 0 {
  let lp = log_softmax(logits, axis = 1)
  var a = fill(2 * l + 1, -inf)
  a[0] = lp[0, 0]
  a[1] = lp[0, label[0]]
  for i in 1..t {
    let b = a
    a = [for s in 0..2 * l + 1 => {
      let c = if s % 2 == 0 { 0 } else { label[s // 2] }
      let one = if s > 0 { b[max(s - 1, 0)] } else { -inf }
      let two = if s > 1 and s % 2 == 1 and label[s // 2] != label[max(s // 2 - 1, 0)] {
        b[max(s - 2, 0)]
      } else { -inf }
      lp[i, c] + logaddexp(logaddexp(b[s], one), two)
    }]
  }
  -logaddexp(a[2 * l], a[2 * l - 1])
}
fn slope(logits: f64[t, k], label: i32[l]) -> f64[t, k] where t > 0 and l > 0 = grad(ctc)(logits, label)
"""


def test_a_label_that_cannot_be_has_an_infinite_loss_and_no_gradient() -> None:
    m = difflang.loads(CTC)
    logits = np.random.default_rng(0).normal(size=(2, 4))
    assert float(m.ctc(logits, np.array([1, 1], np.int32))) == np.inf
    np.testing.assert_array_equal(m.slope(logits, np.array([1, 1], np.int32)), np.zeros((2, 4)))
    possible = np.asarray(m.slope(logits, np.array([1, 2], np.int32)))
    assert np.isfinite(possible).all() and (possible != 0).any()


MARKOV = """float f64
fn log_seen(start: f64[k], step: f64[k, k], seen: f64[n, k]) -> f64 {
  var a = start + seen[0]
  for t in 1..n { a = seen[t] + logsumexp(a[.., newaxis] + step, axis = 0) }
  logsumexp(a)
}
fn in_step(start: f64[k], step: f64[k, k], seen: f64[n, k]) -> f64[k, k] = grad[step](log_seen)(start, step, seen)
fn along(start: f64[k], step: f64[k, k], seen: f64[n, k], d: f64[k, k]) -> f64[k, k] =
  hvp(|s| log_seen(start, s, seen))(step, d)
"""


def test_a_markov_chain_with_impossible_states_and_steps() -> None:
    """The gradient in a log-probability is the expected number of steps: n - 1 together, none that is forbidden."""
    m = difflang.loads(MARKOV)
    with np.errstate(divide="ignore"):
        step = np.log(np.array([[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]]))
        start = np.log(np.array([1.0, 0.0, 0.0]))
    seen = np.random.default_rng(1).normal(size=(6, 3)) - 30
    found = np.asarray(m.in_step(start, step, seen))
    assert found[step == -np.inf].tolist() == [0, 0, 0, 0] and abs(found.sum() - 5) < 1e-13
    assert np.isfinite(np.asarray(m.along(start, step, seen, np.where(step > -np.inf, 1.0, 0.0)))).all()
    impossible = np.where(np.arange(3) == 0, -np.inf, seen)
    assert float(m.log_seen(start, step, impossible)) == -np.inf
    np.testing.assert_array_equal(m.in_step(start, step, impossible), np.zeros((3, 3)))
