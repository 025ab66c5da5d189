"""The code action that inserts a function's derivative below it, computed by `difflang derive` in its own process.

The server itself runs no program and starts no JAX. The result is inserted only if the file has no new errors with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.base.source_files import read_source
from difflang.lsp.memory_bound import unbound_memory
from difflang.lsp.name_resolution import document_part_at
from difflang.lsp.symbol_table import NameBinding, symbols_of
from difflang.lsp.workspace import Document, Workspace
from difflang.syntax import tree
from difflang.syntax.parse import parse

STDIN_LINE = re.compile(r": <stdin>, line \d+\.")
# Seconds: the values that the function reads may take a training run.
DERIVE_TIMEOUT = 120.0


class DeriveRefused(Exception):
    """No derivative can be inserted; says why."""


def derivable_function(document: Document, offset: int, within: bool) -> NameBinding | None:
    """The function whose head, or with `within` whose body, contains an offset, if it can have a derivative."""
    piece = document_part_at(document, offset)
    for b in symbols_of(piece).file_bindings() if piece is not None else ():
        if piece is not None and isinstance(b.node, tree.Fn) and b.node.params and not b.node.host:
            last = b.node.span.end if within else b.node.body.span.start
            if b.node.span.start <= offset - piece.position.offset <= last:
                return b
    return None


async def run_derive(document: Document, name: str, paths: Iterable[Path]) -> str:
    """The output of `difflang derive` for a function of the current text. Errors: DeriveRefused."""
    # The process reads imports from disk, where unsaved changes are missing.
    for other in document.imports.values():
        if other.open and not other.library and not is_saved(other):
            raise DeriveRefused(f"save {other.name} first: difflang reads the version on disk")
    folder = document.path.parent if document.path is not None else Path.cwd()
    words = [f"--path={path}" for path in paths]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "difflang", "derive", *words, "--", f"-:{name}",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        cwd=folder, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    unbound_memory(process.pid)
    try:
        output, errors = await asyncio.wait_for(
            process.communicate(document.text.encode(errors="replace")), DERIVE_TIMEOUT
        )
    except TimeoutError:
        raise DeriveRefused(f"`difflang derive` takes more than {DERIVE_TIMEOUT:.0f} s for `{name}`") from None
    finally:
        if process.returncode is None:  # the request was cancelled
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if process.returncode:
        lines = errors.decode(errors="replace").splitlines()
        raise DeriveRefused(next((line for line in lines if line.startswith("error")), f"no derivative of `{name}`"))
    return output.decode()


def is_saved(document: Document) -> bool:
    """Whether a text equals the file on disk."""
    try:
        return document.path is None or read_source(document.path, document.name).text == document.text
    except DifflangError:
        return False


def derivative_edit(
    files: Workspace, document: Document, name: str, written: str, pause: Callable[[], None]
) -> tuple[int, str]:
    """The offset and the text of the insertion. Errors: DeriveRefused if the file would have new errors;
    CheckCancelled.
    """
    piece = next((p for p in document.parts if any(b.name == name for b in symbols_of(p).file_bindings())), None)
    if piece is None or document.analysis is None:
        raise DeriveRefused(f"`{name}` no longer exists")
    text = strip_declared_records(document, name, written)
    at = piece.position.offset + len(piece.text.rstrip("\n"))
    trial = files.trial(document)
    trial.set_text(document.text[:at] + text + document.text[at:])
    files.check(trial, pause, lambda: None)
    assert trial.analysis is not None
    # Compare counts by code: positions and messages change with the insertion.
    new = Counter(d.code for d in trial.analysis.diagnostics())
    new -= Counter(d.code for d in document.analysis.diagnostics())
    if new:
        wrong = next(d for d in trial.analysis.diagnostics() if d.code in new)
        raise DeriveRefused(f"the derivative of `{name}` cannot be placed beside it: {wrong.message}; `difflang derive "
f"FILE:{name}` writes it to a separate file")  # fmt: skip
    return at, text


def strip_declared_records(document: Document, name: str, written: str) -> str:
    """A derivative without the records that the file already declares. Errors: DeriveRefused."""
    known = {n for p in document.parts for n in p.declares}
    text = written
    for item in reversed(parse(Source("<derivative>", written)).module.items):
        if isinstance(item, tree.Fn) and item.name in known:
            raise DeriveRefused(f"`{item.name}` already exists")
        if isinstance(item, (tree.Record, tree.Enum)):
            if item.name not in known:
                message = f"`{item.name}` is declared in another file, and the derivative would contain a copy of it"
                way = f"`difflang derive FILE:{name} > d_{name}.dfl` writes a separate program"
                raise DeriveRefused(f"{message}; {way}")
            text = text[: item.span.start] + text[item.span.end :].lstrip("\n")
    return "\n\n" + STDIN_LINE.sub(".", text, count=1).strip("\n")
