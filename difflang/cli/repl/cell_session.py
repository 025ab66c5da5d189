"""A session that runs cells, for front ends that show HTML and pictures. It is independent of any front end."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import field

from difflang.base.process_termination import allow_interrupts
from difflang.cli.repl.session import CompilerLoader, ReplSession, run_command
from difflang.syntax.repl_input import is_command, split_inputs

MimeBundle = dict[str, str]  # one object in several formats, by MIME type
PICTURE_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


class CellSession(ReplSession, eq=False, kw_only=True):
    """A session of cells. `publish` displays an object in several formats."""

    loader: CompilerLoader = field(default_factory=lambda: CompilerLoader("xla", None, 0, "f32", (), echo_line))
    terminal: bool = False
    publish: Callable[[MimeBundle], None] = print

    def run_cell(self, text: str, name: str, line: int = 1) -> bool:
        """Run a cell that begins on that line of `name`, its name in reports; False if it ends the session.

        A cell with commands runs input by input, any other as a whole. Errors: DifflangError.
        """
        try:
            with allow_interrupts():
                return self.run_inputs(text, name, line)
        finally:
            self.show_pictures()

    def run_inputs(self, text: str, name: str, line: int) -> bool:
        for part, number in cell_inputs(text):
            if is_command(part):
                if not run_command(self, part.strip()):
                    return False
            elif part.strip():
                # Empty lines above the text keep the line numbers of the cell.
                self.run_text("\n" * (line + number - 1) + part, name)
        return True

    def show_report(self, found: object) -> None:
        """Show a report, as an HTML table if possible."""
        as_html = getattr(found, "_repr_html_", None)
        if as_html is None:
            self.print_text(str(found))
        else:
            self.publish({"text/plain": str(found), "text/html": as_html()})

    def show_pictures(self) -> None:
        """Show the pictures drawn since the last call, each in its current state."""
        if self.interactive is not None:
            drawn = self.interactive.runner.pictures
            # A file that was drawn several times is shown once.
            for path in dict.fromkeys(drawn):
                self.publish(picture_bundle(path))
            drawn.clear()


def echo_line(text: str, *, err: bool = False) -> None:
    """Print a line to `sys.stdout` or `sys.stderr`, which front ends replace with their own streams."""
    print(text, file=sys.stderr if err else sys.stdout)


def cell_inputs(text: str) -> Iterator[tuple[str, int]]:
    """The inputs of a cell, each with the number of lines above it: a single one unless some lines are commands."""
    if not any(map(is_command, text.split("\n"))):
        yield text, 0
        return
    end = 0
    for each in split_inputs(text.split("\n")):
        start = text.index(each, end)
        end = start + len(each)
        yield each, text.count("\n", 0, start)


def picture_bundle(path: Path) -> MimeBundle:
    """A picture for a front end, with its name as plain text."""
    kind, plain = PICTURE_TYPES[path.suffix], {"text/plain": f"<{path.name}>"}
    try:
        data = path.read_bytes()
    except OSError:  # deleted in the meantime
        return plain
    return {kind: data.decode() if path.suffix == ".svg" else base64.b64encode(data).decode(), **plain}
