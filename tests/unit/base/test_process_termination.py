"""What is left behind where a process ends in the middle of its work: nothing."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from difflang.base import process_termination, source_files


class Ended(BaseException):
    """The process would be gone."""


def test_no_file_is_begun_once_those_half_written_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that ends a process takes away what is half written; the program may go on for a moment beside it."""
    reading, writing = os.pipe()
    os.write(writing, bytes([signal.SIGINT]))

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(process_termination.os, "_exit", end)
    monkeypatch.setattr(process_termination, "GRACE_SECONDS", 0.0)
    with pytest.raises(Ended):
        process_termination.wait_for_signal(reading)
    saving = threading.Thread(
        target=source_files.write_atomically, args=(tmp_path / "out.npy", b"numbers"), daemon=True
    )
    try:
        saving.start()
        saving.join(0.3)
        assert saving.is_alive() and not list(tmp_path.iterdir())
    finally:
        process_termination.FILE_START_LOCK.release()
        saving.join(10)
    assert [p.name for p in tmp_path.iterdir()] == ["out.npy"]
