"""The symbol table of one part, from its syntax alone: bindings with their scopes, and uses.

It also works for files with errors. Top-level names, fields and arguments are resolved in `name_resolution`.
"""

from __future__ import annotations

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.driver.doc_examples import find_examples
from difflang.elaborate.calls.builtin_registry import TRANSFORM_NAMES
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.ir.tensor_types import DTYPES
from difflang.lsp.incremental_parse import ParsedPart
from difflang.syntax import tree
from difflang.syntax.tree_queries import child_nodes
from difflang.types.type_resolver import GENERIC_BOUNDS

BUILTIN_TYPES = frozenset((*DTYPES, "key", "str", "dim", "float", "history", "D", "vec", *GENERIC_BOUNDS))


class NameBinding(Struct, frozen=True, eq=False):
    """A name where it is bound. `scope` is where it is visible; None for a top-level name."""

    name: str
    span: Span
    # Function, record, enum, variant, field, parameter, value, variable, size, module, axis, test.
    kind: str
    node: tree.Node
    scope: Span | None = None
    # The record, enum or variant of a field or variant.
    owner: NameBinding | None = None


class NameUse(Struct, frozen=True, eq=False):
    """A name where it is mentioned. `binding` is None unless the part itself binds it."""

    name: str
    span: Span
    role: str  # name, type, member, argument, import, wrt
    binding: NameBinding | None = None
    # The member, call or import around it; for `w` in `grad[w](f)`, the call.
    node: tree.Node | None = None


class SymbolTable(Struct, eq=False):
    """The bindings and uses of a part, in the order of the text."""

    bindings: list[NameBinding] = field(default_factory=list[NameBinding])
    uses: list[NameUse] = field(default_factory=list[NameUse])
    use_index: dict[int, NameUse] | None = None

    def mentioned(self) -> dict[int, NameUse]:
        """The uses by start offset."""
        if self.use_index is None:
            self.use_index = {use.span.start: use for use in self.uses}
        return self.use_index

    def file_bindings(self) -> list[NameBinding]:
        """The top-level bindings."""
        return [b for b in self.bindings if b.scope is None and b.kind != "field"]

    def visible_at(self, offset: int) -> dict[str, NameBinding]:
        """The local bindings visible at an offset, innermost first."""
        found: dict[str, NameBinding] = {}
        for b in self.bindings:
            if b.scope is not None and b.scope.start <= offset <= b.scope.end and b.span.end <= offset:
                found[b.name] = b
        return found

    def name_at(self, offset: int) -> NameBinding | NameUse | None:
        """The name at an offset."""
        for each in (*self.bindings, *self.uses):
            if each.span.start <= offset <= each.span.end:
                return each
        return None


def symbols_of(piece: ParsedPart) -> SymbolTable:
    """The symbol table of a part, cached."""
    if "names" not in piece.cache:
        found = SymbolCollector()
        for item in piece.items:
            found.item(item)
        # Examples in doc comments are code: their names can be renamed.
        for comment in find_examples(piece.source, piece.items) if "##" in piece.text else ():
            run_walk(found.walk(comment.block, LexicalScope(comment.span)))
        found.names.uses.sort(key=lambda use: use.span.start)
        piece.cache["names"] = found.names
    names = piece.cache["names"]
    assert isinstance(names, SymbolTable)
    return names


def axis_symbol(name: str) -> str:
    """The name of an axis of a mesh in symbol tables: a value may have the same name."""
    return f"@{name}"


class LexicalScope:
    """A range of text and the names bound in it."""

    def __init__(self, span: Span | None, outer: LexicalScope | None = None) -> None:
        self.span, self.outer, self.names = span, outer, dict[str, NameBinding]()

    def find(self, name: str) -> NameBinding | None:
        scope: LexicalScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


def leading_span(span: Span, name: str) -> Span:
    """A name at the beginning of a span."""
    return Span(span.source, span.start, span.start + len(name))


def trailing_span(span: Span, name: str) -> Span:
    """A name at the end of a span."""
    return Span(span.source, span.end - len(name), span.end)


