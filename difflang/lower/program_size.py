"""What regions add up to: which functions are shared, and how large the program is. No JAX here."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from difflang.base.diagnostics import Diagnostic, DifflangError, Label
from difflang.ir.graph import Graph, graphs_postorder

MIN_SHARED_LENGTH = 8  # a body this short is copied where it is called
MAX_PROGRAM_SIZE = 50_000  # equations in one compilation, written out: jaxlib survives more, but takes minutes


class RegionCensus(Struct, frozen=True):
    """What stands in a program."""

    uses: Counter[Graph]  # how many regions each graph is
    size: int  # equations, a shared graph counted once
    expanded: int  # equations, were each region written out where it is used

    def is_shared(self, body: Graph) -> bool:
        """It is called more than once, and worth being a function of its own."""
        return self.uses[body] > 1 and len(body.eqns) >= MIN_SHARED_LENGTH


def count_equations(root: Graph) -> RegionCensus:
    """Every graph of a program is visited once, inner ones first."""
    order, uses = graphs_postorder(root)
    expanded: dict[Graph, int] = {}
    for graph in order:
        expanded[graph] = len(graph.eqns) + sum([expanded[r] for e in graph.eqns for r in e.regions])
    return RegionCensus(uses, sum([len(g.eqns) for g in order]), expanded[root])


def refuse_too_large(root: Graph, found: RegionCensus) -> None:
    """Errors: DL1010 for a program beyond what the back end survives."""
    if found.expanded > MAX_PROGRAM_SIZE:
        where = (Label(root.eqns[0].span),) if root.eqns else ()
        raise DifflangError(
            Diagnostic(
                "DL1010",
                f"{root.name or 'this program'} comes to {describe_size(found)}; the back end takes {MAX_PROGRAM_SIZE:,} at once",
                where,
                (size_hint(found),),
            )
        )


def size_hint(found: RegionCensus) -> str:
    """What makes it shorter: of straight code, and of functions that are called in many places."""
    if found.expanded > 2 * found.size:
        return "a function stands there once for each call of it: call it in the body of a loop or a comprehension"
    return (
        "what is repeated counts once in the body of a `for` loop or a comprehension;"
        " a function counts once for each kind of arguments that it is called with"
    )


def describe_size(found: RegionCensus) -> str:
    """Its length, as far as a person wants to know it."""
    length = f"{found.expanded:,}" if found.expanded < 10**12 else "more than 10¹²"
    return f"{length} equations" + (
        f", each call written out ({found.size:,} are different)" if found.size < found.expanded else ""
    )
