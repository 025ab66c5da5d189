"""Two programs moved over: a classifier of flax with its loss in the language, and fits of SciPy by its derivatives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
from flax import nnx

import difflang

ROOT = Path(__file__).resolve().parents[3]
STEPS = 20


class Classifier(nnx.Module):
    """A small network of flax for images of 8 by 8."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden, self.out = nnx.Linear(64, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.out(nnx.relu(self.hidden(x)))


def test_a_classifier_of_flax_with_our_loss_has_the_curve_of_pure_flax() -> None:
    rows = np.loadtxt(
        ROOT / "examples" / "data" / "digits.csv", delimiter=",", dtype=np.float32, max_rows=512, skiprows=1
    )
    x, label = rows[:, :64] / 16, rows[:, 64].astype(np.int32)
    ours = difflang.loads("""
fn loss(z: f32[n, c], label: i32[n]) -> f32 = mean([for i => logsumexp(z[i]) - z[i, label[i]]])
""").loss
    theirs = lambda z, label: optax.softmax_cross_entropy_with_integer_labels(z, label).mean()

    def curve(loss: Any) -> list[float]:
        model = Classifier(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)

        @nnx.jit
        def step(model: Any, optimizer: Any, x: Any, label: Any) -> Any:
            value, slope = nnx.value_and_grad(lambda model: loss(model(x), label))(model)
            optimizer.update(model, slope)
            return value

        return [float(step(model, optimizer, x[k * 16 :][:64], label[k * 16 :][:64])) for k in range(STEPS)]

    mine, pure = curve(ours), curve(theirs)
    np.testing.assert_allclose(mine, pure, rtol=1e-5)
    assert mine[-1] < mine[0] / 2


@pytest.fixture(scope="module")
def fits() -> Any:
    return difflang.loads("""
fn valley(x: f64[n]) -> f64 = sum([for i in 0..n - 1 => 100 * (x[i + 1] - x[i]^2)^2 + (1 - x[i])^2])
fn wave(p: f64[4], t: f64[n], y: f64[n]) -> f64[n] = p[0] * exp(-p[1] * t) * sin(p[2] * t + p[3]) - y
""")


def test_minimize_of_scipy_with_our_gradient(fits: Any) -> None:
    start = np.full(20, -1.0)
    both = fits.valley.value_and_grad()
    found = scipy.optimize.minimize(lambda x: tuple(map(np.asarray, both(x))), start, jac=True, method="BFGS")
    assert found.success
    np.testing.assert_allclose(found.x, 1, atol=1e-5)
    plain = scipy.optimize.minimize(lambda x: float(fits.valley(x)), start, method="BFGS")
    assert found.nfev * 10 < plain.nfev


def test_least_squares_of_scipy_with_our_jacobian(fits: Any) -> None:
    t = np.linspace(0, 3, 200)
    y = np.asarray(fits.wave(np.array([2.0, 0.5, 4.0, 0.3]), t, np.zeros(200)))
    jacobian = fits.wave.jacobian("p")
    found = scipy.optimize.least_squares(
        lambda p: np.asarray(fits.wave(p, t, y)), [1.5, 0.3, 3.7, 0.0], jac=lambda p: np.asarray(jacobian(p, t, y))
    )
    np.testing.assert_allclose(found.x, [2.0, 0.5, 4.0, 0.3], rtol=1e-8)


def test_jacobians_of_jax_and_ours_agree_there(fits: Any) -> None:
    t = jnp.linspace(0.0, 3.0, 5, dtype=jnp.float32)
    with jax.enable_x64(True):
        t, p = t.astype(np.float64), jnp.array([2.0, 0.5, 4.0, 0.3])
        np.testing.assert_allclose(
            jax.jacrev(fits.wave)(p, t, t), fits.wave.jacobian("p").interpret(p, t, t), rtol=1e-10
        )
