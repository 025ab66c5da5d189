"""Name resolution across the workspace: definitions of names, and all references to a definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import TRANSFORM_NAMES
from difflang.elaborate.module_imports import import_names
from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.symbol_table import NameBinding, NameUse, SymbolTable, symbols_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree
from difflang.tools.session_queries import record_at_path
from difflang.types.language_types import LangType, RecordType, SumType, VariantType

# The longest chain of derivative operators and `let`s of functions that is followed.
MAX_LOOKTHROUGH = 20


class Definition(Struct, frozen=True):
    """A declaration: the binding in its document; for a module, the document alone."""

    document: Document
    piece: ParsedPart | None = None
    binding: NameBinding | None = None


class NameOccurrence(Struct, frozen=True):
    """A name at a position of a document, where it is bound or mentioned."""

    document: Document
    piece: ParsedPart
    name: NameBinding | NameUse


def document_part_at(document: Document, offset: int) -> ParsedPart | None:
    """The part around an offset; the end of a part belongs to it, not to the next one."""
    for piece in document.parts:
        if piece.position.offset <= offset < piece.position.offset + len(piece.text):
            return piece
    return document.parts[-1] if document.parts else None


def occurrence_at(document: Document, offset: int) -> NameOccurrence | None:
    """The name at an offset."""
    piece = document_part_at(document, offset)
    if piece is None:
        return None
    name = symbols_of(piece).name_at(offset - piece.position.offset)
    return NameOccurrence(document, piece, name) if name is not None else None


def type_at(piece: ParsedPart, start: int, end: int) -> LangType | None:
    """The type of a range as of the last check; if that had errors, as of the last good one."""
    found = piece.result.types.get((start, end)) if piece.result is not None else None
    if found is not None or piece.last_good is None:
        return found
    if piece.last_good.source.text == piece.text:
        return piece.last_good.types.get((start, end))
    return piece.last_good.named().get(piece.text[start:end]) if piece.result is None or piece.has_errors else None


# ---- From a name to its declaration


def definition_of(found: NameOccurrence) -> Definition | None:
    """The definition of a name; None for a builtin or an undeclared name."""
    name, document, piece = found.name, found.document, found.piece
    if isinstance(name, NameBinding):
        return binding_definition(document, piece, name)
    match name.role:
        case "member":
            return resolve_member(found, name)
        case "argument":
            return resolve_argument(found, name)
        case "wrt":
            return resolve_wrt(found, name)
        case "import":
            other = document.imports.get(name.node) if isinstance(name.node, tree.Import) else None
            return file_declaration(other, name.name) if other is not None else None
        case _:
            if name.binding is not None:
                return binding_definition(document, piece, name.binding)
            return resolve_in_file(document, name.name, piece)


def binding_definition(document: Document, piece: ParsedPart, binding: NameBinding) -> Definition:
    """The definition of a binding; for a parameter of a rule, that of its function's parameter with the same name."""
    for item in piece.items if binding.kind == "parameter" else ():
        if isinstance(item, tree.Rule) and any(binding.node is p for p in item.params):
            fn = resolve_in_file(document, item.name, piece)
            node = fn.binding.node if fn is not None and fn.binding is not None else None
            mine = inner_definition(fn.document, node, binding.name) if fn is not None else None
            return mine or Definition(document, piece, binding)
    return Definition(document, piece, binding)


def resolve_in_file(document: Document, name: str, near: ParsedPart | None = None) -> Definition | None:
    """The definition of a name in a file: its own declaration, the last one above, or an import."""
    if (mine := file_declaration(document, name, near)) is not None:
        return mine if mine.binding is None or mine.binding.kind != "module" else imported_module(document, name)
    for item, other in document.imports.items():
        if name in item.names:
            return file_declaration(other, name)
    return imported_module(document, name)


def imported_module(document: Document, name: str) -> Definition | None:
    """The module that a file imports under this name."""
    for item, other in document.imports.items():
        if name in import_names(item)[len(item.names) :]:
            return Definition(other)
    return None


