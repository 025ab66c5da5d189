"""Functions of one number: the derivative `f'`, and Taylor coefficients by `jet(f, order = k)`.

A function of a complex number must be holomorphic.
"""

from __future__ import annotations

from math import factorial, log2

from difflang.analysis.holomorphy import find_nonholomorphic_steps
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext, elaborate
from difflang.elaborate.derivatives.tangents import build_tangent, is_tangent_number, tags_of
from difflang.elaborate.derivatives.traced_functions import TracedFunction, emit_derivative, emit_jvp, trace_function
from difflang.elaborate.derivatives.wrt import WrtPath
from difflang.elaborate.expressions.primary_expressions import stack_arrays
from difflang.elaborate.reports.derivative_losses import warn_if_lost
from difflang.elaborate.reports.loss_messages import loss_labels
from difflang.elaborate.reports.missing_result_tangents import require_differentiable_result
from difflang.elaborate.terms import Array, Closure, Term, leaves, type_of, with_leaves
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import prune_dtype
from difflang.types.function_code import PRIME, DerivativeCode
from difflang.types.language_types import tangent_type
from difflang.types.type_errors import DeferCheck, make_error

# From this order on, derivatives are taken from the Taylor series: its cost grows with the square of the order, that of
# nested tangents doubles with each prime.
SERIES_ORDER = 4
HIGHEST_ORDER = 64


def scalar_derivative(cx: ElabContext, f: Term, args: CallArgs, wrt: list[WrtPath]) -> Walk[Term]:
    """`f'(x)` of a function of one number: the jvp along 1; where f has many primes itself, all of them at once."""
    what = "`f'` takes a function of one number"
    base, order = without_primes(f)
    order += 1
    if order >= SERIES_ORDER:
        f = base
    if order > HIGHEST_ORDER:
        limits = f"the order is at most {HIGHEST_ORDER}"
        raise cx.error("DL0405", f"this is a derivative of order {order}", args.span, "", limits)
    traced = yield trace_scalar_function(cx, f, args, wrt, what)
    if not isinstance(traced.result, Array):
        raise not_scalar_error(cx, args, what)
    yield require_differentiable_result(cx, "deriv", f, traced, args, wrt)
    warn_if_lost(cx, f, traced, args, wrt)
    if order >= SERIES_ORDER:
        return Array(emit_nth_derivative(cx, traced, order, args.span))
    one = unit_tangent(cx, traced, args.span)
    _, (change, *_) = emit_jvp(cx, traced, [one], args.span)
    return Array(change)


def without_primes(f: Term) -> tuple[Term, int]:
    """A function without its primes, and how many it has."""
    count = 0
    while isinstance(f, Closure) and f.code == PRIME:
        (f,), count = f.captures, count + 1
    return f, count


def emit_nth_derivative(cx: ElabContext, traced: TracedFunction, order: int, span: Span) -> Value:
    """The derivative of that order of the first result, from its Taylor series."""
    types = [r.type for r in traced.graph.results]
    moving = [t for t in types if isinstance(t, Tensor) and prune_dtype(t.dtype).differentiable]
    # Coefficient n along c is f^(n) c^n / n!. With c near the mean factor of n! small types do not overflow.
    power = round(log2(factorial(order)) / order)
    cx.builder.span = span
    along = cx.builder.const(2**power, traced.points[0].type)
    mask = (True, *[False] * len(traced.consts))
    _, found = emit_derivative(cx, "jet", traced, [along], moving * order, mask, span, order=order, nests=True)
    return found[(order - 1) * len(moving)] * (factorial(order) / 2 ** (power * order))


def trace_scalar_function(
    cx: ElabContext, f: Term, args: CallArgs, wrt: list[WrtPath], what: str
) -> Walk[TracedFunction]:
    """The graph of a function of one number, holomorphic if that is complex. Errors: DL0405 for more numbers."""
    traced = yield trace_holomorphic(cx, f, args, wrt)
    types = [point.type for point in traced.points]
    chosen = any(tags_of(args.items[position][0]) for position, _ in wrt)
    if len(types) != 1 or not isinstance(types[0], Tensor) or types[0].shape or chosen:
        raise not_scalar_error(cx, args, what)
    return traced


def trace_holomorphic(cx: ElabContext, f: Term, args: CallArgs, wrt: list[WrtPath]) -> Walk[TracedFunction]:
    """The graph of a function that is holomorphic in its complex points. Errors: DL0408 if it is not."""
    before = cx.root.follows_calls
    # Holomorphy is a property of the whole graph, so a definition's calls must be elaborated too.
    cx.root.follows_calls = any(is_complex_value(leaf) for term, _ in args.items for leaf in leaves(term))
    try:
        traced = yield trace_function(cx, f, args, wrt)
    finally:
        cx.root.follows_calls = before
    check_holomorphic(cx, traced, args.span)
    return traced


def not_scalar_error(cx: ElabContext, args: CallArgs, what: str) -> DifflangError:
    return cx.error("DL0405", what, args.span, "", "use `grad`, `jvp` or `vjp` for others")


def unit_tangent(cx: ElabContext, traced: TracedFunction, span: Span) -> Value:
    """The tangent 1."""
    cx.builder.span = span
    return cx.builder.const(1, traced.points[0].type)


def is_complex_value(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype.is_complex


def check_holomorphic(cx: ElabContext, traced: TracedFunction, span: Span) -> None:
    """Check that complex tangents are only multiplied by complex numbers, never conjugated. Errors: DL0408."""
    moved = [is_complex_value(p) for p in traced.points]
    if not any(moved):
        return
    inside = [*moved, *[False] * (len(traced.graph.params) - len(moved))]
    lost = next((step for step in find_nonholomorphic_steps(traced.graph, inside) if step is not None), None)
    if lost is not None:
        steps = loss_labels(cx, [lost], span, lambda _: "this step also depends on the conjugate")
        raise make_error(
            "DL0408",
            "this function of a complex number has no derivative: it is not holomorphic",
            *[(label.span, label.text) for label in steps],
            (span, "the derivative is taken here"),
            help=(
                "`jvp` and `hvp` give the derivative along a direction; `grad` of a real result gives the "
                "direction of steepest ascent"
            ),
        )


# ---- Taylor coefficients


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
    places = [i for i, r in enumerate(traced.graph.results) if isinstance(r.type, Tensor) and is_tangent_number(r.type)]
    moving = [traced.graph.results[i].type for i in places]
    mask = (True, *(False for _ in traced.consts))
    values, rest = emit_derivative(cx, "jet", traced, [one], moving * code.order, mask, args.span, order=code.order)
    # The op returns order by order; regroup by result.
    columns = [[values[i], *rest[j :: len(places)]] for j, i in enumerate(places)]
    tags = tags_of(with_leaves(traced.result, iter(values)))
    return build_tangent(tangent_type(type_of(traced.result)), tags, [stack_coefficients(cx, args, c) for c in columns])


def stack_coefficients(cx: ElabContext, args: CallArgs, column: list[Value]) -> Array:
    return stack_arrays(cx, args.span, [Array(v) for v in column], tuple([args.span for _ in column]), 0)
