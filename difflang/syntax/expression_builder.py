"""Parser callbacks that build the tree's patterns, expressions and types: one for each grammar rule.

Declarations and statements are in `tree_builder`, which extends this class. Names are not resolved here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Source, Span
from difflang.syntax import tree
from difflang.syntax.lexer import InterpolationSpan, Token, split_literal

# Converting decimal digits takes quadratic time, and Python itself refuses more than 4,300.
MAX_DIGITS = 1_000


class SplitSize(Struct, frozen=True):
    """A size in a type and the axes of a mesh after it, until the whole type is built."""

    size: tree.TypeExpr
    axes: tree.MeshAxes


class ExpressionBuilder:
    """Callbacks by the name of their rule. `expression` parses a part of the source, `doc` finds a doc comment."""

    def __init__(
        self,
        source: Source,
        reports: list[Diagnostic],
        doc: Callable[[int], str | None],
        expression: Callable[[Any, Span], tree.Expr | None],
    ) -> None:
        self.source = source
        self.reports = reports
        self.doc_comment = doc
        self.expression = expression

    def report(self, code: str, message: str, span: Span, label: str = "", *helps: str) -> None:
        self.reports.append(Diagnostic(code, message, (Label(span, label),), helps))

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    # ---- Patterns

    def name_pattern(self, span: Span, name: Token) -> tree.NamePattern:
        return tree.NamePattern(span, normalized_name(name))

    def tuple_pattern(self, span: Span, *items: tree.Pattern) -> tree.TuplePattern:
        return tree.TuplePattern(span, items)

    def path(self, span: Span, *names: Token) -> tuple[str, ...]:
        return tuple(map(normalized_name, names))

    def path_pattern(self, span: Span, path: tuple[str, ...]) -> tree.CasePattern:
        return tree.NamePattern(span, path[0]) if len(path) == 1 else tree.VariantPattern(span, path, ())

    def literal_pattern(self, span: Span, value: tree.Expr) -> tree.LiteralPattern:
        if isinstance(value, tree.Str) and not all(isinstance(part, str) for part in value.parts):
            self.report("DL0118", "a pattern cannot contain expressions", span, "", "write `{{` for a brace")
        return tree.LiteralPattern(span, value)

    def variant_pattern(self, span: Span, path: tuple[str, ...], *items: tree.CasePattern) -> tree.VariantPattern:
        return tree.VariantPattern(span, path, items)

    def tuple_case(self, span: Span, *items: tree.CasePattern) -> tree.TupleCasePattern:
        return tree.TupleCasePattern(span, items)

    # ---- Expressions

    def lambda_(self, span: Span, params: tuple[tree.LambdaParam, ...] | None, body: tree.Expr) -> tree.Lambda:
        return tree.Lambda(span, params or (), body, linear=False)

    def linear_lambda(self, span: Span, params: tuple[tree.LambdaParam, ...] | None, body: tree.Expr) -> tree.Lambda:
        return tree.Lambda(span, params or (), body, linear=True)

    def lambda_params(self, span: Span, *params: tree.LambdaParam) -> tuple[tree.LambdaParam, ...]:
        return params

    def lambda_param(self, span: Span, pattern: tree.Pattern, type: tree.TypeExpr | None) -> tree.LambdaParam:
        return tree.LambdaParam(span, pattern, type)

    def pipe(self, span: Span, value: tree.Expr, fn: tree.Expr) -> tree.Pipe:
        return tree.Pipe(span, value, fn)

    def binary(self, span: Span, lhs: tree.Expr, op: Token, rhs: tree.Expr) -> tree.Binary:
        return tree.Binary(span, op.text, lhs, rhs, self.span(op))

    def unary(self, span: Span, op: Token, operand: tree.Expr) -> tree.Unary:
        return tree.Unary(span, op.text, operand)

    def compare(self, span: Span, first: tree.Expr, *rest: Any) -> tree.Compare:
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return tree.Compare(span, first, tuple((op.text, expr, self.span(op)) for op, expr in pairs))

    def range_(self, span: Span, start: tree.Expr, stop: tree.Expr, step: tree.Expr | None) -> tree.Range:
        return tree.Range(span, start, stop, step)

    def call(self, span: Span, fn: tree.Expr, args: tuple[tree.Arg, ...] | None) -> tree.Call:
        return tree.Call(span, fn, args or ())

    def index(self, span: Span, base: tree.Expr, *subscripts: tree.Expr) -> tree.Index:
        return tree.Index(span, base, subscripts)

    def member(self, span: Span, base: tree.Expr, name: Token) -> tree.Member:
        return tree.Member(span, base, normalized_name(name), self.span(name))

    def prime(self, span: Span, base: tree.Expr, quote: Token) -> tree.Prime:
        return tree.Prime(span, base)

    def with_(self, span: Span, base: tree.Expr, *fields: tree.Arg) -> tree.With:
        return tree.With(span, base, fields)

    def args(self, span: Span, *args: tree.Arg) -> tuple[tree.Arg, ...]:
        return args

    def arg(self, span: Span, value: tree.Expr | tree.Comprehension) -> tree.Arg:
        return tree.Arg(span, None, value)

    def named(self, span: Span, name: Token, value: tree.Expr) -> tree.Arg:
        return tree.Arg(span, normalized_name(name), value)

    def slice_from(self, span: Span, start: tree.Expr, step: tree.Expr | None) -> tree.Slice:
        return tree.Slice(span, start, None, step)

    def slice_to(self, span: Span, stop: tree.Expr | None, step: tree.Expr | None) -> tree.Slice:
        return tree.Slice(span, None, stop, step)

    def dots(self, span: Span) -> tree.Dots:
        return tree.Dots(span)

    def name(self, span: Span, name: Token) -> tree.Name:
        return tree.Name(span, normalized_name(name))

    def int_(self, span: Span, number: Token) -> tree.Int:
        if len(number.text) > MAX_DIGITS:
            self.report("DL0119", "this number is too long", span, f"{len(number.text)} digits")
            return tree.Int(span, 0)
        return tree.Int(span, int(number.text.replace("_", "")))

    def float_(self, span: Span, number: Token) -> tree.Float | tree.Imaginary:
        kind = tree.Imaginary if number.text.endswith("j") else tree.Float
        return kind(span, float(number.text.removesuffix("j").replace("_", "")), number.text)

    def true(self, span: Span, word: Token) -> tree.Bool:
        return tree.Bool(span, True)

    def false(self, span: Span, word: Token) -> tree.Bool:
        return tree.Bool(span, False)

    def string(self, span: Span, string: Token) -> tree.Str:
        # Also what error recovery inserts for a missing operand.
        if string.text == '""':
            return tree.Str(span, ())
        parts: list[str | tree.Interpolation] = []
        for piece in split_literal(self.source, string.start + 1, string.end - 1, self.reports):
            if isinstance(piece, InterpolationSpan):
                value = self.expression(self, piece.expression)
                if value is not None:
                    parts.append(tree.Interpolation(piece.span, value, piece.format))
            elif parts and isinstance(parts[-1], str):
                parts[-1] += piece
            else:
                parts.append(piece)
        return tree.Str(span, tuple(parts))

    def plain_string(self, string: Token, what: str) -> str:
        """The text of a string that holds no expressions."""
        parts = self.string(self.span(string), string).parts
        if any(isinstance(part, tree.Interpolation) for part in parts):
            self.report("DL0118", f"{what} cannot contain expressions", self.span(string), "", "write `{{` for a brace")
        return "".join(part for part in parts if isinstance(part, str))

    def unit(self, span: Span) -> tree.TupleExpr:
        return tree.TupleExpr(span, ())

    def tuple_(self, span: Span, *items: tree.Expr) -> tree.TupleExpr:
        return tree.TupleExpr(span, items)

    def array(self, span: Span, *items: tree.Expr | None) -> tree.ArrayExpr:
        return tree.ArrayExpr(span, drop_missing(items))

    def array_comprehension(self, span: Span, comprehension: tree.Comprehension) -> tree.ArrayComprehension:
        return tree.ArrayComprehension(span, comprehension)

    def comprehension(self, span: Span, *parts: Any) -> tree.Comprehension:
        *iterators, condition, body = parts
        return tree.Comprehension(span, tuple(iterators), condition, body)

    def iterator(self, span: Span, pattern: tree.Pattern, source: tree.Expr | None) -> tree.Iterator:
        return tree.Iterator(span, pattern, source)

    def if_(self, span: Span, condition: tree.Expr, then: tree.Block, orelse: tree.Block | tree.If | None) -> tree.If:
        return tree.If(span, condition, then, orelse)

    def match_(self, span: Span, subject: tree.Expr, cases: tuple[tree.Case, ...]) -> tree.Match:
        return tree.Match(span, subject, cases)

    def cases(self, span: Span, *cases: tree.Case | None) -> tuple[tree.Case, ...]:
        return drop_missing(cases)

    def case(self, span: Span, pattern: tree.CasePattern, body: tree.Expr) -> tree.Case:
        return tree.Case(span, pattern, body)

    def checkpoint(self, span: Span, word: Token, body: tree.Block) -> tree.Checkpoint:
        return tree.Checkpoint(span, body)

    def with_key(self, span: Span, key: tree.Expr, body: tree.Block) -> tree.WithKey:
        return tree.WithKey(span, key, body)

    # ---- Types

    def type_name(self, span: Span, path: tuple[str, ...]) -> tree.TypeName:
        return tree.TypeName(span, path)

    def type_int(self, span: Span, number: Token) -> tree.TypeInt:
        return tree.TypeInt(span, self.int_(span, number).value)

    def type_apply(self, span: Span, path: tuple[str, ...], *args: Any) -> tree.TypeApply:
        if not any([isinstance(a, SplitSize) for a in args]):
            return tree.TypeApply(span, path, args)
        pairs = [(a.size, a.axes) if isinstance(a, SplitSize) else (a, None) for a in args]
        return tree.TypeApply(span, path, tuple([size for size, _ in pairs]), tuple([axes for _, axes in pairs]))

    def split_size(self, span: Span, size: tree.TypeExpr, axes: tree.MeshAxes) -> SplitSize:
        return SplitSize(size, axes)

    def split(self, span: Span, sign: Token, *names: Token) -> tree.MeshAxes:
        return tree.MeshAxes(span, tuple(map(normalized_name, names)), tuple(map(self.span, names)))

    def type_call(self, span: Span, path: tuple[str, ...], *args: tree.TypeExpr) -> tree.TypeCall:
        return tree.TypeCall(span, path, args)

    def type_array(
        self, span: Span, item: tree.TypeApply | tree.TypeCall, *axes: tree.TypeExpr | tree.AnyShape | SplitSize
    ) -> tree.TypeArray:
        for split in [a.axes for a in axes if isinstance(a, SplitSize)]:
            way = "write it in the types of the fields: the sizes of arrays of numbers are split"
            self.report("DL0610", "an array of records is not split along an axis of a mesh", split.span, "", way)
        return tree.TypeArray(span, item, tuple([a.size if isinstance(a, SplitSize) else a for a in axes]))

    def type_tuple(self, span: Span, *items: tree.TypeExpr) -> tree.TypeTuple:
        return tree.TypeTuple(span, items)

    def function_type(self, span: Span, param: tree.TypeExpr, result: tree.TypeExpr) -> tree.TypeFn:
        return tree.TypeFn(span, param, result, linear=False)

    def linear_type(self, span: Span, param: tree.TypeExpr, result: tree.TypeExpr) -> tree.TypeFn:
        return tree.TypeFn(span, param, result, linear=True)

    def dim(self, span: Span, lhs: tree.TypeExpr, op: Token, rhs: tree.TypeExpr) -> tree.DimBinary:
        return tree.DimBinary(span, op.text, lhs, rhs)

    def any_shape(self, span: Span, name: Token) -> tree.AnyShape:
        return tree.AnyShape(span, normalized_name(name))


def normalized_name(token: Token) -> str:
    """A name in composed characters (NFC), so that two ways to type `é` are one name."""
    text = token.text
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def drop_missing(items: Any) -> tuple[Any, ...]:
    """The items without None, which stands for what was missing or was reported as an error."""
    return tuple(item for item in items if item is not None)