class SymbolCollector:
    """Collects the symbols of items. Its walks run on the trampoline, so that no nesting is too deep."""

    def __init__(self) -> None:
        self.names = SymbolTable()

    def bind(
        self, scope: LexicalScope, name: str, span: Span, kind: str, node: tree.Node, inside: NameBinding | None = None
    ) -> NameBinding:
        binding = NameBinding(name, span, kind, node, scope.span, inside)
        if name != "_":
            self.names.bindings.append(binding)
            if kind != "field":
                scope.names[name] = binding
        return binding

    def use(
        self, scope: LexicalScope, name: str, span: Span, role: str = "name", node: tree.Node | None = None
    ) -> None:
        binding = scope.find(name) if role in ("name", "type") else None
        if binding is not None and binding.scope is None:
            # A top-level name may be bound again: `name_resolution` decides.
            binding = None
        self.names.uses.append(NameUse(name, span, role, binding, node))

    # ---- Items

    def item(self, item: tree.Item) -> None:
        top = LexicalScope(None)
        match item:
            case tree.Fn():
                self.bind(top, item.name, item.name_span, "function", item)
                run_walk(self.function(item, top))
            case tree.Record():
                inside = LexicalScope(item.span, top)
                record = self.bind(top, item.name, item.name_span, "record", item)
                self.generics(item.generics, inside)
                self.fields(item.fields, inside, record)
            case tree.Enum():
                inside = LexicalScope(item.span, top)
                enum = self.bind(top, item.name, item.name_span, "enum", item)
                self.generics(item.generics, inside)
                for v in item.variants:
                    variant = self.bind(top, v.name, leading_span(v.span, v.name), "variant", v, enum)
                    self.fields(v.fields, inside, variant)
            case tree.Import():
                self.imported(item, top)
            case tree.Axes():
                for name, span in zip(item.names, item.name_spans, strict=True):
                    self.bind(top, axis_symbol(name), span, "axis", item)
            case tree.Rule():
                self.use(top, item.name, item.name_span)
                run_walk(self.rule(item, top))
            case tree.Test() | tree.Bench():
                self.bind(top, item.name, item.name_span, "test", item)
                run_walk(self.walk(item.body, top))
            case _:
                run_walk(self.walk(item, top))

    def fields(self, fields: tuple[tree.Field, ...], scope: LexicalScope, of: NameBinding) -> None:
        for f in fields:
            self.bind(scope, f.name, leading_span(f.span, f.name), "field", f, of)
            self.type(f.type, scope, binds=False)

    def generics(self, generics: tuple[tree.Generic, ...], scope: LexicalScope) -> None:
        for g in generics:
            self.bind(scope, g.name, leading_span(g.span, g.name), "size" if g.bound is None else "type", g)

    def imported(self, item: tree.Import, top: LexicalScope) -> None:
        for name, span in zip(item.names, item.name_spans, strict=False):
            self.use(top, name, span, "import", item)
        if item.alias is not None:
            self.bind(top, item.alias, trailing_span(item.span, item.alias), "module", item)

    def rule(self, item: tree.Rule, top: LexicalScope) -> Walk[None]:
        scope = LexicalScope(item.span, top)
        for p in item.params:
            if p.type is not None:
                self.type(p.type, scope, binds=True)
            self.bind(scope, p.name, leading_span(p.span, p.name), "parameter", p)
        yield self.walk(item.body, scope)

    # ---- Functions

    def function(self, fn: tree.Fn, outer: LexicalScope) -> Walk[None]:
        scope = LexicalScope(fn.span, outer)
        self.generics(fn.generics, scope)
        for p in fn.params:
            if p.type is not None:
                self.type(p.type, scope, binds=True)
            self.bind(scope, p.name, leading_span(p.span, p.name), "parameter", p)
            if p.default is not None:
                yield self.walk(p.default, outer)
        if fn.result is not None:
            self.type(fn.result, scope, binds=False)
        for clause in fn.where:
            yield self.walk(clause, scope)
        for attribute in fn.attributes:
            yield self.walk(attribute, scope)
        yield self.walk(fn.body, scope)

    def type(self, written: tree.TypeExpr, scope: LexicalScope, *, binds: bool) -> None:
        """The names in a type; with `binds`, an unknown lower-case name is a new size."""
        todo: list[tree.Node] = [written]
        while todo:
            node = todo.pop()
            todo += reversed(child_nodes(node))
            match node:
                case tree.TypeName(path=(name,)) if name not in BUILTIN_TYPES:
                    self.size(name, leading_span(node.span, name), scope, node, binds=binds)
                case tree.MeshAxes():
                    self.mesh_axes(node, scope)
                case tree.AnyShape(name=name):
                    self.size(name, trailing_span(node.span, name), scope, node, binds=binds)
                case tree.TypeName(path=path) | tree.TypeApply(path=path) | tree.TypeCall(path=path):
                    if path[0] not in BUILTIN_TYPES:
                        self.use(scope, path[0], leading_span(node.span, path[0]), "type")
                    self.module_member(path, scope, node)
                case _:
                    pass

    def mesh_axes(self, node: tree.MeshAxes, scope: LexicalScope) -> None:
        for name, span in zip(node.names, node.name_spans, strict=True):
            self.use(scope, axis_symbol(name), span)

    def module_member(self, path: tuple[str, ...], scope: LexicalScope, node: tree.Node) -> None:
        """The second name in a type `model.Line`, or in a case `model.Empty`."""
        if len(path) > 1 and node.span.text.startswith(".".join(path)):
            start = node.span.start + len(path[0]) + 1
            self.use(scope, path[1], Span(node.span.source, start, start + len(path[1])), "member", node)

    def size(self, name: str, span: Span, scope: LexicalScope, node: tree.Node, *, binds: bool) -> None:
        if binds and scope.find(name) is None and not name[0].isupper():
            self.bind(scope, name, span, "size", node)
        else:
            self.use(scope, name, span, "type")

    # ---- Statements and expressions

    def walk(self, node: tree.Node, scope: LexicalScope) -> Walk[None]:
        match node:
            case tree.Name(id=name):
                self.use(scope, name, node.span)
            case tree.Member(base=base):
                yield self.walk(base, scope)
                self.use(scope, node.name, node.name_span, "member", node)
            case tree.Call(fn=fn, args=args) | tree.With(base=fn, fields=args):
                if (
                    isinstance(fn, tree.Index)
                    and isinstance(node, tree.Call)
                    and self.is_derivative_operator(fn, scope)
                ):
                    self.wrt_names(fn, scope, node)
                else:
                    yield self.walk(fn, scope)
                for arg in args:
                    if arg.name is not None:
                        self.use(scope, arg.name, leading_span(arg.span, arg.name), "argument", node)
                    yield self.walk(arg.value, scope)
            case tree.Let() | tree.Var():
                yield self.walk(node.value, scope)
                if node.type is not None:
                    self.type(node.type, scope, binds=True)
                self.pattern(node.pattern, scope, "value" if isinstance(node, tree.Let) else "variable", node)
            case tree.Fn():
                self.bind(scope, node.name, node.name_span, "function", node)
                yield self.function(node, scope)
            case tree.Block():
                inside = LexicalScope(node.span, scope)
                for stmt in node.stmts:
                    yield self.walk(stmt, inside)
            case tree.MeshAxes():
                self.mesh_axes(node, scope)
            case tree.Save(name=name):
                self.use(scope, name, trailing_span(node.span, name))
            case tree.Attribute(args=args):
                for arg in args:
                    yield self.walk(arg.value if isinstance(arg, tree.Arg) else arg, scope)
            case _:
                yield self.binder(node, scope)

    def is_derivative_operator(self, fn: tree.Index, scope: LexicalScope) -> bool:
        """Whether an index expression is `grad[…]` or another derivative operator."""
        return isinstance(fn.base, tree.Name) and fn.base.id in TRANSFORM_NAMES and scope.find(fn.base.id) is None

    def wrt_names(self, fn: tree.Index, scope: LexicalScope, call: tree.Call) -> None:
        """`grad[w, m.b](f)` names parameters of `f` and fields in them, not names visible here."""
        assert isinstance(fn.base, tree.Name)
        self.use(scope, fn.base.id, fn.base.span)
        for place in fn.subscripts:
            while isinstance(place, tree.Member):
                self.use(scope, place.name, place.name_span, "member", place)
                place = place.base
            if isinstance(place, tree.Name):
                self.use(scope, place.id, place.span, "wrt", call)

    def binder(self, node: tree.Node, scope: LexicalScope) -> Walk[None]:
        """Walk a node that binds names for a part of itself; for any other node, its children."""
        inside = LexicalScope(node.span, scope)
        match node:
            case tree.For():
                yield self.walk(node.iterable, scope)
                for attribute in node.attributes:
                    yield self.walk(attribute, scope)
                self.pattern(node.pattern, inside, "value", node)
                yield self.walk(node.body, inside)
            case tree.Comprehension():
                for it in node.iterators:
                    if it.source is not None:
                        yield self.walk(it.source, inside)
                    self.pattern(it.pattern, inside, "value", it)
                if node.condition is not None:
                    yield self.walk(node.condition, inside)
                yield self.walk(node.body, inside)
            case tree.Lambda():
                for p in node.params:
                    if p.type is not None:
                        self.type(p.type, inside, binds=True)
                    self.pattern(p.pattern, inside, "parameter", p)
                yield self.walk(node.body, inside)
            case tree.Case():
                self.case(node.pattern, inside)
                yield self.walk(node.body, inside)
            case _:
                for child in child_nodes(node):
                    yield self.walk(child, scope)

    def pattern(self, pattern: tree.Pattern, scope: LexicalScope, kind: str, node: tree.Node) -> None:
        todo = [pattern]
        while todo:
            part = todo.pop()
            if isinstance(part, tree.TuplePattern):
                todo += reversed(part.items)
            else:
                self.bind(scope, part.name, part.span, kind, node)

    def case(self, pattern: tree.CasePattern, scope: LexicalScope) -> None:
        """The names of a case; one with a capital letter is a variant."""
        todo: list[tree.CasePattern] = [pattern]
        while todo:
            part = todo.pop()
            match part:
                case tree.VariantPattern(path=path, items=items):
                    self.use(scope, path[0], leading_span(part.span, path[0]))
                    self.module_member(path, scope, part)
                    todo += reversed(items)
                case tree.TupleCasePattern(items=items):
                    todo += reversed(items)
                case tree.NamePattern(name=name) if name[:1].isupper():
                    self.use(scope, name, part.span)
                case tree.NamePattern(name=name):
                    self.bind(scope, name, part.span, "value", part)
                case _:
                    pass
