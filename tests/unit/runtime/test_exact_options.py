"""A compiled program computes what is written: XLA's algebra would compute another number where a part overflows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.runtime.compile import EXACT_OPTIONS

PROGRAM = """
import integrals (owens_t)
pub fn by_large(x: f32) -> f32 = x / 3.0e38
pub fn by_exponential(x: f32, y: f32) -> f32 = x / exp(y)
pub fn by_power(x: f32, y: f32, n: f32) -> f32 = x / y^n
pub fn halves(x: f32, y: f32) -> f32 = 0.5 * x + 0.5 * y
pub fn log_of_power(x: f32, n: f32) -> f32 = log(x^n)
pub fn of_exponentials(x: f32) -> f32 = exp(x) * exp(-x)
pub fn root_of_exponential(x: f32) -> f32 = exp(x)^0.01
pub fn root_of_square(x: f32) -> f32 = sqrt(x * x)
pub fn log_of_exponential(x: f32) -> f32 = log(exp(x))
pub fn with_zero(x: f32) -> f32 = (x * 1.0e30 + 0.0) * 1.0e30
pub fn widened(x: f32) -> f32 = f32(f64(x * 1.0e30)) * 1.0e30
pub fn stored(x: f32) -> f32 {
  var a = f32(zeros(3))
  a[0] = x * 1.0e30
  a[0] * 1.0e30
}
pub fn quotient(x: f32, y: f32, z: f32) -> f32 = x / y / z
pub fn transposed(x: f32[n, m], y: f32[n, m], z: f32[n, m]) -> f32[m, n] = transpose(x / y) / transpose(z)
pub fn joined(x: f32[n], y: f32[n], z: f32[n]) -> f32[n] = concat(x / y, z)[..n] / z
pub fn sorted(x: f32[n], y: f32[n], z: f32[n]) -> f32[n] = sort(x / y) / z
pub fn summed(x: f32[n], y: f32[n], z: f32[n]) -> f32[n] = cumsum(x / y) / z
pub fn picked(x: f32[n], y: f32[n], z: f32[n]) -> f32[1] = (x / y)[[0]] / z[..1]
pub fn greatest(x: f32, y: f32, z: f32) -> f32 = max(x / y, x / y) / z
pub fn to_the_first(x: f32, y: f32, z: f32) -> f32 = (x / y)^1.0 / z
pub fn in_a_loop(x: f32, y: f32, z: f32) -> f32 {
  var (q, i) = (x / y, 0)
  while i < 1 {
    q = q / z
    i += 1
  }
  q
}
pub fn after_a_loop(x: f32, y: f32, z: f32) -> f32 {
  var (q, i) = (x, 0)
  while i < 1 {
    q = q / y
    i += 1
  }
  q / z
}
# Too long to be written out where it is called.
fn long(x: f32, y: f32) -> (f32, f32) {
  var s = x
{steps}
  (x / y, s)
}
pub fn called(x: f32, y: f32, z: f32) -> (f32, f32) {
  let ((a, s), (b, t), (c, u)) = (long(x, y), long(2 * x, y), long(x, 2 * y))
  (a / z, b / z + c / z + 0.0 * (s + t + u))
}
pub fn given(x: f32, y: f32, z: f32) -> (f32, f32) {
  let ((a, s), (b, t), (c, u)) = (long(x / y, z), long(2 * x / y, z), long(x / (2 * y), z))
  (a, b + c + 0.0 * (s + t + u))
}
pub fn of_numbers() -> (f32, f32) = (owens_t(1.0, 2.0e19), owens_t(2.0, 2.0e19))
"""
FUNCTIONS = difflang.loads(
    PROGRAM.replace("{steps}", "\n".join(f"  s = sin(s) * cos(s + {i}.0) + s * 0.{i + 1}" for i in range(60)))
)
SMALL, LARGE = 1e-20, 1e20


@pytest.mark.as_users
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("by_large", (3e38,), 1.0),
        ("by_exponential", (1e38, 88.5), 0.3672302),
        ("by_power", (1e38, 1e19, 2.0), 1.0),
        ("halves", (3e38, 3e38), 3e38),
        ("log_of_power", (-2.0, 3.0), np.nan),
        ("of_exponentials", (200.0,), np.nan),
        ("root_of_exponential", (100.0,), np.inf),
        ("root_of_square", (1e30,), np.inf),
        ("log_of_exponential", (100.0,), np.inf),
        *[(name, (1e-30,), 1e30) for name in ("with_zero", "widened", "stored")],
        ("transposed", ([[LARGE]], [[LARGE]], [[LARGE]]), [[SMALL]]),
        *[(name, ([LARGE], [LARGE], [LARGE]), [SMALL]) for name in ("joined", "sorted", "summed", "picked")],
        *[
            (name, (x, x, x), 1 / x)
            for name in ("quotient", "greatest", "to_the_first", "in_a_loop", "after_a_loop")
            for x in (SMALL, LARGE)
        ],
        *[(name, (SMALL, SMALL, SMALL), (LARGE, 2.5 * LARGE)) for name in ("called", "given")],
        ("of_numbers", (), (0.07932763, 0.01137507)),
    ],
)
def test_a_program_computes_what_is_written(name: str, args: tuple[Any, ...], expected: Any) -> None:
    found = getattr(FUNCTIONS, name)(*[np.asarray(x, np.float32) for x in args])
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected, np.float32), rtol=1e-5)


@pytest.mark.as_users
def test_a_lowered_program_is_compiled_alike_and_one_of_jax_where_it_is_asked_for() -> None:
    x = np.float32(3e38)
    assert FUNCTIONS.by_large.lower("f32").compile()(x) == [1.0]
    assert FUNCTIONS.by_large.lower("f32").compile({"xla_disable_hlo_passes": ""})(x) != [1.0]
    assert jax.jit(FUNCTIONS.by_large, compiler_options=EXACT_OPTIONS)(x) == 1.0
    assert jax.jit(FUNCTIONS.by_large)(x) != 1.0
    assert float(jax.vmap(FUNCTIONS.by_large)(x[None])[0]) == 1.0
