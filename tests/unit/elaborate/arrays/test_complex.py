"""Complex numbers in programs: values against NumPy, derivatives against JAX and closed forms, on both engines."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang
from support.language import answer, codes, ran
from support.values import compare

Z = np.array([1.5 - 0.5j, -0.3 + 2.0j, -1.2 - 0.7j])
M = np.array([[1 + 2j, -1j, 0.5], [0.25 - 1j, 3, 2 + 1j]])
GIVEN = """let z = [1.5 - 0.5j, -0.3 + 2.0j, -1.2 - 0.7j]
let m = [[1.0 + 2.0j, -1j, 0.5], [0.25 - 1.0j, 3.0, 2.0 + 1.0j]]
let none: c128[0] = zeros(0)
"""

VALUES = [
    ("z", Z), ("m", M), ("1.0 + 2.0j", 1 + 2j), ("2j", 2j), ("1e-3j", 1e-3j), ("3 - 2j", 3 - 2j), ("1_000.5j", 1000.5j), ("-2j", -2j),
    ("complex(1, -2.5)", 1 - 2.5j), ("complex(real(z), imag(m))", Z.real + 1j * M.imag), ("complex(real(z), 0)", Z.real + 0j),
    ("real(z)", Z.real), ("imag(m)", M.imag), ("conj(z)", Z.conj()), ("abs(m)", np.abs(M)), ("angle(z)", np.angle(Z)),
    ("z + m", Z + M), ("z - 1", Z - 1), ("z * m", Z * M), ("m / z", M / Z), ("-z", -Z), ("2 * z", 2 * Z), ("1j * z", 1j * Z), ("z ^ 3", Z**3), ("z ^ -2", Z**-2.0),
    ("z ^ z", Z**Z), ("z ^ (0.5 + 0j)", np.sqrt(Z)), ("(0.0 + 0j) ^ (0.5 + 1j)", 0j), ("(0.0 + 0j) ^ (0.0 + 0j)", 1 + 0j),
    *[(f"{f}(z)", getattr(np, f)(Z)) for f in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")],
    ("sqrt(complex(-4.0, 0.0))", 2j), ("sqrt(complex(-4.0, -0.0))", -2j), ("log(complex(-1.0, -0.0))", -1j * np.pi), ("sinh(1e-20 + 0j)", 1e-20 + 0j),
    ("tanh(300.0 + 1j)", 1 + 0j), ("abs(1e200 + 1e200j)", np.hypot(1e200, 1e200)), ("angle(complex(-1.0, -0.0))", -np.pi),
    ("sum(z)", Z.sum()), ("prod(m, axis = 0)", M.prod(0)), ("mean(m, axis = 1)", M.mean(1)), ("variance(z)", Z.var()), ("std(m)", M.std()), ("norm(m)", np.linalg.norm(M)),
    ("norm(m, axis = 0, keepdims = true)", np.linalg.norm(M, axis=0, keepdims=True)), ("norm([3e200 + 4e200j])", 5e200), ("norm(3e-200 - 4e-200j)", 5e-200),
    ("norm(m, axis = 1)", np.linalg.norm(M, axis=1)), ("norm((z, 2.0))", np.sqrt(np.linalg.norm(Z) ** 2 + 4)), ("dot((z, 2.0), (1j * z, 3.0))", np.vdot(Z, 1j * Z).real + 6),
    ("m @ z", M @ Z), ("dot(z, z)", np.dot(Z, Z)), ("outer(z, z)", np.outer(Z, Z)), ("transpose(m)", M.T), ("reshape(m, [3, 2])", M.reshape(3, 2)),
    ("concat(z, z)", np.concatenate([Z, Z])), ("pad(z, 1, 1)", np.pad(Z, 1)), ("reverse(z)", Z[::-1]), ("z[1..]", Z[1:]), ("m[1, 2]", M[1, 2]), ("z[[2, 0]]", Z[[2, 0]]),
    ("z == conj(z)", Z.conj() == Z), ("z != z", Z != Z), ("where(real(z) > 0, z, 0)", np.where(Z.real > 0, Z, 0)), ("[for i => z[i] * z[i]]", Z * Z),
    ("isnan(complex(nan, 0.0))", True), ("isinf(complex(0.0, inf))", True), ("isfinite(z)", np.isfinite(Z)), ("isfinite(complex(0.0, nan))", False),
    ("c64(z)", Z.astype(np.complex64)), ("c128(c64(z))", Z.astype(np.complex64).astype(np.complex128)), ("c128(2)", 2 + 0j), ("c64(1.5)", np.complex64(1.5)), ("c128(iota(3))", np.arange(3) + 0j),
    ("zeros_like(z)", np.zeros(3, complex)), ("ones_like(z)", np.ones(3, complex)), ("fill(2, 1j)", np.full(2, 1j)), ("eye(2) + 0j", np.eye(2) + 0j), ("stop(z)", Z),
    ("sum(none)", 0j), ("prod(none)", 1 + 0j), ("abs(none)", np.zeros(0)), ("exp(none)", np.zeros(0, complex)), ("norm(none)", 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "want"), VALUES, ids=[text for text, _ in VALUES])
def test_a_value(text: str, want: Any) -> None:
    compare(answer(text, GIVEN), want, 1e-13)


def test_loops_branches_and_updates_hold_complex_numbers() -> None:
    source = """fn orbit(c: c128, n: i32) -> (c128, i32) {
  var z = c128(0)
  var steps = 0
  while steps < n and abs(z) <= 2 {
    z = z^2 + c
    steps += 1
  }
  (z, steps)
}
fn marked(z: c128[n]) -> c128[n] {
  var w = z
  w[0] = 1j
  w[[1, 1]] += 2.0 + 1j
  for i in 0..n { if real(w[i]) > 0 { w[i] *= 2j } }
  w
}"""
    z = steps = 0
    while steps < 50 and abs(z) <= 2:
        z, steps = z * z + (0.3 + 0.5j), steps + 1
    compare(answer("orbit(0.3 + 0.5j, 50)", source), (np.complex128(z), steps), 1e-12)
    want = Z.copy()
    want[0] = 1j
    want[1] += 4 + 2j
    compare(answer("marked(z)", GIVEN + source), np.where(want.real > 0, want * 2j, want))


def test_they_are_printed_as_they_are_written() -> None:
    _, lines = ran(
        'print(1.0 - 2.5j, 0.1j, [1j, 2.0])\nlet z: c64 = 0.1 + 1e-9j\nprint(z, "{z:.2f}", complex(nan, -inf))'
    )
    assert lines == ["1.0-2.5j 0.0+0.1j [0.0+1.0j, 2.0+0.0j]", "0.1+1e-09j 0.10+0.00j nan-infj"]


def test_a_number_as_written_takes_the_type_asked_for() -> None:
    values, _ = ran(
        "let a = 1.0 + 2j\nlet b: c128 = 1.0 + 2j\nlet c = b * 3 - 1j\nlet d: c128 = complex(1.0, 2.0)\nlet e: c128 = 1"
    )
    assert [str(values[n].type.dtype) for n in "abcde"] == ["c64", "c128", "c128", "c128", "c128"]


# ---- Derivatives: steepest ascent

SOURCE = """
float f64
fn size(z: c128[n]) -> f64 = sum(abs(z)^2) + norm(z)
fn phase(z: c128[n]) -> f64 = sum(angle(z) * abs(z))
fn wave(z: c128[n]) -> f64 = real(sum(exp(1j * z) * conj(z) / (z + 3))) + imag(prod(sin(z)))
fn roots(z: c128[n]) -> f64 = sum(abs(sqrt(z) + log(z) + z ^ (0.5 - 1j))^2)
fn hyperbolic(z: c128[n]) -> f64 = real(sum(tanh(z) * cosh(z) - sinh(z) ^ 2 + tan(z)))
fn product(z: c128[n]) -> f64 = abs(sum([for i => sum(for j => z[i] * conj(z[j]) * c128(i - j))]) + dot(z, z) ^ 3)
fn stepped(z: c128[n]) -> f64 {
  var w = z
  for i in 0..3 { w = where(real(w) > 0, w * w, conj(w) + 1j) }
  var k = 0
  while abs(sum(w)) > 0.1 and k < 5 {
    w *= 0.5 + 0.5j
    k += 1
  }
  if imag(w[0]) > 0 { sum(abs(w)) } else { sum(real(w) * imag(w)) }
}
fn map(z: c128[n]) -> c128[n] = z * conj(z) * exp(z) + complex(real(z), 2)
"""
MODULE: Any = difflang.loads(SOURCE, name="complexes")


def stepped(z: Any) -> Any:
    w = z
    for _ in range(3):
        w = jnp.where(w.real > 0, w * w, w.conj() + 1j)
    for _ in range(5):
        w = jnp.where(jnp.abs(w.sum()) > 0.1, w * (0.5 + 0.5j), w)
    return jnp.where(w[0].imag > 0, jnp.abs(w).sum(), (w.real * w.imag).sum())


ORACLES: dict[str, Any] = {
    "size": lambda z: jnp.sum(jnp.abs(z) ** 2) + jnp.sqrt(jnp.sum(z.real**2 + z.imag**2)),
    "phase": lambda z: jnp.sum(jnp.angle(z) * jnp.abs(z)),
    "wave": lambda z: jnp.sum(jnp.exp(1j * z) * z.conj() / (z + 3)).real + jnp.prod(jnp.sin(z)).imag,
    "roots": lambda z: jnp.sum(jnp.abs(jnp.sqrt(z) + jnp.log(z) + z ** (0.5 - 1j)) ** 2),
    "hyperbolic": lambda z: jnp.sum(jnp.tanh(z) * jnp.cosh(z) - jnp.sinh(z) ** 2 + jnp.tan(z)).real,
    "stepped": stepped,
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_a_gradient_is_the_conjugate_of_that_of_jax(name: str, engine: str) -> None:
    """JAX gives the partial derivative less i times the other; ours point where the function grows fastest."""
    f = getattr(MODULE, name).value_and_grad()
    value, gradient = f(Z) if engine == "compiled" else f.interpret(Z)
    with jax.enable_x64(True):
        wanted, theirs = jax.value_and_grad(ORACLES[name])(jnp.asarray(Z))
    compare(np.asarray(value), np.asarray(wanted), 1e-12)
    compare(np.asarray(gradient), np.conj(theirs), 1e-11)


@pytest.mark.parametrize("name", [*ORACLES, "product"])
def test_a_gradient_is_made_of_the_partial_derivatives(name: str) -> None:
    f, h = getattr(MODULE, name), 1e-6
    for k in range(3):
        for unit in (1, 1j):
            step = h * unit * np.eye(3)[k]
            slope = (f.interpret(Z + step) - f.interpret(Z - step)) / (2 * h)
            np.testing.assert_allclose((np.conj(unit) * f.grad().interpret(Z)[k]).real, slope, rtol=1e-7, atol=1e-8)


def test_jvp_and_vjp_are_adjoint_over_the_reals() -> None:
    rng = np.random.default_rng(0)
    dz, ct = (rng.normal(size=3) + 1j * rng.normal(size=3) for _ in range(2))
    _, change = MODULE.map.jvp()(Z, dz)
    _, pull = MODULE.map.vjp()(Z)
    np.testing.assert_allclose(np.vdot(ct, change).real, np.vdot(pull(ct), dz).real, rtol=1e-13)
    assert abs(np.vdot(ct, change) - np.vdot(pull(ct), dz)) > 0.1, "the imaginary parts have nothing to do with it"


@pytest.mark.parametrize("name", ["size", "wave", "roots", "hyperbolic", "product", "stepped"])
def test_the_product_of_the_hessian_is_symmetric_and_right(name: str) -> None:
    rng = np.random.default_rng(1)
    v, w = (rng.normal(size=3) + 1j * rng.normal(size=3) for _ in range(2))
    f = getattr(MODULE, name)
    hv, hw = (np.asarray(f.hvp()(Z, d)) for d in (v, w))
    np.testing.assert_allclose(np.vdot(w, hv).real, np.vdot(v, hw).real, rtol=1e-9, atol=1e-11)
    h = 1e-5
    differences = (f.grad().interpret(Z + h * v) - f.grad().interpret(Z - h * v)) / (2 * h)
    np.testing.assert_allclose(hv, differences, rtol=1e-6, atol=1e-7)


def test_a_step_against_the_gradient_goes_down() -> None:
    gradient = MODULE.size.grad()(Z)
    assert MODULE.size(Z - 0.1 * np.asarray(gradient)) < MODULE.size(Z)


def test_one_step_moves_real_and_complex_fields() -> None:
    """A number as written, or a real one, scales each leaf of a change; its norm is that over the real numbers."""
    source = """record Net[n] { w: c128[n], b: f64, tag: str }
