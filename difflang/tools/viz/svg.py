"""Renders positioned diagrams as a standalone svg file, for light and dark screens, without scripts or fonts."""

from __future__ import annotations

import html
from collections.abc import Sequence

from difflang.base.diagnostics import printable
from difflang.base.source import Source
from difflang.tools.viz.diagram import Diagram, DiagramBox
from difflang.tools.viz.layered_layout import (
    CHAR,
    HEAD,
    LINE,
    MARGIN,
    SMALL,
    LayoutItem,
    PlacedDiagram,
    WirePath,
    layout_diagram,
    text_width,
)

EDGE, APART, TITLE, LEGEND = 24.0, 56.0, 34.0, 30.0
STYLE = """
.difflang { --ink: #1f2328; --soft: #656d76; --wire: #8c959f; --back: #ffffff; --box: #f6f8fa; --line: #afb8c1;
  --param: #ddf4ff; --param-line: #54aeff; --yield: #dafbe1; --yield-line: #4ac26b;
  --new: #fff1e5; --new-line: #fb8f44; --gone: #ffebe9; --gone-line: #ff8182; --some: #fff8c5; --some-line: #d4a72c; }
@media (prefers-color-scheme: dark) { .difflang { --ink: #e6edf3; --soft: #9198a1; --wire: #6e7681; --back: #0d1117;
  --box: #161b22; --line: #444c56; --param: #0c2d6b; --param-line: #388bfd; --yield: #0f3d1f; --yield-line: #2ea043;
  --new: #4a2208; --new-line: #db6d28; --gone: #4c1214; --gone-line: #f85149; --some: #3b2e04; --some-line: #bb8009; } }
.difflang text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: var(--ink); }
.difflang text.small { font-size: 10px; fill: var(--soft); }
.difflang text.type { font-size: 10px; fill: var(--soft); paint-order: stroke; stroke: var(--back); stroke-width: 4px; }
.difflang .region text.type { stroke: var(--back); }
.difflang text.title { font: 600 15px system-ui, sans-serif; }
.difflang rect { fill: var(--box); stroke: var(--line); }
.difflang rect.inside { fill: var(--back); fill-opacity: .85; stroke: none; }
.difflang .param > rect { fill: var(--param); stroke: var(--param-line); }
.difflang .result > rect { fill: var(--yield); stroke: var(--yield-line); }
.difflang .folded > rect, .difflang .again > rect { stroke-dasharray: 5 3; }
.difflang .new > rect { fill: var(--new); stroke: var(--new-line); }
.difflang .gone > rect { fill: var(--gone); stroke: var(--gone-line); }
.difflang .some > rect { fill: var(--some); stroke: var(--some-line); }
.difflang path.wire { fill: none; stroke: var(--wire); stroke-width: 1.3; }
.difflang path.tip { fill: var(--wire); }
.difflang a:hover > rect, .difflang g.box:hover > rect { stroke-width: 2.5; }
"""
HIGHLIGHT_CLASSES = {"new": "new", "gone": "gone", "some": "some"}


def render_svg(pictures: Sequence[Diagram], links: Source | None = None) -> str:
    """The diagrams side by side. With `links`, a box links to `#L7`, its line of that source."""
    found = [layout_diagram(p) for p in pictures]
    legend = {mark: text for p in pictures for mark, text in p.legend.items()}
    width = sum(max(p.width, 9 * text_width(p.picture.title)) for p in found) + APART * (len(found) - 1) + 2 * EDGE
    width = max(width, 2 * EDGE + sum(40 + CHAR * text_width(t) for t in legend.values()))
    height = max(p.height for p in found) + 2 * EDGE + TITLE + LEGEND * bool(legend)
    parts: list[str] = []
    left = EDGE
    for each in found:
        parts.append(f'<text class="title" x="{left:g}" y="{EDGE + 12:g}">{escape_xml(each.picture.title)}</text>')
        parts.append(diagram_svg(each, left, EDGE + TITLE, links))
        left += max(each.width, 9 * text_width(each.picture.title)) + APART
    parts.append(legend_svg(legend, EDGE, height - EDGE - 6))
    body = "\n".join(filter(None, parts))
    title = escape_xml(" and ".join(p.title for p in pictures))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="difflang" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{title}">\n<style>{STYLE}</style>\n'
        f'<rect class="inside" style="fill-opacity:1" width="100%" height="100%"/>\n{body}\n</svg>\n'
    )


def escape_xml(text: str) -> str:
    """A text escaped for XML, without control characters, which XML cannot hold."""
    return html.escape(printable(text))


