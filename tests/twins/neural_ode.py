"""examples/neural_ode.dfl in JAX: a network that is the velocity of a flow, through steps of Runge and Kutta."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twins.vae_digits import Dense

WRT = "m"


class Flow(NamedTuple):
    """Two layers, from a place to its velocity."""

    up: Dense
    down: Dense


def velocity(m: Flow, y: jax.Array) -> jax.Array:
    return m.down(jnp.tanh(m.up(y)))


def rk4(m: Flow, y: jax.Array, h: jax.Array) -> jax.Array:
    k1 = velocity(m, y)
    k2 = velocity(m, y + h / 2 * k1)
    k3 = velocity(m, y + h / 2 * k2)
    k4 = velocity(m, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def loss(m: Flow, seen: jax.Array, step: jax.Array) -> jax.Array:
    """The mean squared distance of pieces of the path, all at once, each from its first point."""

    def onward(y: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return rk4(m, rk4(m, y, step / 2), step / 2), y

    _, path = jax.lax.scan(onward, seen[:, 0], None, length=seen.shape[1])
    return jnp.mean((path - seen.swapaxes(0, 1)) ** 2)


def arguments(dtype: type = np.float64, hidden: int = 8) -> tuple[Flow, np.ndarray, np.ndarray]:
    """A random flow, and three pieces of a spiral with five points each."""
    rng = np.random.default_rng(7)
    t = 0.3 * np.arange(15)
    spiral = np.stack([np.cos(t), np.sin(t)], axis=1) * np.exp(-0.1 * t)[:, None]
    m = Flow(up=Dense.drawn(rng, 2, hidden, dtype), down=Dense.drawn(rng, hidden, 2, dtype))
    return m, spiral.reshape(3, 5, 2).astype(dtype), np.asarray(0.3, dtype)
