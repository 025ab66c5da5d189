"""What the parser does at a mistake: report it, mend it if a token more or less does, else go on below it.

What a person probably meant lives in `mistakes`. A mend is tried on the states alone before it is made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Span
from difflang.syntax import mistakes
from difflang.syntax.situation import Situation, accepts, brackets, described, expected, feed, look
from difflang.syntax.tables import END, tables
from difflang.syntax.tokens import BAD, CLOSES, OPENS, Lexer, Token, scanners

if TYPE_CHECKING:
    from difflang.syntax.parse import Parser

AHEAD = 4  # so many tokens must follow well for a mend to count
FAR = 16  # so many are tried to tell mends apart
NESTED = 100  # so many unfinished things are looked at, each at the cost of the text
LEVELS = ("item", "stmt", "case", "variant", "field")  # what parsing can begin again with
ONLY_ITEMS = frozenset(("import", "record", "enum", "rule", "pub", "extern"))
ITEMS = ONLY_ITEMS | {"fn", "test", "bench"}
GO_ON = frozenset(("else", "elif", "elseif", "except", "finally", "catch"))
HEADS = {
    "FN": ("FN", "NAME", "LPAR", "RPAR"),
    "IF": ("IF", "NAME"),
    "WHILE": ("WHILE", "NAME"),
    "FOR": ("FOR", "NAME", "IN", "NAME"),
}
_HEAD_END = re.compile(r'(?:[^\n"#{}]|"[^"\n]*")*(\{)[ \t]*(?:#[^\n]*)?\r?\n')
_WORD = re.compile(r"[^\W\d]\w*")
_PARTNERS = {closer: opener for opener, closer in OPENS.items()}
_MISSING = ("COLON", "COMMA", "_NL", "EQUAL", "IN", "GIVES", "LBRACE", "ARROW")


@dataclass(frozen=True, slots=True)
class Mend:
    """Tokens to put in, where to read on, and after which token."""

    kinds: tuple[str, ...]
    start: int  # where they are put
    resume: int


class Recovery:
    """Told of each mistake in turn. `incomplete` says that the only one was the end of the text."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.incomplete = False
        self.last = -1  # where the mistake before was

    def resume(self, kind: str) -> bool:
        """Report the token that cannot stand there and get the parser going again; False if that is not possible."""
        situation = look(self.parser, kind)
        again = self.last == situation.start
        self.last = situation.start
        if kind == END:
            return self._at_the_end(situation, silent=again)
        if not again:
            mended = self._explained(situation)
            if mended is None:
                mended = self._mended(situation)
            if mended:
                return True
        return self._skip(situation, again)

    # ---- Mistakes that are known

    def _explained(self, situation: Situation) -> bool | None:
        """Report what looks like a known mistake; whether it was mended, None if none looks like it."""
        text, end = self.parser.source.text, self.parser.lexer.end
        for mistake in mistakes.like(situation):
            taken = mistake.taken.match(text, situation.start, end) if mistake.taken else None
            if mistake.taken and taken is None:
                continue
            stop = taken.end() if taken else situation.stop
            mend = self._first(*(Mend(kinds, situation.start, stop) for kinds in mistake.mends))
            if mistake.only_if_mended and mend is None:
                continue
            if mistake.word:
                start, stop = situation.before_start, situation.before_start + len(situation.word)
            else:
                start = situation.start
            self._say(mistake.code, mistake.message, start, max(stop, start), "", mistake.help)
            return mend is not None and self._make(mend)
        return None

    # ---- Mistakes that are not

    def _mended(self, situation: Situation) -> bool:
        """Report a mistake by what mends it; whether it was mended."""
        attempts = [self._closed_wrongly, self._never_closed, self._reserved, self._missing, self._too_much]
        if situation.operand and not situation.first and situation.kind not in CLOSES:
            attempts.insert(0, self._no_operand)
        for attempt in attempts:
            done = attempt(situation)
            if done is not None:
                return done
        return False

    def _closed_wrongly(self, situation: Situation) -> bool | None:
        if situation.kind not in CLOSES:
            return None
        opened = brackets(self.parser.values)
        drop = Mend((), situation.start, situation.stop)
        if situation.kind in (OPENS[token.kind] for token in opened):
            return None
        if opened and opened[-1].kind != "LBRACE" and situation.kind != "RBRACE":
            exchange = Mend((OPENS[opened[-1].kind],), situation.start, situation.stop)
            if self._best(exchange, drop) == exchange:
                self._say(
                    "DL0104", f"`{opened[-1].text}` is closed by `{situation.text}`", situation.start, situation.stop
                )
                self._also(opened[-1].start, "opened here")
                return self._make(exchange)
        if not self._works(drop):
            return None
        self._say("DL0104", f"`{situation.text}` closes nothing", situation.start, situation.stop)
        return self._make(drop)

    def _never_closed(self, situation: Situation) -> bool | None:
        opened = brackets(self.parser.values)
        if not opened:
            return None
        at = self._before()
        closer = OPENS[opened[-1].kind]
        word = situation.text
        if closer != "RBRACE":
            mend = self._first(Mend((closer,), at, at))
        elif situation.kind == "ELSE":
            mend = self._first(Mend((closer,), at, at))
        elif word in ONLY_ITEMS and situation.first:
            several = range(1, min(len(opened), NESTED) + 1)
            mend = self._first(*(Mend((closer,) * n + ("_NL",), at, situation.start) for n in several))
            del opened[len(opened) + 2 - len(mend.kinds) if mend else len(opened) :]
        else:
            return None
        if mend is None:
            return None
        token = opened[-1]
        self._say("DL0103", f"`{token.text}` is never closed", token.start, token.end)
        self._also(situation.start, f"expected `{_spelled(closer)}` before this")
        return self._make(mend)

    def _reserved(self, situation: Situation) -> bool | None:
        """A reserved word where only a name can stand."""
        if situation.kind not in tables().lexis.words.values() or situation.first:
            return None
        mend = Mend(("NAME",), situation.start, situation.stop)
        if accepts(self.parser.states, "INT") or not self._works(mend):
            return None
        word = situation.text
        self._say("DL0106", f"`{word}` is a reserved word", situation.start, situation.stop, "expected a name")
        return self._make(mend)

    def _missing(self, situation: Situation) -> bool | None:
        """A token or an operand left out just before this one."""
        before, states = self._before(), self.parser.states
        if situation.kind == "_NL" and not situation.operand and accepts(states, "LBRACE"):
            return self._unopened(situation, before)
        if situation.operand:
            return self._no_operand(situation)
        mend = self._best(*(Mend((k,), before, situation.start if k == "_NL" else before) for k in _MISSING))
        if mend is None or (mend.kinds == ("_NL",) and situation.kind == BAD):
            return None
        self._say_missing(situation, *mend.kinds)
        return self._make(mend)

    def _no_operand(self, situation: Situation) -> bool | None:
        before = self._before()
        mend = Mend(("NAME",), before, before)
        if situation.kind in tables().lexis.words.values() and not accepts(self.parser.states, "INT"):
            return None  # a reserved word used as a name
        if not self._works(mend):
            return None
        what = expected(self.parser.states).split(",")[0].split(" or ")[0] or "a name"
        self._say("DL0129", f"{what} is missing", before, before, f"expected {what} here")
        return self._make(mend)

    def _say_missing(self, situation: Situation, kind: str) -> None:
        if kind == "_NL":
            help = "begin a new line; between two values an operator or a comma is missing"
            message = f"{described(situation)} does not continue the statement before it"
            self._say("DL0122", message, situation.start, situation.stop, "", help)
            return
        message = f"`{_spelled(kind)}` is missing"
        code = "DL0114" if kind == "LBRACE" else "DL0129"
        self._say(code, message, situation.start, situation.stop, "expected before this")

    def _unopened(self, situation: Situation, before: int) -> bool:
        """A line that ends where its block should begin: the brace stands on the next line, or nowhere."""
        help = f"`{{` stands on the line of its `{situation.opener}`" if situation.opener.isalpha() else ""
        self._say("DL0114", "`{` is missing", before, before, "expected `{` here", help)
        on_the_next_line = Mend((), before, situation.stop)
        if self._works(on_the_next_line):
            return self._make(on_the_next_line)
        mend = Mend(("LBRACE",), before, before)
        # Where nothing closes the block either, its lines are left out.
        return not _left_alone(self.parser.source.text, before) and self._works(mend) and self._make(mend)

    def _too_much(self, situation: Situation) -> bool:
        found = described(situation)
        could = expected(self.parser.states)
        label = f"expected {could}" if could else ""
        if situation.kind == BAD:
            self._say("DL0107", f"{found} means nothing", situation.start, situation.stop, label)
        else:
            stop = situation.start if situation.kind == "_NL" else situation.stop
            self._say("DL0101", f"{found} cannot stand here", situation.start, stop, label)
        mend = self._first(Mend((), situation.start, situation.stop))
        return mend is not None and self._make(mend)

    # ---- Mending

    def _first(self, *mends: Mend) -> Mend | None:
        return next((mend for mend in mends if self._works(mend)), None)

    def _best(self, *mends: Mend) -> Mend | None:
        """The mend after which the text goes on well for longest, the first of equals."""
        reach = {mend: self._reach(mend, FAR) for mend in mends}
        best = max(mends, key=lambda mend: reach[mend])
        return best if reach[best] >= AHEAD else None

    def _works(self, mend: Mend) -> bool:
        """Whether the text goes on well after a mend."""
        return self._reach(mend, AHEAD) >= AHEAD

    def _reach(self, mend: Mend, far: int) -> int:
        """How many tokens, up to `far`, go on well after a mend; `far` if its line or the text ends before that."""
        states = list(self.parser.states)
        if not all(feed(states, kind) for kind in mend.kinds):
            return 0
        rows, text = tables().rows, self.parser.source.text
        lexer = self._lexer(mend)
        for ahead in range(far):
            kind = lexer.next(rows[states[-1]])
            if kind == BAD:
                return far if ahead else 0  # a mistake of its own
            if not feed(states, kind):
                # Neither the end of the text nor what is wrong on a later line is the fault of the mend.
                later = ahead > 0 and "\n" in text[mend.resume : lexer.start]
                return far if later or (kind == END and ahead > 1) else ahead
            if kind == END or (kind == "_NL" and ahead > 0):
                return far
        return far

    def _lexer(self, mend: Mend) -> Lexer:
        lexer = self.parser.lexer
        opened = ["LBRACE", *(token.kind for token in brackets(self.parser.values))]
        for kind in mend.kinds:
            if kind in OPENS:
                opened.append(kind)
            elif kind in CLOSES and len(opened) > 1:
                opened.pop()
        last = mend.kinds[-1] if mend.kinds else ""
        if not mend.kinds and mend.resume > mend.start and lexer.last != "_NL" and self.parser.recent:
            last = self.parser.recent[-1].kind
        return lexer.at(mend.resume, last, opened)

    def _make(self, mend: Mend) -> bool:
        self.parser.lexer = self._lexer(mend)
        for kind in mend.kinds:
            state = self.parser.reduced(kind)
            assert state is not None, "a mend is tried before it is made"
            self.parser.shift(Token(kind, _spelled(kind), mend.start, mend.resume), state)
        self.last = -1
        return True

    # ---- Going on below

    def _skip(self, situation: Situation, again: bool) -> bool:
        """Leave out the statement, case or declaration at fault and go on after it."""
        parser = self.parser
        level = self._level(len(parser.states) - 1)
        if level is None:
            return False
        index, origin = level
        if not again and self._into_the_block(situation, index):
            return True
        begin = parser.starts[index] if index < len(parser.starts) else situation.start
        stop, word = self._stop(situation, index, begin, again)
        while word in ONLY_ITEMS and origin != "item" and index > 0:
            outer = self._level(index - 1)
            if outer is None:
                break
            index, origin = outer
        self._cut(index, origin, begin, stop)
        opened = ["LBRACE", *(token.kind for token in brackets(parser.values))]
        parser.lexer = parser.lexer.at(stop, "RBRACE", opened)
        return True

    def _into_the_block(self, situation: Situation, index: int) -> bool:
        """Go on inside the braces of a `fn`, `if` or loop whose head, a single line, is at fault."""
        parser = self.parser
        text, end = parser.source.text, parser.lexer.end
        kinds = (token.kind for token in parser.values[index:] if isinstance(token, Token))
        head = next((HEADS[kind] for kind in kinds if kind in HEADS), None)
        brace = _HEAD_END.match(text, situation.start, end)
        if head is None or brace is None or any(t.kind == "LBRACE" for t in brackets(parser.values[index:])):
            return False
        del parser.states[index + 1 :], parser.values[index:], parser.starts[index:], parser.ends[index:]
        return self._make(Mend(head, situation.start, brace.start(1)))

    def _level(self, top: int) -> tuple[int, str] | None:
        """The topmost state, from `top` down, in which a statement or the like can begin."""
        rows, values = tables().rows, self.parser.values
        inner: list[str] = [""]
        opened: list[str] = []
        for value in values[:top]:
            kind = getattr(value, "kind", "")
            if kind in OPENS:
                opened.append(kind)
            elif kind in CLOSES and opened:
                opened.pop()
            inner.append(opened[-1] if opened else "")
        for index in range(top, -1, -1):
            row = rows[self.parser.states[index]]
            for origin in LEVELS:
                if origin in row and inner[index] in ("", "LBRACE"):
                    return index, origin
        return None

    def _cut(self, index: int, origin: str, begin: int, stop: int) -> None:
        """Put `origin`, not understood, in place of all above a state."""
        parser = self.parser
        del parser.states[index + 1 :], parser.values[index:], parser.starts[index:], parser.ends[index:]
        parser.states.append(tables().rows[parser.states[index]][origin])
        parser.values.append(None)
        parser.starts.append(begin)
        parser.ends.append(stop)

    def _stop(self, situation: Situation, index: int, begin: int, again: bool) -> tuple[int, str]:
        """Where to read on: a newline, a closing brace or the end. And the word after it."""
        parser = self.parser
        text, end = parser.source.text, parser.lexer.end
        opened = [token.kind for token in brackets(parser.values[index:])]
        enclosed = bool(brackets(parser.values[:index]))
        indent = _indent(text, begin)
        pos = situation.start
        newline = text.rfind("\n", 0, pos)
        if situation.first and not again and begin < newline:
            word = _word(text, pos)
            if _goes_on_at(text, newline, pos, end) and (_indent(text, pos) <= indent or word in ITEMS):
                return newline, word
        if again:
            pos = situation.stop
        plain = scanners()[1]
        while pos < end:
            match = plain.match(text, pos, end)
            if match is None:
                pos = _after_nothing(text, pos, end)
                continue
            kind: str = match.lastgroup or ""
            pos = match.end()
            if kind == "_NL":
                word = _word(text, pos)
                deeper = _indent(text, pos) > indent or (opened and "LBRACE" in opened and word not in ITEMS)
                if not deeper and _goes_on_at(text, match.start(kind), pos, end) and word not in GO_ON:
                    return match.start(kind), word
            elif kind == "SYMBOL":
                kind = tables().lexis.symbols[match[kind]]
                if kind in OPENS:
                    opened.append(kind)
                elif kind in CLOSES and _PARTNERS[kind] in opened[-NESTED:]:
                    while OPENS[opened.pop()] != kind:
                        pass
                elif kind == "RBRACE" and enclosed:
                    return match.end() - 1, ""
        return end, ""

    # ---- The end of the text

    def _at_the_end(self, situation: Situation, silent: bool) -> bool:
        opened = brackets(self.parser.values)
        if not silent:
            self.incomplete = not self.parser.reports
            if opened:
                self._unclosed(situation)
            else:
                could = expected(self.parser.states)
                what = "the text" if situation.stop == len(self.parser.source.text) else "this expression"
                self._say(
                    "DL0129", f"{what} ends too early", situation.start, situation.stop, could and f"expected {could}"
                )
        return self._close()

    def _unclosed(self, situation: Situation) -> None:
        """Name the bracket whose partner is missing: by the indentation, if that tells, else the innermost."""
        opened = brackets(self.parser.values)
        text = self.parser.source.text
        token = opened[-1]
        for one in opened[: -NESTED - 1 : -1]:
            if one.kind == "LBRACE" and _left_alone(text, one.start):
                token = one
                break
        self._say("DL0103", f"`{token.text}` is never closed", token.start, token.end)
        self._also(situation.start, f"the text ends without its `{_spelled(OPENS[token.kind])}`")

    def _close(self) -> bool:
        """Close what is open, leaving out what is unfinished, so that the rest makes a module."""
        parser = self.parser
        for _ in range(NESTED):
            if parser.reduced(END) is not None:
                return True
            action = parser.reduced("RBRACE")
            if action is not None:
                parser.shift(Token("RBRACE", "}", parser.lexer.end, parser.lexer.end), action)
                continue
            top = len(parser.states) - 1
            level = self._level(top)
            # A state that has just been cut back to is no help twice.
            while level is not None and level[0] >= top - 1 and parser.values and parser.values[-1] is None:
                level = self._level(level[0] - 1) if level[0] else None
            if level is None:
                return False
            index, origin = level
            begin = parser.starts[index] if index < len(parser.starts) else parser.lexer.end
            self._cut(index, origin, begin, parser.lexer.end)
        return False

    # ---- Saying it

    def _say(self, code: str, message: str, start: int, stop: int, label: str = "", help: str = "") -> None:
        span = Span(self.parser.source, start, stop)
        self.parser.reports.append(Diagnostic(code, message, (Label(span, label),), (help,) if help else ()))

    def _also(self, at: int, text: str) -> None:
        """A second label for the report just made."""
        report = self.parser.reports.pop()
        label = Label(Span(self.parser.source, at, at), text)
        self.parser.reports.append(Diagnostic(report.code, report.message, (*report.labels, label), report.helps))

    def _before(self) -> int:
        """Where the token before the mistake ends."""
        return self.parser.recent[-1].end if self.parser.recent else self.parser.lexer.start


