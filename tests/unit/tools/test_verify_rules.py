"""A rule of a program is compared with its function before anything runs; a wrong one is an error that names both."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import difflang
from difflang.base.diagnostics import Diagnostic
from difflang.base.source import Source
from difflang.cli import main
from difflang.driver.checked_program import check_program
from difflang.tools import rule_faults, verify_rules

WRONG = """fn cube(x: f64) -> f64 = x * x * x
rule cube(x) { (cube(x), linear |dx| -3.0 * x * x * dx) }
print(grad(cube)(2.0))
"""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "difflang" / "rules"


def reports(source: str, path: Path | None = None) -> tuple[Diagnostic, ...]:
    checked = check_program(Source("rules.dfl", f"float f64\n{source}\n"), path=path)
    assert not checked.errors, checked.errors
    verify_rules.verify_rules(checked, path)
    return checked.diagnostics


@pytest.mark.parametrize("command", [["check"], ["run"], ["memory"], ["check-grad"]])
def test_a_wrong_rule_stops_every_command(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "cube.dfl"
    file.write_text(WRONG)
    target = str(file)
    result = CliRunner().invoke(main, [*command, target])
    assert result.exit_code == 1
    assert "error[DL1109]: the rule of `cube` has a wrong derivative" in result.output and "-12.0" not in result.output


def test_a_wrong_rule_is_no_module() -> None:
    with pytest.raises(
        difflang.CheckError, match=r"at x = 0\.12573, its derivative in `x` is -0\.04742\d*, that of the"
    ):
        difflang.loads(WRONG)


def test_unchecked_says_that_it_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "cube.dfl"
    file.write_text(WRONG.replace("rule", "@unchecked\nrule"))
    for command in ("run", "test"):
        result = CliRunner().invoke(main, [command, "--engine", "interpret", str(file)])
        assert "DL" not in result.output
        assert "-12.0" in result.output or command == "test"


HEADER = """
record Net[d] { w: f64[d], b: f64, name: str }
enum Shape { Disk(r: f64), Box(a: f64, b: f64), Empty }
let scale = 2.5
"""
RIGHT = {
    "a stable formula": "fn f(x: f32[n]) -> f32 = log(sum(exp(x)))\n"
    "rule f(x) {\n let y = f(x)\n (y, linear |dx| sum(exp(x - y) * dx)) }",
    "another formula for the value": "fn f(x: f64) -> f64 = x^3\nrule f(x) { (x * x * x, linear |dx| 3 * x^2 * dx) }",
    "f16": "fn f(x: f16[n]) -> f16[n] = x * x\nrule f(x) { (x^2, linear |dx| 2 * x * dx) }",
    "complex": "fn f(z: c128) -> c128 = z * z\nrule f(z) { (f(z), linear |dz| 2.0 * z * dz) }",
    "a record": "fn f(m: Net[d], x: f64[d]) -> f64 = tanh(dot(m.w, x) + m.b)\n"
    "rule f(m, x) {\n let y = f(m, x)\n"
    " (y, linear |dm, dx| (1 - y^2) * (dot(dm.w, x) + dot(m.w, dx) + dm.b)) }",
    "an enum": "fn f(s: Shape) -> f64 = match s { Disk(r) => r^2, Box(a, b) => a * b, Empty => 0.0 }\n"
    "rule f(s) { (f(s), linear |ds| match (s, ds) { (Disk(r), Disk(dr)) => 2 * r * dr,"
    " (Box(a, b), Box(da, db)) => a * db + b * da, _ => 0.0 }) }",
    "an enum and back": "fn f(s: Shape, w: f64) -> Shape = match s { Disk(r) => Box(w * r, r), Box(a, b) => Disk(a / w), Empty => Empty }\n"
    "fn g(r: f64, w: f64) -> f64 = match f(f(Disk(r), w), w) { Disk(r) => r, _ => 0.0 }",
    "a size": "fn f(x: f64, k: dim) -> f64[k] = fill(k, x^2)\nrule f(x, k) { (f(x, k), linear |dx| fill(k, 2 * x * dx)) }",
    "a top-level value": "fn f(x: f64) -> f64 = scale * x^2\nrule f(x) { (f(x), linear |dx| 2 * scale * x * dx) }",
    "a domain": "fn f(x: f64) -> f64 {\n assert x > 0.0\n log(x)\n}\nrule f(x) { (f(x), linear |dx| dx / x) }",
    "a kink": "fn f(x: f64[n]) -> f64 = sum(abs(x))\nrule f(x) { (f(x), linear |dx| sum(sign(x) * dx)) }",
    "a stop": "fn f(x: f64) -> f64 = stop(x)^5\nrule f(x) { (f(x), linear |dx| 5 * f(x) / x * dx) }",
    "draws": "fn f(x: f64) -> f64 = x * normal()\nrule f(x) { (f(x), linear |dx| f(x) / x * dx) }",
    "prints": "fn f(x: f64) -> f64 {\n print(x)\n x^2\n}\nrule f(x) { (f(x), linear |dx| 2 * x * dx) }",
    "an iteration": "fn f(x: f64) -> f64 {\n var y = 1.0\n for _ in 0..40 { y = 0.5 * (y + (1 + x^2) / y) }\n y\n}\n"
    "rule f(x) {\n let y = f(x)\n (y, linear |dx| x / y * dx) }",
    "bisection": "fn zero(f: (f64) -> f64, b: f64) -> f64 {\n var (l, h) = (0.0, b)\n"
    " for _ in 0..60 {\n let m = 0.5 * (l + h)\n if f(m) < 0.0 { l = m } else { h = m }\n }\n 0.5 * (l + h)\n}\n"
    "rule zero(f, b) by implicit |x| f(x)\nfn g(c: f64) -> f64 = zero(|x| x^3 - exp(c), 100.0)",
    "a solver": "fn jacobi(A: f64[2] -o f64[2], b: f64[2]) -> f64[2] {\n var x = b\n"
    " for _ in 0..200 { x += 0.2 * (b - A(x)) }\n x\n}\nrule jacobi(A, b) by linear_solve A\n"
    "fn g(k: f64) -> f64 = jacobi(linear |v| [4 * v[0] + sin(k) * v[1], 5 * v[1]], [1, 2])[0]",
    "an inverse": "fn turn(x: f64[2], a: f64) -> f64[2] = [cos(a) * x[0] - sin(a) * x[1], sin(a) * x[0] + cos(a) * x[1]]\n"
    "rule turn(x, a) by inverse |x| turn(x, -a)",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rule_is_verified_without_a_word(name: str) -> None:
    assert reports(HEADER + RIGHT[name]) == ()


FALSE = {
    "only below zero": "fn f(x: f64) -> f64 = x^2\nrule f(x) { (f(x), linear |dx| 2 * abs(x) * dx) }",
    "a fixed path": "fn zero(f: (f64) -> f64, b: f64) -> f64 {\n var (l, h) = (0.0, b)\n"
    " for _ in 0..60 {\n let m = 0.5 * (l + h)\n if f(m) < 0.0 { l = m } else { h = m }\n }\n 0.5 * (l + h)\n}\n"
    "rule zero(f, b) { (zero(f, b), linear |df, db| 0.0 * db) }\nfn g(c: f64) -> f64 = zero(|x| x^3 - exp(c), 100.0)",
    "in one field": "fn f(m: Net[d]) -> f64 = sum(m.w) * m.b\nrule f(m) { (f(m), linear |dm| sum(dm.w) * m.b) }",
    "in f32": "fn f(x: f32) -> f32 = sin(x)\nrule f(x) { (f(x), linear |dx| 1.001 * cos(x) * dx) }",
    "in one variant": "fn f(s: Shape) -> f64 = match s { Disk(r) => r^2, Box(a, b) => a * b, Empty => 0.0 }\n"
    "rule f(s) { (f(s), linear |ds| match (s, ds) { (Disk(r), Disk(dr)) => 2 * r * dr,"
    " (Box(a, b), Box(da, db)) => a * db - b * da, _ => 0.0 }) }",
    "not a number": "fn f(x: f64) -> f64 = x^2\nrule f(x) { (exp(2 * log(x)), linear |dx| 2 * x * dx) }",
    "an inverse": "fn f(x: f64, w: f64) -> f64 = x + w\nrule f(x, w) by inverse |x| x + w",
    "an equation": "fn f(p: f64) -> f64 = sqrt(1 + p^2)\nrule f(p) by implicit |x| x^3 - p",
}  # fmt: skip


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_rule_is_an_error_at_its_line(name: str) -> None:
    (found,) = reports(HEADER + FALSE[name])
    assert found.code == ("DL1106" if name == "an inverse" else "DL1109") and found.severity == "error"
    assert found.labels[0].span.text in ("f", "zero")


def test_rules_of_imported_files_and_through_their_importers(tmp_path: Path) -> None:
    solver = RIGHT["bisection"].partition("fn g")[0].replace("fn zero", "pub fn zero")
    (tmp_path / "solver.dfl").write_text(f"float f64\n{solver}")
    use = 'import "./solver.dfl" (zero)\nfn g(c: f64) -> f64 = zero(|x| x^3 - exp(c), 100.0)'
    assert reports(use, tmp_path / "main.dfl") == ()
    assert reports(use.replace("(zero)", "").replace("= zero(", "= solver.zero("), tmp_path / "main.dfl") == ()
    (tmp_path / "solver.dfl").write_text(f"float f64\n{solver}".replace("|x| f(x)", "|x| f(2 * x)"))
    (found,) = reports(use, tmp_path / "main.dfl")
    assert found.code == "DL1109" and found.labels[0].span.source.name.endswith("solver.dfl")
    assert found.labels[1].span.text == "g"


def test_rules_of_the_library_are_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_faults, "verify_rule", lambda rule, *_: pytest.fail(rule.name))
    assert reports("import linalg\nfn f(a: f64[n, n]) -> f64[n, n] = linalg.sqrtm(a)") == ()


def test_a_value_that_takes_long_is_not_computed() -> None:
    (found,) = reports(
        "fn slow() -> f64 {\n var s = 0.0\n while s < 1e9 { s += 1.0 }\n s\n}\nlet k = slow()\n"
        "fn f(x: f64) -> f64 = k * x\nrule f(x) { (f(x), linear |dx| k * dx) }"
    )
    assert (found.code, found.severity) == ("DL1110", "warning")
    assert "a top-level value that it reads takes too long to compute" in found.message


def test_an_extern_is_verified_where_python_binds_it() -> None:
    source = "extern fn wave(x: f64[n]) -> f64[n]\nrule wave(x) { (wave(x), linear |dx| cos(x) * dx) }"
    assert reports(source) == (), "nothing to compare with"
    difflang.loads(source, externs={"wave": jnp.sin})
    with pytest.raises(difflang.CheckError, match="DL1109"):
        difflang.loads(source, externs={"wave": jnp.cos})


def test_an_extern_that_takes_long_is_not_run_fifty_times() -> None:
    calls: list[Any] = []

    def slow(x: Any) -> Any:
        calls.append(x)
        time.sleep(0.06)
        return np.sin(x)

    source = "extern fn wave(x: f64[2]) -> f64[2]\nrule wave(x) { (wave(x), linear |dx| cos(x) * dx) }"
    with pytest.warns(difflang.DifflangWarning, match="it calls a function of Python that takes long"):
        difflang.loads(source, externs={"wave": difflang.extern(slow, host=True)})
    assert len(calls) < 8


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    plain = rule_faults.verify_rule

    def verify(rule: Any, *others: Any) -> Any:
        done.append(rule.name)
        return plain(rule, *others)

    monkeypatch.setattr(rule_faults, "verify_rule", verify)
    return done


def test_an_unchanged_rule_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    source = (
        "let k = 2.0\nfn inner(x: f64) -> f64 = k * x\nfn f(x: f64) -> f64 = inner(x)^2\n"
        "rule f(x) { (f(x), linear |dx| 2 * k * inner(x) * dx) }\nfn other(x: f64) -> f64 = x"
    )
    assert reports(source) == reports(source) == () and done == ["f"]
    assert reports(source.replace("= x", "= 2.0 * x").replace("k * 2.0 * x", "k * x")) == () and done == ["f"]
    assert reports(source.replace("k = 2.0", "k = 3.0")) == () and done == ["f"] * 2
    assert reports(source.replace("k * x\n", "k * sin(x)\n")) != () and done == ["f"] * 3
    assert reports("# a comment\n" + source) == () and done == ["f"] * 3


@pytest.mark.parametrize("used", ["(inner)\nfn f(x: f64) -> f64 = inner(x)", "\nfn f(x: f64) -> f64 = m.inner(x)"])
def test_a_changed_function_of_an_imported_file_is_seen(used: str, tmp_path: Path) -> None:
    source = f'import "./m.dfl" {used}\nrule f(x) {{ (f(x), linear |dx| 2.0 * dx) }}\n'
    for factor, found in (("2.0", []), ("3.0", ["DL1109"])):
        (tmp_path / "m.dfl").write_text(f"fn by() -> f64 = {factor}\npub fn inner(x: f64) -> f64 = by() * x\n")
        assert [d.code for d in reports(source, tmp_path / "main.dfl")] == found


READERS = {
    "a value": 'let k: f64 = read_json("k.json")',
    "a function": 'host fn read(name: str) -> f64 {\n let x: f64 = read_json(name)\n x\n}\nlet k = read("k.json")',
    "an imported value": 'import "./m.dfl" (k)',
}


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_a_changed_data_file_is_seen(reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    (tmp_path / "m.dfl").write_text('pub let k: f64 = read_json("k.json")\n')
    other = 'let unused: f64 = read_json("other.json")\n'
    source = f"{other}{reader}\nfn f(x: f64) -> f64 = k * x\nrule f(x) {{ (f(x), linear |dx| 2.0 * dx) }}\n"
    for k, unused, codes, times in (
        ("2.0", "1.0", [], 1),
        ("2.0", "15.0", [], 1),
        ("30.0", "15.0", ["DL1109"], 2),
        ("2.00", "15.0", [], 3),
    ):
        for name, text in (("k.json", k), ("other.json", unused)):
            if not (tmp_path / name).exists() or (tmp_path / name).read_text() != text:
                (tmp_path / name).write_text(text)
        assert [d.code for d in reports(source, tmp_path / "main.dfl")] == codes
        assert done == ["f"] * times or "(name)" in reader


def test_the_way_out_for_a_file_that_cannot_be_read_is_the_file(tmp_path: Path) -> None:
    source = 'let k: f64 = read_json("k.json")\nfn f(x: f64) -> f64 = k * x\nrule f(x) { (f(x), linear |dx| k * dx) }\n'
    (found,) = reports(source, tmp_path / "main.dfl")
    assert found.code == "DL1110" and found.helps[0].startswith("it is verified where the file can be read")


@pytest.mark.parametrize(
    "condition", ["n % 6 == 0", "n == 2 * m", "m == 2 * n", "n == 1", "n + m > 100", "n < 3 and m == n"]
)
def test_sizes_are_drawn_that_a_condition_admits(condition: str) -> None:
    source = f"fn f(x: f64[n], y: f64[m]) -> f64 where {condition} = sum(x) * sum(y)\n"
    rule = "rule f(x, y) { (f(x, y), linear |dx, dy| sum(dx) * sum(y) + sum(dy) * sum(x)) }\n"
    assert reports(source + rule) == ()
    assert [d.code for d in reports(source + rule.replace("+", "-"))] == ["DL1109"]


STRICT = """fn plateau(x: f64) -> f64 = grad(|t| round(t))(x)
fn f(g: (f64) -> f64, x: f64) -> f64 = g(x)
rule f(g, x) { (f(g, x), linear |dg, dx| dx) }
fn cube(x: f64) -> f64 = x * x * x
rule cube(x) { (cube(x), linear |dx| -3.0 * x * x * dx) }
"""


def test_rules_are_verified_although_a_warning_is_an_error(tmp_path: Path) -> None:
    checked = check_program(Source("rules.dfl", STRICT), strict=True)
    verify_rules.verify_rules(checked, None)
    assert [d.code for d in checked.errors] == ["DL0409", "DL1110", "DL1109"]
    with pytest.raises(difflang.CheckError) as caught:
        difflang.loads(STRICT, strict=True)
    assert [d.code for d in caught.value.diagnostics] == ["DL0409", "DL1110", "DL1109"]


def test_rules_of_a_program_with_a_mistake_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    checked = check_program(Source("rules.dfl", f"{STRICT}let x: i32 = 0.5\n"), strict=True)
    verify_rules.verify_rules(checked, None)
    assert done == []


def test_a_warning_comes_again_without_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    source = "fn f(g: (f64) -> f64, x: f64) -> f64 = g(x)\nrule f(g, x) { (f(g, x), linear |dg, dx| dx) }"
    first, second = reports(source), reports(source)
    assert [d.code for d in first] == ["DL1110"] and done == ["f"]
    assert (first[0].message, first[0].helps) == (second[0].message, second[0].helps)


def test_an_error_is_not_remembered(empty_cache: Path) -> None:
    assert [d.code for d in reports(WRONG)] == [d.code for d in reports(WRONG)] == ["DL1109"]
    assert not list(empty_cache.glob("*"))


@pytest.mark.parametrize("damage", ["", "{}", "[]", "0\n[]"])
def test_a_damaged_entry_is_verified_again(damage: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    right = "fn f(x: f64) -> f64 = x\nrule f(x) { (f(x), linear |dx| dx) }"
    assert reports(right) == () and done == ["f"]
    (entry,) = empty_cache.glob("*.json")
    assert entry.parent.stat().st_mode & 0o777 == 0o700
    entry.write_text(damage)
    assert reports(right) == () and done == ["f"] * 2


def test_another_compiler_verifies_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    right = "fn f(x: f64) -> f64 = x\nrule f(x) { (f(x), linear |dx| dx) }"
    assert reports(right) == () and done == ["f"]
    monkeypatch.setattr(verify_rules, "compiler_stamp", lambda: "newer")
    assert reports(right) == () and done == ["f"] * 2


def test_a_program_without_rules_imports_none_of_it(tmp_path: Path) -> None:
    file = tmp_path / "plain.dfl"
    file.write_text("fn f(x: f64) -> f64 = x\n")
    code = (
        "import sys\nfrom difflang.cli import main\nmain(['check', sys.argv[1]], standalone_mode=False)\n"
        "print([m for m in sys.modules if m.startswith(('difflang.gradcheck', 'difflang.tools.rule_', 'jax'))])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
