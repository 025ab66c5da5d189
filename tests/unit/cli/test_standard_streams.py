"""Output that cannot be written, and names that no file can have: a message and an exit code, never a crash report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from difflang.cli import main

LONG = "a" * 300
PROGRAM = "fn f(x: f64) -> f64 = x * x\nprint(f(3.0))\n"
COMMANDS = [
    "run p.dfl --engine interpret",
    "explain DL0310",
    "--help",
    "run --help",
    "emit --stage ir p.dfl:f",
    "fmt -",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "p.dfl").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ended(command: str, redirection: str) -> tuple[int, str]:
    """The exit code and the standard error of a process of its own."""
    line = f'"{sys.executable}" -m difflang {command} {redirection}'
    found = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    return found.returncode, found.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_an_error(command: str, folder: Path) -> None:
    code, said = ended(command, "<p.dfl >/dev/full")
    assert (code, said) == (1, "error: cannot write standard output: no space left on device\n")


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX closes streams")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_output_is_an_error(command: str, folder: Path) -> None:
    code, said = ended(command, "<p.dfl >&-")
    assert (code, said) == (1, "error: cannot write standard output: bad file descriptor\n")


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX closes streams")
@pytest.mark.parametrize(
    ("command", "redirection", "code"),
    [
        ("check p.dfl", ">&-", 0),
        ("check p.dfl", ">/dev/full", 0),
        ("check none.dfl", "2>&- >&-", 1),
        ("check none.dfl", "2>/dev/full", 1),
        ("fmt -", "<&- >/dev/null", 0),
        ("run p.dfl --engine interpret", "2>&- >&- <&-", 1),
    ],
)
def test_what_is_not_printed_needs_no_stream(command: str, redirection: str, code: int, folder: Path) -> None:
    assert ended(command, redirection)[0] == code


@pytest.mark.parametrize(
    "command",
    [
        *("run LONG", "run LONG:f", "check LONG", "fmt LONG", "derive LONG:f", "test LONG", "bench LONG", "doc LONG"),
        *("stubs LONG", "emit --stage ir LONG:f", "trace LONG:f", "viz LONG:f", "export LONG:f", "memory LONG:f"),
        *("info LONG", "check-grad LONG:f", "new LONG", "doc LONG/x", "check p.dfl:f --data LONG.npz", "repl LONG"),
        *("run p.dfl:f --arg x=@LONG.npz", "run p.dfl:f --arg x=@LONG:x", "check --path LONG p.dfl"),
        *("kernel run LONG", "run save.dfl --engine interpret", "run load.dfl --engine interpret", "check use.dfl"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".dfl"])
def test_a_name_that_no_file_can_have_is_an_error(command: str, suffix: str, folder: Path) -> None:
    (folder / "save.dfl").write_text(f'save("{LONG}.npz", [1.0])\n')
    (folder / "load.dfl").write_text(f'let x: f64[n] = load("{LONG}.npz")\n')
    (folder / "use.dfl").write_text(f'import "{LONG}"\n')
    result = CliRunner().invoke(main, command.replace("LONG", f"{LONG}{suffix}").split())
    assert result.exit_code in (1, 2), result.output
    assert "internal error" not in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [(("run", "-:f", "--set", "x=3.0"), "9.0\n"), (("trace", "-:f", "x=3"), "x * x"), (("derive", "-:f"), "fn d_f")],
)
def test_a_function_of_standard_input(words: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(main, words, input="fn f(x: f64) -> f64 = x * x\n")
    assert found.exit_code == 0 and said in found.output
