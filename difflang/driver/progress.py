"""Progress of host loops: a bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
QUIET = 10.0  # seconds between two lines where there is no terminal


def progress(items: Sequence[T]) -> Iterator[T]:
    """The items one by one."""
    if not items:
        return
    if sys.stderr.isatty():
        yield from bar(items)
    else:
        yield from lines(items)


def bar(items: Sequence[T]) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=len(items))
        for item in items:
            yield item
            shown.advance(task)


def lines(items: Sequence[T]) -> Iterator[T]:
    last = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= QUIET:
            last = now
            sys.stderr.write(f"{number} of {len(items)}\n")
