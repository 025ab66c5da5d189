"""`difflang doc`: what the comments of a program or of the library say, in the terminal or as files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import all_nearest
from difflang.base.package_data import stdlib_files
from difflang.base.source_files import read, replace, unwritable
from difflang.cli.commands.fmt import named
from difflang.cli.options_and_reports import OneOf, reported

if TYPE_CHECKING:
    from difflang.syntax.doc_pages import Entry, Page


@click.command()
@click.argument("what", nargs=-1, metavar="[MODULE | MODULE.NAME | NAME | FILE]...")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write a file for each module here.")
@click.option("--format", "form", type=OneOf(["markdown", "html"]), default="markdown", help="What is written.")
def doc(what: tuple[str, ...], out: Path | None, form: str) -> None:
    """What the library offers, or FILE: all modules, a module, one name. Folders are searched for programs.

    Without --out it is shown here.
    """
    if form == "html" and out is None:
        raise click.UsageError("--format html writes files: say where, with --out FOLDER")
    with reported():
        if out is not None:
            files = [Path(f) for f in named(what)] if what and is_file(what[0]) else modules(what)
            write(out, [page_of(f) for f in files], form)
            return
        show("\n\n".join(map(text_of, what)) if what else overview())


def is_file(what: str) -> bool:
    return what.endswith(".dfl") or "/" in what or Path(what).is_dir()


def page_of(path: Path) -> Page:
    """The page of a program. Errors: DifflangError where it cannot be read or is none."""
    from difflang.syntax.doc_pages import page
    from difflang.syntax.parse import parse

    source = read(path, str(path))
    parsed = parse(source)
    if any(d.severity == "error" for d in parsed.diagnostics):
        raise DifflangError(*parsed.diagnostics)
    return page(source, parsed.module.items)


def modules(names: Sequence[str]) -> list[Path]:
    """The files of modules of the library, all without names. Errors: UsageError for one that is not there."""
    files = {path.stem: path for path in stdlib_files()}
    for name in names:
        if name not in files:
            raise unknown(name, files, "module")
    return [files[name] for name in names] if names else list(files.values())


def unknown(name: str, known: Sequence[str] | dict[str, Path], what: str) -> click.UsageError:
    near = all_nearest(name, list(known))
    way = f"Did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else "`difflang doc` lists what there is."
    return click.UsageError(f"there is no {what} `{name}` in the library. {way}")


def overview() -> str:
    """Every module of the library, and what it declares."""
    from difflang.syntax.doc_pages import as_list

    return as_list([page_of(path) for path in modules(())])


def text_of(what: str) -> str:
    """A page, or what is told of one name, as Markdown. Errors: UsageError, DifflangError."""
    from difflang.syntax.doc_pages import as_markdown, described

    files = {path.stem: path for path in stdlib_files()}
    if is_file(what) or what in files:
        paths = [files[what]] if what in files else [Path(f) for f in named((what,))]
        return "\n".join(as_markdown(page_of(path)) for path in paths).rstrip()
    module, _, name = what.rpartition(".")
    pages = [page_of(path) for path in (modules([module]) if module else modules(()))]
    found = [(p, e) for p in pages for e in p.entries if e.name == name]
    if not found:
        from difflang.tools.session_queries import of_the_language

        if told := of_the_language(what):
            return f"# {told}"
        raise unknown(name, [e.name for p in pages for e in p.entries], "name")
    return "\n\n".join("\n\n".join([title(p, e), *described(e)]) for p, e in found)


def title(page: Page, entry: Entry) -> str:
    used = f"`import {page.name} ({entry.name})`" if page.name != "prelude" else "seen by every file"
    return f"# {page.name}.{entry.name}\n\n{used}"


def show(text: str) -> None:
    """For eyes where a terminal is, else as it is."""
    if not sys.stdout.isatty():
        click.echo(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def write(folder: Path, pages: Sequence[Page], form: str) -> None:
    """A file for each page and one that lists them. Errors: DL0710."""
    from difflang.cli.doc_html import as_html, index_html
    from difflang.syntax.doc_pages import as_list, as_markdown

    html = form == "html"
    first = "index" if html else "README"
    names = [first, *[p.name for p in pages]]
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"two pages would be called `{twice[0]}`: write them in two folders")
    texts = {p.name: as_html(p, pages) if html else as_markdown(p) for p in pages}
    texts[first] = index_html(pages) if html else as_list(pages, ".md") + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            replace(folder / f"{name}.{'html' if html else 'md'}", text.encode())
    except OSError as error:
        raise unwritable(str(folder), error) from None
    click.echo(f"{len(pages)} pages in {folder}", err=True)
