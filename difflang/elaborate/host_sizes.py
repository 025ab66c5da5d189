"""Integers of host code used as sizes: arithmetic recorded lazily, and closures specialized to captured numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.elaborated_graphs import HostComputedSize
from difflang.elaborate.terms import Array, Closure, Term
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Dim

UNKNOWN_SIZE = "DL0305"
# The longest chain of host operations behind a size: evaluating it is recursive.
MAX_CHAIN = 100


def retry_with_host_sizes(
    cx: ElabContext, terms: dict[str, Term], call: Callable[[dict[str, Term]], Walk[Term]]
) -> Walk[Term]:
    """Make a call; if a size was unknown, retry it in host code with the host numbers that its functions captured."""
    # Not at once with the numbers: each set of them is a specialization of its own.
    if cx.root.demand is None or not any(isinstance(t, Closure) for t in terms.values()):
        return (yield call(terms))
    session = cx.session
    said, errors, draws = len(session.diagnostics), session.errors, cx.root.draw_count
    try:
        return (yield call(terms))
    except (DifflangError, AlreadyReported) as error:
        found = [*(error.diagnostics if isinstance(error, DifflangError) else ()), *session.diagnostics[said:]]
        if all(d.code != UNKNOWN_SIZE for d in found) or not any(captures_host_number(cx, t) for t in terms.values()):
            raise
    del session.diagnostics[said:]
    session.errors, cx.root.draw_count = errors, draws
    return (yield call({name: specialize_captures(cx, term) for name, term in terms.items()}))


def record_host_size(cx: ElabContext, made: Array, fold: Callable[..., Dim | None], parts: Sequence[Array]) -> None:
    """Record how host code computes a number from host numbers, in case it is needed as a size."""
    numbers = cx.root.host_numbers
    behind = [numbers.get(p.value) for p in parts if p.static is None]
    steps = 1 + max([b.chain_length for b in behind if isinstance(b, HostComputedSize)], default=0)
    if behind and None not in behind and steps <= MAX_CHAIN:
        numbers[made.value] = HostComputedSize(fold, tuple(parts), steps)


def captures_host_number(cx: ElabContext, term: Term) -> bool:
    """Whether a function captured a host number that specialization does not know."""
    if isinstance(term, Closure):
        return any(captures_host_number(cx, t) for t in term.captures)
    return isinstance(term, Array) and term.static is None and term.value in cx.root.host_numbers


def specialize_captures(cx: ElabContext, term: Term) -> Term:
    """A function specialized to the host numbers that it captured."""
    if isinstance(term, Closure):
        return Closure(term.code, tuple([specialize_capture(cx, t) for t in term.captures]))
    return term


def specialize_capture(cx: ElabContext, term: Term) -> Term:
    return as_static_size(cx, term) if isinstance(term, Array) else specialize_captures(cx, term)


def as_static_size(cx: ElabContext, term: Array) -> Array:
    """The number with its static value, if the host knows it."""
    return replace(term, static=cx.static_number(term)) if captures_host_number(cx, term) else term
