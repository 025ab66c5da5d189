"""`run --profile`: the clock of a run, and the table that comes of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.cli.diagnostic_formats import json_text
from difflang.cli.options_and_reports import write_file

if TYPE_CHECKING:
    from difflang.execution.line_profiler import LineProfile


@contextmanager
def profile_run(show: bool, out: Path | None) -> Generator[LineProfile | None, None, None]:
    """A clock if one is asked for; what it says is told afterwards, also of a run that failed. Errors: DL0710."""
    if not show and out is None:
        yield None
        return
    from difflang.execution.line_profiler import LineProfile

    clock = LineProfile()
    try:
        yield clock
    finally:
        clock.switch(clock.here)
        if show:
            click.echo(f"\n{clock}", err=True)
        if out is not None:
            write_file(out, json_text(clock.to_json()) + "\n")
