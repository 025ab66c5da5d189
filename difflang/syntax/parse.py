"""The parser: the LALR loop that drives the tables and builds the tree as it reduces, without recursion.

Error recovery is in `recovery`; `tree_builder` says what a rule makes of its children.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.gc_pause import pause_gc
from difflang.base.source import Source, Span
from difflang.syntax import tree
from difflang.syntax.lexer import Lexer, Token, comment_spans
from difflang.syntax.parser_tables import ACCEPT, Production, load_tables
from difflang.syntax.recovery.error_recovery import ErrorRecovery
from difflang.syntax.tree_builder import TreeBuilder

# (builder, symbols of a rule, start, end) -> value.
Reduction = Callable[[Any, list[Any], int, int], Any]
MAX_MISTAKES = 50  # more than this and the text is hardly a program


class ParsedModule(Struct, frozen=True):
    """A parsed file and its diagnostics. `comments` are all comments, in order."""

    module: tree.Module
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[Span, ...] = ()
    incomplete: bool = False  # the only error is that the text ends too early


class ParsedExpression(Struct, frozen=True):
    """A parsed expression, None if it was not one, and its diagnostics."""

    value: tree.Expr | None
    diagnostics: tuple[Diagnostic, ...]
    incomplete: bool = False


def parse(source: Source) -> ParsedModule:
    """Parse a module; a diagnostic for each mistake in it. Never raises.

    Cost: 0.1 ms a line.
    """
    whole = Span(source, 0, len(source.text))
    if strange := _report_not_text(source):
        return ParsedModule(tree.Module(whole, ()), (strange,))
    return parse_span(Span(source, text_start(source), len(source.text)))


def parse_span(span: Span) -> ParsedModule:
    """Parse the items in a part of a text, with spans in the whole of it. Never raises."""
    source = span.source
    reports: list[Diagnostic] = []
    parser = LalrParser(source, span.start, span.end, reports)
    recovery = ErrorRecovery(parser)
    with pause_gc():
        module = parser.run("start", recovery.resume)
    reports.sort(key=_position)
    empty = tree.Module(Span(source, 0, len(source.text)), ())
    return ParsedModule(
        empty if module is None else module, tuple(reports), comment_spans(parser.lexer), recovery.incomplete
    )


def parse_expression(source: Source) -> ParsedExpression:
    """Parse a text as one expression. Never raises."""
    if strange := _report_not_text(source):
        return ParsedExpression(None, (strange,))
    reports: list[Diagnostic] = []
    parser = LalrParser(source, text_start(source), len(source.text), reports)
    recovery = ErrorRecovery(parser)
    with pause_gc():
        value = parser.run("expr", recovery.resume)
    reports.sort(key=_position)
    return ParsedExpression(value, tuple(reports), recovery.incomplete)


class ReductionCallbacks(dict[int, Reduction]):
    """The action for each rule by number, created when the rule is first reduced."""

    def __missing__(self, number: int) -> Reduction:
        made = self[number] = _reduction_of(load_tables().rules[number])
        return made


REDUCTIONS = ReductionCallbacks()


class LalrParser:
    """An LALR(1) parser of `source` from `start` to `end`: four parallel stacks and a lexer."""

    def __init__(
        self, source: Source, start: int, end: int, reports: list[Diagnostic], build: Any = None,
        callbacks: dict[int, Reduction] = REDUCTIONS,
    ) -> None:  # fmt: skip
        self.source = source
        self.callbacks = callbacks
        self.reports = reports
        self.lexer = Lexer(source, start, end)
        self.tables = load_tables()
        self.build: Any = build or TreeBuilder(source, reports, self.lexer.doc_comment, parse_nested_expression)
        self.states: list[int] = []
        self.values: list[Any] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.recent: deque[Token] = deque(maxlen=4)

    def run(self, rule: str, mistake: Callable[[str], bool]) -> Any:
        """The value of the start rule; None if `mistake`, called with the kind of an unexpected token, gives up."""
        rows, states, text = self.tables.rows, self.states, self.source.text
        states.append(self.tables.starts[rule])
        while True:
            kind = self.lexer.next(rows[states[-1]])
            action = self.reduced(kind)
            if action is None:
                # A file in another language would otherwise report every line.
                if len(self.reports) >= MAX_MISTAKES:
                    self._report_too_many()
                    return None
                if not mistake(kind):
                    return None
            elif action == ACCEPT:
                return self.values[-1]
            else:
                start, stop = self.lexer.start, self.lexer.stop
                self.shift(Token(kind, text[start:stop], start, stop), action)

    def _report_too_many(self) -> None:
        at = Label(Span(self.source, self.lexer.start, self.lexer.stop), "nothing is read from here on")
        self.reports.append(Diagnostic("DL1001", f"more than {MAX_MISTAKES} syntax errors", (at,)))

    def shift(self, token: Token, state: int) -> None:
        """Push a token."""
        self.recent.append(token)
        self.states.append(state)
        self.values.append(token)
        self.starts.append(token.start)
        # A node's span does not include the newline after it.
        self.ends.append(self.ends[-1] if token.kind == "_NL" and self.ends else token.end)

    def reduced(self, kind: str) -> int | None:
        """Reduce until `kind` can be shifted; the state to shift to, or None if it cannot."""
        rows, rules, chains = self.tables.rows, self.tables.rules, self.tables.chains
        states, values, starts, ends = self.states, self.values, self.starts, self.ends
        build, callbacks = self.build, self.callbacks
        while True:
            action = rows[states[-1]].get(kind)
            if action is None or action >= 0:
                return action
            rule = rules[~action]
            size = rule.size
            if rule.is_unit:
                # Unit rules only rename the top of the stack; a name passes through a dozen, so the chain is memoized.
                key = (states[-2], states[-1], kind)
                state = chains.get(key)
                if state is None:
                    state = chains[key] = self._apply_unit_rules(*key)
                states[-1] = state
                continue
            # An empty rule spans nothing, just after the last token.
            if size:
                children = values[-size:]
                del values[-size:], states[-size:]
                start, end = starts[-size], ends[-1]
                del starts[-size:], ends[-size:]
            else:
                children = []
                start = end = ends[-1] if ends else 0
            values.append(callbacks[~action](build, children, start, end))
            starts.append(start)
            ends.append(end)
            states.append(rows[states[-1]][rule.origin])

    def _apply_unit_rules(self, below: int, state: int, kind: str) -> int:
        """The state above `below` after all unit rules on the top of the stack."""
        rows, rules = self.tables.rows, self.tables.rules
        while True:
            action = rows[state].get(kind)
            if action is None or action >= 0 or not rules[~action].is_unit:
                return state
            state = rows[below][rules[~action].origin]


def parse_nested_expression(build: TreeBuilder, span: Span) -> tree.Expr | None:
    """Parse a part of the source as an expression: the text between braces in a string."""
    parser = LalrParser(build.source, span.start, span.end, build.reports, build)
    return parser.run("expr", ErrorRecovery(parser).resume)


def _reduction_of(rule: Production) -> Reduction:
    """The action of `rule`: pick the children, then call its method of `TreeBuilder`."""
    if rule.origin.startswith("_"):
        return lambda build, values, start, end: _children(rule, values)
    keep = tuple(index for index, _, _ in rule.keep)
    if rule.single and len(keep) == 1 and rule.takes_symbols_only:
        return lambda build, values, start, end, only=keep[0]: values[only]
    make = getattr(TreeBuilder, rule.callback)
    if not rule.takes_symbols_only:
        return lambda build, values, start, end: make(build, Span(build.source, start, end), *_children(rule, values))
    if len(keep) == rule.size:
        return lambda build, values, start, end: make(build, Span(build.source, start, end), *values)
    return lambda build, values, start, end: make(build, Span(build.source, start, end), *[values[i] for i in keep])


def _children(rule: Production, values: list[Any]) -> list[Any]:
    """The children of `rule`. The list of a repetition is extended in place: the stack holds its only reference."""
    children: list[Any] = []
    for index, spread, nones in rule.keep:
        children += [None] * nones
        if not spread:
            children.append(values[index])
        elif children:
            children += values[index]
        else:
            children = values[index]
    children += [None] * rule.missing
    return children


CONTROL_CHARACTERS = re.compile("[\\x00-\\x08\\x0e-\\x1f\\x7f\\ud800-\\udfff]")


def _report_not_text(source: Source) -> Diagnostic | None:
    """One report for a file that is not text."""
    strange = CONTROL_CHARACTERS.search(source.text)
    if strange is None:
        return None
    label = Label(Span(source, strange.start(), strange.end()), f"the character U+{ord(strange[0]):04X}")
    return Diagnostic("DL0102", "this is not a text file", (label,), ("a program must be text in UTF-8",))


def text_start(source: Source) -> int:
    """Where a text begins: after a byte order mark."""
    return int(source.text.startswith("\ufeff"))


def _position(report: Diagnostic) -> int:
    return report.span.start if report.span else 0
