"""The fenced blocks of a document, and what running one says. What they must say is tested in `tests/docs`.

A `dfl` block is a program: checked and run, as if it stood beside the examples. `dfl continue` goes on from the last
block that ran, `dfl name.dfl` is also a file that the programs and commands below it in its document find. A `python`
block runs (and `python continue` goes on), `python name.py` is also a module for the commands below it. A `sh` block is
a list of commands; those that begin with `difflang` run in process. The next block, if it is a `text` block, is what
the block above it prints, long numbers to one unit in their last digit; a block without one prints nothing, and nothing
is reported of it; of commands without one only their success counts.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from click.testing import CliRunner

from difflang.base.diagnostics import DifflangError, render
from difflang.base.source import Source
from difflang.cli import main
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access
from difflang.driver.run_program import run_program as run_checked
from difflang.execution.engine import Engine
from difflang.tools.testing.suite import same_output
from difflang.tools.verify_rules import verify_rules
from support.declared_ops import restored_ops

ROOT = Path(__file__).parents[2]
RUNNABLE = ("dfl", "python", "sh")
KNOWN = (*RUNNABLE, "text", "csv", "diff")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language and options, the line it begins on, what it must print."""

    document: str
    line: int
    language: str
    options: tuple[str, ...]
    text: str
    expected: str = ""
    before: str = ""  # the blocks that it continues
    below: int = 0  # the line on which the block of what it prints begins

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def file(self) -> str:
        """What the program is called in reports."""
        return next((o for o in self.options if o.endswith(".dfl")), "example.dfl")


def documents() -> list[Path]:
    """Every document whose programs run; pages of error codes and for contributors have tests of their own."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    elsewhere = (ROOT / "docs" / "errors", ROOT / "docs" / "contributing")
    return [d for d in found if not any(map(d.is_relative_to, elsewhere))]


def blocks(text: str, document: str) -> list[Block]:
    """The programs and tables of a document, with what they print. Errors: ValueError for what is no such block."""
    fences = list(fenced(text, document))
    found: list[Block] = []
    last: dict[str, str] = {}
    for i, block in enumerate(fences):
        if block.language not in (*RUNNABLE, "csv"):
            continue
        following = fences[i + 1] if i + 1 < len(fences) else None
        expected = following.text if following is not None and following.language == "text" else ""
        before = last.get(block.language, "") if "continue" in block.options else ""
        if "continue" in block.options and not before:
            raise ValueError(f"{block.name}: there is no block to continue")
        if "error[" not in expected:
            last[block.language] = before + block.text
        below = following.line if following is not None and following.language == "text" else 0
        found.append(replace(block, expected=expected.rstrip("\n"), before=before, below=below))
    return found


def fenced(text: str, document: str) -> list[Block]:
    found: list[Block] = []
    opened, info, lines = 0, [""], list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif opened:
            found.append(Block(document, opened, info[0], tuple(info[1:]), "".join(f"{part}\n" for part in lines)))
            opened = 0
        else:
            opened, info, lines = number, line.removeprefix("```").split() or [""], []
    if opened:
        raise ValueError(f"{document}:{opened}: this block never ends")
    return found


# ---- Running


def write_files(above: list[Block], folder: Path) -> Path:
    """The folder, with the files that a document has shown in some blocks."""
    for block in above:
        if block.language == "dfl" and block.file != "example.dfl":
            (folder / block.file).write_text(block.before + block.text, encoding="utf-8")
        if block.options and block.options[0].endswith((".py", ".csv")):
            (folder / block.options[0]).write_text(block.text, encoding="utf-8")
    return folder


def run_dfl(block: Block, folder: Path | None = None) -> str:
    """What a program prints and what is reported of it, beyond what the blocks before it print.

    `folder` has the files that it imports.
    """
    whole, earlier = run_program(block.before + block.text, block.file, folder=folder), ""
    if block.before:
        earlier = run_program(block.before, block.file, folder=folder)
        assert whole.startswith(earlier), f"{block.name} changes what the blocks above it print"
    return whole.removeprefix(earlier).rstrip("\n")


def run_program(text: str, name: str = "example.dfl", engine: str = "xla", folder: Path | None = None) -> str:
    """Everything that running a program shows: reports of the check, its output, the failure that ended it."""
    shown = io.StringIO()
    checked = check_program(Source(name, text), path=folder / name if folder is not None else None)
    verify_rules(checked, folder / name if folder is not None else None)
    if checked.diagnostics:
        print(render(checked.diagnostics), file=shown)
    if checked.errors:
        return shown.getvalue()
    with tempfile.TemporaryDirectory() as there:  # what it writes is written there, beside the data of the examples
        (Path(there) / "data").symlink_to(ROOT / "examples" / "data")
        for table in folder.glob("*.csv") if folder is not None else ():
            (Path(there) / table.name).write_bytes(table.read_bytes())
        access = file_access(Path(there) / name, (ROOT / "examples",))
        try:
            run_checked(checked, Engine(engine), access, 0, lambda line: print(line, file=shown))  # type: ignore[arg-type]
        except DifflangError as error:
            print(render(error.diagnostics), file=shown)
    return shown.getvalue()


NEXT = "---- the next block"


def run_chain(texts: Sequence[str], folder: Path) -> list[str]:
    """What each of some Python blocks prints, each of which goes on from the one before: all in one run."""
    whole = f"print({NEXT!r})\n".join(texts)
    return [shown.rstrip("\n") for shown in python_output(whole, folder).split(f"{NEXT}\n")]


def python_output(text: str, folder: Path) -> str:
    path = folder / "block.py"
    path.write_text(text, encoding="utf-8")
    shown = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(shown), restored_ops():
        runpy.run_path(str(path))
    return shown.getvalue()


def run_sh(block: Block, folder: Path) -> str:
    """What the `difflang` commands of a block show; the others are not run."""
    shown: list[str] = []
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["difflang"]:
            continue
        with contextlib.chdir(folder):
            result = CliRunner().invoke(main, words[1:])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        wrong = "error[" in block.expected or "Error:" in block.expected
        assert (result.exit_code != 0) == wrong, f"`{line}` ends with {result.exit_code}:\n{result.output}"
        shown.append(result.output)
    return "".join(shown).rstrip("\n") if block.below else ""


# ---- Accepting


def accepted(path: Path) -> str:
    """The document with every `text` block below a program saying what the program shows now."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    found = blocks(text, path.name)
    for block in reversed(found):
        if block.language == "sh" or not block.below:
            continue
        end = lines.index("```", block.below)
        with tempfile.TemporaryDirectory() as folder:
            place = write_files([b for b in found if b.line < block.line], Path(folder))
            shown = (
                run_dfl(block, place) if block.language == "dfl" else run_chain([block.before, block.text], place)[1]
            )
        if not same_output(block.expected, shown):
            lines[block.below : end] = shown.split("\n")
    return "\n".join(lines)
