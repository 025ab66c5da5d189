"""The command line: `difflang run`, `check`, `emit`. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from difflang.base.diagnostics import Diagnostic, DifflangError, render
from difflang.base.source import Source

ENGINES = click.Choice(["xla", "interpret"])
FLOATS = click.Choice(["f16", "bf16", "f32", "f64"])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="difflang", prog_name="difflang")
def main() -> None:
    """A small language for differentiable programs, compiled to XLA."""


def report(diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]) -> None:
    """Reports, on stderr."""
    if diagnostics:
        color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        click.echo(render(diagnostics, color), err=True)


def source_of(file: str) -> tuple[Source, Path | None]:
    """The text of a file, `-` for standard input."""
    from difflang.driver.load import decoded, read

    if file == "-":
        return decoded(sys.stdin.buffer.read(), "<stdin>"), None
    return read(Path(file), file), Path(file)


@main.command()
@click.argument("file")
@click.option("--engine", type=ENGINES, default="xla", help="How functions run; `interpret` is NumPy, slow and exact.")
@click.option("--device", help="Where functions run: cpu, gpu, tpu.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Where random numbers start.")
@click.option("--float", "default_float", type=FLOATS, help="What a float literal is that nothing else decides.")
@click.option("--allow", multiple=True, type=click.Path(path_type=Path), help="Another folder that may be read.")
def run(
    file: str, engine: Any, device: str | None, seed: int, default_float: str | None, allow: tuple[Path, ...]
) -> None:
    """Check FILE as a whole, then run its statements (`-` reads standard input)."""
    from difflang.driver import program
    from difflang.driver.engine import Engine

    with reported():
        source, path = source_of(file)
        checked = program.check(source, default_float)
        report(checked.diagnostics)
        if checked.errors:
            sys.exit(1)
        access = program.access_to(path, allow)
        program.run(checked, Engine(engine, device), access, seed, click.echo)


@main.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--float", "default_float", type=FLOATS, help="What a float literal is that nothing else decides.")
def check(files: tuple[str, ...], default_float: str | None) -> None:
    """Check FILES without running them."""
    from difflang.driver import program

    wrong = 0
    for file in files:
        with reported():
            checked = program.check(source_of(file)[0], default_float)
            report(checked.diagnostics)
            wrong += bool(checked.errors)
    if wrong:
        sys.exit(1)


class reported:
    """Turns what is wrong with a program into its report and exit code."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, DifflangError):
            return False
        report(error.diagnostics)
        failed = all(d.code.startswith("DL09") for d in error.diagnostics)
        sys.exit(3 if failed else 1)


if __name__ == "__main__":
    main()
