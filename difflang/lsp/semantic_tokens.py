"""Semantic tokens: the kind of each name, for highlighting beyond an editor's grammar.

The modifier of a size is one of eight, chosen by its name, so that a theme can show `n` in the same colour everywhere.
Names that are differentiated have a modifier too; see `differentiated_names`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from lsprotocol import types as lsp

from difflang.lsp.differentiated_names import differentiated_bindings
from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.name_resolution import NameOccurrence, definition_of
from difflang.lsp.positions import PositionMap
from difflang.lsp.symbol_table import NameBinding, NameUse, symbols_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree

SIZE_COLOURS = 8  # the hash of a name gives each of `n m k d h i o b` a different one
TYPES = ("function", "struct", "enum", "enumMember", "property", "parameter", "variable", "typeParameter", "namespace")
MODIFIERS = (
    "declaration", "readonly", "defaultLibrary", "differentiated", *[f"dim{i}" for i in range(1, SIZE_COLOURS + 1)],
)  # fmt: skip
LEGEND = lsp.SemanticTokensLegend(list(TYPES), list(MODIFIERS))
TOKEN_TYPE_OF = {
    "function": "function", "record": "struct", "enum": "enum", "variant": "enumMember", "field": "property",
    "parameter": "parameter", "value": "variable", "variable": "variable", "size": "typeParameter",
    "type": "typeParameter", "module": "namespace",
}  # fmt: skip
READONLY = ("value", "parameter", "size")


def encode_tokens(document: Document, places: PositionMap) -> list[int]:
    """The tokens in the protocol's encoding: five numbers each, with positions relative to the previous token."""
    data: list[int] = []
    line = column = 0
    marked = differentiated_bindings(document)
    for piece in document.parts:
        plain = outside_comments(piece)
        for start, text, type, modifiers in sorted(part_tokens(document, piece, marked)):
            # Examples in doc comments are analysed too, but keep the comment's colour.
            if plain(start):
                at = places.position(piece.position.offset + start)
                step = at.character - (column if at.line == line else 0)
                data += [at.line - line, step, places.units(text), type, modifiers]
                line, column = at.line, at.character
    return data


def outside_comments(piece: ParsedPart) -> Callable[[int], bool]:
    """A test whether an offset of a part lies outside comments, which keep their colour."""
    spans = sorted((c.start, c.end) for c in piece.comments)
    starts = [start for start, _ in spans]

    def is_code(at: int) -> bool:
        i = bisect_right(starts, at) - 1
        return i < 0 or spans[i][1] <= at

    return is_code


def part_tokens(document: Document, piece: ParsedPart, marked: set[NameBinding]) -> Iterator[tuple[int, str, int, int]]:
    """The names of a part: offset, text, type index, and modifier bits."""
    names = symbols_of(piece)
    # A name that is both a binding and a use counts once.
    seen: set[int] = set()
    for each in (*names.bindings, *names.uses):
        if each.span.start in seen or "\n" in each.span.text or (isinstance(each, NameBinding) and each.kind == "test"):
            continue
        goal = each if isinstance(each, NameBinding) else token_binding(document, piece, each)
        if goal is None:
            continue
        seen.add(each.span.start)
        kind = "module" if isinstance(goal, str) else "size" if is_size_binding(goal) else goal.kind
        modifiers = {"declaration"} if isinstance(each, NameBinding) else set[str]()
        if kind in READONLY:
            modifiers.add("readonly")
        if kind == "size":
            modifiers.add(size_modifier(each.name))
        if isinstance(goal, NameBinding):
            modifiers |= {"defaultLibrary"} if is_library_binding(goal) else set()
            modifiers |= {"differentiated"} if goal in marked else set()
        yield each.span.start, each.span.text, TYPES.index(TOKEN_TYPE_OF[kind]), modifier_bits(modifiers)


def modifier_bits(modifiers: set[str]) -> int:
    return sum(1 << MODIFIERS.index(name) for name in modifiers)


def is_size_binding(binding: NameBinding) -> bool:
    """Whether a name is a size: a name in a type, or a parameter `n: dim`."""
    node = binding.node
    declared = isinstance(node, tree.Param) and isinstance(node.type, tree.TypeName) and node.type.path == ("dim",)
    return binding.kind == "size" or (declared and binding.kind == "parameter")


def size_modifier(name: str) -> str:
    """The modifier of a size, a hash of its name."""
    return f"dim{1 + sum(map(ord, name)) % SIZE_COLOURS}"


def token_binding(document: Document, piece: ParsedPart, use: NameUse) -> NameBinding | str | None:
    """The meaning of a name: a binding, a module, or None if it is not declared."""
    goal = definition_of(NameOccurrence(document, piece, use))
    if goal is None:
        return None
    return goal.binding if goal.binding is not None else "module"


def is_library_binding(binding: NameBinding) -> bool:
    whole = binding.span.source.document
    return isinstance(whole, Document) and whole.library
