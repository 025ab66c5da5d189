"""Progress of host loops: a bar on a terminal, and silence elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from difflang.host.progress_bar import format_rate, with_progress
from support.language import ran


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_said_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("for i in progress(0..3) { print(i) }\n")[1] == ["0", "1", "2"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("count", [0, 1, 40])
def test_every_item_goes_through_the_bar(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert list(with_progress(iter(range(count)), count)) == list(range(count))
    assert (f"{count}/{count}" in terminal.getvalue()) is (count > 0)


def test_a_loop_that_is_left_ends_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert ran("for i in progress(0..9) {\n  if i == 2 { break }\n  print(i)\n}\nprint(9)\n")[1] == ["0", "1", "9"]


def test_the_pace() -> None:
    assert (format_rate(1234.5), format_rate(1.0), format_rate(0.5)) == ("1,234 steps/s", "1 steps/s", "2 s/step")
