"""Derivatives in many directions at once: `jacobian`, `jacfwd`, `jacrev`, `hessian`, and `hvp` in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.elaborate.arrays.creation_and_shape import identity, product
from difflang.elaborate.calls.apply import apply
from difflang.elaborate.calls.arguments import Args
from difflang.elaborate.context import Context
from difflang.elaborate.derivatives.grad_jvp_vjp import (
    Traced,
    differentiable_part,
    drawn_once,
    forward,
    reverse,
    settle_results,
    together_type,
)
from difflang.elaborate.derivatives.scalar_derivative import of_complex, trace_holomorphic
from difflang.elaborate.derivatives.tangents import number_types, tags_of
from difflang.elaborate.derivatives.wrt import Place, located
from difflang.elaborate.expressions.comprehensions import mapping
from difflang.elaborate.reports.missing_tangents import result_with_tangent, without_tangent
from difflang.elaborate.reports.zero_derivative_warnings import watch
from difflang.elaborate.statements.iterables import Source
from difflang.elaborate.statements.printing import quiet
from difflang.elaborate.terms import Array, Closure, Sum, Term, Tuple, rebuilt_record, rebuilt_variant, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import DTypeVar, pruned
from difflang.types.function_code import DerivativeCode
from difflang.types.language_types import (
    LangType,
    RecordType,
    SumType,
    TupleType,
    VariantType,
    leaf_types,
    show_type,
    tangent_type,
)
from difflang.types.unify import narrow


def hessian_product(cx: Context, code: DerivativeCode, f: Term, args: Args) -> Walk[Term]:
    """`hvp(f)(x, v)`: how the gradient changes along v, forward over reverse."""
    gradient = Closure(DerivativeCode("grad", code.wrt, asked=code.operator, at=code.at), (f,))
    pair = yield apply(cx, Closure(DerivativeCode("jvp", code.wrt), (gradient,)), args)
    assert isinstance(pair, Tuple)
    return pair.items[1]


def hessian(cx: Context, code: DerivativeCode, f: Term, args: Args) -> Walk[Term]:
    """The gradient's Jacobian, in forward mode. Errors: DL0408 in complex numbers, of which there is no one array."""
    for position, path in [located(cx, f, w, args.span) for w in code.wrt]:
        item = args.items[position] if position < len(args.items) else None
        if item is not None and any(
            t.dtype.is_complex for t in leaf_types(type_of(differentiable_part(cx, item, path)))
        ):
            message = "`hessian` is of functions of real numbers: in complex ones a change has two halves"
            what = f"this is {show_type(type_of(item[0]))}"
            raise cx.error("DL0408", message, item[1], what, "`hvp` gives the change of the gradient along a direction")
    gradient = Closure(DerivativeCode("grad", code.wrt, asked=code.operator, at=code.at), (f,))
    return (yield apply(cx, Closure(DerivativeCode("jacfwd", code.wrt, asked=code.operator), (gradient,)), args))


def jacobian(cx: Context, code: DerivativeCode, f: Term, args: Args, wrt: list[Place]) -> Walk[Term]:
    """`[..result, ..argument]`: a column for each number of the argument, or a row for each of the result.

    Of complex numbers the function must be holomorphic. Of records and tuples, such an array for each number or array
    of the result in each of the argument: the change of the result, with a change of the argument in every place.
    """
    places = [differentiable_part(cx, args.items[position], path) for position, path in wrt]
    parts = [type_of(place) for place in places]
    moving = together_type(code.wrt, [tangent_type(part) for part in parts])
    points, tags = number_types(moving), [tag for part in places for tag in tags_of(part)]
    for point in points:
        if isinstance(dtype := pruned(point.dtype), DTypeVar):
            narrow(dtype, [c for c in dtype.candidates if c.is_float])  # a number as written
    value, key = yield drawn_once(cx, f, args)
    settle_results(cx, value)
    values = number_types(tangent_type(type_of(value)))
    if any(isinstance(tag.type, Tensor) and tag.type.shape for tag in (*tags, *tags_of(value))):
        message = f"`{code}` in or of an array of enums or functions: of which numbers, only the run would know"
        way = "take it of one of them at a time, `[for s in shapes => …]`"
        raise cx.error("DL0411", message, args.span, "", way)
    if not points:
        raise without_tangent(f, args, wrt, wrt[0], parts[0])
    if not values:
        yield result_with_tangent(cx, code.operator, f, (yield trace_holomorphic(cx, f, args, wrt)), args, wrt)
    by_columns = column_by_column(code, points, values)
    blocks: dict[tuple[int, int], Term] = {}
    for place, side in enumerate(points if by_columns else values):
        found = yield swept(cx, lambda: watched(cx, f, args, wrt), key, side, place, by_columns, args.span)
        for other, block in enumerate(found):
            i, j = (other, place) if by_columns else (place, other)
            blocks[i, j] = shaped(cx, block, by_columns, values[i], points[j], args)
    rows = [[blocks[i, j] for j in range(len(points))] for i in range(len(values))]
    inner = [structured(moving, iter(row), iter(tags)) for row in rows]
    return structured(tangent_type(type_of(value)), iter(inner), iter(tags_of(value)))


