"""Recursion, and loops that end where they may: det, particle and saddle."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from gradbench.twins.registry import f64, twin

MOST_STEPS = 512  # of a particle, where reverse mode needs their number


def det_input(v):
    return (v["ell"],), (f64(v["A"]),)


def det_shared(ell):
    """Expansion by minors, with equal minors computed once, level by level."""
    tables = []
    for size in range(2, ell + 1):
        smaller = {s: i for i, s in enumerate(itertools.combinations(range(ell), size - 1))}
        subsets = list(itertools.combinations(range(ell), size))
        cols = np.array(subsets)
        child = np.array([[smaller[s[:j] + s[j + 1 :]] for j in range(size)] for s in subsets])
        sign = np.where(np.arange(size) % 2 == 0, 1.0, -1.0)
        tables.append((cols, child, sign))

    def value(flat):
        a = flat.reshape(ell, ell)
        minors = a[ell - 1]
        for size, (cols, child, sign) in enumerate(tables, start=2):
            minors = jnp.sum(sign * a[ell - size][cols] * minors[child], axis=1)
        return minors[0]

    return value


@twin("det", "primal", prepare=det_input, finish=float)
def det_primal(static):
    return det_shared(*static)


@twin("det", "gradient", prepare=det_input, finish=lambda g: g.ravel().tolist())
def det_gradient(static):
    return jax.grad(det_shared(*static))


def forward_grad(f):
    def run(x):
        basis = jnp.eye(x.shape[0])
        return jax.vmap(lambda t: jax.jvp(f, (x,), (t,))[1])(basis)

    return run


def reverse_grad(f):
    return jax.grad(f)


GRADS = {"f": forward_grad, "r": reverse_grad}


def descend(grad, f, start):
    """Gradient descent with the step-size rule that both evals prescribe."""
    slope = grad(f)

    def going(s):
        return s[-1]

    def step(s):
        x, fx, gx, eta, i, _ = s

        def stop():
            return x, fx, gx, eta, i, jnp.array(False)

        def double():
            return x, fx, gx, 2.0 * eta, jnp.array(0), jnp.array(True)

        def move():
            y = x - eta * gx
            fy = f(y)
            close = jnp.sqrt(jnp.sum((x - y) ** 2)) <= 1e-5
            accept = jnp.logical_and(fy < fx, jnp.logical_not(close))
            return jax.lax.cond(
                accept,
                lambda: (y, fy, slope(y), eta, i + 1, jnp.array(True)),
                lambda: (x, fx, gx, jnp.where(close, eta, eta / 2.0), jnp.array(0), jnp.logical_not(close)),
            )

        small = jnp.sqrt(jnp.sum(gx * gx)) <= 1e-5
        return jax.lax.cond(small, stop, lambda: jax.lax.cond(i == 10, double, move))

    first = (start, f(start), slope(start), jnp.array(1e-5), jnp.array(0), jnp.array(True))
    return jax.lax.while_loop(going, step, first)[0]


def particle_landing(grad, w, bound):
    charges = jnp.stack([jnp.stack([jnp.array(10.0), 10.0 - w]), jnp.array([10.0, 0.0])])

    def potential(x):
        return jnp.sum(1.0 / jnp.sqrt(jnp.sum((charges - x) ** 2, axis=1)))

    push = grad(potential)
    dt = 0.1

    def advance(s):
        x, v, _ = s
        y = x + dt * v
        alive = y[1] > 0.0
        return jnp.where(alive, y, x), jnp.where(alive, v - dt * push(x), v), alive

    s = (jnp.array([0.0, 8.0]), jnp.array([0.75, 0.0]), jnp.array(True))
    if bound is None:
        x, v, _ = jax.lax.while_loop(lambda s: s[2], advance, s)
    else:
        # Reverse mode needs a known trip count: run a fixed number of steps
        # and freeze the state once the particle has landed.
        def masked(s, _):
            return jax.lax.cond(s[2], advance, lambda s: s, s), None

        (x, v, _), _ = jax.lax.scan(masked, s, None, length=bound)
    end = x - x[1] / v[1] * v
    return end[0] ** 2


def particle_input(v):
    return (), (f64([v["w"]]),)


def saddle_input(v):
    return (), (f64(v["start"]),)


def make_particle(outer, inner):
    def make(_):
        bound = MOST_STEPS if outer == "r" else None

        def run(w):
            return descend(GRADS[outer], lambda w: particle_landing(GRADS[inner], w[0], bound), w)[0]

        return run

    return make


def make_saddle(outer, inner):
    def make(_):
        def f(x, y):
            return jnp.sum(x * x) - jnp.sum(y * y)

        def run(start):
            def worst(x):
                y = descend(GRADS[inner], lambda y: -f(x, y), start)
                return f(x, y)

            x = descend(GRADS[outer], worst, start)
            y = descend(GRADS[outer], lambda y: -f(x, y), start)
            return jnp.concatenate([x, y])

        return run

    return make


for _outer in "fr":
    for _inner in "fr":
        twin("particle", _outer + _inner, prepare=particle_input, finish=float)(make_particle(_outer, _inner))
        twin("saddle", _outer + _inner, prepare=saddle_input, finish=lambda r: r.tolist())(make_saddle(_outer, _inner))
