"""What a document looks like from afar: its symbols, and what folds."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types as lsp

from difflang.lsp.incremental_parse import Piece
from difflang.lsp.positions import Places
from difflang.lsp.symbol_table import Binding, names_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree
from difflang.syntax.tree_queries import nodes

SYMBOLS = {
    "function": lsp.SymbolKind.Function,
    "record": lsp.SymbolKind.Struct,
    "enum": lsp.SymbolKind.Enum,
    "variant": lsp.SymbolKind.EnumMember,
    "field": lsp.SymbolKind.Field,
    "variable": lsp.SymbolKind.Variable,
    "value": lsp.SymbolKind.Constant,
    "module": lsp.SymbolKind.Module,
    "test": lsp.SymbolKind.Event,
}
FOLDS = (tree.Block, tree.Record, tree.Enum, tree.Match, tree.ArrayExpr, tree.Call, tree.Fn)


# ---- Symbols


def symbols(document: Document, places: Places) -> list[lsp.DocumentSymbol]:
    """The declarations of a file, and what belongs to each."""
    found: list[lsp.DocumentSymbol] = []
    for piece in document.parts:
        made: dict[Binding, lsp.DocumentSymbol] = {}
        for b in names_of(piece).bindings:
            if (b.scope is None or b.kind == "field") and b.kind in SYMBOLS:
                made[b] = symbol(b, piece, places)
                above = made.get(b.inside) if b.inside is not None else None
                (found if above is None else children_of(above)).append(made[b])
    return found


def children_of(above: lsp.DocumentSymbol) -> list[lsp.DocumentSymbol]:
    if not isinstance(above.children, list):
        above.children = []
    return above.children


def symbol(b: Binding, piece: Piece, places: Places) -> lsp.DocumentSymbol:
    at = piece.place.offset
    name = b.span.text.strip('"') or b.name
    whole = places.range(at + min(b.node.span.start, b.span.start), at + max(b.node.span.end, b.span.end))
    detail = ", ".join(p.span.text for p in b.node.params) if isinstance(b.node, tree.Fn) else None
    own = places.range(at + b.span.start, at + b.span.end)
    return lsp.DocumentSymbol(name, SYMBOLS[b.kind], whole, own, f"({detail})" if detail is not None else None)


# ---- Folding


def folds(document: Document) -> Iterator[lsp.FoldingRange]:
    """Blocks, declarations and comments of several lines."""
    seen: set[int] = set()
    for piece in document.parts:
        line = piece.place.line - 1
        for item in piece.items:
            for node in nodes(item):
                if isinstance(node, FOLDS):
                    first, last = (piece.source.position(o)[0] for o in (node.span.start, max(node.span.end - 1, 0)))
                    closes = piece.text[node.span.end - 1 : node.span.end] in ("}", "]", ")")
                    last -= int(closes and last > first + 1)
                    if last > first and first not in seen:
                        seen.add(first)
                        yield lsp.FoldingRange(first - 1, last - 1)
        yield from comment_folds(piece, line + 1)


def comment_folds(piece: Piece, first: int) -> Iterator[lsp.FoldingRange]:
    """Comments of several lines, each on a line of its own."""
    lines = piece.text.split("\n")
    start: int | None = None
    for i, text in enumerate([*lines, ""]):
        comment = text.lstrip().startswith("#")
        if comment and start is None:
            start = i
        elif not comment and start is not None:
            if i - start > 1:
                yield lsp.FoldingRange(first + start, first + i - 1, kind=lsp.FoldingRangeKind.Comment)
            start = None
