"""What a mistake that people make looks like, and what is said of it."""

from __future__ import annotations

import re

from msgspec import Struct


class CommonMistake(Struct, frozen=True):
    """`mends`: what the taken text may be read as, tried in order. `take`: that text, if not just the token. `after`:
    what the line must be up to there, if that matters.

    `writes`: what a person will have meant to write in its place, `both`: in place of the token before too. Either a
    text, or pairs of what stands there and what is written for it, as `re` has them; see `repairs`.
    """

    code: str
    example: str
    match_on: str  # attributes of Situation that must agree
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
        """Whether the line before what is at fault is one that this is a mistake in."""
        return (
            not self.line_prefix
            or re.fullmatch(self.line_prefix, text[text.rfind("\n", 0, start) + 1 : start]) is not None
        )

    @property
    def extent_pattern(self) -> re.Pattern[str] | None:
        return re.compile(self.take, re.MULTILINE) if self.take else None


DROP_TOKEN: tuple[str, ...] = ()
