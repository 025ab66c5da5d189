"""`PrintSink` writes what a running program prints: each text once, even if the program is rerun with more capacity."""

from __future__ import annotations

from collections.abc import Callable


class PrintSink:
    """Receives the printed texts of runs (a `TextSink`) and writes them.

    A run that exceeded a capacity is repeated with more and prints the same texts: see `rewind`. A write error is
    stored until it can be raised, since the caller may be a thread of XLA.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write
        self.met = 0  # texts received in the current run and completed ones
        self.printed = 0  # texts written
        self.error: BaseException | None = None

    def __call__(self, site: int, text: str) -> None:
        self.met += 1
        if self.met <= self.printed or self.error is not None:
            return
        self.printed = self.met
        try:
            self.write(text)
        except BaseException as error:  # noqa: BLE001  also Ctrl-C, wherever it arrives
            self.error = error

    def rewind(self, received: int) -> None:
        """Restart the count for a rerun, which began after `received` texts."""
        self.met = received

    def raise_error(self) -> None:
        """Raise the stored write error, if any."""
        error, self.error = self.error, None
        if error is not None:
            raise error
