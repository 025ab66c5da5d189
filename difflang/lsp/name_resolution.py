"""What a name in a document means, wherever in the workspace that is declared, and everything that means the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from difflang.base.source import Span
from difflang.elaborate.calls.builtin_functions import TRANSFORMS
from difflang.elaborate.module_imports import bound
from difflang.lsp.incremental_parse import Piece
from difflang.lsp.symbol_table import Binding, Names, Use, names_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree
from difflang.tools.session_queries import record_at
from difflang.types.language_types import LangType, RecordType, SumType, VariantType

DEEPEST = 20  # how many derivatives of derivatives, and `let`s of functions, are looked through


class Target(Struct, frozen=True):
    """A declaration: the binding in its document; for a module, the document alone."""

    document: Document
    piece: Piece | None = None
    binding: Binding | None = None


class Found(Struct, frozen=True):
    """What stands at a place of a document: a name where it is bound or mentioned."""

    document: Document
    piece: Piece
    name: Binding | Use


def piece_at(document: Document, offset: int) -> Piece | None:
    """The part around a place; one at the end of a part belongs to it, not to the next."""
    for piece in document.parts:
        if piece.place.offset <= offset < piece.place.offset + len(piece.text):
            return piece
    return document.parts[-1] if document.parts else None


def found_at(document: Document, offset: int) -> Found | None:
    """The name at a place."""
    piece = piece_at(document, offset)
    if piece is None:
        return None
    name = names_of(piece).at(offset - piece.place.offset)
    return Found(document, piece, name) if name is not None else None


def type_at(piece: Piece, start: int, end: int) -> LangType | None:
    """The type of what stands there, as it was found by the last check; where that went wrong, as before."""
    found = piece.result.types.get((start, end)) if piece.result is not None else None
    if found is not None or piece.before is None:
        return found
    if piece.before.source.text == piece.text:
        return piece.before.types.get((start, end))
    return piece.before.named().get(piece.text[start:end]) if piece.result is None or piece.wrong else None


# ---- From a name to its declaration


def target(found: Found) -> Target | None:
    """What a name means; None for a name of the language, or what nobody declares."""
    name, document, piece = found.name, found.document, found.piece
    if isinstance(name, Binding):
        return bound_to(document, piece, name)
    match name.role:
        case "member":
            return member(found, name)
        case "argument":
            return argument(found, name)
        case "wrt":
            return parameter(found, name)
        case "import":
            other = document.imports.get(name.node) if isinstance(name.node, tree.Import) else None
            return top(other, name.name) if other is not None else None
        case _:
            if name.binding is not None:
                return bound_to(document, piece, name.binding)
            return of_file(document, name.name, piece)


def bound_to(document: Document, piece: Piece, binding: Binding) -> Target:
    """A declaration of a part; of a parameter of a rule that of its function, which must be called alike."""
    for item in piece.items if binding.kind == "parameter" else ():
        if isinstance(item, tree.Rule) and any(binding.node is p for p in item.params):
            fn = of_file(document, item.name, piece)
            node = fn.binding.node if fn is not None and fn.binding is not None else None
            mine = inner(fn.document, node, binding.name) if fn is not None else None
            return mine or Target(document, piece, binding)
    return Target(document, piece, binding)


def of_file(document: Document, name: str, near: Piece | None = None) -> Target | None:
    """What a name of a file means there: its own declaration, the last one above, or what is imported."""
    if (mine := top(document, name, near)) is not None:
        return mine if mine.binding is None or mine.binding.kind != "module" else module(document, name)
    for item, other in document.imports.items():
        if name in item.names:
            return top(other, name)
    return module(document, name)


def module(document: Document, name: str) -> Target | None:
    """The module that an import of a file calls so."""
    for item, other in document.imports.items():
        if name in bound(item)[len(item.names) :]:
            return Target(other)
    return None


def top(document: Document, name: str, near: Piece | None = None) -> Target | None:
    """The declaration of a name in a file: the last one that stands in a part or above it, else the next."""
    declared, order = tops(document)
    best: Target | None = None
    last = order.get(near, len(order)) if near is not None else len(order)
    for piece, b in declared.get(name, ()):
        if best is not None and order[piece] > last:
            break
        best = Target(document, piece, b)
    return best


Tops = tuple[dict[str, list[tuple[Piece, Binding]]], dict[Piece, int]]


def tops(document: Document) -> Tops:
    """The names that a file declares, and the order of its parts; gathered once for a text."""
    if document.tops is None or document.tops[0] is not document.parts:
        declared: dict[str, list[tuple[Piece, Binding]]] = {}
        for piece in document.parts:
            for b in names_of(piece).top():
                if b.kind != "test":
                    declared.setdefault(b.name, []).append((piece, b))
        document.tops = document.parts, (declared, {piece: i for i, piece in enumerate(document.parts)})
    found: Tops = document.tops[1]
    return found


def member(found: Found, use: Use) -> Target | None:
    """`m.f` of a module, `x.w` of a record, `x.f()` of a function."""
    if isinstance(use.node, (tree.TypeName, tree.TypeApply, tree.TypeCall, tree.VariantPattern)):
        other = module(found.document, use.node.path[0])
        return top(other.document, use.name) if other is not None else None
    assert isinstance(use.node, tree.Member)
    base = use.node.base
    if isinstance(base, tree.Name) and use_at(names_of(found.piece), base.span) is None:
        other = of_file(found.document, base.id, found.piece)
        if other is not None and other.binding is None:
            return top(other.document, use.name)
    type = type_at(found.piece, base.span.start, base.span.end) or place_type(found, base)
    if type is not None and (there := field_of(type, use.name)) is not None:
        return there
    local = names_of(found.piece).seen_at(use.span.start).get(use.name)
    if local is not None and local.kind != "size":
        return bound_to(found.document, found.piece, local)
    return of_file(found.document, use.name, found.piece)


def place_type(found: Found, base: tree.Expr) -> LangType | None:
    """The type of `m.w` as `m` is declared; in `grad[m.w.x](f)` that is a parameter of `f`."""
    path: list[str] = []
    while isinstance(base, tree.Member):
        path.insert(0, base.name)
        base = base.base
    if not isinstance(base, tree.Name):  # of what a call gives nothing is declared here
        return None
    use = names_of(found.piece).mentioned().get(base.span.start)
    goal = target(Found(found.document, found.piece, use)) if use is not None else None
    type = own_type(goal) if goal is not None else None
    return record_at(type, path) if type is not None else None


def own_type(goal: Target) -> LangType | None:
    """The type of a name where it is bound."""
    if goal.piece is None or goal.binding is None:
        return None
    known, span = goal.piece.known, goal.binding.span
    return type_at(goal.piece, span.start, span.end) or (known.named().get(span.text) if known is not None else None)


def use_at(names: Names, span: Span) -> Binding | None:
    """What the part itself binds the name that is mentioned at a place to."""
    use = names.mentioned().get(span.start)
    return use.binding if use is not None else None


def field_of(type: LangType, name: str) -> Target | None:
    """The declaration of a field of a record, or of a variant."""
    decls = [v.decl for v in type.variants] if isinstance(type, SumType) else [getattr(type, "decl", None)]
    if isinstance(type, (RecordType, VariantType, SumType)):
        for decl in decls:
            whole = decl.span.source.whole if decl is not None else None
            if isinstance(whole, Document) and (there := inner(whole, decl, name)) is not None:
                return there
    return None


def inner(document: Document, decl: tree.Node | None, name: str) -> Target | None:
    """The field, or the parameter, of that name of a declaration in a document."""
    for piece in document.parts:
        if decl is not None and piece.source is decl.span.source:
            for b in names_of(piece).bindings:
                mine = b.kind in ("field", "parameter") and b.name == name
                if mine and decl.span.start <= b.span.start < decl.span.end and owner_of(b, decl):
                    return Target(document, piece, b)
    return None


def owner_of(b: Binding, decl: tree.Node) -> bool:
    """Whether a field or parameter is that of the declaration itself, not of what stands inside it."""
    if isinstance(decl, (tree.Fn, tree.Lambda)):
        return any(b.node is p for p in decl.params)
    return b.inside is not None and (b.inside.node is decl or isinstance(decl, tree.Enum))


def argument(found: Found, use: Use) -> Target | None:
    """`x` in `f(x = 1)`: the parameter; in `P(x = 1)` or `p with (x = 1)`, the field."""
    if isinstance(use.node, tree.With):
        base = use.node.base
        type = type_at(found.piece, base.span.start, base.span.end)
        return field_of(type, use.name) if type is not None else None
    assert isinstance(use.node, tree.Call)
    called = declared(found.document, found.piece, use.node.fn)
    return inner(*called, use.name) if called is not None else None


def parameter(found: Found, use: Use) -> Target | None:
    """`w` in `grad[w](f)`: the parameter of `f`; where the file calls something else `grad`, what it is there."""
    call = use.node
    assert isinstance(call, tree.Call)
    if of_file(found.document, operator_of(call.fn)) is not None:
        return of_file(found.document, use.name, found.piece)
    called = declared(found.document, found.piece, call.args[0].value) if call.args else None
    return inner(*called, use.name) if called is not None else None


def operator_of(fn: tree.Expr) -> str:
    """`grad` of `grad` and `grad[w]`; nothing for what has no such form."""
    base = fn.base if isinstance(fn, tree.Index) else fn
    return base.id if isinstance(base, tree.Name) else ""


def declared(document: Document, piece: Piece, fn: tree.Node) -> tuple[Document, tree.Node] | None:
    """Where what is called is declared; of a derivative the function that it is one of, which names its parameters."""
    for _ in range(DEEPEST):
        match fn:
            case tree.Lambda():
                return document, fn
            case tree.Prime(base=base):
                fn = base
            case tree.Call(fn=operator, args=(arg, *_)) if operator_of(operator) in TRANSFORMS:
                fn = arg.value
            case tree.Name() | tree.Member():
                at = fn.name_span if isinstance(fn, tree.Member) else fn.span
                use = names_of(piece).mentioned().get(at.start)
                goal = target(Found(document, piece, use)) if use is not None else None
                if goal is None or goal.piece is None or goal.binding is None:
                    return None
                node = goal.binding.node
                if not isinstance(node, tree.Let) or not isinstance(node.pattern, tree.NamePattern):
                    return goal.document, node
                document, piece, fn = goal.document, goal.piece, node.value
            case _:
                return None
    return None


# ---- From a declaration to all that mean it


def references(goal: Target, documents: Iterable[Document]) -> Iterator[Found]:
    """Every place that means a declaration, its own among them."""
    if goal.binding is None:
        return
    for document in dict.fromkeys((goal.document, *documents)):
        for piece in document.parts:
            if goal.binding.name not in piece.words:
                continue
            names = names_of(piece)
            for each in (*names.bindings, *names.uses):
                if each.name == goal.binding.name and same(target(Found(document, piece, each)), goal):
                    yield Found(document, piece, each)


def same(one: Target | None, other: Target) -> bool:
    """Whether two are one declaration; a name of a file that is bound several times counts as one."""
    if one is None or one.binding is None or other.binding is None or one.document is not other.document:
        return False
    if one.binding is other.binding:
        return True
    several = all(b.scope is None and b.kind in ("value", "variable") for b in (one.binding, other.binding))
    return several and one.binding.name == other.binding.name
