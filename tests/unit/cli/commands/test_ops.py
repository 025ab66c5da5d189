"""`difflang ops` and `--plugin`: pages, laws, modules that are not there or do not import."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.graph import ops as op_pages
from difflang.ir.op import OPS

MODULE = """import numpy as np
from difflang import graph as dg

dg.op(
    "cube", elementwise=True, reference=lambda x: x**3, lower=lambda x: x**3, doc="The third power. Kinks: none.",
    jvp=lambda b, dx, y, x: dx * x * x * FACTOR,
)
"""
PROGRAM = "extern op cube(x: f64) -> f64\nprint(cube(2.0), grad(cube)(2.0))\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cubes.py").write_text(MODULE.replace("FACTOR", "3.0"))
    (tmp_path / "wrong.py").write_text(MODULE.replace("FACTOR", "2.0"))
    (tmp_path / "a.dfl").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_every_op_has_a_line_and_a_page() -> None:
    lines = run("ops").output.splitlines()
    assert len(lines) == len(OPS) and all(len(line) <= 120 for line in lines)
    pages = json.loads(run("ops", "--json").output)
    assert [p["name"] for p in pages] == list(OPS) and all(p["doc"] and p["derivative"] for p in pages)
    assert next(p for p in op_pages() if p.name == "iota").summary.startswith("0, 1, 2, ... along")
    page = run("ops", "dot_general", "cond").output
    assert "linear in each of x, y, with a transpose" in page and "by rules of its own" in page


def test_ops_of_a_plugin(folder: Path) -> None:
    assert run("ops", "--plugin", "cubes").output.endswith("\n\ndeclared in cubes:\n  cube  The third power\n")
    assert "extern op cube[T: float](x: T[..s]) -> T[..s]" in run("ops", "cube", "--plugin", "cubes").output


def test_a_program_with_a_plugin(folder: Path) -> None:
    done = run("run", "a.dfl", "--plugin", "cubes")
    assert done.output == "8.0 12.0\n", done.output


def test_a_program_without_its_plugin(folder: Path) -> None:
    missing = run("run", "a.dfl")
    assert missing.exit_code == 1 and "DL1272" in missing.output and run("check", "a.dfl").exit_code == 0


def test_laws_of_a_plugin(folder: Path) -> None:
    right = run("ops", "--check", "--plugin", "cubes")
    assert right.exit_code == 0 and "jvp: holds for 4 calls" in right.output


def test_laws_that_are_broken(folder: Path) -> None:
    wrong = run("ops", "cube", "--check", "--plugin", "wrong")
    assert wrong.exit_code == 1 and "jvp: broken" in wrong.output


def test_laws_of_nothing() -> None:
    assert "name the ops to check" in run("ops", "--check").output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no module `mine`"),
        ("import nothing_of_this_name", "`mine` needs the module `nothing_of_this_name`"),
        ("raise ModuleNotFoundError('no driver')", "`mine` raised ModuleNotFoundError('no driver')"),
        ("x = '\0'", "`mine` raised SyntaxError: source code string cannot contain null bytes\n"),
        ("1 / 0", "`mine` raised ZeroDivisionError"),
        ("x = (", "`mine` raised SyntaxError: '(' was never closed (FOLDER/mine.py:1)"),
        ("import json\njson.loads('')", "(FOLDER/mine.py:2)"),
        (
            "from difflang import graph\ngraph.op('add', reference=abs, lower=abs, doc='?')",
            "raised at FOLDER/mine.py:2",
        ),
    ],
)
def test_a_plugin_that_cannot_be_imported(folder: Path, text: str | None, words: str) -> None:
    if text is not None:
        (folder / "mine.py").write_text(text)
    done = run("ops", "--plugin", "mine")
    assert done.exit_code in (1, 2) and words.replace("FOLDER", str(folder)) in done.output, done.output


@pytest.mark.parametrize("name", ["cubes.py", "./cubes", ".cubes", ""])
def test_a_plugin_is_named_as_a_module(folder: Path, name: str) -> None:
    assert "is no name of a module" in run("ops", "--plugin", name).output


def test_laws_of_an_op_without_samples() -> None:
    done = run("ops", "--check", "loop")
    assert done.exit_code == 2 and "the op `loop` has no samples" in done.output


def test_an_op_that_is_misspelt() -> None:
    assert "Did you mean 'tanh'?" in run("ops", "tahn").output
