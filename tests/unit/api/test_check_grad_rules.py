"""A rule of the program's own is audited like any other."""

from __future__ import annotations

import pytest

import difflang

BODY = "float f64\nfn cube(x: f64) -> f64 = x * x * x\n"


def module(slope: str) -> str:
    return f"{BODY}rule cube(x) {{ (cube(x), linear |dx| {slope} * dx) }}\nfn f(x: f64) -> f64 = sin(cube(x))\n"


def test_a_right_rule_passes() -> None:
    difflang.loads(module("3 * x^2"), name="right").f.check_grad(0.7)


def test_a_wrong_rule_is_at_fault_at_its_call() -> None:
    with pytest.raises(difflang.GradientMismatch, match="the `rule` of the function that is called here"):
        difflang.loads(module("3.01 * x^2"), name="wrong").f.check_grad(0.7)
