"""A loop whose length only the run knows is differentiated in functions called in several places, and in blocks."""

from __future__ import annotations

import numpy as np
import pytest

import difflang
from difflang.passes.inline import MAX_INLINE_EQNS

SOURCE = f"""float f64
fn f(x: f64, k: i32) -> f64 {{
  var s = x
  for _ in 0..k {{ s = 0.5 * s + sin(s) }}
  s{"".join(f" + sin({i}.0 * s)" for i in range(1, MAX_INLINE_EQNS))}
}}
fn twice(x: f64, k: i32) -> f64 = grad(f)(x, k) + grad(f)(2.0 * x, k + 1)
fn together(x: f64, k: i32) -> f64 = grad(|x| f(x, k) * f(2.0 * x, k))(x)
fn in_lanes(x: f64, k: i32) -> f64 {{
  let xs = [x, 2.0 * x]
  sum([for x in xs => grad(f)(x, k)]) * sum(grad(|xs| sum([for x in xs => f(x, k)]))(xs))
}}
"""


@pytest.mark.parametrize("name", ["twice", "together", "in_lanes"])
def test_a_function_with_a_loop_is_called_in_two_places(name: str) -> None:
    function = getattr(difflang.loads(SOURCE, name="histories"), name)
    for k in (0, 1, 3):
        want = function.interpret(0.3, np.int32(k))
        np.testing.assert_allclose(function(0.3, np.int32(k)), want, rtol=1e-12)


BLOCK = """float f64
fn f(x: f64, k: i32) -> f64 {
  var t = x
  let steps = for _ in 0..k {
    t = sin(t) + 0.1
    yield t
  }
  checkpoint {
    var s = 0.0
    for v in steps { s += 2.0 * v }
    s
  }
}
fn once(x: f64, k: i32) -> f64 = grad(f)(x, k)
fn twice(x: f64, k: i32) -> f64 = grad(grad(f))(x, k)
fn in_lanes(x: f64, k: i32) -> f64 = sum([for x in [x, 2.0 * x] => once(x, k)])
"""


@pytest.mark.parametrize("name", ["once", "twice", "in_lanes"])
def test_a_block_gives_back_a_cotangent_of_each_step_that_it_reads(name: str) -> None:
    function = getattr(difflang.loads(BLOCK, name="block"), name)
    for k in (0, 3):
        want = function.interpret(0.3, np.int32(k))
        np.testing.assert_allclose(function(0.3, np.int32(k)), want, rtol=1e-12)
