"""Every transformation of JAX around functions of every kind, against our own derivatives in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang

Array = Any
SOURCE = """
import interp (linear_interp)
import linalg (matrix_power)
import losses (cross_entropy)
import nn (Norm, layer_norm)
import ode (euler)
import optim (project_simplex)
import quad (gauss_legendre)
import roots (bisect)
import signal (recursive_filter)
import stats (Gamma, log_density)

let scale: f64 = 1.5

fn heron(x: f64[2]) -> f64 {
  var y = x[0]
  while abs(y * y - x[0]) > 1e-13 * x[0] { y = 0.5 * (y + x[0] / y) }
  y * x[1]
}
fn halved(x: f64[2]) -> f64[2] {
  var y = 4 * x
  while sum(y) > 1 { y = 0.5 * y * x }
  y
}
fn logistic(x: f64[2]) -> f64 {
  var y = x[0]
  for _ in 0..5 { y = x[1] * y * (1 - y) }
  y
}
fn branch(x: f64[2]) -> f64 = if x[0] > x[1] { x[0]^3 * x[1] } else { sqrt(x[1] - x[0]) }
fn power(x: f64, n: i32) -> f64 = if n == 0 { 1.0 } else { x * power(x, n - 1) }
fn recursion(x: f64[2]) -> f64 = power(x[0] * x[1], 3)
fn pairs(x: f64[2]) -> f64 = sum([for i in 0..2, j in 0..2 => exp(x[i] - 2 * x[j])])
fn first_above(x: f64[2]) -> f64 {
  var y = 1.0
  for i in 0..20 {
    if y > 3 { break }
    y = y * (1 + x[0]) + x[1]
  }
  y
}
fn ruled(x: f64[2]) -> f64 = log(sum(exp(x - max(x)))) + max(x)
rule ruled(x) {
  let y = ruled(x)
  (y, linear |dx| sum(exp(x - y) * dx))
}
fn complex_part(x: f64[2]) -> f64 = abs(exp(complex(x[0], x[1])) + 2)^2
fn looked_up(x: f64[2]) -> f64 = x[i32(floor(x[0]))] * scale * x[0]
fn implicit(x: f64[2]) -> f64 = bisect(|a| a - x[1] / 4 * sin(a) - x[0], f64(0), 4.0)
fn decay(x: f64[2]) -> f64 = euler(|t, y| -x[0] * y + sin(x[1] * t), x[1], f64(0), 1.0, steps = 4)
fn interpolated(x: f64[2]) -> f64[2] = linear_interp([f64(0.5), 1.7], [0.0, 1.0, 2.0, 4.0], concat(x, x^2))
fn entropy(x: f64[2]) -> f64[2] = cross_entropy([x, 2 * x^2], [0, 1])
fn gamma_density(x: f64[2]) -> f64 = log_density(Gamma(2.0, 1.5), x[0]) + x[1]^2
fn area(x: f64[2]) -> f64 = gauss_legendre(|t| exp(-x[0] * t) * x[1], f64(0), 1.0, 5)
fn filtered(x: f64[2]) -> f64[3] = recursive_filter(x, [f64(1), 0.5], [x[0], 1.0, x[1]])
fn normed(x: f64[2]) -> f64[3] = layer_norm(Norm([f64(1), 2, 3], [f64(0), 0, 1]), concat(x, x[..1] * x[1..]))
fn products(x: f64[2]) -> f64 = det(matrix_power([[x[0], 0.3], [0.2, x[1]]], 3))
fn simplex(x: f64[2]) -> f64[2] = project_simplex(x^2, 1.5)
"""
NAMES = (
    *(
        "heron",
        "halved",
        "logistic",
        "branch",
        "recursion",
        "pairs",
        "first_above",
        "ruled",
        "complex_part",
        "looked_up",
    ),
    *("implicit", "decay", "interpolated", "entropy", "gamma_density", "area", "filtered", "normed"),
    *("products", "simplex"),
)
X, OTHER, V = np.array([1.3, 0.7]), np.array([0.4, 1.1]), np.array([0.6, -0.9])
XS = np.stack([X, OTHER])
TRANSFORMS: dict[str, Callable[[Callable[[Array], Array]], Array]] = {
    "jit": lambda f: jax.jit(f)(X),
    "grad": lambda f: jax.grad(lambda x: jnp.sum(f(x)))(X),
    "value_and_grad": lambda f: jax.value_and_grad(lambda x: jnp.sum(f(x)))(X),
    "jvp": lambda f: jax.jvp(f, (X,), (V,)),
    "jacfwd": lambda f: jax.jacfwd(f)(X),
    "jacrev": lambda f: jax.jacrev(f)(X),
    "hessian": lambda f: jax.hessian(f)(X),
    "vmap": lambda f: jax.vmap(f)(XS),
    "checkpoint": lambda f: jax.grad(lambda x: jnp.sum(jax.checkpoint(f)(x)))(X),
    "scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, k: (c + jnp.sum(k * f(x)), c), 0.0, jnp.arange(3.0))[0]
    )(X),
    "linearize": lambda f: jax.linearize(f, X)[1](V),
}


@pytest.fixture(scope="module")
def module() -> Any:
    return difflang.loads(SOURCE, name="transforms")


@cache
def measured(f: difflang.Function) -> dict[str, Array]:
    """Every transformation of one function, in one program."""
    with jax.enable_x64(True):
        found = jax.jit(lambda: {name: transform(f) for name, transform in TRANSFORMS.items()})()
        return jax.tree.map(np.asarray, found)


@cache
def expected(f: difflang.Function) -> dict[str, Array]:
    """What they are to give, by our own derivatives in NumPy."""
    value, jacobian = f.interpret(X), f.jacfwd().interpret(X)
    gradient = np.sum(jacobian.reshape(-1, 2), axis=0)
    return {
        "jit": value,
        "grad": gradient,
        "value_and_grad": (np.sum(value), gradient),
        "jvp": (value, jacobian @ V),
        "jacfwd": jacobian,
        "jacrev": jacobian,
        "hessian": f.jacfwd().jacfwd().interpret(X),
        "vmap": np.stack([value, f.interpret(OTHER)]),
        "checkpoint": gradient,
        "scan": 3 * gradient,
        "linearize": jacobian @ V,
    }


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.nightly_cases("halved-jit", "recursion-jit")
def test_a_transformation_of_jax_goes_by_our_rules(module: Any, name: str, transform: str) -> None:
    found, wanted = measured(module[name])[transform], expected(module[name])[transform]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), found, wanted)


def test_what_jax_makes_of_a_python_number_is_one() -> None:
    kept = difflang.loads("""
