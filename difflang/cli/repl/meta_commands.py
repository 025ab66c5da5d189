"""The commands of a session, `:t x` and the like: one registered function each, with usage and help."""

from __future__ import annotations

import contextlib
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import click

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.error_codes import nearest_words
from difflang.base.package_data import stdlib_module_of_name, stdlib_modules
from difflang.base.source_files import os_error_reason, read_source
from difflang.cli.commands.about_difflang import code_page, list_codes
from difflang.cli.commands.tests_and_benchmarks import format_seconds
from difflang.cli.repl.session import COMMANDS, ReplSession, command_error, meta_command

# How long, and how often at most, `:time` measures.
MIN_TIMING_SECONDS, MAX_TIMING_CALLS = 0.5, 100


# ---- Queries


@meta_command(":t EXPRESSION", "show the type of an expression without computing it")
def type_of_expression(repl: ReplSession, text: str) -> None:
    from difflang.tools.session_queries import signature_text
    from difflang.types.language_types import show_type
    from difflang.types.suggested_fixes import add_helps

    decl = repl.session.module.fns.get(text)
    try:
        repl.print_text(
            signature_text(repl.session, decl) if decl is not None else show_type(repl.session.type_of(text).type)
        )
    except DifflangError as error:
        raise add_helps(error, [list_names(repl)] if only_unknown_names(error) else []) from None


def only_unknown_names(error: DifflangError) -> bool:
    """Whether unknown names are the only errors, without suggestions."""
    return all(d.code == "DL0201" and not d.helps and not d.fixes for d in error.diagnostics)


def list_names(repl: ReplSession) -> str:
    from difflang.tools.session_queries import visible_names

    found = [name for name, known in visible_names(repl.session).items() if known.kind != "builtin"]
    if found:
        return f"there are {', '.join(found)}"
    return "nothing has been declared yet: `let x = 1.0`, `fn f(x: f32) -> f32 = x * x`"


@meta_command(":doc NAME", "show what a name means; also `?NAME`")
def describe_name(repl: ReplSession, text: str) -> None:
    from difflang.tools.session_queries import describe_symbol, member_names, visible_names

    found = describe_symbol(repl.session, text)
    if found is None:
        owner, point, _ = text.rpartition(".")
        known = [f"{owner}.{n}" for n in member_names(repl.session, owner)] if point else visible_names(repl.session)
        near = nearest_words(text, known)
        ways = (f"did you mean {' or '.join(f'`{name}`' for name in near)}?",) if near else ()
        if (module := stdlib_module_of_name().get(text)) is not None:
            ways = (f"it is in `{module}`: `import {module} ({text})`",)
        elif (module := text.partition(".")[0]) in stdlib_modules() and module not in visible_names(repl.session):
            ways = (f"import it: `import {module}`",)
        raise command_error(f":doc {text}", f"there is no `{text}` here", *(ways or (list_names(repl),)), code="DL0201")
    repl.print_text(found)


@meta_command(":why [CODE]", "explain an error code; without one, that of the last report")
def explain_code(repl: ReplSession, text: str) -> None:
    code = text or repl.last_code
    try:
        repl.print_text(code_page(code) if code else list_codes())
    except click.UsageError as error:
        raise command_error(f":why {text}", error.message) from None


@meta_command(":ir EXPRESSION", "show the graph of an expression, or of a function: `:ir f x=f32[3]`")
def print_ir(repl: ReplSession, text: str) -> None:
    from difflang.tools.session_queries import graph_text

    repl.print_text(graph_text(repl.session, text, "optimized").rstrip())


@meta_command(":hlo EXPRESSION", "show the same as StableHLO for XLA")
def print_stablehlo(repl: ReplSession, text: str) -> None:
    from difflang.tools.session_queries import graph_text

    repl.print_text(graph_text(repl.session, text, "stablehlo").rstrip())


@meta_command(":mem FUNCTION", "show how much memory a function needs: `:mem f x=f32[3]`")
def memory_report(repl: ReplSession, text: str) -> None:
    from difflang.tools.memory_report import MemoryOptions, function_memory
    from difflang.tools.session_queries import parse_function_call

    decl, specs = parse_function_call(repl.session, text)
    repl.show_report(function_memory(repl.session.program, decl, MemoryOptions(specs)))


@meta_command(":check FUNCTION", "check the derivative of a function")
def check_gradient(repl: ReplSession, text: str) -> None:
    from difflang.tools.check_grad import CheckGradOptions, check_grad_with_globals
    from difflang.tools.session_queries import parse_function_call

    decl, specs = parse_function_call(repl.session, text)
    compiled = repl.loader.options[0] == "xla"
    runner = repl.session.runner
    options = CheckGradOptions(argument_specs=specs, compiled=compiled)
    found = check_grad_with_globals(repl.session.program, decl, options, lambda name: runner.read(name).leaves or ())
    repl.show_report(found)
    if not found.right:
        raise DifflangError(*found.diagnostics())


