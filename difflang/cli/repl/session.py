"""A REPL session: runs inputs and commands, prints results and errors. It is independent of terminals."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from difflang.base.crash_report import report_crash
from difflang.base.diagnostics import Diagnostic, DifflangError, Label, render
from difflang.base.error_codes import suggestion
from difflang.base.process_termination import allow_interrupts
from difflang.base.source import Source, Span
from difflang.syntax.repl_input import is_command, split_inputs, strip_prompts
from difflang.tools.completion_candidates import CompletionNames

if TYPE_CHECKING:
    from difflang.driver.interactive_session import InteractiveSession
    from difflang.host.values import HostValue


# Words that end or explain a session in other REPLs; a declared name of the session takes precedence.
PLAIN_COMMANDS = {"exit": ":quit", "quit": ":quit", "help": ":help"}


class CompilerLoader:
    """Imports the compiler, and JAX after it, in the background while a person types."""

    def __init__(
        self,
        engine: Any,
        device: str | None,
        seed: int,
        default_float: str,
        folders: tuple[Path, ...],
        echo: Callable[..., None] = click.echo,
    ) -> None:
        self.options = (engine, device, seed, default_float, folders)
        self.echo = echo  # prints a line to stdout, or with `err` to stderr
        self.thread: threading.Thread | None = None
        # Set when the compiler is imported, JAX perhaps not yet.
        self.ready = threading.Event()

    def start(self) -> None:
        """Start importing in the background. An error occurs again, and is reported, where the import is needed."""
        if self.thread is None:
            self.thread = threading.Thread(target=self.load_modules, daemon=True)
            self.thread.start()

    @property
    def is_loading(self) -> bool:
        """Whether the compiler is still being imported."""
        return self.thread is not None and not self.ready.is_set()

    def load_modules(self) -> None:
        try:
            import_module("difflang.tools.session_queries")
        finally:
            self.ready.set()
        if self.options[0] == "xla":
            import_module("difflang.runtime.compile")

    def open_session(self) -> InteractiveSession:
        if self.thread is not None:
            self.ready.wait()  # two threads that import modules at once can deadlock
        from difflang.driver.interactive_session import InteractiveSession
        from difflang.driver.run_program import file_access
        from difflang.execution.engine import Engine
        from difflang.tools.verify_rules import session_rule_faults

        engine, device, seed, default_float, folders = self.options
        made = Engine(engine, device)
        return InteractiveSession(
            made, file_access(None, folders), seed, self.echo, self.print_warnings, default_float, folders,
            session_rule_faults,
        )  # fmt: skip

    def print_warnings(self, diagnostics: list[Diagnostic]) -> None:
        if diagnostics:
            self.echo(render(diagnostics, sys.stderr.isatty()), err=True)


class ReplSession(Struct, eq=False):
    """The state of a session, including the exit code of its first failure."""

    loader: CompilerLoader
    colored: bool = False
    exit_code: int = 0
    last_code: str = ""  # the error code of the last report
    loaded: str = ""  # the last loaded file
    interrupted: bool = False  # whether Ctrl-C was ever pressed
    terminal: bool = True  # whether an editor can use the terminal
    interactive: InteractiveSession | None = None

    @property
    def session(self) -> InteractiveSession:
        if self.interactive is None:
            self.interactive = self.loader.open_session()
        return self.interactive

    def run_input(self, text: str) -> bool:
        """Run one input, or those of a transcript, and show the results; False if the session ends."""
        typed = strip_prompts(text)
        if typed != text:
            return all([self.run_single(each) for each in split_inputs(typed.split("\n"))])
        return self.run_single(text.strip())

    def run_single(self, text: str) -> bool:
        """Run a single input."""
        try:
            # People type `exit` and `exit()` out of habit.
            if (meant := text.removesuffix("()")) in PLAIN_COMMANDS and not self.has_name(meant):
                text = PLAIN_COMMANDS[meant]
            # Only the evaluation can be interrupted, not the report on it.
            with allow_interrupts():
                if is_command(text):
                    return run_command(self, text)
                if text:
                    self.run_text(text)
        except DifflangError as error:
            self.print_error(error)
        except KeyboardInterrupt:
            self.exit_code, self.interrupted = self.exit_code or 130, True
            click.echo("interrupted", err=True)
        except Exception as error:  # noqa: BLE001 - an internal error must not end the session
            self.exit_code = self.exit_code or 70
            click.echo(report_crash(error), err=True)
        return True

    def has_name(self, name: str) -> bool:
        """Whether the session declares this name."""
        return self.interactive is not None and name in self.interactive.module.declared

    def completion_names(self) -> CompletionNames:
        """The names that can be completed; until the compiler is imported, only keywords."""
        if self.loader.is_loading:
            return CompletionNames({}, lambda name: {}, lambda name: ())
        from difflang.tools import session_queries

        def as_pairs(found: dict[str, session_queries.NameInfo]) -> dict[str, tuple[str, str]]:
            return {name: (known.kind, known.text) for name, known in found.items()}

        made = self.session
        return CompletionNames(
            as_pairs(session_queries.visible_names(made)),
            lambda name: as_pairs(session_queries.member_names(made, name)),
            lambda name: session_queries.parameter_types(made, name),
        )

    def run_text(self, text: str, name: str = "") -> None:
        """Run a text; a `;` at its end hides the result."""
        text = text.rstrip()
        quiet = text.endswith(";")
        value = self.session.run_input(text.rstrip("; \t"), name)
        if value is not None and not quiet:
            self.show_result(self.format_value(value))

    def show_result(self, text: str) -> None:
        """Show the value of an input."""
        self.print_text(text)

    def show_report(self, found: object) -> None:
        """Show the report of a command."""
        self.print_text(str(found))

    def format_value(self, value: HostValue) -> str:
        """A value and its type."""
        from difflang.host.values import format_value
        from difflang.types.language_types import ClosureType, show_type

        kind = show_type(value.type)
        if isinstance(value.type, ClosureType):
            return kind
        return f"{format_value(value)}" + (f"\x1b[2m  : {kind}\x1b[0m" if self.colored else f"  : {kind}")

    def print_text(self, text: str) -> None:
        self.loader.echo(text)

    def print_error(self, error: DifflangError) -> None:
        """Print an error on stderr; the first one decides the exit code."""
        codes = [d.code for d in error.diagnostics]
        self.last_code = codes[0] or self.last_code
        self.exit_code = self.exit_code or (3 if all(code.startswith("DL09") for code in codes) else 1)
        click.echo(error.render(self.colored), err=True)


# ---- Commands, which `meta_commands` registers


class ReplCommand(Struct, frozen=True):
    """A command with its usage and help. `action` returns False to end the session."""

    usage: str
    help: str
    action: Callable[[ReplSession, str], bool | None]

    @property
    def requires_argument(self) -> bool:
        """Whether it needs an argument."""
        return " " in self.usage and "[" not in self.usage


COMMANDS: dict[str, ReplCommand] = {}
CommandAction = Callable[[ReplSession, str], "bool | None"]


def meta_command(usage: str, help: str) -> Callable[[CommandAction], CommandAction]:
    """Decorator: registers a command under the first word of its usage."""

    def entered(act: CommandAction) -> CommandAction:
        COMMANDS[usage.split()[0]] = ReplCommand(usage, help, act)
        return act

    return entered


def run_command(repl: ReplSession, text: str) -> bool:
    """Run a command; False if the session ends. Errors: DifflangError."""
    # As in IPython.
    if text.startswith("?"):
        text = f":doc {text[1:].strip()}"
    name, _, rest = text.partition(" ")
    found = COMMANDS.get(name)
    if found is None:
        way = suggestion(name, COMMANDS, "`:help` lists them")
        raise command_error(text, f"there is no command `{name}`", way)
    if found.requires_argument and not rest.strip():
        raise command_error(text, f"usage of `{name}`: `{found.usage}`")
    return found.action(repl, rest.strip()) is not False


def command_error(text: str, message: str, *ways: str, code: str = "") -> DifflangError:
    """A report about a command."""
    source = Source("<input>", text)
    return DifflangError(Diagnostic(code, message, (Label(Span(source, 0, len(text))),), ways))
