"""Formatting edits and verified quick fixes. Renaming is in `rename_symbol`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from lsprotocol import types as lsp
from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.lsp.positions import PositionMap
from difflang.lsp.workspace import Document, Workspace, document_range
from difflang.syntax.formatter.format_program import format_program

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
    head = tail = 0
    # Replace only the lines that differ, so that the editor keeps its cursor and folds.
    while head < min(len(one), len(other)) and one[head] == other[head]:
        head += 1
    while tail < min(len(one), len(other)) - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
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


__all__ = ["QuickFix", "apply_edits", "diagnostic_key", "formatting_edits", "text_edits", "verified_fixes"]
