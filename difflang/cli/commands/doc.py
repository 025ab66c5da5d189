"""`difflang doc`: documentation from doc comments of the library or of programs, in the terminal or as files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_words
from difflang.base.package_data import builtins_file, stdlib_files
from difflang.base.source_files import read_source, write_atomically, write_error
from difflang.base.wording import count_of
from difflang.cli.commands.fmt import require_programs
from difflang.cli.options_and_reports import SuggestingChoice, exit_on_error

if TYPE_CHECKING:
    from difflang.syntax.doc_pages import DocEntry, DocPage


@click.command()
@click.argument("what", nargs=-1, metavar="[MODULE | MODULE.NAME | NAME | FILE]...")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write one file per module to this folder."
)
@click.option(
    "--format", "form", type=SuggestingChoice(["markdown", "html"]), default="markdown", help="Format of the pages."
)
def doc(what: tuple[str, ...], out: Path | None, form: str) -> None:
    """Show the documentation of the library or of FILE: all modules, one module, or one name. Folders are searched for
    programs.

    Without --out it is printed here.
    """
    if form == "html" and out is None:
        raise click.UsageError("--format html writes files: name a folder with --out FOLDER")
    with exit_on_error():
        if out is not None:
            files = [Path(f) for f in require_programs(what)] if what and is_path(what[0]) else library_files(what)
            write_pages(out, [parse_page(f) for f in files], form)
            return
        print_markdown("\n\n".join(map(documentation_text, what)) if what else library_overview())


def is_path(what: str) -> bool:
    return what.endswith(".dfl") or "/" in what or os.path.isdir(what)


def parse_page(path: Path) -> DocPage:
    """The page of a program, or of the built-ins. Errors: DifflangError if it cannot be read or does not parse."""
    from difflang.syntax.builtin_page import builtin_page
    from difflang.syntax.doc_pages import build_page
    from difflang.syntax.parse import parse

    if path == builtins_file():
        return builtin_page()
    source = read_source(path, str(path))
    parsed = parse(source)
    if any(d.severity == "error" for d in parsed.diagnostics):
        raise DifflangError(*parsed.diagnostics)
    return build_page(source, parsed.module.items)


def library_files(names: Sequence[str]) -> list[Path]:
    """The files of library modules, all if no names are given. Errors: UsageError for an unknown module."""
    files = {path.stem: path for path in (builtins_file(), *stdlib_files())}
    for name in names:
        if name not in files:
            raise unknown_name_error(name, files, "module")
    return [files[name] for name in names] if names else list(files.values())


def unknown_name_error(name: str, known: Sequence[str] | dict[str, Path], what: str) -> click.UsageError:
    near = nearest_words(name, list(known))
    way = f"Did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else "`difflang doc` lists all pages."
    return click.UsageError(f"there is no {what} `{name}` in the library. {way}")


def library_overview() -> str:
    """Every module of the library with its declarations."""
    from difflang.syntax.doc_pages import index_as_markdown

    return index_as_markdown([parse_page(path) for path in library_files(())])


def documentation_text(what: str) -> str:
    """A page, or the entry of one name, as Markdown. Errors: UsageError, DifflangError."""
    from difflang.syntax.builtin_page import entry_of_name
    from difflang.syntax.doc_pages import entry_as_markdown, page_as_markdown

    files = {path.stem: path for path in library_files(())}
    if is_path(what) or what in files:
        paths = [files[what]] if what in files else [Path(f) for f in require_programs((what,))]
        return "\n".join(page_as_markdown(parse_page(path)) for path in paths).rstrip()
    module, _, name = what.rpartition(".")
    pages = [parse_page(path) for path in (library_files([module]) if module else library_files(()))]
    found = [(p, entry_of_name(e, name)) for p in pages for e in p.entries if name in e.names]
    if not found:
        raise unknown_name_error(name, [n for p in pages for e in p.entries for n in e.names], "name")
    return "\n\n".join("\n\n".join([entry_title(p, e), *entry_as_markdown(e)]) for p, e in found)


def entry_title(page: DocPage, entry: DocEntry) -> str:
    used = (
        f"`import {page.name} ({entry.name})`"
        if page.name not in ("prelude", "builtins")
        else "available in every file"
    )
    return f"# {page.name}.{entry.name}\n\n{used}"


def print_markdown(text: str) -> None:
    """Print Markdown, rendered if stdout is a terminal."""
    if not sys.stdout.isatty():
        click.echo(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def write_pages(folder: Path, pages: Sequence[DocPage], form: str) -> None:
    """Write a file for each page, and an index. Errors: DL0710."""
    from difflang.cli.doc_html import index_html, page_html
    from difflang.syntax.doc_pages import index_as_markdown, page_as_markdown

    html = form == "html"
    first = "index" if html else "README"
    names = [first, *[p.name for p in pages]]
    # Programs in different folders may have one name.
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"two pages would be called `{twice[0]}`: write them to two folders")
    texts = {p.name: page_html(p, pages) if html else page_as_markdown(p) for p in pages}
    texts[first] = index_html(pages) if html else index_as_markdown(pages, ".md") + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_atomically(folder / f"{name}.{'html' if html else 'md'}", text.encode())
    except OSError as error:
        raise write_error(str(folder), error) from None
    click.echo(f"{count_of(len(pages), 'page')} in {folder}", err=True)
