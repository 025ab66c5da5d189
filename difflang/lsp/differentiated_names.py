"""Activity marks for semantic tokens: functions that a file differentiates, their parameters, and what depends on them.

The analysis uses syntax and the known types, for highlighting only: in a function that is differentiated somewhere in a
file, a name is marked if a derivative may flow through its value. `stop` ends the flow.
"""

from __future__ import annotations

from collections.abc import Iterator

from difflang.base.source import Span
from difflang.elaborate.calls.builtin_functions import TRANSFORM_NAMES
from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.name_resolution import callee_declaration, operator_name, type_at
from difflang.lsp.symbol_table import NameBinding, NameUse, symbols_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, pattern_names
from difflang.types.language_types import UNIT, tangent_type

DERIVATIVE_OPERATORS = frozenset(TRANSFORM_NAMES) - {"vmap"}
MAX_ROUNDS = 4  # passes over a body: a value carried by a loop reaches code above it


def differentiated_bindings(document: Document) -> set[NameBinding]:
    """The functions that a file differentiates, the parameters concerned, and what depends on them."""
    found: set[NameBinding] = set()
    for piece in document.parts:
        for fn, places in derivative_calls(piece):
            goal = callee_declaration(document, piece, fn)
            if goal is None:
                continue
            where = next((p for p in goal[0].parts if p.source is goal[1].span.source), None)
            if where is not None:
                found |= active_bindings(where, goal[1], places)
    return found


def derivative_calls(piece: ParsedPart) -> list[tuple[tree.Node, tuple[str | int, ...]]]:
    """Each function that a part differentiates, with its parameters by name or position."""
    # Cached per part: most parts do not change between requests.
    if "derivatives" not in piece.cache:
        piece.cache["derivatives"] = [
            found for item in piece.items for node in all_nodes(item) for found in derivative_operand(node)
        ]
    kept = piece.cache["derivatives"]
    assert isinstance(kept, list)
    return kept  # pyright: ignore[reportUnknownVariableType]


def derivative_operand(node: tree.Node) -> Iterator[tuple[tree.Node, tuple[str | int, ...]]]:
    match node:
        case tree.Prime(base=base):
            yield base, (0,)
        case tree.Call(fn=fn, args=(arg, *_)) if operator_name(fn) in DERIVATIVE_OPERATORS:
            written = fn.subscripts if isinstance(fn, tree.Index) else ()
            yield arg.value, tuple([wrt_root(place) for place in written]) or (0,)
        case _:
            pass


def wrt_root(place: tree.Expr) -> str | int:
    """The parameter in `w`, `m.w` or `0`."""
    while isinstance(place, tree.Member):
        place = place.base
    return place.value if isinstance(place, tree.Int) else place.id if isinstance(place, tree.Name) else 0


def active_bindings(piece: ParsedPart, decl: tree.Node, places: tuple[str | int, ...]) -> set[NameBinding]:
    """A function, its parameters at some positions, and what in its body depends on them."""
    names = symbols_of(piece)
    params = decl.params if isinstance(decl, (tree.Fn, tree.Lambda)) else ()
    chosen = {id(p) for i, p in enumerate(params) if i in places or param_name(p) in places}
    found = {b for b in names.bindings if b.kind == "parameter" and id(b.node) in chosen}
    if isinstance(decl, (tree.Fn, tree.Lambda)):
        propagate_activity(piece, decl.body, found)
    return found | {b for b in names.bindings if b.kind == "function" and b.node is decl}


def param_name(param: tree.Param | tree.LambdaParam) -> str:
    if isinstance(param, tree.Param):
        return param.name
    return param.pattern.name if isinstance(param.pattern, tree.NamePattern) else ""


def propagate_activity(piece: ParsedPart, body: tree.Expr, found: set[NameBinding]) -> None:
    """Add the bindings whose values depend on those in `found`, if they may have a tangent."""
    names = symbols_of(piece)
    parts = all_nodes(body)
    # Uses inside `stop(…)` carry no derivative.
    stopped = [n.span for n in parts if isinstance(n, tree.Call) and operator_name(n.fn) == "stop"]
    mine = [u for u in names.uses if u.binding is not None and body.span.start <= u.span.start < body.span.end]
    mine = [u for u in mine if not any(s.start <= u.span.start < s.end for s in stopped)]
    for _ in range(MAX_ROUNDS):
        before = len(found)
        for node in parts:
            for value, to in value_flows(node, mine):
                if any(is_within(u, value) and u.binding in found for u in mine):
                    found |= {b for b in (to or bindings_of_node(piece, node)) if may_have_tangent(piece, b)}
        if len(found) == before:
            return


def value_flows(node: tree.Node, uses: list[NameUse]) -> Iterator[tuple[Span, list[NameBinding]]]:
    """Each assigned expression, with the names that it flows to; an empty list stands for the names that the node
    binds.
    """
    match node:
        case tree.Let(value=value) | tree.Var(value=value):
            yield value.span, []
        case tree.For(iterable=value):
            yield value.span, []
        case tree.Assign(target=into, value=value) | tree.Update(target=into, value=value):
            first = into
            while isinstance(first, (tree.Index, tree.Member)):
                first = first.base
            named = [u.binding for u in uses if is_within(u, first.span) and u.binding is not None]
            if named:
                yield value.span, named
        case _:
            pass


def bindings_of_node(piece: ParsedPart, node: tree.Node) -> list[NameBinding]:
    """The names that a `let`, `var` or `for` binds."""
    pattern = getattr(node, "pattern", None)
    names = set(pattern_names(pattern)) if pattern is not None else set[str]()
    return [b for b in symbols_of(piece).bindings if b.node is node and b.name in names]


def is_within(use: NameUse, span: Span) -> bool:
    return span.start <= use.span.start < span.end


def may_have_tangent(piece: ParsedPart, binding: NameBinding) -> bool:
    """Whether a value may have a tangent: true unless its type is known to have none."""
    type = type_at(piece, binding.span.start, binding.span.end)
    return type is None or tangent_type(type) != UNIT
