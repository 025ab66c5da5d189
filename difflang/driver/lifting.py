"""What only the host can do inside a larger expression, taken out of it under a name: the rest is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from difflang.elaborate.names import child_names, children
from difflang.syntax import tree

OWN_NAMES = (tree.Lambda, tree.Fn, tree.ArrayComprehension, tree.Comprehension, tree.Checkpoint)  # and names of theirs
Step = tree.If | tree.Match | tree.Block | tree.For | tree.While
STEPS = (tree.If, tree.Match, tree.Block, tree.For, tree.While)


@dataclass(frozen=True, eq=False, slots=True)
class Lifted:
    """An expression whose `parts` the host carries out first, in order; `rest` is None where it does all of it."""

    rest: tree.Expr | None
    parts: tuple[tuple[str, tree.Expr], ...] = ()


def lifted(e: tree.Node, is_host: Callable[[tree.Node], bool]) -> Lifted | None:
    """The work of the host in an expression, as `is_host` tells its calls and strings; None where there is none."""
    order: list[tree.Node] = []
    todo: list[tree.Node] = [e]
    while todo:
        order.append(todo.pop())
        todo += reversed(inside(order[-1]))
    acting: set[tree.Node] = set()
    for node in reversed(order):
        if is_host(node) or any(c in acting for c in inside(node)):
            acting.add(node)
    if e not in acting:
        return None
    whole = {n for n in acting if is_host(n) or isinstance(n, STEPS) or decides(n, acting)}
    if e in whole:
        return Lifted(None)
    names: dict[tree.Node, tree.Node] = {}
    parts: list[tuple[str, tree.Expr]] = []
    todo = [e]
    while todo:
        node = todo.pop()
        if node in whole:
            name = unused(node.span.text.split("\n")[0], [n for n, _ in parts])
            names[node] = tree.Name(node.span, name)
            parts.append((name, node))  # type: ignore[arg-type]
        elif node in acting:
            todo += reversed(inside(node))
    return Lifted(rebuilt(order, names)[e], tuple(parts))  # type: ignore[arg-type]


def inside(node: tree.Node) -> list[tree.Node]:
    """The nodes in a node that stand where it does: what is bound or compiled inside it is its own."""
    match node:
        case tree.WithKey(key=first):
            return [first]
        case tree.Match(subject=subject, cases=cases):
            return [subject, *[case.body for case in cases]]
        case _:
            return [] if isinstance(node, OWN_NAMES) else children(node)


def decides(node: tree.Node, acting: set[tree.Node]) -> bool:
    """Whether an `and` or `or` leaves it open if the host has anything to do on its right."""
    return isinstance(node, tree.Binary) and node.op in ("and", "or") and node.rhs in acting


def unused(text: str, taken: list[str]) -> str:
    """A name that nothing in a program can have: the text of the call, primed where it is there again."""
    name = f"({text})"
    while name in taken:
        name += "'"
    return name


def rebuilt(order: list[tree.Node], names: Mapping[tree.Node, tree.Node]) -> dict[tree.Node, tree.Node]:
    """The nodes that hold something with a name now, made anew, inner ones first."""
    new = dict(names)
    for node in reversed(order):
        if node not in new and any(c in new for c in inside(node)):
            changed = {n: exchanged(getattr(node, n), new) for n in child_names(type(node))}
            new[node] = replace(node, **changed)
    return new


def exchanged(value: Any, new: Mapping[tree.Node, tree.Node]) -> Any:
    if isinstance(value, tuple):
        return tuple(exchanged(v, new) for v in value)
    return new.get(value, value) if isinstance(value, tree.Node) else value
