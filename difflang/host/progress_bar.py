"""Progress bar of loops with rate and remaining time: on stderr if it is a terminal, and in a notebook."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
# Shows an object in several formats under a name, at first or in place of what it showed before under that name.
Display = Callable[[dict[str, str], str, bool], None]
DISPLAYS: list[Display] = []  # that of the notebook, if this process serves one
BAR_NAMES = (f"difflang-progress-{number}" for number in itertools.count())
INTERVAL = 0.1  # seconds between two updates in a notebook


def with_progress(items: Iterator[T], length: int) -> Iterator[T]:
    """The items one by one, with a progress bar if there is a notebook or a terminal."""
    if length and DISPLAYS:
        return notebook_bar(items, length, DISPLAYS[-1])
    return progress_bar(items, length) if length and sys.stderr.isatty() else items


def notebook_bar(items: Iterator[T], length: int, display: Display) -> Iterator[T]:
    name, begun, count = next(BAR_NAMES), time.perf_counter(), 0
    shown = begun
    display(bar_bundle(0, length, 0.0), name, False)
    try:
        for count, item in enumerate(items, 1):
            yield item
            now = time.perf_counter()
            if now - shown >= INTERVAL:
                shown = now
                display(bar_bundle(count, length, now - begun), name, True)
    finally:
        display(bar_bundle(count, length, time.perf_counter() - begun), name, True)


def bar_bundle(count: int, length: int, seconds: float) -> dict[str, str]:
    """A bar as text and as HTML."""
    text = f"{count}/{length}"
    if count and seconds:
        text += f"  {format_rate(count / seconds)}  {seconds:.0f} s"
        text += f", {seconds / count * (length - count):.0f} s left" if count < length else ""
    bar = f'<progress max="{length}" value="{count}" style="width: 40%"></progress> <code>{text}</code>'
    return {"text/plain": text, "text/html": bar}


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
