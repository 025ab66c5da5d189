"""Suggested edits for known syntax mistakes: applies the replacements of `common_mistakes` to one text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from difflang.base.diagnostics import Edit, Fix
from difflang.base.source import Source, Span

if TYPE_CHECKING:
    from difflang.syntax.recovery.common_mistakes import CommonMistake
    from difflang.syntax.recovery.error_context import ErrorContext


def suggested_fixes(
    mistake: CommonMistake, situation: ErrorContext, source: Source, start: int, stop: int
) -> tuple[Fix, ...]:
    """The fixes of a mistake marked from `start` to `stop`, best first."""
    if mistake.replacement is None:
        return ()
    if mistake.both:
        start = situation.before_start
    if isinstance(mistake.replacement, str):
        return (replacement_fix(source, start, stop, mistake.replacement),)
    found: list[Fix] = []
    for pattern, template in mistake.replacement:
        if there := compile_pattern(pattern).match(source.text, start):
            found.append(replacement_fix(source, there.start(), there.end(), there.expand(template)))
    return tuple(found)


def replacement_fix(source: Source, start: int, stop: int, written: str) -> Fix:
    """A fix that replaces a range, with spaces added where words would join."""
    text = source.text
    before, after = text[start - 1 : start], text[stop : stop + 1]
    shown = written.strip()
    said = f"write `{shown}`" if shown else "type a space"
    if written.startswith("\n"):
        said = "begin a new line" + (f": `{shown}`" if shown else "")
        written = indented_newline(text, start) + written[1:]
    elif shown:
        left = written[0] == " " and not before.isspace()
        right = written[-1] == " " and not after.isspace()
        written = (
            " " * (left or would_join_words(before, shown[0]))
            + shown
            + " " * (right or would_join_words(shown[-1], after))
        )
    elif not written:
        said = f"leave `{text[start:stop].strip()}` out"
        if before.isspace():
            stop += len(text[stop:]) - len(text[stop:].lstrip(" \t"))
    return Fix(said, (Edit(Span(source, start, stop), written),))


def indented_newline(text: str, at: int) -> str:
    """A newline in the text's own convention, with the indentation of this line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return ("\r\n" if "\r\n" in text else "\n") + line[: len(line) - len(line.lstrip())]


def would_join_words(a: str, b: str) -> bool:
    """Whether two adjacent characters are read as one word."""
    return (a.isalnum() or a == "_") and (b.isalnum() or b == "_")


@lru_cache(maxsize=128)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)
