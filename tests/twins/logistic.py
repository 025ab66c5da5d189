"""examples/logistic.dfl in JAX: logistic regression on standardized measurements of cell nuclei."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twins.data import table

WRT = "m"


class Model(NamedTuple):
    """One weight a measurement, and a bias."""

    w: jax.Array | np.ndarray
    b: jax.Array | np.ndarray


def loss(m: Model, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean negative log-likelihood, with a small penalty on the weights."""
    z = x @ m.w + m.b
    return jnp.mean(jnp.logaddexp(z, 0) - y * z) + 1e-3 * jnp.sum(m.w**2)


def arguments(dtype: type = np.float64) -> tuple[Model, np.ndarray, np.ndarray]:
    """A model that is no special point, and all rows."""
    data = table("breast_cancer.csv")
    x, y = data[:, :-1], data[:, -1]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    rng = np.random.default_rng(1)
    m = Model(w=(0.3 * rng.standard_normal(x.shape[1])).astype(dtype), b=np.asarray(0.2, dtype))
    return m, x.astype(dtype), y.astype(dtype)
