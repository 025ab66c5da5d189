"""Syntax trees of the standard library, kept in the user's cache folder: reading one takes a tenth of parsing it.

Trees are pickled. `private_cache` reads only what this user wrote, under a key of the text and of the code that parses.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from difflang.base import package_data, private_cache
from difflang.base.gc_pause import pause_gc
from difflang.base.source import Source
from difflang.syntax.parse import ParsedModule, parse

# What reading a damaged pickle raises.
UNREADABLE = (
    OSError,
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    TypeError,
    ValueError,
)


@lru_cache(maxsize=64)
def parse_library(path: Path, name: str) -> tuple[Source, ParsedModule]:
    """The source and syntax tree of a module of the standard library, the same objects for all programs."""
    source = Source(name, path.read_text(encoding="utf-8"), library=True)
    entry, key = f"library-{path.stem}.pickle", tree_key(source)
    kept = read_tree(entry, key, source)
    if kept is not None:
        return source, kept
    parsed = parse(source)
    if not parsed.diagnostics:
        write_tree(entry, key, parsed, source)
    return source, parsed


def tree_key(source: Source) -> str:
    """A hash of everything that a tree depends on."""
    return hashlib.sha256("\0".join((parser_key(), source.name, source.text)).encode()).hexdigest()


@cache
def parser_key() -> str:
    """A hash of the grammar, of the modules that build trees and spans, and of the versions that unpickle them."""
    found = hashlib.sha256(f"{sys.version}\0{package_data.grammar_text()}".encode())
    for path in (*sorted(Path(__file__).parent.glob("*.py")), package_data.PACKAGE_FOLDER / "base" / "source.py"):
        found.update(path.read_bytes())
    return found.hexdigest()


def read_tree(entry: str, key: str, source: Source) -> ParsedModule | None:
    """The tree that `write_tree` wrote, with its spans in `source`; None if there is none, or it is damaged."""

    class Reader(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Source:
            return source

    try:
        data = private_cache.read_entry(private_cache.private_subfolder() / entry, key)
        if data is None:
            return None
        with pause_gc():
            found = Reader(BytesIO(data)).load()
    except UNREADABLE:
        return None
    return found if isinstance(found, ParsedModule) else None


def write_tree(entry: str, key: str, parsed: ParsedModule, source: Source) -> None:
    """Keep a tree. If the folder cannot be used, the next start only takes longer."""

    class Writer(pickle.Pickler):
        def persistent_id(self, obj: Any) -> int | None:
            return 0 if obj is source else None

    data = BytesIO()
    Writer(data, pickle.HIGHEST_PROTOCOL).dump(parsed)
    with contextlib.suppress(OSError):
        private_cache.write_entry(private_cache.private_subfolder() / entry, key, data.getvalue())
