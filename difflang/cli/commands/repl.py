"""`difflang repl`: an interactive session at a terminal, or run from piped input."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from difflang.base.process_termination import restore_default_sigint
from difflang.cli.options_and_reports import (
    FLOATS,
    common_options,
    device_option,
    engine_option,
    exit_on_error,
    load_source,
    no_cache,
    search_path,
    seed_option,
)


@click.command()
@click.argument("file", required=False)
@engine_option
@device_option
@seed_option
@click.option("--float", "default_float", type=FLOATS, default="f32", help="Default type of float literals.")
@no_cache
@search_path
@common_options
def repl(
    file: str | None, engine: Any, device: str | None, seed: int, default_float: str, folders: tuple[Path, ...]
) -> None:
    """Type a program and see the result of each line. FILE is run first.

    `:help` lists the commands. Piped input is run input by input, without colours; the exit code is that of the first
    failure.
    """
    from difflang.cli.repl.session import CompilerLoader, ReplSession
    from difflang.syntax.repl_input import split_inputs

    if file is not None:
        with exit_on_error():
            load_source(file)
    restore_default_sigint()
    loading = CompilerLoader(engine, device, seed, default_float, folders)
    first = [f":load {file}"] if file is not None else []
    if sys.stdin.isatty() and sys.stdout.isatty():
        from difflang.cli.repl.terminal import run_terminal

        # A process that a script started in the background ignores SIGINT.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        session = ReplSession(loading, colored="NO_COLOR" not in os.environ)
        run_terminal(session, first)
        code = 0
    else:
        session = ReplSession(loading)
        for text in (*first, *split_inputs(sys.stdin)):
            if not session.run_input(text):
                break
        code = session.exit_code
    # A normal exit would wait for a program that still runs in XLA.
    if session.interrupted:
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