@meta_command(":time EXPRESSION", "time an expression, on the first run and on later ones")
def time_expression(repl: ReplSession, text: str) -> None:
    from difflang.tools.session_queries import expression_runner

    call = expression_runner(repl.session, text)
    times: list[float] = []
    # The first call compiles and does not count.
    while sum(times[1:]) < MIN_TIMING_SECONDS and len(times) <= MAX_TIMING_CALLS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    then = statistics.median(times[1:])
    repl.print_text(f"first {format_seconds(times[0])}, then {format_seconds(then)} (median of {len(times) - 1})")


@meta_command(":g FUNCTION", "show the gradient of a function as a program: `:g f`, `:g f wrt=w mode=jvp n=3`")
def print_gradient(repl: ReplSession, text: str) -> None:
    from difflang.tools.derive.derive import MODES, DeriveOptions, derive_function
    from difflang.tools.session_queries import parse_function_call

    decl, given = parse_function_call(repl.session, text)
    specs = dict(given)
    mode = specs.pop("mode", "grad")
    if mode not in MODES:
        raise command_error(f":g {text}", f"there is no mode `{mode}`", f"it is one of {', '.join(MODES)}")
    options = DeriveOptions(wrt=specs.pop("wrt", None), mode=mode, argument_specs=specs)
    warnings: list[Diagnostic] = []
    text = derive_function(repl.session.program, decl, options, warnings.append)
    repl.loader.print_warnings(warnings)
    repl.print_text(text.rstrip())


@meta_command(":trace FUNCTION", "trace a run at `x=2 y=[1, 2]`, row by row, with tangents and adjoints")
def trace_function(repl: ReplSession, text: str) -> None:
    from difflang.tools.session_queries import parse_function_call
    from difflang.tools.trace_call import TraceOptions, trace_declaration

    decl, given = parse_function_call(repl.session, text)
    runner = repl.session.runner
    repl.show_report(
        trace_declaration(repl.session.program, decl, TraceOptions(given), lambda name: runner.read(name).leaves or ())
    )


# ---- Files and earlier inputs


@meta_command(":load FILE", "run a file in this session")
def load_file(repl: ReplSession, text: str) -> None:
    repl.loaded, path = text, Path(text)
    source = read_source(path, text)
    repl.session.locate(text, path.parent)
    repl.run_text(source.text, text)


@meta_command(":reload", "run the last loaded file again")
def reload_file(repl: ReplSession, text: str) -> None:
    if not repl.loaded:
        raise command_error(":reload", "no file has been loaded", "load one with `:load FILE`")
    load_file(repl, repl.loaded)


@meta_command(":save FILE", "write every input that ran to a new file")
def save_inputs(repl: ReplSession, text: str) -> None:
    try:
        # Mode `x`: never overwrite a file.
        with open(text, "x", encoding="utf-8") as file:
            file.write("".join(f"{each}\n" for each in repl.session.inputs))
    except OSError as error:
        raise command_error(
            f":save {text}", f"cannot write `{text}`: {os_error_reason(error)}", code="DL0710"
        ) from None


@meta_command(":edit [NAME]", "edit a function, or the last input, in $EDITOR, and run it")
def edit_input(repl: ReplSession, text: str) -> None:
    from difflang.tools.session_queries import declaration_source

    session = repl.session
    if not repl.terminal:
        raise command_error(
            f":edit {text}",
            "an editor needs a terminal, which this session does not have",
            "edit the cell, and run it again",
        )
    before = declaration_source(session, text) if text else (session.inputs[-1] if session.inputs else "")
    if before is None:
        raise command_error(f":edit {text}", f"`{text}` was not declared in this session", code="DL0201")
    after = edit_in_editor(before)
    if after.strip() and after != before:
        repl.print_text(after.rstrip())
        repl.run_text(after.rstrip())


def edit_in_editor(text: str) -> str:
    """The text after its author has edited it."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    handle, name = tempfile.mkstemp(suffix=".dfl")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        subprocess.run([*editor, name], check=True)
        return Path(name).read_text(encoding="utf-8")
    except (OSError, subprocess.CalledProcessError) as error:
        raise command_error(
            ":edit", f"the editor `{editor[0]}` failed: {error}", "set $EDITOR to another editor"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


@meta_command(":undo", "undo the last input")
def undo_input(repl: ReplSession, text: str) -> None:
    gone = repl.session.undo()
    repl.print_text(f"removed: {gone}" if gone is not None else "there is nothing to undo")


@meta_command(":help", "show this list")
def list_commands(repl: ReplSession, text: str) -> None:
    width = max(len(c.usage) for c in COMMANDS.values())
    rows = [f"{c.usage:<{width}}  {c.help}" for c in COMMANDS.values()]
    repl.print_text("\n".join([*rows, "", "`_` is the last value; an input that ends with `;` shows nothing."]))


@meta_command(":quit", "end the session; Ctrl-D does too")
def quit_session(repl: ReplSession, text: str) -> bool:
    return False