def legend_svg(legend: dict[str, str], x: float, y: float) -> str:
    parts: list[str] = []
    for mark, text in legend.items():
        kind = HIGHLIGHT_CLASSES.get(mark, "")
        parts.append(f'<g class="{kind}"><rect x="{x:g}" y="{y - 11:g}" width="18" height="13" rx="3"/></g>')
        parts.append(f'<text class="small" x="{x + 25:g}" y="{y:g}">{escape_xml(text)}</text>')
        x += 45 + SMALL * text_width(text)
    return "\n".join(parts)


def diagram_svg(found: PlacedDiagram, x: float, y: float, links: Source | None) -> str:
    """A diagram with its corner at (x, y)."""
    wires = [wire_svg(path) for path in found.paths]
    boxes = [box_svg(item, links) for item in found.items]
    labels = [label_svg(path) for path in found.paths if path.label]
    inside = "\n".join([*wires, *boxes, *labels])
    return f'<g transform="translate({x:.1f} {y:.1f})">\n{inside}\n</g>'


def wire_svg(path: WirePath) -> str:
    """A smooth line with vertical ends and an arrow head."""
    (x, y), *rest = path.points
    parts = [f"M{x:.1f} {y:.1f}"]
    for to, down in rest:
        # A cubic curve with vertical tangents at both ends.
        half = (down - y) / 2
        parts.append(
            f"L{to:.1f} {down:.1f}"
            if to == x
            else f"C{x:.1f} {y + half:.1f} {to:.1f} {down - half:.1f} {to:.1f} {down:.1f}"
        )
        x, y = to, down
    label = escape_xml(path.wire.label)
    return (
        f'<path class="wire" d="{" ".join(parts)}"><title>{label}</title></path>'
        f'<path class="tip" d="M{x:.1f} {y:.1f}l-3.5 -7h7z"/>'
    )


def label_svg(path: WirePath) -> str:
    x, y = path.points[0]
    return f'<text class="type" x="{x + 5:.1f}" y="{y + 13:.1f}">{escape_xml(path.label)}</text>'


def box_svg(item: LayoutItem, links: Source | None) -> str:
    assert item.box is not None
    shown: DiagramBox = item.box
    round = min(item.height / 2, 13) if shown.kind in ("param", "result") else 5
    words = " ".join(filter(None, ["box", shown.kind, HIGHLIGHT_CLASSES.get(shown.mark, "")]))
    parts = [f"<title>{escape_xml(shown.tip)}</title>"] if shown.tip else []
    place = f'x="{item.left:.1f}" y="{item.y:.1f}" width="{item.width:.1f}" height="{item.height:.1f}"'
    parts.append(f'<rect {place} rx="{round:g}"/>')
    top = item.y + 17
    parts.append(f'<text text-anchor="middle" x="{item.x:.1f}" y="{top:.1f}">{escape_xml(shown.title)}</text>')
    if shown.below:
        text = escape_xml(shown.below)
        parts.append(f'<text class="small" text-anchor="middle" x="{item.x:.1f}" y="{top + 14:.1f}">{text}</text>')
    drawn = (
        f'<g class="{words}">' + "".join(parts) + (f"<g>{regions_svg(item, links)}</g>" if item.inside else "") + "</g>"
    )
    # A link cannot contain the links of nested boxes.
    if links is None or shown.span is None or shown.span.source is not links or item.inside:
        return drawn
    return f'<a href="#L{shown.span.position[0]}">{drawn}</a>'


def regions_svg(item: LayoutItem, links: Source | None) -> str:
    """The regions of an equation, side by side in its box."""
    assert item.box is not None
    titled = any(p.picture.title for p in item.inside)
    y = item.y + HEAD + LINE * bool(item.box.below) + LINE * titled
    free = item.width - sum(p.width for p in item.inside)
    gap = free / (len(item.inside) + 1)
    parts: list[str] = []
    x = item.left + gap
    for each in item.inside:
        half, tall = MARGIN / 2, each.height + LINE * titled
        parts.append(f'<rect class="inside" x="{x - half:.1f}" y="{y - LINE * titled:.1f}" '
                     f'width="{each.width + 2 * half:.1f}" height="{tall + half:.1f}" rx="5"/>')  # fmt: skip
        if each.picture.title:
            parts.append(f'<text class="small" x="{x:.1f}" y="{y - 6:.1f}">{escape_xml(each.picture.title)}</text>')
        parts.append(diagram_svg(each, x, y, links))
        x += each.width + gap
    return "".join(parts)
