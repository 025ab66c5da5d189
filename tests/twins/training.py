"""Training by hand in JAX: Adam on a twin's loss, on the data of the example, as the example does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twins.data import table

NAMES = ("char_transformer", "neural_ode")
Step = Callable[..., tuple[Any, Any, Any]]


class Moments(NamedTuple):
    """Running means of the gradient and of its squares, and how many it has seen."""

    mean: Any
    square: Any
    count: Any


def begun(m: Any) -> Moments:
    zero = jax.tree.map(jnp.zeros_like, m)
    return Moments(zero, zero, jnp.int32(0))


def step(name: str) -> Step:
    """The loss before a step of Adam (Kingma, Ba 2015), the parameters after it, and the moments."""
    loss = import_module(f"twins.{name}").loss

    def trained(m: Any, seen: Moments, batch: Any, rate: Any, *rest: Any) -> tuple[Any, Any, Moments]:
        value, slope = jax.value_and_grad(loss)(m, batch, *rest)
        count = seen.count + 1
        mean = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, seen.mean, slope)
        square = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, seen.square, slope)
        fast, slow = 1 - 0.9**count, 1 - 0.999**count

        def moved(p: Any, a: Any, s: Any) -> Any:
            return p - rate * (a / fast) / (jnp.sqrt(s / slow) + 1e-8)

        return value, jax.tree.map(moved, m, mean, square), Moments(mean, square, count)

    return trained


def like(of: Any, value: Any) -> Any:
    """A record of difflang as a NamedTuple like `of`."""
    if not isinstance(of, tuple):
        return jnp.asarray(value)
    return type(of)(*(like(getattr(of, field), getattr(value, field)) for field in type(of)._fields))


def batches(name: str, count: int) -> Iterator[tuple[Any, ...]]:
    """What each step is given after the parameters and the moments."""
    rng = np.random.default_rng(3)
    if name == "char_transformer":
        text = table("sonnets.csv").ravel().astype(np.int32)
        for k in range(count):
            starts = rng.permutation(len(text) - 49)[:16]
            yield np.stack([text[s : s + 49] for s in starts]), np.float32(0.005 * (1 + np.cos(np.pi * k / 500)))
        return
    t = 0.1 * np.arange(100)
    spiral = (2 * np.exp(-0.1 * t)[:, None] * np.stack([np.cos(t), -np.sin(t)], axis=1)).astype(np.float32)
    for k in range(count):
        pieces = np.stack([spiral[s : s + 10] for s in rng.permutation(90)[:20]])
        yield pieces, np.float32(0.005 * (1 + np.cos(np.pi * k / 1000))), np.float32(0.1)
