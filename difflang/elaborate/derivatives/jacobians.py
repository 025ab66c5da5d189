"""Jacobians and Hessians: `jacobian`, `jacfwd`, `jacrev`, `hessian`, and the Hessian-vector product `hvp`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.arrays.creation_and_shape import identity_matrix, shape_product
from difflang.elaborate.calls.application import apply
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.derivatives.scalar_derivative import is_complex_value, trace_holomorphic
from difflang.elaborate.derivatives.tangents import build_tangent, number_types, tags_of
from difflang.elaborate.derivatives.traced_functions import (
    TracedFunction,
    default_result_dtypes,
    emit_jvp,
    emit_vjp,
    wrt_part,
)
from difflang.elaborate.derivatives.wrt import WrtPath, gradient_record_type, resolve_wrt
from difflang.elaborate.expressions.map_equations import emit_map
from difflang.elaborate.reports.derivative_losses import warn_if_lost
from difflang.elaborate.reports.missing_result_tangents import require_differentiable_result
from difflang.elaborate.reports.missing_tangents import argument_without_tangent
from difflang.elaborate.statements.loop_iterable import LoopIterable
from difflang.elaborate.statements.printing import suppress_prints
from difflang.elaborate.terms import Array, Closure, Term, Tuple, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import DTypeVar, prune_dtype
from difflang.types.function_code import DerivativeCode
from difflang.types.language_types import leaf_types, show_type, tangent_type
from difflang.types.unify import narrow_candidates


def hessian_vector_product(cx: ElabContext, code: DerivativeCode, f: Term, args: CallArgs) -> Walk[Term]:
    """`hvp(f)(x, v)`: the derivative of the gradient along v, forward over reverse."""
    gradient = Closure(DerivativeCode("grad", code.wrt, source_operator=code.operator, wrt_spans=code.wrt_spans), (f,))
    pair = yield apply(cx, Closure(DerivativeCode("jvp", code.wrt), (gradient,)), args)
    assert isinstance(pair, Tuple)
    return pair.items[1]


def hessian(cx: ElabContext, code: DerivativeCode, f: Term, args: CallArgs) -> Walk[Term]:
    """The gradient's Jacobian, in forward mode. Errors: DL0408 for complex arguments."""
    for position, path in [resolve_wrt(cx, f, w, args.span) for w in code.wrt]:
        item = args.items[position] if position < len(args.items) else None
        if item is not None and any(t.dtype.is_complex for t in leaf_types(type_of(wrt_part(cx, item, path)))):
            message = "`hessian` takes functions of real numbers: a complex derivative has two parts"
            what = f"this is {show_type(type_of(item[0]))}"
            raise cx.error(
                "DL0408", message, item[1], what, "`hvp` gives the derivative of the gradient along a direction"
            )
    gradient = Closure(DerivativeCode("grad", code.wrt, source_operator=code.operator, wrt_spans=code.wrt_spans), (f,))
    return (
        yield apply(cx, Closure(DerivativeCode("jacfwd", code.wrt, source_operator=code.operator), (gradient,)), args)
    )


def apply_with_one_key(cx: ElabContext, f: Term, args: CallArgs) -> Walk[tuple[Term, Value | None]]:
    """The function's value, and the random key it used, if it draws: applying it again must use the same key."""
    before, key, cx.root.output_suppressed = cx.root.draw_count, None, False
    with suppress_prints(cx):
        value = yield apply(cx, f, CallArgs(args.span, list(args.items)))
    drawn = cx.root.draw_count > before
    if drawn or cx.root.output_suppressed:
        key = cx.draw_key(args.span) if drawn else None
        with cx.with_random_key(key):
            value = yield apply(cx, f, CallArgs(args.span, list(args.items)))
    return value, key


def jacobian(cx: ElabContext, code: DerivativeCode, f: Term, args: CallArgs, wrt: list[WrtPath]) -> Walk[Term]:
    """An array `[..result, ..argument]`: one jvp for each number of the argument, or one vjp for each of the result.

    A function of complex numbers must be holomorphic. For records and tuples there is such an array for each pair of
    a part of the result and a part of the argument: a tangent of the result with a tangent of the argument in it.
    """
    places = [wrt_part(cx, args.items[position], path) for position, path in wrt]
    parts = [type_of(place) for place in places]
    moving = gradient_record_type(code.wrt, [tangent_type(part) for part in parts])
    points, tags = number_types(moving), [tag for part in places for tag in tags_of(part)]
    for point in points:
        if isinstance(dtype := prune_dtype(point.dtype), DTypeVar):
            # A literal becomes a float.
            narrow_candidates(dtype, [c for c in dtype.candidates if c.is_float])
    value, key = yield apply_with_one_key(cx, f, args)
    default_result_dtypes(cx, value)
    values = number_types(tangent_type(type_of(value)))
    if any(isinstance(tag.type, Tensor) and tag.type.shape for tag in (*tags, *tags_of(value))):
        message = f"`{code}` does not support arrays of enums or functions: their numbers are known only at run time"
        way = "take it of one element at a time, `[for s in shapes => …]`"
        if (code.source_operator or code.operator) == "hessian":
            way = f"`hvp(f)(x, dx)` gives its product with a tangent `dx`; or {way}"
        raise cx.error("DL0411", message, args.span, "", way)
    if not points:
        raise argument_without_tangent(f, args, wrt, wrt[0], parts[0])
    if not values:
        yield require_differentiable_result(
            cx, code.operator, f, (yield trace_holomorphic(cx, f, args, wrt)), args, wrt
        )
    by_columns = prefers_forward(code, points, values)
    blocks: dict[tuple[int, int], Term] = {}
    for place, side in enumerate(points if by_columns else values):
        found = yield map_over_basis(
            cx, lambda: trace_with_loss_warnings(cx, f, args, wrt), key, side, place, by_columns, args.span
        )
        for other, block in enumerate(found):
            i, j = (other, place) if by_columns else (place, other)
            blocks[i, j] = move_direction_axis(cx, block, by_columns, values[i], points[j], args)
    rows = [[blocks[i, j] for j in range(len(points))] for i in range(len(values))]
    inner = [build_tangent(moving, tags, row) for row in rows]
    return build_tangent(tangent_type(type_of(value)), tags_of(value), inner)


