"""`CallArgs`: the evaluated arguments of a call, by position and by name."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.elaborate.terms import Term


class CallArgs(Struct):
    """The evaluated arguments of a call. `lead_axes` counts the axes that a comprehension argument iterates over."""

    span: Span
    items: list[tuple[Term, Span]] = field(default_factory=list[Any])
    named: dict[str, tuple[Term, Span]] = field(default_factory=dict[str, Any])
    lead_axes: int = 0
    name_spans: dict[str, Span] = field(default_factory=dict[str, Span])
    fn_span: Span | None = None
