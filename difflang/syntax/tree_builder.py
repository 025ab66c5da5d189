"""Parser callbacks that build the tree's declarations and statements: one for each rule of `difflang.lark`.

A callback gets a span and the rule's children. The few mistakes that the grammar lets through, such as `f(x) = 3`,
are reported here. Names are not resolved.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.syntax import tree
from difflang.syntax.expression_builder import ExpressionBuilder, drop_missing, normalized_name
from difflang.syntax.lexer import Token


class TreeBuilder(ExpressionBuilder):
    """Callbacks for files, declarations and statements; the base class has those for expressions."""

    # ---- Files and declarations

    def start(self, span: Span, *items: Any) -> tree.Module:
        default = "f32"
        if items and isinstance(items[0], str):
            # The value of `default_float` is the only child that is a string.
            default, *items = items  # type: ignore[assignment]
        whole = Span(self.source, 0, len(self.source.text))
        return tree.Module(whole, drop_missing(items), default)

    def default_float(self, span: Span, word: Token, name: Token) -> str:
        return name.text

    def import_(self, span: Span, module: Token, alias: Token | None, names: tuple[Token, ...] | None) -> tree.Import:
        path = module.kind == "STRING"
        text = self.plain_string(module, "a path") if path else normalized_name(module)
        taken, called = names or (), normalized_name(alias) if alias else None
        places = tuple(map(self.span, taken))
        return tree.Import(span, text, self.span(module), path, called, tuple(map(normalized_name, taken)), places)

    def names(self, span: Span, *names: Token) -> tuple[Token, ...]:
        return names

    def axes(self, span: Span, *names: Token) -> tree.Axes:
        return tree.Axes(span, tuple(map(normalized_name, names)), tuple(map(self.span, names)))

    def test(self, span: Span, name: Token, body: tree.Block) -> tree.Test:
        return tree.Test(span, self.plain_string(name, "a test's name"), self.span(name), body)

    def bench(self, span: Span, name: Token, body: tree.Block) -> tree.Bench:
        return tree.Bench(span, self.plain_string(name, "a benchmark's name"), self.span(name), body)

    def public(self, span: Span, item: Any) -> Any:
        return replace(item, span=span, pub=True, doc=self.doc_comment(span.start))

    def public_attributed(self, span: Span, attributes: tuple[tree.Attribute, ...], fn: tree.Fn) -> tree.Fn:
        return replace(fn, span=span, pub=True, doc=self.doc_comment(span.start), attributes=attributes)

    def attributed(self, span: Span, attributes: tuple[tree.Attribute, ...], item: Any) -> Any:
        if isinstance(item, (tree.Fn, tree.Rule)):
            return replace(item, span=span, attributes=attributes, doc=self.doc_comment(span.start))
        return replace(item, span=span, attributes=attributes)

    def bare_fn(self, span: Span, host: Token | None, signature: tuple[Any, ...], body: tree.Expr) -> tree.Fn:
        name, generics, params, result, where = signature
        doc = self.doc_comment(span.start)
        return tree.Fn(
            span,
            normalized_name(name),
            self.span(name),
            generics,
            params,
            result,
            where,
            body,
            host=host is not None,
            doc=doc,
        )

    def signature(
        self,
        span: Span,
        name: Token,
        generics: tuple[tree.Generic, ...] | None,
        params: tuple[tree.Param, ...],
        result: tree.TypeExpr | None,
        where: tuple[tree.Expr, ...] | None,
    ) -> tuple[Any, ...]:
        return name, generics or (), params, result, where or ()

    def generics(self, span: Span, *generics: tree.Generic) -> tuple[tree.Generic, ...]:
        return generics

    def generic(self, span: Span, name: Token, bound: Token | None) -> tree.Generic:
        return tree.Generic(span, normalized_name(name), normalized_name(bound) if bound else None)

    def parameters(self, span: Span, *params: tree.Param) -> tuple[tree.Param, ...]:
        return params

    def param(self, span: Span, name: Token, type: tree.TypeExpr | None, default: tree.Expr | None) -> tree.Param:
        return tree.Param(span, normalized_name(name), type, default)

    def where(self, span: Span, *conditions: tree.Expr) -> tuple[tree.Expr, ...]:
        return conditions

    def extern(
        self,
        span: Span,
        word: Token,
        name: Token,
        generics: tuple[tree.Generic, ...] | None,
        params: tuple[tree.Param, ...],
        result: tree.TypeExpr,
    ) -> tree.Fn:
        called, doc = normalized_name(name), self.doc_comment(span.start)
        body = tree.Foreign(span, called, word.text.endswith("op"))
        return tree.Fn(span, called, self.span(name), generics or (), params, result, (), body, doc=doc)

    def rule(self, span: Span, name: Token, params: tuple[tree.Param, ...] | None, *rest: Any) -> tree.Rule:
        by, body = rest if len(rest) == 2 else (None, rest[0])
        how = normalized_name(by) if by else None
        return tree.Rule(
            span, normalized_name(name), self.span(name), params or (), how, body, self.doc_comment(span.start)
        )

    def record(
        self, span: Span, name: Token, generics: tuple[tree.Generic, ...] | None, fields: tuple[tree.Field, ...]
    ) -> tree.Record:
        doc = self.doc_comment(span.start)
        return tree.Record(span, normalized_name(name), self.span(name), generics or (), fields, doc=doc)

    def fields(self, span: Span, *fields: tree.Field | None) -> tuple[tree.Field, ...]:
        return drop_missing(fields)

    def field(self, span: Span, name: Token, type: tree.TypeExpr) -> tree.Field:
        return tree.Field(span, normalized_name(name), type, self.doc_comment(span.start))

    def enum(
        self, span: Span, name: Token, generics: tuple[tree.Generic, ...] | None, variants: tuple[tree.Variant, ...]
    ) -> tree.Enum:
        doc = self.doc_comment(span.start)
        return tree.Enum(span, normalized_name(name), self.span(name), generics or (), variants, doc=doc)

    def variants(self, span: Span, *variants: tree.Variant | None) -> tuple[tree.Variant, ...]:
        return drop_missing(variants)

    def variant(self, span: Span, name: Token, *fields: tree.Field | None) -> tree.Variant:
        return tree.Variant(span, normalized_name(name), drop_missing(fields))

    def attributes(self, span: Span, *attributes: tree.Attribute) -> tuple[tree.Attribute, ...]:
        return attributes

    def attribute(self, span: Span, name: str, *args: Any) -> tree.Attribute:
        return tree.Attribute(span, name, tuple(_as_arg(a) for a in args if a is not None))

    def attribute_name(self, span: Span, name: Token) -> str:
        return normalized_name(name)

    def quantity(self, span: Span, number: tree.Expr, unit: Token) -> tree.Quantity:
        return tree.Quantity(span, number, normalized_name(unit))

    # ---- Statements

    def block(self, span: Span, *stmts: tree.Stmt | None) -> tree.Block:
        return tree.Block(span, drop_missing(stmts))

    def let(self, span: Span, pattern: tree.Pattern, type: tree.TypeExpr | None, value: tree.Expr) -> tree.Let:
        return tree.Let(span, pattern, type, value, doc=self.doc_comment(span.start))

    def var(self, span: Span, pattern: tree.Pattern, type: tree.TypeExpr | None, value: tree.Expr) -> tree.Var:
        return tree.Var(span, pattern, type, value)

    def assign(self, span: Span, target: tree.Expr, value: tree.Expr) -> tree.Assign | None:
        return tree.Assign(span, target, value) if self.assignable(target, tuples=True) else None

    def update(self, span: Span, target: tree.Expr, op: Token, value: tree.Expr) -> tree.Update | None:
        places = self.assignable(target, tuples=False)
        return tree.Update(span, target, op.text[:-1], value, self.span(op)) if places else None

    def assignable(self, target: tree.Expr, tuples: bool) -> bool:
        """Whether a target is a place expression: a name, its fields and indices, or a tuple of these. If not, report
        it.
        """
        todo = [target]
        while todo:
            part = todo.pop()
            if isinstance(part, tree.TupleExpr) and part.items and tuples:
                todo += part.items
                continue
            while isinstance(part, tree.Member | tree.Index):
                part = part.base
            if not isinstance(part, tree.Name):
                help = "the left side must be a name, a field `r.x`, an index `a[i]`, or a tuple of these"
                self.report("DL0112", "cannot assign to this expression", part.span, "not assignable", help)
                return False
        return True

    def for_(self, span: Span, pattern: tree.Pattern, iterable: tree.Expr, body: tree.Block) -> tree.For:
        return tree.For(span, pattern, iterable, body, ())

    def while_(self, span: Span, condition: tree.Expr, body: tree.Block) -> tree.While:
        return tree.While(span, condition, body, ())

    def return_(self, span: Span, value: tree.Expr | None) -> tree.Return:
        return tree.Return(span, value)

    def yield_(self, span: Span, value: tree.Expr) -> tree.Yield:
        return tree.Yield(span, value)

    def save(self, span: Span, name: Token) -> tree.Save:
        return tree.Save(span, normalized_name(name))

    def break_(self, span: Span) -> tree.Break:
        return tree.Break(span)

    def continue_(self, span: Span) -> tree.Continue:
        return tree.Continue(span)

    def assert_(self, span: Span, condition: tree.Expr, message: tree.Expr | None) -> tree.Assert:
        return tree.Assert(span, condition, message)


def _as_arg(value: Any) -> Any:
    return value if isinstance(value, tree.Arg | tree.Quantity) else tree.Arg(value.span, None, value)
