"""Diagrams as text for other tools: DOT for Graphviz, which draws SVG from it, Mermaid for Markdown, and JSON."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from typing import Any

from difflang.base.diagnostics import printable
from difflang.base.source import Source
from difflang.base.source_files import os_error_reason
from difflang.tools.viz.diagram import Diagram, DiagramBox
from difflang.types.type_errors import make_error

FILL_COLORS = {"param": "#ddf4ff", "result": "#dafbe1", "new": "#fff1e5", "gone": "#ffebe9", "some": "#fff8c5"}
DEFAULT_COLOR = "#f6f8fa"


def svg(pictures: Sequence[Diagram], links: Source | None = None) -> str:
    """The diagrams, drawn by Graphviz. With `links`, a box links to `#L7`, its line of that source. Errors: DL0709."""
    return draw_dot(dot(pictures, links))


def draw_dot(text: str) -> str:
    """The SVG of a text in DOT, drawn by Graphviz. Errors: DL0709 without it, or if it fails."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    program = shutil.which("dot", path=path) or shutil.which("graphviz-pure", path=path)
    if program is None:
        way = "`pip install 'difflang[pictures]'`, or use `--format dot` or `mermaid`, which other tools draw"
        raise make_error("DL0709", "this picture requires Graphviz, which is not installed", help=way)
    try:
        done = subprocess.run([program, "-Tsvg"], input=text, capture_output=True, encoding="utf-8", errors="replace")
        drawn = done.stdout if done.returncode == 0 else ""
        said = done.stderr.strip() or f"its exit status is {done.returncode}"
    except OSError as error:
        drawn, said = "", os_error_reason(error)
    if "<svg" not in drawn:
        way = "use `--format dot` or `mermaid`, which other tools draw"
        raise make_error("DL0709", f"`{program}` did not draw this picture: {said}", help=way)
    # From the element on: HTML takes no XML declaration, and a reader of SVG needs none.
    return drawn[drawn.index("<svg") :]


def dot(pictures: Sequence[Diagram], links: Source | None = None) -> str:
    """A digraph with a cluster for each region. Source: Graphviz, The DOT Language."""
    lines = [
        "digraph difflang {", '  node [shape=box, style="rounded,filled", fontname="Courier New", fontsize=11];',
        '  edge [fontname="Courier New", fontsize=9, color="#8c959f", fontcolor="#656d76"];',
        '  graph [fontname="Courier New", compound=true];',
    ]  # fmt: skip
    for i, each in enumerate(pictures):
        dot_cluster(each, f"p{i}", "  ", lines, links)
        for mark, text in each.legend.items():
            style = f"label={dot_string(text)}, fillcolor={dot_string(FILL_COLORS.get(mark, DEFAULT_COLOR))}"
            lines.append(f'  legend_{i}_{mark} [shape=note, style="filled", {style}];')
    return "\n".join([*lines, "}", ""])


def dot_cluster(picture: Diagram, name: str, indent: str, lines: list[str], links: Source | None) -> None:
    inner = indent + "  "
    lines += [
        f"{indent}subgraph cluster_{name} {{",
        f'{inner}label={dot_string(picture.title)}; style="rounded"; color="#afb8c1";',
    ]
    for i, box in enumerate(picture.boxes):
        at = f"{name}_{i}"
        attrs = [f"label={dot_string(box_text(box))}", f"tooltip={dot_string(box.tip)}"]
        if box.span is not None and box.span.source is links:
            attrs.append(f'URL="#L{box.span.position[0]}"')
        if box.inside:
            style = "; ".join([*attrs, f'bgcolor="{box_color(box)}"'])
            lines += [f"{inner}subgraph cluster_{at} {{", f"{inner}  {style};",
                      f"{inner}  {at} [shape=point, style=invis];"]  # fmt: skip
            for k, region in enumerate(box.inside):
                dot_cluster(region, f"{at}_{k}", inner + "  ", lines, links)
            lines.append(f"{inner}}}")
        else:
            style = ", ".join([*attrs, f'fillcolor="{box_color(box)}"'])
            lines.append(f"{inner}{at} [{style}];")
    for wire in picture.wires:
        source, target = picture.boxes[wire.source], picture.boxes[wire.target]
        ends = [f"ltail=cluster_{name}_{wire.source}"] * bool(source.inside)
        ends += [f"lhead=cluster_{name}_{wire.target}"] * bool(target.inside)
        attrs = ", ".join([f"label={dot_string(wire.label)}", *ends])
        lines.append(f"{inner}{name}_{wire.source} -> {name}_{wire.target} [{attrs}];")
    lines.append(f"{indent}}}")


