"""`difflang derive` and `:g`: a derivative on standard output, and what is said to wrong use."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main

PROGRAM = "fn f(x: f64, y: f64) -> f64 = sin(x) * y\nfn g(x: f64[n]) -> f64 = sum(x * x)\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("derive") / "program.dfl"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def derive(*args: object) -> Result:
    return CliRunner().invoke(main, ["derive", *map(str, args)])


def test_what_is_printed_is_a_program(program: Path, tmp_path: Path) -> None:
    result = derive(f"{program}:f", "--wrt", "y")
    assert result.exit_code == 0 and result.stderr == ""
    again = tmp_path / "again.dfl"
    again.write_text(result.stdout, encoding="utf-8")
    assert CliRunner().invoke(main, ["check", str(again)]).exit_code == 0
    assert CliRunner().invoke(main, ["fmt", "--check", str(again)]).exit_code == 0
    assert derive(again, "--wrt", "x").stdout.count("cos(x)") == 1


def test_a_derivative_that_is_0_by_mistake_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "quiet.dfl"
    path.write_text("fn quiet(x: f64, lim: f64) -> f64 = if x > lim { x^2 } else { x }\n")
    result = derive(path, "--wrt", "lim")
    assert result.exit_code == 0 and "fn d_quiet" in result.stdout
    assert "warning[DL0409]" in result.stderr and "quiet.dfl:1:40" in result.stderr and "<" not in result.stderr
    assert derive(path, "--wrt", "x").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "program.dfl:f`; the file has"),
        (("--wrt", "z"), 2, "has no parameter `z`"),
        (("--wrt", "x,y", "--order", "2"), 1, "is not a gradient"),
        (("--order", "9"), 2, "`--order` must be 1 to 4"),
        (("--arg", "x"), 2, "is not NAME=TYPE"),
    ],
)
def test_wrong_use(program: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    result = derive(program if not arguments else f"{program}:f", *arguments)
    assert result.exit_code == code and says in result.stderr


def test_formulas(program: Path) -> None:
    assert derive(f"{program}:f", "--symbolic").stdout == "d_x = y * cos(x)\n"
    assert derive(f"{program}:g", "--latex").exit_code == 1


def test_in_a_session() -> None:
    lines = "fn f(x: f64, y: f64) -> f64 = x * x * y\n:g f\n:g f wrt=y mode=jvp\n:g f mode=up\n"
    result = CliRunner().invoke(main, ["repl", "--engine=interpret"], input=lines)
    assert "fn d_f(x: f64, y: f64) -> f64 {" in result.output
    assert "fn jvp_f(x: f64, y: f64, d_y: f64) -> (f64, f64) {" in result.output
    assert "there is no mode `up`" in result.output


WRITTEN = {
    "log(x) * x": "log(x) + x / x",
    "x^2.5": "2.5 * x^1.5",
    "asin(x)": "1.0 / sqrt((1.0 - x) * (1.0 + x))",
    "exp2(x)": "log(2.0) * exp2(x)",
    "sqrt(x)^3": "1.5 * sqrt(x)",
    "sin(2.0 * x)": "2.0 * cos(2.0 * x)",
}


@pytest.mark.parametrize("body", WRITTEN)
def test_a_program_is_what_a_person_would_write(body: str, tmp_path: Path) -> None:
    """Without the guards that the ops of derivatives have where a function has no value."""
    path = tmp_path / "written.dfl"
    path.write_text(f"float f64\nfn f(x: f64) -> f64 = {body}\n", encoding="utf-8")
    assert f"let d_x = {WRITTEN[body]}" in derive(f"{path}:f").stdout


def test_a_record_of_an_element_type_is_pulled_back(tmp_path: Path) -> None:
    """`M[f64]` in a signature is the `M` whose numbers are f64."""
    path = tmp_path / "moments.dfl"
    declared = "record M[T] { m: T, k: i32 }\n"
    body = "fn f(x: f64, s: M[f64]) -> (f64, M[f64]) = (x * s.m, M(m = s.m + x, k = s.k + 1))\n"
    path.write_text(f"float f64\n{declared}{body}", encoding="utf-8")
    assert "let d_s_m = d_f_1.m + d_f_0 * x" in derive(f"{path}:f", "--mode", "vjp", "--wrt", "x,s").stdout


FORMULAS = [
    "exp(-x^2 / 2) / sqrt(x + 1)",
    "tanh(x)^3 - x / (1 + x^2)",
    "log(x + sin(x)) * (x - 2)^2",
    "sqrt(x)^3 + sqrt(x^2) * 3 - 1 / x",
    "atan(x) / 4 + (x + 1) * (x - 1) - (x + 1) * 2",
]


@pytest.mark.parametrize("body", FORMULAS)
def test_formulas_say_what_the_derivative_is(body: str, tmp_path: Path) -> None:
    """To the second order, where much is put in order."""
    path = tmp_path / "formula.dfl"
    path.write_text(f"float f64\nfn f(x: f64) -> f64 = {body}\n", encoding="utf-8")
    first, second = [derive(f"{path}:f", "--symbolic", "--order", k).stdout.partition(" = ")[2] for k in (1, 2)]
    lines = [f"fn g(x: f64) -> f64 = {first}", f"fn h(x: f64) -> f64 = {second}"]
    lines += ["print(abs(g(0.7) - f'(0.7)) < 1e-12, abs(h(0.7) - f''(0.7)) < 1e-11)"]
    path.write_text(path.read_text(encoding="utf-8") + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    result = CliRunner().invoke(main, ["run", "--engine=interpret", str(path)])
    assert result.stdout == "true true\n", (first, second, result.stderr)
