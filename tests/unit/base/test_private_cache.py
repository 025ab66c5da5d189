"""The cache folder is used only where nobody else can write, and an entry only under its own key."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from difflang.base import crash_report, private_cache
from difflang.base.private_cache import UnsafeFolderError, private_subfolder, read_entry, write_entry
from difflang.cli import main

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a user's folders are private on Windows")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "difflang"


def test_folders_are_for_their_owner_only_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        made = private_subfolder("a", "b")
        write_entry(made / "c", "key", b"data")
    finally:
        os.umask(before)
    assert made == folder / "a" / "b"
    assert [p.stat().st_mode & 0o777 for p in (folder, folder / "a", made, made / "c")] == [0o700, 0o700, 0o700, 0o600]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UnsafeFolderError, match="other users can write to"):
        private_subfolder()


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(0o700)
    monkeypatch.setattr(private_cache.os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(UnsafeFolderError, match="belongs to another user"):
        private_subfolder()


def test_the_command_line_warns_once_of_a_folder_it_does_not_use(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "a.dfl").write_text("print(1.0)\n")
    result = CliRunner().invoke(main, ["check", str(tmp_path / "a.dfl")])
    assert result.exit_code == 0
    assert result.output.count("warning: the cache is not used") == 1
    assert not list(folder.iterdir())
    assert "! cache" in CliRunner().invoke(main, ["doctor"]).output


@pytest.mark.parametrize("wrong", ["other", "ke", "keyd", ""])
def test_an_entry_counts_under_its_own_key_only(tmp_path: Path, wrong: str) -> None:
    write_entry(tmp_path / "a", "key", b"data")
    assert read_entry(tmp_path / "a", "key") == b"data"
    assert read_entry(tmp_path / "a", wrong) is None


def test_a_damaged_entry_and_one_of_others_are_absent(tmp_path: Path) -> None:
    write_entry(tmp_path / "a", "key", b"data")
    good = (tmp_path / "a").read_bytes()
    for at in range(len(good)):
        (tmp_path / "a").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert read_entry(tmp_path / "a", "key") is None
        (tmp_path / "a").write_bytes(good[:at])
        assert read_entry(tmp_path / "a", "key") is None
    (tmp_path / "a").write_bytes(good)
    (tmp_path / "a").chmod(0o666)
    assert read_entry(tmp_path / "a", "key") is None


def test_a_crash_report_never_follows_a_link(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    shared, target = tmp_path / "tmp", tmp_path / "victim"
    shared.mkdir()
    target.write_text("precious")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    now = crash_report.time.strftime("crash-%Y%m%d-%H%M%S.txt")
    monkeypatch.setattr(crash_report.time, "strftime", lambda _: now)
    (shared / now).symlink_to(target)
    place = crash_report.write_report("text \udc80")
    assert place is not None and place.parent == shared and place.read_text() == "text \\udc80"
    assert place.stat().st_mode & 0o777 == 0o600
    assert target.read_text() == "precious"
