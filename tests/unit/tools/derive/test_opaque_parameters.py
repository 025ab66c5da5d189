"""Derivatives of functions that take functions: the text keeps these, and derives them by the language's operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from difflang.base.diagnostics import DifflangError
from difflang.driver.checked_program import CheckedProgram
from difflang.tools.derive.derive import DeriveOptions, derive_formulas, derive_function
from support.derived import checked_file, checked_text, held, suitable, twice

ROOT = Path(__file__).parents[4]
PROGRAM = """float f64
fn newton(f: (f64) -> f64, x0: f64) -> f64 {
  var x = x0
  while abs(f(x)) > 1e-12 { x -= f(x) / f'(x) }
  x
}
fn one(f: (f64) -> f64, x: f64) -> f64 = sin(f(x * x))
fn step(f: (f64, f64[n]) -> f64[n], t: f64, y: f64[n], h: f64) -> f64[n] {
  let k = f(t, y)
  y + h * f(t + h / 2.0, y + h / 2.0 * k)
}
fn energy(v: (f64[n]) -> f64, x: f64[n]) -> f64 = sum(grad(v)(x)^2) + v(x)
fn both(f: (f64, f64) -> (f64, f64), x: f64, y: f64) -> f64 {
  let (a, b) = f(x, y * x)
  a * b
}
fn applied(A: f64[n] -o f64[n], b: f64[n]) -> f64 = sum(A(b)^2)
fn each(f: (f64) -> f64, x: f64[n]) -> f64[n] = [for i => f(x[i]) * x[i]]
fn chosen(f: (f64) -> f64, g: (f64) -> f64, x: f64) -> f64 = if x > 0.5 { f(g(x)) } else { g(f(x)) }
fn times(f: (f64[n], i32) -> f64[n], x: f64[n], k: i32) -> f64 {
  var y = x
  for i in 0..k { y = f(y, i) }
  sum(y)
}
fn vector[V: vec](f: (V) -> V, x: V) -> V = f(2.0 * f(x))
fn captured(f: (f64) -> f64, p: f64, x: f64) -> f64 {
  let g = |t| f(t * p) + p
  g'(x)
}
fn matrix(f: (f64[n]) -> f64[n], x: f64[n]) -> f64 = sum(jacobian(f)(x)^2)
"""
TEXTS = {
    "newton": ["fn d_newton(f: (f64) -> f64, x0: f64) -> f64 {", "f''(x)"],
    "one": ["cos(f(t1)) * f'(t1)"],
    "step": ["vjp[a, b](|a, b| f(a, b))(t, y)", "pull_2(d_k)", "d_2.b"],
    "energy": ["grad(v)(x)", "hvp(v)(x, "],
    "both": ["let (t2, t3) = f(x, t1)", "pull((t3, t2))"],
    "applied": ["transpose(A)(2.0 * A(b))"],
    "times": ["= vjp(f)("],
}
THRICE = ("one", "energy", "both", "applied", "chosen", "vector")
LIBRARY = [("roots", "fixed_point"), ("ode", "midpoint"), ("linalg", "cg"), ("quad", "gauss_legendre")]


@pytest.fixture(scope="module")
def program() -> CheckedProgram:
    return checked_text(PROGRAM, "program.dfl")


@pytest.mark.parametrize("name", ["newton", "step", "each", "times", "captured", "matrix", *THRICE])
def test_it_gives_what_the_derivative_gives(program: CheckedProgram, name: str) -> None:
    decl = program.module.fns[name]
    found = held(program, decl, suitable(program, decl))
    assert found.functions >= 2
    for text in TEXTS.get(name, ()):
        assert text in found.text, found.text
    for _ in range(2 if name in THRICE else 0):
        found = twice(found)
        assert found.functions >= 2


@pytest.mark.parametrize(("module", "name"), LIBRARY)
def test_functions_of_the_library(module: str, name: str) -> None:
    library = checked_file(ROOT / "stdlib" / f"{module}.dfl")
    decl = library.module.fns[name]
    assert held(library, decl, suitable(library, decl)).functions >= 1


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("step", DeriveOptions(mode="jvp", wrt="y"), "jvp[1](f)(t, y, d_y)"),
        ("energy", DeriveOptions(mode="hvp"), "jvp[0, 1](|a, b| hvp(v)(a, b))("),
        ("one", DeriveOptions(order=2), "f''("),
        ("vector", DeriveOptions(mode="vjp", argument_specs={"x": "f64[3]"}), "f: (f64[3]) -> f64[3], x: f64[3]"),
        ("vector", DeriveOptions(mode="jvp", argument_specs={"V": "f64[2]"}), "f: (f64[2]) -> f64[2], x: f64[2]"),
    ],
)
def test_every_mode(program: CheckedProgram, name: str, options: DeriveOptions, says: str) -> None:
    assert says in held(program, program.module.fns[name], options).text


def test_the_first_parameter_that_is_no_function_is_meant(program: CheckedProgram) -> None:
    assert "with respect to `x`" in derive_function(program, program.module.fns["one"], DeriveOptions())
    with pytest.raises(DifflangError) as found:
        derive_function(program, program.module.fns["one"], DeriveOptions(wrt="f"))
    assert found.value.diagnostics[0].code == "DL0401"


def test_a_formula_of_a_function_that_is_given() -> None:
    program = checked_text("float f64\nfn f(g: (f64) -> f64, x: f64) -> f64 = x^2 * g(x)")
    assert derive_formulas(program, None, "f", DeriveOptions()) == "d_x = x^2 * g'(x) + 2 * g(x) * x\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"T": "i32"}, "the type given for `T` is i32"),
        ({"x": "i32[3]"}, "the type given for `x` is"),
        ({"q": "f64"}, "no parameter"),
    ],
)
def test_types_that_do_not_fit(told: dict[str, str], says: str) -> None:
    program = checked_text("fn f[T: float](x: T[n]) -> T = sum(x^2)")
    with pytest.raises(DifflangError) as found:
        derive_function(program, program.module.fns["f"], DeriveOptions(argument_specs=told))
    assert says in found.value.diagnostics[0].message


def test_sizes_and_element_types_are_told_by_a_parameter() -> None:
    program = checked_text("fn f[T: float](x: T[n]) -> T = prod(x)\nfn g[P](p: P, v: D(P)) -> P = p + v")
    assert "d_f(x: f64[3]) -> f64[3]" in derive_function(
        program, program.module.fns["f"], DeriveOptions(argument_specs={"x": "f64[3]"})
    )
    assert "vjp_g(p: f64[2], v: f64[2]" in derive_function(
        program, program.module.fns["g"], DeriveOptions(mode="vjp", argument_specs={"P": "f64[2]"})
    )
