"""The language server: what an editor asks, answered from the workspace. Nothing here runs or compiles a program."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from difflang.base.diagnostics import Diagnostic
from difflang.lsp import (
    call_hierarchy,
    completion_items,
    hover_and_hints,
    insert_derivative,
    quick_fixes,
    rename_symbol,
    symbols_and_folding,
)
from difflang.lsp.incremental_check import Interrupted
from difflang.lsp.language_server import PATIENCE, Server
from difflang.lsp.name_resolution import Found, Target, found_at, references, target
from difflang.lsp.positions import Places, changed
from difflang.lsp.semantic_tokens import LEGEND, colours
from difflang.lsp.symbol_table import Binding
from difflang.lsp.workspace import Document, Workspace, place

SOON = 0.001  # seconds between two looks at whether an editor waits while a text is being checked
CHANGED = "the text has changed meanwhile"
DERIVE = "difflang.derive"  # the one command that starts something: a process of its own


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


@server.feature(lsp.SHUTDOWN)
async def shutdown(ls: Server, params: Any) -> None:
    ls.stop()


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
        ls.publish_imported()
        for other in list(ls.opened.values()):  # from now on they see what the disk has
            ls.put(other, other.text)


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
    text = hover_and_hints.told(found) if found is not None else ""
    if found is None or not text:
        around = hover_and_hints.expression(document, offset)
        return lsp.Hover(hover_and_hints.markdown(around[0]), places.range(*around[1])) if around is not None else None
    pause = ls.pause()
    with contextlib.suppress(TimeoutError, Interrupted):
        more = await asyncio.wait_for(ls.aside(lambda: hover_and_hints.gradient(found, pause)), PATIENCE)
        text = f"{text}\n\n{more}" if more else text
    return lsp.Hover(hover_and_hints.markdown(text), ls.spot(found).range)


@server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
async def inlay_hint(ls: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    await ls.settled()
    document = ls.document(params.text_document.uri)
    places = ls.places(document)
    return list(
        hover_and_hints.hints(document, places.offset(params.range.start), places.offset(params.range.end), places)
    )


@server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
async def signature_help(ls: Server, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    document, offset, _ = at(ls, params)
    return hover_and_hints.call_help(document, offset)


@server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["."]))
async def completion(ls: Server, params: lsp.CompletionParams) -> lsp.CompletionList:
    document, offset, places = at(ls, params)
    return lsp.CompletionList(is_incomplete=False, items=completion_items.proposals(document, offset, places))


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
        if found is None or rename_symbol.alias_of(found) is None:
            found = found if found is not None and rename_symbol.renameable(found) else None
        return ls.spot(found).range if found is not None else None
    except rename_symbol.Refused as why:
        raise JsonRpcInvalidParams(str(why)) from None


@server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
async def rename(ls: Server, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    await ls.settled()
    document, offset, _ = at(ls, params)
    found = found_at(document, offset)
    if found is None:
        return None
    pause = ls.pause()

    def work() -> dict[Document, list[rename_symbol.Edit]]:
        edits = rename_symbol.renamed(found, params.new_name, ls.everywhere(found.name.name))
        if edits:
            rename_symbol.prove(ls.files, found, edits, pause)
        return edits

    try:
        edits = await ls.aside(work)
    except rename_symbol.Refused as why:
        raise JsonRpcInvalidParams(str(why)) from None
    except Interrupted:
        raise JsonRpcException(CHANGED, lsp.LSPErrorCodes.ContentModified.value) from None
    return lsp.WorkspaceEdit({d.uri: quick_fixes.edits_of(ls.places(d), found) for d, found in edits.items()})


# ---- Calls


@server.feature(lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY)
async def prepare_calls(ls: Server, params: lsp.CallHierarchyPrepareParams) -> list[lsp.CallHierarchyItem] | None:
    await ls.settled()
    document, offset, _ = at(ls, params)
    goal = call_hierarchy.callable_at(found_at(document, offset))
    if goal is None or goal.binding is None:
        return None
    return [call_item(ls, goal.document, goal.binding)]


@server.feature(lsp.CALL_HIERARCHY_INCOMING_CALLS)
async def incoming_calls(
    ls: Server, params: lsp.CallHierarchyIncomingCallsParams
) -> list[lsp.CallHierarchyIncomingCall]:
    goal = called_again(ls, params.item)
    if goal is None:
        return []
    found = await ls.aside(lambda: call_hierarchy.incoming(goal, ls.everywhere(params.item.name)))
    return [
        lsp.CallHierarchyIncomingCall(call_item(ls, document, around), [ls.spot(f).range for f in places])
        for (document, around), places in found.items()
    ]


@server.feature(lsp.CALL_HIERARCHY_OUTGOING_CALLS)
async def outgoing_calls(
    ls: Server, params: lsp.CallHierarchyOutgoingCallsParams
) -> list[lsp.CallHierarchyOutgoingCall]:
    goal = called_again(ls, params.item)
    found = call_hierarchy.outgoing(goal) if goal is not None else {}
    return [
        lsp.CallHierarchyOutgoingCall(call_item(ls, called.document, b), [ls.spot(f).range for f in places])
        for b, (called, places) in found.items()
    ]


def called_again(ls: Server, item: lsp.CallHierarchyItem) -> Target | None:
    """What an item that an editor has from us stands for by now."""
    for document in list(ls.files.documents.values()):
        if document.uri == item.uri:
            offset = ls.places(document).offset(item.selection_range.start)
            found = found_at(document, offset)
            if found is not None and found.name.name == item.name:
                return call_hierarchy.callable_at(found)
    return None


def call_item(ls: Server, document: Document, binding: Binding | None) -> lsp.CallHierarchyItem:
    """A function, or what else is called; None stands for the statements of a file."""
    spot = place(binding.span) if binding is not None else None
    whole = place(binding.node.span) if binding is not None else None
    if binding is None or spot is None or whole is None:
        first = ls.places(document).range(0, 0)
        return lsp.CallHierarchyItem(document.name, lsp.SymbolKind.File, document.uri, first, first)
    own, all = (ls.location(document, min(start, spot[1]), end).range for _, start, end in (spot, whole))
    name = binding.span.text.strip('"') or binding.name
    return lsp.CallHierarchyItem(
        name, symbols_and_folding.SYMBOLS[binding.kind], document.uri, all, own, detail=document.name
    )


# ---- Changes


@server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
async def formatting(ls: Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    document = ls.document(params.text_document.uri)
    places = ls.places(document)
    return quick_fixes.edits_of(
        places, await asyncio.to_thread(quick_fixes.laid_out, places.source)
    )  # waits for no check


@server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(
    [lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.RefactorRewrite]))  # fmt: skip
async def code_action(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    await ls.settled()
    document = ls.document(params.text_document.uri)
    places, pause = ls.places(document), ls.pause()
    start, end = places.offset(params.range.start), places.offset(params.range.end)

    def touches(diagnostic: Diagnostic) -> bool:
        spot = place(diagnostic.span) if diagnostic.span is not None else None
        return spot is not None and spot[0] is document and spot[1] <= end and start <= spot[2]

    def work() -> list[quick_fixes.Fix]:
        analysis = document.analysis
        wanted = [d for d in analysis.diagnostics() if touches(d)] if analysis is not None else []
        return quick_fixes.fixes(ls.files, document, wanted, pause) if wanted else []

    kinds = params.context.only
    found: list[quick_fixes.Fix] = []
    if kinds is None or lsp.CodeActionKind.QuickFix in kinds:
        with contextlib.suppress(Interrupted):
            found = await ls.aside(work)
    return [*[action(ls, document, places, fix) for fix in found], *derive_action(document, start, kinds)]


def derive_action(document: Document, offset: int, kinds: Any) -> list[lsp.CodeAction]:
    """The offer to write a derivative down; nothing is done before it is taken.

    It stands at a function's head; who asks for refactorings has it anywhere in a function.
    """
    refactor = {lsp.CodeActionKind.Refactor, lsp.CodeActionKind.RefactorRewrite, lsp.CodeActionKind.Empty}
    if kinds is not None and refactor.isdisjoint(kinds):
        return []
    b = insert_derivative.derivable(document, offset, within=kinds is not None)
    if b is None:
        return []
    title = f"write the gradient of `{b.name}` below it"
    return [lsp.CodeAction(title, lsp.CodeActionKind.RefactorRewrite,
                           command=lsp.Command(title, DERIVE, arguments=[document.uri, b.name]))]  # fmt: skip


@server.command(DERIVE)
async def derive(ls: Server, uri: str, name: str) -> None:
    """Write a derivative below its function, or say why there is none."""
    document = ls.document(uri)
    before, pause = document.text, ls.pause()
    try:
        written = await insert_derivative.derived(document, name, ls.files.paths)
        if document.text != before:
            raise insert_derivative.Refused(CHANGED)
        at, text = await ls.aside(lambda: insert_derivative.inserted(ls.files, document, name, written, pause))
    except (insert_derivative.Refused, Interrupted) as why:
        ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, f"difflang: {str(why) or CHANGED}"))
        return
    edit = lsp.WorkspaceEdit({document.uri: quick_fixes.edits_of(ls.places(document), [(at, at, text)])})
    ls.workspace_apply_edit(lsp.ApplyWorkspaceEditParams(edit, f"the gradient of {name}"))


def action(ls: Server, document: Document, places: Places, fix: quick_fixes.Fix) -> lsp.CodeAction:
    edit = lsp.WorkspaceEdit({document.uri: quick_fixes.edits_of(places, fix.edits)})
    report = ls.report(document, places, fix.diagnostic)
    return lsp.CodeAction(fix.title, lsp.CodeActionKind.QuickFix, [report], is_preferred=fix.sure, edit=edit)


# ---- From afar


@server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
async def document_symbol(ls: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = ls.document(params.text_document.uri)
    return symbols_and_folding.symbols(document, ls.places(document))


@server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
async def folding_range(ls: Server, params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
    return list(symbols_and_folding.folds(ls.document(params.text_document.uri)))


@server.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, LEGEND)
async def semantic_tokens(ls: Server, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
    await ls.settled()
    document = ls.document(params.text_document.uri)
    return lsp.SemanticTokens(colours(document, ls.places(document)))