fn loss(m: Net[n], x: c128[n]) -> f64 = abs(sum(m.w * x) - 1j)^2 + m.b^2
fn trained(m: Net[n], x: c128[n], rate: f64) -> (Net[n], f64, f64) {
  let g = grad(loss)(m, x)
  (m + -0.125 * g + -rate * g / 2.0, norm(g), dot(g, 2.0 * g))
}
let x = [1j, 1.0]
let m = Net(w = [1.0 + 1j, 2.0], b = 0.5, tag = "a")"""
    w, x = np.array([1 + 1j, 2]), np.array([1j, 1])
    g = 2 * np.conj(x) * (np.sum(w * x) - 1j)
    length = np.sqrt(np.sum(np.abs(g) ** 2) + 1)
    want = (w - 0.25 * g, 0.25, length, 2 * length**2)
    compare(answer("trained(m, x, 0.25)", source), want)


KINKS = [
    ("grad(|z| abs(z))(0.0 + 0j)", 0j), ("grad(|z| angle(z))(0.0 + 0j)", 0j), ("grad(|z| norm(z))([0j])", np.array([0j])), ("grad(|z| real(z))(1j)", 1 + 0j), ("grad(|z| imag(z))(1j)", 1j),
    ("grad(|z| abs(stop(z)))(1j)", 0j), ("grad(|x| abs(complex(x, 2.0 * x)))(3.0)", np.sqrt(5.0)), ("grad(|z| real(prod(z)))([0j, 2j, 3.0])", np.conj([6j, 0, 0])),
    ("grad(|z| real(z^0))(0j)", 0j), ("grad(|z| real(z ^ (2.0 + 0j)))(0j)", 0j), ("grad(|x| real(c128(x) * 1j))(2.0)", 0.0), ("grad(|z| real(where(abs(z) > 0, log(z), 0)))(0j)", 0j),
]  # fmt: skip


@pytest.mark.parametrize(("text", "want"), KINKS, ids=[text for text, _ in KINKS])
def test_where_there_is_no_derivative(text: str, want: Any) -> None:
    compare(answer(text), want)


# ---- Complex derivatives

SLOPES = [
    ("(|z| z^3)'(1.0 + 2j)", 3 * (1 + 2j) ** 2), ("exp''(1j)", np.exp(1j)), ("log'(-1.0 + 1j)", 1 / (-1 + 1j)), ("sqrt'(-4.0 + 1j)", 0.5 / np.sqrt(-4 + 1j)),
    ("tanh'(1.0 + 1j)", 1 / np.cosh(1 + 1j) ** 2), ("tan''(1.0 + 1j)", 2 * np.tan(1 + 1j) / np.cos(1 + 1j) ** 2), ("tanh'(400.0 + 1j)", 0j), ("sinh'''(1j)", np.cosh(1j)),
    ("(|z| (2.0 + 1j) ^ z)'(1j)", (2 + 1j) ** 1j * np.log(2 + 1j)), ("(|z| 1 / (1 + z^2))'(2.0 + 0j)", -0.16 + 0j), ("(|t| exp(1j * c128(t)))'(0.5)", 1j * np.exp(0.5j)),
    ("(|z| if real(z) > 0 { z^2 } else { z })'(1j)", 1 + 0j), ("(|z| z * c128(stop(abs(z))))'(3.0 + 4j)", 5 + 0j), ("power'(2j)", 5 * (2j) ** 4), ("power'''(2j)", 60 * (2j) ** 2),
    ("(|z| { let size = abs(z)\n z * z })'(1j)", 2j), ("(|w| (|z| conj(2j) * z^2 * w)'(w))'(1j)", -8j * 1j), ("abs'(-2.0)", -1.0),
    ("jet(|z| exp(z) * z, order = 2)(1j)", np.exp(1j) * np.array([1j, 1 + 1j, 1 + 0.5j])), ("(|w| sum(jet(|z| w * exp(z), order = 1)(w)))'(1j)", np.exp(1j) * (2 + 2j)),
]  # fmt: skip
POWER = "fn power(z: c128) -> c128 {\n  var p = z\n  for i in 0..4 { p *= z }\n  p\n}"


@pytest.mark.parametrize(
    ("text", "want"), [s for s in SLOPES if "second" not in s[0]], ids=[t for t, _ in SLOPES if "second" not in t]
)
def test_the_derivative_of_a_holomorphic_function(text: str, want: Any) -> None:
    compare(answer(text, POWER), want, 1e-13)


LOST = [
    "print(conj'(1j))", "print(abs'(1j))", "print(angle'(1j))", "print((|z| real(z))'(1j))", "print((|z| z * conj(z))'(1j))", "print((|z| complex(real(z), imag(z)))'(1j))",
    "print((|z| if real(z) > 0 { z } else { conj(z) })'(1j))", "print((|z| grad(|w| real(w^2))(z))'(1j))", "print((|z| sum([for i in 0..3 => conj(z)]))'(1j))",
    "print((|z| (|w| w * conj(z))'(z))'(1j))", "print((|z| where(real(z) > 0, z, conj(z)))'(1j))", "print((|z| norm([z]) * 1.0)'(1j))",
    "print(jet(|z| z * conj(z), order = 2)(1j))", "print(jet(|z| (z, conj(z)), order = 1)(1j))", "print((|w| sum(jet(|z| conj(w) * z, order = 1)(w)))'(1j))",
]  # fmt: skip


@pytest.mark.parametrize("source", LOST)
def test_a_function_that_is_not_holomorphic_has_none(source: str) -> None:
    assert codes(source) == [("DL0408", 1)]


RULED = """fn f(z: c128) -> c128 = complex(real(z)^2 - imag(z)^2, 2.0 * real(z) * imag(z))
rule f(z) {{ (f(z), linear |dz| {rule}) }}
"""


def test_what_a_rule_says_counts_not_how_the_value_is_computed() -> None:
    rule = RULED.format(rule="2.0 * z * dz")
    compare(answer("f'(1.0 + 2j)", rule), 2 + 4j)
    compare(answer("f''(1.0 + 2j)", rule), 2 + 0j)
    compare(answer("g(1.0 + 2j)", f"{rule}fn g(z: c128) -> c128 = f'(z)"), 2 + 4j)
    for lost in ("2.0 * z * conj(dz)", "2.0 * conj(z) * dz"):
        assert [c for c, _ in codes(f"{RULED.format(rule=lost)}print(f'(1j))\n")] == ["DL0408"]


def test_the_curvature_of_a_length_where_a_part_is_zero() -> None:
    """`v / |z| - z <z, v> / |z|^3`: the parts are squared together, none has a length of its own."""
    z, v = np.array([1, 0, 2j]), np.array([1j, 1, 0.5 + 1j])
    size = np.linalg.norm(z)
    want = v / size - z * np.vdot(z, v).real / size**3
    compare(answer("hvp(|z| norm(z))([1.0 + 0j, 0j, 2j], [1j, 1.0 + 0j, 0.5 + 1j])"), want, 1e-15)


PAIR = np.array([1 + 1j, 2 + 0j])
JACOBIANS = [
    ("jacobian(f)(z)", [[2j * PAIR[0], 0], [2 * PAIR[1], 2 * PAIR[0]]]),
    ("jacfwd(f)(z)", [[2j * PAIR[0], 0], [2 * PAIR[1], 2 * PAIR[0]]]),
    ("jacrev(f)(z)", [[2j * PAIR[0], 0], [2 * PAIR[1], 2 * PAIR[0]]]),
    ("jacobian(|z: c128[2]| 1j * sum(z^3))(z)", 3j * PAIR**2),
    ("jacobian(|z| z[0] * z[1]^2)([1.0 + 1j, 2.0 + 0j])", [4 + 0j, 4 + 4j]),
    ("jacrev(|z| z^3)(1.0 + 1j)", 6j),
    ("jacobian(fft)(z)", [[1 + 0j, 1], [1, -1]]),
    ("jacobian(|t: f64[2]| exp(complex(t[0], t[1])))([0.5, 0.1])", np.exp(0.5 + 0.1j) * np.array([1, 1j])),
    ("jacobian(|z: c128[2]| solved(z))(z)", np.diag(0.5 / np.sqrt(PAIR))),
    ("jacobian[z](|z: c128[2], t: f64| complex(t, 0.0) * z)(z, 3.0)", 3 * np.eye(2) + 0j),
]


@pytest.mark.parametrize(("text", "want"), JACOBIANS)
def test_the_jacobian_of_a_holomorphic_function(text: str, want: Any) -> None:
    before = """let z: c128[2] = [1.0 + 1j, 2.0 + 0j]
