"""Linear algebra of complex matrices against JAX: values, both modes, and second derivatives both ways round."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import expm, solve_triangular

import difflang
from support.against_jax import check

Array = Any
RNG = np.random.default_rng(7)
GRADED = np.stack([np.diag(np.arange(1.0, 4.0)), np.diag([0.5, -0.25, 1.0])]) + RNG.normal(size=(2, 3, 3)) * 0.4
LARGE = np.stack([np.diag(np.arange(1.0, 6.0)), np.zeros((5, 5))]) + RNG.normal(size=(2, 5, 5)) * 0.3
STACK = np.stack([np.stack([np.eye(2) * 2, np.eye(2) * 3]), np.zeros((2, 2, 2))]) + RNG.normal(size=(2, 2, 2, 2)) * 0.4


def hermitian(a: Array) -> Array:
    return a @ jnp.conj(jnp.swapaxes(a, -1, -2)) + jnp.eye(a.shape[-1])


def parts(z: Array) -> Array:
    return jnp.concatenate([jnp.real(z).ravel(), jnp.imag(z).ravel()])


def logarithm_and_sign(a: Array) -> Array:
    sign, log = jnp.linalg.slogdet(a)
    return jnp.concatenate([parts(sign), log.ravel()])


CASES: dict[str, tuple[str, Callable[[Array], Array], Array]] = {
    "solve": ("parts(solve(a, a[..., 0..2] * 1j + 1.0))", lambda a: parts(jnp.linalg.solve(a, a[..., :2] * 1j + 1)), GRADED),
    "of a stack": ("parts(solve(a, a * a))", lambda a: parts(jnp.linalg.solve(a, a * a)), STACK),
    "inverse": ("parts(inv(a))", lambda a: parts(jnp.linalg.inv(a)), GRADED),
    "few rows": ("parts(det(a))", lambda a: parts(jnp.linalg.det(a)), GRADED),
    "more rows": ("parts(det(a))", lambda a: parts(jnp.linalg.det(a)), LARGE),
    "a logarithm": ("{ let (s, l) = slogdet(a)\n concat(parts(s), reshape(l, [-1])) }", logarithm_and_sign, LARGE),
    "logarithms": ("{ let (s, l) = slogdet(a)\n concat(parts(s), reshape(l, [-1])) }", logarithm_and_sign, STACK),
    "Cholesky": ("parts(cholesky(a @ conj(transpose(a)) + eye(3)))", lambda a: parts(jnp.linalg.cholesky(hermitian(a))), GRADED),
    "a lower triangle": ("parts(solve_triangular(a, a * 1j, lower = true))", lambda a: parts(solve_triangular(a, a * 1j, lower=True)), GRADED),
    "an upper one, turned": (
        "parts(solve_triangular(a, a * 1j, lower = false, transposed = true))",
        lambda a: parts(solve_triangular(a, a * 1j, lower=False, trans=1)), GRADED),
    "LU": ("{ let (p, l, u) = lu(a)\n concat(parts(l * 1j), parts(u)) }",
        lambda a: by_lu(a), GRADED),
    "QR": ("{ let (q, r) = qr(a)\n concat(parts(q), parts(r)) }", lambda a: by_qr(a), GRADED),
    "QR of a stack": ("{ let (q, r) = qr(a)\n concat(parts(q), parts(r)) }", lambda a: by_qr(a), STACK),
    "QR of more rows": ("{ let (q, r) = qr(a[.., 0..2])\n concat(parts(q), parts(r)) }", lambda a: by_qr(a[:, :2]), GRADED),
    "QR of more columns": ("{ let (q, r) = qr(a[0..2])\n concat(parts(q), parts(r)) }", lambda a: wide_qr(a[:2]), GRADED),
    "eigenvalues": ("{ let (w, v) = eigh(a)\n w }", lambda a: jnp.linalg.eigh(a)[0], GRADED),
    "a function of a Hermitian matrix": (
        "{ let (w, v) = eigh(a)\n concat(parts(v @ (complex(reshape(exp(w), [3, 1]), zeros(3, 1)) * conj(transpose(v)))), reshape(abs(v)^2, [-1])) }",
        lambda a: by_eigh(a), GRADED),
    "singular values": ("{ let (u, s, vt) = svd(a)\n s }", lambda a: jnp.linalg.svd(a)[1], GRADED),
    "the nearest unitary matrix": (
        "{ let (u, s, vt) = svd(a)\n concat(parts(u @ vt), reshape(abs(u)^2, [-1])) }", lambda a: nearest(a), GRADED),
    "the same of more rows": (
        "{ let (u, s, vt) = svd(a[.., 0..2])\n concat(parts(u @ vt), reshape(abs(u)^2, [-1])) }", lambda a: nearest(a[:, :2]), GRADED),
    "the same of more columns": (
        "{ let (u, s, vt) = svd(a[0..2])\n concat(parts(u @ vt), reshape(abs(u)^2, [-1])) }", lambda a: nearest(a[:2]), GRADED),
    "the exponential": ("parts(expm(a))", lambda a: parts(expm(a)), GRADED / 3),
    "exponentials": ("parts(expm(a))", lambda a: parts(jnp.stack([expm(x) for x in a])), STACK),
}  # fmt: skip


def by_qr(a: Array) -> Array:
    q, r = jnp.linalg.qr(a)
    return jnp.concatenate([parts(q), parts(r)])


def wide_qr(a: Array) -> Array:
    """JAX differentiates none with more columns than rows: that of the left square, and what Q makes of the rest."""
    q, r = jnp.linalg.qr(a[:, :2])
    return jnp.concatenate([parts(q), parts(jnp.concatenate([r, q.conj().T @ a[:, 2:]], axis=1))])


def by_eigh(a: Array) -> Array:
    w, v = jnp.linalg.eigh(a)
    return jnp.concatenate([parts(v @ (jnp.exp(w)[:, None] * v.conj().T)), (jnp.abs(v) ** 2).ravel()])


def nearest(a: Array) -> Array:
    u, _, vt = jnp.linalg.svd(a, full_matrices=False)
    return jnp.concatenate([parts(u @ vt), (jnp.abs(u) ** 2).ravel()])


def l_and_u(a: Array) -> tuple[Array, Array]:
    """The factors without exchanges of rows, which a graded matrix does not need."""
    n = a.shape[-1]
    low, up = jnp.eye(n, dtype=a.dtype), a
    for k in range(n - 1):
        factors = up[k + 1 :, k] / up[k, k]
        low = low.at[k + 1 :, k].set(factors)
        up = up.at[k + 1 :].add(-jnp.outer(factors, up[k]))
    return low, jnp.triu(up)


def by_lu(a: Array) -> Array:
    low, up = l_and_u(a)
    return jnp.concatenate([parts(low * 1j), parts(up)])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.nightly_except(
    "LU", "Cholesky", "QR", "QR of more rows", "eigenvalues", "singular values", "a lower triangle", "logarithms"
)
@pytest.mark.nightly_except("LU", "Cholesky", "QR", "eigenvalues", "singular values", "a lower triangle")
def test_as_in_jax(name: str) -> None:
    body, twin, x = CASES[name]
    sizes = ", ".join(map(str, x.shape[1:]))
    shape = ", ".join(map(str, x.shape))
    declarations = f"""fn parts(z: c128[..s]) = concat(reshape(real(z), [-1]), reshape(imag(z), [-1]))
