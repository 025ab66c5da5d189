"""examples/cart_pole.dfl in JAX: a controller with four gains, in the simulation that it is trained in."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

WRT = "gain"


def motion(state: jax.Array, push: jax.Array) -> jax.Array:
    _, angle, speed, turning = state
    pull = (push + 0.05 * turning**2 * jnp.sin(angle)) / 1.1
    turn = (9.81 * jnp.sin(angle) - pull * jnp.cos(angle)) / (2 / 3 - 0.05 * jnp.cos(angle) ** 2 / 1.1)
    return jnp.array([speed, turning, pull - 0.05 / 1.1 * turn * jnp.cos(angle), turn])


def ride(gain: jax.Array, start: jax.Array, k: int) -> jax.Array:
    h = 0.04

    def step(s: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        push = 10 * jnp.tanh(gain @ s)
        k1 = motion(s, push)
        k2 = motion(s + h / 2 * k1, push)
        k3 = motion(s + h / 2 * k2, push)
        k4 = motion(s + h * k3, push)
        after = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return after, after

    return jax.lax.scan(step, start, None, length=k)[1]


def loss(gain: jax.Array, starts: jax.Array, k: int) -> jax.Array:
    """How far pole and cart are off, and how fast they are, over k pushes."""
    x, angle, speed, turning = jnp.moveaxis(jax.vmap(lambda start: ride(gain, start, k))(starts), -1, 0)
    return jnp.mean(1 - jnp.cos(angle) + 0.05 * x**2 + 0.01 * (speed**2 + turning**2))


def arguments(dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray, int]:
    """Gains that nearly balance the pole, three beginnings, and one second of pushes."""
    starts = 0.3 * np.random.default_rng(9).standard_normal((3, 4))
    return np.array([-0.2, 1.2, 0.3, 0.8], dtype), starts.astype(dtype), 25
