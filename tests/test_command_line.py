"""What the command line makes of bad input: a report with a code, the right exit code, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from difflang.cli import main

N = 10_000
HEADER = "fn f(x: f32) -> f32 {\n"


def call(*args: object, input: str | None = None) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in args], input=input)
    assert "Traceback" not in result.output
    return result


def program(folder: Path, text: str | bytes, name: str = "program.dfl") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ---- Programs

TEXTS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", ""),
    "blank": ("\n\n# nothing\n", ""),
    "binary": (b"\x7fELF\x02\x01\x01\x00" * 50, "DL0102"),
    "latin 1": ("let x = 1 # caf\xe9".encode("latin-1"), "DL0102"),
    "utf-16": ("let x = 1".encode("utf-16"), "DL0102"),
    "null": ("let x = 1\0", "DL0102"),
    "unterminated string": ('let x = "abc\nlet y = 1\n', "DL0105"),
    "parentheses": ("print(" + "(" * N + "1" + ")" * N + ")", ""),
    "blocks": ("print(" + "{" * N + "1" + "}" * N + ")", ""),
    "ifs": ("let c = 1.0\n" + "if c > 0.0 {\n" * N + "print(1)\n" + "}\n" * N, "DL1002"),
    "ifs in a function": (HEADER + "if x > 0.0 {\n" * N + "x\n" + "} else { x }\n" * N + "}\n", "DL1002"),
    "else ifs": (HEADER + "if x > 0.0 { x }" + " else if x > 1.0 { x }" * N + " else { x }\n}\n", "DL1002"),
    "loops": (HEADER + "var y = x\n" + "for i in 0..2 {\n" * N + "y += 1\n" + "}\n" * N + "y\n}\n", "DL1002"),
    "calls": ("let x = 1.0\nprint(" + "sin(" * N + "x" + ")" * N + ")", ""),
    "arrays": ("let x = " + "[" * N + "1" + "]" * N, "DL1005"),
    "arrays of a name": (HEADER + "sum(" + "[" * N + "x" + "]" * N + ")\n}\n", "DL1005"),
    "lambdas": ("let f = " + "|x| " * N + "x", ""),
    "lambdas are expanded": (HEADER + "(|x| " * 2000 + "x" + ")(x)" * 2000 + "\n}\n", "DL1002"),
    "tuples": ("let x = " + "(1, " * N + "1" + ")" * N, "DL1002"),
    "patterns": ("let " + "(a, " * N + "b" + ")" * N + " = 1", "DL0321"),
    "types": ("fn f(x: " + "(f32, " * N + "f32" + ")" * N + ") -> f32 = 1.0", "DL1002"),
    "function types": ("fn f(x: " + "f32 -> " * N + "f32) -> f32 = 1.0", "DL1002"),
    "sizes": ("fn f(x: f32[" + " + ".join(["n"] * N) + "]) -> f32 = sum(x)", "DL1002"),
    "signs": ("print(" + "-" * N + "1)", ""),
    "powers": ("let x = " + "2^" * N + "1", ""),
    "comparisons": ("let x = 1" + " < 2" * N, ""),
    "pipes": ("let x = 1.0" + " |> sin" * N, ""),
    "indices": ("let x = [1.0]\nprint(x" + "[..]" * N + ")", ""),
    "a sum": ("let x = 1.0\nprint(" + " + ".join(["x"] * 30_000) + ")", ""),
    "a sum of numbers": ("print(" + " + ".join(["1"] * 30_000) + ")", ""),
    "lines": ("".join(f"let x{i} = {i}.0 * 2.0\n" for i in range(5000)), ""),
    "a huge integer": ("let x = " + "9" * 100_000, "DL0119"),
    "a large integer": ("let x = 3000000000", "DL0316"),
    "a huge float": ("let x = 1" + "0" * 400 + ".0\nprint(x)", "DL0316"),
    "a record in itself": ("record P { x: f32, p: P }\nfn f(p: P) -> f32 = p.x", "DL0354"),
    "a huge array": ("let x = zeros(100000, 100000, 100000)\nprint(x)", "DL1006"),
    "a factorial": ("fn f(k: i32) -> i32 = if k <= 1 { 1 } else { k * f(k - 1) }\nprint(f(5))", ""),
    "a recursion that cannot end": ("fn f(x: f32) -> f32 = 1.0 + f(x)\nprint(f(5.0))", "DL0504"),
    "endless loop or recursion": (
        "fn f(x: f32) -> f32 = if x < 0.0 { x } else { 1.0 + f(x + 1.0) }\nprint(f(5.0))",
        "DL1007",
    ),
}


LONG = {"a sum", "a sum of numbers", "lines"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in TEXTS])
@pytest.mark.nightly_cases("lines|a sum|a sum of numbers")
def test_any_text_runs_or_is_reported(name: str, tmp_path: Path) -> None:
    """Each in a few seconds: nothing hangs, nothing grows with the square of the depth."""
    text, code = TEXTS[name]
    start = time.monotonic()
    result = call("run", "--engine", "interpret", program(tmp_path, text))
    assert time.monotonic() - start < 60
    assert result.exit_code == (1 if code else 0), result.stderr[:2000]
    assert len([line for line in result.stderr.splitlines() if line.startswith("error[")]) == bool(code)
    assert f"error[{code}]" in result.stderr or not code


@pytest.mark.parametrize("reader", ["let y = sum(x)", "let (_, y) = f(x)"])
def test_an_array_that_does_not_fit_is_reported_where_it_is_made(reader: str, tmp_path: Path) -> None:
    """XLA says so later; a program that reads it and has several results would never end."""
    text = (
        f"fn f(x: f32[n, m]) -> (f32[n, m], i32) = (2.0 * x, 0)\nlet x = normal(1000000000, 1000)\n{reader}\nprint(y)\n"
    )
    result = call("run", program(tmp_path, text))
    assert (result.exit_code, "error[DL1006]" in result.stderr, ":2:9" in result.stderr) == (1, True, True)


# ---- Files that are not there, or not what they seem


def test_what_is_no_file(tmp_path: Path) -> None:
    missing = call("check", tmp_path / "missing.dfl")
    assert (missing.exit_code, "DL0701" in missing.stderr) == (1, True)
    folder = call("run", tmp_path)
    assert (folder.exit_code, "directory" in folder.stderr) == (1, True)
    for command in ("run", "repl"):
        missing = call(command, tmp_path / "missing.dfl")
        assert missing.exit_code == 1 and "error[DL0701]: cannot read" in missing.stderr


def test_a_function_where_a_whole_file_is_expected(tmp_path: Path) -> None:
    file = program(tmp_path, "fn f(x: f32) -> f32 = x\n")
    formatted, checked = call("fmt", f"{file}:f"), call("check", f"{file}:f")
    assert formatted.exit_code == 1 and f"takes whole files: write `{file}`" in formatted.stderr
    assert checked.exit_code == 2 and f"write `difflang check {file}`; `{file}:f` needs --data" in checked.stderr


@pytest.mark.parametrize("command", ["derive", "export", "viz", "trace", "memory", "compare"])
def test_no_function_is_named(command: str, tmp_path: Path) -> None:
    file = program(tmp_path, "fn f(x: f32) -> f32 = x\nfn g(x: f32) -> f32 = x\n")
    several = call(command, file, *(["-o", tmp_path / "f.dflx"] if command == "export" else []))
    assert several.exit_code == 2 and f"error[DL1207]: `{command}` takes one function of a file" in several.stderr
    assert f"write `{file}:f`; the file has f, g" in several.stderr


def test_several_files_are_checked_each(tmp_path: Path) -> None:
    good, bad = program(tmp_path, "let x = 1", "good.dfl"), program(tmp_path, "let x = y", "bad.dfl")
    assert call("check", good, good).exit_code == 0
    result = call("check", bad, tmp_path / "missing.dfl", good, bad)
    assert result.exit_code == 1
    assert result.stderr.count("error[DL0201]") == 2
    assert result.stderr.count("error[DL0701]") == 1


def test_standard_input() -> None:
    result = call("run", "-", input="print(1 + 1)")
    assert (result.exit_code, result.stdout) == (0, "2\n")


CSV = {
    "a word": ("1,2\n3,x\n", "let x: f32[n, 2] =", "DL0703", "2: column 2"),
    "an empty cell": ("1,2\n3,\n", "let x: f32[n, 2] =", "DL0703", "2: column 2"),
    "ragged": ("1,2\n3,4\n5\n", "let x: f32[n, 2] =", "DL0703", ":3:"),
    "a fraction": ("1,2\n3,4.5\n", "let x: i32[n, 2] =", "DL0703", "2: column 2"),
    "columns": ("1,2\n3,4\n", "let x: f32[n, 3] =", "DL0705", "f32[2, 2]"),
    "rows": ("1,2\n3,4\n", "let x: f32[7, 2] =", "DL0705", "f32[2, 2]"),
    "not utf-8": (b"1,2\n\xff\xfe,4\n", "let x: f32[n, 2] =", "DL0701", "csv"),
    "empty": ("", "let x: f32[3, 2] =", "DL0705", ""),
}


@pytest.mark.parametrize("name", CSV)
def test_tables_that_do_not_fit(name: str, tmp_path: Path) -> None:
    table, declaration, code, said = CSV[name]
    program(tmp_path, table, "data.csv")
    result = call("run", program(tmp_path, f'{declaration} read_csv("data.csv")'))
    assert result.exit_code == 1
    assert f"error[{code}]" in result.stderr
    assert said in result.stderr
    assert "program.dfl:1:" in result.stderr


def test_arrays_that_do_not_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((3, 4)))
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=np.zeros(3, np.float32), b=np.zeros(3, np.float32))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "wide.npy").read_bytes()[:90])
    with zipfile.ZipFile(tmp_path / "odd.npz", "w") as archive:
        archive.writestr("a.npy", b"junk")
    for call_, code in {
        'let x: f32[n, 4] = read_npy("wide.npy")': "DL0704",
        'let x: f64[n, 5] = read_npy("wide.npy")': "DL0705",
        'let x: f64[n] = read_npy("wide.npy")': "DL0705",
        'let x: f64[n] = read_npy("objects.npy")': "DL0701",
        'let x: f64[n, 4] = read_npy("cut.npy")': "DL0701",
        'let x: f32[n] = read_npz("two.npz", "c")': "DL0706",
        'let x: f32[n] = read_npz("two.npz")': "DL0706",
        'let x: f32[n] = read_npz("odd.npz", "a")': "DL0701",
        'let x: f32[n] = read_npy("missing.npy")': "DL0701",
        'let x: f32[n] = read_npy(".")': "DL0701",
        'let x: f32[n] = read_npy("/etc/passwd")': "DL0702",
        'let x: f32[n] = read_npy("../x.npy")': "DL0702",
    }.items():
        result = call("run", program(tmp_path, call_))
        assert (result.exit_code, code) == (1, code if f"error[{code}]" in result.stderr else result.stderr), call_


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    np.save(tmp_path / "secret.npy", np.zeros(3, np.float32))
    (inside / "link.npy").symlink_to(tmp_path / "secret.npy")
    path = program(inside, 'let x: f32[n] = read_npy("link.npy")\nprint(n)')
    assert "error[DL0702]" in call("run", path).stderr
    allowed = call("run", "--allow", tmp_path, path)
    assert (allowed.exit_code, allowed.stdout) == (0, "3\n")


# ---- Wrong usage, and the other exit codes


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["chekc", "x.dfl"], "Did you mean 'check'?"),
        (["rn", "x.dfl"], "Did you mean 'run'?"),
        (["run", "--sede", "3", "x.dfl"], "--seed"),
        (["run", "--seed", "x", "x.dfl"], "'x' is not a valid whole number"),
        (["run", "--seed", "-1", "x.dfl"], "not in the range"),
        (["run", "--engine", "xlaa", "x.dfl"], "xla"),
        (["run"], "Missing argument"),
        (["check"], "Name a program"),
        (["explain", "DL9999"], "no code 'DL9999'. `difflang explain` lists them"),
        (["explain", "DL0319x"], "Did you mean 'DL0319'?"),
    ],
)
def test_wrong_usage(args: list[str], said: str) -> None:
    result = call(*args)
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_unknown_device(tmp_path: Path) -> None:
    result = call("run", "--device", "quantum", program(tmp_path, "let x = ones(100)\nprint(sum(x * x))"))
    assert (result.exit_code, "error[DL0601]" in result.stderr) == (2, True)


def test_a_program_that_fails_while_it_runs(tmp_path: Path) -> None:
    pick = "fn pick(x: f32[n], i: i32) -> f32 = x[i]\nprint(1)\nprint(pick([1.0, 2.0], 5))"
    result = call("run", program(tmp_path, pick))
    assert (result.exit_code, result.stdout) == (3, "1\n")
    assert "error[DL0902]" in result.stderr
    assert call("run", program(tmp_path, "assert 1 > 2")).exit_code == 3


def test_a_fault_of_ours_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def broken(*_: object, **__: object) -> None:
        raise TypeError("planted")

    monkeypatch.setattr("difflang.driver.checked_program.check_program", broken)
    path = program(tmp_path, "let x = 1")
    result = call("run", path)
    assert result.exit_code == 70
    assert "planted" in result.stderr
    (report,) = (tmp_path / "cache" / "difflang" / "crashes").iterdir()
    assert str(report) in result.stderr
    assert "Traceback" in report.read_text()
    assert "jax" in report.read_text()
    shown = CliRunner().invoke(main, ["run", "--full-traceback", str(path)])
    assert (shown.exit_code, "Traceback" in shown.stderr) == (70, True)


def test_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("difflang.driver.checked_program.check_program", interrupted)
    assert call("run", program(tmp_path, "let x = 1")).exit_code == 130


@pytest.mark.slow
@pytest.mark.parametrize("args", [["--help"], ["check", "examples/digits.dfl"], ["explain", "DL0310"]])
def test_what_starts_without_jax_and_the_passes(args: list[str]) -> None:
    code = (
        "import sys\nfrom difflang.cli import main\n"
        f"try:\n    main({args!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "late = {'jax', 'jaxlib', 'flax', 'scipy', 'difflang.passes.pipelines'}\n"
        "print(sorted(late & sys.modules.keys()), file=sys.stderr)"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, env=os.environ)
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "difflang", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("difflang, version") and not done.stderr
