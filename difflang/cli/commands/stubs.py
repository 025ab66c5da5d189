"""`difflang stubs`: writes `.pyi` files for Python's type checkers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from difflang.base.source_files import read_source, write_atomically, write_error
from difflang.cli.commands.fmt import require_programs
from difflang.cli.options_and_reports import exit_on_error, print_diagnostics, search_path


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the stubs to this folder instead of beside each file.",
)
@search_path
def stubs(files: tuple[str, ...], out: Path | None, folders: tuple[Path, ...]) -> None:
    """Write `model.pyi` for each `model.dfl`: its records and functions, for Python's type checkers.

    Folders are searched for programs. If a program has errors, nothing is written; a stub that was not generated is
    left alone.
    """
    from difflang.driver.check_and_run import check_program
    from difflang.tools.type_stubs import STUB_HEADER
    from difflang.tools.type_stubs import generate_stub as stubs_of

    with exit_on_error():
        texts: dict[Path, str] = {}
        wrong = False
        for file in map(Path, require_programs(files)):
            place = (out or file.parent) / f"{file.stem}.pyi"
            if place in texts:
                raise click.UsageError(f"two stubs would be called `{place.name}`: write them to two folders")
            if not file.stem.isidentifier():
                raise click.UsageError(f"a Python module cannot be called `{file.stem}`, so {file} has no stub")
            checked = check_program(read_source(file, str(file)), path=file, paths=folders)
            print_diagnostics(checked.errors)
            wrong = wrong or bool(checked.errors)
            texts[place] = stubs_of(checked, file.name)
        # All or nothing: a partial set would mix old and new declarations.
        if wrong:
            sys.exit(1)
        # Before the first write: a hand-written stub stops them all.
        for place in texts:
            if file_prefix(place, len(STUB_HEADER)) not in (None, STUB_HEADER.encode()):
                raise click.UsageError(f"{place} was not written by `difflang stubs`: move it away first")
        for place, text in texts.items():
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(place, text.encode())
            except OSError as error:
                raise write_error(str(place), error) from None
            click.echo(f"{place}", err=True)


def file_prefix(place: Path, length: int) -> bytes | None:
    """The first bytes of a file, None if there is none. Errors: DL0710 for something else than a file."""
    try:
        with place.open("rb") as file:
            return file.read(length)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise write_error(str(place), error) from None
