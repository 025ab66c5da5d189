"""`difflang check-grad`: what it draws, what it prints, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.ir.op import OPS
from support.broken import breakages

PROGRAM = """
record P[d] { w: f32[d], b: f32 }
let c: f32[2] = [1.0, 2.0]
fn square(x: f32) = x * x * sum(c)
fn line(p: P[d], x: f32[n, d]) -> f32[n] = x @ p.w + p.b
fn draw(n: dim, s: f32) -> f32[n] = s * normal(n)
fn pick(x: f32[n], i: i32) -> f32 = x[i] * tanh(x[0])
fn domain(x: f64[n]) -> f64[n] = log(x) + sqrt(2.0 - x)
fn generic[T: float](x: T[..s]) -> T = sum(x * x)
fn even(x: f32[n]) -> f32[2, n // 2] where n == 2 * (n // 2) = reshape(x, [2, n // 2])
fn after(x: f32[n, n - 3]) -> f32 = sum(x * x)
fn count(n: i32) -> i32 = n + 1
fn never(x: f32) -> f32 {
  assert x > 100.0, "too small"
  x
}
fn applied(g: (f32) -> f32, x: f32) -> f32 = g(x)
host fn say(x: f32) { print(x) }
"""


def check_grad(*args: object) -> Result:
    return CliRunner().invoke(main, ["check-grad", "--engine=interpret", *map(str, args)])


@pytest.mark.parametrize(
    ("entry", "drawn"),
    [
        ("square", "x: f32, seed 0"),
        ("line", "p: P[3], x: f32[4, 3], seed 0"),
        ("draw", "n = 2, s: f32, seed 0"),
        ("pick", "x: f32[3], i: i32, seed 0"),
        ("domain", "x: f64[3], seed 0"),
        ("generic", "x: f32[3, 4], seed 0"),
    ],
)
def test_arguments_are_drawn_by_the_declaration(file: Path, entry: str, drawn: str) -> None:
    result = check_grad(f"{file}:{entry}")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == f"{entry}: right, in 3 directions at {drawn}"
    assert "forward mode, exact" in result.stdout and "compiled" not in result.stdout
    assert not result.stderr


def test_sizes_that_do_not_fit_are_chosen_again(file: Path) -> None:
    result = check_grad(f"{file}:even")
    assert result.exit_code == 0, result.output
    assert "x: f32[4]" in result.stdout


def test_sizes_and_types_can_be_told(file: Path) -> None:
    assert "P[5], x: f32[2, 5]" in check_grad(f"{file}:line", "--dim", "n=2", "--dim", "d=5").stdout
    assert "P[3], x: f32[7, 3]" in check_grad(f"{file}:line", "--arg", "x=f32[7, 3]").stdout
    assert "x: f64[2], seed" in check_grad(f"{file}:generic", "--arg", "x=f64[2]").stdout


def test_it_is_compiled_too_unless_told_otherwise(file: Path) -> None:
    result = CliRunner().invoke(main, ["check-grad", f"{file}:square"])
    assert result.exit_code == 0
    assert "reverse mode, compiled" in result.stdout


def test_a_whole_file(file: Path) -> None:
    """Every function with a derivative; why others are left out is a warning."""
    result = check_grad(file, "--directions", 1)
    assert result.exit_code == 0, result.output
    names = [line.partition(":")[0] for line in result.stdout.splitlines() if "right" in line]
    assert names == ["square", "line", "draw", "pick", "domain", "generic", "even", "after"]
    assert "`count` has no real parameters" in result.stderr
    assert "`say` is a host function" in result.stderr
    assert "warning[DL0901]: too small" in result.stderr


def test_the_seed_decides_everything(file: Path) -> None:
    first, again, other = (check_grad(f"{file}:line", "--seed", s).stdout for s in (1, 1, 2))
    assert first == again != other


def test_reports_as_data(file: Path) -> None:
    result = check_grad(f"{file}:line", "--json", "--order", 2)
    (report,) = json.loads(result.stdout)
    assert (report["function"], report["right"], report["order"], report["directions"]) == ("line", True, 2, 3)
    assert report["fault"] is None and report["diagnostics"] == []
    assert {"forward mode, exact", "reverse mode over reverse, exact"} <= {c["compared"] for c in report["comparisons"]}
    assert all(c["right"] and c["largest"] < 1e-5 for c in report["comparisons"])


def test_only_in_one_parameter(file: Path) -> None:
    (report,) = json.loads(check_grad(f"{file}:line", "--json", "--wrt", "p.w", "--engine=interpret").stdout)
    numbers = {c["compared"]: c["numbers"] for c in report["comparisons"]}
    assert numbers["reverse mode, interpreted"] == 3 * (4 + 3)  # the value, and the cotangent of w, three times


def test_a_wrong_rule_ends_with_1_and_the_line(file: Path) -> None:
    with next(breakages(OPS["tanh"])).done():
        result = check_grad(f"{file}:pick")
        data = check_grad(f"{file}:pick", "--json")
    assert (result.exit_code, data.exit_code) == (1, 1)
    assert result.stdout.startswith("pick: WRONG")
    assert "error[DL0406]: the derivative of `pick` goes wrong at `tanh`" in result.stderr
    assert f"{file}:7:44" in result.stderr
    (report,) = json.loads(data.stdout)
    assert report["right"] is False and report["fault"]["op"] == "tanh"
    assert report["fault"]["relative"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((":lin",), 2, "did you mean `line`?"),
        ((":line", "--wrt", "q"), 2, "has no parameter `q`"),
        ((":line", "--dim", "m=3"), 2, "no parameter or size `m`"),
        ((":line", "--dim", "n"), 2, "is not NAME=SIZE"),
        ((":line", "--dim", "n=-2"), 2, "the size `n` must be a whole number that is not negative, but `-2` was given"),
        ((":line", "--dim", "n=2.5"), 2, "the size `n` must be a whole number"),
        ((":line", "--dim", "n=99999999999"), 2, "the size `n` must be a whole number"),
        ((":draw", "--dim", "n=x"), 2, "the size `n` must be a whole number, but `x` was given"),
        ((":after", "--dim", "n=2"), 2, "`x` of `after` becomes f32[2, -1], but a size cannot be negative"),
        ((":line", "--order", "0"), 2, "`order` must be an integer from 1 to 3, but 0 was given"),
        ((":line", "--directions", "0"), 2, "`directions` must be an integer from 1 on, but 0 was given"),
        ((":line", "--seed", "-1"), 2, "`seed` must be an integer from 0 to"),
        ((":line", "--sed", "0"), 2, "--seed"),
        ((":count",), 2, "has no real parameters"),
        ((":say",), 2, "is a host function"),
        ((":never",), 3, "too small"),
        ((":applied",), 2, "`g` is a function, for which no random values can be drawn"),
    ],
)
def test_wrong_use_and_programs_that_fail(file: Path, args: tuple[str, ...], code: int, said: str) -> None:
    entry, *rest = args
    result = check_grad(f"{file}{entry}", *rest)
    assert result.exit_code == code, result.output
    assert said in result.output


def test_a_file_without_functions(tmp_path: Path) -> None:
    path = tmp_path / "values.dfl"
    path.write_text("let x = 1\n")
    result = check_grad(path)
    assert result.exit_code == 2
    assert "this file contains no function" in result.stderr


def test_help_does_not_load_jax() -> None:
    code = (
        "import sys; from difflang.cli import main\n"
        "try: main(['check-grad', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('jax', 'difflang.gradcheck.gradient_check', 'scipy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.endswith("[]\n")


@pytest.mark.parametrize("kept", ["", "\n    yield x"])
def test_a_function_that_does_not_end_where_arguments_are_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: str
) -> None:
    """What it keeps of its steps needs room, which is sought by runs that do not go on for ever either."""
    monkeypatch.setattr("difflang.tools.check_grad.MAX_OPERATIONS", 5_000)
    file = tmp_path / "endless.dfl"
    file.write_text(
        "fn root(a: f64) -> f64 {\n  var x = 1.0\n"
        f"  while exp(x) + a^2 > 0.0 {{ x -= 1.0 + a^2 / exp(min(x, 9.0)){kept} }}\n  x\n}}\n"
        "rule root(a) by implicit |x| exp(x) + a^2\n"
    )
    said = "no random arguments of `root` could be found: it does not finish within 5,000 operations"
    for command in ("test", "check-grad"):
        result = CliRunner().invoke(main, [command, str(file)])
        assert said in result.output, result.output


def test_a_field_of_a_record_is_named_with_its_parameter(tmp_path: Path) -> None:
    path = tmp_path / "p.dfl"
    path.write_text("record P { w: f32 }\nfn f(p: P, x: f32, q: P) -> f32 = x * p.w * q.w\n")
    result = check_grad(f"{path}:f", "--wrt", "w")
    assert result.exit_code != 0 and "for the field of that name, write `p.w` or `q.w`" in result.output


@pytest.mark.parametrize("verb", ["check-grad", "derive", "viz", "memory --wrt x", "export", "emit --stage ir"])
def test_a_function_within_what_is_taken_is_not_known(verb: str, tmp_path: Path) -> None:
    """In a record or a tuple as well as by itself; it was a fault of ours."""
    path = tmp_path / "held.dfl"
    path.write_text(
        "record Layer { w: f64, act: (f64) -> f64 }\nfn run(l: Layer, x: f64) -> f64 = l.act(l.w * x)\n"
        "fn both(p: (f64, (f64) -> f64), x: f64) -> f64 {\n  let (a, g) = p\n  g(a * x)\n}\n"
        "fn given(x: f64, g: (f64) -> f64 = |y| y^2) -> f64 = g(x)\n"
    )
    for name, param in (("run", "l"), ("both", "p")):
        result = CliRunner().invoke(main, [*verb.split(), f"{path}:{name}"])
        assert f"error[DL1210]: `{param}` holds a function, and no argument is given for it" in result.output
    assert verb == "export" or CliRunner().invoke(main, [*verb.split(), f"{path}:given"]).exit_code == 0


def test_a_zero_that_comes_back_to_nan_is_no_fault(tmp_path: Path) -> None:
    """The geometric mean of a negative number and another is NaN, which ends the loop and is not given."""
    path = tmp_path / "agm.dfl"
    path.write_text(
        "fn agm(a0: f64, b0: f64) -> f64 {\n  var (a, b) = (a0, b0)\n"
        "  while abs(a - b) > 1e-12 { (a, b) = ((a + b) / 2.0, sqrt(a * b)) }\n  2.0 * a\n}\n"
    )
    result = check_grad(str(path))
    assert result.exit_code == 0 and "agm: right" in result.output
    assert "`sqrt` is NaN, and so is the reverse-mode derivative through it" in result.output