def watched(cx: Context, f: Term, args: Args, wrt: list[Place]) -> Walk[Traced]:
    """The function's graph, and a warning where its derivative is zero for every argument."""
    traced = yield trace_holomorphic(cx, f, args, wrt)
    watch(cx, f, traced, args, wrt)
    return traced


def swept(
    cx: Context,
    traced_again: Callable[[], Walk[Traced]],
    key: Value | None,
    side: Tensor,
    place: int,
    by_columns: bool,
    span: Span,
) -> Walk[list[Array]]:
    """The changes along all directions of one array of the argument, or the pullbacks of those of the result.

    A cotangent is the conjugate of a derivative. That of a real number is the real part of the derivative for a complex
    result pulled back along 1, and the imaginary part along i.
    """

    def direction(_: Array, basis: list[Value]) -> Walk[Term]:
        along = cx.emit("reshape", span, basis[0], shape=side.shape)
        with cx.keyed(key), quiet(cx):
            traced = yield traced_again()
        if by_columns:
            return Tuple(tuple(map(Array, forward(cx, traced, [along], span, only=place)[1])))
        one = alone(traced, place)
        pulled = reverse(cx, one, [along], span)[1]
        if of_complex(along) and not all(map(of_complex, pulled)):
            i = cx.emit("const", span, value=1j, type=side)
            turned = reverse(cx, one, [cx.emit("mul", span, along, i)], span)[1]
            found = [
                v if of_complex(v) else cx.emit("complex", span, v, w) for v, w in zip(pulled, turned, strict=True)
            ]
        else:
            found = list(pulled)
        return Tuple(
            tuple([Array(cx.emit("conj", span, w) if of_complex(v) else w) for v, w in zip(pulled, found, strict=True)])
        )

    length = product(side.shape)
    over = Source(length, cx.integer(length, span), [identity(cx, length, side.dtype, span)], index_of)
    found = yield mapping(cx, span, over, direction)
    assert isinstance(found, Tuple)
    return [block for block in found.items if isinstance(block, Array)]


def index_of(index: Array, rows: list[Value]) -> Term:
    return index


def column_by_column(code: DerivativeCode, points: list[Tensor], values: list[Tensor]) -> bool:
    """Whether each number of the argument is moved, rather than each of the result pulled back.

    A row of complex results of real numbers takes two pullbacks, so columns are preferred there.
    """
    if code.operator != "jacobian":
        return code.operator == "jacfwd"
    curves = any(v.dtype.is_complex for v in values) and not all(p.dtype.is_complex for p in points)
    fewer = total(values) - total(points)
    return curves or not (isinstance(fewer, int) and fewer < 0)


def total(types: list[Tensor]) -> Dim:
    """How many numbers there are in arrays of these types."""
    found: Dim = 0
    for type in types:
        found = found + product(type.shape)
    return found


def alone(traced: Traced, place: int) -> Traced:
    """The function giving one of its results that have a tangent, and its failure."""
    results = traced.graph.results
    ends = len(results) - 3 if traced.fails else len(results)
    moving = [r for r in results[:ends] if isinstance(r.type, Tensor) and pruned(r.type.dtype).differentiable]
    return replace(traced, graph=traced.graph.with_results([moving[place], *results[ends:]]))


def structured(type: LangType, parts: Iterator[Term], tags: Iterator[Value]) -> Term:
    """Parts in the places of a tangent type's numbers, with these tags."""
    match type:
        case Tensor():
            return next(parts)
        case TupleType():
            return Tuple(tuple([structured(t, parts, tags) for t in type.items]), type.of)
        case RecordType():
            return rebuilt_record(type, tuple([structured(t, parts, tags) for t in type.fields]))
        case VariantType():
            return rebuilt_variant(type, tuple([structured(t, parts, tags) for t in type.fields]))
        case SumType():
            return Sum(next(tags), tuple([structured(t, parts, tags) for t in type.options]))
        case _:
            raise AssertionError(type)


def shaped(cx: Context, found: Array, by_columns: bool, value: Tensor, point: Tensor, args: Args) -> Array:
    """The directions' axis goes last if they are the argument's, and is that of the array again."""
    result = found.value
    if by_columns:
        rank = len(value.shape)
        result = cx.emit("transpose", args.span, result, perm=(*range(1, rank + 1), 0))
    return Array(cx.emit("reshape", args.span, result, shape=(*value.shape, *point.shape)))
