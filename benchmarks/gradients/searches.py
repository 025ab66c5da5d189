"""Loops that end when they have found something: a root, a solution, a surface."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg

from cases import Case
from gradients.shared import Loop, draw, loops, program


def kepler() -> Case:
    def newton(loop: Loop, m: jax.Array, e: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, _ = state
            by = (x - e * jnp.sin(x) - m) / (1 - e * jnp.cos(x))
            return x - by, by

        return loop(lambda state: jnp.any(jnp.abs(state[1]) > 1e-12), step, (m + e * jnp.sin(m), jnp.ones_like(m)))[0]

    def ruled(m: jax.Array, e: jax.Array) -> jax.Array:
        @jax.custom_jvp
        def anomaly(m: jax.Array, e: jax.Array) -> jax.Array:
            return newton(jax.lax.while_loop, m, e)

        @anomaly.defjvp
        def _(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
            (_, e), (dm, de) = primals, tangents
            x = anomaly(*primals)
            return x, (dm + jnp.sin(x) * de) / (1 - e * jnp.cos(x))

        return anomaly(m, e)

    def one_more_step(m: jax.Array, e: jax.Array) -> jax.Array:
        x = newton(jax.lax.while_loop, *jax.lax.stop_gradient((m, e)))
        return x - (x - e * jnp.sin(x) - m) / jax.lax.stop_gradient(1 - e * jnp.cos(x))

    def fit(anomaly: Callable[..., jax.Array], orbit: jax.Array, times: jax.Array, seen: jax.Array) -> jax.Array:
        e = orbit[1]
        x = anomaly(2 * jnp.pi * times / orbit[2] + orbit[3], e)
        return jnp.mean((orbit[0] * (1 - e * jnp.cos(x)) - seen) ** 2)

    def through(loop: Loop, *arguments: jax.Array) -> jax.Array:
        return fit(partial(newton, loop), *arguments)

    def one_by_one(m: jax.Array, e: jax.Array) -> jax.Array:
        return jax.vmap(ruled, in_axes=(0, None))(m, e)

    rules = {"ruled": ruled, "ruled, vmap": one_by_one, "one more step": one_more_step}
    ways = {name: partial(fit, way) for name, way in rules.items()} | loops(through, most=8)
    arguments = (np.array([1.2, 0.4, 3.0, 0.2]), np.linspace(0, 10, 1000), 1 + draw(1000, scale=0.3))
    return program("kepler", "orbit", arguments, ways)


def conjugate_gradients() -> Case:
    def spread(k: jax.Array, u: jax.Array) -> jax.Array:
        down = 0.5 * (k[1:] + k[:-1]) * (u[1:] - u[:-1])
        right = 0.5 * (k[:, 1:] + k[:, :-1]) * (u[:, 1:] - u[:, :-1])
        vertical = jnp.pad(down, ((1, 0), (0, 0))) - jnp.pad(down, ((0, 1), (0, 0)))
        return u + vertical + jnp.pad(right, ((0, 0), (1, 0))) - jnp.pad(right, ((0, 0), (0, 1)))

    def iterated(a: Callable[[jax.Array], jax.Array], b: jax.Array) -> jax.Array:
        rr = jnp.sum(b * b)
        enough = 1e-26 * rr

        def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            x, r, p, rr = state
            ap = a(p)
            alpha = rr / jnp.sum(p * ap)
            x, r = x + alpha * p, r - alpha * ap
            after = jnp.sum(r * r)
            return x, r, r + after / rr * p, after

        return jax.lax.while_loop(lambda state: state[3] > enough, step, (jnp.zeros_like(b), b, b, rr))[0]

    def from_library(a: Callable[[jax.Array], jax.Array], b: jax.Array) -> jax.Array:
        return cg(a, b, tol=1e-13)[0]

    def by_hand(a: Callable[[jax.Array], jax.Array], b: jax.Array) -> jax.Array:
        return jax.lax.custom_linear_solve(a, b, iterated, symmetric=True)

    def fit(solved: Callable[..., jax.Array], k: jax.Array, source: jax.Array, seen: jax.Array) -> jax.Array:
        return jnp.sum((solved(lambda u: spread(k, u), source) - seen) ** 2)

    # Differentiated step by step, conjugate gradients give eight digits; by the rule twelve.
    k = np.exp(draw(32, 32, scale=0.3))
    ways = {"library": partial(fit, from_library), "by hand": partial(fit, by_hand)}
    return program("conjugate_gradients", "k", (k, draw(32, 32, seed=1), draw(32, 32, seed=2)), ways)


class Scene(NamedTuple):
    """A sphere and a ring, melted together."""

    centre: Any  # [3]
    radius: Any
    ring: Any
    tube: Any
    melt: Any


def ray_march() -> Case:
    def distance(s: Scene, p: jax.Array) -> jax.Array:
        ball = jnp.sqrt(jnp.sum((p - s.centre) ** 2, axis=-1)) - s.radius
        out = jnp.sqrt(p[..., 0] ** 2 + p[..., 1] ** 2) - s.ring
        hoop = jnp.sqrt(out**2 + p[..., 2] ** 2) - s.tube
        mix = jnp.clip(0.5 + 0.5 * (hoop - ball) / s.melt, 0, 1)
        return hoop + mix * (ball - hoop) - s.melt * mix * (1 - mix)

    def marching(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return (state[1] > 1e-6) & (state[0] < 10)

    def one_by_one(loop: Loop, s: Scene, eye: jax.Array, rays: jax.Array) -> jax.Array:
        def depth(ray: jax.Array) -> jax.Array:
            def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
                gap = distance(s, eye + state[0] * ray)
                return state[0] + gap, gap

            return loop(marching, step, (jnp.zeros(()), jnp.ones(())))[0]

        return jax.vmap(depth)(rays)

    def at_once(loop: Loop, s: Scene, eye: jax.Array, rays: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            t, gap = state
            new = distance(s, eye + t[:, None] * rays)
            on = marching(state)
            return jnp.where(on, t + new, t), jnp.where(on, new, gap)

        start = (jnp.zeros(len(rays)), jnp.ones(len(rays)))
        return loop(lambda state: jnp.any(marching(state)), step, start)[0]

    def image(depths: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def loss(loop: Loop, s: Scene, eye: jax.Array, rays: jax.Array, seen: jax.Array) -> jax.Array:
            return jnp.mean((jnp.minimum(depths(loop, s, eye, rays), 10) - seen) ** 2)

        return loss

    side = np.linspace(-0.5, 0.5, 24)
    across, up = np.meshgrid(side, side)
    rays = np.stack([across, up, -np.ones_like(up)], axis=-1).reshape(-1, 3)
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    scene = Scene(np.array([0.3, 0.2, 0.4]), *map(np.asarray, (0.7, 1.0, 0.3, 0.2)))
    arguments = (scene, np.array([0.0, 0.0, 4.0]), rays, 3 + draw(len(rays)))
    whole = {f"{name}, at once": twin for name, twin in loops(image(at_once), most=128).items()}
    return program("ray_march", "s", arguments, loops(image(one_by_one), most=128) | whole)
