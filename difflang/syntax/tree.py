"""The syntax tree: what a person wrote, with the place where each part stands.

Nodes are compared by identity: a tree may be 100,000 deep, and nothing here recurses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

from difflang.base.source import Span

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def syntax(cls: type[T]) -> type[T]:
    """A kind of node. The type checker holds nodes to be frozen; that Python should, too, takes longer to start."""
    return dataclass(eq=False, repr=False, slots=True)(cls)


@syntax
class Node:
    span: Span

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.span.text!r})"


# ---- Expressions


@syntax
class Name(Node):
    id: str


@syntax
class Int(Node):
    value: int


@syntax
class Float(Node):
    value: float
    text: str


@syntax
class Imaginary(Node):
    """`2.0j`: so much of the imaginary unit."""

    value: float
    text: str


@syntax
class Bool(Node):
    value: bool


@syntax
class Interpolation(Node):
    """`{value:format}` in a string; `format` is empty where none is written."""

    value: Expr
    format: str


@syntax
class Str(Node):
    """A string: pieces of text, escapes resolved, and interpolated expressions between them."""

    parts: tuple[str | Interpolation, ...]


@syntax
class Unary(Node):
    op: str  # "-", "not"
    operand: Expr


@syntax
class Binary(Node):
    op: str  # + - * / // % @ ^ and or
    lhs: Expr
    rhs: Expr
    op_span: Span


@syntax
class Compare(Node):
    """A chain `first op expr op expr ...`."""

    first: Expr
    rest: tuple[tuple[str, Expr, Span], ...]


@syntax
class Range(Node):
    start: Expr
    stop: Expr
    step: Expr | None


@syntax
class Slice(Node):
    """An index `a..b`, `a..`, `..b`, `..`, with `by`; only inside `[ ]`. `a..b` alone parses as a Range there too."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@syntax
class Dots(Node):
    """The index `...`: all the axes between."""


@syntax
class Arg(Node):
    name: str | None
    value: Expr | ComprehensionArg


@syntax
class Call(Node):
    fn: Expr
    args: tuple[Arg, ...]


@syntax
class Pipe(Node):
    """`value |> fn`."""

    value: Expr
    fn: Expr


@syntax
class Index(Node):
    base: Expr
    subscripts: tuple[Expr, ...]  # Slice, Range and Dots among them


@syntax
class Member(Node):
    base: Expr
    name: str
    name_span: Span


@syntax
class Prime(Node):
    """`f'`."""

    base: Expr


@syntax
class With(Node):
    base: Expr
    fields: tuple[Arg, ...]


@syntax
class TupleExpr(Node):
    """A tuple of at least two, or `()`."""

    items: tuple[Expr, ...]


@syntax
class ArrayExpr(Node):
    items: tuple[Expr, ...]


@syntax
class Iterator(Node):
    pattern: Pattern
    source: Expr | None


@syntax
class Comprehension(Node):
    """`for i in 0..n, j if p => body`: in brackets an array, as an argument what a reduction consumes."""

    iterators: tuple[Iterator, ...]
    condition: Expr | None
    body: Expr


@syntax
class ArrayComprehension(Node):
    comprehension: Comprehension


@syntax
class Block(Node):
    stmts: tuple[Stmt, ...]


@syntax
class If(Node):
    condition: Expr
    then: Block
    orelse: Block | If | None


@syntax
class Case(Node):
    pattern: CasePattern
    body: Expr


@syntax
class Match(Node):
    subject: Expr
    cases: tuple[Case, ...]


@syntax
class Checkpoint(Node):
    body: Block


@syntax
class WithKey(Node):
    key: Expr
    body: Block


@syntax
class Lambda(Node):
    params: tuple[LambdaParam, ...]
    body: Expr
    linear: bool


@syntax
class LambdaParam(Node):
    pattern: Pattern
    type: TypeExpr | None


@syntax
class Attribute(Node):
    """`@name(args)`. An arg is an expression, `name = expr`, or a quantity such as `256 MiB`."""

    name: str
    args: tuple[Arg | Quantity, ...]


@syntax
class Quantity(Node):
    number: Expr
    unit: str


@syntax
class For(Node):
    pattern: Pattern
    iterable: Expr
    body: Block
    attributes: tuple[Attribute, ...]


@syntax
class While(Node):
    condition: Expr
    body: Block
    attributes: tuple[Attribute, ...]


@syntax
class Foreign(Node):
    """The body of an `extern fn`, which Python gives."""

    name: str


# ---- Patterns


@syntax
class NamePattern(Node):
    name: str  # "_" binds nothing


@syntax
class TuplePattern(Node):
    items: tuple[Pattern, ...]


@syntax
class LiteralPattern(Node):
    value: Expr  # Int, Float, Str, Bool, or Unary "-" of a number


@syntax
class VariantPattern(Node):
    """`Circle(r)`, `model.Empty`. A lone lower-case or upper-case name is a NamePattern until names are resolved."""

    path: tuple[str, ...]
    items: tuple[CasePattern, ...]


