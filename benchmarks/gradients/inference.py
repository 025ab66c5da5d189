"""Likelihoods: of a track, of numbers from hidden states, and of values of a smooth function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from cases import Case
from gradients.shared import draw, plain_and_remat, program, scans

cholesky = partial(jnp.linalg.cholesky, symmetrize_input=False)


def kalman() -> Case:
    def whitening(
        scan: Callable[..., Any], a: jax.Array, q: jax.Array, h: jax.Array, r: jax.Array, ys: jax.Array
    ) -> jax.Array:
        n = len(a)

        def step(state: tuple[jax.Array, jax.Array], y: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            x, p = state
            x, p = a @ x, a @ p @ a.T + q
            factor = cholesky(h @ p @ h.T + r)
            whitened = solve_triangular(factor, jnp.concatenate([h @ p, (y - h @ x)[:, None]], axis=1), lower=True)
            gain, surprise = whitened[:, :n], whitened[:, n]
            cost = 0.5 * surprise @ surprise + jnp.sum(jnp.log(jnp.diag(factor)))
            return (x + surprise @ gain, p - gain.T @ gain), cost

        return jnp.sum(scan(step, (jnp.zeros(n), jnp.eye(n)), ys)[1])

    def solving(
        scan: Callable[..., Any], a: jax.Array, q: jax.Array, h: jax.Array, r: jax.Array, ys: jax.Array
    ) -> jax.Array:
        n = len(a)

        def step(state: tuple[jax.Array, jax.Array], y: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            x, p = state
            x, p = a @ x, a @ p @ a.T + q
            s, hp, e = h @ p @ h.T + r, h @ p, y - h @ x
            gain = jnp.linalg.solve(s, hp).T
            cost = 0.5 * e @ jnp.linalg.solve(s, e) + 0.5 * jnp.linalg.slogdet(s)[1]
            return (x + gain @ e, p - gain @ hp), cost

        return jnp.sum(scan(step, (jnp.zeros(n), jnp.eye(n)), ys)[1])

    dt = 0.1
    a = np.eye(4) + dt * np.eye(4, k=2) - 0.05 * np.eye(4)
    arguments = (a, 0.01 * np.eye(4), np.eye(2, 4), 0.1 * np.eye(2), np.cumsum(draw(200, 2, scale=0.3), axis=0))
    solves = {f"{name}, solve": twin for name, twin in scans(solving).items()}
    return program("kalman", "a", arguments, scans(whitening) | solves)


def hidden_markov() -> Case:
    def by_hand(a: jax.Array) -> jax.Array:
        top = jax.lax.stop_gradient(jnp.max(a, axis=0))
        return jnp.log(jnp.sum(jnp.exp(a - top), axis=0)) + top

    def forward(logsumexp: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def loss(scan: Callable[..., Any], change: jax.Array, level: jax.Array, xs: jax.Array) -> jax.Array:
            log_change = jax.nn.log_softmax(change, axis=1)

            def step(score: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
                return logsumexp(score[:, None] + log_change) - 0.5 * (x - level) ** 2, None

            k = len(level)
            return -jax.nn.logsumexp(scan(step, jnp.full(k, -jnp.log(k)), xs)[0])

        return loss

    arguments = (draw(16, 16), np.linspace(-3, 3, 16), draw(300, scale=2.0, seed=1))
    hands = {f"{name}, by hand": twin for name, twin in scans(forward(by_hand)).items()}
    ways = scans(forward(lambda a: jax.nn.logsumexp(a, axis=0)))
    return program("hidden_markov", "change", arguments, ways | hands)


def gaussian_process() -> Case:
    def likelihood(cholesky: Callable[..., jax.Array], p: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        n, d = x.shape
        z = x / jnp.exp(p[:d])
        square = jnp.sum(z**2, axis=1)
        far = square[:, None] + square - 2 * z @ z.T
        factor = cholesky(jnp.exp(p[d] - 0.5 * far) + jnp.exp(p[d + 1]) * jnp.eye(n))
        whitened = solve_triangular(factor, y, lower=True)
        return 0.5 * whitened @ whitened + jnp.sum(jnp.log(jnp.diag(factor)))

    x = draw(200, 3)
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] ** 2 + 0.1 * draw(200, seed=1)
    ways = plain_and_remat(partial(likelihood, jnp.linalg.cholesky)) | {"triangle": partial(likelihood, cholesky)}
    return program("gaussian_process", "p", (np.array([0.3, 0.5, 1.0, 0.2, -2.0]), x, y), ways)
