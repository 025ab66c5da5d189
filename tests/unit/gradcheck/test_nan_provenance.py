"""The operation that makes the first NaN or infinity is named, in the function or in its derivative, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from difflang.base.diagnostics import DifflangError
from difflang.cli import main
from difflang.gradcheck import nan_provenance
from difflang.gradcheck.nan_provenance import check_finite
from difflang.ir.text_parser import graph_from_text

HEAD = "float f64\n"
IN_THE_FUNCTION = {
    "log(0.0 * x)": "log",
    "1.0 + sqrt(x - 9.0)": "sqrt",
    "x + 1.0 / (x - 2.0)": "x / y",
    "exp(1000.0 * x) + x": "exp",
    "x + (x - 3.0)^0.5": "x^y",
    "acos(x) * 2.0": "acos",
    "sum([x, log(x - 2.0), x])": "log",
    "{ var s = x\n  for i in 0..7 { s = s * s * s }\n  s }": "x * y",
    "exp(x) + log1p(-x / 2.0)": "log1p",
    "(|y: f64| x * sin(y))(exp(900.0 * x))": "exp",
}
IN_THE_DERIVATIVE = {
    "sqrt(x - 2.0)": "1 / sqrt(x)",
    "sqrt((x - 2.0)^2)": "1 / sqrt(x)",
    "x * asin(x / 2.0)": "1 / sqrt(x)",
    "(x - 2.0)^0.5": "x^(y - 1)",
    "cbrt(x - 2.0)": "x / y",
    "sum(sqrt([x, x - 2.0]))": "1 / sqrt(x)",
    "{ var s = x - 2.0\n  for i in 0..3 { s = sqrt(s) }\n  s }": "1 / sqrt(x)",
    "acos(x - 1.0)": "1 / sqrt(x)",
    "xlogy(x - 2.0, x - 2.0)": "log",
    "(|y: f64| y * sqrt(y - y))(x)": "1 / sqrt(x)",
}
HARMLESS = (
    "where(x > 5.0, log(x - 2.0), x)",
    "1.0 / exp(1000.0 * x)",
    "min(exp(1000.0 * x), 3.0)",
    "if x > 5.0 { log(x - 2.0) } else { x }",
    "inf * x",
)


def run(program: str, tmp_path: Any, *options: str) -> Result:
    file = tmp_path / "f.dfl"
    file.write_text(HEAD + program)
    return CliRunner().invoke(main, ["run", "--check-nans", *options, str(file)])


@pytest.mark.parametrize(("body", "op"), IN_THE_FUNCTION.items())
def test_a_fault_of_the_function(body: str, op: str, tmp_path: Any) -> None:
    result = run(f"fn f(x: f64) -> f64 = {body}\nprint(f(2.0))\n", tmp_path, "--engine=interpret")
    assert result.exit_code == 3 and f"error[DL0908]: `{op}` gives" in result.stderr, result.stderr
    assert "f.dfl:2:" in result.stderr or "f.dfl:3:" in result.stderr


@pytest.mark.parametrize(("body", "op"), IN_THE_DERIVATIVE.items())
def test_a_fault_of_the_derivative(body: str, op: str, tmp_path: Any) -> None:
    program = f"fn f(x: f64) -> f64 = {body}\n"
    assert run(f"{program}print(f(2.0))\n", tmp_path, "--engine=interpret").exit_code == 0
    result = run(f"{program}print(f'(2.0))\n", tmp_path, "--engine=interpret")
    assert result.exit_code == 3 and f"error[DL0908]: `{op}` gives" in result.stderr, result.stderr


@pytest.mark.parametrize("body", HARMLESS)
def test_what_reaches_no_result_or_was_written_is_no_fault(body: str, tmp_path: Any) -> None:
    result = run(f"fn f(x: f64) -> f64 = {body}\nprint(f(2.0))\n", tmp_path, "--engine=interpret")
    assert result.exit_code == 0, result.stderr


def test_the_step_of_a_loop_the_place_in_an_array_and_what_was_computed(tmp_path: Any) -> None:
    program = """fn f(x: f64[3], n: i32) -> f64 {
  var s = x
  for i in 0..n {
    let hidden = where(s > 1e3, log(s - s), s)
    s = s - [0.0, 1.0, 0.0]
    s = s + log(s)
  }
  sum(s)
}
print(f([2.0, 2.0, 2.0], 4))
"""
    text = run(program, tmp_path).stderr
    assert "`log` gives -inf at [1] here" in text and "f.dfl:7:13" in text
    assert "log(0) is -inf" in text and "in step 2 of this loop" in text


def test_nan_of_infinities_that_were_given(tmp_path: Any) -> None:
    result = run("let a = [inf, 1.0]\nfn f(x: f64[n]) -> f64[n] = x - x\nprint(f(a))\n", tmp_path)
    assert "`x - y` gives nan at [0] here" in result.stderr and "inf - inf is nan" in result.stderr


TABLE = """record Row { x: f64, y: f64 }
let t: Row[n] = read_csv("t.csv", missing = "x")
fn loss(t: Row[n], a: f64) -> f64 = mean(where(t.y > 9.0, 0.0, a * t.x - t.y)^2)
"""


@pytest.mark.parametrize("engine", ["xla", "interpret"])
@pytest.mark.parametrize("result", ["loss(t, 1.0)", "grad[a](loss)(t, 1.0)"])
def test_an_argument_that_is_nan_already_is_named(result: str, engine: str, tmp_path: Any) -> None:
    (tmp_path / "t.csv").write_text("x,y\n,10\n1,2\n,3\n,4\n")
    found = run(f"{TABLE}print({result})\n", tmp_path, "--engine", engine)
    assert found.exit_code == 3 and "the argument `t.x` is nan at [2], which makes a result nan" in found.stderr


def test_an_argument_that_is_nan_may_be_read_and_printed(tmp_path: Any) -> None:
    (tmp_path / "t.csv").write_text("x,y\n,10\n1,2\n,3\n")
    rest = (
        "print(t, t.x[0])\nfor r in t { if r.x == r.x { print(r.x) } }\nprint(sum(for r in t if r.x == r.x => r.x))\n"
    )
    assert run(TABLE + rest, tmp_path).exit_code == 0


def test_without_the_option_nothing_is_said(tmp_path: Any) -> None:
    file = tmp_path / "f.dfl"
    file.write_text("print(log(0.0))\n")
    assert CliRunner().invoke(main, ["run", str(file)]).stdout == "-inf\n"


def test_a_loop_that_would_not_end_without_its_nan(tmp_path: Any) -> None:
    program = """fn f(x: f64) -> f64 {
  var s = x
  while s > 0.0 { s = if s > 3.0 { log(-s) } else { s + 1.0 } }
  s
}
print(f(1.0))
"""
    assert "`log` gives nan here" in run(program, tmp_path, "--engine=interpret").stderr


def test_the_number_of_runs_grows_with_the_logarithm_of_the_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(f"  %{i}: f64[] = log %x" for i in range(64))
    graph = graph_from_text(f"graph @f(%x: f64[]) {{\n{lines}\n  yield %63\n}}\n")
    runs: list[nan_provenance.NonFiniteRun] = []
    real = nan_provenance.NonFiniteRun.run_graph

    def counted(self: nan_provenance.NonFiniteRun, *given: Any) -> Any:
        runs.append(self)
        return real(self, *given)

    monkeypatch.setattr(nan_provenance.NonFiniteRun, "run_graph", counted)
    made = nan_provenance.find_nonfinite_origin(graph, np.float64(0))
    assert made is not None and made.eqn is graph.eqns[63] and len(runs) <= 10


def test_no_number_of_a_whole_matrix_is_shown_as_the_operand(tmp_path: Any) -> None:
    result = run("print(cholesky([[1.0, 2.0], [2.0, 1.0]]))\n", tmp_path, "--engine=interpret")
    assert "cholesky([2, 2]) is nan" in result.stderr


def test_what_only_compiled_code_makes_is_told_too() -> None:
    graph = graph_from_text("graph @f(%x: f64[]) {\n  %0: f64[] = add %x, %x\n  yield %0\n}\n")
    check_finite(lambda: graph, [np.float64(np.inf)], [np.float64(np.inf)])
    with pytest.raises(DifflangError, match="is finite when computed step by step"):
        check_finite(lambda: graph, [np.float64(np.inf)], [np.float64(3.0)])


def test_a_derivative_that_does_not_exist(tmp_path: Any) -> None:
    nowhere = "fn f(x: f64) -> f64 { let (u, s, vt) = svd([[x, 0.0], [0.0, x]])\n  sum(u * x) }\nprint(f'(2.0))\n"
    found = run(nowhere, tmp_path, "--engine=interpret").stderr
    assert "the derivative does not exist here and is set to nan, which" in found and "f.dfl:2:40" in found
    assert run("print(sum(where([true, false], nan, 1.0)))\n", tmp_path, "--engine=interpret").exit_code == 0


WRONG_INVERSE = """fn push(x: f64, v: f64) -> (f64, f64) {
  let y = x + 0.1 * v
  (y, v - 0.1 * sin(y))
}
@unchecked rule push(x, v) by inverse |(x, v)| (x - 0.1 * v, v)
fn f(x: f64) -> f64 {
  var (a, b) = (x, x)
  for i in 0..20 { (a, b) = push(a, b) }
  a * b
}
print(grad(f)(2.0))
"""


def test_an_inverse_that_does_not_lead_back_is_named_as_what_it_may_be(tmp_path: Any) -> None:
    found = run(WRONG_INVERSE, tmp_path)
    assert found.exit_code == 3 and "by inverse" in found.stderr


def test_the_slope_of_a_logarithm_is_told_of_the_logarithm(tmp_path: Any) -> None:
    """A division of the user's is not, whatever it begins with."""
    slope = run("fn f(x: f64) -> f64 = log(x - 2.0)\nprint(f'(2.0))\n", tmp_path, "--engine=interpret")
    assert "`x / y` gives inf here" in slope.stderr and "keep the argument of `log` above 0" in slope.stderr
    piped = run("fn f(x: f64) -> f64 = (x - 2.0) |> log\nprint(f'(2.0))\n", tmp_path, "--engine=interpret")
    assert "keep the argument of `log` above 0" in piped.stderr
    below = run("fn f(x: f64) -> f64 = log(x - 2.0)\nprint(f'(1.0))\n", tmp_path, "--engine=interpret")
    assert "`1 / x` gives nan here" in below.stderr and "keep the argument of `log` above 0" in below.stderr
    quotient = run("fn f(log_odds: f64, y: f64) -> f64 = log_odds / y\nprint(f(2.0, 0.0))\n", tmp_path)
    assert "`x / y` gives inf here" in quotient.stderr and "keep the divisor away from 0" in quotient.stderr
