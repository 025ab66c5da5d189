"""What the parser does at a mistake: report it, mend it if a token more or less does, else go on below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.base.diagnostics import Diagnostic, Label
from difflang.base.source import Span

if TYPE_CHECKING:
    from difflang.syntax.parse import Parser

class Recovery:
    def __init__(self, parser: Parser, start: str) -> None:
        self.parser = parser

    def resume(self, kind: str) -> bool:
        lexer = self.parser.lexer
        self.parser.reports.append(Diagnostic("DL0101", f"unexpected {kind}", (Label(Span(lexer.source, lexer.start, lexer.stop)),)))
        return False
