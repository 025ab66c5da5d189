"""Every code a diagnostic can have, with its title. A code never changes its meaning; one that is gone stays unused.

How a code comes about, and the way out, is told by its page, `docs/errors/DLnnnn.md`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FAMILIES = {
    "01": "syntax",
    "02": "names",
    "03": "types and shapes",
    "04": "differentiation",
    "05": "control flow",
    "06": "devices and sharding",
    "07": "modules, files and data",
    "08": "not yet",
    "09": "failures while running",
    "10": "limits and memory",
    "11": "rules and linearity",
    "12": "Python and artifacts",
}

CODES: dict[str, str] = {
    # ---- 01: syntax
    "DL0101": "something that cannot stand here",
    "DL0102": "not a text file",
    "DL0103": "a bracket that is never closed",
    "DL0104": "a closing bracket without its partner",
    "DL0105": "a string that is never closed",
    "DL0106": "a reserved word used as a name",
    "DL0107": "a character that means nothing",
    "DL0108": "a word of another language",
    "DL0109": "an operator of another language",
    "DL0110": "a semicolon",
    "DL0111": "`=` where a comparison is meant",
    "DL0112": "an assignment to what is no place",
    "DL0113": "a sign `+` before a value",
    "DL0114": "a block without braces",
    "DL0115": "single quotes around text",
    "DL0116": "a number that is not spelled like one",
    "DL0117": "an unknown escape in a string",
    "DL0118": "a brace in a string",
    "DL0119": "a number that is too long",
    "DL0120": "a tuple of one",
    "DL0121": "an assignment inside an expression",
    "DL0122": "two statements on one line",
    "DL0123": "a line that begins with an operator",
    "DL0124": "a parameter or type spelled another way",
    "DL0125": "a record made with braces",
    "DL0126": "a comprehension spelled another way",
    "DL0127": "an index range spelled with a colon",
    "DL0128": "a comment of another language",
    "DL0129": "something is missing",
    "DL0130": "`float` after the first line",
    "DL0131": "a declaration without members",
    "DL0132": "a lambda without parentheses",
    "DL0133": "something that cannot be public or have attributes",
    # ---- 10: limits and memory
    "DL1001": "too many mistakes to go on",
    "DL1010": "more equations than the back end takes at once",
    "DL1011": "the back end gave up",
    # ---- 12: Python and artifacts
    "DL1201": "an argument of another element type",
    "DL1202": "an argument of another shape",
    "DL1203": "a mistake in the text of a graph",
    "DL1204": "a graph in JSON form that is damaged",
    "DL1205": "a number that does not fit its type",
    "DL1206": "an argument that is not an array",
    "DL1207": "arguments that a function does not take",
    "DL1208": "a random function without a key",
    "DL1209": "a value that only running the file gives",
    "DL1210": "a type of an argument that is not one",
}


def title(code: str) -> str:
    """What a code stands for.

    Errors: KeyError for a code that is not registered.
    """
    return CODES[code]


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that a person who typed `word` most likely meant; None if nothing is close."""
    known = list(dict.fromkeys(candidates))
    by_case = {candidate.casefold(): candidate for candidate in reversed(known)}
    if word.casefold() in by_case:
        return by_case[word.casefold()]
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.6 if len(word) > 2 else 0.5)
    return found[0] if found else None
