"""Formatting edits, verified quick fixes, and a derivative inserted as text. Renaming is in `rename_symbol`.

The derivative is computed by `difflang derive` in a process of its own, since the server runs no program and starts no
JAX. It is inserted only if the file has no new errors with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lsprotocol import types as lsp
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.base.source_files import read_source
from difflang.lsp.incremental_parse import common_ends
from difflang.lsp.memory_bound import unbound_memory
from difflang.lsp.name_resolution import document_part_at
from difflang.lsp.positions import PositionMap
from difflang.lsp.symbol_table import NameBinding, symbols_of
from difflang.lsp.workspace import Document, Workspace, document_range
from difflang.syntax import tree
from difflang.syntax.formatter.format_program import format_program
from difflang.syntax.parse import parse

# ---- Edits


def text_edits(places: PositionMap, edits: Iterable[tuple[int, int, str]]) -> list[lsp.TextEdit]:
    return [lsp.TextEdit(places.range(start, end), text) for start, end, text in edits]


def apply_edits(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """A text after edits, applied from the last to the first."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


# ---- Formatting


def formatting_edits(source: Source, pause: Callable[[], None]) -> list[tuple[int, int, str]]:
    """The change that formatting makes, as one edit; empty for a text that does not parse. `pause` may raise."""
    try:
        after = format_program(source, pause=pause)
    except DifflangError:
        return []
    before = source.text
    if after == before:
        return []
    one, other = before.splitlines(keepends=True), after.splitlines(keepends=True)
    # Replace only the lines that differ, so that the editor keeps its cursor and folds.
    head, tail = common_ends(one, other)
    start = sum(map(len, one[:head]))
    end = len(before) - sum(map(len, one[len(one) - tail :]))
    return [(start, end, "".join(other[head : len(other) - tail]))]


# ---- Quick fixes


class QuickFix(Struct, frozen=True):
    """A change that was verified to remove a diagnostic without adding another."""

    diagnostic: Diagnostic
    title: str
    edits: tuple[tuple[int, int, str], ...]

    @property
    def sure(self) -> bool:
        """Whether an editor may apply it without asking: false if the fix leaves a hole."""
        return not any(fix.leaves_hole and fix.title == self.title for fix in self.diagnostic.fixes)


QUOTED_WORD = re.compile(r"`([^`]+)`")
QUOTED_IMPORT = re.compile(r"`(import [^`]+)`")


def candidate_fixes(
    document: Document, diagnostic: Diagnostic
) -> Iterator[tuple[str, tuple[tuple[int, int, str], ...]]]:
    """The edits that a diagnostic proposes, or that its helps suggest, each with a title."""
    for fix in diagnostic.fixes:
        spots = [(document_range(edit.span), edit.replacement) for edit in fix.edits]
        if all(spot is not None and spot[0] is document for spot, _ in spots):
            yield fix.title, tuple([(spot[1], spot[2], text) for spot, text in spots if spot is not None])
    # Without fixes, the helps may still suggest an edit.
    if diagnostic.fixes:
        return
    at = document_range(diagnostic.span) if diagnostic.span is not None else None
    if at is None or at[0] is not document:
        return
    _, start, end = at
    for help in diagnostic.helps:
        if help.startswith("did you mean"):
            for word in QUOTED_WORD.findall(help):
                yield f"change to `{word}`", ((start, end, word),)
        elif (found := QUOTED_IMPORT.search(help)) is not None and "…" not in found[1]:
            line = import_offset(document)
            yield f"add `{found[1]}`", ((line, line, found[1] + "\n"),)
        elif help.startswith("write `") and not re.search(r"…|\.\.\.", help):
            word = QUOTED_WORD.findall(help)[0]
            yield f"write `{word}`", ((start, end, word),)
    missing = re.fullmatch(r"`(.)` is missing", diagnostic.message)
    if missing is not None:
        yield f"add `{missing[1]}`", ((start, start, missing[1]),)


def import_offset(document: Document) -> int:
    """Where an import is added: after the others, else above the first declaration."""
    at = 0
    for piece in document.parts:
        if any(p.startswith("import") for p in piece.text.split("\n")):
            at = piece.position.offset + len(piece.text.rstrip()) + 1
    if not at and document.parts and document.parts[0].items:
        first = document.parts[0]
        at = first.text.find("\n", first.items[0].span.end) + 1 if first.text.startswith("float ") else 0
    return min(at, len(document.text))


def verified_fixes(
    workspace: Workspace, document: Document, diagnostics: Iterable[Diagnostic], pause: Callable[[], None]
) -> list[QuickFix]:
    """The changes that remove diagnostics, each verified on a copy. Errors: CheckCancelled."""
    assert document.analysis is not None
    before = Counter(diagnostic_key(d) for d in document.analysis.diagnostics())
    trial = workspace.trial(document)
    found: list[QuickFix] = []
    for diagnostic in diagnostics:
        for title, edits in candidate_fixes(document, diagnostic):
            trial.set_text(apply_edits(document.text, edits))
            workspace.check(trial, pause, lambda: None)
            assert trial.analysis is not None
            after = Counter(diagnostic_key(d) for d in trial.analysis.diagnostics())
            less = before - Counter([diagnostic_key(diagnostic)])
            if after[diagnostic_key(diagnostic)] < before[diagnostic_key(diagnostic)] and not after - less:
                found.append(QuickFix(diagnostic, title, edits))
    return found


def diagnostic_key(diagnostic: Diagnostic) -> tuple[str, str]:
    return diagnostic.code, diagnostic.message


# ---- The derivative as an edit


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
        way = f"`difflang derive FILE:{name}` writes it to a separate file"
        raise DeriveRefused(f"the derivative of `{name}` cannot be placed beside it: {wrong.message}; {way}")
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
