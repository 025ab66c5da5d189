"""Layered layout of a diagram: boxes in layers, few crossings, almost straight wires.

Source: Sugiyama, Tagawa and Toda 1981, Methods for Visual Understanding of Hierarchical System Structures. Positions
within a layer are found by isotonic regression (Barlow et al. 1972), which is exact and linear.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct, field

from difflang.tools.viz.diagram import Diagram, DiagramBox, DiagramWire

# All lengths are in pixels.
# The width of a monospaced letter in the 12 px and the 10 px font.
CHAR, SMALL = 7.3, 6.1
LINE, PAD, GAP, WIRE_GAP = 17.0, 10.0, 22.0, 12.0
# Between two layers, without and with types beside the wires; and the straight start of a labelled wire.
LAYER_GAP, LABELED_GAP, STUB = 26.0, 50.0, 17.0
MARGIN, HEAD = 14.0, 24.0  # around the contents of a box, and for its title
SWEEPS, ROUNDS = 12, 24  # of crossing reduction, and of positioning
WIDEST = 30  # the longest wire label, in letters, that widens its box


class LayoutItem(Struct, eq=False):
    """A box, or a dummy node where a wire crosses a layer."""

    box: DiagramBox | None
    layer: int
    width: float
    height: float
    x: float = 0.0  # its horizontal centre
    y: float = 0.0  # its top
    predecessors: list[LayoutItem] = field(default_factory=list["LayoutItem"])
    successors: list[LayoutItem] = field(default_factory=list["LayoutItem"])
    inside: tuple[PlacedDiagram, ...] = ()
    outputs: int = 1

    @property
    def left(self) -> float:
        return self.x - self.width / 2


class WirePath(Struct, frozen=True, eq=False):
    """A wire, or the part that several share, as a polyline. With `tip` it ends at a box."""

    points: tuple[tuple[float, float], ...]
    label: str
    wire: DiagramWire
    tip: bool


class PlacedDiagram(Struct, frozen=True, eq=False):
    """A diagram with positioned boxes, its own corner at the origin."""

    picture: Diagram
    items: tuple[LayoutItem, ...]
    paths: tuple[WirePath, ...]
    width: float
    height: float


def text_width(text: str) -> int:
    """The width of a text in letters; East Asian wide characters count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def layout_diagram(picture: Diagram) -> PlacedDiagram:
    """Lay out a diagram, inner diagrams first. Cost: about linear in wires times the layers they cross."""
    labels = wire_labels(picture)
    items = [make_item(i, box, picture, labels) for i, box in enumerate(picture.boxes)]
    assign_layers(items, picture)
    chains = add_dummy_nodes(items, picture)
    rows: list[list[LayoutItem]] = [[] for _ in range(max(i.layer for i in items) + 1)]
    for item in [*items, *[i for chain in chains.values() for i in chain]]:
        rows[item.layer].append(item)
    reduce_crossings(rows)
    assign_x(rows)
    assign_y(rows, labelled={items[s].layer for s, _ in labels})
    shift_to_origin(rows)
    paths = route_wires(items, picture, chains, labels)
    width = max([i.x + i.width / 2 for row in rows for i in row])
    width = max([width, *[p.points[0][0] + 5 + SMALL * text_width(p.label) for p in paths if p.label]])
    height = max(i.y + i.height for row in rows for i in row)
    return PlacedDiagram(picture, tuple(items), tuple(paths), width, height)


def wire_labels(picture: Diagram) -> dict[tuple[int, int], str]:
    """The labels at the start of each value's wires. A parameter's box already shows its name."""
    return {(w.source, w.port): w.type if picture.boxes[w.source].kind == "param" else w.label for w in picture.wires}


def make_item(i: int, box: DiagramBox, picture: Diagram, labels: dict[tuple[int, int], str]) -> LayoutItem:
    width = max(CHAR * text_width(box.title), SMALL * text_width(box.below)) + 2 * PAD
    height = LINE * (1 + bool(box.below)) + 8
    inside = tuple([layout_diagram(p) for p in box.inside])
    if inside:
        width = max(width, sum(p.width for p in inside) + MARGIN * (len(inside) + 1))
        titled = any(p.picture.title for p in inside)
        height = HEAD + LINE * bool(box.below) + LINE * titled + max(p.height for p in inside) + MARGIN
    mine = [text for (source, _), text in labels.items() if source == i]
    if len(mine) > 1:
        width = max(width, sum(SMALL * min(text_width(t), WIDEST) + 12 for t in mine))
    outputs = max([w.port for w in picture.wires if w.source == i], default=0) + 1
    return LayoutItem(box, 0, width, height, inside=inside, outputs=outputs)


