"""Derivatives of functions from Python: each again a function, by position, name and path, nested."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang

PROGRAM = """
record P { w: f64[3], b: f64, k: i32 }
fn f(p: P, x: f64[3]) -> f64 = sum(p.w * x ^ 2) + p.b ^ 3
fn g(x: f64, y: f64) -> f64 = sin(x) * y ^ 2
fn pair(x: f64[3]) -> (f64[3], f64) = (2.0 * x, sum(x ^ 2))
fn steps(x: f64, limit: f64) -> f64 { var y = x
  while y < limit { y = y * y }
  y }
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="derivatives")


P = {"w": np.array([1.0, 2.0, 3.0]), "b": 2.0, "k": 1}
X = np.array([1.0, -1.0, 2.0])


def test_a_gradient_has_the_structure_of_the_parameter(m: Any) -> None:
    d = m.f.grad("p")(P, X)
    np.testing.assert_array_equal(d["w"], X**2)
    assert float(d["b"]) == 12 and "k" not in d
    d = m.f.grad("p")(m.P(**P), X)
    np.testing.assert_array_equal(d.w, X**2)
    assert float(d.b) == 12 and not hasattr(d, "k")
    np.testing.assert_array_equal(m.f.grad("p.w")(P, X), X**2)
    np.testing.assert_array_equal(m.f.grad(1)(P, X), m.f.grad("x")(p=P, x=X))
    several = m.f.grad("p.w", "x")(P, X)
    np.testing.assert_array_equal(several.x, 2 * P["w"] * X)
    np.testing.assert_array_equal(m.f.grad(["p.w", "x"])(P, X).w, several.w)


def test_value_and_gradient_come_together(m: Any) -> None:
    value, d = m.g.value_and_grad("y")(0.5, 2.0)
    assert value == pytest.approx(np.sin(0.5) * 4) and d == pytest.approx(np.sin(0.5) * 4)


def test_derivatives_nest(m: Any) -> None:
    assert m.g.grad().grad()(0.5, 2.0) == pytest.approx(-np.sin(0.5) * 4)
    assert m.g.grad("x").grad("y")(0.5, 2.0) == pytest.approx(np.cos(0.5) * 4)
    value, change = m.g.grad("x").jvp("x")(0.5, 2.0, 1.0)
    assert value == pytest.approx(np.cos(0.5) * 4) and change == pytest.approx(-np.sin(0.5) * 4)


def test_tangents_follow_the_arguments_and_are_checked(m: Any) -> None:
    push = m.f.jvp("p")
    value, change = push(P, X, {"w": np.ones(3), "b": 0.0})
    assert float(value) == float(m.f(P, X)) and float(change) == np.sum(X**2)
    assert float(push(P, X, d_p=m.f.grad("p")(P, X))[1]) == np.sum(X**4) + 144
    with pytest.raises(difflang.ArgumentError, match=r"`d_p\.w`"):
        push(P, X, {"w": np.ones(2), "b": 0.0})
    with pytest.raises(difflang.ArgumentError, match="is missing the field `b`"):
        push(P, X, {"w": np.ones(3)})


def test_a_pullback_is_a_function_of_a_cotangent(m: Any) -> None:
    value, pullback = m.pair.vjp()(X)
    assert float(value[1]) == 6
    np.testing.assert_array_equal(pullback((np.ones(3), 1.0)), 2 + 2 * X)
    with pytest.raises(difflang.ArgumentError):
        pullback(np.ones(3))


def test_forward_mode_goes_through_a_while(m: Any) -> None:
    value, change = m.steps.jvp("x")(1.5, 10.0, 1.0)
    assert float(value) == 1.5**8 and float(change) == pytest.approx(8 * 1.5**7)


def test_the_interpreter_gives_the_same_in_numpy(m: Any) -> None:
    for f, args in ((m.f, (P, X)), (m.f.grad("p"), (P, X)), (m.pair, (X,)), (m.g.grad().grad(), (0.5, 2.0))):
        ours, theirs = f(*args), f.interpret(*args)
        assert type(ours) is type(theirs) or isinstance(theirs, np.ndarray)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert isinstance(b, np.ndarray) and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-14)


def test_what_cannot_be_differentiated_is_refused(m: Any) -> None:
    with pytest.raises(difflang.DifferentiationError, match="no parameter `z`"):
        m.g.grad("z")
    with pytest.raises(difflang.DifferentiationError):
        m.g.grad(2)
    with pytest.raises(difflang.DifferentiationError, match="no tangent"):
        m.f.grad("p.k")(P, X)
    with pytest.raises(difflang.DifferentiationError, match="real number"):
        m.pair.grad()(X)
    for _ in range(2):  # a refusal leaves nothing behind
        with pytest.raises(difflang.DifferentiationError) as error:
            m.f.grad("p.q")(P, X)
        assert len(error.value.diagnostics) == 1


@pytest.mark.parametrize("order", [-1, 65, 1.5, "2", True])
def test_the_order_of_a_jet_is_a_number_that_there_is(m: Any, order: Any) -> None:
    with pytest.raises(difflang.DifferentiationError, match="`jet` has no order") as error:
        m.g.jet(order)
    assert "the order is from 0 to 64" in str(error.value)


RECURSIVE = """
fn power(x: f64, n: i32) -> f64 = if n == 0 { 1.0 } else { x * power(x, n - 1) }
"""


@pytest.mark.parametrize("operator", ["vjp", "linearize"])
@pytest.mark.nightly_except("vjp")
def test_linear_maps_of_functions_that_call_themselves_are_called(operator: str) -> None:
    """What they hold is as large as the room of the run that gave it, which deep recursion makes larger."""
    m = difflang.loads(RECURSIVE)
    for f, x, n in ((m.power, 2.0, 3), (m.power, 1.001, 300)):
        jacobian, direction = np.asarray(f.jacrev()(x, n)), np.ones(np.shape(x))
        value, map = getattr(f, operator)()(x, n)
        wanted = np.dot(direction, jacobian) if operator == "vjp" else np.dot(jacobian, direction)
        for found in (map(direction), map.interpret(direction)):
            np.testing.assert_allclose(found, wanted, rtol=1e-9)
        assert map.function_type is getattr(f, operator)()(x, n)[1].function_type, "it is compiled once"
        np.testing.assert_array_equal(value, f(x, n))
    with jax.enable_x64(True):
        _, map = jax.jit(lambda x: getattr(m.power, operator)()(x, 3))(2.0)
    assert float(map(1.0)) == 12
