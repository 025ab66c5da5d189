"""Enums between host statements: a `match` whose cases are host statements, variables that hold any variant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.base.source import Span
from difflang.check.patterns import Anything, Begins, Fit
from difflang.check.reports import mistake
from difflang.check.sums import holds, joint, kin, options_of
from difflang.check.types import ClosureType, LangType, TextType, TupleType, VariantType, show_type
from difflang.check.unify import Unifier
from difflang.driver.values import HostValue
from difflang.elaborate.context import Context
from difflang.elaborate.matching import rows
from difflang.elaborate.sums import held_as
from difflang.elaborate.terms import Array, Term, rebuild, type_of
from difflang.elaborate.trampoline import Walk
from difflang.syntax import tree

if TYPE_CHECKING:
    from difflang.driver.host import Host


def cases_of(host: Host, e: tree.Match, subject: HostValue) -> list[tuple[Fit, tree.Case]]:
    """The cases of a host `match` that a value of this type may be of."""
    fits = rows(Unifier(), host.module.variants, e, subject.type)
    return [(fit, case) for fit, case in zip(fits, e.cases, strict=True) if possible(fit, subject.type)]


def possible(fit: Fit, type: LangType) -> bool:
    if isinstance(fit, Anything):
        return True
    variants = [o for o in options_of(type) if isinstance(o, VariantType)]
    if not variants:
        parts = type.items if isinstance(type, TupleType) else ()
    else:
        parts = next((v.fields for v in variants if ("variant", v.index) == fit.key), None)
    return parts is not None and all(map(possible, fit.items, parts))


def fitting(fit: Fit, value: HostValue) -> bool:
    """Whether a value that is there fits a pattern."""
    if isinstance(fit, Anything):
        return True
    value = value.chosen()
    kind, what = fit.key
    if kind == "literal":
        return (value.type.value if isinstance(value.type, TextType) else value.number) == what
    if isinstance(value.type, VariantType) and value.type.index != what:
        return False
    return all(fitting(item, value.part(i)) for i, item in enumerate(fit.items))


def bind(host: Host, fit: Fit, value: HostValue, span: Span) -> None:
    """Bind the names of a pattern; of a value that is not there yet, to what is of the pattern's variant."""
    if isinstance(fit, Anything):
        host.bind(tree.NamePattern(span, fit.name), value, False, span)
        return
    inside = of_case(fit, value)
    for i, item in enumerate(fit.items):
        bind(host, item, inside.part(i), span)


def of_case(fit: Begins, value: HostValue) -> HostValue:
    if value.leaves is not None:
        return value.chosen()
    options = [o for o in options_of(value.type) if isinstance(o, VariantType) and ("variant", o.index) == fit.key]
    return HostValue(options[0], None) if options else value


def kept(host: Host, cx: Context, name: str, term: Term, span: Span) -> Term:
    """The new value of a variable, held as one of its type. Errors: DL0304; DL0801 for one function after another."""
    wanted, found = host.module.host[name].type, type_of(term)
    if isinstance(term, Array) or joint(cx.unifier, wanted, found) == wanted:
        return held_as(cx.builder, term, wanted)
    if holds(found, (ClosureType,)):
        what = "a top-level variable that holds one function after another is"
        raise host.not_yet(what, span, "choose inside a function")
    if kin(cx.unifier, wanted, found):
        raise host.not_yet("a top-level variable whose text changes is", span, "bind the new value with `let`")
    raise mistake(
        "DL0304", f"`{name}` is {show_type(wanted)} and keeps that type", (span, f"this is {show_type(found)}")
    )


def held(host: Host, node: tree.Node, value: HostValue, type: LangType) -> HostValue:
    """A value held as one of a type that has more options."""

    def body(cx: Context) -> Walk[list[Term]]:
        return [held_as(cx.builder, rebuild(value.type, host.staging[-1].put(value)), type)]
        yield

    (found,), _ = host.unit(node, body)
    return found


def assign_value(host: Host, target: tree.Expr, value: HostValue, span: Span) -> None:
    """Assign what the host has at hand to variables. Errors: DL0304, DL0801 for a part of a value."""
    if (
        isinstance(target, tree.TupleExpr)
        and isinstance(value.type, TupleType)
        and len(value.type.items) == len(target.items)
    ):
        for i, item in enumerate(target.items):
            assign_value(host, item, value.part(i), span)
        return
    if not isinstance(target, tree.Name):
        raise host.not_yet(
            "assigning what a host function gives to a part of a value is", target.span, "bind it with `let` first"
        )
    var = host.assignable(target.id, target.span)
    if var.type != value.type and joint(Unifier(), var.type, value.type) == var.type:
        value = held(host, target, value, var.type)
    if var.type != value.type:
        raise mistake(
            "DL0304",
            f"`{target.id}` is {show_type(var.type)} and keeps that type",
            (span, f"this is {show_type(value.type)}"),
        )
    host.values[target.id] = value
