"""examples/fit_curve.dfl in JAX: a quotient of two cubics through measured electron mobilities."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from twins.data import table

WRT = "b"

CERTIFIED = np.array(
    [
        1.2881396800e03,
        1.4910792535e03,
        5.8323836877e02,
        7.5416644291e01,
        9.6629502864e-01,
        3.9797285797e-01,
        4.9727297349e-02,
    ]
)
CERTIFIED_SUM_OF_SQUARES = 5.6427082397e03
START = np.array([1300.0, 1500.0, 500.0, 75.0, 1.0, 0.4, 0.05])


def curve(b: jax.Array, x: jax.Array) -> jax.Array:
    return (b[0] + x * (b[1] + x * (b[2] + x * b[3]))) / (1 + x * (b[4] + x * (b[5] + x * b[6])))


def loss(b: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The sum of the squared residuals."""
    return jnp.sum((curve(b, x) - y) ** 2)


def arguments(dtype: type = np.float64) -> tuple[np.ndarray, ...]:
    """NIST's second starting point and the data."""
    data = table("thurber.csv").astype(dtype)
    return START.astype(dtype), data[:, 0].copy(), data[:, 1].copy()
