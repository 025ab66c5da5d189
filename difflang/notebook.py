"""The IPython extension, `%load_ext difflang`: cells of the language whose functions Python can call.

A notebook has one session, as in `difflang repl`: cells see earlier declarations. IPython is not imported here, since
it is the caller.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Any

import numpy as np

from difflang.api import Module
from difflang.api.argument_types import ArgumentReader
from difflang.api.function import Function
from difflang.api.item_arrays import read_source
from difflang.api.loaded_program import LoadedProgram
from difflang.api.result_values import result_maker
from difflang.base.diagnostics import DifflangError, render_html
from difflang.base.errors import classify_error, classify_errors
from difflang.base.source import Source, Span
from difflang.cli.repl.cell_session import CellSession, MimeBundle
from difflang.driver.interactive_session import SessionSnapshot
from difflang.host.progress_bar import DISPLAYS
from difflang.host.values import HostValue
from difflang.ir.tensor_types import numpy_dtype
from difflang.runtime import pytrees
from difflang.runtime.foreign_values import convert_foreign
from difflang.types.language_types import default_open_dtypes, leaf_types
from difflang.types.module_scope import ModuleScope
from difflang.types.type_errors import make_error

# Their frames are left out of tracebacks.
HIDDEN_PACKAGES = ("difflang", "IPython", "ipykernel", "contextlib")
SESSION_ATTRIBUTE = "_difflang_session"


def register_magics(shell: Any) -> None:
    """Register `%%difflang` and `%difflang` in a shell, and have it display diagnostics properly."""
    session = Notebook(shell)
    setattr(shell, SESSION_ATTRIBUTE, session)
    if hasattr(shell, "kernel"):  # not a terminal
        DISPLAYS[:] = [session.display_named]
    shell.register_magic_function(session.cell, "cell", "difflang")
    shell.register_magic_function(session.line, "line", "difflang")
    shell.set_custom_exc((DifflangError,), show_exception)


def unregister_magics(shell: Any) -> None:
    """Remove the magics. Functions that were defined stay."""
    for kind in ("cell", "line"):
        shell.magics_manager.magics[kind].pop("difflang", None)
    shell.set_custom_exc((), None)
    DISPLAYS.clear()
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

    def display_named(self, data: MimeBundle, name: str, update: bool) -> None:
        """Display an object under a name, or update what was displayed under it."""
        self.shell.display_pub.publish(data=data, transient={"display_id": name}, update=update)

    def cell(self, line: str, cell: str) -> None:
        """Declare functions and run statements; functions, records and variants become Python names.

        A cell sees the declarations of earlier cells. A new declaration replaces the old one, also for functions that
        use it. `%%difflang -i x,y -o z` binds Python's `x` and `y` before the cell, as `let` does, and gives Python
        the value `z` after it.
        """
        taken, given = parse_magic_line(line)
        for name, start in taken:
            self.import_value(name, line, start)
        self.run_input(cell, 2)
        for name, start in given:
            self.export_value(name, line, start)

    def import_value(self, name: str, line: str, start: int) -> None:
        """Bind a value of Python in the session. Errors: DL0201, and those of arguments."""
        if name not in self.shell.user_ns:
            raise magic_line_error(line, start, name, "DL0201", f"Python has no `{name}`", "")
        with classify_errors():
            interactive = self.cells.session
            interactive.bind_value(name, value_of_python(self.shell.user_ns[name], interactive.module, name))

    def export_value(self, name: str, line: str, start: int) -> None:
        """Give Python a value of the session. Errors: DL0201."""
        kept = self.cells.session.snapshot()
        value = kept.runner.values.get(name)
        if value is None:
            way = "functions and records are names of Python anyway" if name in self.shell.user_ns else ""
            raise magic_line_error(line, start, name, "DL0201", f"no `let` or `var` has bound `{name}`", way)
        loaded = self.loaded or LoadedProgram(kept.checked, "notebook", None, 0, kept)
        self.shell.user_ns[name] = python_value(value, loaded)

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


Names = list[tuple[str, int]]  # with the places where they begin in the line


def parse_magic_line(line: str) -> tuple[Names, Names]:
    """The names after `-i` and after `-o`, which commas separate. Errors: DL0101."""
    found: dict[str, Names] = {"-i": [], "-o": []}
    words = [(m[0], m.start()) for m in re.finditer(r"[^\s,]+", line)]
    option = ""
    for word, start in words:
        if word in found:
            option = word
        elif option and word.isidentifier():
            found[option].append((word, start))
        else:
            way = "write `%%difflang -i x,y -o z`, and the program on the line below"
            raise magic_line_error(line, start, word, "DL0101", "these are no arguments of `%%difflang`", way)
    return found["-i"], found["-o"]


def magic_line_error(line: str, start: int, word: str, code: str, message: str, help: str) -> DifflangError:
    first = len("%%difflang ")
    span = Span(Source("<cell>", f"%%difflang {line}"), first + start, first + start + len(word))
    return classify_error(make_error(code, message, (span, ""), help=help))


def value_of_python(value: Any, module: ModuleScope, name: str) -> HostValue:
    """A value of Python as one of the host; a number of Python has a default type. Errors: DL12."""
    if isinstance(value, float):
        value = np.asarray(value, numpy_dtype(module.default_float))
    elif isinstance(value, int) and not isinstance(value, bool):
        value = np.asarray(value, np.int32)
    leaves, structure = pytrees.flatten_tree(convert_foreign(value, None, name))
    reader = ArgumentReader(module)
    type = default_open_dtypes(reader.plain(pytrees.tree_of_slots(leaves, structure), name))
    arrays = zip(reader.leaf_order, leaf_types(type), strict=True)
    # Copies: Python may change its arrays.
    return HostValue(type, tuple([np.array(read_source(source, leaves, t)) for source, t in arrays]))


def python_value(value: HostValue, loaded: LoadedProgram) -> Any:
    """A value of the host as results of functions are: arrays of JAX, and records as their classes."""
    build = result_maker(value.type, loaded.records, lambda type, leaves: Function(loaded, type, leaves))
    return build(iter([pytrees.to_device(np.asarray(leaf)) for leaf in value.leaves or ()]))


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
