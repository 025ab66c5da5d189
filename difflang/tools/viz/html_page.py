"""Diagrams as a page that stands by itself: the program beside its picture."""

from __future__ import annotations

import html
from collections.abc import Sequence

from difflang.base.diagnostics import printable
from difflang.base.source import Source
from difflang.tools.viz.diagram import Diagram
from difflang.tools.viz.dot_and_mermaid import svg

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; height: 100vh; display: grid; grid-template-rows: auto 1fr;
  grid-template-columns: minmax(16rem, 32%) 1fr; }
h1 { font-size: 1.1rem; margin: .7rem 1rem; grid-column: 1 / 3; } h1 code { font-size: 1.1rem; }
.picture, pre { overflow: auto; margin: 0; border-top: 1px solid #8884; } .picture { border-left: 1px solid #8884; }
.picture svg { display: block; margin: auto; }
pre { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; padding: .6rem 0; }
pre span { display: block; padding: 0 .8rem; width: max-content; min-width: 100%; box-sizing: border-box; }
pre i { opacity: .45; font-style: normal; user-select: none; } pre span:target { background: #fb8f4455; }
@media (max-width: 50rem) { body { display: block; } }
"""


def html_page(pictures: Sequence[Diagram], source: Source, title: str) -> str:
    """The program beside its diagrams; one without text is left out.

    A box links to its line; there are no scripts and no external resources. Errors: DL0709 without Graphviz.
    """
    count = source.position(len(source.text.rstrip()))[0]
    lines = [html.escape(printable(source.line(n))) for n in range(1, count + 1)]
    width = len(str(count))
    listing = "".join(f'<span id="L{n}"><i>{n:>{width}}</i>  {line}</span>' for n, line in enumerate(lines, 1))
    title = html.escape(printable(title))
    program = f"<pre>{listing}</pre>\n" if source.text else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f"<h1><code>{title}</code></h1>\n"
        f'{program}<div class="picture">\n{svg(pictures, source)}</div>\n</body>\n</html>\n'
    )
