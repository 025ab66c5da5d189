"""Warnings on the command line: on stderr, with exit code 0; those that only the sizes of the run show, as it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from difflang.cli import main

PROGRAM = "print(grad(|x| floor(x))(1.5))\nprint(1)\n"
OF_THE_RUN = (
    'let x: f64[n] = read_npy("x.npy")\nfn f(x: f64[k]) -> f64 = sum(floor(x))\n'
    + "for _ in 0..2 { print(grad(f)(x)) }\n"
)


@pytest.mark.parametrize(("command", "shown"), [(("run", "--engine=interpret"), "0.0\n1\n"), (("check",), "")])
def test_a_warning_is_no_error(tmp_path: Path, command: tuple[str, ...], shown: str) -> None:
    file = tmp_path / "program.dfl"
    file.write_text(PROGRAM)
    result = CliRunner().invoke(main, [*command, str(file)])
    assert (result.exit_code, result.stdout) == (0, shown)
    assert result.stderr.count("warning[DL0409]") == 1


def test_what_only_the_run_shows_is_told_once(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2))
    file = tmp_path / "program.dfl"
    file.write_text(OF_THE_RUN)
    checked = CliRunner().invoke(main, ["check", str(file)])
    assert (checked.exit_code, checked.stderr) == (0, "")
    result = CliRunner().invoke(main, ["run", "--engine=interpret", str(file)])
    assert (result.exit_code, result.stdout) == (0, "[0.0, 0.0]\n[0.0, 0.0]\n")
    assert result.stderr.count("warning[DL0409]") == 1


@pytest.mark.parametrize("form", ["human", "concise", "json"])
def test_strict_makes_a_warning_an_error(tmp_path: Path, form: str) -> None:
    file = tmp_path / "program.dfl"
    file.write_text(PROGRAM)
    result = CliRunner().invoke(main, ["check", "--strict", "--output-format", form, str(file)])
    assert result.exit_code == 1
    assert "DL0409" in result.output and "error" in result.output
    assert "warning[" not in result.output and '"severity": "warning"' not in result.output
    file.write_text(PROGRAM.replace("floor(x)", "floor(stop(x))"))
    assert CliRunner().invoke(main, ["check", "--strict", str(file)]).exit_code == 0
