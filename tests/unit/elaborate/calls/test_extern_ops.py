"""`extern op` in programs: both engines, both modes, checked without Python, and what does not fit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang
from difflang import graph as dg
from difflang.base.diagnostics import Diagnostic
from difflang.base.source import Source
from difflang.driver.checked_program import check_program

DECLARED = "extern op cube[T: float](x: T[..s]) -> T[..s]\n"
X = np.array([0.5, 1.5])


@pytest.fixture
def cube() -> dg.DeclaredOp:
    return dg.op(
        "cube", elementwise=True, reference=lambda x: x**3, lower=lambda x: x**3, doc="The third power.",
        jvp=lambda b, dx, y, x: dx * x * x * 3.0,
    )  # fmt: skip


def diagnostics(text: str) -> list[Diagnostic]:
    return list(check_program(Source("a.dfl", text)).diagnostics)


def load(text: str) -> Any:
    return difflang.loads(DECLARED + text)


def test_values_and_derivatives_to_any_order(cube: dg.DeclaredOp) -> None:
    f = load("fn f(x: f64[n]) -> f64 = sum(cube(x))").f
    assert np.allclose([f(X), f.interpret(X)], np.sum(X**3), rtol=1e-15)
    assert np.allclose(f.grad()(X), 3 * X * X) and np.allclose(f.hessian()(X), np.diag(6 * X))
    assert f.check_grad(X).right
    one = load("fn one(x: f64) -> f64 = cube(x)").one
    assert one.jet(3)(2.0).tolist() == [8.0, 12.0, 6.0, 1.0]


def test_in_a_loop(cube: dg.DeclaredOp) -> None:
    halved = load("fn f(x: f64) -> f64 { var y = x\n while y > 0.01 { y = 0.9 * cube(y) }\n y }").f
    assert halved.check_grad(0.9).right


def test_in_recursion(cube: dg.DeclaredOp) -> None:
    nested = load("fn f(x: f64, n: i32) -> f64 = if n <= 0 { x } else { 0.5 * cube(f(x, n - 1)) }").f
    assert nested.grad("x").interpret(0.9, 2) == pytest.approx(9 * 0.9**8 * 0.5**4)


def test_in_a_branch_of_a_map(cube: dg.DeclaredOp) -> None:
    some = load("fn f(x: f64[n]) -> f64[n] = [for i => if x[i] > 1.0 { cube(x[i]) } else { x[i] }]").f
    assert np.allclose(some(X), [0.5, 1.5**3]) and np.allclose(some.jacobian()(X), np.diag([1, 6.75]))


def test_inside_programs_of_jax(cube: dg.DeclaredOp) -> None:
    f = load("fn f(x: f32[n]) -> f32 = sum(cube(x))").f
    xs = jnp.stack([X, X]).astype(np.float32)
    assert np.allclose(jax.jit(jax.vmap(jax.grad(f)))(xs), 3 * xs * xs)


def test_attributes_are_sizes_and_texts() -> None:
    dg.op(
        "scaled", type="(x: f64[n], k: dim, how: str) -> f64[n + k]", doc="Padded and scaled.", inactive=True,
        reference=lambda x, k, how: np.pad(x, (0, k)) * {"once": 1.0, "twice": 2.0}[how],
        lower=lambda x, k, how: jnp.pad(x, (0, k)) * {"once": 1.0, "twice": 2.0}[how],
        samples=[{"x": "f64[2]", "k": 1, "how": "once"}],
    )  # fmt: skip
    declared = "extern op scaled(x: f64[n], k: dim, how: str) -> f64[n + k]\n"
    f = difflang.loads(declared + "fn f(x: f64[n], how: str) -> f64[n + 2] = scaled(x, 2, how)").f
    assert f(X, "twice").tolist() == [1.0, 3.0, 0.0, 0.0]
    with pytest.raises(difflang.ArgumentError, match="raised KeyError: 'thrice'"):
        f(X, "thrice")


def test_several_results() -> None:
    dg.op(
        "both", type="[T: float](x: T[..s]) -> (T[..s], i32[..s])", doc="Sine, and whether it is positive.",
        reference=lambda x: (np.sin(x), (x > 0).astype(np.int32)),
        lower=lambda x: (jnp.sin(x), (x > 0).astype(jnp.int32)),
        jvp=lambda b, dx, y, x: (dx * b.cos(x), None),
    )  # fmt: skip
    assert dg.check_op("both").right
    f = difflang.loads(
        "extern op both(x: f64[n]) -> (f64[n], i32[n])\nfn f(x: f64[n]) -> f64 { let (s, k) = both(x)\n sum(s) }"
    ).f
    assert np.allclose(f.grad()(X), np.cos(X))


def test_a_program_is_checked_without_the_op() -> None:
    text = f"{DECLARED}fn f(x: f64[n]) -> f64 = sum(cube(x))\nfn g(x: i32) -> i32 = cube(x)\n"
    assert [d.code for d in diagnostics(text)] == ["DL0304"]
    f = load("fn f(x: f64[n]) -> f64 = sum(cube(x))").f
    with pytest.raises(difflang.ArgumentError, match=r"DL1272(.|\n)*2 \| fn f") as caught:
        f(X)
    assert "--plugin MODULE" in str(caught.value)
    for derivative in (f.grad, f.hessian):
        with pytest.raises(difflang.ArgumentError, match="no op `cube` is declared"):
            derivative()(X)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("extern op cube(x: f64[n]) -> f64", "it gives f64[n], not f64"),
        ("extern op cube(x: i32) -> i32", "it does not take (i32)"),
        ("extern op cube(x: f64, y: f64) -> f64", "it takes 1 operand, not 2"),
        ("extern op cube(x: f64, k: dim) -> f64", "it has no attribute `k`"),
        ("extern op cube(x: f64) -> (f64, f64)", "it gives f64, not (f64, f64)"),
        ("extern op cube(x: f64) -> str", "gives arrays, not str"),
        ("record R { a: f64 }\nextern op cube(x: R) -> f64", "`x` of the op `cube` is no array"),
        ("extern op cond(x: f64) -> f64", "a part of the compiler"),
        ("extern op dot_general(x: f64[n], y: f64[n]) -> f64", "it does not take (f64[n], f64[n])"),
    ],
)
def test_a_declaration_that_does_not_fit(cube: dg.DeclaredOp, text: str, words: str) -> None:
    (found,) = diagnostics(text)
    assert found.code == "DL1273" and words in found.message, found.message


def test_an_op_of_the_package_has_no_other_rules() -> None:
    f = difflang.loads("extern op erfinv_slope(x: f64) -> f64\nfn f(x: f64) -> f64 = erfinv_slope(x)").f
    assert f.check_grad(0.3).right


def test_a_rule_of_the_program_replaces_the_rule_of_the_op(cube: dg.DeclaredOp) -> None:
    f = load("@unchecked\nrule cube(x) { (cube(x), linear |dx| dx) }\nfn f(x: f64[n]) -> f64 = sum(cube(x))").f
    assert f.grad()(X).tolist() == [1.0, 1.0]