def trace_with_loss_warnings(cx: ElabContext, f: Term, args: CallArgs, wrt: list[WrtPath]) -> Walk[TracedFunction]:
    """The function's graph, with warnings of derivatives that are lost."""
    traced = yield trace_holomorphic(cx, f, args, wrt)
    warn_if_lost(cx, f, traced, args, wrt)
    return traced


def map_over_basis(
    cx: ElabContext,
    retrace: Callable[[], Walk[TracedFunction]],
    key: Value | None,
    side: Tensor,
    place: int,
    by_columns: bool,
    span: Span,
) -> Walk[list[Array]]:
    """Map the jvp over a basis of one array of the argument, or the vjp over a basis of one array of the result."""

    def direction(_: Array, basis: list[Value]) -> Walk[Term]:
        along = cx.emit("reshape", span, basis[0], shape=side.shape)
        with cx.with_random_key(key), suppress_prints(cx):
            traced = yield retrace()
        if by_columns:
            return Tuple(tuple(map(Array, emit_jvp(cx, traced, [along], span, only=place)[1])))
        # A cotangent is the conjugate of a derivative. For a complex result and a real argument, the pullback
        # along 1 gives the real part of the derivative and the pullback along i the imaginary part.
        one = with_single_result(traced, place)
        pulled = emit_vjp(cx, one, [along], span)[1]
        if is_complex_value(along) and not all(map(is_complex_value, pulled)):
            i = cx.emit("const", span, value=1j, type=side)
            along_i = emit_vjp(cx, one, [cx.emit("mul", span, along, i)], span)[1]
            found = [
                v if is_complex_value(v) else cx.emit("complex", span, v, w)
                for v, w in zip(pulled, along_i, strict=True)
            ]
        else:
            found = list(pulled)
        return Tuple(
            tuple(
                [
                    Array(cx.emit("conj", span, w) if is_complex_value(v) else w)
                    for v, w in zip(pulled, found, strict=True)
                ]
            )
        )

    length = shape_product(side.shape)
    over = LoopIterable(
        length, cx.integer_array(length, span), [identity_matrix(cx, length, side.dtype, span)], row_index
    )
    found = yield emit_map(cx, span, over, direction)
    assert isinstance(found, Tuple)
    return [block for block in found.items if isinstance(block, Array)]


def row_index(index: Array, rows: list[Value]) -> Term:
    return index


def prefers_forward(code: DerivativeCode, points: list[Tensor], values: list[Tensor]) -> bool:
    """Whether forward mode, one jvp for each number of the argument, needs fewer evaluations than reverse mode."""
    if code.operator != "jacobian":
        return code.operator == "jacfwd"
    # A row of a complex result with a real argument takes two pullbacks, so columns are preferred there.
    curves = any(v.dtype.is_complex for v in values) and not all(p.dtype.is_complex for p in points)
    fewer = total_size(values) - total_size(points)
    return curves or not (isinstance(fewer, int) and fewer < 0)


def total_size(types: list[Tensor]) -> Dim:
    """How many numbers there are in arrays of these types."""
    found: Dim = 0
    for type in types:
        found = found + shape_product(type.shape)
    return found


def with_single_result(traced: TracedFunction, place: int) -> TracedFunction:
    """The function with a single result that has a tangent, and its failure."""
    results = traced.graph.results
    ends = len(results) - 3 if traced.fails else len(results)
    moving = [r for r in results[:ends] if isinstance(r.type, Tensor) and prune_dtype(r.type.dtype).differentiable]
    return replace(traced, graph=traced.graph.with_results([moving[place], *results[ends:]]))


def move_direction_axis(
    cx: ElabContext, found: Array, by_columns: bool, value: Tensor, point: Tensor, args: CallArgs
) -> Array:
    """Move the axis of directions last in forward mode, and reshape it to the axes of its array."""
    result = found.value
    if by_columns:
        rank = len(value.shape)
        result = cx.emit("transpose", args.span, result, perm=(*range(1, rank + 1), 0))
    return Array(cx.emit("reshape", args.span, result, shape=(*value.shape, *point.shape)))
