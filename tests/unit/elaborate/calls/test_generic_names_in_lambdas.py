"""A generic name in a lambda or a nested function is the type that it is where that stands, whoever calls it."""

from __future__ import annotations

import numpy as np
import pytest

from support.language import answer, codes

FUNCTIONS = """
fn applied[V: vec](f: (V) -> V, x: V) -> V = f(x)
fn beside[T: float](f: (f64) -> f64, like: T) -> f64 = f(1.0)
fn pulled[V: vec, W: vec](a: V -o W, b: W) -> V = transpose(a)(b)
fn linearly[V: vec, T: float](a: V -o V, b: V, like: T) -> V = a(b)

fn twice[T: float](a: T, x: T[n]) -> T[n] = applied(|v: T[n]| a * v, x)
fn tenth[T: float](like: T) -> f64 = beside(|v| v * f64(T(0.1)), f32(1))
fn back[T: float](a: T[m, n], b: T[m]) -> T[n] = pulled(linear |v: T[n]| a @ v, b)
fn product[T: float](a: T[n, n], b: T[n]) -> T[n] = linearly(linear |v: T[n]| a @ v, b, f32(1))
fn third[T: float](x: T) -> T {
  fn inner(y: T) -> T = y / T(3)
  inner(x)
}
fn after[T: float](f: (f64) -> f64, like: T) -> f64 = f(1.0) * 0.0 + f64(T(0.1))
fn proved[T: float](like: T) -> f64 = after(|v| { let l = linear |d: f64| f64(T(1)) * d
  l(v) }, f32(1))
fn unnamed(x: f64) -> f64 = after(|v| { let l = linear |d: f64| 2.0 * d
  l(v) }, f32(x))
fn converted[T: float](like: T) -> f64 = beside(|v| f64((v / 10.0).T()), f32(1))
fn slope[T: float](x: T) -> T {
  fn inner(y: T) -> T = y * y / T(2)
  grad(inner)(0.5) * x
}
fn made[T: float](a: T) -> (T) -> T = |v: T| v * v * a
fn steep[T: float](like: T) -> f64 = grad(made(1.0))(0.25)
fn doubled(f: (f64[2 * n]) -> f64, x: f64[n]) -> f64 = f(concat(x, x))
fn summed(x: f64[n], y: f64[m]) -> f64 = doubled(|v: f64[n]| sum(v) * f64(n), y) + sum(x)
fn whole[V: vec](x: V) -> V {
  fn inner(y: V) -> V = 2 * y
  applied(|v: V| inner(v), x)
}
"""


@pytest.mark.parametrize(
    ("ask", "value"),
    [
        ("twice(2.0, [1.0, 2.0])", [2.0, 4.0]),
        ("tenth(1.0)", 0.1),
        ("tenth(f32(1))", float(np.float32(0.1))),
        ("back([[1.0], [1.0]], [1.0, 3.0])", [4.0]),
        ("product([[2.0]], [3.0])", [6.0]),
        ("(|x| third(x))'(1.0)", 1 / 3),
        ("third(1.0)", 1 / 3),
        ("f64(third(f32(1)))", float(np.float32(1) / np.float32(3))),
        ("summed(zeros(4), [1.0, 2.0])", 24.0),
        ("whole([1.0, 2.0])", [2.0, 4.0]),
        ("proved(1.0)", float(np.float32(0.1))),
        ("unnamed(1.0)", float(np.float32(0.1))),
        ("converted(1.0)", 0.1),
        ("converted(f32(1))", float(np.float32(0.1))),
        ("slope(3.0)", 1.5),
        ("f64(slope(f32(3)))", 1.5),
        ("steep(f32(1))", 0.5),
        ("grad(|x| sum(whole(x) * twice(x[0], x)))([1.0, 2.0])", [14.0, 8.0]),
    ],
)
def test_it_means_what_it_does_around(ask: str, value: object) -> None:
    np.testing.assert_array_equal(answer(ask, FUNCTIONS), value)


def test_a_name_that_nothing_around_declares_is_unknown() -> None:
    program = "fn f[T: float](g: (T) -> T, x: T) -> T = g(x)\nfn h(x: f64) -> f64 = f(|v: T| v, x)\nprint(h(f64(1)))\n"
    assert codes(program) == [("DL0202", 2)]


METHODS = """
fn h(x: f64) -> f64 = 100 * x
fn applied(f: (f64) -> f64, x: f64) -> f64 = f(x)
fn in_lambda(x: f64) -> f64 {
  let h = |u: f64| 2 * u
  applied(|v| v.h(), x)
}
fn in_function(x: f64) -> f64 {
  let h = |u: f64| 2 * u
  fn inner(v: f64) -> f64 = v.h()
  inner(x)
}
fn with_a_number(x: f64) -> f64 {
  let g = |u: f64| x * u
  applied(|v| v.g(), x)
}
"""


@pytest.mark.parametrize(
    ("ask", "value"), [("in_lambda(2.0)", 4.0), ("in_function(2.0)", 4.0), ("with_a_number(3.0)", 9.0)]
)
def test_a_function_of_the_block_is_called_behind_a_point(ask: str, value: float) -> None:
    """And not one of the file that is called alike."""
    assert answer(ask, METHODS) == value
