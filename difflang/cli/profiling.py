"""`run --profile`: the clock of a run, and the table that comes of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.cli.output import data_text
from difflang.cli.shared import save

if TYPE_CHECKING:
    from difflang.driver.profile import Profile


@contextmanager
def profiled(shown: bool, kept: Path | None) -> Generator[Profile | None, None, None]:
    """A clock if one is asked for; what it says is told afterwards, also of a run that failed. Errors: DL0710."""
    if not shown and kept is None:
        yield None
        return
    from difflang.driver.profile import Profile

    clock = Profile()
    try:
        yield clock
    finally:
        clock.turn(clock.here)
        if shown:
            click.echo(f"\n{clock}", err=True)
        if kept is not None:
            save(kept, data_text(clock.to_json()) + "\n")
