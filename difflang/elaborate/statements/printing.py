"""`print` in compiled functions, run-time texts, and the flag whether any check has failed before.

A print takes effect at run time unless a check has failed before it: for the user the program ended there, though the
compiled code runs to its end. Functions and map bodies that print receive a flag for the failures before them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext, OkBefore
from difflang.elaborate.runtime_checks import cannot_have_failed, no_failure_value
from difflang.elaborate.terms import UNIT_TERM, InterpolatedValue, PoisonTerm, Term, TextTerm, Tuple, leaves
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import BOOL, Tensor
from difflang.ops.control.print_effect import print_op, without_prints
from difflang.types.text_templates import string_template
from difflang.types.type_errors import DeferCheck, make_error

BOOL_SCALAR = Tensor(BOOL)
HOLE_HELP = "branch on the numbers that it contains"


@builtin("print", takes="..values")
def print_(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`print(a, b)`: the values, separated by spaces."""
    for _, span in args.named.values():
        raise make_error("DL0319", "`print` takes positional arguments only", (span, ""))
    parts: list[str | InterpolatedValue] = []
    for i, (term, _) in enumerate(args.items):
        if isinstance(term, PoisonTerm):
            raise AlreadyReported
        parts += [" "] * bool(i)
        parts += text_parts(term) if isinstance(term, TextTerm) else [InterpolatedValue(term)]
    cx.root.effects.add("print")
    text = TextTerm(None, tuple(parts))
    leaves(text)
    if not cx.root.definition_only:
        emit_print(cx, no_failure_so_far(cx, args.span), text, args.span)
    return UNIT_TERM


def text_parts(text: TextTerm) -> Sequence[str | InterpolatedValue]:
    """The parts of a text."""
    if text.number is not None:
        return (InterpolatedValue(text),)
    return text.parts or (text.value or "",)


def emit_print(cx: ElabContext, when: Value | None, text: TextTerm, span: Span, site: int = 0) -> None:
    """Emit a print of a text if `when` holds; with a `site`, the text is the message of that check."""
    if cx.root.silence_depth:
        cx.root.output_suppressed = True
        return
    when = when or cx.emit("const", span, value=True, type=BOOL_SCALAR)
    cx.builder.span = span
    operands = tuple(map(cx.builder.capture, [when, *leaves(text)]))
    cx.builder.append(print_op, operands, (), text=string_template(text.type), site=site)


def static_text(text: TextTerm, span: Span, what: str) -> str:
    """The string of a text. Errors: DL0305 if it is known only at run time; DeferCheck for a definition's parameter."""
    if text.value is not None:
        return text.value
    if text.number is None and not text.parts:
        raise DeferCheck
    raise runtime_text_error(span, what, numbered=text.number is not None)


def runtime_text_error(span: Span, what: str, *, numbered: bool = False) -> DifflangError:
    """The report of a text that only the run knows where its string must be known; `numbered`, of one in an array."""
    way = 'compare it with `==`; in host statements, `"{name}"` makes it known' if numbered else HOLE_HELP
    return make_error(
        "DL0305", f"{what} must be known at compile time", (span, "this is known only at run time"), help=way
    )


# ---- The flag that no check has failed


def no_failure_so_far(cx: ElabContext, span: Span) -> Value | None:
    """The flag that no check has failed so far, here or before; None where none can have."""
    return no_failure_in(cx, cx.failure, cx.ok_before, span)


def no_failure_before_loops(cx: ElabContext, span: Span) -> Value | None:
    """The flag for a function that prints nothing, but holds loops of unknown length."""
    return no_failure_for_loop(cx, cx.failure, cx.ok_before, span)


def no_failure_in(cx: ElabContext, word: Tuple, since: OkBefore | None, span: Span) -> Value | None:
    """The flag for the failure `word` and for the failures before it."""
    here = None if cannot_have_failed(word) else no_failure_value(cx, word, span)
    before = since(span) if since is not None else no_failure_in_caller(cx)
    if here is None or before is None:
        return here or before
    return cx.emit("logical_and", span, before, here)


def no_failure_in_caller(cx: ElabContext) -> Value | None:
    """The flag that the caller passes; creates its param at the first use."""
    root = cx.root
    if root.is_function and root.ok_flag is None:
        root.ok_flag = root.builder.param(BOOL_SCALAR, "well")
    return root.ok_flag


def no_failure_for_loop(cx: ElabContext, word: Tuple, since: OkBefore | None, span: Span) -> Value | None:
    """The same flag for a loop that may never end after a failure.

    Items of a map do not wait for each other: that an earlier one failed says nothing of this one, but what failed
    before the map does.
    """
    if since is None or isinstance(since, PriorInstancesOk):
        return no_failure_in(cx, word, since and since.outside, span)
    return None if cannot_have_failed(word) else no_failure_value(cx, word, span)


@contextmanager
def separate_failures(cx: ElabContext, before: OkBefore | None) -> Generator[None, None, None]:
    """Inside, the failure word starts at 0, and `before` gives the flag for earlier failures."""
    outer, cx.ok_before = cx.ok_before, before
    try:
        yield
    finally:
        cx.ok_before = outer


class PriorInstancesOk:
    """The flag for earlier items of a map: a param of its body, created only if something reads it.

    `outside` gives the flag for failures before the map.
    """

    def __init__(self, builder: Builder, outside: OkBefore) -> None:
        self.builder = builder
        self.outside = outside
        self.param: Value | None = None

    def __call__(self, span: Span) -> Value:
        if self.param is None:
            self.param = self.builder.param(BOOL_SCALAR, "well")
        return self.param


# ---- Suppressing repeated prints


@contextmanager
def suppress_prints(cx: ElabContext) -> Generator[None, None, None]:
    """Inside, prints are suppressed: the code is a derivative, or is also elaborated elsewhere."""
    cx.root.silence_depth += 1
    try:
        yield
    finally:
        cx.root.silence_depth -= 1


def silence_if_suppressed(cx: ElabContext, graph: Graph) -> Graph:
    """A callee's graph, without its prints if they are suppressed here."""
    if not cx.root.silence_depth or not graph.effectful:
        return graph
    cx.root.output_suppressed = True
    return without_prints(graph)