def box_text(box: DiagramBox) -> str:
    return f"{box.title}\n{box.below}" if box.below else box.title


def box_color(box: DiagramBox) -> str:
    return FILL_COLORS.get(box.mark) or FILL_COLORS.get(box.kind, DEFAULT_COLOR)


def dot_string(text: str) -> str:
    """A DOT string: backslashes and what could be a character reference are escaped."""
    escaped = printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n") + '"'


# ---- Mermaid


def mermaid(pictures: Sequence[Diagram]) -> str:
    """A flowchart with a subgraph for each region. Source: Mermaid, Flowcharts - Basic Syntax."""
    lines = ["flowchart TB"]
    styles: dict[str, list[str]] = {}
    for i, each in enumerate(pictures):
        mermaid_subgraph(each, f"p{i}", each.title, "  ", lines, styles)
    for kind, names in styles.items():
        lines.append(f"  classDef {kind} fill:{FILL_COLORS[kind]},stroke:#8c959f,color:#1f2328")
        lines.append(f"  class {','.join(names)} {kind}")
    return "\n".join([*lines, ""])


def mermaid_subgraph(
    picture: Diagram, name: str, title: str, indent: str, lines: list[str], styles: dict[str, list[str]]
) -> None:
    inner = indent + "  "
    lines.append(f'{indent}subgraph {name}["{mermaid_escape(title) or " "}"]')
    for i, box in enumerate(picture.boxes):
        at = f"{name}_{i}"
        kind = box.mark or box.kind
        if kind in FILL_COLORS:
            styles.setdefault(kind, []).append(at)
        if box.inside:
            lines.append(f'{inner}subgraph {at}["{mermaid_escape(box_text(box))}"]')
            for k, region in enumerate(box.inside):
                mermaid_subgraph(region, f"{at}_{k}", region.title, inner + "  ", lines, styles)
            lines.append(f"{inner}end")
        else:
            first, last = ("([", "])") if box.kind in ("param", "result") else ("[", "]")
            lines.append(f'{inner}{at}{first}"{mermaid_escape(box_text(box))}"{last}')
    for wire in picture.wires:
        lines.append(f'{inner}{name}_{wire.source} -->|"{mermaid_escape(wire.label)}"| {name}_{wire.target}')
    lines.append(f"{indent}end")


def mermaid_escape(text: str) -> str:
    """A quoted Mermaid text: characters with a meaning in Mermaid or HTML become character references."""
    safe = set(" _.,:+-=()")
    parts = [c if c.isalnum() or c in safe else "<br/>" if c == "\n" else f"#{ord(c)};" for c in text]
    return "".join(parts)


# ---- JSON


def picture_as_json(picture: Diagram) -> dict[str, Any]:
    """Boxes and wires as data: a wire refers to boxes by their index in its own diagram."""
    boxes = [
        {
            "kind": box.kind, "title": box.title, "below": box.below, "mark": box.mark, "tip": box.tip,
            "file": box.span.source.name if box.span is not None else None,
            "line": box.span.position[0] if box.span is not None else None,
            "inside": [picture_as_json(p) for p in box.inside],
        }
        for box in picture.boxes
    ]  # fmt: skip
    wires = [{"from": w.source, "port": w.port, "to": w.target, "name": w.name, "type": w.type} for w in picture.wires]
    return {"title": picture.title, "marks": dict(picture.legend), "boxes": boxes, "wires": wires}