fn whole(a: c128[{sizes}]) = {body}
fn g(x: f64[{shape}]) = whole(complex(x[0], x[1]))"""
    check("g(x)", lambda x: twin(x[0] + 1j * x[1]), x, declarations)


def test_a_determinant_is_holomorphic_and_its_logarithm_is_not() -> None:
    source = "float f64\nfn f(z: c128) -> c128 = det(complex(eye(2), zeros(2, 2)) * z) + det(complex(eye(5), zeros(5, 5)) * z)\n"
    module: Any = difflang.loads(source + "fn slope(z: c128) -> c128 = f'(z)", name="determinant")
    z = 0.5 - 2.0j
    np.testing.assert_allclose(module.slope(z), 2 * z + 5 * z**4, rtol=1e-13)
    for body in ("complex(slogdet([[z]]) |> |(s, l)| l, 0.0)", "cholesky([[z]])[0, 0]"):
        with pytest.raises(difflang.DifflangError, match="DL0408"):
            difflang.loads(
                f"float f64\nfn f(z: c128) -> c128 = {body}\nfn slope(z: c128) -> c128 = f'(z)", name="refused"
            )


def test_a_singular_complex_matrix_has_an_exact_gradient() -> None:
    """Nothing is divided by the determinant, which is zero here."""
    v = np.array([1.0, 2.0j, 1.0 + 1.0j, -1.0, 3.0])
    a = np.outer(v, v) + np.diag([0.0, 1.0, 2.0, 3.0, 0.0])
    f: Any = difflang.loads("fn f(a: c128[n, n]) -> f64 = real(det(a))", name="singular").f
    minors = np.array(
        [[np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) * (-1) ** (i + j) for j in range(5)] for i in range(5)]
    )
    np.testing.assert_allclose(f.grad("a")(a), minors.conj(), rtol=1e-11, atol=1e-11)
