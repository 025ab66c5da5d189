"""Networks over sequences: a gated recurrent unit and a transformer's block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cases import Case
from gradients.shared import draw, plain_and_remat, program, scans


class Gru(NamedTuple):
    """The weights of the input and of the state for each gate: reset, update, candidate."""

    wx: Any  # [d, 3 h]
    wh: Any  # [h, 3 h]
    b: Any  # [3 h]
    out: Any  # [h, d]


def gru() -> Case:
    def loss(scan: Callable[..., Any], p: Gru, xs: jax.Array) -> jax.Array:
        h = len(p.wh)

        def step(state: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            s = state @ p.wh
            reset = jax.nn.sigmoid(x[:, :h] + s[:, :h])
            update = jax.nn.sigmoid(x[:, h : 2 * h] + s[:, h : 2 * h])
            candidate = jnp.tanh(x[:, 2 * h :] + reset * s[:, 2 * h :])
            state = update * state + (1 - update) * candidate
            return state, state

        _, states = scan(step, jnp.zeros((xs.shape[1], h)), xs @ p.wx + p.b)
        return jnp.mean((states[:-1] @ p.out - xs[1:]) ** 2)

    unit = Gru(draw(8, 96, scale=0.3), draw(32, 96, scale=0.15, seed=1), draw(96, seed=2), draw(32, 8, seed=3))
    return program("gru", "p", (unit, draw(64, 16, 8, seed=4)), scans(loss))


class Block(NamedTuple):
    """Attention and a network of two layers, each behind a normalization with a gain."""

    qkv: Any  # [d, 3 d]
    out: Any  # [d, d]
    up: Any  # [d, k]
    down: Any  # [k, d]
    g1: Any  # [d]
    g2: Any  # [d]


def attention() -> Case:
    heads = 4

    def normalized(x: jax.Array, gain: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, axis=2, keepdims=True)
        return gain * centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=2, keepdims=True) + 1e-5)

    def by_hand(qkv: jax.Array) -> jax.Array:
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        scores = jnp.einsum("bthc,bshc->bhts", q, k) / jnp.sqrt(q.shape[-1])
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[2:], bool)), scores, -jnp.inf)
        return jnp.einsum("bhts,bshc->bthc", jax.nn.softmax(scores), v)

    def block(attended: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
        def loss(p: Block, x: jax.Array) -> jax.Array:
            b, t, d = x.shape
            qkv = (normalized(x, p.g1) @ p.qkv).reshape(b, t, 3, heads, d // heads)
            y = x + attended(qkv).reshape(b, t, d) @ p.out
            z = y + jax.nn.gelu(normalized(y, p.g2) @ p.up, approximate=False) @ p.down
            return jnp.mean((z[:, :-1] - x[:, 1:]) ** 2)

        return loss

    d = 64
    weights = [
        draw(*shape, scale=d**-0.5, seed=i) for i, shape in enumerate([(d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)])
    ]
    arguments = (Block(*weights, np.ones(d), np.ones(d)), draw(4, 64, d, seed=9))
    return program("attention", "p", arguments, plain_and_remat(block(by_hand)))
