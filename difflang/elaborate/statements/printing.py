"""`print` inside functions, and texts with numbers that only the run knows: what is said, and when.

A text is said where the run comes by, unless a check has failed before: the program is over there, though what is
compiled runs on to its end. Of failures before them functions and lanes that say something know by a truth that they
are given.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.context import Before, Context, Reported
from difflang.elaborate.runtime_checks import all_is_well, is_fresh
from difflang.elaborate.terms import UNIT_TERM, Filled, Poison, Term, Text, Tuple, leaves
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.ops.control.print_effect import silent
from difflang.types.text_templates import of_text
from difflang.types.type_errors import Undecided, mistake

if TYPE_CHECKING:
    from difflang.elaborate.calls.arguments import Args

TRUTH = Tensor(BOOL)


def print_(cx: Context, args: Args) -> Term:
    """`print(a, b)`: the values with a space between them."""
    for _, span in args.named.values():
        raise mistake("DL0319", "`print` takes values by position", (span, ""))
    parts: list[str | Filled] = []
    for i, (term, _) in enumerate(args.items):
        if isinstance(term, Poison):
            raise Reported
        parts += [" "] * bool(i)
        parts += said(term) if isinstance(term, Text) else [Filled(term)]
    cx.root.effects.add("print")
    text = Text(None, tuple(parts))
    leaves(text)
    if not cx.root.definition:
        say(cx, well(cx, args.span), text, args.span)
    return UNIT_TERM


def said(text: Text) -> Sequence[str | Filled]:
    """What a text is made of."""
    return text.parts or (text.value or "",)


def say(cx: Context, when: Value | None, text: Text, span: Span, site: int = 0) -> None:
    """Say a text when the run comes by, `when` that holds; with a `site`, as the message of that check."""
    if cx.root.quiet:
        cx.root.muted = True
        return
    when = when or cx.emit("const", span, value=True, type=TRUTH)
    cx.builder.span = span
    operands = tuple(map(cx.builder.own, [when, *leaves(text)]))
    cx.builder.append(OPS["say"], operands, (), text=of_text(text.type), site=site)


def known_text(text: Text, span: Span, what: str) -> str:
    """What a text says. Errors: DL0305 if only the run will know it; Undecided in a definition that is given it."""
    if text.value is not None:
        return text.value
    if not text.parts:
        raise Undecided
    raise made_by_the_run(span, what)


def made_by_the_run(span: Span, what: str) -> DifflangError:
    """A text with numbers of the run in it where what it says must be known."""
    way = "decide by the numbers that it is made of"
    return mistake("DL0305", f"{what} is known before the program runs", (span, "only the run fills this in"), help=way)


# ---- Whether anything has failed


def well(cx: Context, span: Span) -> Value | None:
    """Whether no check has failed so far, here or before; None where none can have."""
    return well_of(cx, cx.failure, cx.before, span)


def well_of(cx: Context, word: Tuple, since: Before | None, span: Span) -> Value | None:
    """The same of a failure and of what was before it."""
    here = None if is_fresh(word) else all_is_well(cx, word, span)
    before = since(span) if since is not None else given(cx)
    if here is None or before is None:
        return here or before
    return cx.emit("logical_and", span, before, here)


def given(cx: Context) -> Value | None:
    """What a function is told by who calls it."""
    root = cx.root
    if root.called and root.well is None:
        root.well = root.builder.param(TRUTH, "well")
    return root.well


@contextmanager
def anew(cx: Context, before: Before | None) -> Generator[None, None, None]:
    """Inside, failures are counted anew, and `before` says whether all was well until then."""
    outer, cx.before = cx.before, before
    try:
        yield
    finally:
        cx.before = outer


class BeforeLane:
    """Whether all was well in the lanes before one: a param of the lane, there if the lane asks for it."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.param: Value | None = None

    def __call__(self, span: Span) -> Value:
        if self.param is None:
            self.param = self.builder.param(TRUTH, "well")
        return self.param


# ---- What is said only once


@contextmanager
def quiet(cx: Context) -> Generator[None, None, None]:
    """Inside, nothing is said: it is computed elsewhere too, or is a derivative."""
    cx.root.quiet += 1
    try:
        yield
    finally:
        cx.root.quiet -= 1


def heard(cx: Context, graph: Graph) -> Graph:
    """A graph as it is called here."""
    if not cx.root.quiet or not graph.effectful:
        return graph
    cx.root.muted = True
    return silent(graph)
