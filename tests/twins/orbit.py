"""examples/orbit.dfl in JAX: three bodies that pull on each other, and how far their path is from sightings."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WRT = "b"


class Bodies(NamedTuple):
    """Places and velocities, a row for each body."""

    x: jax.Array | np.ndarray  # [n, 2]
    v: jax.Array | np.ndarray  # [n, 2]


def pull(m: jax.Array, x: jax.Array) -> jax.Array:
    """The acceleration of each body; what each would do to itself is left out."""
    apart = x[None] - x[:, None]
    distance = jnp.sqrt(jnp.sum(apart**2, axis=2) + jnp.eye(len(x)))
    return jnp.sum(m[:, None] * apart / distance[:, :, None] ** 3, axis=1)


def loss(b: Bodies, m: jax.Array, seen: jax.Array, noise: float, leaps: int, dt: float) -> jax.Array:
    """Half the sum of the squares of what is off, in units of the noise; every state is kept."""

    def leap(state: Bodies, _: None) -> tuple[Bodies, None]:
        half = state.v + dt / 2 * pull(m, state.x)
        x = state.x + dt * half
        return Bodies(x, half + dt / 2 * pull(m, x)), None

    def interval(state: Bodies, _: None) -> tuple[Bodies, jax.Array]:
        return jax.lax.scan(leap, state, None, length=LEAPS)[0], state.x

    places = jax.lax.scan(interval, b, None, length=len(seen))[1]
    return jnp.sum(((places - seen) / noise) ** 2) / 2


LEAPS = 10


def arguments(dtype: type = np.float64, count: int = 8) -> tuple[Bodies | np.ndarray, ...]:
    """Three bodies, and sightings that do not fit them."""
    x = np.array([[0.0, 0.1], [1.0, 0.0], [-1.8, 0.6]], dtype)
    v = np.array([[0.1, -0.04], [0.05, 1.02], [-0.2, -0.7]], dtype)
    seen = x + np.random.default_rng(5).standard_normal((count, 3, 2)).astype(dtype)
    masses = np.array([1.0, 0.05, 0.02], dtype)
    return Bodies(x, v), masses, seen, np.asarray(0.1, dtype), np.int32(LEAPS), np.asarray(0.02, dtype)
