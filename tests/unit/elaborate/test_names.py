"""Names that a program declares hide those of the language."""

from __future__ import annotations

import pytest

import difflang
from support.documents import run_program


@pytest.mark.parametrize(
    "program",
    [
        "let hvp = |x| 2.0 * x\nprint(hvp(1.5))\n",
        "fn hessian(x: f32) -> f32 = 2.0 * x\nprint(hessian(1.5))\n",
        "record grad { x: f32 }\nprint(grad(x = 3.0).x)\n",
        "fn f(jvp: (f32) -> f32) -> f32 = jvp(1.5)\nprint(f(|x| 2.0 * x))\n",
    ],
)
def test_a_derivative_operator_can_be_hidden(program: str) -> None:
    assert run_program(program) == "3.0\n"


def test_a_top_level_let_hides_an_operator_in_python_too() -> None:
    module = difflang.loads("let hvp = |x| 2.0 * x\nfn f(x: f32) -> f32 = hvp(x)\n")
    assert float(module.f(1.5)) == 3.0


def test_variance_can_be_called() -> None:
    assert run_program("print(variance([1.0, 2.0, 3.0, 4.0]), std([1.0, 3.0]))\n") == "1.25 1.0\n"
