"""Sums over many numbers: hello, lse, llsq, kmeans and gmm."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from gradbench.twins.registry import f64, twin


def scalar_input(value):
    return (), (f64(value),)


@twin("hello", "square", prepare=scalar_input, finish=float)
def hello_square(_):
    return lambda x: x * x


@twin("hello", "double", prepare=scalar_input, finish=float)
def hello_double(_):
    return jax.grad(lambda x: x * x)


def lse_input(value):
    return (), (f64(value["x"]),)


def lse_value(x):
    top = jnp.max(x)
    return top + jnp.log(jnp.sum(jnp.exp(x - top)))


@twin("lse", "primal", prepare=lse_input, finish=float)
def lse_primal(_):
    return lse_value


@twin("lse", "gradient", prepare=lse_input, finish=lambda g: g.tolist())
def lse_gradient(_):
    return jax.grad(lse_value)


def llsq_input(value):
    return (value["n"],), (f64(value["x"]),)


def llsq_value(n):
    def value(x):
        t = -1.0 + 2.0 * jnp.arange(n) / (n - 1.0)
        fit, _ = jax.lax.scan(lambda acc, c: (acc * t + c, None), jnp.zeros(n), x[::-1])
        return 0.5 * jnp.sum((jnp.sign(t) - fit) ** 2)

    return value


@twin("llsq", "primal", prepare=llsq_input, finish=float)
def llsq_primal(static):
    return llsq_value(*static)


@twin("llsq", "gradient", prepare=llsq_input, finish=lambda g: g.tolist())
def llsq_gradient(static):
    return jax.grad(llsq_value(*static))


def kmeans_input(value):
    return (), (f64(value["points"]), f64(value["centroids"]))


def kmeans_value(points, centroids):
    squared = jnp.sum(points**2, 1)[:, None] + jnp.sum(centroids**2, 1)[None, :] - 2.0 * points @ centroids.T
    return jnp.sum(jnp.min(squared, axis=1))


@twin("kmeans", "cost", prepare=kmeans_input, finish=float)
def kmeans_cost(_):
    return kmeans_value


@twin("kmeans", "dir", prepare=kmeans_input, finish=lambda d: d.tolist())
def kmeans_dir(_):
    def run(points, centroids):
        slope = jax.grad(functools.partial(kmeans_value, points))
        first, second = jax.jvp(slope, [centroids], [jnp.ones_like(centroids)])
        return first / second

    return run


def gmm_input(v):
    static = (v["d"], v["k"], v["n"], v["m"], v["gamma"])
    unknowns = tuple(f64(v[name]) for name in ("alpha", "mu", "q", "l"))
    return static, (unknowns, f64(v["x"]))


def gmm_value(d, k, n, m, gamma):
    low = [(i, j) for j in range(d) for i in range(j + 1, d)]
    rows = np.array([i for i, _ in low], dtype=int)
    cols = np.array([j for _, j in low], dtype=int)
    dof = d + m + 1
    constant = -0.5 * n * d * np.log(2 * np.pi)
    prior = k * (dof * d * np.log(gamma / np.sqrt(2.0)) - float(jax.scipy.special.multigammaln(0.5 * dof, d)))

    def value(unknowns, x):
        alpha, mu, q, low_part = unknowns
        diag = jnp.exp(q)
        factor = jnp.zeros((k, d, d)).at[:, rows, cols].set(low_part)
        factor = factor + jax.vmap(jnp.diag)(diag)
        # factor (x - mu) without the n x k x d array of differences
        moved = jnp.einsum("nj,kij->nki", x, factor) - jnp.einsum("kij,kj->ki", factor, mu)
        weight = alpha + jnp.sum(q, 1) - 0.5 * jnp.sum(moved**2, 2)
        fit = jnp.sum(jax.nn.logsumexp(weight, axis=1)) - n * jax.nn.logsumexp(alpha)
        penalty = 0.5 * gamma**2 * (jnp.sum(diag**2) + jnp.sum(low_part**2)) - m * jnp.sum(q)
        return constant + fit + prior - penalty

    return value


@twin("gmm", "objective", prepare=gmm_input, finish=float)
def gmm_objective(static):
    return gmm_value(*static)


def gmm_output(grads):
    return {n: g.tolist() for n, g in zip(("alpha", "mu", "q", "l"), grads, strict=True)}


@twin("gmm", "jacobian", prepare=gmm_input, finish=gmm_output)
def gmm_jacobian(static):
    return jax.grad(gmm_value(*static))
