"""examples/lens.dfl in JAX: rays through six surfaces, and how far they are from meeting in points."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WRT = "l"


class Lens(NamedTuple):
    """Curvatures of surfaces from front to back, and how far it is from each to the next, or to the image."""

    curvature: jax.Array | np.ndarray  # [n]
    distance: jax.Array | np.ndarray  # [n]


def bent(place: jax.Array, way: jax.Array, c: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Places and directions, rows [along the axis, off it], after a sphere of curvature c through 0, by Snell's law."""
    start = place - place[0] / way[0] * way
    b = way[0] - c * start[1] * way[1]
    length = c * start[1] ** 2 / (b + jnp.sqrt(b**2 - (c * start[1]) ** 2))
    met = start + length * way
    normal = jnp.stack([1 - c * met[0], -c * met[1]])
    into = jnp.sum(way * normal, axis=0)
    return met, k * way + (jnp.sqrt(1 - k**2 * (1 - into**2)) - k * into) * normal


def loss(l: Lens, index: jax.Array, heights: jax.Array, angles: jax.Array, focus: jax.Array) -> jax.Array:  # noqa: E741
    """The mean squares of what rays are off, of all directions together."""

    def spot(angle: jax.Array) -> jax.Array:
        place = jnp.stack([jnp.zeros_like(heights), heights])
        way = jnp.stack([jnp.cos(angle) * jnp.ones_like(heights), jnp.sin(angle) * jnp.ones_like(heights)])
        for i in range(len(l.curvature)):
            place, way = bent(place, way, l.curvature[i], index[i] / index[i + 1])
            place = place - jnp.stack([l.distance[i], jnp.zeros(())])[:, None]
        image = place[1] - place[0] * way[1] / way[0]
        return jnp.mean((image - focus * jnp.tan(angle)) ** 2)

    return jnp.sum(jax.vmap(spot)(jnp.asarray(angles)))


def arguments(dtype: type = np.float64) -> tuple[Lens | np.ndarray, ...]:
    """The lens that the example begins with."""
    curvature = np.array([0.045, 0.0, -0.045, 0.045, 0.0, -0.045], dtype)
    distance = np.array([3.0, 6.0, 1.0, 6.0, 3.0, 42.0], dtype)
    index = np.array([1.0, 1.62, 1.0, 1.617, 1.0, 1.62, 1.0], dtype)
    heights = np.linspace(-5, 5, 7).astype(dtype) + np.asarray(0.3, dtype)
    angles = np.array([0.02, 0.12, 0.24], dtype)
    return Lens(curvature, distance), index, heights, angles, np.asarray(50.0, dtype)
