"""Within a program of JAX, XLA must neither collect constant factors nor multiply divisors where that overflows.

That is so of the simplest forms. A program of our own is compiled without XLA's algebra: `test_exact_options.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang

PROGRAM = """
pub fn power(x: f32) -> f32 = (x * 0.5)^200
pub fn power_of_quotient(x: f32) -> f32 = (x / 2.0)^200
pub fn power_of_negated(x: f32) -> f32 = (-(0.5 * x))^200
pub fn power_of_size(x: f32) -> f32 = abs(0.5 * x)^200
pub fn power_of_mean(x: f32) -> f32 = mean([x, x, x])^200
pub fn power_of_element(x: f32) -> f32 = { let s = [x, x] * 0.5
 s[1]^201 }
pub fn square(x: f32) -> f32 = (x * 1.0e-25) * (x * 1.0e-25)
pub fn cube(x: f32) -> f32 = (x * 1.0e-25)^3
pub fn product(x: f32, y: f32) -> f32 = (x * 1.0e-25) * (1.0e-25 * y)
pub fn inverse_square(x: f32) -> f32 = 1.0 / ((x * 1.0e25) * (x * 1.0e25))
pub fn chain(x: f32[n]) -> f32[n] = x * 1.0e-25 * 1.0e-25
pub fn chain_of_quotients(x: f32[n]) -> f32[n] = x / 1.0e25 / 1.0e25
pub fn longer_chain(x: f32[n]) -> f32[n] = x * 1.0e-15 * 1.0e-15 * 1.0e-15 * 1.0e15
pub fn half_norm(x: f32[n]) -> f32 = (0.5 * norm(x))^200
pub fn constant_norm() -> f32 = norm([0.6, 0.8])^200
pub fn small_constant_norm() -> f32 = norm([6.0e-31, 8.0e-31])
pub fn slope(x: f32) -> f32 = grad(power)(x)
pub fn quotient_by[V](x: V, y: V, z: V) -> V = x / y / z
pub fn divided_by_quotient(x: f32, y: f32, z: f32) -> f32 = x / (y / z)
pub fn two_quotients(x: f32, y: f32, z: f32) -> f32 = (x / y) / (z / y)
pub fn half_by(x: f32, y: f32) -> f32 = x / 2.0 / y
pub fn slope_of_inverse(x: f32, y: f32) -> f32 = grad(|y| x / y)(y)
"""
FUNCTIONS = difflang.loads(PROGRAM)


@pytest.mark.as_users
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("power", (2.0,), 1.0),
        ("power_of_quotient", (2.0,), 1.0),
        ("power_of_negated", (2.0,), 1.0),
        ("power_of_size", (2.0,), 1.0),
        ("power_of_mean", (1.0,), 1.0),
        ("power_of_element", (2.0,), 1.0),
        ("square", (1e25,), 1.0),
        ("cube", (1e25,), 1.0),
        ("product", (1e25, 1e25), 1.0),
        ("inverse_square", (1e-25,), 1.0),
        ("chain", ([1e25, 1e20],), [1e-25, 1e-30]),
        ("chain_of_quotients", ([1e25, 1e20],), [1e-25, 1e-30]),
        ("longer_chain", ([1e25, 1e20],), [1e-5, 1e-10]),
        ("half_norm", ([1.2, 1.6],), 1.0),
        ("constant_norm", (), 1.0),
        ("small_constant_norm", (), 1e-30),
        ("slope", (2.0,), 100.0),
        ("quotient_by", (1e-20, 1e-20, 1e-20), 1e20),
        ("quotient_by", ([1e-20, 1e25], [1e-20, 1e20], [1e-20, 1e-20]), [1e20, 1e25]),
        ("divided_by_quotient", (1e30, 1e30, 1e20), 1e20),
        ("two_quotients", (1e-20, 1e-20, 1e-20), 1.0),
        ("half_by", (1e38, 3e38), 1 / 6),
        ("slope_of_inverse", (1e-20, 1e-15), -1e10),
    ],
)
def test_factors_and_divisors_stay_where_they_are(name: str, args: tuple[Any, ...], expected: Any) -> None:
    found = jax.jit(getattr(FUNCTIONS, name))(*[np.asarray(x, np.float32) for x in args])
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected, np.float32), rtol=1e-5)
