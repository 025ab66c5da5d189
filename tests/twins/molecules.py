"""examples/molecules.dfl in JAX: the energy of atoms in a box whose sides are joined."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ENTRY = "energy"
WRT = "x"


class Box(NamedTuple):
    """How long its sides are, and how far atoms feel each other."""

    side: float | np.ndarray
    reach: float | np.ndarray


def loss(x: jax.Array, box: Box) -> jax.Array:
    """Lennard and Jones, moved so that energy and slope in 1 / r² are 0 at the reach."""
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] - x[second]
    nearest = apart - box.side * jnp.round(apart / box.side)
    s, edge = 1 / jnp.sum(nearest**2, axis=1), 1 / box.reach**2

    def well(s: jax.Array) -> jax.Array:
        return 4 * (s**6 - s**3)

    bonds = well(s) - well(edge) - (24 * edge**5 - 12 * edge**2) * (s - edge)
    return jnp.sum(jnp.where(s > edge, bonds, 0))


def arguments(dtype: type = np.float64) -> tuple[np.ndarray, Box]:
    """A lattice of 27 atoms, disturbed."""
    places = 1.2 * np.stack(np.meshgrid(*[np.arange(3.0)] * 3), axis=-1).reshape(27, 3)
    places += 0.1 * np.random.default_rng(6).standard_normal(places.shape)
    return places.astype(dtype), Box(np.asarray(3.6, dtype), np.asarray(1.7, dtype))
