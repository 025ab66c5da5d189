"""Linear systems, determinants, factorizations, the exponential; a matrix is the last two axes of an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from difflang.base.source import Span
from difflang.elaborate.arrays.creation_and_shape import identity
from difflang.elaborate.arrays.reductions import floats
from difflang.elaborate.calls.builtin_functions import Taken, builtin
from difflang.elaborate.context import Context
from difflang.elaborate.expressions.operators import broadcast_to
from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.graph import Value
from difflang.ir.op import OPS, TypeMismatch
from difflang.ir.symbolic_dims import Dim
from difflang.ops.arrays.shape_manipulation import cut
from difflang.ops.linalg.batched_matrices import FIELDS, adjoint, matmul, trace
from difflang.ops.linalg.solve_and_det import SMALL, by_minors
from difflang.types.language_types import Spread, show_type
from difflang.types.type_errors import Undecided

if TYPE_CHECKING:
    from difflang.elaborate.calls.arguments import Args

Operands = tuple[Array, Array]


def matrix(cx: Context, took: Taken, name: str) -> Array:
    """An argument with at least two axes."""
    x = counted(took, name)
    if x.tensor.rank < 2:
        message = f"`{took.name}` takes a matrix, or a stack of them"
        raise cx.error("DL0313", message, took.span(name), f"this is {show_type(x.tensor)}")
    return x


def counted(took: Taken, name: str) -> Array:
    """An array with a known number of axes. Errors: Undecided."""
    x = took.array(name)
    if any(isinstance(size, Spread) for size in x.tensor.shape):
        raise Undecided
    return x


def here(cx: Context, x: Array, span: Span) -> Value:
    """The array as rules of ops take it: what they make of it stands in the graph that is being built."""
    cx.builder.span = span
    return cx.builder.own(x.value)


# ---- Linear systems


@builtin("solve")
def solve(cx: Context, args: Args, name: str) -> Term:
    """The x of `a @ x = b`; a `b` with one axis is a vector, for all of a stack of matrices."""
    took = Taken(cx, args, name, "a b")
    return solved(cx, took, {"transposed": False})


@builtin("solve_triangular")
def solve_triangular(cx: Context, args: Args, name: str) -> Term:
    """The same for a triangular matrix: the lower triangle is read, or the upper with `lower = false`."""
    took = Taken(cx, args, name, "a b lower? transposed? unit?")
    flags = {flag: took.flag(flag, default=flag == "lower") for flag in ("lower", "transposed", "unit")}
    return solved(cx, took, flags)


def solved(cx: Context, took: Taken, attrs: dict[str, bool]) -> Array:
    a, b, span = matrix(cx, took, "a"), counted(took, "b"), took.args.span
    vector = b.tensor.rank == 1
    columns = Array(cx.emit("reshape", span, b.value, shape=(*b.tensor.shape, 1))) if vector else b
    (x,) = results(cx, took.name, took, alike_stacks(cx, a, columns, span), **attrs)
    return Array(cx.emit("reshape", span, x.value, shape=x.tensor.shape[:-1])) if vector else x


def alike_stacks(cx: Context, a: Array, b: Array, span: Span) -> Operands:
    """A single matrix beside a stack of them is repeated."""
    if b.tensor.rank == 2:
        return a, broadcast_to(cx, b, (*a.tensor.shape[:-2], *b.tensor.shape), span)
    if a.tensor.rank == 2 and b.tensor.rank > 2:
        return broadcast_to(cx, a, (*b.tensor.shape[:-2], *a.tensor.shape), span), b
    return a, b


@builtin("inv")
def inv(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "a")
    a = matrix(cx, took, "a")
    eye = Array(identity(cx, a.tensor.shape[-1], a.tensor.dtype, args.span))
    ones = broadcast_to(cx, eye, (*a.tensor.shape[:-2], *eye.tensor.shape), args.span)
    return results(cx, "solve", took, (a, ones), transposed=False)[0]


def results(cx: Context, op: str, took: Taken, operands: tuple[Array, ...], **attrs: Any) -> list[Array]:
    """The results of an op, whose refusal speaks of the function and the arguments that were written."""
    span = cx.builder.span = took.args.span
    try:
        return [Array(y) for y in cx.builder.emit(OPS[op], [x.value for x in operands], **attrs)]
    except TypeMismatch as refused:
        given = [name for name in ("a", "b") if took.has(name)]
        arrays, spans = tuple(map(took.array, given)), tuple(map(took.span, given))
        raise cx.refusal(refused, took.name, span, arrays, spans) from None


# ---- Functions of a matrix


@builtin("det")
def det(cx: Context, args: Args, name: str) -> Term:
    """Of a few rows, products and sums."""
    took = Taken(cx, args, name, "a")
    a = matrix(cx, took, "a")
    floats(cx, a, took.span("a"), name, FIELDS)
    if a.tensor.shape[-2:] in [(n, n) for n in range(1, SMALL + 1)]:
        return Array(by_minors(here(cx, a, args.span)))
    return results(cx, name, took, (a,))[0]


@builtin("cholesky", "expm")
def function(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "a")
    return results(cx, name, took, (matrix(cx, took, "a"),))[0]


@builtin("slogdet", "lu", "eigh")
def factors(cx: Context, args: Args, name: str) -> Term:
    """Those with several results, of square matrices."""
    took = Taken(cx, args, name, "a")
    return Tuple(tuple(results(cx, name, took, (matrix(cx, took, "a"),))))


@builtin("svd")
def svd(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "a")
    a = matrix(cx, took, "a")
    sizes(a)
    return Tuple(tuple(results(cx, name, took, (a,))))


@builtin("qr")
def qr(cx: Context, args: Args, name: str) -> Term:
    """Of a matrix with more columns than rows: of its left square, and what Q makes of the rest."""
    took = Taken(cx, args, name, "a")
    a = matrix(cx, took, "a")
    rows, columns = sizes(a)
    if rows == columns or (isinstance(rows, int) and isinstance(columns, int) and rows > columns):
        return Tuple(tuple(results(cx, name, took, (a,))))
    last = a.tensor.rank - 1
    whole = here(cx, a, args.span)
    q, r = results(cx, name, took, (Array(cut(whole, last, 0, rows)),))
    rest = matmul(adjoint(q.value), cut(whole, last, rows, columns))
    return Tuple((q, Array(cx.emit("concat", args.span, r.value, rest, axis=last))))


def sizes(a: Array) -> tuple[Dim, Dim]:
    """The numbers of rows and columns. Errors: Undecided where it is open which is smaller."""
    rows, columns = a.tensor.shape[-2:]
    if rows != columns and not (isinstance(rows, int) and isinstance(columns, int)):
        raise Undecided
    return rows, columns


@builtin("trace")
def trace_(cx: Context, args: Args, name: str) -> Term:
    """The sum of the diagonal."""
    took = Taken(cx, args, name, "a")
    return Array(trace(here(cx, matrix(cx, took, "a"), args.span)))
