"""Progress bar of host loops with rate and remaining time, on stderr if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def with_progress(items: Iterator[T], length: int) -> Iterator[T]:
    """The items one by one, with a progress bar if there is a terminal."""
    return progress_bar(items, length) if length and sys.stderr.isatty() else items


def progress_bar(items: Iterator[T], length: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    rate = TextColumn("{task.fields[rate]}")
    columns = (BarColumn(), MofNCompleteColumn(), rate, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=length, rate="")
        for item in items:
            yield item
            speed = shown.tasks[task].speed
            shown.update(task, advance=1, rate=format_rate(speed) if speed else "")


def format_rate(speed: float) -> str:
    """`3.2 steps/s`, or the time per step if one takes longer than a second."""
    if speed < 1:
        return f"{1 / speed:.3g} s/step"
    return f"{speed:,.0f} steps/s" if speed >= 100 else f"{speed:.3g} steps/s"