_EXAMPLES = {"NAME": "_", "INT": "0", "FLOAT": "0.0", "STRING": '""', "COMPARE": "==", "_BY": "by", "_NL": "\n"}


def _spelled(kind: str) -> str:
    """A text that reads as a token of this kind."""
    if kind in _EXAMPLES:
        return _EXAMPLES[kind]
    lexis = tables().lexis
    return next(text for text, name in {**lexis.symbols, **lexis.words}.items() if name == kind)


def _indent(text: str, offset: int) -> int:
    """How far in the line of `offset` begins."""
    start = text.rfind("\n", 0, offset) + 1
    line = text[start : offset + 1]
    return len(line) - len(line.lstrip(" \t")) if line.strip() else offset - start


def _word(text: str, pos: int) -> str:
    match = _WORD.match(text, pos)
    return match[0] if match else ""


def _goes_on_at(text: str, newline: int, pos: int, end: int) -> bool:
    """Whether a statement can begin at `pos`, the first thing on a line after `newline`."""
    if pos >= end:
        return True
    if text[newline] == "\n" and newline and text[newline - 1] == "\r":
        newline -= 1
    return text[pos] not in "#)]},;" and not scanners()[2].match(text, newline, end)


def _after_nothing(text: str, pos: int, end: int) -> int:
    """Past a character that begins no token, or past the line for a quote without a partner."""
    while pos < end and text[pos] in " \t":
        pos += 1
    if pos < end and text[pos] == '"':
        line = text.find("\n", pos, end)
        return end if line < 0 else line
    return min(pos + 1, end)


def _left_alone(text: str, brace: int) -> bool:
    """Whether a later line begins as far out as the line of this brace without being its partner."""
    indent = _indent(text, brace)
    for line in text[brace:].split("\n")[1:]:
        if line.strip() and not line.lstrip().startswith("#") and len(line) - len(line.lstrip()) <= indent:
            return not line.lstrip().startswith("}")
    return True
