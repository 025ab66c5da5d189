"""What a piece of syntax mentions and assigns, found without recursion."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache

from difflang.syntax import tree


def children(node: tree.Node) -> list[tree.Node]:
    """The nodes directly inside a node, in the order written."""
    found: list[tree.Node] = []
    for name in child_names(type(node)):
        value = getattr(node, name)
        if isinstance(value, tree.Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += flattened(value)
    return found


def flattened(values: tuple[object, ...]) -> list[tree.Node]:
    found: list[tree.Node] = []
    for value in values:
        if isinstance(value, tree.Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += flattened(value)
    return found


@lru_cache(maxsize=4096)
def child_names(kind: type[tree.Node]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.name != "span")


def nodes(node: tree.Node) -> list[tree.Node]:
    """A node and everything in it."""
    found: list[tree.Node] = []
    todo = [node]
    while todo:
        found.append(todo.pop())
        todo += reversed(children(found[-1]))
    return found


@lru_cache(maxsize=4096)
def free_names(node: tree.Node) -> tuple[str, ...]:
    """Every name that is mentioned in a node, types included; names bound inside are among them."""
    found: dict[str, None] = {}
    for part in nodes(node):
        match part:
            case tree.Name(id=name):
                found[name] = None
            case tree.TypeName(path=(name,)):
                found[name] = None
            case tree.Save(name=name):
                found[name] = None
            case _:
                pass
    return tuple(found)


@lru_cache(maxsize=4096)
def assigned(node: tree.Node) -> tuple[str, ...]:
    """The names that assignments and updates in a node change, those inside nested functions left out."""
    found: dict[str, None] = {}
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, (tree.Fn, tree.Lambda)):
            continue
        if isinstance(part, (tree.Assign, tree.Update)):
            for target in targets(part.target):
                found[target] = None
        todo += reversed(children(part))
    return tuple(found)


def targets(target: tree.Expr) -> list[str]:
    """The variables behind what stands left of an assignment."""
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


def bound_names(pattern: tree.Pattern) -> list[str]:
    """The names of a pattern."""
    if isinstance(pattern, tree.NamePattern):
        return [] if pattern.name == "_" else [pattern.name]
    return [name for item in pattern.items for name in bound_names(item)]


@lru_cache(maxsize=4096)
def mentions(node: tree.Node, kinds: tuple[type[tree.Node], ...]) -> tree.Node | None:
    """The first node of one of these kinds directly in a body: not inside a nested function or loop."""
    todo = children(node)[::-1]
    while todo:
        part = todo.pop()
        if isinstance(part, kinds):
            return part
        if not isinstance(part, (tree.Fn, tree.Lambda, tree.For, tree.While)):
            todo += reversed(children(part))
    return None
