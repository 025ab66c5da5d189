"""Functions that whoever calls gives, of which only the type is known: one equation for each call."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.source import Span
from difflang.elaborate.context import ElabContext
from difflang.elaborate.terms import Term, leaves, term_from_leaves
from difflang.elaborate.trampoline import Walk
from difflang.ops.control.opaque_call import emit_opaque_call
from difflang.types.function_code import OpaqueFnCode


def call_function_parameter(cx: ElabContext, code: OpaqueFnCode, terms: Sequence[Term], span: Span) -> Walk[Term]:
    """What a call gives."""
    cx.builder.span = span
    results = emit_opaque_call(cx.builder, code.function, *[v for term in terms for v in leaves(term)])
    return term_from_leaves(code.type.result, list(results))
    yield
