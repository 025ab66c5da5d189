"""How variables change at the end of a step: at once where they read one another, by `+=` where that says it."""

from __future__ import annotations

import re
from collections.abc import Sequence

IDENTIFIER = re.compile(r"[^\W\d]\w*")
LOOSE_OPERATORS = re.compile(r" [-+] |[<>=]| and | or ")  # what binds no tighter than a sum


def assignment_statements(variables: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The assignments. Those that read one another's old values change at once."""
    pairs = [(v, e) for v, e in zip(variables, texts, strict=True) if v != e]
    for i, (variable, _) in enumerate(pairs):
        if any(variable in IDENTIFIER.findall(e) for _, e in pairs[i + 1 :]):
            return [f"({', '.join(v for v, _ in pairs)}) = ({', '.join(e for _, e in pairs)})"]
    return [compound_assignment(v, e) for v, e in pairs]


def compound_assignment(variable: str, text: str) -> str:
    """`x = x + e` as `x += e`."""
    for op in ("+", "-"):
        first, sign, rest = text.partition(f" {op} ")
        if sign and first == variable and not LOOSE_OPERATORS.search(strip_brackets(rest)):
            return f"{variable} {op}= {rest}"
    return f"{variable} = {text}"


def strip_brackets(text: str) -> str:
    """A text without what stands in brackets."""
    depth, found = 0, ""
    for c in text:
        depth -= c in ")]}"
        if not depth:
            found += c
        depth += c in "([{"
    return found
