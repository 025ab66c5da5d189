"""Taylor coefficients of a function of one number: `jet(f, order = k)`."""

from __future__ import annotations

from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.derivatives.grad_jvp_vjp import emit_derivative
from difflang.elaborate.derivatives.jacobians import build_tangent
from difflang.elaborate.derivatives.scalar_derivative import (
    HIGHEST_ORDER,
    WrtPath,
    trace_scalar_function,
    unit_tangent,
)
from difflang.elaborate.derivatives.tangents import tags_of
from difflang.elaborate.expressions.primary_expressions import stack_arrays
from difflang.elaborate.reports.derivative_losses import warn_if_lost
from difflang.elaborate.reports.missing_tangents import require_differentiable_result
from difflang.elaborate.terms import Array, Term, type_of, with_leaves
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import prune_dtype
from difflang.types.function_code import DerivativeCode
from difflang.types.language_types import tangent_type
from difflang.types.type_errors import DeferCheck


def jet_order(cx: ElabContext, e: tree.Call) -> Walk[int]:
    """The `k` of `jet(f, order = k)`. Errors: DL0319 if it is missing, DL0405 if it is too high."""
    given = [a.value for a in e.args if a.name == "order"]
    if len(given) != 1:
        raise cx.error("DL0319", "`jet` needs an `order`", e.span, "", "usage: `jet(f, order = 4)(x)`")
    order = cx.static((yield elaborate(cx, given[0])), given[0].span, "`order`")
    if not isinstance(order, int):
        raise DeferCheck
    if not 0 <= order <= HIGHEST_ORDER:
        limits = f"the order is from 0 to {HIGHEST_ORDER}"
        raise cx.error("DL0405", f"`jet` has no order {order}", given[0].span, limits)
    return order


def taylor_coefficients(
    cx: ElabContext, code: DerivativeCode, f: Term, args: CallArgs, wrt: list[WrtPath]
) -> Walk[Term]:
    """The coefficients along a new first axis, for each array of the result."""
    traced = yield trace_scalar_function(cx, f, args, wrt, "`jet` takes a function of one number")
    yield require_differentiable_result(cx, "jet", f, traced, args, wrt)
    warn_if_lost(cx, f, traced, args, wrt)
    one = unit_tangent(cx, traced, args.span)
    places = [i for i, r in enumerate(traced.graph.results) if isinstance(r.type, Tensor) and has_tangent(r.type)]
    moving = [traced.graph.results[i].type for i in places]
    mask = (True, *(False for _ in traced.consts))
    values, rest = emit_derivative(cx, "jet", traced, [one], moving * code.order, mask, args.span, order=code.order)
    # The op returns order by order; regroup by result.
    columns = [[values[i], *rest[j :: len(places)]] for j, i in enumerate(places)]
    tags = tags_of(with_leaves(traced.result, iter(values)))
    return build_tangent(
        tangent_type(type_of(traced.result)), iter([stack_coefficients(cx, args, c) for c in columns]), iter(tags)
    )


def has_tangent(type: Tensor) -> bool:
    return prune_dtype(type.dtype).differentiable


def stack_coefficients(cx: ElabContext, args: CallArgs, column: list[Value]) -> Array:
    return stack_arrays(cx, args.span, [Array(v) for v in column], tuple([args.span for _ in column]), 0)
