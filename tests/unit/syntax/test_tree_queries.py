"""Names that a program declares: operators they hide, sizes in host functions, texts in records."""

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


def test_a_host_function_knows_the_sizes_of_its_parameters() -> None:
    """And only those: a size of the same name outside is another one."""
    program = """let x: f32[n] = [1.0, 2.0, 3.0]
host fn show(a: f32[n], b: f32[n]) {
  print(n, sum(a + b))
}
show([1.0, 2.0], [3.0, 4.0])
print(n)
"""
    assert run_program(program) == "2 10.0\n3\n"
    wrong = run_program(program.replace("[3.0, 4.0]", "[3.0]"))
    assert "error[DL0304]: the argument `b` of `show` is declared f32[n] but is f32[1]" in wrong
    assert "2 10.0" not in wrong


def test_a_text_in_a_record_is_replaced() -> None:
    program = 'record P { x: f32, name: str }\nlet p = P(x = 1.0, name = "a")\nprint((p with (name = "b")).name)\n'
    assert run_program(program) == "b\n"
