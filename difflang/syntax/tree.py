"""The abstract syntax tree: one class for each expression, pattern, statement, declaration and type, with its span.

Nodes compare by identity: a tree may be 100,000 levels deep, and nothing here recurses.
"""

from __future__ import annotations

from msgspec import Struct

from difflang.base.source import Span


class Node(Struct, frozen=True, eq=False):
    span: Span

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.span.text!r})"


# ---- Expressions


class Name(Node, frozen=True):
    id: str


class Int(Node, frozen=True):
    value: int


class Float(Node, frozen=True):
    value: float
    text: str


class Imaginary(Node, frozen=True):
    """`2.0j`, a multiple of the imaginary unit."""

    value: float
    text: str


class Bool(Node, frozen=True):
    value: bool


class Interpolation(Node, frozen=True):
    """`{value:format}` in a string; `format` is empty if none is written."""

    value: Expr
    format: str


class Str(Node, frozen=True):
    """A string: pieces of text with escapes resolved, and interpolated expressions between them."""

    parts: tuple[str | Interpolation, ...]


class Unary(Node, frozen=True):
    op: str  # "-", "not"
    operand: Expr


class Binary(Node, frozen=True):
    op: str  # + - * / // % @ ^ and or
    lhs: Expr
    rhs: Expr
    op_span: Span


class Compare(Node, frozen=True):
    """A chain `first op expr op expr ...`."""

    first: Expr
    rest: tuple[tuple[str, Expr, Span], ...]


class Range(Node, frozen=True):
    start: Expr
    stop: Expr
    step: Expr | None


class Slice(Node, frozen=True):
    """An index `a..b`, `a..`, `..b`, `..`, with `by`; only inside `[ ]`. `a..b` alone parses as a Range there too."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


class Dots(Node, frozen=True):
    """The index `...`: all the axes between."""


class Arg(Node, frozen=True):
    name: str | None
    value: Expr | ComprehensionArg


class Call(Node, frozen=True):
    fn: Expr
    args: tuple[Arg, ...]


class Pipe(Node, frozen=True):
    """`value |> fn`."""

    value: Expr
    fn: Expr


class Index(Node, frozen=True):
    base: Expr
    subscripts: tuple[Expr, ...]  # Slice, Range and Dots among them


class Member(Node, frozen=True):
    base: Expr
    name: str
    name_span: Span


class Prime(Node, frozen=True):
    """`f'`."""

    base: Expr


class With(Node, frozen=True):
    base: Expr
    fields: tuple[Arg, ...]


class TupleExpr(Node, frozen=True):
    """A tuple of two items or more, or `()`."""

    items: tuple[Expr, ...]


class ArrayExpr(Node, frozen=True):
    items: tuple[Expr, ...]


class Iterator(Node, frozen=True):
    pattern: Pattern
    source: Expr | None


class Comprehension(Node, frozen=True):
    """`for i in 0..n, j if p => body`: an array in brackets, the input of a reduction as an argument."""

    iterators: tuple[Iterator, ...]
    condition: Expr | None
    body: Expr


class ArrayComprehension(Node, frozen=True):
    comprehension: Comprehension


class Block(Node, frozen=True):
    stmts: tuple[Stmt, ...]


class If(Node, frozen=True):
    condition: Expr
    then: Block
    orelse: Block | If | None


class Case(Node, frozen=True):
    pattern: CasePattern
    body: Expr


class Match(Node, frozen=True):
    subject: Expr
    cases: tuple[Case, ...]


class Checkpoint(Node, frozen=True):
    body: Block


class WithKey(Node, frozen=True):
    key: Expr
    body: Block


class Lambda(Node, frozen=True):
    params: tuple[LambdaParam, ...]
    body: Expr
    linear: bool


class LambdaParam(Node, frozen=True):
    pattern: Pattern
    type: TypeExpr | None


class Attribute(Node, frozen=True):
    """`@name(args)`. An arg is an expression, `name = expr`, or a quantity such as `256 MiB`."""

    name: str
    args: tuple[Arg | Quantity, ...]


class Quantity(Node, frozen=True):
    number: Expr
    unit: str


class For(Node, frozen=True):
    pattern: Pattern
    iterable: Expr
    body: Block
    attributes: tuple[Attribute, ...]


class While(Node, frozen=True):
    condition: Expr
    body: Block
    attributes: tuple[Attribute, ...]


Loop = For | While


class Foreign(Node, frozen=True):
    """The body of an `extern fn`, which Python supplies; or of an `extern op`, which is an op of the registry."""

    name: str
    op: bool = False


# ---- Patterns


class NamePattern(Node, frozen=True):
    name: str  # "_" binds nothing


class TuplePattern(Node, frozen=True):
    items: tuple[Pattern, ...]


class LiteralPattern(Node, frozen=True):
    value: Expr  # Int, Float, Str, Bool, or Unary "-" of a number


class VariantPattern(Node, frozen=True):
    """`Circle(r)`, `model.Empty`. A lone lower-case or upper-case name is a NamePattern until names are resolved."""

    path: tuple[str, ...]
    items: tuple[CasePattern, ...]


class TupleCasePattern(Node, frozen=True):
    items: tuple[CasePattern, ...]


# ---- Statements (an expression is one too)


class Let(Node, frozen=True):
    pattern: Pattern
    type: TypeExpr | None
    value: Expr
    pub: bool = False
    doc: str | None = None
    attributes: tuple[Attribute, ...] = ()


class Var(Node, frozen=True):
    pattern: Pattern
    type: TypeExpr | None
    value: Expr
    attributes: tuple[Attribute, ...] = ()


class Assign(Node, frozen=True):
    target: Expr  # Name, Member, Index, or TupleExpr of them
    value: Expr


class Update(Node, frozen=True):
    target: Expr
    op: str  # "+" "-" "*" "/" "max" "min"
    value: Expr
    op_span: Span


class Return(Node, frozen=True):
    value: Expr | None


class Yield(Node, frozen=True):
    value: Expr


class Save(Node, frozen=True):
    name: str


class Break(Node, frozen=True):
    pass


class Continue(Node, frozen=True):
    pass


class Assert(Node, frozen=True):
    condition: Expr
    message: Expr | None


# ---- Declarations


class Generic(Node, frozen=True):
    name: str
    bound: str | None


class Param(Node, frozen=True):
    name: str
    type: TypeExpr | None
    default: Expr | None


class Fn(Node, frozen=True):
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


class Rule(Node, frozen=True):
    name: str
    name_span: Span
    params: tuple[Param, ...]
    by: str | None
    body: Expr
    doc: str | None = None
    attributes: tuple[Attribute, ...] = ()

    @property
    def unchecked(self) -> bool:
        """Whether it is not compared with its function."""
        return any(a.name == "unchecked" for a in self.attributes)


class Field(Node, frozen=True):
    name: str
    type: TypeExpr
    doc: str | None = None


class Record(Node, frozen=True):
    name: str
    name_span: Span
    generics: tuple[Generic, ...]
    fields: tuple[Field, ...]
    pub: bool = False
    doc: str | None = None


class Variant(Node, frozen=True):
    name: str
    fields: tuple[Field, ...]


class Enum(Node, frozen=True):
    name: str
    name_span: Span
    generics: tuple[Generic, ...]
    variants: tuple[Variant, ...]
    pub: bool = False
    doc: str | None = None


class Import(Node, frozen=True):
    module: str
    module_span: Span
    path: bool  # written as a string
    alias: str | None
    names: tuple[str, ...]
    name_spans: tuple[Span, ...] = ()


class Axes(Node, frozen=True):
    """`axes data, model`: the names of a mesh's axes."""

    names: tuple[str, ...]
    name_spans: tuple[Span, ...]


