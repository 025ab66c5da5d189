"""A shell of IPython in this process, and what cells show in it."""

from __future__ import annotations

import atexit
import gc
import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Shown:
    """What came of a cell: what it printed and displayed, in order of their kind, and the error that ended it."""

    text: str
    traceback: str
    bundles: list[dict[str, str]]
    error: BaseException | None

    @property
    def plain(self) -> str:
        """All of it in a terminal, without the traceback."""
        return "\n".join(filter(None, [self.text.rstrip("\n"), *[b["text/plain"] for b in self.bundles]]))


class Shell:
    """IPython without a history of its own on this machine."""

    def __init__(self, folder: Path) -> None:
        ipython = pytest.importorskip("IPython.core.interactiveshell")
        config = pytest.importorskip("traitlets.config").Config()
        config.HistoryManager.enabled = False
        self.shell: Any = ipython.InteractiveShell(config=config, ipython_dir=str(folder), colors="nocolor")
        self.shell.builtin_trap.activate()  # `get_ipython` in cells
        self.names: dict[str, Any] = self.shell.user_ns

    def run(self, cell: str) -> Shown:
        from IPython.core.displaypub import CapturingDisplayPublisher

        self.shell.display_pub = publisher = CapturingDisplayPublisher()
        with redirect_stdout(io.StringIO()) as captured:
            result = self.shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        text, _, traceback = captured.getvalue().partition("-" * 75)
        return Shown(text, traceback, [output["data"] for output in publisher.outputs], error)

    def close(self) -> None:
        self.shell.builtin_trap.deactivate()
        atexit.unregister(self.shell.atexit_operations)
        gc.freeze()  # IPython collects garbage now, which need not look at what other tests left: seconds
        self.shell.atexit_operations()
