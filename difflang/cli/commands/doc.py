"""`difflang doc`: documentation from doc comments of the library or of programs, in the terminal or as files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import nearest_words
from difflang.base.package_data import builtins_file, stdlib_files
from difflang.base.source_files import read_source, write_atomically, write_error
from difflang.base.wording import count_of
from difflang.cli.commands.fmt import require_programs
from difflang.cli.options_and_reports import SuggestingChoice, exit_on_error

if TYPE_CHECKING:
    from difflang.syntax.doc_pages import DocEntry, DocPage, DocSection


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
    everywhere = page.name in ("prelude", "builtins")
    used = "available in every file" if everywhere else f"`import {page.name} ({entry.name})`"
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


# ---- HTML pages: each a self-contained file with its style and no script


STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem 1.5rem 4rem; }
nav { border-bottom: 1px solid var(--line); padding-bottom: .6rem; }
nav a { margin-right: .7rem; white-space: nowrap; }
a { color: light-dark(#0550ae, #79c0ff); text-decoration: none; } a:hover { text-decoration: underline; }
h3 code { font-size: 1.15rem; }
h3 { margin: 2.2rem 0 .4rem; border-top: 1px solid var(--line); padding-top: 1rem; }
pre { background: var(--soft); overflow-x: auto; padding: .6rem .8rem; border-radius: 6px; }
code, pre { font: 14px/1.45 ui-monospace, Menlo, Consolas, monospace; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1.2rem; } dd p { margin: 0; }
@media print { nav { display: none; } pre { white-space: pre-wrap; } }
"""


@cache
def html_tools() -> tuple[Any, Any, Any]:
    """The Markdown renderer, the lexer and the formatter, imported on first use."""
    from markdown_it import MarkdownIt
    from pygments.formatters import HtmlFormatter

    from difflang.pygments import DifflangLexer

    # Doc comments are text: HTML in them is escaped.
    return MarkdownIt("commonmark", {"html": False}), DifflangLexer(), HtmlFormatter(nowrap=True)


def highlight_css() -> str:
    """The style sheet of highlighted programs, for light and dark screens."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default", nobackground=True).get_style_defs("pre")
    dark = HtmlFormatter(style="github-dark", nobackground=True).get_style_defs("pre")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def page_html(page: DocPage, pages: Sequence[DocPage]) -> str:
    """A page, with links to the others."""
    parts = [f"<h1>{escape(page.name)}</h1>", markdown_html(page.text), name_links(page)]
    return html_document(page.name, pages, "\n".join([*parts, *map(section_html, page.sections)]))


def index_html(pages: Sequence[DocPage]) -> str:
    """The index of all pages."""
    parts: list[str] = []
    for p in pages:
        head = f'<h2><a href="{page_href(p)}">{escape(p.name)}</a></h2>'
        parts.append(f"{head}\n{markdown_html(p.summary)}{name_links(p, page_href(p))}")
    return html_document("Modules", pages, "\n".join(["<h1>Modules</h1>", *parts]))


def html_document(title: str, pages: Sequence[DocPage], body: str) -> str:
    links = " ".join(f'<a href="{page_href(p)}">{escape(p.name)}</a>' for p in pages)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}{highlight_css()}</style>\n</head>\n'
        f'<body>\n<nav><a href="index.html">Modules</a> {links}</nav>\n<main>\n{body}\n</main>\n</body>\n</html>\n'
    )


def page_href(page: DocPage) -> str:
    """The URL of a page's file, quoted."""
    return quote(f"{page.name}.html")


def name_links(page: DocPage, file: str = "") -> str:
    names = [escape(name) for e in page.entries for name in e.names]
    links = [f'<a href="{file}#{name}"><code>{name}</code></a>' for name in names]
    return f"<p>{' '.join(links)}</p>"


def section_html(one: DocSection) -> str:
    anchor = one.title.lower().replace(" ", "-")
    title = [f'<h2 id="{escape(anchor)}">{escape(one.title)}</h2>'] if one.title else []
    return "\n".join([*title, *([markdown_html(one.text)] if one.text else []), *map(entry_html, one.entries)])


def entry_html(one: DocEntry) -> str:
    names = [escape(name) for name in one.names]
    parts = [
        *[f'<h3 id="{name}"><a href="#{name}"><code>{name}</code></a></h3>' for name in names],
        program_html(one.head),
        markdown_html(one.text),
    ]
    if one.facts:
        facts = "\n".join(f"<dt>{name}</dt><dd>{markdown_html(said)}</dd>" for name, said in one.facts)
        parts.append(f"<dl>\n{facts}\n</dl>")
    if one.examples:
        from difflang.syntax.doc_pages import examples_as_text

        parts.append(program_html(examples_as_text(one)))
    return "\n".join(parts)


def markdown_html(markdown: str) -> str:
    return html_tools()[0].render(markdown)


def program_html(source: str) -> str:
    from pygments import highlight

    _, lexer, formatter = html_tools()
    return f"<pre>{highlight(source, lexer, formatter).rstrip()}</pre>"
