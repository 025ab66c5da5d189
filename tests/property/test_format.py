"""Comments anywhere in a program, at any width: all are kept, nothing changes its meaning, and twice is as once."""

from __future__ import annotations

import random

import pytest

from difflang.base.source import Source
from difflang.syntax.formatter.format_program import format_program
from difflang.syntax.lexer import tokenize
from difflang.syntax.parse import parse
from support.snippets import FORMS

COMMENTS = (" # here\n", "\n  # alone\n", "\n\n# alone\n\n# again\n")
PARTS = [s for text in FORMS.values() for part in text.split("---") for s in part.strip("\n").split("\n\n")]
SNIPPETS = [part for part in PARTS if not parse(Source("a", part)).diagnostics]  # others go on in the next


def commented(text: str, draw: random.Random) -> str:
    """The text with comments between its tokens, wherever a line may end."""
    for _ in range(draw.randint(1, 4)):
        tokens = [t for t in tokenize(Source("a", text)) if t.kind != "COMMENT"]
        at = draw.choice(tokens).end if tokens else 0
        trial = text[:at] + draw.choice(COMMENTS) + text[at:]
        if not parse(Source("a", trial)).diagnostics:
            text = trial
    return text


@pytest.mark.parametrize("seed", range(150))
def test_comments_anywhere(seed: int) -> None:
    draw = random.Random(seed)
    text = commented(draw.choice(SNIPPETS), draw)
    width = draw.choice((100, 60, 30, 1))
    once = format_program(Source("a", text), width)
    assert format_program(Source("a", once), width) == once
    assert once.count("#") >= text.count("#")
