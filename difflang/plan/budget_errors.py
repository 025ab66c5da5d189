"""Errors for a memory budget that is too small: the smallest possible one, and the source lines that need the most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from difflang.base.byte_sizes import format_bytes
from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.base.source import Source, Span
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ops.loop.residual_selection import total_bytes
from difflang.passes.unroll import DEFAULT_KEEP

if TYPE_CHECKING:
    from difflang.lower.buffer_assignment import BufferAssignment

MAX_LABELS = 3  # source lines that an error shows


def budget_error(
    graph: Graph, limit: int, account: BufferAssignment, least: int, capacity: str = "", *, predicted: bool = False
) -> DifflangError:
    """Errors: DL1012, with the lines that need the most at the peak.

    `capacity` describes the capacities in words; `predicted` tells a prediction from XLA's own account.
    """
    here: dict[tuple[str, int], int] = {}
    for b in account.live_at_peak():
        if b.source_line is not None:
            here[b.source_line] = here.get(b.source_line, 0) + b.bytes
    lines = source_lines(graph)
    most = sorted([(n, place) for place, n in here.items() if place in lines], reverse=True)[:MAX_LABELS]
    labels = [Label(lines[place], f"{format_bytes(n)} for this line at peak memory") for n, place in most]
    # Inside JAX's transformations the buffers have no lines of the program: take the line that computes the most.
    if not labels and (made := largest_line(graph)) is not None:
        labels = [Label(lines[made], "peak memory is reached here")]
    # Rounded up, so that the limit that the message suggests is enough.
    has, needs = format_bytes(limit), format_bytes(least, up=True)
    if has == needs:  # equal when rounded
        has, needs = f"{limit:,} B", f"{least:,} B"
    many, held = (" for that many", f", with capacity for {capacity}") if capacity else ("", "")
    asked = ", predicted: `difflang memory --compile` measures it with XLA" if predicted else ""
    return DifflangError(
        Diagnostic(
            "DL1012",
            f"this derivative does not fit in {has}: it needs at least {needs}{held}",
            tuple(labels),
            (
                f"the smallest possible limit is {format_bytes(least, up=True)}{many}{asked}",
                *unattributed_note(account, lines),
                *checkpoint_hints(graph, here, account.peak),
            ),
        )
    )


def unattributed_note(account: BufferAssignment, lines: Container[tuple[str, int]]) -> list[str]:
    """The bytes that belong to no line, where they are a tenth of the peak or more."""
    there = [b for b in account.live_at_peak() if b.source_line is None or b.source_line not in lines]
    given = sum([b.bytes for b in there if b.role != "between"])
    between = sum([b.bytes for b in there if b.role == "between"])
    parts = {"are arguments and results": given, "belong to no line": between}
    found = [f"{format_bytes(n)} {text}" for text, n in parts.items() if 10 * n >= account.peak > 0]
    return [f"of this minimum, {' and '.join(found)}"] if found else []


def checkpoint_hints(graph: Graph, here: Mapping[tuple[str, int], int], peak: int) -> list[str]:
    """A hint for a loop with a `@checkpoint` policy that takes much of the peak: `auto` lets the limit decide."""
    eqns = [e for g in graphs_postorder(graph)[0] for e in g.eqns if e.attrs.get("keep", DEFAULT_KEEP) != DEFAULT_KEEP]
    places = {(e.span.source.name, e.span.position[0]) for e in eqns}
    much = sorted([place for place in places if 10 * here.get(place, 0) >= peak])
    return [(f"`@checkpoint` decides what the loop at {name}:{line} saves; with `@checkpoint(auto)`, the "
             "limit decides")
            for name, line in much[:1]]  # fmt: skip


def largest_line(graph: Graph) -> tuple[str, int] | None:
    """The line whose equations make the most bytes, steps of loops counted one by one."""
    found, times = Counter[tuple[str, int]](), Counter({graph: 1})
    for inner in reversed(graphs_postorder(graph)[0]):
        for e in inner.eqns:
            if e.span.source.text and not e.regions:
                found[e.span.source.name, e.span.position[0]] += times[inner] * total_bytes(e.results)
            length = e.attrs.get("length")
            for region in e.regions:
                times[region] += times[inner] * (length if isinstance(length, int) else 1)
    return max(found, key=lambda place: found[place], default=None)


def source_lines(graph: Graph) -> dict[tuple[str, int], Span]:
    """The lines of a program that equations come from, each as a span."""
    found: dict[tuple[str, int], Span] = {}
    for inner in graphs_postorder(graph)[0]:
        for e in inner.eqns:
            if e.span.source.text:
                line = e.span.position[0]
                found.setdefault((e.span.source.name, line), line_span(e.span.source, line))
    return found


def line_span(source: Source, line: int) -> Span:
    """The text of a line without the space before and after it."""
    start = source.starts[line - 1]
    end = source.starts[line] if line < len(source.starts) else len(source.text)
    text = source.text[start:end]
    begin = start + len(text) - len(text.lstrip())
    return Span(source, begin, max(begin, start + len(text.rstrip())))
