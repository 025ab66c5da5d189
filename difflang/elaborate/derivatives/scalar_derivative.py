"""The derivative of a function of one number, `f'`: real, or complex where the function has a complex derivative."""

from __future__ import annotations

from difflang.analysis.holomorphy import losses
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.arguments import Args
from difflang.elaborate.context import Context
from difflang.elaborate.derivatives.grad_jvp_vjp import Traced, forward, trace
from difflang.elaborate.derivatives.tangents import tags_of
from difflang.elaborate.reports.missing_tangents import result_with_tangent
from difflang.elaborate.reports.zero_derivative_warnings import labels_of, watch
from difflang.elaborate.terms import Array, Term, leaves
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.tensor_types import Tensor
from difflang.types.type_errors import mistake

Place = tuple[int, tuple[str, ...]]


def slope(cx: Context, f: Term, args: Args, wrt: list[Place]) -> Walk[Term]:
    """`f'(x)` of a function of one number: its change along 1."""
    what = "`f'` is the derivative of a function of one number"
    traced = yield trace_of_one_number(cx, f, args, wrt, what)
    if not isinstance(traced.result, Array):
        raise not_of_one_number(cx, args, what)
    yield result_with_tangent(cx, "deriv", f, traced, args, wrt)
    watch(cx, f, traced, args, wrt)
    one = unit_change(cx, traced, args.span)
    _, (change, *_) = forward(cx, traced, [one], args.span)
    return Array(change)


def trace_of_one_number(cx: Context, f: Term, args: Args, wrt: list[Place], what: str) -> Walk[Traced]:
    """The graph of a function of one number, holomorphic if that is complex. Errors: DL0405 if it is of more."""
    traced = yield trace_holomorphic(cx, f, args, wrt)
    types = [point.type for point in traced.points]
    chosen = any(tags_of(args.items[position][0]) for position, _ in wrt)
    if len(types) != 1 or not isinstance(types[0], Tensor) or types[0].shape or chosen:
        raise not_of_one_number(cx, args, what)
    return traced


def trace_holomorphic(cx: Context, f: Term, args: Args, wrt: list[Place]) -> Walk[Traced]:
    """The graph of a function that is holomorphic in what is complex of its points. Errors: DL0408 if it is not."""
    before = cx.root.opened
    cx.root.opened = any(of_complex(leaf) for term, _ in args.items for leaf in leaves(term))
    try:
        traced = yield trace(cx, f, args, wrt)
    finally:
        cx.root.opened = before
    check_holomorphic(cx, traced, args.span)
    return traced


def not_of_one_number(cx: Context, args: Args, what: str) -> DifflangError:
    return cx.error("DL0405", what, args.span, "", "use `grad`, `jvp` or `vjp` for others")


def unit_change(cx: Context, traced: Traced, span: Span) -> Value:
    """The direction 1."""
    cx.builder.span = span
    return cx.builder.const(1, traced.points[0].type)


def of_complex(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype.is_complex


def check_holomorphic(cx: Context, traced: Traced, span: Span) -> None:
    """That it multiplies small changes of complex numbers by complex numbers, and does nothing else. Errors: DL0408."""
    moved = [of_complex(p) for p in traced.points]
    if not any(moved):
        return
    inside = [*moved, *[False] * (len(traced.graph.params) - len(moved))]
    lost = next((step for step in losses(traced.graph, inside) if step is not None), None)
    if lost is not None:
        steps = labels_of(cx, [lost], span, lambda _: "this step depends on the conjugate too")
        raise mistake(
            "DL0408",
            "this function of a complex number has no derivative: it is not holomorphic",
            *[(label.span, label.text) for label in steps],
            (span, "its derivative is asked for here"),
            help="`jvp` and `hvp` give the change along a direction, `grad` of a real result that of steepest ascent",
        )
