"""examples/particles.dfl in JAX: the likelihood of returns by a cloud of guesses that is drawn anew each day."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WRT = "m"


class Market(NamedTuple):
    """How much of the spread stays from day to day, and how strongly it is pushed."""

    stay: jax.Array | np.ndarray
    push: jax.Array | np.ndarray


class Drawn(NamedTuple):
    """Normal numbers for the first cloud and for every day, and where the drawing begins each day."""

    first: jax.Array | np.ndarray  # [n]
    pushes: jax.Array | np.ndarray  # [t, n]
    starts: jax.Array | np.ndarray  # [t]


def loss(m: Market, seen: jax.Array, d: Drawn) -> jax.Array:
    keep, push = jax.nn.sigmoid(m.stay), jnp.exp(m.push)
    n = d.first.shape[0]

    def day(state: tuple[jax.Array, jax.Array], at: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], jax.Array]:
        x, carried = state
        y, noise, start = at
        logs = carried - (y * jnp.exp(-x)) ** 2 / 2 - jnp.log(2 * jnp.pi) / 2 - x
        chance = jax.nn.log_softmax(logs)
        below = jnp.cumsum(jnp.exp(jax.lax.stop_gradient(chance)))
        drawn = jnp.minimum(jnp.searchsorted(below, (jnp.arange(n) + start) / n), n - 1)
        carried = (chance - jax.lax.stop_gradient(chance))[drawn]
        return (keep * x[drawn] + push * noise, carried), jnp.log(n) - jax.nn.logsumexp(logs)

    first = push / jnp.sqrt(1 - keep**2) * d.first
    return jnp.sum(jax.lax.scan(day, (first, jnp.zeros(n)), (seen, d.pushes, d.starts))[1])


def arguments(dtype: type = np.float64, days: int = 9, n: int = 20) -> tuple[Market | np.ndarray | Drawn, ...]:
    """Some returns, and a cloud of twenty."""
    rng = np.random.default_rng(18)
    drawn = Drawn(rng.standard_normal(n), rng.standard_normal((days, n)), rng.random(days))
    market = Market(np.asarray(1.0, dtype), np.asarray(-0.5, dtype))
    return market, rng.standard_normal(days).astype(dtype), Drawn(*(x.astype(dtype) for x in drawn))
