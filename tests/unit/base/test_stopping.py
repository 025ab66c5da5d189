"""What is left behind where a process ends in the middle of its work: nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from difflang.base import files, stopping


class Ended(BaseException):
    """The process would be gone."""


def test_no_file_is_begun_once_those_half_written_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that ends a process takes away what is half written; the program may go on for a moment beside it."""
    reading, writing = os.pipe()
    os.write(writing, bytes([signal.SIGINT]))

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(stopping.os, "_exit", end)
    monkeypatch.setattr(stopping, "GRACE", 0.0)
    with pytest.raises(Ended):
        stopping.wait_for_signal(reading)
    saving = threading.Thread(target=files.replace, args=(tmp_path / "out.npy", b"numbers"), daemon=True)
    try:
        saving.start()
        saving.join(0.3)
        assert saving.is_alive() and not list(tmp_path.iterdir())
    finally:
        stopping.BEGINNING.release()
        saving.join(10)
    assert [p.name for p in tmp_path.iterdir()] == ["out.npy"]


HEAVY = """
import signal, time
signal.raise_signal(signal.SIGINT)
time.sleep(0.2)
whole = True
"""


@pytest.mark.skipif(os.name == "nt", reason="a console of Windows ends a process by Ctrl-Break")
def test_a_session_is_interrupted_once_a_module_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported by half could never be imported again: jaxlib registers its types once in a process."""
    (tmp_path / "heavy.py").write_text(HEAVY)
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), stopping.interruptible():
            import heavy  # pyright: ignore[reportMissingImports]

            time.sleep(10)
        assert sys.modules["heavy"].whole and heavy.whole
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        sys.modules.pop("heavy", None)


def test_who_ignores_interrupts_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping.interruptible():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
