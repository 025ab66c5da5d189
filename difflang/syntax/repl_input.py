"""Splitting interactive input: whether an input is complete, its indentation, and the inputs in a transcript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from difflang.base.source import Source
from difflang.syntax.lexer import token_patterns
from difflang.syntax.parse import parse

PROMPT, CONTINUATION_PROMPT = "dfl> ", "...  "


def is_complete(text: str) -> bool:
    """Whether nothing is missing at the end of a text. A text with another error is complete: more would not help."""
    return not parse(Source("<input>", text)).incomplete


def next_indentation(line: str) -> str:
    """The spaces that the line after this one begins with."""
    # The formatter indents by two.
    deeper = line.rstrip().endswith(("{", "(", "["))
    return " " * (len(line) - len(line.lstrip()) + 2 * deeper)


def is_complete_input(text: str) -> bool:
    """Whether a text is complete and more than comments, which may belong to what follows."""
    found = parse(Source("<input>", text))
    return not found.incomplete and bool(found.module.items or found.diagnostics)


def continues_line(line: str) -> bool:
    """Whether a line continues the one above it: `else`, `|>`, `.name`."""
    return token_patterns()[2].match(f"\n{line.lstrip()}") is not None


def strip_prompts(text: str) -> str:
    """The typed part of a text: the lines after prompts in a transcript, else all lines."""
    lines = text.split("\n")
    # A pasted transcript has prompts; its other lines are output.
    if not any(line.startswith(PROMPT) for line in lines):
        return text
    prompts = (PROMPT, CONTINUATION_PROMPT)
    kept = [
        line[len(PROMPT) :] for line in lines if line.startswith(prompts) or line.rstrip() in map(str.strip, prompts)
    ]
    return "\n".join(kept)


def is_command(line: str) -> bool:
    """Whether a line is a command of the session, `:t x` or `?x`, rather than a part of a program."""
    return line.lstrip().startswith((":", "?"))


def split_inputs(lines: Iterable[str]) -> Iterator[str]:
    """Group lines into inputs, each yielded once the next line shows that it has ended; the last as it is."""
    held = ""
    for line in lines:
        line = line.rstrip("\n")
        if held and is_complete_input(held) and not continues_line(line):
            yield held
            held = ""
        if not held and is_command(line):
            yield line
        elif held or line.strip():
            held += ("\n" if held else "") + line
    if held.strip():
        yield held
