"""examples/learned_rate.dfl in JAX: gradient descent on a logistic regression, differentiated in the rates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from twins import logistic
from twins.logistic import Model

WRT = "log_rate"


def surprise(m: Model, x: jax.Array, y: jax.Array) -> jax.Array:
    z = x @ m.w + m.b
    return jnp.mean(jnp.logaddexp(z, 0) - y * z)


def loss(log_rate: jax.Array, x: jax.Array, y: jax.Array, other_x: jax.Array, other_y: jax.Array) -> jax.Array:
    """How far the model that training ends with is off on other rows."""

    def step(m: Model, r: jax.Array) -> tuple[Model, None]:
        return jax.tree.map(lambda p, g: p - jnp.exp(r) * g, m, jax.grad(surprise)(m, x, y)), None

    first = Model(w=jnp.zeros(x.shape[1], x.dtype), b=jnp.zeros((), x.dtype))
    return surprise(jax.lax.scan(step, first, log_rate)[0], other_x, other_y)


def arguments(dtype: type = np.float64, steps: int = 8) -> tuple[np.ndarray, ...]:
    """Rates that differ, rows to learn from and other rows."""
    _, x, y = logistic.arguments(dtype)
    log_rate = np.random.default_rng(8).standard_normal(steps).astype(dtype)
    return log_rate, x[:200], y[:200], x[200:350], y[200:350]
