"""Files are written as a whole or not at all, and a process that is killed leaves nothing for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from difflang.base import source_files
from difflang.base.source_files import write_atomically

KILLED = """
import sys, time
from pathlib import Path
from difflang.base import source_files
source_files.os.fsync = lambda _: (print("begun", flush=True), time.sleep(100))
source_files.write_atomically(Path(sys.argv[1]), b"half")
"""


@pytest.fixture(autouse=True)
def no_folder_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "SWEPT_FOLDERS", set())


def start_writing(path: Path) -> subprocess.Popen[str]:
    """A process that has written a file but not renamed it."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_what_a_killed_process_left_is_removed_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = start_writing(tmp_path / "a.npz"), start_writing(tmp_path / "b.npz")
    try:
        assert len(list(tmp_path.iterdir())) == 2
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        write_atomically(tmp_path / "c.npz", b"whole")
        # A file that a living process is writing stays.
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        alive.kill()
        alive.wait()
    monkeypatch.setattr(source_files, "SWEPT_FOLDERS", set())
    write_atomically(tmp_path / "d.npz", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.npz", "d.npz"]


def test_a_folder_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a program that saves many files would take quadratic time."""
    found: list[str] = []
    real = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: found.append(pattern) or real(self, pattern))
    for k in range(5):
        write_atomically(tmp_path / str(k), b"")
    assert len(found) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows opens no folders")
def test_the_folder_is_on_the_disk_after_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), (tmp_path / "a").exists()))
        real(handle)

    if not Path("/proc/self/fd").exists():
        pytest.skip("handles have no names here")
    monkeypatch.setattr(source_files.os, "fsync", fsync)
    write_atomically(tmp_path / "a", b"x")
    (file, before), (folder, after) = synced
    assert Path(file).parent == tmp_path and not before
    assert (folder, after) == (str(tmp_path), True)


def test_the_longest_name_that_the_system_allows_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 255)
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"
    with pytest.raises(OSError, match="name too long"):
        write_atomically(tmp_path / ("a" * 256), b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["a" * 255]


def test_permissions_are_those_of_the_old_file_or_of_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "old").touch(0o640)
    (tmp_path / "ordinary").touch()
    for name in ("old", "new"):
        write_atomically(tmp_path / name, b"x")
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_a_file_that_another_process_is_about_to_remove_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sweeper(set[str]):
        """Locks the first file before its owner does, and removes it a little later."""

        def add(self, name: str) -> None:
            if self:
                return
            super().add(name)
            file = Path(name).open("r+b")  # noqa: SIM115 - closed by the timer
            assert source_files.lock_file(file)
            threading.Timer(0.2, lambda: (Path(name).unlink(missing_ok=True), file.close())).start()

    monkeypatch.setattr(source_files, "PARTIAL_FILES", Sweeper())
    monkeypatch.setattr(source_files.os, "fsync", lambda _: time.sleep(0.4))
    source_files.write_atomically(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_saves_beside_each_other_all_arrive(tmp_path: Path) -> None:
    """Processes that start in one folder at the same time sweep it while others begin their files."""
    code = "import sys\nfrom pathlib import Path\nfrom difflang.base.source_files import *\n" + (
        "[(SWEPT_FOLDERS.clear(), write_atomically(Path(sys.argv[1], f'{sys.argv[2]}-{k}'), b'x')) for k in range(60)]"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 180