def file_declaration(document: Document, name: str, near: ParsedPart | None = None) -> Definition | None:
    """The declaration of a name in a file: the last one at or above a part, else the next one below."""
    declared, order = declaration_index(document)
    best: Definition | None = None
    last = order.get(near, len(order)) if near is not None else len(order)
    for piece, b in declared.get(name, ()):
        if best is not None and order[piece] > last:
            break
        best = Definition(document, piece, b)
    return best


DeclarationIndex = tuple[dict[str, list[tuple[ParsedPart, NameBinding]]], dict[ParsedPart, int]]


def declaration_index(document: Document) -> DeclarationIndex:
    """The names that a file declares, and the order of its parts; cached per text."""
    if document.declaration_cache is None or document.declaration_cache[0] is not document.parts:
        declared: dict[str, list[tuple[ParsedPart, NameBinding]]] = {}
        for piece in document.parts:
            for b in symbols_of(piece).file_bindings():
                if b.kind != "test":
                    declared.setdefault(b.name, []).append((piece, b))
        document.declaration_cache = document.parts, (declared, {piece: i for i, piece in enumerate(document.parts)})
    found: DeclarationIndex = document.declaration_cache[1]
    return found


def resolve_member(found: NameOccurrence, use: NameUse) -> Definition | None:
    """`m.f` of a module, `x.w` of a record, `x.f()` of a function."""
    if isinstance(use.node, (tree.TypeName, tree.TypeApply, tree.TypeCall, tree.VariantPattern)):
        other = imported_module(found.document, use.node.path[0])
        return file_declaration(other.document, use.name) if other is not None else None
    assert isinstance(use.node, tree.Member)
    base = use.node.base
    if isinstance(base, tree.Name) and local_binding(symbols_of(found.piece), base.span) is None:
        other = resolve_in_file(found.document, base.id, found.piece)
        if other is not None and other.binding is None:
            return file_declaration(other.document, use.name)
    type = type_at(found.piece, base.span.start, base.span.end) or path_type(found, base)
    if type is not None and (there := field_definition(type, use.name)) is not None:
        return there
    local = symbols_of(found.piece).visible_at(use.span.start).get(use.name)
    if local is not None and local.kind != "size":
        return binding_definition(found.document, found.piece, local)
    return resolve_in_file(found.document, use.name, found.piece)


def path_type(found: NameOccurrence, base: tree.Expr) -> LangType | None:
    """The type of `m.w` by the declaration of `m`; in `grad[m.w.x](f)` that is a parameter of `f`."""
    path: list[str] = []
    while isinstance(base, tree.Member):
        path.insert(0, base.name)
        base = base.base
    if not isinstance(base, tree.Name):  # the result of a call has no declaration here
        return None
    use = symbols_of(found.piece).mentioned().get(base.span.start)
    goal = definition_of(NameOccurrence(found.document, found.piece, use)) if use is not None else None
    type = declared_type(goal) if goal is not None else None
    return record_at_path(type, path) if type is not None else None


def declared_type(goal: Definition) -> LangType | None:
    """The type of a name at its binding."""
    if goal.piece is None or goal.binding is None:
        return None
    known, span = goal.piece.latest_result, goal.binding.span
    return type_at(goal.piece, span.start, span.end) or (known.named().get(span.text) if known is not None else None)


def local_binding(names: SymbolTable, span: Span) -> NameBinding | None:
    """The binding within the part of a name mentioned at a span."""
    use = names.mentioned().get(span.start)
    return use.binding if use is not None else None


def field_definition(type: LangType, name: str) -> Definition | None:
    """The declaration of a field of a record, or of a variant."""
    decls = [v.decl for v in type.variants] if isinstance(type, SumType) else [getattr(type, "decl", None)]
    if isinstance(type, (RecordType, VariantType, SumType)):
        for decl in decls:
            whole = decl.span.source.document if decl is not None else None
            if isinstance(whole, Document) and (there := inner_definition(whole, decl, name)) is not None:
                return there
    return None


def inner_definition(document: Document, decl: tree.Node | None, name: str) -> Definition | None:
    """The field or parameter with this name of a declaration in a document."""
    for piece in document.parts:
        if decl is not None and piece.source is decl.span.source:
            for b in symbols_of(piece).bindings:
                mine = b.kind in ("field", "parameter") and b.name == name
                if mine and decl.span.start <= b.span.start < decl.span.end and belongs_to(b, decl):
                    return Definition(document, piece, b)
    return None


