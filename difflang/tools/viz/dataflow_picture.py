"""Pictures of programs of the dataflow machine: a box for each device, frames nested in it, each Send with its Recv."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

from difflang.base.error_codes import suggestion
from difflang.base.source import NO_SPAN
from difflang.dataflow.nodes import DataflowNode, DataflowProgram, Frame
from difflang.tools.viz.dot_and_mermaid import DEFAULT_COLOR, FILL_COLORS, dot_string, draw_dot, mermaid_escape
from difflang.types.type_errors import make_error

FORMATS = ("dot", "mermaid", "svg", "json")
# Of the nodes that are control flow or communication.
COLORS = {
    "Input": FILL_COLORS["param"], "Switch": "#fff1e5", "Merge": "#fff8c5", "Enter": "#fbefff", "Exit": "#fbefff",
    "NextIteration": "#fbefff", "LoopCond": "#fff1e5", "Send": "#ffebe9", "Recv": "#ffebe9",
}  # fmt: skip
SHAPES = {"Switch": "invtrapezium", "Merge": "trapezium", "LoopCond": "diamond", "Send": "cds", "Recv": "cds"}

Group = tuple[int, Frame | None]  # the nodes of a frame on a device


def draw_program(program: DataflowProgram, form: str, title: str) -> str:
    """The picture of a program in a format. Errors: DL1207 for another format; DL0709 for SVG without Graphviz."""
    match form:
        case "dot":
            return dataflow_dot(program, title)
        case "svg":
            return draw_dot(dataflow_dot(program, title))
        case "mermaid":
            return dataflow_mermaid(program)
        case "json":
            return json.dumps(dataflow_json(program)) + "\n"
        case _:
            raise make_error("DL1207", f"there is no format `{form}` of a picture", help=suggestion(form, FORMATS))


def node_label(node: DataflowNode) -> str:
    """`sin` for an equation, `Switch` for a primitive; below, the line of the program."""
    name = node.what if node.kind == "Op" else " ".join([node.kind, node.what or node.key]).strip()
    return name if node.span is NO_SPAN else f"{name}\nline {node.span.position[0]}"


def grouped(program: DataflowProgram) -> dict[Group, list[DataflowNode]]:
    groups: dict[Group, list[DataflowNode]] = defaultdict(list)
    for node in program.nodes:
        groups[node.device, node.frame].append(node)
    return groups


def edges(program: DataflowProgram) -> Iterator[tuple[int, int, str, str]]:
    """From, to, label and kind: `value`, `control`, or `wire` from a Send to its Recv."""
    receivers = {n.key: n for n in program.nodes if n.kind == "Recv"}
    for node in program.nodes:
        cut = len(node.inputs) - node.controls
        for i, (source, output) in enumerate(node.inputs):
            label = ("false", "true")[output] if source.kind == "Switch" else ""
            yield source.number, node.number, label, "value" if i < cut else "control"
        if node.kind == "Send":
            yield node.number, receivers[node.key].number, node.key, "wire"


EDGE_STYLES = {"value": "", "control": "style=dotted", "wire": 'style=dashed, color="#cf222e", constraint=false'}


def dataflow_dot(program: DataflowProgram, title: str) -> str:
    """A digraph with a cluster for each device and, in it, for each frame. Source: Graphviz, The DOT Language."""
    groups = grouped(program)
    lines = [
        "digraph dataflow {", f"  label={dot_string(title)}; labelloc=t;",
        '  graph [fontname="Courier New"]; node [shape=box, style=filled, fontname="Courier New", fontsize=10];',
        '  edge [fontname="Courier New", fontsize=8, color="#8c959f"];',
    ]  # fmt: skip

    def cluster(device: int, frame: Frame | None, indent: str) -> None:
        for node in groups.get((device, frame), ()):
            color = COLORS.get(node.kind, DEFAULT_COLOR if node.is_work else "#ffffff")
            shape = f", shape={SHAPES[node.kind]}" if node.kind in SHAPES else ""
            lines.append(f'{indent}n{node.number} [label={dot_string(node_label(node))}, fillcolor="{color}"{shape}];')
        for inner in frames_inside(groups, device, frame):
            lines.append(f"{indent}subgraph cluster_{device}_{inner.number} {{")
            lines.append(f'{indent}  label="{inner}"; color="#8250df"; style=rounded;')
            cluster(device, inner, indent + "  ")
            lines.append(f"{indent}}}")

    for device in range(program.devices):
        if program.devices > 1:
            lines.append(f'  subgraph cluster_device_{device} {{ label="device {device}"; color="#0969da";')
        cluster(device, None, "    ")
        if program.devices > 1:
            lines.append("  }")
    for source, target, label, kind in edges(program):
        attrs = ", ".join([a for a in (f"label={dot_string(label)}" if label else "", EDGE_STYLES[kind]) if a])
        lines.append(f"  n{source} -> n{target}{f' [{attrs}]' if attrs else ''};")
    for i, (node, _) in enumerate(program.results):
        lines.append(f'  result_{i} [shape=oval, fillcolor="{FILL_COLORS["result"]}", label="result {i}"];')
        lines.append(f"  n{node.number} -> result_{i};")
    return "\n".join([*lines, "}", ""])


def frames_inside(groups: dict[Group, list[DataflowNode]], device: int, outer: Frame | None) -> list[Frame]:
    """The frames of a device directly inside another one, or outside all; one between may have no node there."""
    found: dict[Frame, None] = {}
    for place, frame in groups:
        inner = frame
        while inner is not None and inner.parent is not outer:
            inner = inner.parent
        if inner is not None and place == device:
            found[inner] = None
    return list(found)


def dataflow_mermaid(program: DataflowProgram) -> str:
    """A flowchart with a subgraph for each device and frame. Source: Mermaid, Flowcharts - Basic Syntax."""
    groups, lines = grouped(program), ["flowchart TB"]

    def subgraph(device: int, frame: Frame | None, indent: str) -> None:
        for node in groups.get((device, frame), ()):
            lines.append(f'{indent}n{node.number}["{mermaid_escape(node_label(node))}"]')
        for inner in frames_inside(groups, device, frame):
            lines.append(f'{indent}subgraph f{device}_{inner.number}["{inner}"]')
            subgraph(device, inner, indent + "  ")
            lines.append(f"{indent}end")

    for device in range(program.devices):
        lines.append(f'  subgraph d{device}["device {device}"]')
        subgraph(device, None, "    ")
        lines.append("  end")
    arrows = {"value": "-->", "control": "-.->", "wire": "==>"}
    for source, target, label, kind in edges(program):
        text = f'|"{mermaid_escape(label)}"|' if label else ""
        lines.append(f"  n{source} {arrows[kind]}{text} n{target}")
    return "\n".join([*lines, ""])


def dataflow_json(program: DataflowProgram) -> dict[str, object]:
    """Nodes and edges as data."""
    nodes = [
        {
            "number": n.number, "kind": n.kind, "what": n.what, "device": n.device, "key": n.key,
            "frame": n.frame.number if n.frame else None, "line": None if n.span is NO_SPAN else n.span.position[0],
            "inputs": [[p.node.number, p.output] for p in n.inputs], "controls": n.controls,
        }
        for n in program.nodes
    ]  # fmt: skip
    return {"devices": program.devices, "nodes": nodes, "results": [[p.node.number, p.output] for p in program.results]}
