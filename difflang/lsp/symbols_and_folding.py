"""Document symbols, folding ranges, and the call hierarchy.

Calls are those of functions and of record and variant constructors; a mere mention counts as a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lsprotocol import types as lsp

from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.name_resolution import Definition, NameOccurrence, definition_of, references
from difflang.lsp.positions import PositionMap
from difflang.lsp.symbol_table import NameBinding, NameUse, symbols_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes

SYMBOL_KINDS = {
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
FOLDABLE_NODES = (tree.Block, tree.Record, tree.Enum, tree.Match, tree.ArrayExpr, tree.Call, tree.Fn)


# ---- Symbols


def document_symbols(document: Document, places: PositionMap) -> list[lsp.DocumentSymbol]:
    """The declarations of a file as a tree."""
    found: list[lsp.DocumentSymbol] = []
    for piece in document.parts:
        made: dict[NameBinding, lsp.DocumentSymbol] = {}
        for b in symbols_of(piece).bindings:
            if (b.scope is None or b.kind == "field") and b.kind in SYMBOL_KINDS:
                made[b] = build_symbol(b, piece, places)
                above = made.get(b.owner) if b.owner is not None else None
                (found if above is None else symbol_children(above)).append(made[b])
    return found


def symbol_children(above: lsp.DocumentSymbol) -> list[lsp.DocumentSymbol]:
    if not isinstance(above.children, list):
        above.children = []
    return above.children


def build_symbol(b: NameBinding, piece: ParsedPart, places: PositionMap) -> lsp.DocumentSymbol:
    at = piece.position.offset
    name = b.span.text.strip('"') or b.name
    whole = places.range(at + min(b.node.span.start, b.span.start), at + max(b.node.span.end, b.span.end))
    detail = ", ".join(p.span.text for p in b.node.params) if isinstance(b.node, tree.Fn) else None
    own = places.range(at + b.span.start, at + b.span.end)
    return lsp.DocumentSymbol(name, SYMBOL_KINDS[b.kind], whole, own, f"({detail})" if detail is not None else None)


# ---- Folding


def folding_ranges(document: Document) -> Iterator[lsp.FoldingRange]:
    """The foldable ranges: blocks, declarations and comments of several lines."""
    seen: set[int] = set()
    for piece in document.parts:
        line = piece.position.line - 1
        for item in piece.items:
            for node in all_nodes(item):
                if isinstance(node, FOLDABLE_NODES):
                    first, last = (piece.source.position(o)[0] for o in (node.span.start, max(node.span.end - 1, 0)))
                    closes = piece.text[node.span.end - 1 : node.span.end] in ("}", "]", ")")
                    # Keep the closing bracket visible.
                    last -= int(closes and last > first + 1)
                    if last > first and first not in seen:
                        seen.add(first)
                        yield lsp.FoldingRange(first - 1, last - 1)
        yield from comment_ranges(piece, line + 1)


def comment_ranges(piece: ParsedPart, first: int) -> Iterator[lsp.FoldingRange]:
    """Comments over several lines, without code beside them."""
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


# ---- Calls


CALLABLE_KINDS = ("function", "record", "variant")
Callers = dict[tuple[Document, NameBinding | None], list[NameOccurrence]]


def callable_at(found: NameOccurrence | None) -> Definition | None:
    """The definition of the name at a position, if it can be called."""
    goal = definition_of(found) if found is not None else None
    return goal if goal is not None and goal.binding is not None and goal.binding.kind in CALLABLE_KINDS else None


def incoming_calls(goal: Definition, documents: Iterable[Document]) -> Callers:
    """The calls of a definition, by the function or test around each; None stands for the statements of a file."""
    found: Callers = {}
    for each in references(goal, documents):
        # Without types any use that may be a call counts.
        if isinstance(each.name, NameUse) and is_call(each.name):
            found.setdefault((each.document, enclosing_function(each.piece, each.name.span.start)), []).append(each)
    return found


def outgoing_calls(goal: Definition) -> dict[NameBinding, tuple[Definition, list[NameOccurrence]]]:
    """The definitions that a function calls, with the places of the calls."""
    found: dict[NameBinding, tuple[Definition, list[NameOccurrence]]] = {}
    if goal.piece is None or goal.binding is None:
        return found
    span = goal.binding.node.span
    for use in symbols_of(goal.piece).uses:
        if (
            is_call(use)
            and span.start <= use.span.start < span.end
            and enclosing_function(goal.piece, use.span.start) is goal.binding
        ):
            here = NameOccurrence(goal.document, goal.piece, use)
            if (called := callable_at(here)) is not None and called.binding is not None:
                found.setdefault(called.binding, (called, []))[1].append(here)
    return found


def is_call(use: NameUse) -> bool:
    """Whether a name is used where it may be called: not in a type, nor in an import."""
    return use.role in ("name", "member") and not isinstance(use.node, (tree.TypeName, tree.TypeApply, tree.TypeCall))


def enclosing_function(piece: ParsedPart, offset: int) -> NameBinding | None:
    """The innermost function or test around an offset of a part."""
    inside = [
        b for b in symbols_of(piece).bindings
        if b.kind in ("function", "test") and b.node.span.start <= offset < b.node.span.end
    ]  # fmt: skip
    return max(inside, key=lambda b: b.node.span.start, default=None)
