"""A graph as a picture: DOT and Mermaid for other tools, SVG and HTML with Graphviz, boxes and wires as JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

from difflang.base.diagnostics import DifflangError
from difflang.base.error_codes import suggestion
from difflang.base.errors import classify_errors
from difflang.base.source import Source
from difflang.graph.graph_errors import graph_error
from difflang.ir.graph import Graph, graphs_postorder
from difflang.tools.viz.diagram import MAX_EQUATIONS, Diagram, build_diagram
from difflang.tools.viz.dot_and_mermaid import dot, mermaid, picture_as_json, svg
from difflang.tools.viz.html_page import html_page


def draw(graph: Graph, form: str, *, everything: bool = False) -> str:
    """The picture of a graph in a format; unless `everything`, of a large one some equations are folded.

    Errors: DL1207 for an unknown format; DL0709 for SVG and HTML without Graphviz.
    """
    if not isinstance(form, str) or form not in FORMATS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise graph_error("DL1207", f"there is no format `{form}` of a picture", help=suggestion(str(form), FORMATS))
    title = graph.name or "graph"
    with classify_errors():
        picture = build_diagram(graph, title, max_equations=None if everything else MAX_EQUATIONS)
        return FORMATS[form](graph, picture)


def draw_html(graph: Graph, picture: Diagram) -> str:
    """A page with the picture, beside the source of the graph if its equations come from one."""
    found = {eqn.span.source: None for g in graphs_postorder(graph)[0] for eqn in g.eqns if eqn.span.is_known}
    source = next((s for s in found if not s.library and s.text), Source(picture.title, ""))
    return html_page([picture], source, f"{source.name}:{picture.title}" if source.text else picture.title)


FORMATS: dict[str, Callable[[Graph, Diagram], str]] = {
    "dot": lambda _, picture: dot([picture]),
    "mermaid": lambda _, picture: mermaid([picture]),
    "svg": lambda _, picture: svg([picture]),
    "html": draw_html,
    "json": lambda _, picture: json.dumps(picture_as_json(picture)),
}


def notebook_html(graph: Graph, text: str) -> str:
    """The picture for a notebook; without Graphviz the text."""
    try:
        return draw(graph, "svg")
    except DifflangError:
        return f"<pre>{html.escape(text)}</pre>"
