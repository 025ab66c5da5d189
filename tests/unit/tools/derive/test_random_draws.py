"""Derivatives of functions that draw: the text draws the same, from a key that it takes."""

from __future__ import annotations

import numpy as np
import pytest

from difflang.driver.checked_program import CheckedProgram
from difflang.elaborate.context import Session
from difflang.tools.check_grad import elaborate_first_choice
from difflang.tools.derive.derive import DeriveOptions, derive_function
from support.derived import checked_text, held, results, suitable, twice

PROGRAM = """float f64
fn noise(n: dim) -> f64[n] = normal(n)
fn several(x: f64[n], s: f64) -> f64 {
  let z = noise(n)
  let unread = normal()
  let u = uniform()
  let w = normal(n)
  sum((x + s * z) ^ 2) * u + dot(w, x)
}
fn walk(x: f64, steps: i32) -> f64 {
  var y = x
  for i in 0..steps { y = sin(y) + 0.1 * y * normal() }
  y
}
fn sized(x: f64[k]) -> f64 = sum(x^2 * normal(k))
fn keyed(k: key, x: f64[n]) -> f64 = with_key(k) { sum(x^2 * normal(n)) }
fn rows(x: f64[n, m]) -> f64[n] = [for i in 0..n => sum(x[i] * normal(m))]
fn some(x: f64, c: bool) -> f64 { if c { x * normal() } else { x^2 * (normal() + normal()) } }
fn mixed(x: f64[n]) -> f64[n] = x[permutation(n)]^2
fn narrow(x: f32[n]) -> f32 {
  let z: f32[n] = normal(n)
  sum(z * x^2)
}
fn dropped(x: f64[n], f: (f64[n]) -> f64[n]) -> f64[n] = where(uniform(n) < 0.5, f(x), x * x)
"""
THRICE = ("several", "keyed", "some", "narrow")


@pytest.fixture(scope="module")
def program() -> CheckedProgram:
    return checked_text(PROGRAM, "program.dfl")


@pytest.mark.parametrize("name", ["several", "walk", "sized", "keyed", "rows", "some", "mixed", "narrow", "dropped"])
def test_it_draws_what_the_derivative_draws(program: CheckedProgram, name: str) -> None:
    decl = program.module.fns[name]
    found = held(program, decl, suitable(program, decl))
    assert "with_key(" in found.text
    for _ in range(2 if name in THRICE else 0):
        found = twice(found)


def test_the_key_is_a_parameter(program: CheckedProgram) -> None:
    text = derive_function(program, program.module.fns["several"], DeriveOptions())
    assert "fn d_several(x: f64[n], s: f64, k: key) -> f64[n] {" in text
    assert "# The gradient of `several` with respect to `x`, with draws from the key `k`: program.dfl, line 3." in text
    assert "let (_, _, u, w): (f32, f32, f64, f64[n]) = with_key(t1) {" in text  # `_`: the call, and what is unread
    assert "(uniform(), uniform(), uniform(), normal(n))" in text


def test_a_value_and_its_pullback_draw_once(program: CheckedProgram) -> None:
    text = held(program, program.module.fns["keyed"], DeriveOptions(mode="vjp", wrt="x")).text
    assert text.count("{ normal(n) }") == 1
    text = held(program, program.module.fns["narrow"], DeriveOptions(mode="vjp")).text
    assert text.count("{ normal(n) }") == 1


def test_it_is_what_the_operator_gives_with_that_key() -> None:
    source = "float f64\nfn f(x: f64[n]) -> f64 = sum(x^2 * normal(n)) * uniform()\n"
    program = checked_text(source)
    text = derive_function(program, program.module.fns["f"], DeriveOptions())
    gap = "fn gap(x: f64[3]) -> f64 = max(abs(d_f(x, key(7)) - with_key(key(7)) { grad(f)(x) }))\n"
    whole = checked_text(source + text.removeprefix("float f64\n") + gap)
    entry, _ = elaborate_first_choice(Session(), whole, whole.module.fns["gap"], {})
    assert results(entry, [np.array([1.0, 2.0, 3.0])])[0] == 0.0
