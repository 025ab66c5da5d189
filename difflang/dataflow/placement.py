"""Placement: which device computes each equation of a graph, at random, by a file, or by estimated times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import prod
from random import Random

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.error_codes import suggestion
from difflang.base.source import NO_SPAN, Source, Span
from difflang.base.wording import count_of
from difflang.ir.graph import Eqn, Graph, Value, graphs_postorder
from difflang.ir.op import OPS
from difflang.ir.tensor_types import History, Type
from difflang.syntax.placed_spans import PlacedSpan, placed_spans


def equations_in_order(graph: Graph) -> list[Eqn]:
    """Every equation of a graph, those of regions first; the order is the same wherever the graph is loaded."""
    return [eqn for g in graphs_postorder(graph)[0] for eqn in g.eqns]


def random_placement(graph: Graph, devices: int, seed: int) -> dict[Eqn, int]:
    """Each equation on a device by chance."""
    random = Random(seed)
    return {eqn: random.randrange(devices) for eqn in equations_in_order(graph)}


# ---- By the program


def placement_in_program(graph: Graph, devices: int) -> dict[Eqn, int]:
    """The device of each equation that is written in a function, loop or `let` with `@device`, the innermost one.

    So equations of a derivative are where their forward equations are. Errors: DL1260 for a device that is not there.
    """
    places: dict[Source, list[PlacedSpan]] = {}
    found: dict[Eqn, int] = {}
    for eqn in equations_in_order(graph):
        if not eqn.span.is_known:
            continue
        source = eqn.span.source
        if source not in places:
            places[source] = placed_spans(source)
        around = [p for p in places[source] if p.span.start <= eqn.span.start and eqn.span.end <= p.span.end]
        if around:
            _, found[eqn], at = max(around, key=lambda p: (p.span.start, -p.span.end))
            if found[eqn] >= devices:
                way = f"there are {count_of(devices, 'device')}, from 0: `--devices {found[eqn] + 1}` makes more"
                raise placement_error(f"there is no device {found[eqn]}", at, way)
    return found


# ---- By estimated times

# An equation takes about as long to fire as so many elements to compute, and a token to send as long as five firings:
# measured on this executor, 5 µs and 25 µs.
ELEMENTS_PER_FIRING = 10_000
FIRINGS_PER_TOKEN = 5.0


def automatic_placement(graph: Graph, said: Mapping[Eqn, int], devices: int) -> dict[Eqn, int]:
    """Each equation of the graph where it ends first, by list scheduling; the regions of an equation stay with it.

    Those with a device in `said` stay there.
    """
    free = [0.0] * devices
    ends: dict[Value, tuple[float, int]] = dict.fromkeys(graph.params, (0.0, 0))
    placed: dict[Eqn, int] = {}

    def earliest(eqn: Eqn, device: int) -> float:
        arrive = [
            end + (where != device) * (FIRINGS_PER_TOKEN + elements(v.type) / ELEMENTS_PER_FIRING)
            for v in eqn.operands
            for end, where in (ends[v],)
        ]
        return max([free[device], *arrive])

    for eqn in graph.eqns:
        starts = [earliest(eqn, d) for d in range(devices)]
        device = said[eqn] if eqn in said else min(range(devices), key=lambda d: starts[d])
        free[device] = starts[device] + estimated_time(eqn)
        ends |= dict.fromkeys(eqn.results, (free[device], device))
        inside = [e for region in eqn.regions for e in equations_in_order(region)]
        # A region that several equations share stays where the first one is.
        placed |= {e: said.get(e, device) for e in [eqn, *inside] if e not in placed}
    return placed


def estimated_time(eqn: Eqn) -> float:
    """The time of an equation, in firings. A loop of unknown length counts as one step."""
    counted = eqn.op.cost(*[v.type for v in eqn.operands], **eqn.attrs) if eqn.op.cost is not None else None
    flops = counted if isinstance(counted, int) else sum(elements(r.type) for r in eqn.results)
    inside = sum(estimated_time(e) for region in eqn.regions for e in region.eqns)
    steps = eqn.attrs.get("length") if eqn.regions else 1
    return 1.0 + flops / ELEMENTS_PER_FIRING + inside * (steps if isinstance(steps, int) else 1)


def elements(type: Type) -> int:
    return 0 if isinstance(type, History) else prod([n for n in type.shape if isinstance(n, int)])


# ---- By a file


class PlacementRule(Struct, frozen=True):
    """What a line of a placement says: equations from these lines of a source, of this op, or all others."""

    device: int
    source: str = ""  # its name, or the last parts of its path
    first: int = 0
    last: int = 0
    op: str = ""

    def matches(self, eqn: Eqn) -> bool:
        if self.op:
            return eqn.op.name == self.op
        if not self.first:
            return True
        name = eqn.span.source.name
        if eqn.span is NO_SPAN or not (not self.source or name == self.source or name.endswith(f"/{self.source}")):
            return False
        return self.first <= eqn.span.position[0] <= self.last


RULE = re.compile(
    r"(?:line\s+(?:(?P<source>\S+):)?(?P<first>\d{1,9})(?:\s*-\s*(?P<last>\d{1,9}))?|op\s+(?P<op>\w+)|(?P<rest>rest))"
    r"\s*=\s*(?P<device>\d{1,9})"
)
FORMS = "write `line 3 = 1`, `line model.dfl:3-7 = 1`, `op sin = 2` or `rest = 0`; the last line that fits counts"


def read_placement(source: Source, devices: int) -> Callable[[Graph, Mapping[Eqn, int]], dict[Eqn, int]]:
    """A placement by the lines of a text, of those equations that a line names.

    Errors: DL1260 at a line that is none, names no op, or a device that is not there.
    """
    rules = list(parse_rules(source, devices))

    def place(graph: Graph, said: Mapping[Eqn, int]) -> dict[Eqn, int]:
        return {
            eqn: rule.device
            for eqn in equations_in_order(graph)
            if (rule := next((r for r in reversed(rules) if r.matches(eqn)), None)) is not None
        }

    return place


def parse_rules(source: Source, devices: int) -> Iterator[PlacementRule]:
    start = 0
    for line in source.text.splitlines(keepends=True):
        said = line.partition("#")[0].strip()
        at = Span(source, start, start + len(line.rstrip()))
        start += len(line)
        if not said:
            continue
        found = RULE.fullmatch(said)
        if found is None:
            raise placement_error("this line places nothing", at, FORMS)
        device, op = int(found["device"]), found["op"] or ""
        if device >= devices:
            raise placement_error(
                f"there is no device {device}", at, f"there are {count_of(devices, 'device')}, from 0"
            )
        if op and op not in OPS:
            raise placement_error(f"there is no op `{op}`", at, suggestion(op, list(OPS), "`difflang ops` lists them"))
        first = int(found["first"] or 0)
        last = int(found["last"] or first)
        if found["first"] and not 1 <= first <= last:
            raise placement_error(
                "there are no such lines", at, "lines count from 1, and a range goes upwards: `line 3-7`"
            )
        yield PlacementRule(device, found["source"] or "", first, last, op)


def placement_error(message: str, at: Span | None, help: str) -> DifflangError:
    """Errors of placements have the code DL1260."""
    labels = () if at is None else (Label(at),)
    return DifflangError(Diagnostic("DL1260", message, labels, (help,) if help else ()))