fn f(z: c128[2]) -> c128[2] = z * [1j, 2.0 + 0j] * z[0]
fn solved(z: c128[2]) -> c128[2] {
  var x = z
  while norm(x * x - z) > 1e-12 { x = (x + z / x) / 2.0 }
  x
}
"""
    compare(answer(text, before), np.asarray(want), 1e-12)


def test_jacobians_of_complex_and_real_numbers_beside_each_other() -> None:
    text = "jacobian[z, t](|z: c128[2], t: f64| complex(t, 0.0) * z)(z, 3.0)"
    in_z, in_t = answer(text, "let z: c128[2] = [1.0 + 1j, 2.0 + 0j]\n")
    compare(in_z, 3 * np.eye(2) + 0j)
    compare(in_t, PAIR)


def test_rows_of_complex_results_of_real_numbers() -> None:
    """A cotangent of a real number is real: the derivative's parts come from pulling back along 1 and along i."""
    text = """
fn f(x: f64[3]) -> c128[2] = rfft(x^2) * exp(1j * complex(x[0], 0.0))
fn mixed(p: (f64[2], c128)) -> c128[2] = p |> |(x, z)| complex(x, x * x) * z^2
fn rows(x: f64[3]) -> c128[2, 3] = jacrev(f)(x)
fn columns(x: f64[3]) -> c128[2, 3] = jacfwd(f)(x)
fn rows_of_mixed(p: (f64[2], c128)) = jacrev(mixed)(p)
fn columns_of_mixed(p: (f64[2], c128)) = jacfwd(mixed)(p)
"""
    module: Any = difflang.loads("float f64" + text, name="rows")
    x = np.array([0.5, -1.0, 2.0])
    np.testing.assert_allclose(np.asarray(module.rows(x)), np.asarray(module.columns(x)), rtol=1e-14)
    np.testing.assert_allclose(module.rows.interpret(x), module.columns.interpret(x), rtol=1e-14)
    pair = (x[:2], 1.5 - 0.5j)
    for row, column in zip(module.rows_of_mixed(pair), module.columns_of_mixed(pair), strict=True):
        np.testing.assert_allclose(row, column, rtol=1e-14)
        assert np.any(np.imag(np.asarray(row)) != 0)


