"""Renames a declaration and its references, only if all files keep their meaning.

Names are resolved by syntax, which is not complete, so `verify_rename` checks the changed files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from difflang.base.source import Source
from difflang.lsp.code_actions import apply_edits, diagnostic_key
from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.name_resolution import (
    Definition,
    NameOccurrence,
    definition_of,
    file_declaration,
    occurrence_at,
    references,
)
from difflang.lsp.symbol_table import NameBinding, NameUse, symbols_of
from difflang.lsp.workspace import Document, Workspace
from difflang.syntax.lexer import tokenize
from difflang.syntax.parser_tables import load_tables

INVALID_NAME = "this is not a valid name: use letters, digits and `_`, and no reserved word"
RenameEdit = tuple[int, int, str]


class RenameRefused(Exception):
    """A rename that is not possible; says why."""


def rename_target(found: NameOccurrence) -> Definition:
    """The definition of the name at a position, if it can be renamed. Errors: RenameRefused."""
    goal = definition_of(found)
    if goal is None or goal.binding is None:
        raise RenameRefused(f"`{found.name.name}` is not declared in these files")
    if goal.document.library or goal.binding.kind == "test":
        raise RenameRefused(
            f"`{found.name.name}` belongs to the standard library" if goal.document.library else "not a name"
        )
    return goal


def rename_edits(found: NameOccurrence, name: str, documents: Iterable[Document]) -> dict[Document, list[RenameEdit]]:
    """The edits in each document that rename a declaration. Errors: RenameRefused."""
    kinds = [t.kind for t in tokenize(Source("<name>", name))]
    if kinds != ["NAME"] or name in load_tables().lexis.words:
        raise RenameRefused(INVALID_NAME)
    if name == found.name.name:
        return {}
    if (alias := import_alias(found)) is not None:
        refuse_unread_uses(found.name.name, found.document, found.document.parts)
        if any(name in piece.declares for piece in found.document.parts):
            raise RenameRefused(f"`{name}` already means something else there")
        return {found.document: [(*place, name) for place in alias_ranges(found.document, alias)]}
    goal = rename_target(found)
    documents = dict.fromkeys((found.document, *documents))
    assert goal.binding is not None
    inside = goal.binding.scope is not None and goal.binding.kind != "field"
    for document in documents:
        seen = [p for p in document.parts if not inside or p is goal.piece]
        refuse_unread_uses(found.name.name, document, seen)
    edits: dict[Document, list[RenameEdit]] = {}
    for each in references(goal, documents):
        # A quick test by syntax; `verify_rename` is the complete one.
        check_clash(each, name, goal)
        start = each.piece.position.offset
        edits.setdefault(each.document, []).append((start + each.name.span.start, start + each.name.span.end, name))
    return {document: sorted(dict.fromkeys(places)) for document, places in edits.items()}


def refuse_unread_uses(name: str, document: Document, parts: Iterable[ParsedPart]) -> None:
    """Errors: RenameRefused if the name stands in text with a syntax error: which of its uses are meant is unknown."""
    for piece in parts:
        if piece.diagnostics and (mention := re.search(rf"\b{re.escape(name)}\b", piece.text)) is not None:
            line = document.text.count("\n", 0, piece.position.offset + mention.start()) + 1
            raise RenameRefused(f"`{name}` also stands in line {line} of {document.name}, in text with a syntax error")


def import_alias(found: NameOccurrence) -> NameBinding | None:
    """The alias of an import, if a name refers to a module through it."""
    goal = definition_of(found)
    if goal is None or (goal.binding is not None and goal.binding.kind != "module"):
        return None
    mine = file_declaration(found.document, found.name.name)
    return mine.binding if mine is not None and mine.binding is not None and mine.binding.kind == "module" else None


def alias_ranges(document: Document, alias: NameBinding) -> Iterator[tuple[int, int]]:
    """The places where a file uses an import alias."""
    for piece in document.parts:
        names, start = symbols_of(piece), piece.position.offset
        for each in (*names.bindings, *names.uses):
            if each.name == alias.name and (each is alias or refers_to_module(NameOccurrence(document, piece, each))):
                yield start + each.span.start, start + each.span.end


def refers_to_module(found: NameOccurrence) -> bool:
    goal = definition_of(found) if isinstance(found.name, NameUse) and found.name.role in ("name", "type") else None
    return goal is not None and goal.binding is None


def check_clash(found: NameOccurrence, name: str, goal: Definition) -> None:
    """Errors: RenameRefused if something else already has the new name, so that one would capture the other."""
    assert goal.binding is not None
    if goal.binding.kind == "field":
        inside = goal.binding.owner
        others = symbols_of(goal.piece).bindings if goal.piece is not None else []
        taken = any(b.owner is inside and b.kind == "field" and b.name == name for b in others)
    else:
        names = symbols_of(found.piece)
        taken = any(b.name == name and b.kind != "field" for b in names.bindings)
        taken = taken or any(u.name == name and u.role in ("name", "type", "import") for u in names.uses)
        if goal.binding.scope is None:
            taken = taken or any(name in p.declares for p in found.document.parts)
    if taken:
        raise RenameRefused(f"`{name}` already means something else there")


# ---- Verification


def verify_rename(
    files: Workspace, found: NameOccurrence, edits: Mapping[Document, list[RenameEdit]], pause: Callable[[], None]
) -> None:
    """Check copies of the files with the edits applied.

    Errors: RenameRefused for a new diagnostic, or if the new name resolves differently from the old one.
    CheckCancelled.
    Cost:   a full check of these files.
    """
    # A workspace of its own: the copies must not replace the documents.
    trial = Workspace(files.paths)
    copies: dict[Document, Document] = {}
    for document in dict.fromkeys([*edits, *[d for d in files.documents.values() if d.open and not d.library]]):
        copy = trial.document(document.path, document.name)
        copy.version, copy.read, copy.stamp = document.version, document.read, document.stamp
        copy.set_text(apply_edits(document.text, edits.get(document, ())))
        copies[document] = copy
    for document in edits:
        trial.check(copies[document], pause, lambda: None)
    name = next(iter(edits.values()))[0][2]
    for document in edits:
        check_no_new_errors(document, copies[document], name)
    if expected_positions(copies, edits) != resolved_positions(copies, found, edits):
        raise RenameRefused(f"`{name}` already means something else there")


def check_no_new_errors(document: Document, copy: Document, name: str) -> None:
    """Errors: RenameRefused if a copy has more diagnostics."""
    assert copy.analysis is not None
    before = document.analysis.diagnostics() if document.analysis is not None else []
    after = copy.analysis.diagnostics()
    more = Counter(d.code for d in after) - Counter(d.code for d in before)
    found, said = [d for d in after if d.code in more], {diagnostic_key(d) for d in before}
    if found:
        # A message that mentions the renamed name is not new, though its text is.
        diagnostic = next((d for d in found if diagnostic_key(d) not in said), found[-1])
        line = f" in line {diagnostic.span.position[0]}" if diagnostic.span is not None else ""
        where = f"{document.name}{line}"
        raise RenameRefused(f"the name `{name}` would cause an error in {where}: {diagnostic.message}")


def expected_positions(
    copies: Mapping[Document, Document], edits: Mapping[Document, list[RenameEdit]]
) -> set[tuple[Document, int]]:
    """The expected positions of the new name in the copies."""
    return {(copies[d], start + sum(len(n) - (e - s) for s, e, n in places if s < start))
            for d, places in edits.items() for start, _, _ in places}  # fmt: skip


def resolved_positions(
    copies: Mapping[Document, Document], found: NameOccurrence, edits: Mapping[Document, list[RenameEdit]]
) -> set[tuple[Document, int]]:
    """The positions in the copies that refer to the renamed definition."""
    at = found.piece.position.offset + found.name.span.start
    at += sum(len(n) - (e - s) for s, e, n in edits[found.document] if s < at)
    here = occurrence_at(copies[found.document], at)
    goal = definition_of(here) if here is not None else None
    if here is None or goal is None:
        return set()
    if (alias := import_alias(here)) is not None:
        return {(here.document, start) for start, _ in alias_ranges(here.document, alias)}
    return {(f.document, f.piece.position.offset + f.name.span.start) for f in references(goal, copies.values())}
