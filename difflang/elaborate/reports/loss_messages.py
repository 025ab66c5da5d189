"""What reports say of a step that loses a derivative: the reason, what to write instead, and whole warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difflang.analysis.zero_derivatives import DependencyStep
from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.reports.op_messages import surface_name
from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import Tensor
from difflang.types.dtype_variables import prune_dtype

MAX_QUOTED = 40  # the length of an expression that a help quotes


MAX_LABELS = 3  # the number of lost paths in a report


def loss_reason(eqn: Eqn) -> str:
    """How a step loses a derivative."""
    if eqn.op.why_inactive == "stop":
        return "the derivative becomes 0 here"
    types = [r.type for r in eqn.results if isinstance(r.type, Tensor)]
    if any(prune_dtype(t.dtype).differentiable for t in types):
        return f"`{surface_name(eqn.op.name)}` has derivative 0"
    if any(prune_dtype(t.dtype).is_integer for t in types):
        return "an integer has no derivative"
    return "a bool has no derivative"


def differentiable_substitute(eqn: Eqn) -> str:
    """The help that suggests a differentiable step in place of one without a derivative."""
    match eqn.results[0].type:
        case Tensor(dtype=dtype) if prune_dtype(dtype).is_integer and eqn.op.name.startswith("arg"):
            return "keep floats on the path; `softmax` gives weights where `argmax` gives an index"
        case Tensor(dtype=dtype) if prune_dtype(dtype).is_integer:
            return "keep floats on the path; `x + stop(floor(x) - x)` is whole, and has the derivative of x"
        case Tensor(dtype=dtype) if prune_dtype(dtype).differentiable:
            return f"`y + stop({eqn.op.name}(y) - y)` has its value, and the derivative of y"
        case _:
            return "use a smooth step instead: `sigmoid((a - b) / width)` for `a > b`, `tanh(x / width)` for `sign(x)`"


def loss_labels(
    cx: ElabContext,
    steps: Sequence[DependencyStep],
    derivative_span: Span,
    reason: Callable[[Eqn], str],
    name: str = "",
) -> list[Label]:
    """Labels at the steps that lose a derivative and the calls that lead there; for one step, its path from `name`."""
    found: dict[Span, str] = {}
    for step in steps[:MAX_LABELS]:
        way = [eqn for eqn in step.path if in_user_code(cx, eqn.span)]
        if not way:
            continue
        place = way[-1].span
        found[place] = reason(step.path[-1])
        before = [eqn for eqn in way[:-1] if are_disjoint(eqn.span, place) and eqn.span != derivative_span]
        for eqn in [eqn for eqn in before if eqn.regions][-MAX_LABELS:]:
            found.setdefault(eqn.span, "through this call")
        for eqn in [eqn for eqn in before if not eqn.regions][-MAX_LABELS:] if name and len(steps) == 1 else ():
            if all(are_disjoint(eqn.span, other) for other in found):
                found[eqn.span] = loss_reason(eqn) if eqn.op.inactive else f"depends on `{name}`"
    return [Label(span, text) for span, text in found.items()]


def in_user_code(cx: ElabContext, span: Span) -> bool:
    """Whether a span is in the program, not in the prelude."""
    prelude = cx.module.prelude
    return bool(span.text) and prelude is not None and span.source is not prelude.source


def are_disjoint(a: Span, b: Span) -> bool:
    return a.source is not b.source or a.end <= b.start or b.end <= a.start


def rounding_warning(site: Eqn, lost: Eqn, names: str, taken: Span) -> Diagnostic:
    reason = loss_reason(lost) if site is lost else f"{loss_reason(lost)}, inside"
    return Diagnostic(
        "DL0414",
        f"a part of the derivative with respect to {names} is lost: other paths carry the rest to the result",
        (Label(site.span, reason), Label(taken, "the derivative is taken here")),
        (differentiable_substitute(lost), f"if that is intended, say so: {stop_around(site.span)}"),
        "warning",
    )


def draw_warning(site: Eqn, lost: Eqn, names: str, taken: Span) -> Diagnostic:
    if lost.op.why_inactive == "drawn":
        drawn, why = "a draw from a distribution that", "if this is intended"
    else:
        drawn = "a choice by a draw whose distribution"
        why = "if this is intended, or the outcomes are equal where they meet"
    return Diagnostic(
        "DL0415",
        f"the derivative of a mean over draws lacks a part: how {names} changes the probability of what is drawn",
        (Label(site.span, f"{drawn} depends on {names}"), Label(taken, "the derivative is taken here")),
        (
            "for the derivative of the mean add the score-function term: `stop(y) * (l - stop(l))` to the result y, "
            "where l is the log-probability of what was drawn",
            f"{why}, say so: {stop_around(site.span)}",
        ),
        "warning",
    )


def stop_around(span: Span) -> str:
    text = span.text
    return f"`stop({text})`" if len(text) <= MAX_QUOTED and "\n" not in text else "`stop(…)` around it"
