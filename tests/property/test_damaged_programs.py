"""Programs with tokens lost, doubled, swapped or replaced are checked: reports, never an exception, never a hang.

`DIFFLANG_FUZZ` says how many, `DIFFLANG_SEED` which.
"""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import pytest

from difflang.base.codes import CODES
from difflang.base.diagnostics import render
from difflang.base.source import Source
from difflang.driver import program
from support.programs import programs

COUNT = int(os.environ.get("DIFFLANG_FUZZ", "300"))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.dfl"))] + list(programs().values())


def damaged(rng: random.Random, text: str) -> str:
    """A text with one token or two changed."""
    tokens = TOKEN.findall(text)
    for _ in range(rng.randint(1, 2)):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(4):
            case 0:
                tokens[i] = ""
            case 1:
                tokens.insert(i, tokens[i])
            case 2:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case _:
                tokens[i] = tokens[j]
    return "".join(tokens)


@pytest.mark.parametrize("part", range(10))
def test_damaged_programs_are_reported_or_right(part: int) -> None:
    rng = random.Random(f"{os.environ.get('DIFFLANG_SEED', '0')}/{part}")
    sources = texts()
    for _ in range(COUNT // 10):
        text = damaged(rng, rng.choice(sources))
        start = time.monotonic()
        found = program.check(Source("damaged.dfl", text)).diagnostics
        assert time.monotonic() - start < 20, text
        assert {d.code for d in found} <= CODES.keys()
        assert len(render(found).split("\n\n")) >= len(found)
