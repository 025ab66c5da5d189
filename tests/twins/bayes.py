"""examples/bayes.dfl in JAX: minus the logarithm of the density of coefficients, given noisy points."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WRT = "w"


class Beliefs(NamedTuple):
    """The noise of the data, and how large coefficients are before any are seen."""

    noise: jax.Array | np.ndarray
    width: jax.Array | np.ndarray


def surprise(off: jax.Array, std: jax.Array | np.ndarray) -> jax.Array:
    return jnp.sum((off / std) ** 2 / 2 + jnp.log(std) + jnp.log(2 * jnp.pi) / 2)


def loss(w: jax.Array, b: Beliefs, x: jax.Array, y: jax.Array) -> jax.Array:
    return surprise(w, b.width) + surprise(y - x @ w, b.noise)


def arguments(dtype: type = np.float64) -> tuple[np.ndarray | Beliefs, ...]:
    """Twelve points of a cubic, and coefficients that are not its own."""
    rng = np.random.default_rng(16)
    x = np.vander(np.linspace(-1, 1, 12), 4, increasing=True).astype(dtype)
    b = Beliefs(np.asarray(0.3, dtype), np.asarray(2.0, dtype))
    return rng.standard_normal(4).astype(dtype), b, x, rng.standard_normal(12).astype(dtype)
