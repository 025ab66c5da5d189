"""Completion items while typing: those of an interactive session, with the names of the file and its blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lsprotocol import types as lsp

from difflang.base.package_data import stdlib_modules
from difflang.elaborate.calls.builtin_registry import BUILTINS, TRANSFORM_NAMES
from difflang.elaborate.module_declarations import load_prelude
from difflang.elaborate.module_imports import import_names
from difflang.elaborate.reports.name_errors import CONSTANTS
from difflang.host.builtin_registry import HOST_BUILTINS
from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.name_resolution import document_part_at, resolve_in_file
from difflang.lsp.positions import PositionMap
from difflang.lsp.symbol_table import NameBinding, symbols_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree
from difflang.tools.completion_candidates import CompletionNames, complete
from difflang.tools.emit import declared_signature
from difflang.tools.session_queries import record_at_path
from difflang.types.language_types import LangType, RecordType, show_type

ITEM_KINDS = {
    "value": lsp.CompletionItemKind.Variable,
    "function": lsp.CompletionItemKind.Function,
    "record": lsp.CompletionItemKind.Struct,
    "variant": lsp.CompletionItemKind.EnumMember,
    "module": lsp.CompletionItemKind.Module,
    "word": lsp.CompletionItemKind.Keyword,
    "builtin": lsp.CompletionItemKind.Function,
}
KIND_ALIASES = {"parameter": "value", "variable": "value", "size": "value", "type": "value", "enum": "record"}
IMPORT_LINE = re.compile(r"^\s*import\s+(\w*)$")
TypedNames = Mapping[str, tuple[str, str]]


def complete_at(document: Document, offset: int, places: PositionMap) -> list[lsp.CompletionItem]:
    """The completions at a position, likeliest first."""
    piece = document_part_at(document, offset)
    if piece is None:
        return []
    here = offset - piece.position.offset
    before = piece.text[:here]
    line = before.rsplit("\n", 1)[-1]
    if (importing := IMPORT_LINE.match(line)) is not None:
        modules = [name for name in stdlib_modules() if name.startswith(importing[1])]
        return [completion_item(name, "module", "", i, places.range(offset - len(importing[1]), offset))
                for i, name in enumerate(modules)]  # fmt: skip
    around = CompletionScope(document, piece, here)
    known = around.visible_names()
    names = CompletionNames(known, around.fields, around.parameters)
    found = complete(before, names)
    # After a dot the words are members, which `known` does not list.
    kinds = known if found and "." not in line[-1 - (here - found[0].start) :] else {}
    start = piece.position.offset
    return [
        completion_item(c.word, kinds.get(c.word, ("value", ""))[0], c.detail, i, places.range(start + c.start, offset))
        for i, c in enumerate(found)
    ]


def completion_item(name: str, kind: str, beside: str, rank: int, replaced: lsp.Range) -> lsp.CompletionItem:
    """One completion. Editors sort by `sort_text`, which keeps our order."""
    edit = lsp.TextEdit(replaced, name)
    return lsp.CompletionItem(
        name, kind=ITEM_KINDS[kind], detail=beside or None, sort_text=f"{rank:04}", text_edit=edit
    )


class CompletionScope:
    """The names visible at an offset of a part."""

    def __init__(self, document: Document, piece: ParsedPart, here: int) -> None:
        self.document, self.piece, self.offset = document, piece, here
        known = piece.latest_result
        self.types: dict[str, LangType] = known.named() if known is not None else {}

    def visible_names(self) -> dict[str, tuple[str, str]]:
        """Every visible name with its kind and its type as text: of the enclosing blocks, the file, the language."""
        builtins = (*load_prelude().fns, *BUILTINS, *HOST_BUILTINS, *TRANSFORM_NAMES, *CONSTANTS)
        found = {name: ("builtin", "") for name in builtins if name.isidentifier()}
        for it, other in self.document.imports.items():
            found |= dict.fromkeys(import_names(it)[len(it.names) :], ("module", "module"))
            found |= dict.fromkeys(it.names, ("function", f"of {other.name}"))
        for part in self.document.parts:
            for b in symbols_of(part).file_bindings():
                if b.kind != "test":
                    found[b.name] = self.describe_binding(b, part)
        seen = symbols_of(self.piece).visible_at(self.offset)
        # A part that does not parse has no scopes: take the names mentioned above the cursor.
        if not seen:
            seen = dict.fromkeys(n for n in self.types if re.search(rf"\b{n}\b", self.piece.text[: self.offset]))
        for name, b in seen.items():
            type = self.types.get(name)
            kind = KIND_ALIASES.get(b.kind, b.kind) if b is not None else "value"
            found[name] = (kind, show_type(type) if type is not None else found.get(name, ("", ""))[1])
        return found

    def describe_binding(self, b: NameBinding, part: ParsedPart) -> tuple[str, str]:
        match b.node:
            case tree.Fn():
                return "function", declared_signature(b.node).removeprefix("fn ")
            case tree.Record() | tree.Enum():
                return "record", "record" if isinstance(b.node, tree.Record) else "enum"
            case tree.Variant():
                return "variant", f"variant of {b.owner.name}" if b.owner is not None else ""
            case _:
                known = part.latest_result
                var = known.host.get(b.name) if known is not None else None
                return KIND_ALIASES.get(b.kind, b.kind), show_type(var.type) if var is not None else ""

    def record_type(self, path: str) -> RecordType | None:
        """The record type of a path `a.b.c`."""
        first, *rest = [name.strip() for name in path.split(".")]
        type = self.types.get(first)
        if type is None:
            hosts = [
                p.latest_result.host[first]
                for p in self.document.parts
                if p.latest_result is not None and first in p.latest_result.host
            ]
            type = hosts[-1].type if hosts else None
        return record_at_path(type, rest) if type is not None else None

    def fields(self, path: str) -> TypedNames:
        """The names that can follow `path.`: the fields of a record, or the public names of a module."""
        type = self.record_type(path)
        if type is not None:
            return {n: ("value", show_type(t)) for n, t in zip(type.names, type.fields, strict=True)}
        goal = resolve_in_file(self.document, path)
        if goal is None or goal.binding is not None:
            return {}
        offered: dict[str, tuple[str, str]] = {}
        for part in goal.document.parts:
            public = {n for i in part.items if getattr(i, "pub", False) for n in part.declares}
            offered |= {
                b.name: self.describe_binding(b, part) for b in symbols_of(part).file_bindings() if b.name in public
            }
        return offered

    def parameters(self, name: str) -> tuple[str, ...]:
        """The declared parameter types of a call: `x.f(y)` is `f(x, y)`."""
        owner, point, last = name.rpartition(".")
        goal = resolve_in_file(self.document, owner) if point else None
        of_module = goal is not None and goal.binding is None
        goal = resolve_in_file(goal.document if goal is not None and of_module else self.document, last)
        node = goal.binding.node if goal is not None and goal.binding is not None else None
        params = node.params[bool(point) and not of_module :] if isinstance(node, tree.Fn) else ()
        return tuple(p.type.span.text if p.type else "" for p in params)
