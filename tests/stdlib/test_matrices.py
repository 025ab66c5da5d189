"""`matrices`: against SciPy and JAX, values and gradients, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as jl
import numpy as np
import pytest
import scipy.linalg as sl

from support.language import answer, codes
from support.library import Engine, Like, compared, stdlib

IMPORTS = stdlib("matrices")
RNG = np.random.default_rng(12)
A, B = RNG.normal(size=(3, 3)) + 3 * np.eye(3), RNG.normal(size=(2, 2)) + 3 * np.eye(2)
C, TALL, Q = RNG.normal(size=(3, 2)), RNG.normal(size=(4, 2)), np.diag([1.0, 2.0, 0.5])


def sylvester(a: Any, b: Any, c: Any) -> Any:
    whole = jnp.kron(a, jnp.eye(len(b))) + jnp.kron(jnp.eye(len(a)), b.T)
    return jnp.linalg.solve(whole, c.ravel()).reshape(c.shape)


def polar(a: Any) -> Any:
    """The unitary factor and the other one below it, by steps of Newton that JAX can differentiate."""
    q, r = jnp.linalg.qr(a)
    x = r
    for _ in range(7):
        x = (x + jnp.linalg.inv(x).T) / 2
    return jnp.concatenate([q @ x, x.T @ r])


def wave(a: Any) -> Any:
    z = jl.expm(1j * a.astype(complex))
    return jnp.stack([z.real, z.imag])


TABLE = [
    Like("solve_sylvester", "solve_sylvester", sylvester, (A, B, C), loose=5),
    Like("solve_lyapunov", "solve_lyapunov", lambda a, q: sylvester(a, a.T, q), (-A, Q), loose=5),
    Like("polar", "|a| { let (u, h) = polar(a)\n  concat(u, h) }", polar, (TALL,), loose=20),
    Like("cosm and sinm", "|a| [cosm(a), sinm(a)]", wave, (A / 2,), loose=5),
    Like("circulant", "circulant", lambda c: jnp.stack([jnp.roll(c, i) for i in range(4)], axis=1), (TALL[:, 0],)),
    Like("polycompanion", "polycompanion", lambda c: jnp.eye(3, k=-1).at[:, -1].set(-c[:-1] / c[-1]), (TALL[:, 0],)),
    Like("hilbert", "|one| hilbert(3, one)", lambda one: one / (jnp.arange(3)[:, None] + jnp.arange(3) + 1), (np.float64(1),)),
    Like("trace_estimate", "|d| trace_estimate(linear |v| d * v, zeros_like(d), 2)", jnp.sum, (TALL[:, 1],)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)


def test_scipy_has_the_same() -> None:
    a, b, c = A.tolist(), B.tolist(), C.tolist()
    x, q, zeros, same = answer(f"(solve_sylvester({a}, {b}, {c}), solve_lyapunov({(-A).tolist()}, eye(3)), polycompanion([-6.0, 11.0, -6.0, 1.0]), grad(|m| {{ let (u, h) = polar(m)\n  u[0, 1] + h[0, 1] }})(2.0 * eye(2)))", IMPORTS, Engine("interpret"))  # fmt: skip
    np.testing.assert_allclose(x, sl.solve_sylvester(A, B, C), rtol=1e-11)
    np.testing.assert_allclose(q, sl.solve_continuous_lyapunov(-A, np.eye(3)), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(zeros).real), [1, 2, 3], rtol=1e-9)
    np.testing.assert_allclose(same, [[0, 0.75], [0.25, 0]], atol=1e-7)  # at equal singular values


def test_of_nothing_and_of_one() -> None:
    ask = "(circulant(zeros(0)), polycompanion([5.0, 1.0]), polar([[-3.0]]) |> |(u, h)| [u[0, 0], h[0, 0]], hilbert(0), solve_sylvester([[1.0]], [[1.0]], [[4.0]]))"
    none, one, pair, nothing, two = answer(ask, IMPORTS, Engine("interpret"))
    assert none.shape == nothing.shape == (0, 0) and one == -5 and two == 2
    np.testing.assert_allclose(pair, [-1, 3])


def test_a_leading_coefficient_of_zero() -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = polycompanion([1.0, 0.0])\n", Engine("interpret"))] == ["DL0901"]
    assert [c for c, _ in codes(f"{IMPORTS}let y = polycompanion([1.0])\n", Engine("interpret"))] == ["DL0315"]


@pytest.mark.parametrize("wrong", ["polar([[1.0, 1.0], [1.0, 1.0]])", "polar([[nan]])"])
def test_columns_that_depend_on_each_other(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]


def test_a_singular_equation_is_no_number() -> None:
    found = answer("solve_sylvester([[1.0]], [[-1.0]], [[4.0]])", IMPORTS, Engine("interpret"))
    assert not np.isfinite(found).any()
