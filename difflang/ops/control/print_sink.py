"""Who writes what a running program prints: each text once, however often the program has to be begun again."""

from __future__ import annotations

from collections.abc import Callable


class PrintSink:
    """Told the texts of runs, as `Says` is, and writes them.

    A run that had too little room is done again with more and says the same once more: see `again`. What goes wrong in
    writing is kept until somebody can be told, since who tells may be a thread of XLA.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write
        self.met = 0  # how many texts it was told, but for those of runs that were done again
        self.printed = 0  # and how many of these it has written
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
        """The run that began when it had met so many texts is done once more."""
        self.met = received

    def raise_error(self) -> None:
        """Raise what went wrong in writing."""
        error, self.error = self.error, None
        if error is not None:
            raise error
