"""Hoists what the host does out of an expression: each part gets a temporary name, so that the rest can be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, child_fields, child_nodes, mentioned_names, target_variables

# Nodes whose inside is compiled with names of its own: a host call cannot be hoisted out of them.
BINDING_NODES = (tree.Lambda, tree.Fn, tree.ArrayComprehension, tree.Comprehension, tree.Checkpoint)
ControlNode = tree.If | tree.Match | tree.Block | tree.Loop


class HoistedExpr(Struct, frozen=True, eq=False):
    """An expression whose `parts` the host evaluates first, in order; `compiled` is None if the host evaluates all of
    it.
    """

    compiled: tree.Expr | None
    parts: tuple[tuple[str, tree.Expr], ...] = ()


class HostNames(Protocol):
    """What the hoisting must know about the names of an expression."""

    def is_host(self, e: tree.Node) -> bool:
        """Whether this is a call or a string that the host evaluates."""
        ...

    def has_no_text(self, e: tree.Node) -> bool:
        """Whether the value of an expression has no text, whatever its parts are."""
        ...

    def varies(self, name: str) -> bool:
        """Whether the name is a variable."""
        ...

    def changes(self, e: tree.Node) -> bool:
        """Whether this may assign to a variable."""
        ...


def hoist_host_calls(e: tree.Node, names: HostNames) -> HoistedExpr | None:
    """The host calls of an expression, and branches that assign to variables, hoisted; None if there are none.

    A variable that stands before a part that changes it is read before that part runs.
    """
    order: list[tree.Node] = []
    todo: list[tree.Node] = [e]
    while todo:
        order.append(todo.pop())
        todo += reversed(evaluated_children(order[-1]))
    # Bottom up: a reversed pre-order visits children before their parents.
    acting, texts = set[tree.Node](), set[tree.Node]()
    for node in reversed(order):
        children = evaluated_children(node)
        if isinstance(node, tree.Str) or (any(c in texts for c in children) and not names.has_no_text(node)):
            texts.add(node)
        # Compiled code cannot choose a text: the host decides branches that may have one.
        chooses = isinstance(node, (tree.If, tree.Match)) and node in texts
        inside = node is not e and assigns(node, names)
        if chooses or inside or names.is_host(node) or any(c in acting for c in children):
            acting.add(node)
    if e not in acting:
        return None
    whole = {n for n in acting if names.is_host(n) or isinstance(n, ControlNode) or short_circuits(n, acting)}
    if e in whole:
        return HoistedExpr(None)
    named: dict[tree.Node, tree.Node] = {}
    parts: list[tuple[str, tree.Expr]] = []
    for node in evaluation_order(e, whole, acting, names):
        name = fresh_call_name(node.span.text.split("\n")[0], [n for n, _ in parts])
        named[node] = tree.Name(node.span, name)
        parts.append((name, node))  # type: ignore[arg-type]
    return HoistedExpr(rebuild_nodes(order, named)[e], tuple(parts))  # type: ignore[arg-type]


def evaluation_order(e: tree.Node, whole: set[tree.Node], acting: set[tree.Node], names: HostNames) -> list[tree.Node]:
    """The parts that are evaluated before the rest of an expression, from left to right; of an assignment its value,
    then its target.
    """
    found: list[tree.Node] = []
    todo = [e]
    while todo:
        node = todo.pop()
        if node in whole:
            found.append(node)
        elif isinstance(node, (tree.Assign, tree.Update)):
            todo += reversed([node.value, *target_positions(node.target)])
        elif node in acting or not reads_variable(node, names):
            todo += reversed(evaluated_children(node))
        else:
            found.append(node)
    # A variable needs a temporary only if a later part may assign to it.
    last = max(
        [i for i, node in enumerate(found) if node in whole and any(map(names.changes, all_nodes(node)))], default=0
    )
    return [node for i, node in enumerate(found) if node in whole or i < last]


def target_positions(target: tree.Expr) -> list[tree.Node]:
    """What an assignment target evaluates, from left to right: its indices, not its variables."""
    match target:
        case tree.Member(base=base):
            return target_positions(base)
        case tree.Index(base=base, subscripts=subscripts):
            return [*target_positions(base), *subscripts]
        case tree.TupleExpr(items=items):
            return [position for item in items for position in target_positions(item)]
        case _:
            return []


def assigns(node: tree.Node, names: HostNames) -> bool:
    """Whether a node assigns to a variable of the host, as a compiled block cannot."""
    return isinstance(node, (tree.Assign, tree.Update)) and any(map(names.varies, target_variables(node.target)))


def reads_variable(node: tree.Node, names: HostNames) -> bool:
    """Whether a node without host calls is a variable, or reads one where the read cannot be hoisted on its own."""
    if isinstance(node, tree.Name):
        return names.varies(node.id)
    closed = isinstance(node, (*BINDING_NODES, ControlNode)) and not isinstance(node, tree.Comprehension)
    over = isinstance(node, tree.Call) and any(isinstance(arg.value, tree.Comprehension) for arg in node.args)
    return (closed or over) and any(map(names.varies, mentioned_names(node)))


def evaluated_children(node: tree.Node) -> list[tree.Node]:
    """The children that are evaluated with the node itself, not inside a function, lambda or compiled block."""
    match node:
        case tree.WithKey(key=first):
            return [first]
        case tree.Match(subject=subject, cases=cases):
            return [subject, *[case.body for case in cases]]
        case _:
            return [] if isinstance(node, BINDING_NODES) else child_nodes(node)


def short_circuits(node: tree.Node, acting: set[tree.Node]) -> bool:
    """Whether an `and` or `or` has a host call on its right, which may not run."""
    return isinstance(node, tree.Binary) and node.op in ("and", "or") and node.rhs in acting


def fresh_call_name(text: str, taken: list[str]) -> str:
    """A name that no program can have: the text of the call, with a prime for each repetition."""
    name = f"({text})"
    while name in taken:
        name += "'"
    return name


def rebuild_nodes(order: list[tree.Node], names: Mapping[tree.Node, tree.Node]) -> dict[tree.Node, tree.Node]:
    """The nodes that contain a replaced part, rebuilt bottom up."""
    new = dict(names)
    for node in reversed(order):
        if node not in new and any(c in new for c in evaluated_children(node)):
            changed = {n: substitute_nodes(getattr(node, n), new) for n in child_fields(type(node))}
            new[node] = replace(node, **changed)
    return new


def substitute_nodes(value: Any, new: Mapping[tree.Node, tree.Node]) -> Any:
    if isinstance(value, tuple):
        return tuple(substitute_nodes(v, new) for v in value)
    return new.get(value, value) if isinstance(value, tree.Node) else value