@syntax
class TupleCasePattern(Node):
    items: tuple[CasePattern, ...]


# ---- Statements (an expression is one too)


@syntax
class Let(Node):
    pattern: Pattern
    type: TypeExpr | None
    value: Expr
    pub: bool = False
    doc: str | None = None


@syntax
class Var(Node):
    pattern: Pattern
    type: TypeExpr | None
    value: Expr


@syntax
class Assign(Node):
    target: Expr  # Name, Member, Index, or TupleExpr of them
    value: Expr


@syntax
class Update(Node):
    target: Expr
    op: str  # "+" "-" "*" "/" "max" "min"
    value: Expr
    op_span: Span


@syntax
class Return(Node):
    value: Expr | None


@syntax
class Yield(Node):
    value: Expr


@syntax
class Save(Node):
    name: str


@syntax
class Break(Node):
    pass


@syntax
class Continue(Node):
    pass


@syntax
class Assert(Node):
    condition: Expr
    message: Expr | None


# ---- Declarations


@syntax
class Generic(Node):
    name: str
    bound: str | None


@syntax
class Param(Node):
    name: str
    type: TypeExpr | None
    default: Expr | None


@syntax
class Fn(Node):
    name: str
    name_span: Span
    generics: tuple[Generic, ...]
    params: tuple[Param, ...]
    result: TypeExpr | None
    where: tuple[Expr, ...]
    body: Expr  # a Block, or the expression after `=`; `Foreign` after `extern`
    pub: bool = False
    host: bool = False
    doc: str | None = None
    attributes: tuple[Attribute, ...] = ()


@syntax
class Rule(Node):
    name: str
    name_span: Span
    params: tuple[Param, ...]
    by: str | None
    body: Expr
    doc: str | None = None


@syntax
class Field(Node):
    name: str
    type: TypeExpr
    doc: str | None = None


@syntax
class Record(Node):
    name: str
    name_span: Span
    generics: tuple[Generic, ...]
    fields: tuple[Field, ...]
    pub: bool = False
    doc: str | None = None


@syntax
class Variant(Node):
    name: str
    fields: tuple[Field, ...]


@syntax
class Enum(Node):
    name: str
    name_span: Span
    generics: tuple[Generic, ...]
    variants: tuple[Variant, ...]
    pub: bool = False
    doc: str | None = None


@syntax
class Import(Node):
    module: str
    module_span: Span
    path: bool  # written as a string
    alias: str | None
    names: tuple[str, ...]
    name_spans: tuple[Span, ...] = ()


@syntax
class Test(Node):
    name: str
    name_span: Span
    body: Block


@syntax
class Bench(Node):
    name: str
    name_span: Span
    body: Block


@syntax
class Module(Node):
    """A file. `default_float` is what its first line asks for, `f32` if it asks for nothing."""

    items: tuple[Item, ...]
    default_float: str = "f32"


# ---- Types; a dim is a type to the parser, because a lone name may be either


@syntax
class TypeName(Node):
    path: tuple[str, ...]


@syntax
class TypeInt(Node):
    value: int


@syntax
class TypeApply(Node):
    """`f32[n, ..s]`, `Net[d, h]`."""

    path: tuple[str, ...]
    args: tuple[TypeExpr | AnyShape, ...]


@syntax
class TypeCall(Node):
    """`D(V)`."""

    path: tuple[str, ...]
    args: tuple[TypeExpr, ...]


@syntax
class TypeTuple(Node):
    items: tuple[TypeExpr, ...]


@syntax
class TypeFn(Node):
    """`(A, B) -> C`, linear `A -o B`."""

    param: TypeExpr
    result: TypeExpr
    linear: bool


@syntax
class DimBinary(Node):
    op: str  # + - * // ^
    lhs: TypeExpr
    rhs: TypeExpr


@syntax
class AnyShape(Node):
    name: str


Expr = (
    Name
    | Int
    | Float
    | Imaginary
    | Bool
    | Str
    | Unary
    | Binary
    | Compare
    | Range
    | Slice
    | Dots
    | Call
    | Pipe
    | Index
    | Member
    | Prime
    | With
    | TupleExpr
    | ArrayExpr
    | ArrayComprehension
    | Block
    | If
    | Match
    | Checkpoint
    | WithKey
    | Lambda
    | For
    | While
    | Foreign
)
ComprehensionArg = Comprehension
Pattern = NamePattern | TuplePattern
CasePattern = NamePattern | LiteralPattern | VariantPattern | TupleCasePattern
Stmt = Let | Var | Assign | Update | Return | Yield | Save | Break | Continue | Assert | Fn | Expr
Item = Import | Record | Enum | Rule | Test | Bench | Stmt
TypeExpr = TypeName | TypeInt | TypeApply | TypeCall | TypeTuple | TypeFn | DimBinary
