"""`@device(n)`: which parts of a source are placed on which device of the dataflow machine."""

from __future__ import annotations

from typing import NamedTuple

from difflang.base.source import Source, Span
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.syntax.tree_queries import all_nodes

MAX_DEVICES = 1000


def device_number(attribute: tree.Attribute) -> int | None:
    """The device of `@device(n)`; None if it names none."""
    match attribute:
        case tree.Attribute(name="device", args=(tree.Arg(name=None, value=tree.Int(value=n)),)) if n < MAX_DEVICES:
            return n
        case _:
            return None


class PlacedSpan(NamedTuple):
    """A part of a source with its device, and where the program says so."""

    span: Span
    device: int
    said_at: Span


def placed_spans(source: Source) -> list[PlacedSpan]:
    """The functions, loops and variables of a source that say their device, inner ones after those around them."""
    if "@device" not in source.text:
        return []
    return [
        PlacedSpan(node.span, device, attribute.span)
        for item in parse(source).module.items
        for node in all_nodes(item)
        if isinstance(node, tree.Fn | tree.For | tree.While | tree.Let | tree.Var)
        for attribute in node.attributes
        if (device := device_number(attribute)) is not None
    ]
