"""The evaluated arguments of a call, by position and by name, and the names of a function's parameters."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.elaborate.terms import Closure, SumTerm, Term
from difflang.syntax import tree
from difflang.types.function_code import AscribedCode, DerivativeCode, FnCode, LambdaCode, VmapCode


class CallArgs(Struct):
    """The evaluated arguments of a call. `lead_axes` counts the axes that a comprehension argument iterates over."""

    span: Span
    items: list[tuple[Term, Span]] = field(default_factory=list[Any])
    named: dict[str, tuple[Term, Span]] = field(default_factory=dict[str, Any])
    lead_axes: int = 0
    name_spans: dict[str, Span] = field(default_factory=dict[str, Span])
    fn_span: Span | None = None


def parameter_names(f: Term) -> list[str]:
    """The names of a function's parameters."""
    match f:
        case Closure(code=FnCode(decl=decl)):
            return [p.name for p in decl.params]
        case Closure(code=LambdaCode(decl=decl)):
            return [p.pattern.name if isinstance(p.pattern, tree.NamePattern) else "" for p in decl.params]
        case Closure(code=DerivativeCode() | AscribedCode() | VmapCode(), captures=(inner,)):
            return parameter_names(inner)
        case SumTerm(parts=parts):
            # A function selected at run time: only common names are usable.
            every = [parameter_names(part) for part in parts]
            return every[0] if all(names == every[0] for names in every) else []
        case _:
            return []
