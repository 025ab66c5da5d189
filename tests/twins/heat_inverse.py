"""examples/heat_inverse.dfl in JAX: how a rod cools, and how far that is from what thermometers read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

WRT = "logs"
STEPS = 200


def step(t: jax.Array, flow: jax.Array) -> jax.Array:
    """Heat flows between neighbours, and out at the ends, which are kept at 0."""
    current = flow * jnp.diff(jnp.concatenate([jnp.zeros(1), t, jnp.zeros(1)]))
    return t + jnp.diff(current)


def loss(logs: jax.Array, readings: jax.Array, noise: jax.Array, steps: int) -> jax.Array:
    """Half the mean square of what is off, in units of the noise; every temperature is kept."""
    flow = 0.025 * jnp.repeat(jnp.exp(logs), 16)

    def later(t: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        t = jax.lax.scan(lambda t, _: (step(t, flow), None), t, None, length=STEPS)[0]
        return t, t[15::16]

    cooled = jax.lax.scan(later, jnp.ones(16 * len(logs) - 1), None, length=len(readings))[1]
    return jnp.mean(((cooled - readings) / noise) ** 2) / 2


def arguments(dtype: type = np.float64) -> tuple[np.ndarray | np.floating | int, ...]:
    """Four pieces that conduct well, so that all of them matter soon, and readings that do not fit them."""
    rng = np.random.default_rng(15)
    logs, readings = 2.2 + 0.2 * rng.standard_normal(4), rng.random((3, 3))
    return logs.astype(dtype), readings.astype(dtype), np.asarray(0.05, dtype), STEPS
