"""The language server: what an editor asks, answered from the workspace. Nothing here runs or compiles a program.

Texts are read into parts as they change, at once; what they mean is found out by one thread beside, part by part, and
given up where the text has changed meanwhile. So an answer is about the text as it is, and at the worst a little old.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method
from pygls.uris import to_fs_path

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.source import Source
from difflang.lsp import changes, outline, proposals, telling
from difflang.lsp.analysis import Interrupted
from difflang.lsp.places import UNITS, Places, Units, changed
from difflang.lsp.targets import Found, found_at, references, target
from difflang.lsp.workspace import Document, Workspace, place

T = TypeVar("T")
SOON = 0.001  # seconds between two looks at whether an editor waits while a text is being checked
PATIENCE = 2.0  # seconds that an answer waits for the check of what was just typed
SEVERITY = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}
LEGEND = lsp.SemanticTokensLegend(list(outline.COLOURS), list(outline.MODIFIERS))


class Protocol(LanguageServerProtocol):
    """Keeps texts itself: lines end where the language says, not wherever Unicode has a separator."""

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: lsp.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        handler = self.fm.features.get(lsp.TEXT_DOCUMENT_DID_CHANGE)
        if handler is not None:
            yield handler, (params,), None


class Server(LanguageServer):
    """One editor's server: its files, and the thread that checks them."""

    def __init__(self) -> None:
        super().__init__("difflang", metadata.version("difflang"), protocol_cls=Protocol)
        self.files = Workspace()
        self.opened: dict[str, Document] = {}
        self.worker = ThreadPoolExecutor(1, "check")
        self.generation = 0  # of all texts: another one and what is under way is given up
        self.waiting: dict[Document, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.published: set[Document] = set()

    # ---- Texts

    @property
    def units(self) -> Units:
        agreed = self.workspace.position_encoding
        return UNITS[lsp.PositionEncodingKind(agreed).value if agreed else "utf-16"]

    def places(self, document: Document) -> Places:
        return Places(Source(document.name, document.text), self.units)

    def document(self, uri: str) -> Document:
        """The document that an editor has open. Errors: JsonRpcInvalidParams."""
        if uri not in self.opened:
            raise JsonRpcInvalidParams(f"{uri} is not open")
        return self.opened[uri]

    def open(self, uri: str, text: str, version: int) -> None:
        path = to_fs_path(uri) if uri.startswith("file:") else None
        document = self.files.document(Path(path).resolve() if path else None, self.shown(path) if path else uri)
        document.uri, document.version = uri, version
        self.opened[uri] = document
        self.put(document, text)

    def shown(self, path: str) -> str:
        """What messages call a file: its path below the folder that is open."""
        root = self.workspace.root_path
        return str(Path(path).relative_to(root)) if root and Path(path).is_relative_to(root) else path

    def put(self, document: Document, text: str) -> None:
        """A text is another one: it is read at once, and checked soon, and so is what may import it."""
        self.generation += 1
        document.put(text)
        self.waiting = {document: None, **self.waiting, **dict.fromkeys(self.opened.values())}
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self.work())

    # ---- Checking

    def pause(self) -> Callable[[], None]:
        """What is called on the way, and ends a check once the text has changed."""
        generation = self.generation

        def pause() -> None:
            if self.generation != generation:
                raise Interrupted

        return pause

    async def aside(self, work: Callable[[], T]) -> T:
        """Something that the checking thread does, after what it is at."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, work)

    async def work(self) -> None:
        """Check what waits, what was typed last first."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self.waiting:
            document = next(iter(self.waiting))
            generation, pause = self.generation, self.pause()

            def told(document: Document = document) -> None:
                loop.call_soon_threadsafe(self.publish, document)

            try:
                await self.aside(lambda d=document, p=pause, t=told: self.files.check(d, p, t))
            except Interrupted:
                continue
            except Exception as error:  # noqa: BLE001 - the door: an editor goes on without
                self.complain(error)
            if generation == self.generation:
                self.waiting.pop(document, None)
                self.publish(document)
        if loop.time() - began > PATIENCE:
            self.refresh()

    def refresh(self) -> None:
        """Ask for what may have been answered before all was known to be asked anew, if the editor does that."""
        able = self.client_capabilities.workspace
        if able is not None and able.inlay_hint is not None and able.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)
        if able is not None and able.semantic_tokens is not None and able.semantic_tokens.refresh_support:
            self.workspace_semantic_tokens_refresh(None)

    def complain(self, error: Exception) -> None:
        """A fault of ours, for the editor's log."""
        text = f"difflang: {type(error).__name__}: {error}"
        self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, text))

    async def settled(self) -> None:
        """Wait until what was typed is checked, but not for long."""
        if self.task is not None and not self.task.done():
            await asyncio.wait([self.task], timeout=PATIENCE)

    # ---- Reports

    def publish(self, document: Document) -> None:
        """Tell the editor what is wrong with a document, as far as that is known, if it is still the same."""
        analysis = document.analysis
        if analysis is None or analysis.parts is not document.parts or not document.open:
            return
        places = self.places(document)
        reports = [self.report(document, places, d) for d in analysis.diagnostics() if self.own(document, d)]
        params = lsp.PublishDiagnosticsParams(document.uri, reports, document.version)
        self.text_document_publish_diagnostics(params)
        for other in dict.fromkeys(document.imports.values()):
            self.publish_closed(other)

    def publish_closed(self, document: Document) -> None:
        """What is wrong with a file that is imported, and that no editor has open."""
        if document.analysis is None or document.open or document.library:
            return
        places = self.places(document)
        reports = [self.report(document, places, d) for d in document.analysis.diagnostics() if self.own(document, d)]
        if reports or document in self.published:
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, reports))
        self.published = self.published | {document} if reports else self.published - {document}

    def own(self, document: Document, diagnostic: Diagnostic) -> bool:
        at = place(diagnostic.span) if diagnostic.span is not None else None
        return at is None or at[0] is document

    def report(self, document: Document, places: Places, diagnostic: Diagnostic) -> lsp.Diagnostic:
        """A report as editors show it: what is to be said below the first caret in its text, the others beside it."""
        first, *others = diagnostic.labels or [None]
        at = place(first.span) if first is not None else None
        range = places.range(at[1], max(at[2], at[1])) if at is not None else places.range(0, 0)
        lines = [diagnostic.message, *([first.text] if first is not None and first.text else []), *diagnostic.helps]
        related = [r for label in others if label is not None for r in self.related(label.span, label.text)]
        return lsp.Diagnostic(range, "\n".join(lines), SEVERITY[diagnostic.severity], diagnostic.code,
                              source="difflang", related_information=related or None)  # fmt: skip

    def related(self, span: Any, text: str) -> Iterator[lsp.DiagnosticRelatedInformation]:
        at = place(span)
        if at is not None:
            yield lsp.DiagnosticRelatedInformation(self.location(*at), text or "here")

    def location(self, document: Document, start: int, end: int) -> lsp.Location:
        return lsp.Location(document.uri, self.places(document).range(start, end))

    def spot(self, found: Found) -> lsp.Location:
        at = found.piece.place.offset
        return self.location(found.document, at + found.name.span.start, at + found.name.span.end)

    # ---- All files

    def everywhere(self, word: str) -> list[Document]:
        """The documents of the workspace that hold a word, those that no editor has open read from the disk."""
        roots = [to_fs_path(f.uri) for f in self.workspace.folders.values()]
        for root in {Path(r) for r in (*roots, self.workspace.root_path) if r}:
            for path in self.files.below(root, word):
                document = self.files.document(path, self.shown(str(path)))
                if not document.open:
                    self.check_aside(document)
        return [d for d in list(self.files.documents.values()) if not d.library]

    def check_aside(self, document: Document) -> None:
        """Read and check a file that is not open; one that cannot be read has nothing to tell."""
        try:
            self.files.refresh(document)
            self.files.check(document, self.pause(), lambda: None)
        except (DifflangError, Interrupted):
            pass


