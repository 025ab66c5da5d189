"""Decompositions and solutions are homogeneous: derivatives at k times a matrix are those at the matrix times a power.

Each function f has f(k a) = k^h f(a), so k^(1 - h) grad(f)(k a) is the gradient at a. A change by k times a direction
moves the gradient by as much, which is the law of second derivatives. The scales are powers of four: multiplying by
them, or by their roots, rounds nothing, so what differs was computed differently.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import difflang

A = np.array([[4.0, 1.0, 0.5], [0.25, 3.0, -1.0], [0.75, 0.5, 2.0]])
TALL, WIDE = A[:, :2], A[:2]
SYMMETRIC = A @ A.T / 4.0

# Name: h, a matrix, and the body of a function of it. A sum with different weights depends on every number.
BODIES: dict[str, tuple[float, Any, str]] = {
    "eigenvalues": (1, SYMMETRIC, "let (w, v) = eigh(a)\n weighted(w[.., newaxis])"),
    "eigenvectors": (0, SYMMETRIC, "let (w, v) = eigh(a)\n weighted(v * v)"),
    "singular values": (1, A, "let (u, s, vt) = svd(a)\n weighted(s[.., newaxis])"),
    "left vectors": (0, A, "let (u, s, vt) = svd(a)\n weighted(u * u)"),
    "right vectors": (0, A, "let (u, s, vt) = svd(a)\n weighted(vt * vt)"),
    "left vectors of a tall matrix": (0, TALL, "let (u, s, vt) = svd(a)\n weighted(u * u)"),
    "right vectors of a wide matrix": (0, WIDE, "let (u, s, vt) = svd(a)\n weighted(vt * vt)"),
    "orthonormal columns": (0, TALL, "let (q, r) = qr(a)\n weighted(q)"),
    "an upper triangle": (1, TALL, "let (q, r) = qr(a)\n weighted(r)"),
    "Cholesky": (0.5, SYMMETRIC, "weighted(cholesky(a))"),
    "LU, the lower triangle": (0, A, "let (p, l, u) = lu(a)\n weighted(l)"),
    "LU, the upper triangle": (1, A, "let (p, l, u) = lu(a)\n weighted(u)"),
    "a solution": (-1, A, "weighted(solve(a, [[1.0, 2.0], [3.0, -1.0], [0.5, 1.0]]))"),
    "an inverse": (-1, A, "weighted(inv(a))"),
    "a pseudoinverse": (-1, TALL, "weighted(linalg.pinv(a))"),
    "a least-squares solution": (-1, TALL, "weighted(linalg.lstsq(a, [1.0, 2.0, -1.0])[.., newaxis])"),
    "a determinant": (3, A, "det(a)"),
    "a logarithm of a determinant": (0, A, "let (sign, log) = slogdet(a)\n log"),
    "complex eigenvectors": (0, SYMMETRIC, "let (w, v) = eigh(complex(a, a - transpose(a)))\n weighted(abs(v))"),
    "complex left vectors": (0, TALL, "let (u, s, vt) = svd(complex(a, reverse(a)))\n weighted(abs(u))"),
}
HEADER = """float {dtype}
import linalg
fn weighted(x: {dtype}[n, m]) -> {dtype} = sum([for i in 0..n, j in 0..m => x[i, j] * {dtype}((1 + i) * (2 + j)^2)])
"""
FUNCTIONS = """fn f(a: {dtype}[{shape}]) -> {dtype} {{
 {body}
}}
fn reverse_mode(a: {dtype}[{shape}], d: {dtype}[{shape}]) -> {dtype}[{shape}] = grad(f)(a)
fn forward_mode(a: {dtype}[{shape}], d: {dtype}[{shape}]) -> {dtype} {{
 let (y, dy) = jvp(f)(a, d)
 dy
}}
fn forward_over_reverse(a: {dtype}[{shape}], d: {dtype}[{shape}]) -> {dtype}[{shape}] = hvp(f)(a, d)
fn reverse_over_reverse(a: {dtype}[{shape}], d: {dtype}[{shape}]) -> {dtype}[{shape}] = grad(|a| sum(d * grad(f)(a)))(a)
fn forward_over_forward(a: {dtype}[{shape}], d: {dtype}[{shape}]) -> {dtype} {{
 let (y, dy) = jvp(|a| forward_mode(a, d))(a, d)
 dy
}}
"""
# What a way gives at k times the matrix in k times the direction is its result times k to this, plus h.
WAYS = {
    "reverse_mode": -1, "forward_mode": 0,
    "forward_over_reverse": -1, "reverse_over_reverse": -1, "forward_over_forward": 0,
}  # fmt: skip


@cache
def functions(name: str, dtype: str) -> Any:
    _, a, body = BODIES[name]
    parts = {"dtype": dtype, "shape": ", ".join(map(str, a.shape)), "body": body}
    return difflang.loads((HEADER + FUNCTIONS).format(**parts))


def exponents(dtype: str, degree: float) -> list[int]:
    """Powers of four near both ends of a type's range, as far as what is computed, and its second derivative, fits."""
    far = (56 if dtype == "f32" else 500) // max(1, abs(round(degree)), abs(round(degree - 1)))
    return [-far, far]


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.nightly_cases(
    "LU.*", "eigenv.*-f32", "right.*-f32", "complex.*-f32", "orthonormal.*", "a(n inv| solu| least| det| log).*-f32"
)
def test_derivatives_scale_as_the_function(name: str, dtype: str) -> None:
    degree, a, _ = BODIES[name]
    m, number = functions(name, dtype), np.dtype("float32" if dtype == "f32" else "float64").type
    d = np.cos(np.arange(a.size)).reshape(a.shape)
    for way, power in WAYS.items():
        f = getattr(m, way)
        want = np.asarray(f(a.astype(number), d.astype(number)))
        assert np.isfinite(want).all() and want.any(), way
        for e in exponents(dtype, degree):
            k = 4.0**e
            got = np.asarray(f((a * k).astype(number), (d * k).astype(number))).astype(float)
            scaled = got * 4.0 ** (-e * (degree + power))
            close = 1e-4 if dtype == "f32" else 1e-11
            np.testing.assert_allclose(
                scaled, want, rtol=close, atol=close * np.abs(want).max(), err_msg=f"{way} at 4^{e}"
            )
