"""Panic-mode recovery: skip what no token repair fixes, and find where parsing can continue.

Indentation tells more than broken brackets: a line no deeper than the failed statement begins another one.
"""

from __future__ import annotations

import re

from difflang.syntax.lalr_parser import LalrParser
from difflang.syntax.lexer import CLOSER_OF, CLOSERS, Token, token_patterns
from difflang.syntax.parser_tables import END_OF_TEXT, load_tables
from difflang.syntax.recovery.error_context import ErrorContext, is_first_on_line, open_brackets
from difflang.syntax.recovery.token_repair import TokenRepair, apply_repair

# How many open constructs are examined, each at a cost linear in the text.
MAX_NESTED = 100
# The rules with which parsing can restart.
RESTART_RULES = ("item", "stmt", "case", "variant", "field")
ITEM_ONLY_KEYWORDS = frozenset(("import", "record", "enum", "rule", "pub", "extern"))
ITEM_KEYWORDS = ITEM_ONLY_KEYWORDS | {"fn", "test", "bench"}
CONTINUATION_KEYWORDS = frozenset(("else", "elif", "elseif", "except", "finally", "catch"))
# Tokens that stand in for a broken head, so that its body is still parsed.
BLOCK_HEADS = {
    "FN": ("FN", "NAME", "LPAR", "RPAR"),
    "IF": ("IF", "NAME"),
    "WHILE": ("WHILE", "NAME"),
    "FOR": ("FOR", "NAME", "IN", "NAME"),
}
_HEAD_END = re.compile(r'(?:[^\n"#{}]|"[^"\n]*")*(\{)[ \t]*(?:#[^\n]*)?\r?\n')
_WORD_PATTERN = re.compile(r"[^\W\d]\w*")
_OPENER_OF = {closer: opener for opener, closer in CLOSER_OF.items()}


def skip_statement(parser: LalrParser, situation: ErrorContext, again: bool) -> bool:
    """Skip the failed statement, case or declaration and continue after it."""
    level = _restart_level(parser, len(parser.states) - 1)
    if level is None:
        return False
    index, origin = level
    if not again and _enter_block(parser, situation, index):
        return True
    begin = parser.starts[index] if index < len(parser.starts) else situation.start
    stop, word = _resume_offset(parser, situation, index, begin, again)
    # A declaration cannot stand in a block: close the blocks around it.
    while word in ITEM_ONLY_KEYWORDS and origin != "item" and index > 0:
        outer = _restart_level(parser, index - 1)
        if outer is None:
            break
        index, origin = outer
    _reduce_to_rule(parser, index, origin, begin, stop)
    opened = ["LBRACE", *(token.kind for token in open_brackets(parser.values))]
    parser.lexer = parser.lexer.restarted_at(stop, "RBRACE", opened)
    return True


def _enter_block(parser: LalrParser, situation: ErrorContext, index: int) -> bool:
    """Continue inside the braces of a `fn`, `if` or loop whose one-line head has the mistake."""
    text, end = parser.source.text, parser.lexer.end
    kinds = (token.kind for token in parser.values[index:] if isinstance(token, Token))
    head = next((BLOCK_HEADS[kind] for kind in kinds if kind in BLOCK_HEADS), None)
    brace = _HEAD_END.match(text, situation.start, end)
    if head is None or brace is None or any(t.kind == "LBRACE" for t in open_brackets(parser.values[index:])):
        return False
    del parser.states[index + 1 :], parser.values[index:], parser.starts[index:], parser.ends[index:]
    apply_repair(parser, TokenRepair(head, situation.start, brace.start(1)))
    return True


def _restart_level(parser: LalrParser, top: int) -> tuple[int, str] | None:
    """The topmost state, from `top` down, in which a statement or the like can begin."""
    rows, values = load_tables().rows, parser.values
    inner: list[str] = [""]
    opened: list[str] = []
    for value in values[:top]:
        kind = getattr(value, "kind", "")
        if kind in CLOSER_OF:
            opened.append(kind)
        elif kind in CLOSERS and opened:
            opened.pop()
        inner.append(opened[-1] if opened else "")
    for index in range(top, -1, -1):
        row = rows[parser.states[index]]
        for origin in RESTART_RULES:
            if origin in row and inner[index] in ("", "LBRACE"):
                return index, origin
    return None


def _reduce_to_rule(parser: LalrParser, index: int, origin: str, begin: int, stop: int) -> None:
    """Replace everything above a state by `origin`, with the value None."""
    del parser.states[index + 1 :], parser.values[index:], parser.starts[index:], parser.ends[index:]
    parser.states.append(load_tables().rows[parser.states[index]][origin])
    parser.values.append(None)
    parser.starts.append(begin)
    parser.ends.append(stop)


