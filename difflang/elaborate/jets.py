"""`jet(f, order = k)`: the Taylor coefficients of a function of one number."""

from __future__ import annotations

from difflang.check.closures import DerivativeCode
from difflang.check.reports import Undecided
from difflang.check.types import pruned, show_type
from difflang.elaborate.arguments import Args
from difflang.elaborate.context import Context, walk
from difflang.elaborate.derivatives import Traced, differentiated
from difflang.elaborate.expressions import stack
from difflang.elaborate.lost import watch
from difflang.elaborate.no_derivative import result_with_tangent
from difflang.elaborate.slope import Place, trace_of_one_number, unit_change
from difflang.elaborate.terms import Array, Term, Tuple, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.types import Tensor
from difflang.syntax import tree

HIGHEST_ORDER = 64  # each order adds more equations than all before it


def jet_order(cx: Context, e: tree.Call) -> Walk[int]:
    """`k` of `jet(f, order = k)`. Errors: DL0319 without one, DL0405 where it is too high."""
    given = [a.value for a in e.args if a.name == "order"]
    if len(given) != 1:
        raise cx.error("DL0319", "`jet` needs an `order`", e.span, "", "it is called as `jet(f, order = 4)(x)`")
    order = cx.static((yield walk(cx, given[0])), given[0].span, "`order`")
    if not isinstance(order, int):
        raise Undecided
    if not 0 <= order <= HIGHEST_ORDER:
        limits = f"orders are 0 to {HIGHEST_ORDER}"
        raise cx.error("DL0405", f"there is no jet of order {order}", given[0].span, limits)
    return order


def taylor(cx: Context, code: DerivativeCode, f: Term, args: Args, wrt: list[Place]) -> Walk[Term]:
    """The coefficients along a new first axis; of each part of a tuple by itself."""
    traced = yield trace_of_one_number(cx, f, args, wrt, "`jet` takes a function of one number")
    yield result_with_tangent(cx, "jet", f, traced, args, wrt)
    watch(cx, f, traced, args, wrt)
    parts = parts_of(cx, traced, args)
    one = unit_change(cx, traced, args.span)
    types = [r.type for r in traced.graph.results]
    moving = [t for t in types if isinstance(t, Tensor) and pruned(t.dtype).differentiable]
    mask = (True, *(False for _ in traced.consts))
    more = moving * code.order
    values, rest = differentiated(cx, "jet", traced, [one], more, mask, args.span, order=code.order)
    columns = [[values[i], *rest[i :: len(moving)]] for i in range(len(parts))]
    found = tuple([stacked(cx, args, c) for c in columns])
    return Tuple(found) if isinstance(traced.result, Tuple) else found[0]


def parts_of(cx: Context, traced: Traced, args: Args) -> list[Array]:
    """The arrays of the result: it is one, or a tuple of some. Errors: DL0402 for what has no derivative."""
    terms = traced.result.items if isinstance(traced.result, Tuple) else (traced.result,)
    arrays: list[Array] = []
    for term in terms:
        what = show_type(type_of(term))
        if not isinstance(term, Array):
            way = f"this is {what}: give its numbers, or a tuple of them"
            raise cx.not_yet("`jet` of a function with more than arrays in its result is", args.span, way)
        if not pruned(term.tensor.dtype).differentiable:
            raise cx.error("DL0402", f"{what} has no derivative", args.span)
        arrays.append(term)
    return arrays


def stacked(cx: Context, args: Args, column: list[Value]) -> Array:
    return stack(cx, args.span, [Array(v) for v in column], tuple([args.span for _ in column]), 0)
