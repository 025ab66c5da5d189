"""Programs with bytes, tokens or parts of their tree changed are checked: reports, never an exception, never a hang.

`DIFFLANG_FUZZ` says how many, `DIFFLANG_SEED` which.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from difflang.base import source_files
from difflang.base.diagnostics import Diagnostic, DifflangError, render, to_json
from difflang.base.error_codes import CODE_TITLES
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.tree_queries import all_nodes
from support.nightly import by_day
from support.programs import programs

COUNT = int(os.environ.get("DIFFLANG_FUZZ") or by_day(600, 1200))
PARTS = 4  # of each kind of damage
ROOT = Path(__file__).resolve().parents[2]
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
BLOCK = re.compile(r"^```dfl.*\n((?:.*\n)*?)```$", re.MULTILINE)
SECONDS = 2.0  # of this thread, for one program
BYTES = 512 << 20  # beyond what the process had before, for all of a test


@cache
def sources() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Short programs, right and wrong ones, and whole examples."""
    pages = [*(ROOT / "docs" / "errors").glob("*.md"), ROOT / "docs" / "language.md"]
    blocks = [text for path in sorted(pages) for text in BLOCK.findall(path.read_text(encoding="utf-8"))]
    golden = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "errors").rglob("*.dfl"))]
    short = [text for text in (*blocks, *golden, *programs().values()) if 1 < len(text) < 2_000]
    return tuple(short), tuple([p.read_text(encoding="utf-8") for p in sorted((ROOT / "examples").glob("*.dfl"))])


def in_bytes(rng: random.Random, text: str) -> bytes:
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                del data[i : i + rng.randint(1, 8)]
            case 1:
                data[i:i] = rng.randbytes(rng.randint(1, 3))
            case 2:
                data[i : i + 1] = bytes([rng.randrange(32, 127)])
            case _:
                j = rng.randrange(len(data) + 1)
                data[i:i] = data[j : j + rng.randint(1, 40)]
    return bytes(data)


def in_tokens(rng: random.Random, text: str) -> bytes:
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
    return "".join(tokens).encode()


def in_its_tree(rng: random.Random, text: str) -> bytes:
    """Parts in each other's place: what parses, mostly, and means nothing."""
    for _ in range(rng.randint(1, 3)):
        spans = places(text)
        if not spans:
            break
        (start, end), (first, last) = rng.choice(spans), rng.choice(spans)
        text = text[:start] + text[first:last] + text[end:]
    return text.encode()


def places(text: str) -> list[tuple[int, int]]:
    """Where the expressions, types and statements of a program stand."""
    found = [node for item in parse(Source("whole", text)).module.items for node in all_nodes(item)]
    return [(n.span.start, n.span.end) for n in found if isinstance(n, tree.Node) and n.span.end - n.span.start < 400]


DAMAGES: list[Callable[[random.Random, str], bytes]] = [in_bytes, in_tokens, in_its_tree]


def reports(data: bytes) -> tuple[Diagnostic, ...]:
    try:
        return check_program(source_files.decode_source(data, "damaged.dfl")).diagnostics
    except DifflangError as error:
        return error.diagnostics


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_programs_are_reported_or_right(part: int, damage: Callable[[random.Random, str], bytes]) -> None:
    rng = random.Random(f"{os.environ.get('DIFFLANG_SEED', '0')}/{part}")
    short, long = sources()
    before = peak()
    for i in range(max(COUNT // (PARTS * len(DAMAGES)), 1)):
        data = damage(rng, rng.choice(long if i % 50 == 0 else short))
        start = time.thread_time()
        found = reports(data)
        assert time.thread_time() - start < SECONDS * (5 if i % 50 == 0 else 1), data
        assert {d.code for d in found} <= CODE_TITLES.keys(), data
        assert all(in_the_file(d) for d in found[:1]), data
        assert len(render(found).split("\n\n")) >= len(found), data
        to_json(found)
    assert peak() - before < BYTES


def in_the_file(found: Diagnostic) -> bool:
    span = found.span
    return span is None or (span.source.name == "damaged.dfl" and 0 <= span.start <= span.end <= len(span.source.text))


def peak() -> int:
    """Bytes, the most that this process ever had."""
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
