"""The derivative of a function of one number, `f'`: real, or complex where the function has a complex derivative."""

from __future__ import annotations

from difflang.ad.holomorphic import losses
from difflang.base.source import Span
from difflang.check.reports import mistake
from difflang.check.types import is_complex, pruned, show_type
from difflang.elaborate.arguments import Args
from difflang.elaborate.context import Context
from difflang.elaborate.derivatives import Traced, forward, trace
from difflang.elaborate.terms import Array, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.types import Tensor

Place = tuple[int, tuple[str, ...]]


def slope(cx: Context, f: Term, args: Args, wrt: list[Place]) -> Walk[Term]:
    """`f'(x)` of a function of one number: its change along 1."""
    before = cx.root.opened
    cx.root.opened = any(isinstance(t, Array) and is_complex(t.tensor.dtype) for t, _ in args.items)
    try:
        traced = yield trace(cx, f, args, wrt)
    finally:
        cx.root.opened = before
    point = traced.points[0].type
    if len(traced.points) != 1 or not isinstance(point, Tensor) or point.shape or not isinstance(traced.result, Array):
        raise cx.error(
            "DL0405",
            "`f'` is the derivative of a function of one number",
            args.span,
            "",
            "use `grad`, `jvp` or `vjp` for others",
        )
    if not pruned(traced.result.tensor.dtype).differentiable:
        raise cx.error("DL0402", f"{show_type(traced.result.tensor)} has no derivative", args.span)
    if is_complex(point.dtype):
        check_holomorphic(traced, args.span)
    cx.builder.span = args.span
    one = cx.builder.const(1, point)
    _, (change, *_) = forward(cx, traced, [one], args.span)
    return Array(change)


def check_holomorphic(traced: Traced, span: Span) -> None:
    """That multiplication by one complex number is all that the function does to a small change. Errors: DL0406."""
    inside = [i < len(traced.points) for i in range(len(traced.graph.params))]
    lost = losses(traced.graph, inside)[0]
    if lost is not None:
        raise mistake(
            "DL0406",
            "this function of a complex number has no derivative: it is not holomorphic",
            (lost, "this step depends on the conjugate too"),
            (span, "its derivative is asked for here"),
            help="`jvp` gives the change along a direction, `grad` of a real result that of steepest ascent",
        )
