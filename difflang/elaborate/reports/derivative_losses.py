"""Warnings about derivatives that are lost: in part, of means over draws, or as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from difflang.analysis.partial_derivatives import PartialLoss, find_partial_losses
from difflang.analysis.zero_derivatives import DependencyStep, find_dropped_derivatives, merge_dropped, reaching_params
from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Span
from difflang.elaborate.calls.call_args import CallArgs, parameter_names
from difflang.elaborate.context import ElabContext
from difflang.elaborate.derivatives.traced_functions import TracedFunction
from difflang.elaborate.derivatives.wrt import WrtPath
from difflang.elaborate.reports.loss_messages import (
    MAX_LABELS,
    differentiable_substitute,
    draw_warning,
    in_user_code,
    loss_labels,
    loss_reason,
    rounding_warning,
)
from difflang.elaborate.terms import Closure, RecordTerm, Term, leaf_hints, leaves, type_of
from difflang.ir.graph import Eqn, Graph
from difflang.types.dtype_variables import prune_dtype
from difflang.types.function_code import AscribedCode, BuiltinCode, DerivativeCode, FnCode, LambdaCode
from difflang.types.language_types import leaf_types

Losses = Mapping[DependencyStep, PartialLoss]


class WrtPart(Struct, frozen=True):
    """A part of the arguments that a derivative is taken with respect to; `points` is a bit mask of graph params."""

    name: str
    points: int
    is_entire_argument: bool  # all that one name in `grad[…]` covers


def warn_if_lost(cx: ElabContext, f: Term, traced: TracedFunction, args: CallArgs, wrt: Sequence[WrtPath]) -> None:
    """Warn of a first derivative that lacks a part: DL0415 for a choice by a draw, DL0414 for a rounded number, and
    DL0409 if it is zero for every argument.

    No warning for a built-in itself, nor for derivatives that a rule needs.
    """
    if cx.root.implicit_derivative or not in_user_code(cx, args.span) or is_named_function(f):
        return
    alive, found = live_points(traced), losses_of_results(traced)
    if not found and all(alive >> i & 1 for i in range(len(traced.points))):
        return
    parts = wrt_parts(f, args, wrt)
    random = {step: loss for step, loss in found.items() if loss.drawn and loss.decides}
    warn_of_losses(cx, "DL0415", parts, random, args.span)
    told = 0
    for loss in random.values():
        told |= loss.live
    warn_if_zero(cx, f, traced, args, [p for p in parts if not p.points & told], alive)
    rounded = {s: loss for s, loss in found.items() if s not in random and loss.as_data and loss.live & alive}
    warn_of_losses(cx, "DL0414", parts, rounded, args.span)


def losses_of_results(traced: TracedFunction) -> Losses:
    """The steps that lose a part of a result's derivative with respect to the function's points."""
    found: dict[DependencyStep, PartialLoss] = {}
    points = (1 << len(traced.points)) - 1
    losses = find_partial_losses(traced.graph, points)
    for value, of_result in zip(leaves(traced.result), losses, strict=False):
        if value.type.tangent is not None:
            for step, loss in of_result.items():
                found[step] = found[step].merged(loss) if step in found else loss
    return found


def warn_of_losses(cx: ElabContext, code: str, parts: Sequence[WrtPart], losses: Losses, taken: Span) -> None:
    """One warning for each line of the user's code that loses a part."""
    lines: dict[Span, tuple[Eqn, DependencyStep, int]] = {}
    for step, loss in losses.items():
        site = user_step(cx, step)
        if site is not None and site.span != taken:
            points = loss.live | (lines[site.span][2] if site.span in lines else 0)
            lines[site.span] = (site, step, points)
    for site, step, points in list(lines.values())[:MAX_LABELS]:
        names = " and ".join(f"`{p.name}`" for p in affected_parts(parts, points))
        make = draw_warning if code == "DL0415" else rounding_warning
        cx.session.warn(make(site, step.path[-1], names, taken))


