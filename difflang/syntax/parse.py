"""Text to tree: the loop that drives the tables, making the tree as it goes, so that no depth is too deep.

What happens at a mistake lives in `recover` and `mistakes`; what a rule makes of its children in `build`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Source, Span
from difflang.syntax import recover, tree
from difflang.syntax.build import Build
from difflang.syntax.tables import ACCEPT, Rule, tables
from difflang.syntax.tokens import Lexer, Token, comments

MISTAKES = 50  # more than this and the text is hardly a program


@dataclass(frozen=True, slots=True)
class Parsed:
    """What was understood of a file, and what was not. `comments` are all comments, in order."""

    module: tree.Module
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedExpression:
    """What was understood of one expression: None if it was not one."""

    value: tree.Expr | None
    diagnostics: tuple[Diagnostic, ...]


def parse(source: Source) -> Parsed:
    """The module that a text spells, and a diagnostic for each mistake in it. Never raises.

    Cost: 0.1 ms a line.
    """
    whole = Span(source, 0, len(source.text))
    empty = tree.Module(whole, ())
    if strange := _not_text(source):
        return Parsed(empty, (strange,))
    reports: list[Diagnostic] = []
    parser = Parser(source, whole.start, whole.end, reports)
    with _without_collection():
        module = parser.run("start")
    return Parsed(empty if module is None else module, _in_order(reports), comments(parser.lexer))


def parse_expression(source: Source) -> ParsedExpression:
    """The one expression that a text spells. Never raises."""
    if strange := _not_text(source):
        return ParsedExpression(None, (strange,))
    reports: list[Diagnostic] = []
    with _without_collection():
        value = Parser(source, 0, len(source.text), reports).run("expr")
    return ParsedExpression(value, _in_order(reports))


class Parser:
    """An LALR(1) parser of `source` from `start` to `end`: four parallel stacks and a lexer."""

    def __init__(self, source: Source, start: int, end: int, reports: list[Diagnostic]) -> None:
        self.source = source
        self.reports = reports
        self.lexer = Lexer(source, start, end)
        self.tables = tables()
        build = Build(source, reports, lambda at: self.lexer.doc(at), self._within)
        self.callbacks = [_callback(build, rule) for rule in self.tables.rules]
        self.states: list[int] = []
        self.values: list[Any] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.shifted = 0  # tokens so far, for `recover` to see progress

    def _within(self, span: Span) -> tree.Expr | None:
        """The expression that a part of the source spells."""
        return Parser(self.source, span.start, span.end, self.reports).run("expr")

    def run(self, start: str) -> Any:
        """The value of the start rule; None if the text could not be brought into its form."""
        rows, states = self.tables.rows, self.states
        first = self.tables.starts[start]
        states.append(first)
        row = rows[first]
        text = self.source.text
        recovery = recover.Recovery(self, start)
        while True:
            lexer = self.lexer
            kind = lexer.next(row)
            action = self._reduced(kind)
            if action is None:
                if len(self.reports) >= MISTAKES or not recovery.resume(kind):
                    return None
                row = rows[states[-1]]
                continue
            if action == ACCEPT:
                return self.values[-1]
            states.append(action)
            if kind == "_NL":  # nothing ends with the newline after it
                self.values.append(kind)
                self.ends.append(self.ends[-1])
            else:
                self.values.append(Token(kind, text[lexer.start : lexer.stop], lexer.start, lexer.stop))
                self.ends.append(lexer.stop)
            self.starts.append(lexer.start)
            self.shifted += 1
            row = rows[action]

    def _reduced(self, kind: str) -> int | None:
        """Reduce until `kind` can be shifted, and say to which state; None if it cannot."""
        rows, rules, chains = self.tables.rows, self.tables.rules, self.tables.chains
        states, values, starts, ends = self.states, self.values, self.starts, self.ends
        callbacks, source = self.callbacks, self.source
        while True:
            action = rows[states[-1]].get(kind)
            if action is None or action >= 0:
                return action
            rule = rules[~action]
            size = rule.size
            if rule.unit:
                key = (states[-2], states[-1], kind)
                state = chains.get(key)
                if state is None:
                    state = chains[key] = self._chain(*key)
                states[-1] = state
                continue
            if size:
                children = values[-size:]
                del values[-size:], states[-size:]
                start, end = starts[-size], ends[-1]
                del starts[-size:], ends[-size:]
            else:
                children = []
                start = end = ends[-1] if ends else 0
            values.append(callbacks[~action](children, source, start, end))
            starts.append(start)
            ends.append(end)
            states.append(rows[states[-1]][rule.origin])

    def _chain(self, below: int, state: int, kind: str) -> int:
        """The state above `below` after all rules that only rename what is on top of the stack."""
        rows, rules = self.tables.rows, self.tables.rules
        while True:
            action = rows[state].get(kind)
            if action is None or action >= 0 or not rules[~action].unit:
                return state
            state = rows[below][rules[~action].origin]


Callback = Callable[[list[Any], Source, int, int], Any]


def _callback(build: Build, rule: Rule) -> Callback:
    """What to do with the symbols of `rule`: pick the children, then call its method of `build`."""
    if rule.origin.startswith("_"):
        return lambda values, source, start, end: _children(rule, values)
    keep = tuple(index for index, _, _ in rule.keep)
    if rule.single and len(keep) == 1 and rule.plain:
        return lambda values, source, start, end, only=keep[0]: values[only]
    method = getattr(build, rule.callback)
    if not rule.plain:
        return lambda values, source, start, end: method(Span(source, start, end), *_children(rule, values))
    if len(keep) == rule.size:
        return lambda values, source, start, end: method(Span(source, start, end), *values)
    return lambda values, source, start, end: method(Span(source, start, end), *[values[i] for i in keep])


def _children(rule: Rule, values: list[Any]) -> list[Any]:
    """The children of `rule`. The list of a repetition is extended in place: it is on the stack once."""
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


def _not_text(source: Source) -> Diagnostic | None:
    """One report for a file that holds something else than text."""
    text = source.text
    if text.isascii() and text.isprintable():
        return None
    for offset, char in enumerate(text):
        if char < " " and char not in "\t\n\r\f\v" or char == "\x7f" or "\ud800" <= char <= "\udfff":
            label = Label(Span(source, offset, offset + 1), f"the character U+{ord(char):04X}")
            return Diagnostic("DL0102", "this is not a text file", (label,), ("a program is text in UTF-8",))
    return None


def _in_order(reports: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(reports, key=lambda report: report.span.start if report.span else 0))


@contextmanager
def _without_collection() -> Iterator[None]:
    """A parse makes many objects and no garbage: looking for some again and again takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


