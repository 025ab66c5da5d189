"""The language server of one editor: its documents, the checking thread, and published diagnostics.

Changed texts are parsed into parts at once. A single thread checks them part by part, and stops when the text changes.
So an answer is about the current text, with types that may be slightly outdated.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method
from pygls.uris import to_fs_path

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.lsp.code_actions import formatting_edits
from difflang.lsp.incremental_check import CheckCancelled, DocumentAnalysis
from difflang.lsp.name_resolution import NameOccurrence
from difflang.lsp.positions import ENCODING_LENGTHS, LengthFunction, PositionMap
from difflang.lsp.workspace import Document, Workspace, document_range

T = TypeVar("T")
TEXT_CHANGED = "the text has changed in the meantime"
CHECK_TIMEOUT = 2.0  # seconds that a request waits for the check of the latest text
SEVERITY = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}


class LspProtocol(LanguageServerProtocol):
    """The protocol with texts of our own: lines end as in the language, not at every Unicode separator."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Parse a message. A request that violates the protocol gets an error response."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    @lsp_method(lsp.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """Shut down. Cancelling a command removes it from pygls' list at once, so iterate over a copy."""
        for number, future in list(self._request_futures.items()):
            if number != self.msg_id:
                future.cancel()
        yield from super().lsp_shutdown(*args)

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: lsp.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        handler = self.fm.features.get(lsp.TEXT_DOCUMENT_DID_CHANGE)
        if handler is not None:
            yield handler, (params,), None


class OneLineFormatter(logging.Formatter):
    """Log messages on one line, for the log that editors show."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        return f"difflang lsp: {text}" + (f": {type(error).__name__}: {error}" if error is not None else "")


def is_server_error(record: logging.LogRecord) -> bool:
    """Whether a record is more than an error that the editor already gets as a response."""
    return not record.exc_info or not isinstance(record.exc_info[1], JsonRpcException)


class DifflangServer(LanguageServer):
    """One editor's server: its documents, and the thread that checks them."""

    def __init__(self) -> None:
        super().__init__("difflang", metadata.version("difflang"), protocol_cls=LspProtocol)
        self.files = Workspace()
        self.opened: dict[str, Document] = {}
        # One thread: analyses share state, and the event loop stays responsive.
        self.worker = ThreadPoolExecutor(1, "check")
        self.formatter = ThreadPoolExecutor(1, "format")
        # Incremented by each change; a check of an older generation stops.
        self.generation = 0
        self.pending: dict[Document, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.published: set[Document] = set()

    def start_io(self, *args: Any, **kwargs: Any) -> None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneLineFormatter())
        handler.addFilter(is_server_error)
        log = logging.getLogger("pygls")
        log.addHandler(handler)
        log.propagate = False
        super().start_io(*args, **kwargs)

    def shutdown(self) -> None:
        self.stop()
        super().shutdown()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log an internal error in the editor; a refused request already has its response."""
        if not isinstance(error, JsonRpcException) or isinstance(error, JsonRpcInternalError):
            self.complain(error)

    # ---- Texts

    @property
    def units(self) -> LengthFunction:
        agreed = self.workspace.position_encoding
        return ENCODING_LENGTHS[lsp.PositionEncodingKind(agreed).value if agreed else "utf-16"]

    def places(self, document: Document) -> PositionMap:
        return PositionMap(Source(document.name, document.text), self.units)

    def document(self, uri: str) -> Document:
        """The document that an editor has open. Errors: JsonRpcInvalidParams."""
        if uri not in self.opened:
            raise JsonRpcInvalidParams(f"{uri} is not open")
        return self.opened[uri]

    def open(self, uri: str, text: str, version: int) -> None:
        path = to_fs_path(uri) if uri.startswith("file:") else None
        document = self.files.document(Path(path).resolve() if path else None, self.display_name(path) if path else uri)
        document.uri, document.version = uri, version
        self.opened[uri] = document
        self.set_text(document, text)

    def display_name(self, path: str) -> str:
        """The name of a file in messages: its path below the open folder."""
        root = self.workspace.root_path
        return str(Path(path).relative_to(root)) if root and Path(path).is_relative_to(root) else path

    def set_text(self, document: Document, text: str) -> None:
        """Set a new text: parse it at once, and schedule a check of it and of its possible importers."""
        self.generation += 1
        document.set_text(text)
        # The edited document first; other open ones may import it.
        self.pending = {document: None, **self.pending, **dict.fromkeys(self.opened.values())}
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self.check_pending())

    # ---- Checking

    def cancellation_check(self) -> Callable[[], None]:
        """A function that raises CheckCancelled once the text has changed."""
        generation = self.generation

        def raise_if_cancelled() -> None:
            if self.generation != generation:
                raise CheckCancelled

        return raise_if_cancelled

    def stop(self) -> None:
        """Cancel the running check and start no other, so that closing the editor does not wait."""
        self.generation += 1
        self.pending.clear()
        self.worker.shutdown(wait=False, cancel_futures=True)
        self.formatter.shutdown(wait=False, cancel_futures=True)

    async def aside(self, work: Callable[[], T]) -> T:
        """Run something in the checking thread, after its current work."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, work)

    async def check_pending(self) -> None:
        """Check the pending documents, the last edited first."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self.pending:
            document = next(iter(self.pending))
            generation, pause = self.generation, self.cancellation_check()

            try:
                # The memory of an attempt is free again only once its exception is gone.
                if not await self.check_in_memory(document, pause) and generation == self.generation:
                    document.give_up()
                    await self.check_in_memory(document, pause)
            except CheckCancelled:
                continue
            except Exception as error:  # noqa: BLE001 - at the entry point: the server must survive
                self.complain(error)
            if generation == self.generation:
                self.pending.pop(document, None)
                self.publish(document)
        if loop.time() - began > CHECK_TIMEOUT:
            self.refresh_hints()

    async def check_in_memory(self, document: Document, pause: Callable[[], None]) -> bool:
        """Check a document; whether there is enough memory for it. Errors: CheckCancelled."""
        loop = asyncio.get_running_loop()

        def on_ready() -> None:
            loop.call_soon_threadsafe(self.publish, document)

        try:
            await self.aside(lambda: self.files.check(document, pause, on_ready))
        except MemoryError:
            return False
        return True

    def refresh_hints(self) -> None:
        """Ask the editor to request hints and tokens again, which may have been answered too early, if it supports
        that.
        """
        able = self.client_capabilities.workspace
        if able is not None and able.inlay_hint is not None and able.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)
        if able is not None and able.semantic_tokens is not None and able.semantic_tokens.refresh_support:
            self.workspace_semantic_tokens_refresh(None)

    def complain(self, error: Exception) -> None:
        """Log an internal error in the editor."""
        text = f"difflang: {type(error).__name__}: {error}"
        self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, text))

    async def wait_for_check(self, uri: str) -> None:
        """Wait until the latest text is checked, up to a timeout.

        Errors: JsonRpcException if the document changes meanwhile, which a request's positions then do not fit.
        """
        document = self.document(uri)
        before = document.text
        if self.task is not None and not self.task.done():
            await asyncio.wait([self.task], timeout=CHECK_TIMEOUT)
        if document.text is not before:
            raise content_modified()

    async def format(self, document: Document) -> list[tuple[int, int, str]]:
        """The edits that format a document, in a thread of its own: it must not wait for a check.

        Errors: JsonRpcException once the document changes.
        """
        text, ended = document.text, threading.Event()

        def pause() -> None:
            if document.text is not text or ended.is_set():
                raise CheckCancelled

        try:
            work = partial(formatting_edits, Source(document.name, text), pause)
            return await asyncio.get_running_loop().run_in_executor(self.formatter, work)
        except CheckCancelled:
            raise content_modified() from None
        finally:
            ended.set()

    # ---- Published diagnostics

    def publish(self, document: Document) -> None:
        """Publish the known diagnostics of a document, if its text is still the same."""
        analysis = document.analysis
        if analysis is None or analysis.parts is not document.parts or not document.open:
            return
        params = lsp.PublishDiagnosticsParams(document.uri, self.own_reports(document, analysis), document.version)
        self.text_document_publish_diagnostics(params)
        self.publish_imported()

    def publish_imported(self) -> None:
        """Publish the diagnostics of imported files, and clear those of files that are no longer imported."""
        imported = import_closure(self.opened.values())
        for other in imported:
            self.publish_closed(other)
        for other in self.published - imported.keys():
            self.published.discard(other)
            if not other.open:
                self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(other.uri, []))

    def publish_closed(self, document: Document) -> None:
        """Publish the diagnostics of an imported file that is not open."""
        if document.analysis is None or document.open or document.library:
            return
        reports = self.own_reports(document, document.analysis)
        if reports or document in self.published:
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, reports))
        (self.published.add if reports else self.published.discard)(document)

    def own_reports(self, document: Document, analysis: DocumentAnalysis) -> list[lsp.Diagnostic]:
        """The diagnostics that lie in a document or nowhere."""
        places = self.places(document)
        found = [(d, document_range(d.span) if d.span is not None else None) for d in analysis.diagnostics()]
        return [self.lsp_diagnostic(document, places, d) for d, at in found if at is None or at[0] is document]

    def lsp_diagnostic(self, document: Document, places: PositionMap, diagnostic: Diagnostic) -> lsp.Diagnostic:
        """A diagnostic for the editor: the first label's text is part of the message, the others are related
        information.
        """
        first, *others = diagnostic.labels or [None]
        at = document_range(first.span) if first is not None else None
        range = places.range(at[1], max(at[2], at[1])) if at is not None else places.range(0, 0)
        lines = [diagnostic.message, *([first.text] if first is not None and first.text else []), *diagnostic.helps]
        related = [r for label in others if label is not None for r in self.related_information(label.span, label.text)]
        return lsp.Diagnostic(range, "\n".join(lines), SEVERITY[diagnostic.severity], diagnostic.code,
                              source="difflang", related_information=related or None)  # fmt: skip

    def related_information(self, span: Any, text: str) -> Iterator[lsp.DiagnosticRelatedInformation]:
        at = document_range(span)
        if at is not None:
            yield lsp.DiagnosticRelatedInformation(self.location(*at), text or "here")

    def location(self, document: Document, start: int, end: int) -> lsp.Location:
        return lsp.Location(document.uri, self.places(document).range(start, end))

    def spot(self, found: NameOccurrence) -> lsp.Location:
        at = found.piece.position.offset
        return self.location(found.document, at + found.name.span.start, at + found.name.span.end)

    # ---- All files

    def documents_containing(self, word: str) -> list[Document]:
        """The documents of the workspace that contain a word; files that are not open are read from disk."""
        for document in [d for d in list(self.files.documents.values()) if not d.open and not d.library]:
            self.check_closed(document)  # it may have changed on disk, or be gone
        roots = [to_fs_path(f.uri) for f in self.workspace.folders.values()]
        for root in {Path(r) for r in (*roots, self.workspace.root_path) if r}:
            for path in self.files.programs_containing(root, word):
                document = self.files.document(path, self.display_name(str(path)))
                if not document.open:
                    self.check_closed(document)
        return [d for d in list(self.files.documents.values()) if not d.library]

    def check_closed(self, document: Document) -> None:
        """Read and check a file that is not open; one that cannot be read is skipped."""
        try:
            self.files.refresh(document)
            self.files.check(document, self.cancellation_check(), lambda: None)
        except (DifflangError, CheckCancelled):
            pass


def content_modified() -> JsonRpcException:
    """The error of a request whose document has changed."""
    return JsonRpcException(TEXT_CHANGED, lsp.LSPErrorCodes.ContentModified.value)


def import_closure(documents: Iterable[Document]) -> dict[Document, None]:
    """The transitive imports of documents."""
    found: dict[Document, None] = {}
    todo = [other for document in documents for other in document.imports.values()]
    while todo:
        document = todo.pop()
        if document not in found:
            found[document] = None
            todo += document.imports.values()
    return found
