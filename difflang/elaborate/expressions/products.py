"""The matrix product."""

from __future__ import annotations

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.reports.op_messages import quote_source
from difflang.elaborate.reports.operand_mismatches import declaration_labels, dtype_mismatch_error, quote_or_this
from difflang.elaborate.terms import Array
from difflang.types.language_types import AxisSpread, show_type
from difflang.types.type_errors import DeferCheck, make_error
from difflang.types.unify import unify_dtypes


def matmul(cx: ElabContext, span: Span, x: Array, y: Array, spans: tuple[Span, Span]) -> Array:
    """`x @ y`: the last axis of x with the last but one of y; a vector stands for a row or a column."""
    a, b = x.tensor, y.tensor
    if any(isinstance(d, AxisSpread) for d in (*a.shape, *b.shape)):
        raise DeferCheck
    for term, at in ((x, spans[0]), (y, spans[1])):
        if not term.tensor.shape:
            raise cx.error(
                "DL0313",
                "`@` takes vectors and matrices",
                at,
                f"this is {show_type(term.tensor)}",
                "a number multiplies with `*`",
            )
    if not unify_dtypes(a.dtype, b.dtype):
        raise dtype_mismatch_error(cx, "@", span, [x, y], spans)
    inner = b.rank - 2 if b.rank > 1 else 0
    if not cx.unifier.equal(a.shape[-1], b.shape[inner]):
        raise inner_size_error(x, y, inner, spans)
    batch = min(max(a.rank - 2, 0), max(b.rank - 2, 0))
    if (batch and a.rank != b.rank) or any(
        not cx.unifier.equal(m, n) for m, n in zip(a.shape[:batch], b.shape[:batch], strict=True)
    ):
        raise cx.error(
            "DL0310", "the leading axes of a batched product must be equal", span, f"{show_type(a)} @ {show_type(b)}"
        )
    lead = tuple(range(batch))
    product = cx.emit_op("dot_general", span, x, y, spans=spans, contract=((a.rank - 1,), (inner,)), batch=(lead, lead))
    if not batch and b.rank > 2 and a.rank > 1:  # x was the same for the whole batch: its rows come after the batch
        rows = a.rank - 1
        order = (*range(rows, rows + b.rank - 2), *range(rows), rows + b.rank - 2)
        return cx.emit_op("transpose", span, product, perm=order)
    return product


def inner_size_error(x: Array, y: Array, inner: int, spans: tuple[Span, Span]) -> DifflangError:
    size, other = x.tensor.shape[-1], y.tensor.shape[inner]
    taken = {str(d) for d in (*x.tensor.shape, *y.tensor.shape)}
    k = next(letter for letter in "kpqrstuvw" if letter not in taken)
    labels = [
        (spans[1], f"{k} is {other} here: {quote_or_this(spans[1])} is {show_type(y.tensor)}"),
        (spans[0], f"{k} is {size} here: {quote_or_this(spans[0])} is {show_type(x.tensor)}"),
    ]
    way = f"`@` takes f[*b, n, {k}] and f[*b, {k}, m]"
    if y.tensor.rank == 2 and size == y.tensor.shape[1]:
        way += f"; `{quote_source(spans[0])} @ transpose({quote_source(spans[1], 'y')})` fits"
    return make_error("DL0312", f"the two sizes called `{k}` differ", *labels, *declaration_labels([x, y]), help=way)
