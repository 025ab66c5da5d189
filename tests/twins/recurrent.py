"""examples/recurrent.dfl in JAX: a gated recurrent unit that reads digits row by row."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twins.digits import cross_entropy, images
from twins.vae_digits import Dense

WRT = "m"


class Gru(NamedTuple):
    """Gates of reset, update and candidate side by side."""

    input: jax.Array | np.ndarray  # [i, 3 h]
    state: jax.Array | np.ndarray  # [h, 3 h]
    bias: jax.Array | np.ndarray  # [3 h]
    inner: jax.Array | np.ndarray  # [h]


class Reader(NamedTuple):
    """A cell, and what becomes of its last state."""

    cell: Gru
    out: Dense


def step(m: Gru, state: jax.Array, x: jax.Array) -> jax.Array:
    a = jnp.split(x @ m.input + m.bias, 3, axis=-1)
    b = jnp.split(state @ m.state, 3, axis=-1)
    reset, update = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
    return update * state + (1 - update) * jnp.tanh(a[2] + reset * (b[2] + m.inner))


def loss(m: Reader, x: jax.Array, label: jax.Array) -> jax.Array:
    """The mean cross-entropy of a batch, after the last row."""
    first = jnp.zeros((x.shape[0], m.cell.inner.shape[0]), x.dtype)
    last, _ = jax.lax.scan(lambda state, row: (step(m.cell, state, row), None), first, x.swapaxes(0, 1))
    return cross_entropy(m.out(last), label)


def arguments(dtype: type = np.float64, batch: int = 16, hidden: int = 12) -> tuple[Reader, np.ndarray, np.ndarray]:
    """A random network and one batch of images, [batch, row, column]."""
    x, label = images(dtype, batch)
    rng = np.random.default_rng(6)

    def draw(*shape: int) -> np.ndarray:
        return (0.4 * rng.standard_normal(shape)).astype(dtype)

    cell = Gru(input=draw(8, 3 * hidden), state=draw(hidden, 3 * hidden), bias=draw(3 * hidden), inner=draw(hidden))
    return Reader(cell=cell, out=Dense.drawn(rng, hidden, 10, dtype)), x.reshape(batch, 8, 8), label
