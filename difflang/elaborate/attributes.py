"""Attributes before a function or a loop: `@unchecked`, and those to come. They choose a strategy, never a meaning."""

from __future__ import annotations

from difflang.base.codes import nearest
from difflang.base.source import Span
from difflang.elaborate.context import Context
from difflang.syntax import tree

KNOWN = ("checkpoint", "memory", "unchecked", "deterministic")


def obey(cx: Context, attributes: tuple[tree.Attribute, ...], span: Span) -> None:
    """Do what the attributes of what stands there say. Errors: DL0209, DL0801 for those that are not there yet."""
    for attribute in attributes:
        if attribute.name not in KNOWN:
            near = nearest(attribute.name, KNOWN)
            way = f"did you mean `@{near}`?" if near else f"there are @{', @'.join(KNOWN)}"
            raise cx.error("DL0209", f"there is no attribute `@{attribute.name}`", attribute.span, "", way)
        if attribute.name != "unchecked":
            raise cx.not_yet(f"`@{attribute.name}` is", attribute.span, "leave it away: it never changes a result")
        if attribute.args:
            raise cx.error("DL0209", "`@unchecked` takes nothing in parentheses", attribute.span)
        cx.session.unchecked.add(span)