def user_step(cx: ElabContext, step: DependencyStep) -> Eqn | None:
    """The equation of a step, or the innermost around it that stands in the user's code."""
    found: Eqn | None = None
    inner: DependencyStep | None = step
    while inner is not None:
        if in_user_code(cx, inner.eqn.span) and not inner.eqn.span.in_library:
            found = inner.eqn
        inner = inner.inner
    return found


def affected_parts(parts: Sequence[WrtPart], points: int) -> list[WrtPart]:
    """The smallest parts of the arguments that these points belong to, or the whole if all of its points do."""
    own = [p for p in parts if p.points & points]
    whole = [p for p in own if p.is_entire_argument and not p.points & ~points]
    covered = 0
    for part in whole:
        covered |= part.points
    leaf_parts = [p for p in own if not p.is_entire_argument and not p.points & covered]
    return [*whole, *leaf_parts]


def live_points(traced: TracedFunction) -> int:
    """The points whose tangents reach a result: a bit mask."""
    moving = [i for i, v in enumerate(leaves(traced.result)) if v.type.tangent is not None]
    masks, alive = reaching_params(traced.graph), 0
    for i in moving:
        alive |= masks[i]
    return alive


def warn_if_zero(
    cx: ElabContext, f: Term, traced: TracedFunction, args: CallArgs, parts: Sequence[WrtPart], alive: int
) -> None:
    """Warn of a first derivative that is zero for every argument: DL0409. See `analysis.zero_derivatives`.

    No warning: where a static condition left a branch out, as a size of 0 may; where every path has a `stop`; where a
    definition alone cannot tell; and where all labels are in the standard library.
    """
    points = (1 << len(traced.points)) - 1
    if traced.branch_elided or not points & ~alive or is_inconclusive(cx, traced.graph):
        return
    moving = [i for i, v in enumerate(leaves(traced.result)) if v.type.tangent is not None]
    found: dict[DependencyStep, int] = {}
    for i, lost in enumerate(find_dropped_derivatives(traced.graph, points)):
        if i in moving:
            merge_dropped(found, lost)
    dead = [p for p in parts if is_unintended_zero(p, alive, found)]
    if dead and not all_in_library((said := zero_derivative_warning(cx, f, args.span, dead, found)).labels):
        cx.session.warn(said.users_first())


def all_in_library(labels: Sequence[Label]) -> bool:
    return all(label.span.in_library for label in labels)


def is_named_function(f: Term) -> bool:
    """Whether the differentiated function is a built-in or in the prelude."""
    while isinstance(f, Closure) and isinstance(f.code, (DerivativeCode, AscribedCode)):
        (f,) = f.captures
    return isinstance(f, Closure) and (
        isinstance(f.code, BuiltinCode) or (isinstance(f.code, FnCode) and f.code.module.prelude is None)
    )


def is_inconclusive(cx: ElabContext, graph: Graph) -> bool:
    """Whether a graph has calls without a body, or linear maps, whose residuals hide what depends on the argument."""
    maps = set(cx.session.linear_maps.values())
    seen, todo = {graph}, [graph]
    while todo:
        current = todo.pop()
        if current in maps or (cx.root.definition_only and not is_fully_defined(current)):
            return True
        inner = [region for eqn in current.eqns for region in eqn.regions if region not in seen]
        seen.update(inner)
        todo += inner
    return False


def is_fully_defined(graph: Graph) -> bool:
    """Whether every value that a graph reads is defined in it: placeholders of a checked definition are not."""
    known = set(graph.params)
    for eqn in graph.eqns:
        if not known.issuperset(eqn.operands):
            return False
        known.update(eqn.results)
    return known.issuperset(graph.results)


