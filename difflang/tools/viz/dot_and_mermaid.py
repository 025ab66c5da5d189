"""Diagrams as text for other tools: DOT for Graphviz, Mermaid for Markdown, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difflang.tools.viz.diagram import Diagram, DiagramBox

FILL_COLORS = {"param": "#ddf4ff", "result": "#dafbe1", "new": "#fff1e5", "gone": "#ffebe9", "some": "#fff8c5"}
DEFAULT_COLOR = "#f6f8fa"


def dot(pictures: Sequence[Diagram]) -> str:
    """A digraph with a cluster for each region. Source: Graphviz, The DOT Language."""
    lines = [
        "digraph difflang {", '  node [shape=box, style="rounded,filled", fontname="monospace", fontsize=11];',
        '  edge [fontname="monospace", fontsize=9, color="#8c959f", fontcolor="#656d76"];', "  compound=true;",
    ]  # fmt: skip
    for i, each in enumerate(pictures):
        dot_cluster(each, f"p{i}", each.title, "  ", lines)
    return "\n".join([*lines, "}", ""])


def dot_cluster(picture: Diagram, name: str, title: str, indent: str, lines: list[str]) -> None:
    inner = indent + "  "
    lines += [
        f"{indent}subgraph cluster_{name} {{",
        f'{inner}label={dot_string(title)}; style="rounded"; color="#afb8c1";',
    ]
    for i, box in enumerate(picture.boxes):
        at = f"{name}_{i}"
        if box.inside:
            style = f"label={dot_string(box_text(box))}; bgcolor={dot_string(box_color(box))};"
            lines += [f"{inner}subgraph cluster_{at} {{", f"{inner}  {style}",
                      f'{inner}  {at} [shape=point, style=invis, tooltip={dot_string(box.tip)}];']  # fmt: skip
            for k, region in enumerate(box.inside):
                dot_cluster(region, f"{at}_{k}", region.title, inner + "  ", lines)
            lines.append(f"{inner}}}")
        else:
            style = f"label={dot_string(box_text(box))}, fillcolor={dot_string(box_color(box))}"
            lines.append(f"{inner}{at} [{style}, tooltip={dot_string(box.tip)}];")
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
    """A DOT string: backslashes are escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "")
    return f'"{escaped}"'


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


def pictures_as_json(pictures: Sequence[Diagram]) -> list[dict[str, Any]]:
    """Boxes and wires as data: a wire refers to boxes by their index in its own diagram."""
    return [picture_as_json(p) for p in pictures]


def picture_as_json(picture: Diagram) -> dict[str, Any]:
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