def at(server: Server, params: Any) -> tuple[Document, int, Places]:
    """The document and offset that a request is about."""
    document = server.document(params.text_document.uri)
    places = server.places(document)
    return document, places.offset(params.position), places


server = Server()


# ---- Texts


@server.feature(lsp.INITIALIZE)
def initialize(ls: Server, params: lsp.InitializeParams) -> None:
    options: Any = params.initialization_options
    path = options.get("path", []) if isinstance(options, dict) else []
    ls.files = Workspace(tuple(Path(p) for p in path if isinstance(p, str)))
    sys.setswitchinterval(SOON)


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
async def did_open(ls: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    ls.open(params.text_document.uri, params.text_document.text, params.text_document.version)


@server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
async def did_change(ls: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    document = ls.document(params.text_document.uri)
    text = document.text
    for change in params.content_changes:
        text = changed(text, change, ls.units)
    document.version = params.text_document.version
    ls.put(document, text)


@server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
async def did_close(ls: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    document = ls.opened.pop(params.text_document.uri, None)
    if document is not None:
        ls.generation += 1
        ls.waiting.pop(document, None)
        ls.files.close(document)
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, []))


@server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
async def did_change_watched(ls: Server, params: lsp.DidChangeWatchedFilesParams) -> None:
    for document in list(ls.opened.values()):
        ls.put(document, document.text)


# ---- What is told


@server.feature(lsp.TEXT_DOCUMENT_HOVER)
async def hover(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    await ls.settled()
    document, offset, places = at(ls, params)
    found = found_at(document, offset)
    text = telling.told(found) if found is not None else ""
    if found is None or not text:
        around = telling.expression(document, offset)
        return lsp.Hover(telling.markdown(around[0]), places.range(*around[1])) if around is not None else None
    with contextlib.suppress(TimeoutError):
        more = await asyncio.wait_for(ls.aside(lambda: telling.gradient(found)), PATIENCE)
        text = f"{text}\n\n{more}" if more else text
    return lsp.Hover(telling.markdown(text), ls.spot(found).range)


@server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
async def inlay_hint(ls: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    await ls.settled()
    document = ls.document(params.text_document.uri)
    places = ls.places(document)
    return list(telling.hints(document, places.offset(params.range.start), places.offset(params.range.end), places))


@server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
async def signature_help(ls: Server, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    document, offset, _ = at(ls, params)
    return telling.call_help(document, offset)


@server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["."]))
async def completion(ls: Server, params: lsp.CompletionParams) -> lsp.CompletionList:
    document, offset, places = at(ls, params)
    return lsp.CompletionList(is_incomplete=False, items=proposals.proposals(document, offset, places))


# ---- Names


@server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
async def definition(ls: Server, params: lsp.DefinitionParams) -> lsp.Location | None:
    await ls.settled()
    document, offset, _ = at(ls, params)
    found = found_at(document, offset)
    goal = target(found) if found is not None else None
    if goal is None:
        return None
    if goal.piece is None or goal.binding is None:
        return ls.location(goal.document, 0, 0)
    return ls.spot(Found(goal.document, goal.piece, goal.binding))


@server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
async def find_references(ls: Server, params: lsp.ReferenceParams) -> list[lsp.Location]:
    await ls.settled()
    document, offset, _ = at(ls, params)
    found = found_at(document, offset)
    goal = target(found) if found is not None else None
    if goal is None:
        return []
    documents = await ls.aside(lambda: ls.everywhere(found.name.name if found is not None else ""))
    declared = params.context.include_declaration
    return [ls.spot(f) for f in references(goal, documents) if declared or f.name is not goal.binding]


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
async def highlight(ls: Server, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
    document, offset, _ = at(ls, params)
    found = found_at(document, offset)
    goal = target(found) if found is not None else None
    if goal is None:
        return []
    spots = [f for f in references(goal, [document]) if f.document is document]
    return [lsp.DocumentHighlight(ls.spot(f).range) for f in spots]


@server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
async def prepare_rename(ls: Server, params: lsp.PrepareRenameParams) -> lsp.Range | None:
    document, offset, _ = at(ls, params)
    found = found_at(document, offset)
    try:
        return ls.spot(found).range if found is not None and changes.renameable(found) else None
    except changes.Refused as why:
        raise JsonRpcInvalidParams(str(why)) from None


@server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
async def rename(ls: Server, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    await ls.settled()
    document, offset, _ = at(ls, params)
    found = found_at(document, offset)
    if found is None:
        return None
    documents = await ls.aside(lambda: ls.everywhere(found.name.name))
    try:
        edits = changes.renamed(found, params.new_name, documents)
    except changes.Refused as why:
        raise JsonRpcInvalidParams(str(why)) from None
    return lsp.WorkspaceEdit({d.uri: changes.edits_of(ls.places(d), found) for d, found in edits.items()})


# ---- Changes


@server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
async def formatting(ls: Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    document = ls.document(params.text_document.uri)
    places = ls.places(document)
    return changes.edits_of(places, await ls.aside(lambda: changes.laid_out(places.source)))


@server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix]))
async def code_action(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    await ls.settled()
    document = ls.document(params.text_document.uri)
    places, pause = ls.places(document), ls.pause()
    start, end = places.offset(params.range.start), places.offset(params.range.end)

    def touches(diagnostic: Diagnostic) -> bool:
        spot = place(diagnostic.span) if diagnostic.span is not None else None
        return spot is not None and spot[0] is document and spot[1] <= end and start <= spot[2]

    def work() -> list[changes.Fix]:
        analysis = document.analysis
        wanted = [d for d in analysis.diagnostics() if touches(d)] if analysis is not None else []
        return changes.fixes(ls.files, document, wanted, pause) if wanted else []

    try:
        found = await ls.aside(work)
    except Interrupted:
        return []
    return [action(ls, document, places, fix) for fix in found]


def action(ls: Server, document: Document, places: Places, fix: changes.Fix) -> lsp.CodeAction:
    edit = lsp.WorkspaceEdit({document.uri: changes.edits_of(places, fix.edits)})
    report = ls.report(document, places, fix.diagnostic)
    return lsp.CodeAction(fix.title, lsp.CodeActionKind.QuickFix, [report], is_preferred=True, edit=edit)


# ---- From afar


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
async def document_symbol(ls: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = ls.document(params.text_document.uri)
    return outline.symbols(document, ls.places(document))


@server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
async def folding_range(ls: Server, params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
    return list(outline.folds(ls.document(params.text_document.uri)))


@server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, LEGEND)
async def semantic_tokens(ls: Server, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
    await ls.settled()
    document = ls.document(params.text_document.uri)
    return lsp.SemanticTokens(outline.colours(document, ls.places(document)))
