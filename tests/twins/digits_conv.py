"""examples/digits_conv.dfl in JAX: a small convolutional network on 8 × 8 images of digits."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from twins.digits import cross_entropy, images

WRT = "m"


class Net(NamedTuple):
    """Two convolutions of 3 × 3, each with a bias a channel, and one dense layer."""

    k1: jax.Array | np.ndarray  # [3, 3, 1, 16]
    b1: jax.Array | np.ndarray  # [16]
    k2: jax.Array | np.ndarray  # [3, 3, 16, 32]
    b2: jax.Array | np.ndarray  # [32]
    w: jax.Array | np.ndarray  # [128, 10]
    b: jax.Array | np.ndarray  # [10]


def conv(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Cross-correlation over [batch, row, column, channel], with one row of zeros all around."""
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers)
    return y + bias


def pool(x: jax.Array) -> jax.Array:
    """The largest of each square of 2 × 2."""
    b, n, m, c = x.shape
    return x.reshape(b, n // 2, 2, m // 2, 2, c).max(axis=(2, 4))


def logits(m: Net, x: jax.Array) -> jax.Array:
    h = pool(jax.nn.relu(conv(x, m.k1, m.b1)))
    h = pool(jax.nn.relu(conv(h, m.k2, m.b2)))
    return h.reshape(x.shape[0], -1) @ m.w + m.b


def loss(m: Net, x: jax.Array, label: jax.Array) -> jax.Array:
    """The mean cross-entropy of a batch."""
    return cross_entropy(logits(m, x), label)


def arguments(dtype: type = np.float64, batch: int = 64) -> tuple[Net, np.ndarray, np.ndarray]:
    """A random network and one batch of images, [batch, 8, 8, 1]."""
    x, label = images(dtype, batch)
    rng = np.random.default_rng(3)

    def draw(scale: float, *shape: int) -> np.ndarray:
        return (scale * rng.standard_normal(shape)).astype(dtype)

    net = Net(
        k1=draw(np.sqrt(2 / 9), 3, 3, 1, 16),
        b1=draw(0.1, 16),
        k2=draw(np.sqrt(2 / 144), 3, 3, 16, 32),
        b2=draw(0.1, 32),
        w=draw(np.sqrt(1 / 128), 128, 10),
        b=draw(0.1, 10),
    )
    return net, x.reshape(batch, 8, 8, 1), label
