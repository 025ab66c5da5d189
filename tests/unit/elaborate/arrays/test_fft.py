"""Fourier transforms in programs: values against NumPy, derivatives against JAX and by adjointness, on both engines."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang
from support.language import answer
from support.values import compare

X = np.random.default_rng(3).normal(size=(3, 4, 5))
Z = X + 1j * np.random.default_rng(4).normal(size=(3, 4, 5))

SOURCE = """
float f64
fn last(x: f64[3, 4, 5], z: c128[3, 4, 5]) = (fft(z), ifft(z), rfft(x), irfft(z), irfft(z, n = 9))
fn first(x: f64[3, 4, 5], z: c128[3, 4, 5]) = (fft(z, axis = 0), ifft(z, axis = 0), rfft(x, axis = 0), irfft(z, axis = 0), irfft(z, n = 5, axis = 0))
fn two(x: f64[3, 4, 5], z: c128[3, 4, 5]) = (fft(z, axis = (0, 2)), ifft(z, axis = (0, 2)), rfft(x, axis = (0, 2)), irfft(z, axis = (0, 2)), irfft(z, n = 9, axis = (0, -1)))
fn all_axes(x: f64[3, 4, 5], z: c128[3, 4, 5]) = (fft(z, axis = (0, 1, 2)), ifft(z, axis = (0, 1, 2)), rfft(x, axis = (0, 1, 2)), irfft(z, axis = (0, 1, 2)), irfft(z, n = 9, axis = (2, 1, 0)))
fn there_and_back(x: f64[n]) -> f64[n] = irfft(rfft(x), n = n)
fn energy(z: c128[n]) -> f64 = sum(abs(fft(z))^2) / f64(n)
fn convolved(x: f64[n], y: f64[n]) -> f64[n] = irfft(rfft(x) * rfft(y), n = n)
fn loss(x: f64[n], y: f64[n]) -> f64 = sum(convolved(x, y)^3) + sum(abs(rfft(x * y)) * f64(iota(n // 2 + 1)))
fn grid(z: c128[n, m]) -> f64 = sum(abs(ifft(exp(fft(z, axis = (0, 1)) / 10), axis = 0)) ^ 3)
fn signal(z: c128[k]) -> f64 = sum(irfft(z * z, n = 2 * k - 1)^3) + sum(irfft(z)^2)
fn rows(x: f64[n, m]) -> f64 = sum(for i, j => abs(rfft(x[i])[j])^3)
fn spread(z: c128[n], steps: i32) -> c128[n] {
  var u = z
  for i in 0..steps { u = ifft(fft(u) * exp(-0.1j * c128(iota(n))^2)) * exp(0.1j * c128(abs(u)^2)) }
  u
}
fn focus(z: c128[n], steps: i32) -> f64 = sum(abs(spread(z, steps))^4)
"""
MODULE: Any = difflang.loads(SOURCE, name="transforms")
AXES = {"last": (2,), "first": (0,), "two": (0, 2), "all_axes": (0, 1, 2)}


def expected(axes: tuple[int, ...]) -> list[Any]:
    """The five transforms, by NumPy."""
    whole = [Z.shape[a] for a in axes]
    even, odd = [[*whole[:-1], n] for n in (2 * whole[-1] - 2, 5 if axes == (0,) else 9)]
    return [
        np.fft.fftn(Z, axes=axes), np.fft.ifftn(Z, axes=axes), np.fft.rfftn(X, axes=axes),
        np.fft.irfftn(Z, s=even, axes=axes), np.fft.irfftn(Z, s=odd, axes=axes),
    ]  # fmt: skip


@pytest.mark.parametrize("name", AXES)
@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_the_transforms_of_numpy(name: str, engine: str) -> None:
    f = getattr(MODULE, name)
    found = f(X, Z) if engine == "compiled" else f.interpret(X, Z)
    for got, want in zip(found, expected(AXES[name]), strict=True):
        compare(np.asarray(got), want, 1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 97, 100])
def test_every_size_comes_back(n: int) -> None:
    """Odd, even, prime and one; the energy of a signal is that of its transform."""
    x = np.random.default_rng(n).normal(size=n)
    np.testing.assert_allclose(MODULE.there_and_back(x), x, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(MODULE.energy(x + 1j), np.sum(np.abs(x + 1j) ** 2), rtol=1e-13)
    np.testing.assert_allclose(MODULE.energy.grad()(x + 1j), 2 * (x + 1j), rtol=1e-12, atol=1e-13)


ORACLES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "loss": (
        lambda x, y: jnp.sum(jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(y), x.size) ** 3)
        + jnp.sum(jnp.abs(jnp.fft.rfft(x * y)) * jnp.arange(x.size // 2 + 1)),
        (X[0, 0], X[1, 1]),
    ),
    "grid": (lambda z: jnp.sum(jnp.abs(jnp.fft.ifft(jnp.exp(jnp.fft.fft2(z) / 10), axis=0)) ** 3), (Z[0],)),
    "signal": (
        lambda z: jnp.sum(jnp.fft.irfft(z * z, 2 * z.size - 1) ** 3) + jnp.sum(jnp.fft.irfft(z) ** 2), (Z[0, 0],)
    ),
    "rows": (lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 3), (X[0],)),
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_a_gradient_is_the_conjugate_of_that_of_jax(name: str) -> None:
    oracle, args = ORACLES[name]
    value, gradient = getattr(MODULE, name).value_and_grad()(*args)
    again, interpreted = getattr(MODULE, name).value_and_grad().interpret(*args)
    with jax.enable_x64(True):
        wanted, theirs = jax.value_and_grad(oracle)(*map(jnp.asarray, args))
    compare(np.asarray(value), np.asarray(wanted), 1e-11)
    compare(np.asarray(gradient), np.conj(theirs), 1e-10)
    compare(interpreted, np.asarray(gradient), 1e-10)
    compare(again, np.asarray(value), 1e-11)


@pytest.mark.parametrize("name", [*ORACLES, "focus"])
def test_the_product_of_the_hessian_is_symmetric_and_right(name: str) -> None:
    args: tuple[Any, ...] = ORACLES[name][1] if name in ORACLES else (Z[0, 0], 3)
    rng = np.random.default_rng(6)
    v, w = (
        rng.normal(size=args[0].shape) + (1j * rng.normal(size=args[0].shape) if args[0].dtype == complex else 0)
        for _ in range(2)
    )
    f, h = getattr(MODULE, name), 1e-5
    hv, hw = (np.asarray(f.hvp()(*args, d)) for d in (v, w))
    np.testing.assert_allclose(np.vdot(w, hv).real, np.vdot(v, hw).real, rtol=1e-9)
    ahead, behind = (np.asarray(f.grad()(args[0] + s * v, *args[1:])) for s in (h, -h))
    np.testing.assert_allclose(hv, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-5)


def test_a_loop_of_transforms_keeps_the_energy_and_its_derivative() -> None:
    """Split steps of a wave equation are unitary: the gradient of the energy is that of the energy before them."""
    z = Z[0, 0]
    np.testing.assert_allclose(np.linalg.norm(MODULE.spread(z, 20)), np.linalg.norm(z), rtol=1e-13)
    _, pull = MODULE.spread.vjp("z")(z, 20)
    after = np.asarray(MODULE.spread(z, 20))
    np.testing.assert_allclose(pull(2 * after), 2 * z, rtol=1e-11)


def test_a_derivative_goes_through_a_transform_as_through_any_linear_function() -> None:
    compare(answer("(|t| sum(fft(t * [1j, 2.0, 3.0])[..1]))'(2.0 + 0j)"), 5 + 1j)
    compare(answer("jacobian(|x| irfft(rfft(x) * 2.0, n = 3))([1.0, 2.0, 3.0])"), 2 * np.eye(3), 1e-12)
    compare(answer("vmap(|x| rfft(x))([[1.0, 2.0], [3.0, 5.0]])"), np.fft.rfft([[1.0, 2.0], [3.0, 5.0]]))
    compare(answer("fft(zeros_like(z), axis = 1)", "let z: c128[0, 3] = zeros(0, 3)"), np.zeros((0, 3), complex))


def test_single_precision_stays_single() -> None:
    module: Any = difflang.loads(
        "fn f(x: f32[n]) -> c64[n // 2 + 1] = rfft(x)\nfn g(x: f32[n]) -> f32 = sum(abs(f(x))^2)"
    )
    x = X[0, 0].astype(np.float32)
    assert module.f(x).dtype == np.complex64
    np.testing.assert_allclose(module.f(x), np.fft.rfft(x), rtol=1e-5, atol=1e-6)
    assert module.g.grad()(x).dtype == np.float32