REFUSED = [
    ("print(jacobian(|z| conj(z))([1j]))", "DL0408"), ("print(hessian(norm)([1j]))", "DL0408"), ("print(grad(|z| z)(1j))", "DL0402"), ("print(floor(1j))", "DL0311"), ("print(max([1j]))", "DL0311"),
    ("print(argmax([1j]))", "DL0311"), ("print(1j < 2j)", "DL0311"), ("print(1j // 2j)", "DL0311"), ("print(f64(1j))", "DL0311"), ("print(i32(1j))", "DL0311"), ("print(real(1.0 + i32(2)))", "DL0311"),
    ("let x: f32 = 1.0\nprint(x * 1j)", "DL0311"), ("let x: f32 = 1j", "DL0304"), ("print(softmax([1j]))", "DL0311"), ("print([1.0][1j])", "DL0313"), ("print(2jx)", "DL0116"),
    ("print(sinc(1j))", "DL0304"), ("fn f[T: num](x: T) -> T = exp(x)", "DL0311"), ("print(complex(1.0, i32(2)))", "DL0311"), ("print(if 1j { 1 } else { 2 })", "DL0313"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code"), REFUSED)
def test_what_makes_no_sense_is_refused(source: str, code: str) -> None:
    assert [c for c, _ in codes(source)] == [code]


# ---- From Python


def test_what_python_gives_and_gets() -> None:
    m: Any = difflang.loads(
        "fn f(z: c64[n], w: c64) -> c64[n] = z * w\nfn g(z: c128) -> c128 = z\nfn h[T: num](x: T) -> T = x * x"
    )
    z = Z.astype(np.complex64)
    assert m.f(z, 2j).dtype == np.complex64
    np.testing.assert_array_equal(m.f(z, 2j), z * np.complex64(2j))
    np.testing.assert_array_equal(m.f(z, 2), m.f(z, 2.0))
    assert complex(m.g(1)) == complex(m.g(np.complex128(1))) == 1
    with pytest.raises(difflang.ArgumentError, match="DL1201"):
        m.g(np.complex64(1j))
    assert complex(m.h(1 + 1j)) == 2j
    assert m.f.ir("ir", "c64[3]", "c64").startswith("graph @f(%z: c64[3]")
    for wrong in (Z, Z.real.astype(np.float32), np.ones(3, np.int32)):
        with pytest.raises(difflang.ArgumentError, match="DL1201"):
            m.f(wrong, 1.0)
    with pytest.raises(difflang.ArgumentError, match="DL1205"):
        m.f(z, 1e300j)
    real: Any = difflang.loads("fn f(x: f32) -> f32 = x").f
    with pytest.raises(difflang.ArgumentError, match="DL1201"):
        real(1j)
    np.testing.assert_allclose(jax.jit(lambda z: m.f(z, 1j))(z), z * 1j)