def belongs_to(b: NameBinding, decl: tree.Node) -> bool:
    """Whether a field or parameter belongs to the declaration itself, not to something nested in it."""
    if isinstance(decl, (tree.Fn, tree.Lambda)):
        return any(b.node is p for p in decl.params)
    return b.owner is not None and (b.owner.node is decl or isinstance(decl, tree.Enum))


def resolve_argument(found: NameOccurrence, use: NameUse) -> Definition | None:
    """`x` in `f(x = 1)`: the parameter; in `P(x = 1)` or `p with (x = 1)`, the field."""
    if isinstance(use.node, tree.With):
        base = use.node.base
        type = type_at(found.piece, base.span.start, base.span.end)
        return field_definition(type, use.name) if type is not None else None
    assert isinstance(use.node, tree.Call)
    called = callee_declaration(found.document, found.piece, use.node.fn)
    return inner_definition(*called, use.name) if called is not None else None


def resolve_wrt(found: NameOccurrence, use: NameUse) -> Definition | None:
    """`w` in `grad[w](f)`: the parameter of `f`; if the file redefines `grad`, an ordinary name."""
    call = use.node
    assert isinstance(call, tree.Call)
    if resolve_in_file(found.document, operator_name(call.fn)) is not None:
        return resolve_in_file(found.document, use.name, found.piece)
    called = callee_declaration(found.document, found.piece, call.args[0].value) if call.args else None
    return inner_definition(*called, use.name) if called is not None else None


def operator_name(fn: tree.Expr) -> str:
    """`grad` in `grad` and `grad[w]`; empty for another form."""
    base = fn.base if isinstance(fn, tree.Index) else fn
    return base.id if isinstance(base, tree.Name) else ""


def callee_declaration(document: Document, piece: ParsedPart, fn: tree.Node) -> tuple[Document, tree.Node] | None:
    """The declaration of a callee; for a derivative, of the differentiated function, which names its parameters."""
    # `let`s may refer to each other in a circle.
    for _ in range(MAX_LOOKTHROUGH):
        match fn:
            case tree.Lambda():
                return document, fn
            case tree.Prime(base=base):
                fn = base
            case tree.Call(fn=operator, args=(arg, *_)) if operator_name(operator) in TRANSFORM_NAMES:
                fn = arg.value
            case tree.Name() | tree.Member():
                at = fn.name_span if isinstance(fn, tree.Member) else fn.span
                use = symbols_of(piece).mentioned().get(at.start)
                goal = definition_of(NameOccurrence(document, piece, use)) if use is not None else None
                if goal is None or goal.piece is None or goal.binding is None:
                    return None
                node = goal.binding.node
                if not isinstance(node, tree.Let) or not isinstance(node.pattern, tree.NamePattern):
                    return goal.document, node
                document, piece, fn = goal.document, goal.piece, node.value
            case _:
                return None
    return None


# ---- From a declaration to its references


def references(goal: Definition, documents: Iterable[Document]) -> Iterator[NameOccurrence]:
    """Every occurrence of a declaration's name that refers to it, including its own."""
    if goal.binding is None:
        return
    for document in dict.fromkeys((goal.document, *documents)):
        for piece in document.parts:
            if goal.binding.name.removeprefix("@") not in piece.words:
                continue
            names = symbols_of(piece)
            for each in (*names.bindings, *names.uses):
                if each.name == goal.binding.name and same_definition(
                    definition_of(NameOccurrence(document, piece, each)), goal
                ):
                    yield NameOccurrence(document, piece, each)


def same_definition(one: Definition | None, other: Definition) -> bool:
    """Whether two definitions are the same; a top-level name that is bound several times counts as one."""
    if one is None or one.binding is None or other.binding is None or one.document is not other.document:
        return False
    if one.binding is other.binding:
        return True
    several = all(b.scope is None and b.kind in ("value", "variable") for b in (one.binding, other.binding))
    return several and one.binding.name == other.binding.name
