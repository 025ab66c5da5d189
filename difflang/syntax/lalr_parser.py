"""The LALR loop that drives the tables and builds the tree as it reduces, without recursion.

`tree_builder` says what a rule makes of its children; `parse` adds the recovery from errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Span
from difflang.syntax.lexer import Lexer, Token
from difflang.syntax.parser_tables import ACCEPT, Production, load_tables
from difflang.syntax.tree_builder import TreeBuilder

# (builder, symbols of a rule, start, end) -> value.
Reduction = Callable[[Any, list[Any], int, int], Any]
MAX_MISTAKES = 50  # more than this and the text is hardly a program


class ReductionCallbacks(dict[int, Reduction]):
    """The action for each rule by number, created when the rule is first reduced."""

    def __missing__(self, number: int) -> Reduction:
        made = self[number] = _reduction_of(load_tables().rules[number])
        return made


REDUCTIONS = ReductionCallbacks()


class LalrParser:
    """An LALR(1) parser: four parallel stacks and a lexer. `callbacks` make the values, by means of `build`."""

    def __init__(
        self, lexer: Lexer, reports: list[Diagnostic], build: Any, callbacks: dict[int, Reduction] = REDUCTIONS
    ) -> None:
        self.source = lexer.source
        self.callbacks = callbacks
        self.reports = reports
        self.lexer = lexer
        self.tables = load_tables()
        self.build = build
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
