"""`data` and `prob`: chains, bounds and new orders, values and derivatives, in f32 and f64. What is drawn is found again from what came out."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from functools import cache
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as ss

from support.language import ran
from support.library import Engine, Like, compared, stdlib

Array = Any
IMPORTS = stdlib("data") + stdlib("prob")
RNG = np.random.default_rng(6)
CHAIN, CHAINS = np.cumsum(RNG.normal(size=40)), RNG.normal(size=(3, 8)) + np.arange(3)[:, None] / 2
ROWS = RNG.normal(size=(5, 2))


def effective(x: Array) -> Array:
    """Geyer's sum of pairs, until one is not positive; how many they are is no function of x."""
    off = x - jnp.mean(x)
    seen = CHAIN - CHAIN.mean()
    pairs = [sum(seen[: len(seen) - j] @ seen[j:] for j in (2 * k, 2 * k + 1)) for k in range(len(seen) // 2)]
    many = next(k for k, pair in enumerate(pairs) if pair <= 0)
    total = sum(off[: len(seen) - j] @ off[j:] for j in range(2 * many)) / jnp.sum(off**2)
    return len(seen) / (2 * total - 1)


def spread(x: Array) -> Array:
    within, between = jnp.mean(jnp.var(x, axis=1, ddof=1)), jnp.var(jnp.mean(x, axis=1), ddof=1)
    return jnp.sqrt((within * 7 / 8 + between) / within)


TABLE = [
    Like("effective_size", "effective_size", effective, (CHAIN,)),
    Like("potential_scale", "potential_scale", spread, (CHAINS,)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)

# The points of a chain as a function of where it begins, of its step, and of the density's parameter; how many proposals it took.
# Steps so short, or a density so flat, that the first two take every proposal.
ASKED = """let (x0, step, width): (N[2], N, N) = ([0.3, -0.5], 0.02, 1.5)
let bell = |x: N[2], width: N| -sum(x^2) / (2 * width^2) - x[0]^4 / 9
let leaps = |x, s, w| with_key(key(4)) { hmc(|x| bell(x, w), x, s, 3, 4) }
let walks = |x, s, w| with_key(key(4)) { metropolis(|x| bell(x, 1e3 * w) * 1e-9, x, s, 4) }
let refused = |x, s, w| with_key(key(4)) { metropolis(|x| if x[0] == x0[0] { 0.0 } else { -inf * w }, x, s, 4) }
let bound = |m, l, w| with_key(key(4)) { elbo(|x| bell(x, w), m, l, 1) }
let (widths, middle): (N[2], N[2]) = ([-0.3, 0.2], [0.1, 0.7])
"""


def source(dtype: str, text: str) -> str:
    for mark in ("N[", "N,", "N)", "N|"):
        text = text.replace(mark, dtype + mark[1:])
    return ("float f64\n" if dtype == "f64" else "") + IMPORTS + text


@cache
def found(dtype: str) -> dict[str, tuple[Array, ...]]:
    text = ASKED
    for name in ("leaps", "walks", "refused"):
        text += f"let {name}_y = {name}(x0, step, width)\n"
        for way in ("jacfwd", "jacrev"):
            each = (
                f"(|x| {name}(x, step, width).x)(x0)",
                f"(|s| {name}(x0, s, width).x)(step)",
                f"(|w| {name}(x0, step, w).x)(width)",
            )
            text += f"let {name}_{way} = ({', '.join(way + e for e in each)})\n"
    text += (
        "let bound_y = (bound(middle, widths, width), grad[m, l, w](|m, l, w| bound(m, l, w))(middle, widths, width))\n"
    )
    values, _ = ran(source(dtype, text), Engine("interpret"))
    kept = {
        k: tuple(map(np.asarray, v.leaves or ()))
        for k, v in values.items()
        if k.rpartition("_")[2] in ("y", "jacfwd", "jacrev")
    }
    assert all(a.dtype == {"f32": np.float32, "f64": np.float64}[dtype] for leaves in kept.values() for a in leaves)
    return kept


CLOSE = {
    "f64": {"rtol": 1e-9, "atol": 1e-9},
    "f32": {"rtol": 1e-3, "atol": 1e-3},
}  # speeds are found by a division by the step


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.nightly_except("f32")
def test_hmc_moves_with_where_it_begins_with_its_step_and_with_the_density(dtype: str) -> None:
    """The same leaps in JAX, with the speeds that lead from each point to the next."""
    (points, taken), forward, reverse = (found(dtype)[f"leaps_{what}"] for what in ("y", "jacfwd", "jacrev"))
    assert taken == 1 and points.shape == (4, 2)
    with jax.enable_x64(True):
        slope = jax.grad(lambda x, w: -jnp.sum(x**2) / (2 * w**2) - x[0] ** 4 / 9)

        @jax.jit
        def leap(x: Array, v: Array, s: Array, w: Array) -> Array:
            for _ in range(3):
                v = v + s / 2 * slope(x, w)
                x = x + s * v
                v = v + s / 2 * slope(x, w)
            return x

        given, speeds = (jnp.array([0.3, -0.5]), jnp.float64(0.02), jnp.float64(1.5)), []
        turn = jax.jit(jax.jacfwd(leap, argnums=1))
        for x, y in zip([given[0], *points[:-1]], points, strict=True):
            v = jnp.zeros(2)
            for _ in range(5):  # Newton's method, which is nearly a straight line
                v = v - jnp.linalg.solve(turn(x, v, *given[1:]), leap(x, v, *given[1:]) - y)
            speeds.append(v)

        def chain(x: Array, s: Array, w: Array) -> Array:
            return jnp.stack([x := leap(x, v, s, w) for v in speeds])

        np.testing.assert_allclose(points, chain(*given), **CLOSE[dtype])
        wanted = jax.jacfwd(chain, argnums=(0, 1, 2))(*given)
    for got in (forward, reverse):
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, **CLOSE[dtype])


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_metropolis_moves_with_where_it_begins_and_with_its_step(dtype: str) -> None:
    """x = x0 + step (z1 + z2 + …): the density says only whether a proposal is taken, which has no derivative."""
    for name, part in (("walks", 1), ("refused", 0)):
        (points, taken), *both = (found(dtype)[f"{name}_{what}"] for what in ("y", "jacfwd", "jacrev"))
        assert taken == part
        for in_x, in_step, in_width in both:
            np.testing.assert_array_equal(in_x, np.broadcast_to(np.eye(2), (4, 2, 2)))
            np.testing.assert_allclose(
                in_step, (points - [0.3, -0.5]) / 0.02, rtol=0, atol={"f64": 1e-12, "f32": 1e-4}[dtype]
            )
            assert not in_width.any()


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_a_bound_moves_with_its_guess(dtype: str) -> None:
    """One draw x = m + exp(l) z of it, which its gradient tells: then all is a closed form."""
    value, in_m, in_l, in_w = (np.asarray(a, np.float64) for a in found(dtype)["bound_y"])
    m, width, w = np.array([0.1, 0.7]), np.array([-0.3, 0.2]), 1.5
    (first,) = (r.real for r in np.roots([4 / 9, 0, 1 / w**2, in_m[0]]) if abs(r.imag) < 1e-9)
    x = np.array([first, -in_m[1] * w**2])
    density = -np.sum(x**2) / (2 * w**2) - x[0] ** 4 / 9
    close = {"f64": {"rtol": 1e-12}, "f32": {"rtol": 2e-5}}[dtype]
    np.testing.assert_allclose(value, density + width.sum() + 1 + np.log(2 * np.pi), **close)
    np.testing.assert_allclose(in_l, 1 + in_m * (x - m), **close)
    np.testing.assert_allclose(in_w, np.sum(x**2) / w**3, **close)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.nightly_except("f32")
def test_chains_are_of_their_density(dtype: str) -> None:
    """Means and variances, by as many draws as the chains are worth; a bound that is met is met."""
    text = """let p: N[2, 2] = [[1.2, -0.4], [-0.4, 0.7]]
let (a, b) = (hmc(|x| -dot(x, p @ x) / 2, zeros(2), 0.5, 3, 300).x, metropolis(|x| -dot(x, p @ x) / 2, zeros(2), 1.5, 500).x)
let sizes = [for i in 0..2 => [effective_size(a[.., i]), effective_size(a[.., i]^2), effective_size(b[.., i]), effective_size(b[.., i]^2)]]
let met = elbo(|x: N[1]| -(x[0] - 1.0)^2 / 8.0, [1.0], [log(N(2))], 300)
"""
    values, _ = ran(source(dtype, text).replace("N(2)", f"{dtype}(2)"), Engine("interpret"), seed=2)
    a, b, sizes, met = (np.asarray((values[k].leaves or ())[0]) for k in ("a", "b", "sizes", "met"))
    cov = np.linalg.inv([[1.2, -0.4], [-0.4, 0.7]])
    for i in range(2):
        for chain, size, of_squares in ((a, *sizes[i, :2]), (b, *sizes[i, 2:])):
            assert size > 30 and of_squares > 30
            assert abs(chain[:, i].mean()) < 4.5 * np.sqrt(cov[i, i] / size)
            assert abs(chain[:, i].var() / cov[i, i] - 1) < 4.5 * np.sqrt(2 / of_squares)
    assert abs(met - 0.5 * np.log(8 * np.pi)) < 4.5 * np.sqrt(0.5 / 300)


# ---- New orders


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_rows_in_a_new_order(dtype: str) -> None:
    """The derivative of what is moved is the matrix that moves it: one 1 in each row and each column."""
    text = f"""let x: N[5, 2] = {ROWS.tolist()}
let mixed = |x| with_key(key(2)) {{ shuffled(x) }}
let parted = |x| with_key(key(2)) {{ let (a, b) = split_rows(x, 2)
  concat(a, b) }}
let y = (mixed(x), jacfwd(mixed)(x), jacrev(mixed)(x), parted(x), jacfwd(parted)(x), jacrev(parted)(x))
"""
    values, _ = ran(source(dtype, text), Engine("interpret"))
    leaves = list(map(np.asarray, values["y"].leaves or ()))
    for y, forward, reverse in (leaves[:3], leaves[3:]):
        assert y.dtype == forward.dtype == {"f32": np.float32, "f64": np.float64}[dtype]
        move = forward[:, 0, :, 0]
        assert (
            (np.sort(move, axis=0)[-1] == 1).all() and (move.sum(axis=0) == 1).all() and (move.sum(axis=1) == 1).all()
        )
        np.testing.assert_array_equal(forward, np.einsum("ij,kl->ikjl", move, np.eye(2)))
        np.testing.assert_array_equal(reverse, forward)
        np.testing.assert_array_equal(y, (move @ ROWS).astype(y.dtype))


def test_batches_of_a_block_are_near_each_other_and_in_any_order() -> None:
    source = f"{IMPORTS}let y = [for i in 0..300 => block_batches(9, 2, 4)]\n"
    values, _ = ran(source, Engine("interpret"), seed=1)
    rows = np.asarray((values["y"].leaves or ())[0])
    assert rows.dtype == np.int32 and rows.shape == (300, 4, 2)
    assert (rows[..., 0] // 4 == rows[..., 1] // 4).all()
    assert all(sorted(batches.ravel()) == list(range(8)) for batches in rows)
    # Each place of the eight holds each number about as often.
    for place in rows.reshape(300, 8).T:
        assert ss.chisquare(np.bincount(place, minlength=8)).pvalue > 1e-3


def test_every_order_is_as_likely() -> None:
    """Places are integers, which have no derivative: Pearson's test of how often each comes, whatever the type of numbers is."""
    drawn = "[for i in 0..300 => batches(4, 2)], [for i in 0..300 => shuffled([0, 1, 2, 3])], [for i in 0..300 => folds(4, 3)], bootstrap(700)"
    orders = sorted(permutations(range(4)))
    for first in ("", "float f64\n"):
        values, _ = ran(f"{first}{IMPORTS}let y = ({drawn})\n", Engine("interpret"), seed=1)
        *mixed, folds, places = map(np.asarray, values["y"].leaves or ())
        assert all(x.dtype == np.int32 for x in (*mixed, folds, places))
        for rows in mixed:
            seen = [orders.index(tuple(row)) for row in rows.reshape(300, 4).tolist()]
            assert ss.chisquare(np.bincount(seen, minlength=24)).pvalue > 1e-3
        assert all(sorted(row) == [0, 0, 1, 2] for row in folds.tolist())
        assert ss.chisquare(np.bincount((folds == 0) @ [8, 4, 2, 1])[[3, 5, 6, 9, 10, 12]]).pvalue > 1e-3
        assert places.min() >= 0 and places.max() < 700
        assert ss.chisquare(np.bincount(places * 7 // 700, minlength=7)).pvalue > 1e-3
