"""The grammar is LALR(1) without conflicts, takes what the language has, and lark reads it as our parser does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from lark import Lark, Token
from lark.exceptions import GrammarError, UnexpectedInput

from difflang.base import package_data
from difflang.base.source import Source
from difflang.syntax.lexer import CLOSER_OF, CLOSERS, STATEMENT_ENDERS
from difflang.syntax.parse import parse, parse_expression
from difflang.syntax.parser_tables import load_tables
from support.programs import programs
from support.snippets import CONTEXTUAL, REFUSED, SAME, STATEMENTS, forms, snippets
from support.trees import shape

RESERVED = sorted(load_tables().lexis.words)
NAMES = [f"let {word} = {word}(1, {word} = 2)\n{word}.{word} = {word}[0]" for word in CONTEXTUAL]


class Newlines:
    """For lark: a newline counts directly in a file or in braces, after a token that can end a statement."""

    always_accept = ("_NL", "NAME", *load_tables().lexis.words.values())

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        opened = ["LBRACE"]
        last = ""
        for token in stream:
            if token.type == "_NL" and (opened[-1] != "LBRACE" or last not in STATEMENT_ENDERS):
                continue
            if token.type in CLOSER_OF:
                opened.append(token.type)
            elif token.type in CLOSERS and len(opened) > 1:
                opened.pop()
            last = token.type
            yield token


@cache
def lark() -> Lark:
    """Lark's own parser of the grammar; strict mode refuses conflicts and terminals that overlap."""
    return Lark(package_data.grammar_text(), parser="lalr", strict=True, postlex=Newlines(), start=["start", "expr"])


def lark_takes(text: str) -> bool:
    try:
        lark().parse(text, start="start")
    except UnexpectedInput:
        return False
    return True


def mistakes(text: str) -> list[str]:
    return [f"{report.code} {report.message}" for report in parse(Source("test", text)).diagnostics]


def expression(text: str) -> object:
    parsed = parse_expression(Source("test", text))
    assert not parsed.diagnostics
    return shape(parsed.value)


@pytest.mark.parametrize("text", forms() + NAMES)
def test_every_form_parses(text: str) -> None:
    assert mistakes(text) == []
    assert lark_takes(text)


@pytest.mark.parametrize("name", programs())
def test_the_programs_of_the_language_parse(name: str) -> None:
    text = programs()[name]
    assert mistakes(text) == []
    assert lark_takes(text)


@pytest.mark.parametrize("text", snippets(REFUSED) + [f"let {word} = 1" for word in RESERVED])
def test_what_is_not_the_language_is_refused(text: str) -> None:
    assert mistakes(text) != []
    assert not lark_takes(text)


@pytest.mark.parametrize(("short", "long"), SAME)
def test_precedence(short: str, long: str) -> None:
    assert expression(short) == expression(long)


@pytest.mark.parametrize(("text", "count"), STATEMENTS)
def test_newlines_end_statements(text: str, count: int) -> None:
    parsed = parse(Source("test", text))
    assert parsed.diagnostics == ()
    assert len(parsed.module.items) == count


def test_the_reserved_words_are_the_languages() -> None:
    told = """and assert break checkpoint continue else enum false fn for if import in let match not or pub record
    return rule true var while with with_key yield"""
    assert sorted(told.split()) == RESERVED


# What may come one day has its place in the grammar: each row adds a form and must leave no conflict behind.
LATER = {
    "units of measure": ("?type_atom: path -> type_name", '?type_atom: path -> type_name | path "<" unit ">" -> united',
                         '\nunit: NAME ("/" NAME)?\n'),
    "bounded lengths": ("?type_argument: type", '?type_argument: type | NAME "<=" dim_sum -> bounded', ""),
    "ragged lengths": ("?type_argument: type", '?type_argument: type | path "(" type ")" "<=" dim_sum -> ragged', ""),
    "alternatives": ('| NAME "=" expr -> named', '| NAME "=" expr -> named | NAME "=" NAME "|" NAME -> choice', ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER)
def test_there_is_room_for_what_may_come(name: str) -> None:
    old, new, more = LATER[name]
    grammar = package_data.grammar_text()
    assert old in grammar
    grammar = grammar.replace(old, new, 1) + more
    Lark(grammar, parser="lalr", strict=True, postlex=Newlines(), start=["start", "expr"])


def test_a_conflict_would_be_noticed() -> None:
    ambiguous = package_data.grammar_text().replace("?sum: product |", "?sum: product | sum PERCENT sum |", 1)
    with pytest.raises(GrammarError):
        Lark(ambiguous, parser="lalr", strict=True, postlex=Newlines(), start=["start", "expr"])
