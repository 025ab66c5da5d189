"""The workspace: documents open in an editor, files that they import, and checking them in dependency order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Source, Span
from difflang.base.source_files import read_source
from difflang.elaborate.context import Session
from difflang.elaborate.module_declarations import load_prelude
from difflang.elaborate.module_imports import (
    ImportSearch,
    ModuleFile,
    bind_import,
    find_import,
    import_cycle_error,
    import_names,
)
from difflang.ir.tensor_types import DTYPES
from difflang.lsp.incremental_check import DocumentAnalysis
from difflang.lsp.incremental_parse import ParsedPart, oversized_part, parse_parts
from difflang.syntax import tree
from difflang.types.module_scope import ModuleScope

# A file, and for a library module the importer's default float.
DocumentKey = tuple[Path | str, str]
SKIPPED_FOLDERS = ("node_modules", "__pycache__", "site-packages")
# Searched for references: even if a whole disk is open, a request must end.
MAX_FILES = 20_000
Pause = Callable[[], None]


class Document(Struct, eq=False):
    """A file: its text in parts, and its analysis. It is parsed at once and checked later."""

    name: str
    path: Path | None
    library: bool = False
    uri: str = ""  # as the editor sent it
    text: str = ""
    parts: tuple[ParsedPart, ...] = ()
    version: int | None = None  # the editor's; None for a file that is not open
    read: bool = False
    stamp: tuple[int, int] = (0, 0)  # modification time and size on disk
    analysis: DocumentAnalysis | None = None
    imports: dict[tree.Import, Document] = field(default_factory=dict[tree.Import, "Document"])
    # Import versions of the last check.
    seen: dict[Document, int] = field(default_factory=dict["Document", int])
    # Filled by `name_resolution`.
    declaration_cache: tuple[tuple[ParsedPart, ...], Any] | None = None
    edited: tuple[ParsedPart, ...] = ()  # changed since the last check

    @property
    def open(self) -> bool:
        return self.version is not None

    def set_text(self, text: str) -> None:
        """Set a new text. Never raises."""
        old = self.parts
        self.text = text
        try:
            self.parts = parse_parts(self.name, text, self, old)
            fits = True
        except MemoryError:
            fits = False
        if not fits:  # only here is the memory of the attempt free again
            self.give_up()
        new = {*self.parts} - {*old} | {*self.edited}
        self.edited = tuple([p for p in self.parts if p in new])

    def give_up(self) -> None:
        """Drop what is known of a text that does not fit in memory: it is one part with that diagnostic."""
        self.analysis = None
        self.parts, self.edited = (oversized_part(self.name, self.text, self),), ()

    @property
    def items(self) -> list[tree.Item]:
        return [item for p in self.parts for item in p.items]

    @property
    def module(self) -> ModuleScope | None:
        return self.analysis.module if self.analysis is not None else None


class Workspace:
    """All documents, and checking them."""

    def __init__(self, paths: tuple[Path, ...] = ()) -> None:
        self.paths = paths
        self.documents: dict[DocumentKey, Document] = {}
        self.trials: dict[Document, Document] = {}
        self.homes = dict(load_prelude().records.declaring_modules)

    # ---- Documents

    def document(self, path: Path | None, name: str, library: str = "") -> Document:
        """The document of a file, or of a text without a file. `library` is the importer's default float."""
        key: DocumentKey = (path if path is not None else name, library)
        if key not in self.documents:
            uri = path.as_uri() if path is not None else name
            self.documents[key] = Document(name, path, bool(library), uri)
        return self.documents[key]

    def trial(self, document: Document) -> Document:
        """A copy of a document to try changes on, with the same imports; it is kept to make a second try fast."""
        if document not in self.trials:
            self.trials[document] = Document(document.name, document.path, document.library, document.uri, version=0)
        return self.trials[document]

    def close(self, document: Document) -> None:
        """From now on the file on disk counts."""
        document.version = None
        self.trials.pop(document, None)
        document.read = False
        document.stamp = (0, 0)
        if document.path is None:
            self.documents.pop((document.name, ""), None)

    def refresh(self, document: Document) -> None:
        """Read a file that is not open, if it has changed. Errors: DL07."""
        if document.open or document.path is None:
            return
        try:
            stat = document.path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            stamp = (-1, 0)
        if not document.read or stamp != document.stamp:
            try:
                text = read_source(document.path, document.name).text
            except DifflangError:
                document.read = False
                document.set_text("")
                raise
            document.set_text(text)
            document.stamp, document.read = stamp, True

    def programs_containing(self, folder: Path, word: str) -> Iterator[Path]:
        """The programs below a folder that contain a word, except hidden ones; in a huge folder only the first."""
        seen = 0
        for where, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
            seen += len(files) + len(folders)
            for name in sorted(files):
                path = Path(where, name)
                if name.endswith(".dfl") and not name.startswith(".") and contains_word(path, word):
                    yield path.resolve()
            if seen > MAX_FILES:
                return

    # ---- Checking

    def check(self, document: Document, pause: Pause, on_ready: Callable[[], None]) -> None:
        """Check a document where needed, its imports first. Errors: CheckCancelled."""
        self.check_with_imports(document, (), pause, on_ready)

    def check_with_imports(
        self, document: Document, importers: tuple[ModuleFile, ...], pause: Pause, on_ready: Callable[[], None]
    ) -> None:
        parts, typed = document.parts, document.edited
        items = [item for p in parts for item in p.items]
        folder = document.path.parent if document.path is not None else Path.cwd()
        analysis = self.analysis_of(document, parts)
        file = ModuleFile(analysis.module, tuple(items), document.path, folder, document.library)
        found, reports = self.resolve_imports(document, file, importers, pause)
        outside = {
            name
            for item, other in document.imports.items()
            if found.get(item) is not other or document.seen.get(other) != combined_version(other)
            for name in import_names(item)
        }
        outside |= {name for item in found.keys() - document.imports.keys() for name in import_names(item)}
        document.imports = found
        if analysis.with_examples != document.open:
            analysis.with_examples = document.open
            analysis.examples.clear()
            analysis.finished = None
        statements = analysis.concern(parts, outside)
        if analysis.finished == parts and not analysis.stale and not outside:
            return
        analysis.finished = None
        others = dict.fromkeys(a for d in found.values() if d.analysis is not None for a in with_imported(d.analysis))
        analysis.imported = tuple(others)
        analysis.hosts = {a.module: h for a in others for h in [a.hosts.get(a.module)] if h is not None}
        analysis.declare_items(parts, statements and not outside, partial(self.link_imports, document, reports))
        analysis.check(typed, pause, on_ready)
        document.seen = {d: combined_version(d) for d in found.values()}
        document.edited = tuple([p for p in document.edited if p not in typed])
        analysis.finished = parts
        analysis.version += 1

    def analysis_of(self, document: Document, parts: Sequence[ParsedPart]) -> DocumentAnalysis:
        """The analysis of a document, or a new one if its default float has changed."""
        default = DTYPES[parts[0].default_float if parts else "f32"]
        if document.library:
            default = next((DTYPES[k[1]] for k, d in self.documents.items() if d is document), default)
        old = document.analysis
        # The type of float literals affects every part.
        if old is not None and old.module.default_float is default:
            return old
        module = ModuleScope(Source(document.name, ""), default, prelude=load_prelude())
        module.records.declaring_modules = self.homes
        document.analysis = DocumentAnalysis(module)
        return document.analysis

    def resolve_imports(
        self, document: Document, file: ModuleFile, importers: tuple[ModuleFile, ...], pause: Pause
    ) -> tuple[dict[tree.Import, Document], dict[tree.Import, DifflangError]]:
        """The checked documents that a file imports, and the errors of imports that fail."""
        found: dict[tree.Import, Document] = {}
        reports: dict[tree.Import, DifflangError] = {}
        for item in file.items:
            if not isinstance(item, tree.Import):
                continue
            try:
                at = find_import(item, file, ImportSearch(file.folder, self.paths))
                other = self.document(at.path, at.name, file.module.default_float.name if at.library else "")
                chain = (*importers, file)
                # Before checking the import, which would recurse.
                if any(f.path == at.path for f in chain):
                    raise import_cycle_error(
                        list(chain[next(i for i, f in enumerate(chain) if f.path == at.path) :]), item
                    )
                self.opened(other, item)
                file.imported_by = item if not importers else file.imported_by
                self.check_with_imports(other, chain, pause, lambda: None)
                found[item] = other
            except DifflangError as error:
                reports[item] = error
        return found, reports

    def opened(self, document: Document, item: tree.Import) -> None:
        """Errors: DL07 at the import if the file cannot be read."""
        try:
            self.refresh(document)
        except DifflangError as error:
            labels = (Label(item.module_span),)
            raise DifflangError(*[Diagnostic(d.code, d.message, labels, d.helps) for d in error.diagnostics]) from None

    def link_imports(
        self,
        document: Document,
        reports: dict[tree.Import, DifflangError],
        items: Sequence[tree.Item],
        session: Session,
    ) -> None:
        """Bind the imports of a document; errors are reported to the session."""
        module = document.module
        assert module is not None
        for item in items:
            if not isinstance(item, tree.Import):
                continue
            error = reports.get(item)
            other = document.imports.get(item)
            try:
                if error is not None:
                    raise error
                if other is not None and other.module is not None:
                    bind_import(module, item, other.module, session)
            except DifflangError as wrong:
                session.report(wrong)
                module.invalid_names |= dict.fromkeys(import_names(item), item)


def contains_word(path: Path, word: str) -> bool:
    """Whether a file contains a word; false if it cannot be read."""
    try:
        return word in path.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return False


def combined_version(document: Document) -> int:
    """A number that changes whenever the document or one of its imports changes."""
    return sum(a.version for a in with_imported(document.analysis)) if document.analysis is not None else -1


def with_imported(analysis: DocumentAnalysis) -> list[DocumentAnalysis]:
    return [analysis, *analysis.imported]


def document_range(span: Span) -> tuple[Document, int, int] | None:
    """The document and range of a span; None if it belongs to no document."""
    whole = span.source.document
    if not isinstance(whole, Document):
        return None
    before = span.source.document_offset
    return whole, before + span.start, before + span.end
