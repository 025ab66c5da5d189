"""Syntax error recovery: report the mistake, repair it by inserting or dropping a token, else skip the statement.

`common_mistakes` knows what a person probably meant. A repair is tried on the states alone before it is applied.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec.structs import replace

from difflang.base.diagnostics import Diagnostic, Edit, Fix, Label
from difflang.base.source import Source, Span
from difflang.syntax.lalr_parser import LalrParser
from difflang.syntax.lexer import BAD_TOKEN, CLOSER_OF, CLOSERS, Token
from difflang.syntax.parser_tables import END_OF_TEXT, load_tables
from difflang.syntax.recovery import common_mistakes
from difflang.syntax.recovery.error_context import (
    ErrorContext,
    accepts_tokens,
    describe_expected,
    describe_token,
    error_context_of,
    open_brackets,
)
from difflang.syntax.recovery.mistake import CommonMistake
from difflang.syntax.recovery.panic_mode import (
    ITEM_ONLY_KEYWORDS,
    MAX_NESTED,
    close_open_rules,
    lacks_partner,
    misindented_brace,
    skip_statement,
)
from difflang.syntax.recovery.token_repair import (
    TokenRepair,
    apply_repair,
    best_repair,
    first_repair,
    repair_works,
    sample_text,
)

_INSERTABLE_TOKENS = ("COLON", "COMMA", "_NL", "EQUAL", "IN", "GIVES", "LBRACE", "ARROW")


class ErrorRecovery:
    """Called with each mistake in turn. `incomplete` is set if the only one is the end of the text."""

    def __init__(self, parser: LalrParser) -> None:
        self.parser = parser
        self.incomplete = False
        self.last = -1  # the offset of the previous mistake
        self.inserted_braces = 0

    def resume(self, kind: str) -> bool:
        """Report the unexpected token and make the parser continue; False if that is not possible."""
        situation = error_context_of(self.parser, kind)
        # A second mistake at one offset means the repair did not help: skip without another report.
        again = self.last == situation.start
        self.last = situation.start
        if kind == END_OF_TEXT:
            return self._at_end_of_text(situation, silent=again)
        if not again:
            mended = self._reserved_word(situation)
            if mended is None:
                mended = self._common_mistake(situation)
            if mended is None:
                mended = self._try_repairs(situation)
            if mended:
                return True
        return skip_statement(self.parser, situation, again)

    # ---- Known mistakes

    def _common_mistake(self, situation: ErrorContext) -> bool | None:
        """Report the first known mistake that matches; whether it was repaired, None if none matches."""
        text, end = self.parser.source.text, self.parser.lexer.end
        for mistake in common_mistakes.matching_mistakes(situation):
            taken = mistake.extent_pattern.match(text, situation.start, end) if mistake.extent_pattern else None
            if (mistake.extent_pattern and taken is None) or not mistake.matches_prefix(text, situation.start):
                continue
            stop = taken.end() if taken else situation.stop
            # The intent is known, so one accepted token is proof enough.
            mend = best_repair(
                self.parser, *(TokenRepair(kinds, situation.start, stop) for kinds in mistake.repairs), least=1
            )
            if mistake.only_if_repaired and mend is None:
                continue
            if mistake.previous_word:
                start, stop = situation.before_start, situation.before_start + len(situation.word)
            else:
                start = situation.start
            fixes = suggested_fixes(mistake, situation, self.parser.source, start, max(stop, start))
            self._report(mistake.code, mistake.message, start, max(stop, start), "", mistake.help, fixes)
            return mend is not None and self._make(mend)
        return None

    # ---- Repairs of unknown mistakes

    def _try_repairs(self, situation: ErrorContext) -> bool:
        """Report a mistake by the repair that works; whether there was one."""
        # Brackets first: a wrong or missing one also makes the later repairs look plausible.
        attempts = [self._closed_wrongly, self._unclosed_bracket, self._missing_token, self._unexpected_token]
        if situation.operand and not situation.first and situation.kind not in CLOSERS:
            attempts.insert(0, self._no_operand)
        for attempt in attempts:
            done = attempt(situation)
            if done is not None:
                return done
        return False

    def _closed_wrongly(self, situation: ErrorContext) -> bool | None:
        if situation.kind not in CLOSERS:
            return None
        opened = open_brackets(self.parser.values)
        drop = TokenRepair((), situation.start, situation.stop)
        if situation.kind in (CLOSER_OF[token.kind] for token in opened):
            return None
        if opened and opened[-1].kind != "LBRACE" and situation.kind != "RBRACE":
            exchange = TokenRepair((CLOSER_OF[opened[-1].kind],), situation.start, situation.stop)
            if best_repair(self.parser, exchange, drop) == exchange:
                message = f"`{opened[-1].text}` is closed by `{situation.text}`"
                fixes = (
                    replacement_fix(
                        self.parser.source, situation.start, situation.stop, sample_text(CLOSER_OF[opened[-1].kind])
                    ),
                )
                self._report("DL0104", message, situation.start, situation.stop, fixes=fixes)
                self._also(opened[-1].start, "opened here")
                return self._make(exchange)
        if not repair_works(self.parser, drop):
            return None
        self._report("DL0104", f"`{situation.text}` closes nothing", situation.start, situation.stop)
        return self._make(drop)

    def _unclosed_bracket(self, situation: ErrorContext) -> bool | None:
        opened = open_brackets(self.parser.values)
        if not opened:
            return None
        at = self._previous_token_end()
        closer = CLOSER_OF[opened[-1].kind]
        word = situation.text
        if closer != "RBRACE" or situation.kind == "ELSE":
            mend = first_repair(self.parser, TokenRepair((closer,), at, at))
        elif word in ITEM_ONLY_KEYWORDS and situation.first:
            several = range(1, min(len(opened), MAX_NESTED) + 1)
            mend = first_repair(
                self.parser, *(TokenRepair((closer,) * n + ("_NL",), at, situation.start) for n in several)
            )
            del opened[len(opened) + 2 - len(mend.inserted) if mend else len(opened) :]
        else:
            return None
        if mend is None:
            return None
        token = opened[-1]
        self._report("DL0103", f"`{token.text}` is never closed", token.start, token.end)
        self._also(situation.start, f"expected `{sample_text(closer)}` before this")
        return self._make(mend)

    def _reserved_word(self, situation: ErrorContext) -> bool | None:
        """A reserved word where only a name can stand."""
        if situation.kind not in load_tables().lexis.words.values() or situation.first:
            return None
        mend = TokenRepair(("NAME",), situation.start, situation.stop)
        if accepts_tokens(self.parser.states, "INT") or not best_repair(self.parser, mend, least=1):
            return None
        word = situation.text
        self._report("DL0106", f"`{word}` is a reserved word", situation.start, situation.stop, "expected a name")
        return self._make(mend)

    def _missing_token(self, situation: ErrorContext) -> bool | None:
        """A token or an operand missing just before this one."""
        before, states = self._previous_token_end(), self.parser.states
        if situation.kind == "_NL" and not situation.operand and accepts_tokens(states, "LBRACE"):
            return self._missing_brace(situation, before)
        if situation.operand:
            return self._no_operand(situation)
        mend = best_repair(
            self.parser,
            *(TokenRepair((k,), before, situation.start if k == "_NL" else before) for k in _INSERTABLE_TOKENS),
        )
        if mend is None or (mend.inserted == ("_NL",) and situation.kind == BAD_TOKEN):
            return None
        self._report_missing(situation, *mend.inserted)
        return self._make(mend)

    def _no_operand(self, situation: ErrorContext) -> bool | None:
        before = self._previous_token_end()
        mend = TokenRepair(("NAME",), before, before)
        if situation.kind in load_tables().lexis.words.values() and not accepts_tokens(self.parser.states, "INT"):
            return None  # a reserved word used as a name
        if not repair_works(self.parser, mend):
            return None
        what = describe_expected(self.parser.states).split(",")[0].split(" or ")[0] or "a name"
        empty = what == "a type" and situation.text == "]"
        way = "the type of a single number has no brackets: `f32`" if empty else ""
        message = "`[]` names no size" if way else f"{what} is missing"
        self._report("DL0129", message, before, before, f"expected {what} here" if not way else "", way)
        return self._make(mend)

    def _report_missing(self, situation: ErrorContext, kind: str) -> None:
        if kind == "_NL":
            help = "begin a new line, or write the missing operator or comma between two values"
            message = f"{describe_token(situation)} does not continue the statement before it"
            self._report("DL0122", message, situation.start, situation.stop, "", help)
            return
        message = f"`{sample_text(kind)}` is missing"
        code = "DL0114" if kind == "LBRACE" else "DL0129"
        self._report(code, message, situation.start, situation.stop, "expected before this")

    def _missing_brace(self, situation: ErrorContext, before: int) -> bool:
        """A line that ends where its block should begin: the brace is on the next line, or missing."""
        help = f"`{{` stands on the line of its `{situation.opener}`" if situation.opener.isalpha() else ""
        self._report("DL0114", "`{` is missing", before, before, "expected `{` here", help)
        on_the_next_line = TokenRepair((), before, situation.stop)
        if repair_works(self.parser, on_the_next_line):
            return self._make(on_the_next_line)
        mend = TokenRepair(("LBRACE",), before, before)
        # If nothing closes the block either, its lines are skipped.
        return (
            not lacks_partner(self.parser.source.text, before) and repair_works(self.parser, mend) and self._make(mend)
        )

    def _unexpected_token(self, situation: ErrorContext) -> bool:
        found = describe_token(situation)
        could = describe_expected(self.parser.states)
        label = f"expected {could}" if could else ""
        if situation.kind == BAD_TOKEN:
            self._report("DL0107", f"{found} is not a valid token", situation.start, situation.stop, label)
        else:
            stop = situation.start if situation.kind == "_NL" else situation.stop
            self._report("DL0101", f"{found} cannot appear here", situation.start, stop, label)
        mend = first_repair(self.parser, TokenRepair((), situation.start, situation.stop))
        return mend is not None and self._make(mend)

    # ---- Applying a repair

    def _make(self, mend: TokenRepair) -> bool:
        apply_repair(self.parser, mend)
        self.last = -1
        self.inserted_braces += mend.inserted.count("LBRACE")
        return True

    # ---- The end of the text

    def _at_end_of_text(self, situation: ErrorContext, silent: bool) -> bool:
        opened = open_brackets(self.parser.values)
        if not silent:
            self.incomplete = not self.parser.reports
            if opened:
                # A brace that was inserted takes the partner of another.
                if len(opened) > self.inserted_braces:
                    self._report_unclosed(situation)
            else:
                could = describe_expected(self.parser.states)
                what = "the text" if situation.stop == len(self.parser.source.text) else "this expression"
                self._report(
                    "DL0129", f"{what} ends too early", situation.start, situation.stop, could and f"expected {could}"
                )
        return close_open_rules(self.parser)

    def _report_unclosed(self, situation: ErrorContext) -> None:
        """Report the bracket whose partner is missing: the one that the indentation shows, else the innermost."""
        opened = open_brackets(self.parser.values)
        text = self.parser.source.text
        token = opened[-1]
        brace = misindented_brace(text, self.parser.lexer.end)
        if brace is not None:
            token = Token("LBRACE", "{", brace, brace + 1)
        else:
            lone = (
                one for one in opened[: -MAX_NESTED - 1 : -1] if one.kind == "LBRACE" and lacks_partner(text, one.start)
            )
            token = next(lone, token)
        self._report("DL0103", f"`{token.text}` is never closed", token.start, token.end)
        self._also(situation.start, f"the text ends without its `{sample_text(CLOSER_OF[token.kind])}`")

    def _report(
        self, code: str, message: str, start: int, stop: int, label: str = "", help: str = "",
        fixes: tuple[Fix, ...] = (),
    ) -> None:  # fmt: skip
        span = Span(self.parser.source, start, stop)
        self.parser.reports.append(
            Diagnostic(code, message, (Label(span, label),), (help,) if help else (), fixes=fixes)
        )

    def _also(self, at: int, text: str) -> None:
        """Add a second label to the latest report."""
        report = self.parser.reports.pop()
        label = Label(Span(self.parser.source, at, at), text)
        self.parser.reports.append(replace(report, labels=(*report.labels, label)))

    def _previous_token_end(self) -> int:
        """The end of the token before the mistake."""
        return self.parser.recent[-1].end if self.parser.recent else self.parser.lexer.start


def suggested_fixes(
    mistake: CommonMistake, situation: ErrorContext, source: Source, start: int, stop: int
) -> tuple[Fix, ...]:
    """The fixes of a mistake marked from `start` to `stop`, best first."""
    if mistake.replacement is None:
        return ()
    if mistake.both:
        start = situation.before_start
    if isinstance(mistake.replacement, str):
        return (replacement_fix(source, start, stop, mistake.replacement),)
    found: list[Fix] = []
    for pattern, template in mistake.replacement:
        if there := compile_pattern(pattern).match(source.text, start):
            found.append(replacement_fix(source, there.start(), there.end(), there.expand(template)))
    return tuple(found)


def replacement_fix(source: Source, start: int, stop: int, written: str) -> Fix:
    """A fix that replaces a range, with spaces added where words would join."""
    text = source.text
    before, after = text[start - 1 : start], text[stop : stop + 1]
    shown = written.strip()
    said = f"write `{shown}`" if shown else "insert a space"
    if written.startswith("\n"):
        said = "begin a new line" + (f": `{shown}`" if shown else "")
        written = indented_newline(text, start) + written[1:]
    elif shown:
        left = written[0] == " " and not before.isspace()
        right = written[-1] == " " and not after.isspace()
        written = (
            " " * (left or would_join_words(before, shown[0]))
            + shown
            + " " * (right or would_join_words(shown[-1], after))
        )
    elif not written:
        said = f"remove `{text[start:stop].strip()}`"
        if before.isspace():
            stop += len(text[stop:]) - len(text[stop:].lstrip(" \t"))
    return Fix(said, (Edit(Span(source, start, stop), written),))


def indented_newline(text: str, at: int) -> str:
    """A newline in the text's own convention, with the indentation of this line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return ("\r\n" if "\r\n" in text else "\n") + line[: len(line) - len(line.lstrip())]


def would_join_words(a: str, b: str) -> bool:
    """Whether two adjacent characters are read as one word."""
    return (a.isalnum() or a == "_") and (b.isalnum() or b == "_")


@lru_cache(maxsize=128)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)
