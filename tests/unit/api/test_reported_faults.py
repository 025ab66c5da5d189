"""Programs that once gave a wrong number."""

from __future__ import annotations

import numpy as np
import pytest

import difflang

CHOICES = {
    "guards of two conditions": (
        "{\n  let p = x > 0.0\n  let q = x > 1.0\n"
        "  sum(where(p, log(where(p, x, 1.0)), 0.0)) + sum(where(q, log(where(q, x, 1.0)), 0.0))\n}",
        [0.0, 1.0, 2 / 3],
    ),
    "one guard, two choices": (
        "{\n  let p = x <= 0.0\n  let y = where(p, 1.0, x)\n  sum(where(p, 0.0, log(y)) + where(p, 1.0, log(y)))\n}",
        [0.0, 1.0, 2 / 3],
    ),
    "one value, two conditions": (
        "= sum(where(x > 0.0, log(x), 0.0) + where(x > 1.0, log(x), 0.0))",
        [0.0, 1.0, 2 / 3],
    ),
    "a difference of choices": (
        "= sum(where(x > 0.0, x * log(x), 0.0) - where(x > 0.5, x * log(x), 0.0))",
        [0.0, 0.0, 0.0],
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_two_choices_leave_out_contributes_nothing(name: str) -> None:
    body, want = CHOICES[name]
    g = difflang.loads(f"float f64\nfn f(x: f64[3]) -> f64 {body}\n", name="choices").f.grad("x")
    x = np.array([0.0, 2.0, 3.0])
    for found in (g(x), g.interpret(x)):
        np.testing.assert_allclose(found, want, rtol=1e-15)


@pytest.mark.parametrize("scale", ["e200", "e-200"])
def test_the_norm_of_numbers_as_written(scale: str) -> None:
    """The compiler knows them: it must not square them before they are divided."""
    m = difflang.loads(f"float f64\nfn f(s: f64) -> f64 = s * norm([6{scale}, 8{scale}])\n", name="norm")
    np.testing.assert_allclose(m.f(1.0), float(f"10{scale}"), rtol=1e-15)


def test_a_series_without_a_rule_is_refused() -> None:
    m = difflang.loads("float f64\nfn f(t: f64) -> f64[3] = jet(|t| expm([[t]])[0, 0], order = 2)(t)\n", name="jet")
    with pytest.raises(difflang.DifflangError, match="`jet` has no series rule for `expm`"):
        m.f(0.0)


@pytest.mark.parametrize("operator", ["jacobian", "hessian", "linearize", "grad"])
def test_a_field_that_is_not_there(operator: str) -> None:
    source = "float f64\nrecord P { a: f64[2], b: f64 }\nfn f(p: P) -> f64 = sum(p.a^2) * p.b\n"
    with pytest.raises(difflang.DifflangError, match="has no field `c`"):
        difflang.loads(f"{source}let p = P(a = [1.0, 2.0], b = 3.0)\nlet h = {operator}[p.c](f)(p)\n", name="field")
