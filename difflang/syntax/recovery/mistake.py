"""One row of the table of common syntax mistakes: an example, a message, and how to repair it."""

from __future__ import annotations

import re

from msgspec import Struct

DROP_TOKEN: tuple[str, ...] = ()


class CommonMistake(Struct, frozen=True):
    """One row of the table.

    `repairs` are token sequences to read in place of the marked text, tried in order. `take` is a pattern for that text
    if it is not just the token. `line_prefix` is a pattern for the line up to there, if that matters. `replacement` is
    the text of a fix, with `both` of the token before as well: a string, or pairs of a regular expression and its
    substitution; see `error_recovery`.
    """

    code: str
    example: str
    match_on: str  # attributes of ErrorContext that must agree
    message: str
    help: str = ""
    repairs: tuple[tuple[str, ...], ...] = ()
    take: str = ""
    only_if_repaired: bool = False
    previous_word: bool = False  # the token before is at fault
    replacement: str | tuple[tuple[str, str], ...] | None = None
    both: bool = False
    line_prefix: str = ""

    def matches_prefix(self, text: str, start: int) -> bool:
        """Whether the line before the mistake matches `line_prefix`."""
        return (
            not self.line_prefix
            or re.fullmatch(self.line_prefix, text[text.rfind("\n", 0, start) + 1 : start]) is not None
        )

    @property
    def extent_pattern(self) -> re.Pattern[str] | None:
        return re.compile(self.take, re.MULTILINE) if self.take else None
