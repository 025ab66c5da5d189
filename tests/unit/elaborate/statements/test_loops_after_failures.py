"""A loop of unknown length takes no step after a check failed before it: its condition may hold for ever."""

from __future__ import annotations

import pytest

import difflang

MODULE = difflang.loads("""float f64
fn endless(a: f64) -> f64 {
  var y = 1.0
  while abs(y * y - a) > 1e-9 { y = 0.5 * (y + a / y) }
  y
}
fn here(a: f64) -> f64 {
  assert a > 0.0, "no root of {a}"
  var y = 1.0
  while abs(y * y - a) > 1e-9 { y = 0.5 * (y + a / y) }
  y
}
fn caller(a: f64) -> f64 {
  assert a > 0.0, "no root of {a}"
  2.0 * endless(a)
}
fn callers(a: f64) -> f64 = caller(a) + caller(a + 1.0)
fn item(a: f64) -> f64 = sum([for x in [1.0, a, 4.0] => here(x)])
fn called_item(a: f64) -> f64 = sum([for x in [1.0, a, 4.0] => caller(x)])
fn lambda(a: f64) -> f64 {
  assert a > 0.0, "no root of {a}"
  let again = |x| endless(x)
  again(a)
}
fn before_items(a: f64) -> f64 {
  assert a > 0.0, "no root of {a}"
  sum([for x in [a, 4.0] => endless(x)]) + sum(vmap(|x| sum([for y in [x, a] => here(y)]))([a, a]))
}
fn roots(a: f64) -> f64 = sum([for k in 0..2 => endless(a + 0.0 * f64(k))])
fn caller_of_items(a: f64) -> f64 {
  assert a > 0.0, "no root of {a}"
  roots(a)
}
fn step(a: f64) -> f64 {
  var s = 0.0
  for i in 0..3 { s += here(a - f64(i)) }
  s
}
""")
NAMES = ["here", "caller", "callers", "item", "called_item", "lambda", "before_items", "caller_of_items"]


@pytest.mark.parametrize("name", NAMES)
def test_the_failure_is_reported(name: str) -> None:
    f = MODULE[name]
    for run in (f, f.interpret, f.grad(), f.grad().grad(), lambda a: f.jvp()(a, 1.0)):
        with pytest.raises(difflang.AssertionFailure, match=r"no root of -1\.5"):
            run(-1.5)


def test_a_failure_in_an_earlier_step() -> None:
    with pytest.raises(difflang.AssertionFailure, match=r"no root of -0\.5"):
        MODULE.step(1.5)


def test_without_a_failure_nothing_changes() -> None:
    assert MODULE.callers(4.0) == pytest.approx(2 * (2 + 5**0.5))
    assert MODULE.called_item.grad()(4.0) == pytest.approx(0.5)
    for name in ("called_item", "caller_of_items"):
        graph = MODULE[name].lower(4.0).graph
        assert not any(e.op.name == "map" for e in graph.eqns), "items do not wait for each other"
