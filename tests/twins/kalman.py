"""examples/kalman.dfl in JAX: a body that is pushed about in a plane, and seen not quite where it is."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WRT = "p"


class Belief(NamedTuple):
    """The mean place and speed, a row each, and their covariance."""

    mean: jax.Array | np.ndarray  # [2, 2]
    cov: jax.Array | np.ndarray  # [2, 2]


def loss(p: jax.Array, start: Belief, seen: jax.Array, dt: float) -> jax.Array:
    """Minus the logarithm of the likelihood of what was seen."""
    strength, blur = jnp.exp(p)
    motion = jnp.array([[1.0, dt], [0.0, 1.0]])
    push = strength**2 * jnp.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])

    def step(b: Belief, z: jax.Array) -> tuple[Belief, jax.Array]:
        mean, cov = motion @ b.mean, motion @ b.cov @ motion.T + push
        error, spread = z - mean[0], cov[0, 0] + blur**2
        surprise = jnp.sum(error**2 / spread + jnp.log(2 * jnp.pi * spread)) / 2
        gain = cov[:, 0] / spread
        return Belief(mean + jnp.outer(gain, error), cov - jnp.outer(gain, cov[0])), surprise

    return jnp.sum(jax.lax.scan(step, start, seen)[1])


def arguments(dtype: type = np.float64, count: int = 60) -> tuple[np.ndarray, Belief, np.ndarray, np.ndarray]:
    """Levels that are no special point, and a random walk."""
    rng = np.random.default_rng(4)
    seen = np.cumsum(rng.standard_normal((count, 2)), axis=0) + 0.5 * rng.standard_normal((count, 2))
    start = Belief(np.zeros((2, 2), dtype), np.diag([100.0, 100.0]).astype(dtype))
    return np.array([0.3, -0.4], dtype), start, seen.astype(dtype), np.asarray(0.5, dtype)
