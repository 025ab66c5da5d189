"""examples/digits.dfl in JAX: a network with one hidden layer on 8 × 8 images of digits."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twins.data import table

WRT = "m"


class Mlp(NamedTuple):
    """Two layers."""

    w1: jax.Array | np.ndarray  # [d, h]
    b1: jax.Array | np.ndarray  # [h]
    w2: jax.Array | np.ndarray  # [h, k]
    b2: jax.Array | np.ndarray  # [k]


def logits(m: Mlp, x: jax.Array) -> jax.Array:
    return jnp.maximum(x @ m.w1 + m.b1, 0) @ m.w2 + m.b2


def cross_entropy(z: jax.Array, label: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(z, label[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - picked)


def loss(m: Mlp, x: jax.Array, label: jax.Array) -> jax.Array:
    """The mean cross-entropy of a batch."""
    return cross_entropy(logits(m, x), label)


def images(dtype: type, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first images, with pixels in [0, 1], and their digits."""
    data = table("digits.csv")[:count]
    return (data[:, :64] / 16).astype(dtype), data[:, 64].astype(np.int32)


def arguments(dtype: type = np.float64, batch: int = 64, hidden: int = 64) -> tuple[Mlp, np.ndarray, np.ndarray]:
    """A random network and one batch."""
    x, label = images(dtype, batch)
    rng = np.random.default_rng(2)

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * np.sqrt(2 / shape[0])).astype(dtype)

    return Mlp(w1=draw(64, hidden), b1=0.1 * draw(hidden), w2=draw(hidden, 10), b2=0.1 * draw(10)), x, label
