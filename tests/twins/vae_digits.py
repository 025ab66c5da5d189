"""examples/vae_digits.dfl in JAX: a variational autoencoder of 8 × 8 images of digits."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twins.digits import images

WRT = "m"


class Dense(NamedTuple):
    """An affine map."""

    w: jax.Array | np.ndarray  # [i, o]
    b: jax.Array | np.ndarray  # [o]

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.w + self.b

    @classmethod
    def drawn(cls, rng: np.random.Generator, i: int, o: int, dtype: type) -> Dense:
        w = rng.standard_normal((i, o)) / np.sqrt(i)
        return cls(w=w.astype(dtype), b=(0.1 * rng.standard_normal(o)).astype(dtype))


class Vae(NamedTuple):
    """An encoder and a decoder with one hidden layer each."""

    look: Dense
    mean: Dense
    log_std: Dense
    think: Dense
    draw: Dense


def loss(m: Vae, x: jax.Array, noise: jax.Array) -> jax.Array:
    """The negative evidence bound of an image, at given noise."""
    seen = jax.nn.relu(m.look(x))
    mean, log_std = m.mean(seen), m.log_std(seen)
    z = m.draw(jax.nn.relu(m.think(mean + jnp.exp(log_std) * noise)))
    errors = -jnp.sum(x * jax.nn.log_sigmoid(z) + (1 - x) * jax.nn.log_sigmoid(-z))
    code = jnp.sum((jnp.exp(2 * log_std) + mean**2 - 1) / 2 - log_std)
    return (errors + code) / x.shape[0]


def arguments(
    dtype: type = np.float64, batch: int = 32, hidden: int = 24, size: int = 8
) -> tuple[Vae, np.ndarray, np.ndarray]:
    """A random model, one batch, and the noise of its codes."""
    x, _ = images(dtype, batch)
    rng = np.random.default_rng(4)
    pairs = ((64, hidden), (hidden, size), (hidden, size), (size, hidden), (hidden, 64))
    return Vae(*[Dense.drawn(rng, i, o, dtype) for i, o in pairs]), x, rng.standard_normal((batch, size)).astype(dtype)