def assign_layers(items: Sequence[LayoutItem], picture: Diagram) -> None:
    """Each box below all that it reads; parameters first, results last, a box without inputs just above its first
    reader.
    """
    # Wires are in program order of their targets, so that each source has its final layer.
    for wire in picture.wires:
        items[wire.target].layer = max(items[wire.target].layer, items[wire.source].layer + 1)
    last = max(i.layer for i in items)
    readers: dict[int, int] = {}
    reads = {w.target for w in picture.wires}
    for wire in picture.wires:
        readers[wire.source] = min(readers.get(wire.source, last), items[wire.target].layer)
    for i, item in enumerate(items):
        assert item.box is not None
        if item.box.kind == "result":
            item.layer = max(last, 1) if i in reads or last else 1
        elif item.box.kind != "param" and i not in reads:
            item.layer = max(readers.get(i, 1) - 1, 0)


Chains = dict[tuple[int, int], list[LayoutItem]]


def add_dummy_nodes(items: Sequence[LayoutItem], picture: Diagram) -> Chains:
    """Add dummy nodes where values cross layers, shared by all readers of a value, and connect neighbours."""
    chains: Chains = {}
    for wire in picture.wires:
        source, target = items[wire.source], items[wire.target]
        chain = chains.setdefault((wire.source, wire.port), [])
        while source.layer + len(chain) + 1 < target.layer:
            item = LayoutItem(None, source.layer + len(chain) + 1, 2.0, 0.0)
            connect_items(chain[-1] if chain else source, item)
            chain.append(item)
        connect_items(wire_predecessor(source, target, chain), target)
    return chains


def wire_predecessor(source: LayoutItem, target: LayoutItem, chain: Sequence[LayoutItem]) -> LayoutItem:
    """The start of the last segment of a wire."""
    steps = target.layer - source.layer - 1
    return chain[steps - 1] if steps else source


def connect_items(upper: LayoutItem, lower: LayoutItem) -> None:
    upper.successors.append(lower)
    lower.predecessors.append(upper)


# ---- Crossing reduction: the order within each layer


def reduce_crossings(rows: list[list[LayoutItem]]) -> None:
    """Sort each layer by the barycentres of the layer above, then below, and so on; keep the order with fewest
    crossings.
    """
    best, order = None, [list(row) for row in rows]
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for beside, row in pairwise(rows if down else rows[::-1]):
            places = {item: i for other in (beside, row) for i, item in enumerate(other)}
            row.sort(key=lambda item: barycenter(item, places, down))
        crossed = sum(count_crossings(upper, lower) for upper, lower in pairwise(rows))
        if best is None or crossed < best:
            best, order = crossed, [list(row) for row in rows]
        if not crossed:
            break
    for row, found in zip(rows, order, strict=True):
        row[:] = found


def barycenter(item: LayoutItem, places: dict[LayoutItem, int], down: bool) -> float:
    others = item.predecessors if down else item.successors
    return sum(places[o] for o in others) / len(others) if others else places[item]


def count_crossings(upper: Sequence[LayoutItem], lower: Sequence[LayoutItem]) -> int:
    """The number of crossing wires between two layers: inversions, counted with a Fenwick tree."""
    places = {item: i for i, item in enumerate(lower)}
    ends = [p for item in upper for p in sorted(places[o] for o in item.successors)]
    sums = [0] * (len(lower) + 1)
    found = 0
    for count, end in enumerate(ends):
        at, before = end + 1, 0
        while at:
            before, at = before + sums[at], at & (at - 1)
        found += count - before
        at = end + 1
        while at <= len(lower):
            sums[at] += 1
            at += at & -at
    return found


# ---- Coordinates


