"""Which jumps leave a piece of syntax, which branches they end, and what its statements name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from difflang.syntax import tree
from difflang.syntax.tree_queries import bound_names, children, free_names, nodes

Stmts = tuple[tree.Stmt, ...]
JUMPS = (tree.Break, tree.Continue, tree.Return)
LOOPS = (tree.For, tree.While)
L = TypeVar("L", bound=tree.For | tree.While)


_jumping: dict[tree.Node, bool] = {}


def jumps_inside(loop: tree.For | tree.While) -> bool:
    """Whether there is any jump in a loop, those of nested functions left out. Answered for all loops in it at once."""
    if loop not in _jumping:
        if len(_jumping) > 200_000:
            _jumping.clear()
        order: list[tree.Node] = [loop]
        for node in order:
            order += [c for c in children(node) if not isinstance(c, (tree.Fn, tree.Lambda))]
        found: set[tree.Node] = set()
        for node in reversed(order):
            if isinstance(node, JUMPS) or any(c in found for c in children(node)):
                found.add(node)
        for node in order:
            if isinstance(node, LOOPS):
                _jumping.setdefault(node, node in found)
    return _jumping[loop]


def freed(loop: L) -> L:
    """A loop that is written without its jumps. What it asks or computes may hold loops that have some of their own."""
    _jumping[loop] = False
    return loop


def leaving(body: tree.Node) -> dict[tree.Node, set[type[tree.Node]]]:
    """For each node the jumps in it that leave it; those of nested functions are their own.

    A loop ends those of its steps, not those of what it asks before them.
    """
    order: list[tree.Node] = []
    todo: list[tree.Node] = [body]
    while todo:
        order.append(todo.pop())
        if not isinstance(order[-1], (tree.Fn, tree.Lambda)):
            todo += children(order[-1])
    found: dict[tree.Node, set[type[tree.Node]]] = {}
    for node in reversed(order):
        if isinstance(node, JUMPS):
            found[node] = {type(node)}
        elif not isinstance(node, (tree.Fn, tree.Lambda)):
            inner = set[type[tree.Node]]()
            for child in children(node):
                ended = isinstance(node, LOOPS) and child is node.body
                inner |= found.get(child, set()) - ({tree.Break, tree.Continue} if ended else set())
            if inner:
                found[node] = inner
    return found


def bound_by(stmts: Sequence[tree.Stmt]) -> set[str]:
    """The names that statements bind for those after them."""
    bound = {n for s in stmts if isinstance(s, (tree.Let, tree.Var)) for n in bound_names(s.pattern)}
    return bound | {s.name for s in stmts if isinstance(s, tree.Fn)}


def named_after(stmt: tree.Stmt, rest: Stmts) -> set[str]:
    """The names that what follows the value of a statement mentions, but for those that this binds."""
    names = {n for s in rest for n in free_names(s)}
    if isinstance(stmt, (tree.Let, tree.Var)):
        names -= set(bound_names(stmt.pattern))
        names |= set(free_names(stmt.type)) if stmt.type is not None else set()
    return names


def bound_in(pattern: tree.CasePattern) -> set[str]:
    """The names that a case binds."""
    return {n.name for n in nodes(pattern) if isinstance(n, tree.NamePattern)}


def ends(stmts: Sequence[tree.Stmt], jumps: tuple[type[tree.Node], ...] = (tree.Return,)) -> bool:
    """Whether statements surely end in a `return`, or another of these jumps."""
    todo: list[Sequence[tree.Stmt]] = [stmts]
    while todo:
        match todo.pop()[-1:]:
            case [tree.If() as last]:
                todo += (last.then.stmts, sides(last.orelse))
            case [tree.Match() as last]:
                todo += [sides(case.body) for case in last.cases]
            case [last] if isinstance(last, jumps):
                pass
            case _:
                return False
    return True


def sides(orelse: tree.Expr | None) -> Stmts:
    if orelse is None:
        return ()
    return orelse.stmts if isinstance(orelse, tree.Block) else (orelse,)


def going_on(places: Sequence[tree.Expr]) -> int | None:
    """Which side of a branch is the only one that no jump ends."""
    found = [i for i, side in enumerate(places) if not ends(sides(side), JUMPS)]
    return found[0] if len(found) == 1 else None
