"""A tree as text, for comparing two of them and for reading one."""

from __future__ import annotations

from collections.abc import Iterator

from difflang.syntax import tree


def shape(node: object) -> object:
    """A tree without its places: nested tuples of class names and what the nodes hold."""
    if isinstance(node, tree.Node):
        inner = (f for f in node.__struct_fields__ if f != "span" and not f.endswith(("_span", "_spans")))
        return (type(node).__name__, *(shape(getattr(node, f)) for f in inner))
    if isinstance(node, tuple):
        return tuple(shape(part) for part in node if type(part).__name__ != "Span")
    return node


def nodes(node: object) -> Iterator[tuple[tree.Node, tree.Node | None]]:
    """Every node below a node with its parent, without recursion."""
    todo: list[tuple[object, tree.Node | None]] = [(node, None)]
    while todo:
        part, parent = todo.pop()
        if isinstance(part, tree.Node):
            yield part, parent
            todo += ((getattr(part, f), part) for f in part.__struct_fields__)
        elif isinstance(part, tuple):
            todo += ((item, parent) for item in part)
