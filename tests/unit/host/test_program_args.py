"""What the command line tells a program: `arg("lr", default = 0.1)` and `-- --lr 0.2`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main

PROGRAM = """let lr = arg("lr", default = 0.1, help = "step size")
let batch_size: i64 = arg("batch_size", default = 32)
let name: str = arg("name", default = "run")
let quiet: bool = arg("quiet", default = false)
print(lr, batch_size, name, quiet)
"""


def call(folder: Path, text: str, *words: str) -> Result:
    file = folder / "program.dfl"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["run", "--engine=interpret", str(file), *(["--", *words] if words else [])])
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("", "0.1 32 run false"),
        ("--lr 0.25", "0.25 32 run false"),
        ("--lr=1e-3 --name=a=b", "0.001 32 a=b false"),
        ("--lr -2 --batch_size 7", "-2.0 7 run false"),
        ("--batch-size 9007199254740993 --quiet", "0.1 9007199254740993 run true"),
        ("--quiet --no-quiet=", ""),
        ("--no-quiet", "0.1 32 run false"),
        ("--quiet=true", "0.1 32 run true"),
    ],
)
def test_what_is_told(words: str, printed: str, tmp_path: Path) -> None:
    result = call(tmp_path, PROGRAM, *words.split())
    assert (result.exit_code, result.stdout) == ((0, printed + "\n") if printed else (2, "")), result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lrr 0.2", "did you mean `--lr`?"),
        ("--lr", "--lr needs a value"),
        ("--lr x", "`x` is not a valid f32"),
        ("--lr 1e99", "`1e99` is not a valid f32"),
        ("--lr 1e400", "`1e400` is not a valid f32"),
        ("--batch-size 1.5", "`1.5` is not a valid i64"),
        ("--batch-size 99999999999999999999", "is not a valid i64"),
        ("--lr 1 --lr 2", "given twice"),
        ("--quiet=yes", "`yes` is not a valid bool"),
        ("0.2", "no argument `0.2`"),
        ("--\x1b[31m 1", "no argument"),
    ],
)
def test_what_is_told_wrongly_ends_before_anything_runs(words: str, said: str, tmp_path: Path) -> None:
    result = call(tmp_path, 'print("began")\n' + PROGRAM, *words.split(" "))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error[DL1220]" in result.stderr and said in result.stderr
    assert "\x1b" not in result.stderr


def test_what_is_needed(tmp_path: Path) -> None:
    program = 'print("began")\nhost fn steps() -> i32 { arg("steps") }\nprint(steps())\n'
    result = call(tmp_path, program)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the program needs --steps" in result.stderr
    assert call(tmp_path, program, "--steps", "3").stdout == "began\n3\n"


def test_the_list_of_arguments(tmp_path: Path) -> None:
    result = call(tmp_path, PROGRAM + 'let steps: i32 = arg("steps")\n', "--help")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2:] == [
        "  --lr f32          step size [0.1]",
        "  --batch_size i64  [32]",
        '  --name str        ["run"]',
        "  --quiet bool      [false]",
        "  --steps i32       (needed)",
    ]
    assert call(tmp_path, "print(1)\n", "--help").stdout.endswith("takes no arguments.\n")


@pytest.mark.parametrize(
    "program",
    [
        'let x = arg("lr")\n',
        'let name = "lr"\nlet x: f32 = arg("{name}")\n',
        'let x: f32[3] = arg("lr")\n',
        'let x: c64 = arg("lr")\n',
        'let x: f32 = arg("learning rate")\n',
        'let x = arg("lr", 0.1)\n',
        'let x = arg("lr", defalt = 0.1)\n',
        "let x = arg(1j)\n",
    ],
)
def test_arguments_that_cannot_be(program: str, tmp_path: Path) -> None:
    result = call(tmp_path, program)
    assert result.exit_code == 1 and "error[DL0319]" in result.stderr, result.output


def test_an_argument_is_declared_in_one_way(tmp_path: Path) -> None:
    result = call(tmp_path, 'let a = arg("lr", default = 0.1)\nlet b: f64 = arg("lr", default = 0.1)\n')
    assert result.exit_code == 1 and "error[DL0210]" in result.stderr


def test_an_argument_is_a_size(tmp_path: Path) -> None:
    program = 'fn f(k: dim) -> f32 = sum(ones(k))\nlet n = arg("n", default = 2)\nprint(f(n))\n'
    assert call(tmp_path, program, "--n", "5").stdout == "5.0\n"
