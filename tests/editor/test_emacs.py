"""Emacs agrees with our own parser on colours, with the formatter on indentation, and its mode compiles cleanly."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.highlight import PROGRAMS, classes, differences, holes

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "editor" / "emacs"
QUICK = ("corpus", "logistic", "ode", "prelude")  # the others are marked slow
EVERY = [pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow, id=path.stem) for path in PROGRAMS]
FACES = {
    "": "",
    "font-lock-builtin-face": "builtin",
    "font-lock-comment-delimiter-face": "comment",
    "font-lock-comment-face": "comment",
    "font-lock-constant-face": "literal",
    "font-lock-doc-face": "doc",
    "font-lock-escape-face": "escape",
    "font-lock-function-call-face": "builtin",
    "font-lock-function-name-face": "declared",
    "font-lock-keyword-face": "keyword",
    "font-lock-number-face": "number",
    "font-lock-operator-face": "operator",
    "font-lock-preprocessor-face": "attribute",
    "font-lock-string-face": "string",
    "font-lock-type-face": "dtype",
    "font-lock-variable-name-face": "hole",
}
pytestmark = pytest.mark.skipif(
    shutil.which("emacs") is None, reason="no emacs on this machine: `apt-get install emacs-nox`"
)


def emacs(*args: str | Path) -> str:
    """What an Emacs without a terminal and without the user's settings says."""
    command = ["emacs", "--quick", "--batch", "-L", str(FOLDER), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("path", EVERY)
def test_it_agrees_with_our_own_parser(path: Path, tmp_path: Path) -> None:
    """What a string holds in braces has one colour here."""
    text = path.read_text(encoding="utf-8")
    emacs("-l", HERE / "faces.el", path, tmp_path / "faces")
    mode, *found = (tmp_path / "faces").read_text(encoding="utf-8").split("\n")
    assert mode == "difflang-mode"
    want = ["hole" if hole else kind for hole, kind in zip(holes(text), classes(text), strict=True)]
    assert differences(text, [FACES[face] for face in found], want) == []


def test_it_indents_as_the_formatter_does(tmp_path: Path) -> None:
    text = (HERE.parents[1] / "stdlib" / "prelude.dfl").read_text(encoding="utf-8")
    file = tmp_path / "program.dfl"
    file.write_text("\n".join(line.strip() for line in text.split("\n")), encoding="utf-8")
    steps = "(progn (indent-region (point-min) (point-max)) (save-buffer))"
    emacs("-l", "difflang-mode", file, "--eval", steps)
    assert file.read_text(encoding="utf-8") == text


def test_it_compiles_without_warnings(tmp_path: Path) -> None:
    copy = shutil.copy(FOLDER / "difflang-mode.el", tmp_path)
    assert emacs("--eval", "(setq byte-compile-error-on-warn t)", "-f", "batch-byte-compile", copy) == ""


def test_eglot_knows_the_language_server() -> None:
    """An Emacs that has no eglot is given its list and told that it is there. The program is a command line."""
    program = """(progn (require 'difflang-mode)
      (unless (require 'eglot nil t)
        (setq eglot-server-programs nil)
        (provide 'eglot))
      (dolist (difflang-program '("difflang" "nice -n 19 difflang"))
        (message "server: %s" (funcall (cdr (assoc 'difflang-mode eglot-server-programs))))))"""
    said = emacs("--eval", program)
    assert "server: (difflang lsp)" in said and "server: (nice -n 19 difflang lsp)" in said
