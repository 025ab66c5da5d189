"""Pages as HTML: each a file by itself, with its colours and no script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any
from urllib.parse import quote

from difflang.syntax.doc_pages import Entry, Page, Section, shown

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
def tools() -> tuple[Any, Any, Any]:
    """What turns Markdown into HTML, and what colours a program: imported when something is written."""
    from markdown_it import MarkdownIt
    from pygments.formatters import HtmlFormatter

    from difflang.pygments import DifflangLexer

    return MarkdownIt("commonmark", {"html": False}), DifflangLexer(), HtmlFormatter(nowrap=True)


def colours() -> str:
    """The style sheet of programs, for both kinds of screens."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="default", nobackground=True).get_style_defs("pre")
    dark = HtmlFormatter(style="github-dark", nobackground=True).get_style_defs("pre")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def as_html(page: Page, pages: Sequence[Page]) -> str:
    """A page, with links to the others."""
    parts = [f"<h1>{escape(page.name)}</h1>", text(page.text), names(page)]
    return document(page.name, pages, "\n".join([*parts, *map(section, page.sections)]))


def index_html(pages: Sequence[Page]) -> str:
    """What leads to all pages."""
    parts = [
        f'<h2><a href="{file_of(p)}">{escape(p.name)}</a></h2>\n{text(p.summary)}{names(p, file_of(p))}' for p in pages
    ]
    return document("Modules", pages, "\n".join(["<h1>Modules</h1>", *parts]))


def document(title: str, pages: Sequence[Page], body: str) -> str:
    links = " ".join(f'<a href="{file_of(p)}">{escape(p.name)}</a>' for p in pages)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}{colours()}</style>\n</head>\n'
        f'<body>\n<nav><a href="index.html">Modules</a> {links}</nav>\n<main>\n{body}\n</main>\n</body>\n</html>\n'
    )


def file_of(page: Page) -> str:
    """Where a link to a page leads: its file, of whatever letters its name is."""
    return quote(f"{page.name}.html")


def names(page: Page, file: str = "") -> str:
    links = [f'<a href="{file}#{escape(e.name)}"><code>{escape(e.name)}</code></a>' for e in page.entries]
    return f"<p>{' '.join(links)}</p>"


def section(one: Section) -> str:
    title = [f"<h2>{escape(one.title)}</h2>"] if one.title else []
    return "\n".join([*title, *map(entry, one.entries)])


def entry(one: Entry) -> str:
    name = escape(one.name)
    parts = [f'<h3 id="{name}"><a href="#{name}"><code>{name}</code></a></h3>', program(one.head), text(one.text)]
    if one.facts:
        facts = "\n".join(f"<dt>{name}</dt><dd>{text(said)}</dd>" for name, said in one.facts)
        parts.append(f"<dl>\n{facts}\n</dl>")
    if one.examples:
        parts.append(program(shown(one)))
    return "\n".join(parts)


def text(markdown: str) -> str:
    return tools()[0].render(markdown)


def program(source: str) -> str:
    from pygments import highlight

    _, lexer, formatter = tools()
    return f"<pre>{highlight(source, lexer, formatter).rstrip()}</pre>"
