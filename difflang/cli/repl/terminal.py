"""The REPL at a terminal: a line editor with multi-line input, highlighting, history and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import dropwhile

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style

from difflang.base.package_data import state_folder
from difflang.base.private_cache import private_folder
from difflang.base.source import Source
from difflang.cli.repl.session import ReplSession
from difflang.syntax.lexer import tokenize
from difflang.syntax.parser_tables import load_tables
from difflang.syntax.repl_input import (
    CONTINUATION_PROMPT,
    PROMPT,
    is_command,
    is_complete,
    next_indentation,
    strip_prompts,
)
from difflang.tools.completion_candidates import complete

COLORS = {
    "word": "ansiblue bold",
    "number": "ansicyan",
    "string": "ansigreen",
    "comment": "ansibrightblack italic",
    "prompt": "ansibrightblack",
}
TOKEN_STYLES = {"INT": "number", "FLOAT": "number", "STRING": "string", "COMMENT": "comment"}
GREETING = "difflang: `:help` lists the commands, Ctrl-D ends the session."


def run_terminal(
    repl: ReplSession, first: Sequence[str], input: Input | None = None, output: Output | None = None
) -> None:
    """Read and run inputs until the session ends. `first` run before any is read."""
    click.echo(GREETING)
    reader = prompt_session(repl, input, output)
    waiting = list(first)
    while True:
        try:
            text = waiting.pop(0) if waiting else read_input(reader)
            if not repl.run_input(text):
                return
        except KeyboardInterrupt:  # drop the typed text; a running evaluation handles Ctrl-C itself
            continue
        except EOFError:
            return


def read_input(reader: PromptSession[str]) -> str:
    """The next input. Errors: KeyboardInterrupt, EOFError."""
    text = reader.prompt(handle_sigint=False)
    # While the editor releases the terminal, Ctrl-C is still stored as a key for the next input, but it was meant for
    # this one.
    keys = get_typeahead(reader.app.input)
    later = list(dropwhile(lambda each: each.key == Keys.ControlC, keys))
    store_typeahead(reader.app.input, later)
    if len(later) < len(keys):
        click.echo("interrupted", err=True)
        raise KeyboardInterrupt
    return text


def prompt_session(repl: ReplSession, input: Input | None = None, output: Output | None = None) -> PromptSession[str]:
    """The line editor. The compiler is imported only after the prompt is visible."""
    reader: PromptSession[str] = PromptSession(
        message=[("class:prompt", PROMPT)],
        prompt_continuation=[("class:prompt", CONTINUATION_PROMPT)],
        multiline=True,
        key_bindings=key_bindings(),
        lexer=TokenHighlighter() if repl.colored else None,
        style=Style.from_dict(COLORS),
        color_depth=None if repl.colored else ColorDepth.DEPTH_1_BIT,
        completer=ReplCompleter(repl),
        complete_while_typing=False,
        history=open_history(),
        input=input,
        output=output,
    )
    # The prompt appears first: importing the compiler takes longer than drawing it.
    reader.app.after_render += lambda _: repl.loader.start()
    return reader


def open_history() -> History:
    """The history of earlier sessions; of this session only if no file can be written."""
    try:
        # Inputs may contain secrets: readable by their owner only.
        path = private_folder(state_folder()) / "history"
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def key_bindings() -> KeyBindings:
    """Enter runs a complete input and otherwise adds a line; Alt-Enter always adds a line."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = strip_prompts(buffer.text)
        if is_command(text) or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n" + next_indentation(buffer.document.current_line_before_cursor))

    @bindings.add("escape", "enter")
    def insert_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class TokenHighlighter(Lexer):
    """Highlights text by kinds of tokens."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = list(highlight_lines(document.text))
        return lambda number: lines[number] if number < len(lines) else []


def highlight_lines(text: str) -> Iterator[StyleAndTextTuples]:
    """The lines of a text as styled fragments."""
    words = set(load_tables().lexis.words.values())
    line: StyleAndTextTuples = []
    at = 0
    for token in [] if is_command(text) else tokenize(Source("<input>", text)):
        kind = TOKEN_STYLES.get(token.kind, "word" if token.kind in words else "")
        for style, piece in (("", text[at : token.start]), (f"class:{kind}" if kind else "", token.text)):
            head, *others = piece.split("\n")
            line.append((style, head))
            for other in others:
                yield line
                line = [(style, other)]
        at = token.end
    head, *others = text[at:].split("\n")
    yield [*line, ("", head)]
    for other in others:
        yield [("", other)]


class ReplCompleter(Completer):
    """Completes names and fields of the session; until the compiler is imported, keywords."""

    def __init__(self, repl: ReplSession) -> None:
        self.repl = repl

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        for found in complete(text, self.repl.completion_names()):
            yield Completion(found.word, found.start - len(text), display_meta=found.detail)
