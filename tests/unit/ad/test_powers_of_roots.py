"""Powers of roots have derivatives where the root has none; a root alone has no second derivative there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import difflang
from derivatives import called, composed
from difflang.ir.builder import build_region
from difflang.ir.graph import Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from support.language import answer

# A function of u, and its Hessian at (0, 0).
SMOOTH = {
    "norm(u)^2": [[2.0, 0.0], [0.0, 2.0]],
    "norm(u) * norm(u)": [[2.0, 0.0], [0.0, 2.0]],
    "norm(u)^4": [[0.0, 0.0], [0.0, 0.0]],
    "norm(u)^3": [[0.0, 0.0], [0.0, 0.0]],
    "exp(-0.5 * norm(u)^2)": [[-1.0, 0.0], [0.0, -1.0]],
    "exp(-0.5 * norm(u) * norm(u))": [[-1.0, 0.0], [0.0, -1.0]],
    "(u[0] + 1.0) * norm(u) * norm(u)": [[2.0, 0.0], [0.0, 2.0]],
    "hypot(u[0], 2.0 * u[1])^2": [[2.0, 0.0], [0.0, 8.0]],
    "abs(complex(u[0], u[1]))^2": [[2.0, 0.0], [0.0, 2.0]],
    "sqrt(sum(u * u))^2": [[2.0, 0.0], [0.0, 2.0]],
    "abs(u[0])^2 + abs(u[1]) * abs(u[1])": [[2.0, 0.0], [0.0, 2.0]],
    "cbrt(u[0] * u[1])^3": [[0.0, 1.0], [1.0, 0.0]],
    "std(u)^2": [[0.5, -0.5], [-0.5, 0.5]],
    "std(u[..1])": [[0.0, 0.0], [0.0, 0.0]],
    "std([complex(u[0], u[1])])": [[0.0, 0.0], [0.0, 0.0]],
    "sum(std([u], axis = 0, keepdims = true))": [[0.0, 0.0], [0.0, 0.0]],
    "norm((u, u[0]))^2": [[4.0, 0.0], [0.0, 2.0]],
    "sum([for x in [u, 2.0 * u] => norm(x)^2])": [[10.0, 0.0], [0.0, 10.0]],
}
# These have no second derivative at (0, 0), though their first is 0.
ROOTS = ["norm(u)", "std(u)", "hypot(u[0], u[1])", "exp(-norm(u))", "abs(complex(u[0], u[1]))", "norm((u, u[0]))"]
WAYS = ["hessian(f)", "jacfwd(grad(f))", "jacrev(grad(f))", "jacfwd(jacfwd(f))"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.nightly_cases("jacrev.*")
def test_hessians_at_zero(way: str) -> None:
    for body, want in SMOOTH.items():
        found = answer(f"{way}([0.0, 0.0])", f"fn f(u: f64[2]) -> f64 = {body}")
        np.testing.assert_allclose(found, want, atol=1e-15, err_msg=body)
    for body in ROOTS:
        declared = f"fn f(u: f64[2]) -> f64 = {body}"
        assert not answer("grad(f)([0.0, 0.0])", declared).any(), body
        assert np.isnan(answer(f"{way}([0.0, 0.0])", declared)).all(), body


@pytest.mark.parametrize(
    ("of", "want"),
    [
        ("hessian(|u| norm(u)^3 / 3.0)([3.0, 4.0])", [[6.8, 2.4], [2.4, 8.2]]),
        ("hessian(|u| norm(u)^4)([1.0, 2.0])", [[28.0, 16.0], [16.0, 52.0]]),
        ("[(|x| sqrt(x)^2)'(0.0), (|x| sqrt(x)^2)'(-1.0)]", [1.0, math.nan]),
        ("[(|x| sqrt(x)^3)'(0.0), (|x| sqrt(x)^3)'(4.0)]", [0.0, 3.0]),
        ("[(|x| abs(x)^3)''(-2.0), (|x| x * abs(x) * abs(x))''(3.0)]", [12.0, 18.0]),
        ("(|x| cbrt(x)^4)'(8.0)", 8.0 / 3.0),
        ("(|x| sqrt(x) * sqrt(x) * sqrt(x) + x * sqrt(x)^2 * sqrt(x) + sqrt(x)^9)'(0.0)", 0.0),
        ("[(|x| (x * sqrt(x))^6)'(1.0), (|x| (x * sqrt(x))^6)''(1.0), (|x| (x * sqrt(x))^6)'(0.0)]", [9.0, 72.0, 0.0]),
        ("(|x| cbrt(x)^3 * cbrt(x))'(0.0)", 0.0),
        ("jet(|t| (t * sqrt(t))^4, order = 6)(0.0)", [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]),
        ("jet(|t| norm([t, 2.0 * t])^2, order = 3)(0.0)", [0.0, 0.0, 5.0, 0.0]),
        ("jet(|t| norm([t, 2.0 * t])^2, order = 2)(1.0)", [5.0, 10.0, 5.0]),
    ],
)
def test_elsewhere_and_by_series(of: str, want: Any) -> None:
    np.testing.assert_allclose(answer(of), want, rtol=1e-15)


@pytest.mark.parametrize("step", ["z * z", "z * u[1]", "z * (u[0] + z)"])
def test_many_factors_cost_linear_time(step: str) -> None:
    """Squares of squares have a number of factors that doubles, and a long product is nested deeply."""
    steps = "".join(f"  z = {step}\n" for _ in range(1200))
    declared = f"fn f(u: f64[2]) -> f64 {{\n  var z = norm(u)\n{steps}  z\n}}"
    np.testing.assert_allclose(answer("grad(f)([0.0, 0.0])", declared), [0.0, 0.0])


def test_the_value_is_that_of_the_program() -> None:
    """The square of a rounded root, beside its derivative too."""
    source = "float f64\nfn f(x: f64) -> f64 = sqrt(x)^2\nfn g(x: f64) -> (f64, f64) = value_and_grad(f)(x)\n"
    module = difflang.loads(source)
    assert float(module.f(2.0)) == float(module.g(2.0)[0]) == 2.0000000000000004


def test_an_equation_without_results_is_no_product() -> None:
    """A print, and a call of a function that only prints."""
    declared = (
        "fn show(x: f64) { for i in 0..2 { print(x) } }\nfn f(x: f64) -> f64 {\n  show(x)\n  sqrt(x)^2 + sqrt(x)\n}"
    )
    np.testing.assert_allclose(answer("jet(f, order = 2)(4.0)", declared), [6.0, 1.25, -1 / 64], rtol=1e-15)
    silent = build_region([Tensor(F64, ())], lambda x: [])

    def body(x: Value) -> list[Value]:
        called(silent, x)
        return [OPS["sqrt"].one(x)]

    graph = composed("J", build_region([Tensor(F64, ())], body))
    assert evaluate(graph, np.float64(4.0), np.float64(1.0))[1] == 0.25
