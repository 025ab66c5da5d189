"""Functions that whoever calls gives, of which only the type is known: one equation for each call."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.source import Span
from difflang.elaborate.context import Context
from difflang.elaborate.terms import Term, leaves, rebuild
from difflang.elaborate.trampoline import Walk
from difflang.ops.control.opaque_call import call_of
from difflang.types.function_code import GivenCode


def call(cx: Context, code: GivenCode, terms: Sequence[Term], span: Span) -> Walk[Term]:
    """What a call gives."""
    cx.builder.span = span
    results = call_of(cx.builder, code.function, *[v for term in terms for v in leaves(term)])
    return rebuild(code.type.result, list(results))
    yield