class Test(Node, frozen=True):
    name: str
    name_span: Span
    body: Block


class Bench(Node, frozen=True):
    name: str
    name_span: Span
    body: Block


class Module(Node, frozen=True):
    """A file. `default_float` is the type that its first line asks for, else `f32`."""

    items: tuple[Item, ...]
    default_float: str = "f32"


# ---- Types; a dim is a type to the parser, because a lone name may be either


class TypeName(Node, frozen=True):
    path: tuple[str, ...]


class TypeInt(Node, frozen=True):
    value: int


class MeshAxes(Node, frozen=True):
    """`@data`, `@(data, model)`: the axes of a mesh that split an axis of an array."""

    names: tuple[str, ...]
    name_spans: tuple[Span, ...]


class TypeApply(Node, frozen=True):
    """`f32[n, ..s]`, `Net[d, h]`. `splits` has what stands after each argument; it is empty if nothing does."""

    path: tuple[str, ...]
    args: tuple[TypeExpr | AnyShape, ...]
    splits: tuple[MeshAxes | None, ...] = ()


class TypeCall(Node, frozen=True):
    """`D(V)`."""

    path: tuple[str, ...]
    args: tuple[TypeExpr, ...]


class TypeArray(Node, frozen=True):
    """`Net[d, h][k]`, `D(V)[k]`: an array of records or enums; without arguments, `Body[k]`, it is a `TypeApply`."""

    item: TypeApply | TypeCall
    axes: tuple[TypeExpr | AnyShape, ...]


class TypeTuple(Node, frozen=True):
    items: tuple[TypeExpr, ...]


class TypeFn(Node, frozen=True):
    """`(A, B) -> C`, linear `A -o B`."""

    param: TypeExpr
    result: TypeExpr
    linear: bool


class DimBinary(Node, frozen=True):
    op: str  # + - * // ^
    lhs: TypeExpr
    rhs: TypeExpr


class AnyShape(Node, frozen=True):
    name: str


# ---- Unions of nodes, by where they may stand
Expr = (
    Name | Int | Float | Imaginary | Bool | Str | Unary | Binary | Compare | Range | Slice | Dots | Call | Pipe
    | Index | Member | Prime | With | TupleExpr | ArrayExpr | ArrayComprehension | Block | If | Match
    | Checkpoint | WithKey | Lambda | Loop | Foreign | MeshAxes
)  # fmt: skip
ComprehensionArg = Comprehension
Pattern = NamePattern | TuplePattern
CasePattern = NamePattern | LiteralPattern | VariantPattern | TupleCasePattern
Stmt = Let | Var | Assign | Update | Return | Yield | Save | Break | Continue | Assert | Fn | Expr
Item = Import | Axes | Record | Enum | Rule | Test | Bench | Stmt
TypeExpr = TypeName | TypeInt | TypeApply | TypeCall | TypeArray | TypeTuple | TypeFn | DimBinary
