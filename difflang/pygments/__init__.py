"""A Pygments lexer for syntax highlighting in terminals, Sphinx and web pages. It imports nothing of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, include
from pygments.lexer import words as any_of
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

from difflang.pygments import keyword_lists

_NAME = r"[^\W\d][\w\u0300-\u036f]*"
_DECLARED = r"\b(fn|record|enum|rule|(?<=extern )op)"
_NUMBER = r"[0-9][0-9_]*(?:\.[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?j?|[eE][+-]?[0-9]+j?|j)?(?!\w)"


_LEAVE_STATE = bygroups()  # leaves a state without consuming text


def _words_before(names: Sequence[str], signs: str) -> Any:
    return any_of(names, prefix=r"\b", suffix=f"(?=[{signs}])")


class DifflangLexer(RegexLexer):
    """Token classes by kind; a builtin function is highlighted only where it is called."""

    name = "difflang"
    aliases: ClassVar[Sequence[str]] = ["difflang", "dfl"]
    filenames: ClassVar[Sequence[str]] = ["*.dfl"]
    mimetypes: ClassVar[Sequence[str]] = ["text/x-difflang"]
    tokens: ClassVar[dict[str, Any]] = {
        "root": [include("code")],
        "code": [
            (r"^([ \t]*)(@)(" + _NAME + ")", bygroups(Whitespace, Name.Decorator, Name.Decorator)),
            (r"##.*", Comment.Special),
            (r"#.*", Comment.Single),
            (
                r"\b(fn|record|enum|rule|(?<=extern )op)([ \t]+)(" + _NAME + ")",
                bygroups(Keyword, Whitespace, Name.Function),
            ),
            *((pattern, Keyword) for pattern in keyword_lists.CONTEXTUAL_KEYWORDS),
            (r"(?<=[\w)\]'][ \t])(?:max|min)=(?!=)", Operator),
            (r"(?<=[ \t])-o(?=[ \t]+[\w(])", Operator),
            (any_of(keyword_lists.KEYWORDS, prefix=r"\b", suffix=r"\b"), Keyword),
            (any_of(keyword_lists.LITERALS, prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (any_of(keyword_lists.DTYPES, prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (any_of(keyword_lists.TYPES, prefix=r"(?:(?<=: )|(?<=-> ))", suffix=r"\b"), Keyword.Type),
            (_words_before(keyword_lists.FUNCTIONS, "('"), Name.Builtin),
            (_words_before(keyword_lists.TRANSFORMS, r"(\["), Name.Builtin),
            (any_of(keyword_lists.CONSTANTS, prefix=r"\b", suffix=r"\b"), Name.Builtin),
            (_NAME, Name),
            (_NUMBER, Number),
            (r'"', String, "string"),
            (any_of(keyword_lists.OPERATORS), Operator),
            (r"[()\[\],.:{}]", Punctuation),
            (r"\s+", Whitespace),
            (r".", Text),
        ],
        "string": [
            (r'"', String, "#pop"),
            (r"$", _LEAVE_STATE, "#pop"),
            (r"\\u\{[0-9a-fA-F]+\}|\\.|\{\{|\}\}", String.Escape),
            (r"\{", String.Interpol, "hole"),
            (r'[^"\\{}\n]+|\}', String),
        ],
        "hole": [
            (r"(:[^}\"\n]*)?(\})", bygroups(String.Interpol, String.Interpol), "#pop"),
            (r'(?=["\n])', _LEAVE_STATE, "#pop"),
            (r"\{", Punctuation, "braces"),
            include("code"),
        ],
        "braces": [
            (r"\}", Punctuation, "#pop"),
            (r'(?=["\n])', _LEAVE_STATE, "#pop"),
            (r"\{", Punctuation, "#push"),
            include("code"),
        ],
    }
