"""Values called as the user calls them: by the `let` whose right side an equation is."""

from __future__ import annotations

from difflang.ir.graph import Graph


def hinted(graph: Graph) -> Graph:
    return graph