def _resume_offset(parser: LalrParser, situation: ErrorContext, index: int, begin: int, again: bool) -> tuple[int, str]:
    """The offset to continue at (a newline, a closing brace or the end) and the word after it."""
    text, end = parser.source.text, parser.lexer.end
    opened = [token.kind for token in open_brackets(parser.values[index:])]
    enclosed = bool(open_brackets(parser.values[:index]))
    indent = _indent(text, begin)
    pos = situation.start
    newline = text.rfind("\n", 0, pos)
    # The unexpected token begins a line: if that is indented like the statement, it begins the next one.
    if situation.first and not again and begin < newline:
        word = _word_at(text, pos)
        if _can_begin_statement(text, newline, pos, end) and (_indent(text, pos) <= indent or word in ITEM_KEYWORDS):
            return newline, word
    if again:
        pos = situation.stop
    plain = token_patterns()[1]
    while pos < end:
        match = plain.match(text, pos, end)
        if match is None:
            pos = _skip_bad_character(text, pos, end)
            continue
        kind: str = match.lastgroup or ""
        pos = match.end()
        if kind == "_NL":
            word = _word_at(text, pos)
            deeper = _indent(text, pos) > indent or (opened and "LBRACE" in opened and word not in ITEM_KEYWORDS)
            if (
                not deeper
                and _can_begin_statement(text, match.start(kind), pos, end)
                and word not in CONTINUATION_KEYWORDS
            ):
                return match.start(kind), word
        elif kind == "SYMBOL":
            kind = load_tables().lexis.symbols[match[kind]]
            if kind in CLOSER_OF:
                opened.append(kind)
            elif kind in CLOSERS and _OPENER_OF[kind] in opened[-MAX_NESTED:]:
                while CLOSER_OF[opened.pop()] != kind:
                    pass
            elif kind == "RBRACE" and enclosed:
                return match.end() - 1, ""
    return end, ""


def close_open_rules(parser: LalrParser) -> bool:
    """Close all open constructs, dropping unfinished ones, so that the rest makes a module."""
    for _ in range(MAX_NESTED):
        if parser.reduced(END_OF_TEXT) is not None:
            return True
        action = parser.reduced("RBRACE")
        if action is not None:
            parser.shift(Token("RBRACE", "}", parser.lexer.end, parser.lexer.end), action)
            continue
        top = len(parser.states) - 1
        level = _restart_level(parser, top)
        # Cutting back to the same state again would loop.
        while level is not None and level[0] >= top - 1 and parser.values and parser.values[-1] is None:
            level = _restart_level(parser, level[0] - 1) if level[0] else None
        if level is None:
            return False
        index, origin = level
        begin = parser.starts[index] if index < len(parser.starts) else parser.lexer.end
        _reduce_to_rule(parser, index, origin, begin, parser.lexer.end)
    return False


def _indent(text: str, offset: int) -> int:
    """The indentation of the line of `offset`."""
    start = text.rfind("\n", 0, offset) + 1
    line = text[start : offset + 1]
    return len(line) - len(line.lstrip(" \t")) if line.strip() else offset - start


def _word_at(text: str, pos: int) -> str:
    match = _WORD_PATTERN.match(text, pos)
    return match[0] if match else ""


def _can_begin_statement(text: str, newline: int, pos: int, end: int) -> bool:
    """Whether a statement can begin at `pos`, the first character of a line after `newline`."""
    if pos >= end:
        return True
    if text[newline] == "\n" and newline and text[newline - 1] == "\r":
        newline -= 1
    return text[pos] not in "#)]},;" and not token_patterns()[2].match(text, newline, end)


def _skip_bad_character(text: str, pos: int, end: int) -> int:
    """The offset after a character that begins no token, or after the line for a quote without a partner."""
    while pos < end and text[pos] in " \t":
        pos += 1
    if pos < end and text[pos] == '"':
        line = text.find("\n", pos, end)
        return end if line < 0 else line
    return min(pos + 1, end)


def lacks_partner(text: str, brace: int) -> bool:
    """Whether a later line is indented no deeper than this brace's line but does not close it."""
    indent = _indent(text, brace)
    for line in text[brace:].split("\n")[1:]:
        if line.strip() and not line.lstrip().startswith("#") and len(line) - len(line.lstrip()) <= indent:
            return not line.lstrip().startswith("}")
    return True


def misindented_brace(text: str, end: int) -> int | None:
    """The first brace whose partner begins a line that is indented less than the brace's own line."""
    opened: list[int] = []
    pos = 0
    plain = token_patterns()[1]
    while pos < end:
        match = plain.match(text, pos, end)
        pos = match.end() if match else _skip_bad_character(text, pos, end)
        if match and match.lastgroup == "SYMBOL":
            if match["SYMBOL"] == "{":
                opened.append(match.start("SYMBOL"))
            elif match["SYMBOL"] == "}" and opened:
                brace = opened.pop()
                if is_first_on_line(text, match.start("SYMBOL")) and _indent(text, pos) < _indent(text, brace):
                    return brace
    return None
