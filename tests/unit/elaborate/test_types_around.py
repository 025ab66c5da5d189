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
        ("grad(|x| sum(whole(x) * twice(x[0], x)))([1.0, 2.0])", [14.0, 8.0]),
    ],
)
def test_it_means_what_it_does_around(ask: str, value: object) -> None:
    np.testing.assert_array_equal(answer(ask, FUNCTIONS), value)


def test_a_name_that_nothing_around_declares_is_unknown() -> None:
    program = "fn f[T: float](g: (T) -> T, x: T) -> T = g(x)\nfn h(x: f64) -> f64 = f(|v: T| v, x)\nprint(h(f64(1)))\n"
    assert codes(program) == [("DL0202", 2)]
