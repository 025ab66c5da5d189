"""`difflang fmt`: files, folders and standard input; what it writes, and when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main

WRONG, RIGHT = "let  x=1\n", "let x = 1\n"


def fmt(*args: object, input: str | None = None) -> Result:
    return CliRunner().invoke(main, ["fmt", *map(str, args)], input=input)


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / ".hidden").mkdir()
    paths = [tmp_path / "a.dfl", tmp_path / "below" / "b.dfl", tmp_path / ".hidden" / "c.dfl"]
    for path in paths:
        path.write_text(WRONG)
    result = fmt(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{paths[0]}\n{paths[1]}\n")
    assert [path.read_text() for path in paths] == [RIGHT, RIGHT, WRONG]
    assert fmt(tmp_path).output == ""


def test_check_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.dfl"
    path.write_text(WRONG)
    result = fmt("--check", path)
    assert (result.exit_code, result.stdout, path.read_text()) == (1, f"{path}\n", WRONG)
    path.write_text(RIGHT)
    assert fmt("--check", path).exit_code == 0


def test_diff_shows_what_would_change(tmp_path: Path) -> None:
    path = tmp_path / "a.dfl"
    path.write_text(WRONG)
    assert "-let  x=1\n+let x = 1\n" in fmt("--diff", path).stdout
    assert path.read_text() == WRONG


def test_standard_input() -> None:
    assert fmt("-", input=WRONG).stdout == RIGHT
    assert fmt("--check", "-", input=WRONG).exit_code == 1
    assert fmt("--check", "-", input=RIGHT).exit_code == 0


def test_returns_and_a_byte_order_mark_go(tmp_path: Path) -> None:
    path = tmp_path / "a.dfl"
    path.write_bytes(b"\xef\xbb\xbflet x = 1\r\n")
    assert fmt(path).exit_code == 0
    assert path.read_bytes() == RIGHT.encode()


def test_a_file_with_mistakes_is_left_alone_and_the_others_are_not(tmp_path: Path) -> None:
    broken, fine = tmp_path / "a.dfl", tmp_path / "b.dfl"
    broken.write_text("let x = (\n")
    fine.write_text(WRONG)
    result = fmt(broken, fine, tmp_path / "missing.dfl")
    assert result.exit_code == 1
    assert "error[DL01" in result.stderr and "error[DL0701]" in result.stderr
    assert (broken.read_text(), fine.read_text()) == ("let x = (\n", RIGHT)


def test_rights_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "a.dfl", tmp_path / "link.dfl"
    path.write_text(WRONG)
    path.chmod(0o640)
    link.symlink_to(path)
    assert fmt(link).exit_code == 0
    assert (path.read_text(), path.stat().st_mode & 0o777, link.is_symlink()) == (RIGHT, 0o640, True)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.dfl"
    path.write_text(WRONG)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    result = fmt(path)
    assert result.exit_code == 1
    assert "error[DL0710]" in result.stderr and "no space left" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["a.dfl"]
    assert path.read_text() == WRONG


@pytest.mark.parametrize("command", [["fmt"], ["fmt", "--check"], ["fmt", "--diff"], ["check"], ["doc"], ["stubs"]])
def test_a_folder_without_programs_is_an_error(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no program")
    result = CliRunner().invoke(main, [*command, str(tmp_path)])
    assert result.exit_code == 1
    assert f"error[DL0701]: there is no program in `{tmp_path}`" in result.output


def test_commands_without_arguments_leave_standard_input_alone() -> None:
    """So that a script that a shell reads from a pipe goes on after them."""
    code = (
        "import os\nfrom difflang.cli import main\n"
        "for command in ('fmt', 'check', 'doc', 'stubs', 'run', 'derive', 'explain'):\n"
        "    try:\n        main([command], standalone_mode=False)\n    except (Exception, SystemExit):\n        pass\n"
        "print('left:', os.read(0, 20).decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input="echo after", capture_output=True, text=True, check=True)
    assert done.stdout.endswith("left: echo after\n")