record Counted { a: f64, n: i32 }
fn value(p: Counted) -> f64 = p.a^2 * f64(p.n)
""")
    with jax.enable_x64(True):
        gradient = jax.grad(kept.value, allow_int=True)(kept.Counted(a=np.float64(2.0), n=3))
    assert float(gradient.a) == 12.0


def test_a_cotangent_may_be_a_python_number() -> None:
    scaled = difflang.compile("fn scaled(x: f32, k: f32 = 0.5) -> f32 = x * k")
    (found,) = jax.vjp(scaled, 3.0)[1](1.0)
    assert float(found) == 0.5
    assert float(jax.linear_transpose(scaled, 1.0)(2.0)[0]) == 1.0


def test_a_gradient_over_a_mesh_whose_axes_are_explicit() -> None:
    """There the cotangent of an array lies over the devices as the array does."""
    cubes = difflang.compile("fn cubes(x: f32[n]) -> f32[n] = x * x * x")
    x = np.arange(4, dtype=np.float32)
    mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        spread = jax.device_put(x, jax.sharding.PartitionSpec("a"))
        gradient = jax.grad(lambda x: jnp.sum(cubes(x)))(spread)
        (pulled,) = jax.vjp(cubes, spread)[1](cubes(spread))
    assert jax.typeof(gradient).sharding.spec == jax.typeof(spread).sharding.spec
    np.testing.assert_allclose(gradient, 3 * x**2)
    np.testing.assert_allclose(pulled, 3 * x**5)