def assign_x(rows: list[list[LayoutItem]]) -> None:
    """Place each item near the mean of its neighbours, without overlap."""
    for row in rows:
        position_layer(row, [0.0] * len(row), [1.0] * len(row))
    for round in range(ROUNDS):
        down = round % 2 == 0
        for row in rows if down else rows[::-1]:
            both = round >= ROUNDS // 2
            near = [i.predecessors + i.successors if both else i.predecessors if down else i.successors for i in row]
            pulls = [[wire_weight(i, o) for o in n] for i, n in zip(row, near, strict=True)]
            wants = [
                sum(p * o.x for p, o in zip(ps, n, strict=True)) / sum(ps) if n else i.x
                for i, n, ps in zip(row, near, pulls, strict=True)
            ]
            position_layer(row, wants, [sum(ps) or 0.1 for ps in pulls])


def wire_weight(a: LayoutItem, b: LayoutItem) -> float:
    """How straight a wire should be: most between two dummy nodes."""
    return (1.0, 3.0, 12.0)[(a.box is None) + (b.box is None)]


def position_layer(row: Sequence[LayoutItem], wants: Sequence[float], weights: Sequence[float]) -> None:
    """Place the items of a layer as near as possible to their targets, in order and without overlap."""
    offsets, at = list[float](), 0.0
    for i, item in enumerate(row):
        if i:
            both = item.box is not None and row[i - 1].box is not None
            at += row[i - 1].width / 2 + item.width / 2 + (GAP if both else WIRE_GAP)
        offsets.append(at)
    # Pool adjacent violators: items whose targets are out of order share the weighted mean of their targets.
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for want, weight, offset in zip(wants, weights, offsets, strict=True):
        mean, total, count = want - offset, weight, 1
        while pools and pools[-1][0] >= mean:
            other, much, many = pools.pop()
            mean = (mean * total + other * much) / (total + much)
            total, count = total + much, count + many
        pools.append((mean, total, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    for item, mean, offset in zip(row, means, offsets, strict=True):
        item.x = mean + offset


def assign_y(rows: Sequence[Sequence[LayoutItem]], labelled: set[int]) -> None:
    """Each layer below the previous one; a lower box is centred in its layer."""
    at = 0.0
    for number, row in enumerate(rows):
        tall = max([i.height for i in row], default=0.0)
        for item in row:
            if item.box is None:
                item.height = tall
            item.y = at + (tall - item.height) / 2
        at += tall + (LABELED_GAP if number in labelled else LAYER_GAP)


def shift_to_origin(rows: Sequence[Sequence[LayoutItem]]) -> None:
    left = min(i.left for row in rows for i in row)
    for row in rows:
        for item in row:
            item.x -= left


# ---- Wires


def route_wires(
    items: Sequence[LayoutItem], picture: Diagram, chains: Chains, labels: dict[tuple[int, int], str]
) -> list[WirePath]:
    """The drawn wires; a part that several wires share is drawn once."""
    inputs = input_positions(items, picture, chains)
    found: list[WirePath] = []
    drawn: dict[tuple[int, int], int] = {}
    for n, wire in enumerate(picture.wires):
        key = wire.source, wire.port
        source, target, chain = items[wire.source], items[wire.target], chains[key]
        steps = target.layer - source.layer - 1
        begin = drawn.get(key, 0)
        shared = min(begin, steps)
        points: list[tuple[float, float]] = []
        if not shared:
            x, y = output_x(source, wire.port), source.y + source.height
            points += [(x, y), (x, y + STUB)]
        else:
            points.append((chain[shared - 1].x, chain[shared - 1].y + chain[shared - 1].height))
        for item in chain[shared:steps]:
            points += [(item.x, item.y), (item.x, item.y + item.height)]
        points.append((inputs[n], target.y))
        found.append(WirePath(tuple(points), labels[key] if key not in drawn else "", wire, True))
        drawn[key] = max(begin, steps)
    return found


def output_x(item: LayoutItem, port: int) -> float:
    return item.left + item.width * (port + 1) / (item.outputs + 1)


def input_positions(items: Sequence[LayoutItem], picture: Diagram, chains: Chains) -> dict[int, float]:
    """Where each wire enters its box: side by side in the order of their origins."""
    into: dict[int, list[tuple[float, int]]] = {}
    for n, wire in enumerate(picture.wires):
        source = wire_predecessor(items[wire.source], items[wire.target], chains[wire.source, wire.port])
        x = output_x(source, wire.port) if source.box is not None else source.x
        into.setdefault(wire.target, []).append((x, n))
    found: dict[int, float] = {}
    for target, coming in into.items():
        item = items[target]
        for k, (_, n) in enumerate(sorted(coming)):
            found[n] = item.left + item.width * (k + 1) / (len(coming) + 1)
    return found
