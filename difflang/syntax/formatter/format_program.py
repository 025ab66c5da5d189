"""The formatter: lays out a program's text. Meaning and comments are unchanged, which is checked every time."""

from __future__ import annotations

from collections.abc import Callable

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Source, Span
from difflang.syntax import tree
from difflang.syntax.formatter.concrete_tree import parse_concrete_tree
from difflang.syntax.formatter.layout_rules import layout_program
from difflang.syntax.formatter.pretty_printer import WIDTH, render_doc
from difflang.syntax.parse import ParsedModule, parse

MAX_ROUNDS = 4


def format_program(source: Source, width: int = WIDTH, pause: Callable[[], None] = lambda: None) -> str:
    """Format a program's text within a width; a formatted one stays the same. `pause` is called often and may raise.

    Errors: DifflangError for a text that does not parse; InternalError if the layout would change it.
    Cost:   1 ms a line, memory linear in the text.
    """
    before = parse(source)
    if before.diagnostics:
        raise DifflangError(*before.diagnostics)
    # A comment that cannot stay in place moves to the end of its line, which may change the breaks around it: repeat.
    for _ in range(MAX_ROUNDS):
        text = render_doc(layout_program(parse_concrete_tree(source), pause), width, pause)
        if text == source.text:
            return text
        source = Source(source.name, text)
        after = parse(source)
        if after.diagnostics or not is_same_program(before, after):
            raise InternalError(f"formatting {source.name} changes its meaning")
        before = after
    raise InternalError(f"formatting {source.name} does not converge")


def is_same_program(one: ParsedModule, other: ParsedModule) -> bool:
    """Whether two texts differ in layout only."""
    if sorted(c.text.rstrip() for c in one.comments) != sorted(c.text.rstrip() for c in other.comments):
        return False
    todo: list[tuple[object, object]] = [(one.module, other.module)]
    while todo:
        a, b = todo.pop()
        if type(a) is not type(b):
            return False
        if isinstance(a, tree.Node):
            todo += ((getattr(a, f), getattr(b, f)) for f in a.__struct_fields__)
        elif isinstance(a, tuple):
            assert isinstance(b, tuple)
            if len(a) != len(b):
                return False
            todo += zip(a, b, strict=True)
        elif not isinstance(a, Span) and repr(a) != repr(b):
            return False
    return True
