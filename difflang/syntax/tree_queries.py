"""Queries on syntax trees, without recursion: child nodes, mentioned names, assigned names, names of a pattern."""

from __future__ import annotations

from functools import lru_cache
from inspect import get_annotations

from difflang.syntax import tree

# Types of fields that hold no nodes.
LEAF_FIELD_TYPES = frozenset(
    {"str", "str | None", "int", "bool", "float", "tuple[str, ...]", "Span", "tuple[Span, ...]"}
)


def child_nodes(node: tree.Node) -> list[tree.Node]:
    """The direct children of a node, in source order."""
    found: list[tree.Node] = []
    for name in child_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, tree.Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += flatten_nodes(value)
    return found


def flatten_nodes(values: tuple[object, ...]) -> list[tree.Node]:
    found: list[tree.Node] = []
    for value in values:
        if isinstance(value, tree.Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += flatten_nodes(value)
    return found


@lru_cache(maxsize=4096)
def child_fields(kind: type[tree.Node]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold nodes."""
    written: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        # Annotations are strings under `from __future__ import annotations`.
        written |= get_annotations(base)
    return tuple(f for f in kind.__struct_fields__ if written[f] not in LEAF_FIELD_TYPES)


def all_nodes(node: tree.Node) -> list[tree.Node]:
    """A node and all its descendants, in pre-order."""
    found: list[tree.Node] = []
    todo = [node]
    while todo:
        part = todo.pop()
        found.append(part)
        if inside := child_nodes(part):
            todo += reversed(inside)
    return found


def body_value(e: tree.Node) -> tree.Node:
    """The expression that gives a body its value."""
    while isinstance(e, tree.Block) and e.stmts:
        e = e.stmts[-1]
    return e


@lru_cache(maxsize=4096)
def mentioned_names(node: tree.Node) -> tuple[str, ...]:
    """Every name mentioned in a node, in types too, including names bound inside it."""
    found: dict[str, None] = {}
    for part in all_nodes(node):
        match part:
            case tree.Name(id=name):
                found[name] = None
            case tree.TypeName(path=(name,)):
                found[name] = None
            case tree.Save(name=name):
                found[name] = None
            case tree.Call(fn=tree.Member(name=name)):  # `x.f(y)` is `f(x, y)` where `x` has no field `f`
                found[name] = None
            case _:
                pass
    return tuple(found)


def mentioned_type_names(node: tree.Node) -> set[str]:
    """The names in a node that may stand for types: alone, with sizes after them, or in a conversion of a number."""
    applied = {p.path[0] for p in all_nodes(node) if isinstance(p, tree.TypeApply) and len(p.path) == 1}
    return applied.union(mentioned_names(node))


def assigned_names(node: tree.Node) -> tuple[str, ...]:
    """The names that assignments and updates in a node change, except those inside nested functions."""
    if node not in _assigned_cache:
        # Keyed by node: a long session would otherwise keep every tree alive.
        if len(_assigned_cache) > 200_000:
            _assigned_cache.clear()
        _collect_assigned(node)
    return _assigned_cache[node]


_NESTING = (tree.Block, tree.If, tree.Match, tree.Loop)
_assigned_cache: dict[tree.Node, tuple[str, ...]] = {}


def _collect_assigned(node: tree.Node) -> None:
    """Fill the cache for a node and the control flow in it, bottom up, so that each node is visited once."""
    order: list[tree.Node] = []
    todo = [node]
    while todo:
        order.append(todo.pop())
        if not isinstance(order[-1], (tree.Fn, tree.Lambda)):
            todo += child_nodes(order[-1])
    names: dict[tree.Node, tuple[str, ...]] = {}
    for part in reversed(order):
        found = (
            [] if isinstance(part, (tree.Fn, tree.Lambda)) else [n for c in child_nodes(part) for n in names.pop(c, ())]
        )
        if isinstance(part, (tree.Assign, tree.Update)):
            found = [*target_variables(part.target), *found]
        if found:
            names[part] = tuple(dict.fromkeys(found))
        if isinstance(part, _NESTING) or part is node:
            _assigned_cache[part] = names.get(part, ())


def target_variables(target: tree.Expr) -> list[str]:
    """The variables that an assignment target changes."""
    found: list[str] = []
    todo = [target]
    while todo:
        match todo.pop():
            case tree.Name(id=name):
                found.append(name)
            case tree.Member(base=base) | tree.Index(base=base):
                todo.append(base)
            case tree.TupleExpr(items=items):
                todo += reversed(items)
            case _:
                pass
    return found


def pattern_names(pattern: tree.Pattern) -> list[str]:
    """The names that a pattern binds."""
    found: list[str] = []
    todo = [pattern]
    while todo:
        part = todo.pop()
        if isinstance(part, tree.TuplePattern):
            todo += reversed(part.items)
        elif part.name != "_":
            found.append(part.name)
    return found


@lru_cache(maxsize=4096)
def find_node(node: tree.Node, kinds: tuple[type[tree.Node], ...]) -> tree.Node | None:
    """The first node of one of these kinds directly in a body, not inside a nested function or loop."""
    todo = child_nodes(node)[::-1]
    while todo:
        part = todo.pop()
        if isinstance(part, kinds):
            return part
        if not isinstance(part, (tree.Fn, tree.Lambda, tree.Loop)):
            todo += reversed(child_nodes(part))
    return None