def wrt_parts(f: Term, args: CallArgs, wrt: Sequence[WrtPath]) -> list[WrtPart]:
    """The parts that a derivative is taken with respect to, as a whole and leaf by leaf."""
    found: list[WrtPart] = []
    names, at = parameter_names(f), 0
    for position, path in wrt:
        first = names[position] if position < len(names) and names[position] else f"argument {position}"
        name, term = ".".join((first, *path)), args.items[position][0]
        for field in path:
            assert isinstance(term, RecordTerm)
            term = term.field(field)
        type = type_of(term)
        hints = [
            hint
            for hint, leaf in zip(leaf_hints(type, name), leaf_types(type), strict=True)
            if prune_dtype(leaf.dtype).differentiable
        ]
        found.append(WrtPart(name, ((1 << len(hints)) - 1) << at, is_entire_argument=True))
        if len(hints) > 1:
            found += [WrtPart(hint, 1 << at + i, is_entire_argument=False) for i, hint in enumerate(hints)]
        at += len(hints)
    return found


def is_unintended_zero(part: WrtPart, alive: int, found: dict[DependencyStep, int]) -> bool:
    """Whether a part's derivative is lost other than by `stop`; unused fields of a record do not count."""
    if part.points & alive or not part.points:
        return False
    steps = [step for step, of in found.items() if of & part.points]
    return any(s.path[-1].op.why_inactive != "stop" for s in steps) or (part.is_entire_argument and not steps)


def zero_derivative_warning(
    cx: ElabContext, f: Term, span: Span, dead: list[WrtPart], found: dict[DependencyStep, int]
) -> Diagnostic:
    dead = [p for p in dead if p.is_entire_argument] or dead
    points = 0
    for part in dead:
        points |= part.points
    steps = [step for step, of in found.items() if of & points and step.path[-1].op.why_inactive != "stop"]
    names = " and ".join(f"`{p.name}`" for p in dead)
    its = "their derivatives are" if len(dead) > 1 else "its derivative is"
    if not steps:
        message, labels = f"the result does not depend on {names}: {its} 0", unused_parameter_labels(cx, f, dead)
    else:
        message, labels = f"the derivative with respect to {names} is 0: no path carries it to the result", []
    more = f"; {len(steps) - MAX_LABELS} more paths lose it" if len(steps) > MAX_LABELS else ""
    site = Label(span, f"the derivative is taken here{more}")
    ways = loss_labels(cx, steps, span, loss_reason, dead[0].name)
    first = (*labels, site) if all_in_library([site]) and not all_in_library(labels) else (site, *labels)
    return Diagnostic("DL0409", message, (*first, *ways), zero_derivative_helps(f, dead, steps), "warning")


def unused_parameter_labels(cx: ElabContext, f: Term, dead: list[WrtPart]) -> list[Label]:
    """Labels at the parameters on which the result does not depend."""
    while isinstance(f, Closure) and isinstance(f.code, (DerivativeCode, AscribedCode)):
        (f,) = f.captures
    if not isinstance(f, Closure) or not isinstance(f.code, (FnCode, LambdaCode)):
        return []
    firsts = {part.name.partition(".")[0] for part in dead}
    spans = [p.span for n, p in zip(parameter_names(f), f.code.decl.params, strict=True) if n in firsts]
    return [Label(span, "no path leads from here to the result") for span in spans if in_user_code(cx, span)]


def zero_derivative_helps(f: Term, dead: list[WrtPart], steps: list[DependencyStep]) -> tuple[str, ...]:
    """Helps: what to write instead, and how to state that 0 is intended."""
    name = dead[0].name if dead[0].name.replace(".", "").isidentifier() else "x"
    if not steps:
        names = [n for n in parameter_names(f) if n and n != name]
        other = (f"name other parameters in brackets, as in `grad[{names[0]}]`",) if names else ()
        return (*other, f"if 0 is intended, say so: add `0 * stop({name})`")
    eqn = steps[0].path[-1]
    meant = f"if 0 is intended, say so with `stop({name})` on the path"
    return (differentiable_substitute(eqn), meant)
