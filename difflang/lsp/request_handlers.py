"""The request handlers of the language server. Nothing here runs or compiles a program."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from difflang.base.diagnostics import Diagnostic
from difflang.lsp import code_actions, completion_items, hover_and_hints, rename_symbol, symbols_and_folding
from difflang.lsp.incremental_check import CheckCancelled
from difflang.lsp.language_server import CHECK_TIMEOUT, TEXT_CHANGED, DifflangServer, content_modified
from difflang.lsp.name_resolution import Definition, NameOccurrence, definition_of, occurrence_at, references
from difflang.lsp.positions import PositionMap, apply_change
from difflang.lsp.semantic_tokens import LEGEND, encode_tokens
from difflang.lsp.symbol_table import NameBinding
from difflang.lsp.workspace import Document, Workspace, document_range

# Seconds between thread switches, so that requests do not wait for a running check.
SWITCH_INTERVAL = 0.001
DERIVE_COMMAND = "difflang.derive"  # the only command that starts a process


def request_position(server: DifflangServer, params: Any) -> tuple[Document, int, PositionMap]:
    """The document and offset of a request."""
    document = server.document(params.text_document.uri)
    places = server.places(document)
    return document, places.offset(params.position), places


server = DifflangServer()


# ---- Documents


@server.feature(lsp.INITIALIZE)
def initialize(ls: DifflangServer, params: lsp.InitializeParams) -> None:
    options: Any = params.initialization_options
    path = options.get("path", []) if isinstance(options, dict) else []
    ls.files = Workspace(tuple(Path(p) for p in path if isinstance(p, str)))
    sys.setswitchinterval(SWITCH_INTERVAL)


@server.feature(lsp.SHUTDOWN)
async def shutdown(ls: DifflangServer, params: Any) -> None:
    ls.stop()


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
async def did_open(ls: DifflangServer, params: lsp.DidOpenTextDocumentParams) -> None:
    ls.open(params.text_document.uri, params.text_document.text, params.text_document.version)


@server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
async def did_change(ls: DifflangServer, params: lsp.DidChangeTextDocumentParams) -> None:
    document = ls.document(params.text_document.uri)
    text = document.text
    for change in params.content_changes:
        text = apply_change(text, change, ls.units)
    document.version = params.text_document.version
    ls.set_text(document, text)


@server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
async def did_close(ls: DifflangServer, params: lsp.DidCloseTextDocumentParams) -> None:
    document = ls.opened.pop(params.text_document.uri, None)
    if document is not None:
        ls.generation += 1
        ls.pending.pop(document, None)
        ls.files.close(document)
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, []))
        ls.publish_imported()
        for other in list(ls.opened.values()):  # importers now see the file on disk
            ls.set_text(other, other.text)


@server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
async def did_change_watched(ls: DifflangServer, params: lsp.DidChangeWatchedFilesParams) -> None:
    for document in list(ls.opened.values()):
        ls.set_text(document, document.text)


# ---- Hover, hints and completion


@server.feature(lsp.TEXT_DOCUMENT_HOVER)
async def hover(ls: DifflangServer, params: lsp.HoverParams) -> lsp.Hover | None:
    await ls.wait_for_check(params.text_document.uri)
    document, offset, places = request_position(ls, params)
    found = occurrence_at(document, offset)
    text = hover_and_hints.name_hover(found) if found is not None else ""
    if found is None or not text:
        around = hover_and_hints.expression_hover(document, offset)
        if around is None:
            return None
        return lsp.Hover(hover_and_hints.markdown_content(around[0]), places.range(*around[1]))
    pause = ls.cancellation_check()
    with contextlib.suppress(TimeoutError, CheckCancelled):
        more = await asyncio.wait_for(ls.aside(lambda: hover_and_hints.gradient_hover(found, pause)), CHECK_TIMEOUT)
        text = f"{text}\n\n{more}" if more else text
    return lsp.Hover(hover_and_hints.markdown_content(text), ls.spot(found).range)


@server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
async def inlay_hint(ls: DifflangServer, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    await ls.wait_for_check(params.text_document.uri)
    document = ls.document(params.text_document.uri)
    places = ls.places(document)
    return list(
        hover_and_hints.inlay_hints(
            document, places.offset(params.range.start), places.offset(params.range.end), places
        )
    )


@server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
async def signature_help(ls: DifflangServer, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    document, offset, _ = request_position(ls, params)
    return hover_and_hints.signature_help(document, offset)


@server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["."]))
async def completion(ls: DifflangServer, params: lsp.CompletionParams) -> lsp.CompletionList:
    document, offset, places = request_position(ls, params)
    return lsp.CompletionList(is_incomplete=False, items=completion_items.complete_at(document, offset, places))


# ---- Names


@server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
async def definition(ls: DifflangServer, params: lsp.DefinitionParams) -> lsp.Location | None:
    await ls.wait_for_check(params.text_document.uri)
    document, offset, _ = request_position(ls, params)
    found = occurrence_at(document, offset)
    goal = definition_of(found) if found is not None else None
    if goal is None:
        return None
    if goal.piece is None or goal.binding is None:
        return ls.location(goal.document, 0, 0)
    return ls.spot(NameOccurrence(goal.document, goal.piece, goal.binding))


@server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
async def find_references(ls: DifflangServer, params: lsp.ReferenceParams) -> list[lsp.Location]:
    await ls.wait_for_check(params.text_document.uri)
    document, offset, _ = request_position(ls, params)
    found = occurrence_at(document, offset)
    goal = definition_of(found) if found is not None else None
    if goal is None:
        return []
    documents = await ls.aside(lambda: ls.documents_containing(found.name.name if found is not None else ""))
    declared = params.context.include_declaration
    return [ls.spot(f) for f in references(goal, documents) if declared or f.name is not goal.binding]


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
async def highlight(ls: DifflangServer, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
    document, offset, _ = request_position(ls, params)
    found = occurrence_at(document, offset)
    goal = definition_of(found) if found is not None else None
    if goal is None:
        return []
    spots = [f for f in references(goal, [document]) if f.document is document]
    return [lsp.DocumentHighlight(ls.spot(f).range) for f in spots]


@server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
async def prepare_rename(ls: DifflangServer, params: lsp.PrepareRenameParams) -> lsp.Range | None:
    document, offset, _ = request_position(ls, params)
    found = occurrence_at(document, offset)
    try:
        if found is None or rename_symbol.import_alias(found) is None:
            found = found if found is not None and rename_symbol.rename_target(found) else None
        return ls.spot(found).range if found is not None else None
    except rename_symbol.RenameRefused as why:
        raise JsonRpcInvalidParams(str(why)) from None


@server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
async def rename(ls: DifflangServer, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    await ls.wait_for_check(params.text_document.uri)
    document, offset, _ = request_position(ls, params)
    found = occurrence_at(document, offset)
    if found is None:
        return None
    pause = ls.cancellation_check()

    def work() -> dict[Document, list[rename_symbol.RenameEdit]]:
        edits = rename_symbol.rename_edits(found, params.new_name, ls.documents_containing(found.name.name))
        if edits:
            rename_symbol.verify_rename(ls.files, found, edits, pause)
        return edits

    try:
        edits = await ls.aside(work)
    except rename_symbol.RenameRefused as why:
        raise JsonRpcInvalidParams(str(why)) from None
    except CheckCancelled:
        raise content_modified() from None
    return lsp.WorkspaceEdit({d.uri: code_actions.text_edits(ls.places(d), found) for d, found in edits.items()})


# ---- Call hierarchy


@server.feature(lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY)
async def prepare_calls(
    ls: DifflangServer, params: lsp.CallHierarchyPrepareParams
) -> list[lsp.CallHierarchyItem] | None:
    await ls.wait_for_check(params.text_document.uri)
    document, offset, _ = request_position(ls, params)
    goal = symbols_and_folding.callable_at(occurrence_at(document, offset))
    if goal is None or goal.binding is None:
        return None
    return [call_item(ls, goal.document, goal.binding)]


@server.feature(lsp.CALL_HIERARCHY_INCOMING_CALLS)
async def incoming_calls(
    ls: DifflangServer, params: lsp.CallHierarchyIncomingCallsParams
) -> list[lsp.CallHierarchyIncomingCall]:
    goal = resolve_call_item(ls, params.item)
    if goal is None:
        return []
    found = await ls.aside(lambda: symbols_and_folding.incoming_calls(goal, ls.documents_containing(params.item.name)))
    return [
        lsp.CallHierarchyIncomingCall(call_item(ls, document, around), [ls.spot(f).range for f in places])
        for (document, around), places in found.items()
    ]


@server.feature(lsp.CALL_HIERARCHY_OUTGOING_CALLS)
async def outgoing_calls(
    ls: DifflangServer, params: lsp.CallHierarchyOutgoingCallsParams
) -> list[lsp.CallHierarchyOutgoingCall]:
    goal = resolve_call_item(ls, params.item)
    found = symbols_and_folding.outgoing_calls(goal) if goal is not None else {}
    return [
        lsp.CallHierarchyOutgoingCall(call_item(ls, called.document, b), [ls.spot(f).range for f in places])
        for b, (called, places) in found.items()
    ]


def resolve_call_item(ls: DifflangServer, item: lsp.CallHierarchyItem) -> Definition | None:
    """The current definition of an item that the editor got earlier."""
    for document in list(ls.files.documents.values()):
        if document.uri == item.uri:
            offset = ls.places(document).offset(item.selection_range.start)
            found = occurrence_at(document, offset)
            if found is not None and found.name.name == item.name:
                return symbols_and_folding.callable_at(found)
    return None


def call_item(ls: DifflangServer, document: Document, binding: NameBinding | None) -> lsp.CallHierarchyItem:
    """The item of a function or constructor; None stands for the statements of a file."""
    spot = document_range(binding.span) if binding is not None else None
    whole = document_range(binding.node.span) if binding is not None else None
    if binding is None or spot is None or whole is None:
        first = ls.places(document).range(0, 0)
        return lsp.CallHierarchyItem(document.name, lsp.SymbolKind.File, document.uri, first, first)
    own, all = (ls.location(document, min(start, spot[1]), end).range for _, start, end in (spot, whole))
    name = binding.span.text.strip('"') or binding.name
    return lsp.CallHierarchyItem(
        name, symbols_and_folding.SYMBOL_KINDS[binding.kind], document.uri, all, own, detail=document.name
    )


# ---- Formatting and code actions


@server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
async def formatting(ls: DifflangServer, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    document = ls.document(params.text_document.uri)
    places = ls.places(document)
    return code_actions.text_edits(places, await ls.format(document))


@server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(
    [lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.RefactorRewrite]))  # fmt: skip
async def code_action(ls: DifflangServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    await ls.wait_for_check(params.text_document.uri)
    document = ls.document(params.text_document.uri)
    places, pause = ls.places(document), ls.cancellation_check()
    start, end = places.offset(params.range.start), places.offset(params.range.end)

    def touches(diagnostic: Diagnostic) -> bool:
        spot = document_range(diagnostic.span) if diagnostic.span is not None else None
        return spot is not None and spot[0] is document and spot[1] <= end and start <= spot[2]

    def work() -> list[code_actions.QuickFix]:
        analysis = document.analysis
        selected = [d for d in analysis.diagnostics() if touches(d)] if analysis is not None else []
        return code_actions.verified_fixes(ls.files, document, selected, pause) if selected else []

    kinds = params.context.only
    found: list[code_actions.QuickFix] = []
    if kinds is None or lsp.CodeActionKind.QuickFix in kinds:
        with contextlib.suppress(CheckCancelled):
            found = await ls.aside(work)
    return [*[quick_fix_action(ls, document, places, fix) for fix in found], *derive_action(document, start, kinds)]


def derive_action(document: Document, offset: int, kinds: Any) -> list[lsp.CodeAction]:
    """The code action that inserts a derivative; nothing is computed until it is chosen.

    By default it is offered at a function's head; an explicit request for refactorings gets it anywhere in a function.
    """
    refactor = {lsp.CodeActionKind.Refactor, lsp.CodeActionKind.RefactorRewrite, lsp.CodeActionKind.Empty}
    if kinds is not None and refactor.isdisjoint(kinds):
        return []
    b = code_actions.derivable_function(document, offset, within=kinds is not None)
    if b is None:
        return []
    title = f"insert the gradient of `{b.name}` below it"
    return [lsp.CodeAction(title, lsp.CodeActionKind.RefactorRewrite,
                           command=lsp.Command(title, DERIVE_COMMAND, arguments=[document.uri, b.name]))]  # fmt: skip


@server.command(DERIVE_COMMAND)
async def derive(ls: DifflangServer, uri: str, name: str) -> None:
    """Insert a derivative below its function, or show why there is none."""
    document = ls.document(uri)
    before, pause = document.text, ls.cancellation_check()
    try:
        written = await code_actions.run_derive(document, name, ls.files.paths)
        if document.text != before:
            raise code_actions.DeriveRefused(TEXT_CHANGED)
        at, text = await ls.aside(lambda: code_actions.derivative_edit(ls.files, document, name, written, pause))
    except (code_actions.DeriveRefused, CheckCancelled) as why:
        ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, f"difflang: {str(why) or TEXT_CHANGED}"))
        return
    edit = lsp.WorkspaceEdit({document.uri: code_actions.text_edits(ls.places(document), [(at, at, text)])})
    ls.workspace_apply_edit(lsp.ApplyWorkspaceEditParams(edit, f"the gradient of {name}"))


def quick_fix_action(
    ls: DifflangServer, document: Document, places: PositionMap, fix: code_actions.QuickFix
) -> lsp.CodeAction:
    edit = lsp.WorkspaceEdit({document.uri: code_actions.text_edits(places, fix.edits)})
    report = ls.lsp_diagnostic(document, places, fix.diagnostic)
    return lsp.CodeAction(fix.title, lsp.CodeActionKind.QuickFix, [report], is_preferred=fix.sure, edit=edit)


# ---- Symbols, folding and semantic tokens


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
async def document_symbol(ls: DifflangServer, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = ls.document(params.text_document.uri)
    return symbols_and_folding.document_symbols(document, ls.places(document))


@server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
async def folding_range(ls: DifflangServer, params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
    return list(symbols_and_folding.folding_ranges(ls.document(params.text_document.uri)))


@server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, LEGEND)
async def semantic_tokens(ls: DifflangServer, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
    await ls.wait_for_check(params.text_document.uri)
    document = ls.document(params.text_document.uri)
    return lsp.SemanticTokens(encode_tokens(document, ls.places(document)))
