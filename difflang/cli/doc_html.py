"""HTML pages of documentation: each a self-contained file with its style and no script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any
from urllib.parse import quote

from difflang.syntax.doc_pages import DocEntry, DocPage, DocSection, examples_as_text

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
        parts.append(program_html(examples_as_text(one)))
    return "\n".join(parts)


def markdown_html(markdown: str) -> str:
    return html_tools()[0].render(markdown)


def program_html(source: str) -> str:
    from pygments import highlight

    _, lexer, formatter = html_tools()
    return f"<pre>{highlight(source, lexer, formatter).rstrip()}</pre>"
