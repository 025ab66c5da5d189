"""A graph as a diagram of boxes and wires, before layout: which equations are shown, folded or highlighted.

A region is closed, so it is a diagram inside the box of its equation, and no wire crosses the border of a box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.symbolic_dims import Poly
from difflang.ir.text_printer import attr_text, eqn_text
from difflang.ops.arrays.constants import const
from difflang.ops.control.cond import cond
from difflang.ops.loop.loop_op import loop

MAX_EQUATIONS = 300  # of a larger graph some are folded
MAX_CAPTION = 34  # characters of source text below an op
MAX_CONSTANT = 12  # the longest constant shown inside the box that uses it
BoxKind = Literal["param", "eqn", "region", "folded", "again", "result"]
EqnHighlights = Mapping[Eqn, str]


class DiagramBox(Struct, frozen=True, eq=False):
    """A parameter, one or more equations, or the results; `again` refers to a region drawn before.

    `tip` is its tooltip.
    """

    kind: BoxKind
    title: str
    below: str = ""
    tip: str = ""
    mark: str = ""
    span: Span | None = None
    inside: tuple[Diagram, ...] = ()


class DiagramWire(Struct, frozen=True):
    """A wire from result `port` of one box to another: a value with its name, if any, and its type."""

    source: int
    port: int
    target: int
    name: str
    type: str

    @property
    def label(self) -> str:
        return f"{self.name}: {self.type}" if self.name else self.type


class Diagram(Struct, frozen=True, eq=False):
    """Boxes in program order, and the wires between them."""

    title: str
    boxes: tuple[DiagramBox, ...]
    wires: tuple[DiagramWire, ...]
    # The meaning of the marks.
    legend: Mapping[str, str] = field(default_factory=dict[str, str])

    def folded(self) -> bool:
        """Whether some equations are folded into one box."""
        return any(b.kind == "folded" or any(p.folded() for p in b.inside) for b in self.boxes)


def build_diagram(
    graph: Graph,
    title: str,
    highlights: EqnHighlights | None = None,
    *,
    max_equations: int | None = MAX_EQUATIONS,
    legend: Mapping[str, str] | None = None,
) -> Diagram:
    """The diagram of a graph. Beyond `max_equations`, inner regions are folded, then neighbours from one source line.

    Cost: linear in what is shown; a graph that is used several times is drawn at its first use.
    """
    opened = choose_open_regions(graph, max_equations)
    return DiagramBuilder(highlights or {}, opened, max_equations).build(graph, title, legend or {})


def choose_open_regions(graph: Graph, most: int | None) -> set[Graph]:
    """The regions to show, outer ones first, up to `most` equations."""
    if most is None:
        return set(graphs_postorder(graph)[0])
    # Breadth first, so that what is folded lies deepest.
    opened, shown, todo = {graph}, len(graph.eqns), [graph]
    for outer in todo:
        for eqn in outer.eqns:
            inside = [r for r in eqn.regions if r not in opened]
            more = sum(len(r.eqns) for r in inside)
            if inside and shown + more <= most:
                shown += more
                opened.update(inside)
                todo += inside
    return opened


class DiagramBuilder:
    """Builds one diagram. No graph is drawn twice."""

    def __init__(self, marks: EqnHighlights, opened: set[Graph], most: int | None) -> None:
        self.highlights, self.opened, self.most = marks, opened, most
        self.drawn: set[Graph] = set()

    def build(self, graph: Graph, title: str, legend: Mapping[str, str] | None = None) -> Diagram:
        constants = inline_constants(graph)
        boxes: list[DiagramBox] = []
        made: dict[Value, tuple[int, int]] = {}
        wires: dict[tuple[int, int, int], DiagramWire] = {}

        def add(box: DiagramBox, operands: Sequence[Value], results: Sequence[Value]) -> None:
            at = len(boxes)
            for value in operands:
                if value in made:
                    source, port = made[value]
                    wires.setdefault((source, port, at), DiagramWire(source, port, at, value.hint, str(value.type)))
            made.update({value: (at, port) for port, value in enumerate(results)})
            boxes.append(box)

        for i, param in enumerate(graph.params):
            name = param.hint or f"#{i + 1}"
            add(DiagramBox("param", name, tip=f"{name}: {param.type}"), (), (param,))
        for run in group_equations(
            [e for e in graph.eqns if e.results == () or e.results[0] not in constants], self.most
        ):
            if len(run) == 1:
                add(self.make_box(run[0], constants), run[0].operands, run[0].results)
            else:
                add(fold_equations(run, self.highlights), *inputs_and_outputs(run))
        shown = [constants[r] for r in graph.results if r in constants]
        add(DiagramBox("result", " ".join(["yield", *shown]) if shown else "yield"), graph.results, ())
        return Diagram(title, tuple(boxes), tuple(wires.values()), legend or {})

    def make_box(self, eqn: Eqn, constants: Mapping[Value, str]) -> DiagramBox:
        """The box of one equation, with its regions unless they were drawn before."""
        name, tip = str(eqn.attrs.get("name") or ""), box_tooltip(eqn)
        title = f"{eqn.op.name} {name}".rstrip()
        if not eqn.regions and any(v in constants for v in eqn.operands):
            title += " " + ", ".join(constants.get(v, "·") for v in eqn.operands)
        span = eqn.span if eqn.span.is_known else None
        mark = self.highlights.get(eqn, "")
        if not eqn.regions:
            return DiagramBox("eqn", title, source_caption(eqn), tip, mark, span)
        # A region drawn before is only referred to.
        fresh = [r for r in dict.fromkeys(eqn.regions) if r in self.opened and r not in self.drawn]
        self.drawn.update(fresh)
        if not fresh:
            again = any(r in self.drawn for r in eqn.regions)
            count = sum(len(r.eqns) for r in eqn.regions)
            kind, below = ("again", "as above") if again else ("folded", f"{count} inside")
            return DiagramBox(kind, title, below, tip, mark, span)
        names = region_names(eqn)
        inside = tuple([self.build(r, names[eqn.regions.index(r)]) for r in fresh])
        return DiagramBox("region", title, source_caption(eqn), tip, mark, span, inside)


def region_names(eqn: Eqn) -> list[str]:
    """Titles for the regions of an equation."""
    match len(eqn.regions):
        case 1:
            return [""]
        case 2 if eqn.op is cond:
            return ["then", "else"]
        case 2 if eqn.op is loop:
            return ["step", "goes on"]
        case count:
            return [f"part {i}" for i in range(1, count + 1)]


def inline_constants(graph: Graph) -> dict[Value, str]:
    """The scalar constants to show inside the boxes that use them."""
    found: dict[Value, str] = {}
    for eqn in graph.eqns:
        if eqn.op is const and "value" in eqn.attrs and not isinstance(eqn.attrs["value"], tuple):
            value = eqn.attrs["value"]
            text = str(value) if isinstance(value, Poly) else attr_text(value)
            if len(text) <= MAX_CONSTANT:
                found[eqn.results[0]] = text
    return found


def group_equations(eqns: Sequence[Eqn], most: int | None) -> list[list[Eqn]]:
    """Equations one by one; if they are too many, grouped by source line, then as far as needed."""
    if most is None or len(eqns) <= most:
        return [[e] for e in eqns]
    return merge_neighbors(merge_neighbors([[e] for e in eqns], most, same_line), most, lambda a, b: True)


def merge_neighbors(found: list[list[Eqn]], most: int, fit: Callable[[Eqn, Eqn], bool]) -> list[list[Eqn]]:
    """Merge neighbours that fit; if all do, into groups of equal size."""
    if len(found) <= most:
        return found
    # Rounded up, so that at most `most` groups remain.
    size = -(-len(found) // most)
    together: list[list[Eqn]] = []
    counts: list[int] = []
    for run in found:
        if together and fit(together[-1][-1], run[0]) and (fit is same_line or counts[-1] < size):
            together[-1] += run
            counts[-1] += 1
        else:
            together.append(list(run))
            counts.append(1)
    return together


def same_line(a: Eqn, b: Eqn) -> bool:
    return a.span.is_known and b.span.is_known and span_line(a.span) == span_line(b.span)


def span_line(span: Span) -> tuple[Any, int]:
    return span.source, span.position[0]


def fold_equations(run: Sequence[Eqn], marks: EqnHighlights) -> DiagramBox:
    """One box for several equations."""
    spans = [e.span for e in run if e.span.is_known]
    lines = sorted({s.position[0] for s in spans})
    where = f"line {lines[0]}" + (f" to {lines[-1]}" if lines[-1:] != lines[:1] else "") if lines else ""
    found = {marks.get(e, "") for e in run}
    mark = found.pop() if len(found) == 1 else "some" if marks else ""
    tip = "\n".join([e.op.name for e in run[:20]] + (["…"] if len(run) > 20 else []))
    return DiagramBox("folded", count_of(len(run), "equation"), where, tip, mark, spans[0] if spans else None)


def inputs_and_outputs(run: Sequence[Eqn]) -> tuple[list[Value], list[Value]]:
    """The values that several equations read from outside, and those that they define."""
    results = [r for e in run for r in e.results]
    own = set(results)
    return [v for e in run for v in e.operands if v not in own], results


def source_caption(eqn: Eqn) -> str:
    """The source text of an equation, with its line."""
    if not eqn.span.is_known:
        return ""
    text = " ".join(eqn.span.text.split("\n")[0].split())
    return f"{eqn.span.position[0]}: {text if len(text) <= MAX_CAPTION else text[: MAX_CAPTION - 1] + '…'}"


def box_tooltip(eqn: Eqn) -> str:
    """The full equation with types, its position, and its source line."""
    text = eqn_text(eqn)
    shown = text if len(text) <= 600 else text[:599] + "…"
    if not eqn.span.is_known:
        return shown
    line = eqn.span.position[0]
    return f"{shown}\n{eqn.span}\n{eqn.span.source.line(line).strip()}"
