"""Regions of control flow: the variables that they assign, and closing them over the same consts."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.elaborate.context import ElabContext
from difflang.elaborate.scope import LocalBinding
from difflang.elaborate.terms import Array, PoisonTerm, Term, Tuple
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph, Value
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.syntax import tree
from difflang.syntax.tree_queries import assigned_names


def assigned_variables(cx: ElabContext, *parts: tree.Node | None) -> list[LocalBinding]:
    """The outer variables that a piece of code assigns, with the failure word last."""
    names = dict.fromkeys(name for part in parts if part is not None for name in assigned_names(part))
    found = [*[cx.scope.find(name) for name in names], cx.failure_word]
    return [b for b in found if b is not None and b.mutable and not isinstance(b.term, (PoisonTerm, int, Poly))]


def close_regions(
    builders: Sequence[Builder],
    results: Sequence[Sequence[Value]],
    own: Sequence[Sequence[Value]],
    split: Sequence[int],
) -> tuple[list[Value], list[Graph]]:
    """Finish regions that take the same consts. Returns the consts and the graphs.

    `own[i]` are the other params of region i; the consts are inserted after the first `split[i]` of them.
    """
    for builder, values in zip(builders, results, strict=True):
        for value in values:
            builder.capture(value)
    # A dict keeps the order of first capture, so graphs are the same from run to run.
    consts = list(dict.fromkeys(c for b in builders for c in b.captures))
    graphs: list[Graph] = []
    for builder, values, params, at in zip(builders, results, own, split, strict=True):
        shared = [builder.captures.get(c) or Value(c.type, builder, c.hint) for c in consts]
        graphs.append(builder.finish(values, params=[*params[:at], *shared, *params[at:]]))
    return consts, graphs


def rebind_term(old: Term | Dim, new: Term) -> Term:
    """A variable's new term, which keeps only the origin of its declared type."""
    return Array(new.value, origin=old.origin) if isinstance(new, Array) and isinstance(old, Array) else new


def drop_static(value: Term) -> Term:
    """A variable's value without static facts, since assignments may change it at run time."""
    if isinstance(value, Array):
        return Array(value.value, origin=value.origin)
    if isinstance(value, Tuple):
        return Tuple(tuple(map(drop_static, value.items)), value.function_type)
    return value
