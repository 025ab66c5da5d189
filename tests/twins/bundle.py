"""examples/bundle.dfl in JAX: what cameras see of points, and how far that is from what they saw."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jl
import numpy as np

WRT = "s"


class Scene(NamedTuple):
    """Small turns and shifts of cameras from where they are thought to be, and points."""

    turns: jax.Array | np.ndarray  # [c, 3]
    shifts: jax.Array | np.ndarray  # [c, 3]
    points: jax.Array | np.ndarray  # [n, 3]


def rotation(v: jax.Array) -> jax.Array:
    """By the exponential of the matrix of the cross product."""
    x, y, z = v
    zero = jnp.zeros_like(x)
    return jl.expm(jnp.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]]))


def loss(s: Scene, places: jax.Array, axes: jax.Array, seen: jax.Array, noise: jax.Array) -> jax.Array:
    """Half the sum of the squares of what is off, in units of the noise."""

    def view(turn: jax.Array, shift: jax.Array, place: jax.Array, axis: jax.Array) -> jax.Array:
        at = (s.points - (place + shift)) @ (rotation(turn) @ axis).T
        return 800.0 * at[:, :2] / at[:, 2:] + jnp.array([320.0, 240.0])

    views = jax.vmap(view)(jnp.asarray(s.turns), jnp.asarray(s.shifts), jnp.asarray(places), jnp.asarray(axes))
    return jnp.sum(((views - seen) / noise) ** 2) / 2


def arguments(dtype: type = np.float64) -> tuple[Scene | np.ndarray, ...]:
    """Three cameras that look along the third axis at five points, and pixels that are some way off."""
    rng = np.random.default_rng(17)
    s = Scene(*(scale * rng.standard_normal(shape) for scale, shape in ((0.1, (3, 3)), (0.2, (3, 3)), (0.5, (5, 3)))))
    places = np.array([[0.0, 0.1, -6.0], [0.5, -0.2, -5.5], [-0.4, 0.3, -6.5]])
    seen = np.array([320.0, 240.0]) + 60 * rng.standard_normal((3, 5, 2))
    axes = np.stack([np.eye(3)] * 3)
    rest = (places, axes, seen, np.asarray(20.0))
    return Scene(*(x.astype(dtype) for x in s)), *(x.astype(dtype) for x in rest)
