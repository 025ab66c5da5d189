"""Derivatives in many directions at once: `jacobian`, `jacfwd`, `jacrev`, `hessian`, and `hvp` in one."""

from __future__ import annotations

from difflang.check.closures import DerivativeCode
from difflang.check.types import is_complex, pruned, show_type
from difflang.elaborate.arguments import Args
from difflang.elaborate.arrays import identity
from difflang.elaborate.calls import apply
from difflang.elaborate.comprehension import mapping
from difflang.elaborate.context import Context
from difflang.elaborate.derivatives import drawn_once, forward, reverse, trace
from difflang.elaborate.reductions import count
from difflang.elaborate.sources import Source
from difflang.elaborate.terms import Array, Closure, Term, Tuple, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value

Place = tuple[int, tuple[str, ...]]


def hessian_product(cx: Context, code: DerivativeCode, f: Term, args: Args) -> Walk[Term]:
    """`hvp(f)(x, v)`: how the gradient changes along v, forward over reverse."""
    gradient = Closure(DerivativeCode("grad", code.wrt), (f,))
    pair = yield apply(cx, Closure(DerivativeCode("jvp", code.wrt), (gradient,)), args)
    assert isinstance(pair, Tuple)
    return pair.items[1]


def hessian(cx: Context, code: DerivativeCode, f: Term, args: Args) -> Walk[Term]:
    """The gradient's Jacobian, in forward mode."""
    gradient = Closure(DerivativeCode("grad", code.wrt), (f,))
    return (yield apply(cx, Closure(DerivativeCode("jacfwd", code.wrt), (gradient,)), args))


def jacobian(cx: Context, code: DerivativeCode, f: Term, args: Args, wrt: list[Place]) -> Walk[Term]:
    """`[..result, ..argument]`: a column for each number of the argument, or a row for each of the result."""
    value, key = yield drawn_once(cx, f, args)
    (position, path), *more = wrt
    point = args.items[position][0]
    for leaf in (point, value):
        if isinstance(leaf, Array) and is_complex(leaf.tensor.dtype):
            way = "take it of real parts, or take the change along a direction: `jvp`, `vjp`, `hvp`"
            raise cx.not_yet(f"`{code.operator}` of complex numbers is", args.span, way)
    if more or path or not real(point) or not real(value):
        raise cx.not_yet(
            f"`{code.operator}` of more than an array in an array is",
            args.span,
            f"this is {show_type(type_of(value))} in {show_type(type_of(point))}: take it of one part in one part",
        )
    assert isinstance(point, Array) and isinstance(value, Array)
    columns, numbers = (count(a, tuple(range(len(a.tensor.shape)))) for a in (point, value))
    fewer = numbers - columns
    by_columns = code.operator == "jacfwd" or (
        code.operator == "jacobian" and not (isinstance(fewer, int) and fewer < 0)
    )
    side = point if by_columns else value

    def direction(_: Array, rows: list[Value]) -> Walk[Term]:
        along = cx.emit("reshape", args.span, rows[0], shape=side.tensor.shape)
        with cx.keyed(key):
            traced = yield trace(cx, f, args, wrt)
        found = (forward if by_columns else reverse)(cx, traced, [along], args.span)[1]
        return Array(found[0])

    length = columns if by_columns else numbers
    basis = identity(cx, length, side.tensor.dtype, args.span)
    over = Source(length, cx.integer(length, args.span), [basis], lambda index, _: index)
    found = yield mapping(cx, args.span, over, direction)
    assert isinstance(found, Array)
    return shaped(cx, found, by_columns, value, point, args)


def real(term: Term) -> bool:
    return isinstance(term, Array) and pruned(term.tensor.dtype).is_float


def shaped(cx: Context, found: Array, by_columns: bool, value: Array, point: Array, args: Args) -> Array:
    """The directions' axis goes last if they are the argument's, and is that of the array again."""
    result = found.value
    if by_columns:
        rank = len(value.tensor.shape)
        result = cx.emit("transpose", args.span, result, perm=(*range(1, rank + 1), 0))
    return Array(cx.emit("reshape", args.span, result, shape=(*value.tensor.shape, *point.tensor.shape)))
