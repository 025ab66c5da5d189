"""Semantic tokens: the kind of each name, for highlighting beyond an editor's grammar.

The modifier of a size is one of eight, chosen by its name, so that a theme can show `n` in the same colour everywhere.
In a function that is differentiated somewhere in a file, names through whose values a derivative may flow, by syntax
and the known types, have a modifier too; `stop` ends the flow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from lsprotocol import types as lsp

from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import TRANSFORM_NAMES
from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.name_resolution import NameOccurrence, callee_declaration, definition_of, operator_name, type_at
from difflang.lsp.positions import PositionMap
from difflang.lsp.symbol_table import NameBinding, NameUse, symbols_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, pattern_names
from difflang.types.language_types import UNIT, tangent_type

SIZE_COLOURS = 8  # the hash of a name gives each of `n m k d h i o b` a different one
TYPES = ("function", "struct", "enum", "enumMember", "property", "parameter", "variable", "typeParameter", "namespace")
MODIFIERS = (
    "declaration", "readonly", "defaultLibrary", "differentiated", *[f"dim{i}" for i in range(1, SIZE_COLOURS + 1)],
)  # fmt: skip
LEGEND = lsp.SemanticTokensLegend(list(TYPES), list(MODIFIERS))
TOKEN_TYPE_OF = {
    "function": "function", "record": "struct", "enum": "enum", "variant": "enumMember", "field": "property",
    "parameter": "parameter", "value": "variable", "variable": "variable", "size": "typeParameter",
    "type": "typeParameter", "module": "namespace", "axis": "enumMember",
}  # fmt: skip
READONLY = ("value", "parameter", "size")


def encode_tokens(document: Document, places: PositionMap) -> list[int]:
    """The tokens in the protocol's encoding: five numbers each, with positions relative to the previous token."""
    data: list[int] = []
    line = column = 0
    marked = differentiated_bindings(document)
    for piece in document.parts:
        plain = outside_comments(piece)
        for start, text, type, modifiers in sorted(part_tokens(document, piece, marked)):
            # Examples in doc comments are analysed too, but keep the comment's colour.
            if plain(start):
                at = places.position(piece.position.offset + start)
                step = at.character - (column if at.line == line else 0)
                data += [at.line - line, step, places.units(text), type, modifiers]
                line, column = at.line, at.character
    return data


def outside_comments(piece: ParsedPart) -> Callable[[int], bool]:
    """A test whether an offset of a part lies outside comments, which keep their colour."""
    spans = sorted((c.start, c.end) for c in piece.comments)
    starts = [start for start, _ in spans]

    def is_code(at: int) -> bool:
        i = bisect_right(starts, at) - 1
        return i < 0 or spans[i][1] <= at

    return is_code


def part_tokens(document: Document, piece: ParsedPart, marked: set[NameBinding]) -> Iterator[tuple[int, str, int, int]]:
    """The names of a part: offset, text, type index, and modifier bits."""
    names = symbols_of(piece)
    # A name that is both a binding and a use counts once.
    seen: set[int] = set()
    for each in (*names.bindings, *names.uses):
        if each.span.start in seen or "\n" in each.span.text or (isinstance(each, NameBinding) and each.kind == "test"):
            continue
        goal = each if isinstance(each, NameBinding) else token_binding(document, piece, each)
        if goal is None:
            continue
        seen.add(each.span.start)
        kind = "module" if isinstance(goal, str) else "size" if is_size_binding(goal) else goal.kind
        modifiers = {"declaration"} if isinstance(each, NameBinding) else set[str]()
        if kind in READONLY:
            modifiers.add("readonly")
        if kind == "size":
            modifiers.add(f"dim{1 + sum(map(ord, each.name)) % SIZE_COLOURS}")
        if isinstance(goal, NameBinding):
            modifiers |= {"defaultLibrary"} if is_library_binding(goal) else set()
            modifiers |= {"differentiated"} if goal in marked else set()
        bits = sum(1 << MODIFIERS.index(name) for name in modifiers)
        yield each.span.start, each.span.text, TYPES.index(TOKEN_TYPE_OF[kind]), bits


def is_size_binding(binding: NameBinding) -> bool:
    """Whether a name is a size: a name in a type, or a parameter `n: dim`."""
    node = binding.node
    declared = isinstance(node, tree.Param) and isinstance(node.type, tree.TypeName) and node.type.path == ("dim",)
    return binding.kind == "size" or (declared and binding.kind == "parameter")


def token_binding(document: Document, piece: ParsedPart, use: NameUse) -> NameBinding | str | None:
    """The meaning of a name: a binding, a module, or None if it is not declared."""
    goal = definition_of(NameOccurrence(document, piece, use))
    if goal is None:
        return None
    return goal.binding if goal.binding is not None else "module"


def is_library_binding(binding: NameBinding) -> bool:
    whole = binding.span.source.document
    return isinstance(whole, Document) and whole.library


# ---- What a function is differentiated in


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
