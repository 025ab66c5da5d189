"""The IPython extension, `%load_ext difflang`: cells of the language whose functions Python can call.

A notebook has one session, as in `difflang repl`: cells see earlier declarations. IPython is not imported here, since
it is the caller.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from difflang.api import Module
from difflang.api.loaded_program import LoadedProgram
from difflang.base.diagnostics import DifflangError, render_html
from difflang.base.errors import classify_error
from difflang.base.source import Source, Span
from difflang.cli.repl.cell_session import CellSession, MimeBundle
from difflang.driver.interactive_session import SessionSnapshot
from difflang.types.type_errors import make_error

# Their frames are left out of tracebacks.
HIDDEN_PACKAGES = ("difflang", "IPython", "ipykernel", "contextlib")
SESSION_ATTRIBUTE = "_difflang_session"


def register_magics(shell: Any) -> None:
    """Register `%%difflang` and `%difflang` in a shell, and have it display diagnostics properly."""
    session = Notebook(shell)
    setattr(shell, SESSION_ATTRIBUTE, session)
    shell.register_magic_function(session.cell, "cell", "difflang")
    shell.register_magic_function(session.line, "line", "difflang")
    shell.set_custom_exc((DifflangError,), show_exception)


def unregister_magics(shell: Any) -> None:
    """Remove the magics. Functions that were defined stay."""
    for kind in ("cell", "line"):
        shell.magics_manager.magics[kind].pop("difflang", None)
    shell.set_custom_exc((), None)
    vars(shell).pop(SESSION_ATTRIBUTE, None)


class Notebook:
    """The session of a shell, and which of its names are exported to the shell's namespace."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.cells = CellSession(publish=self.publish)
        # The declaration of each name at the last export.
        self.declared: dict[str, Any] = {}
        self.exported: dict[str, Any] = {}
        self.loaded: LoadedProgram | None = None  # the program of the last export

    def publish(self, data: MimeBundle) -> None:
        self.shell.display_pub.publish(data=data)

    def cell(self, line: str, cell: str) -> None:
        """Declare functions and run statements; functions, records and variants become Python names.

        A cell sees the declarations of earlier cells. A new declaration replaces the old one, also for functions that
        use it.
        """
        if line.strip():
            raise magic_line_error(f"%%difflang {line}", len("%%difflang "))
        self.run_input(cell, 2)

    def line(self, line: str) -> None:
        """Run an expression, a declaration, or a command such as `:t f`, `:g f`, `:doc f`; `:help` lists them."""
        self.run_input(line, 1)

    def run_input(self, text: str, line: int) -> None:
        try:
            self.cells.run_cell(text, f"In[{len(self.shell.history_manager.input_hist_parsed) - 1}]", line)
        except DifflangError as error:
            self.cells.last_code = error.diagnostics[0].code
            raise classify_error(error) from None
        finally:
            if self.cells.interactive is not None:
                self.export_names(self.cells.interactive.snapshot())

    def export_names(self, kept: SessionSnapshot) -> None:
        """Export the declared names to Python. After a replacement all functions are created again.

        A name that Python code has reassigned is left alone until a cell declares it again.
        """
        module, names = kept.checked.module, self.shell.user_ns
        values = {n: v for n, v in kept.runner.values.items() if n in module.used}
        now: dict[str, Any] = {
            **values,
            **module.fns,
            **module.records,
            **{n: e[0] for n, e in module.variants.items()},
        }
        new = {n for n, what in now.items() if n not in self.declared or self.declared[n] is not what}
        replaced = any(now.get(n) is not what for n, what in self.declared.items())
        for name in [n for n in self.exported if n not in now]:
            if names.get(name) is self.exported.pop(name):
                del names[name]
        if new or replaced:
            loaded = LoadedProgram(kept.checked, "notebook", None, 0, kept)
            loaded.continue_from(self.loaded or loaded)
            self.loaded = loaded
            made = Module(loaded, module, "notebook", None)
            for name in made:
                ours = name in self.exported and names.get(name) is self.exported[name]
                if name in new or (replaced and ours):
                    self.exported[name] = names[name] = made[name]
        self.declared = now


def magic_line_error(text: str, start: int) -> DifflangError:
    span = Span(Source("<cell>", text), start, len(text))
    help = "write the program on the line below"
    return classify_error(make_error("DL0101", "`%%difflang` takes no arguments", (span, ""), help=help))


def show_exception(
    shell: Any, kind: type[BaseException], error: DifflangError, trace: Any, tb_offset: Any = None
) -> None:
    """Show a report and the Python frames below it, without frames of this package and of IPython."""
    # For `%debug`.
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    found = classify_error(error)
    shell.display_pub.publish(data={"text/html": render_html(found.diagnostics), "text/plain": found.render()})
    brief = type(type(found).__name__, (Exception,), {})(found.args[0])
    lines = shell.InteractiveTB.structured_traceback(type(brief), brief, user_frames(trace), tb_offset=0)
    shell._showtraceback(type(brief), brief, lines)


def user_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback's frames of user code, without the frame of a cell of the language."""
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    found: TracebackType | None = None
    called = ""  # the package of the next inner frame
    for each in reversed(frames):
        home = each.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if home not in HIDDEN_PACKAGES and called != "IPython":
            found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
        called = home
    return found
