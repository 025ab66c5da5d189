"""Linear algebra: `solve`, `inv`, `det`, factorizations, `expm`. A matrix is the last two axes of an array."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.arrays.creation_and_shape import identity_matrix
from difflang.elaborate.arrays.reductions import require_floats
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.broadcasting import broadcast_to, require_rank
from difflang.elaborate.terms import Array, Term, Tuple
from difflang.ir.graph import Value
from difflang.ir.op import OPS, TypeMismatch
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import NUMBERS
from difflang.ops.arrays.shape_manipulation import slice_axis
from difflang.ops.linalg.batched_matrices import MATRIX_DTYPES, adjoint, matmul, matrix_trace
from difflang.ops.linalg.solve_and_det import MAX_MINOR_ROWS, det_by_minors
from difflang.types.language_types import show_type
from difflang.types.type_errors import DeferCheck

ArrayPair = tuple[Array, Array]


def matrix_argument(cx: ElabContext, took: BuiltinArgs, name: str) -> Array:
    """An argument with at least two axes."""
    x = require_rank(took.array(name))
    if x.tensor.rank < 2:
        message = f"`{took.name}` takes a matrix, or a stack of matrices"
        raise cx.error("DL0313", message, took.span(name), f"this is {show_type(x.tensor)}")
    return x


def value_in_graph(cx: ElabContext, x: Array, span: Span) -> Value:
    """The array's value captured into the current graph, for op rules that emit equations there."""
    cx.builder.span = span
    return cx.builder.capture(x.value)


# ---- Linear systems


@builtin("solve", takes="a b")
def solve(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The x of `a @ x = b`; a `b` with one axis is one vector for a whole stack of matrices."""
    took = BuiltinArgs(cx, args, name)
    return emit_solve(cx, took, {"transposed": False})


@builtin("solve_triangular", takes="a b lower? transposed? unit?")
def solve_triangular(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The same for a triangular matrix, of which only the triangle that `lower` names is read."""
    took = BuiltinArgs(cx, args, name)
    known = matrix_argument(cx, took, "a").lower_triangular
    if not known and not took.is_present("lower"):
        # SciPy reads the upper triangle where it is not told: a default would be wrong in silence for some.
        way = "say which triangle of `a` to read: `lower = true` or `lower = false`"
        raise cx.error("DL0319", f"`{name}` is missing `lower`", args.span, "", way)
    flags = {flag: took.flag(flag) for flag in ("transposed", "unit")}
    return emit_solve(cx, took, {"lower": took.flag("lower", default=known), **flags})


def emit_solve(cx: ElabContext, took: BuiltinArgs, attrs: dict[str, bool]) -> Array:
    a, b, span = matrix_argument(cx, took, "a"), require_rank(took.array("b")), took.args.span
    vector = b.tensor.rank == 1
    columns = Array(cx.emit("reshape", span, b.value, shape=(*b.tensor.shape, 1))) if vector else b
    (x,) = emit_results(cx, took.name, took, broadcast_stacks(cx, a, columns, span), **attrs)
    return Array(cx.emit("reshape", span, x.value, shape=x.tensor.shape[:-1])) if vector else x


def broadcast_stacks(cx: ElabContext, a: Array, b: Array, span: Span) -> ArrayPair:
    """Broadcast a single matrix to the batch axes of the other operand."""
    if b.tensor.rank == 2:
        return a, broadcast_to(cx, b, (*a.tensor.shape[:-2], *b.tensor.shape), span)
    if a.tensor.rank == 2 and b.tensor.rank > 2:
        return broadcast_to(cx, a, (*b.tensor.shape[:-2], *a.tensor.shape), span), b
    return a, b


@builtin("inv", takes="a")
def inv(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    a = matrix_argument(cx, took, "a")
    eye = Array(identity_matrix(cx, a.tensor.shape[-1], a.tensor.dtype, args.span))
    ones = broadcast_to(cx, eye, (*a.tensor.shape[:-2], *eye.tensor.shape), args.span)
    return emit_results(cx, "solve", took, (a, ones), transposed=False)[0]


def emit_results(cx: ElabContext, op: str, took: BuiltinArgs, operands: tuple[Array, ...], **attrs: Any) -> list[Array]:
    """The results of an op. A type mismatch is reported for the function and arguments of the source text."""
    span = cx.builder.span = took.args.span
    try:
        return [Array(y) for y in cx.builder.emit(OPS[op], [x.value for x in operands], **attrs)]
    except TypeMismatch as refused:
        given = [name for name in ("a", "b") if took.is_present(name)]
        arrays, spans = tuple(map(took.array, given)), tuple(map(took.span, given))
        raise cx.op_error(refused, took.name, span, arrays, spans) from None


# ---- Functions of a matrix


@builtin("det", takes="a")
def det(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The determinant; a matrix of a few rows is expanded by minors."""
    took = BuiltinArgs(cx, args, name)
    a = matrix_argument(cx, took, "a")
    require_floats(cx, a, took.span("a"), name, MATRIX_DTYPES)
    # Minors are elementwise, so they fuse and need no LU call.
    if a.tensor.shape[-2:] in [(n, n) for n in range(1, MAX_MINOR_ROWS + 1)]:
        return Array(det_by_minors(value_in_graph(cx, a, args.span)))
    return emit_results(cx, name, took, (a,))[0]


@builtin("cholesky", takes="a")
def cholesky(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    return replace(emit_results(cx, name, took, (matrix_argument(cx, took, "a"),))[0], lower_triangular=True)


@builtin("expm", takes="a")
def expm(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    return emit_results(cx, name, took, (matrix_argument(cx, took, "a"),))[0]


@builtin("slogdet", "lu", "eigh", takes="a")
def factorization(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The factorizations of square matrices that have several results."""
    took = BuiltinArgs(cx, args, name)
    return Tuple(tuple(emit_results(cx, name, took, (matrix_argument(cx, took, "a"),))))


@builtin("svd", takes="a")
def svd(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    a = matrix_argument(cx, took, "a")
    matrix_sizes(a)
    return Tuple(tuple(emit_results(cx, name, took, (a,))))


@builtin("qr", takes="a")
def qr(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The QR factorization. A wide matrix is factorized by its left square; the rest of R is Q^H times the rest."""
    took = BuiltinArgs(cx, args, name)
    a = matrix_argument(cx, took, "a")
    rows, columns = matrix_sizes(a)
    if rows == columns or (isinstance(rows, int) and isinstance(columns, int) and rows > columns):
        return Tuple(tuple(emit_results(cx, name, took, (a,))))
    last = a.tensor.rank - 1
    whole = value_in_graph(cx, a, args.span)
    q, r = emit_results(cx, name, took, (Array(slice_axis(whole, last, 0, rows)),))
    rest = matmul(adjoint(q.value), slice_axis(whole, last, rows, columns))
    return Tuple((q, Array(cx.emit("concat", args.span, r.value, rest, axis=last))))


def matrix_sizes(a: Array) -> tuple[Dim, Dim]:
    """The numbers of rows and columns. Errors: DeferCheck where it is unknown which is smaller."""
    rows, columns = a.tensor.shape[-2:]
    if rows != columns and not (isinstance(rows, int) and isinstance(columns, int)):
        raise DeferCheck
    return rows, columns


@builtin("trace", takes="a")
def trace_(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The sum of the diagonal."""
    took = BuiltinArgs(cx, args, name)
    a = matrix_argument(cx, took, "a")
    require_floats(cx, a, took.span("a"), name, NUMBERS)
    return Array(matrix_trace(value_in_graph(cx, a, args.span)))
