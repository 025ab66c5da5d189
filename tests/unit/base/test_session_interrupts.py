"""Ctrl-C in a session: what is done ends at once, and what there was stays whole."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from difflang.base import process_termination
from difflang.driver.interactive_session import InteractiveSession
from difflang.driver.run_program import file_access
from difflang.execution.engine import Engine
from difflang.host.values import format_value


@pytest.fixture
def heard() -> Generator[None]:
    """Interrupts are heard, as at a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


HEAVY = """
import signal, time
signal.raise_signal(signal.SIGINT)
time.sleep(0.2)
whole = True
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows wakes nothing that sleeps")
def test_a_session_is_interrupted_once_a_module_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: None
) -> None:
    """What was imported by half could never be imported again: jaxlib registers its types once in a process."""
    (tmp_path / "heavy.py").write_text(HEAVY)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt), process_termination.allow_interrupts():
            import heavy  # pyright: ignore[reportMissingImports]

            time.sleep(10)
        assert sys.modules["heavy"].whole and heavy.whole
        assert time.monotonic() - begun < 5
    finally:
        sys.modules.pop("heavy", None)


def test_who_ignores_interrupts_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with process_termination.allow_interrupts():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(os.name == "nt", reason="Windows wakes nothing that sleeps")
def test_what_python_forgets_comes_again(heard: None) -> None:
    """What is raised where the collector calls is printed and gone: a loop would go on for ever."""

    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    hook, begun = sys.unraisablehook, time.monotonic()
    with pytest.raises(KeyboardInterrupt), process_termination.allow_interrupts():
        Collected()
        time.sleep(10)
    assert time.monotonic() - begun < 5 and sys.unraisablehook is hook


def test_what_comes_too_late_is_no_matter_of_what_follows(heard: None) -> None:
    """An input that is pasted after another one was not meant."""

    @process_termination.atomic
    def whole() -> None:
        signal.raise_signal(signal.SIGINT)

    with process_termination.allow_interrupts():
        whole()
    with process_termination.allow_interrupts():
        time.sleep(3 * process_termination.RETRY_SECONDS)


SESSION = (
    "let x = 4.0",
    "var (a, b) = (1, 2)",
    """host fn inner(k: i32) {
        for x in 0..2 {
            let y = x + k
            (a, b) = (b, a)
        }
    }""",
    """host fn outer() -> i32 {
        let x = 1
        for k in 0..2 { if k >= 0 { inner(k + x) } }
        x
    }""",
    "outer()",
)


class Interrupting:
    """Interrupts once, at a step of those at which Python hears signals: a call of Python's, or after one of C's."""

    def __init__(self, step: int) -> None:
        self.left, self.done = step, False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.done or event not in ("call", "c_return"):
            return
        self.left -= 1
        if self.left <= 0:
            self.done = True
            process_termination.handle_sigint(signal.SIGINT, frame)


def test_a_session_goes_on_wherever_it_is_interrupted(monkeypatch: pytest.MonkeyPatch, heard: None) -> None:
    """Names stand for what they stood for before, also where blocks were left that had hidden them."""
    session = InteractiveSession(Engine("interpret"), file_access(None), 0, print, lambda _: None)
    for text in SESSION:
        session.run_input(text)

    def feed(seen: Interrupting) -> None:
        with process_termination.allow_interrupts():
            sys.setprofile(seen)
            try:
                session.run_input("outer()")
            finally:
                sys.setprofile(None)

    feed(never := Interrupting(10**9))
    steps = 10**9 - never.left
    assert steps > 1000
    interrupted = 0
    for step in range(1, steps, steps // 150):
        pressed = Interrupting(step)
        monkeypatch.setattr(
            process_termination, "retry_interrupt", lambda pressed=pressed: setattr(pressed, "done", False)
        )
        try:
            feed(pressed)
        except KeyboardInterrupt:
            interrupted += 1
        assert not session.runner.shadowed and not session.runner.blocks and session.runner.depth == 0
        assert "y" not in session.runner.values and "k" not in session.runner.values
        value = session.run_input("(x * x, a + b)")
        assert value is not None and format_value(value) == "(16.0, 3)"
        assert len(session.past) == len(session.inputs)
    assert interrupted > 100
