"""examples/char_transformer.dfl in JAX: a causal transformer with rotary positions, on the letters of sonnets."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twins.data import table
from twins.vae_digits import Dense

WRT = "m"

Array = jax.Array | np.ndarray


class Embedding(NamedTuple):
    """A vector for each letter."""

    table: Array  # [c, d]


class Norm(NamedTuple):
    """A scale and a shift for each normalized feature."""

    scale: Array  # [d]
    shift: Array  # [d]


class Heads(NamedTuple):
    """An affine map into the features of each head."""

    w: Array  # [d, h, k]
    b: Array  # [h, k]


class Attention(NamedTuple):
    """What heads ask, answer and give, and what becomes of it."""

    query: Heads
    key: Heads
    value: Heads
    w: Array  # [h, k, d]
    b: Array  # [d]


class Block(NamedTuple):
    """Attention, then a network for each place."""

    norm1: Norm
    attention: Attention
    norm2: Norm
    up: Dense
    down: Dense


class Model(NamedTuple):
    """Blocks between letters and letters."""

    letters: Embedding
    blocks: Block  # its arrays have the axis of the blocks in front
    norm: Norm
    out: Dense


def layer_norm(m: Norm, x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) * m.scale + m.shift


def rotary(x: jax.Array) -> jax.Array:
    """[b, h, n, k], features k and k + half turned together."""
    n, half = x.shape[-2], x.shape[-1] // 2
    angle = jnp.arange(n)[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    turn = jax.lax.complex(jnp.cos(angle), jnp.sin(angle))
    turned = jax.lax.complex(x[..., :half], x[..., half:]) * turn
    return jnp.concatenate([turned.real, turned.imag], axis=-1)


def attention(a: Attention, x: jax.Array) -> jax.Array:
    n = x.shape[1]
    q, k, v = (jnp.einsum("bnd,dhk->bhnk", x, m.w) + m.b[:, None] for m in (a.query, a.key, a.value))
    score = rotary(q) @ rotary(k).swapaxes(-1, -2) / jnp.sqrt(q.shape[-1])
    weight = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((n, n), bool)), score, -jnp.inf), axis=-1)
    return jnp.einsum("bhnm,bhmk,hkd->bnd", weight, v, a.w) + a.b


def apply(m: Block, x: jax.Array) -> jax.Array:
    y = x + attention(m.attention, layer_norm(m.norm1, x))
    return y + m.down(jax.nn.gelu(m.up(layer_norm(m.norm2, y)), approximate=False))


def loss(m: Model, text: jax.Array) -> jax.Array:
    """The mean surprise of a letter, given those before it."""
    x = jnp.asarray(m.letters.table)[text[:, :-1]]
    for i in range(len(m.blocks.norm1.scale)):
        x = apply(jax.tree.map(lambda leaf, i=i: leaf[i], m.blocks), x)
    z = m.out(layer_norm(m.norm, x))
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(z), text[:, 1:, None], axis=-1))


def arguments(dtype: type = np.float64, b: int = 3, n: int = 12, d: int = 8, h: int = 2) -> tuple[Model, np.ndarray]:
    """A random model, and the beginning of the sonnets in pieces."""
    rng = np.random.default_rng(5)

    def draw(*shape: int, scale: float = 0.5, shift: float = 0.0) -> np.ndarray:
        return (shift + scale * rng.standard_normal(shape)).astype(dtype)

    def norm() -> Norm:
        return Norm(scale=draw(d, scale=0.1, shift=1.0), shift=draw(d, scale=0.1))

    def heads() -> Heads:
        return Heads(w=draw(d, h, d // h), b=draw(h, d // h))

    def block() -> Block:
        a = Attention(query=heads(), key=heads(), value=heads(), w=draw(h, d // h, d), b=draw(d))
        up, down = Dense.drawn(rng, d, 2 * d, dtype), Dense.drawn(rng, 2 * d, d, dtype)
        return Block(norm1=norm(), attention=a, norm2=norm(), up=up, down=down)

    letters = Embedding(table=draw(28, d))
    blocks = jax.tree.map(lambda *leaves: np.stack(leaves), block(), block())
    m = Model(letters=letters, blocks=blocks, norm=norm(), out=Dense.drawn(rng, d, 28, dtype))
    text = table("sonnets.csv")
    return m, text[: b * (n + 1)].reshape(b, n + 1).astype(np.int32)
