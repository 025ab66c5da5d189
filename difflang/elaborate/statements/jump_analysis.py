"""Syntactic analysis for desugaring jumps: which jumps leave a node, which branches they end, which names are bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from difflang.syntax import tree
from difflang.syntax.tree_queries import all_nodes, child_nodes, mentioned_names, pattern_names

Statements = tuple[tree.Stmt, ...]
JUMPS = (tree.Break, tree.Continue, tree.Return)
LoopT = TypeVar("LoopT", bound=tree.Loop)


_jumping: dict[tree.Node, bool] = {}


def jumps_inside(loop: tree.Loop) -> bool:
    """Whether a loop contains a jump, apart from nested functions."""
    # Cached for all loops inside at once: asking for each of them alone would be quadratic in the nesting.
    if loop not in _jumping:
        if len(_jumping) > 200_000:
            _jumping.clear()
        order: list[tree.Node] = [loop]
        for node in order:
            order += [c for c in child_nodes(node) if not isinstance(c, (tree.Fn, tree.Lambda))]
        found: set[tree.Node] = set()
        for node in reversed(order):
            if isinstance(node, JUMPS) or any(c in found for c in child_nodes(node)):
                found.add(node)
        for node in order:
            if isinstance(node, tree.Loop):
                _jumping.setdefault(node, node in found)
    return _jumping[loop]


def mark_jump_free(loop: LoopT) -> LoopT:
    """Record that a loop's own jumps are desugared; loops in its expressions may still have some."""
    _jumping[loop] = False
    return loop


def jumps_leaving(body: tree.Node) -> dict[tree.Node, set[type[tree.Node]]]:
    """The kinds of jumps that leave each node; jumps of nested functions do not count.

    `break` and `continue` end at the loop whose body contains them, but not at one whose condition does.
    """
    order: list[tree.Node] = []
    todo: list[tree.Node] = [body]
    while todo:
        order.append(todo.pop())
        if not isinstance(order[-1], (tree.Fn, tree.Lambda)):
            todo += child_nodes(order[-1])
    found: dict[tree.Node, set[type[tree.Node]]] = {}
    for node in reversed(order):
        if isinstance(node, JUMPS):
            found[node] = {type(node)}
        elif not isinstance(node, (tree.Fn, tree.Lambda)):
            inner = set[type[tree.Node]]()
            for child in child_nodes(node):
                ended = isinstance(node, tree.Loop) and child is node.body
                inner |= found.get(child, set()) - ({tree.Break, tree.Continue} if ended else set())
            if inner:
                found[node] = inner
    return found


def statement_bindings(stmts: Sequence[tree.Stmt]) -> set[str]:
    """The names that statements bind for the following ones."""
    bound = {n for s in stmts if isinstance(s, (tree.Let, tree.Var)) for n in pattern_names(s.pattern)}
    return bound | {s.name for s in stmts if isinstance(s, tree.Fn)}


def names_used_after(stmt: tree.Stmt, rest: Statements) -> set[str]:
    """The names that the rest uses after a statement's value, except those that the statement binds."""
    names = {n for s in rest for n in mentioned_names(s)}
    if isinstance(stmt, (tree.Let, tree.Var)):
        names -= set(pattern_names(stmt.pattern))
        names |= set(mentioned_names(stmt.type)) if stmt.type is not None else set()
    return names


def case_bindings(pattern: tree.CasePattern) -> set[str]:
    """The names that a case binds."""
    return {n.name for n in all_nodes(pattern) if isinstance(n, tree.NamePattern)}


def ends_in_jump(stmts: Sequence[tree.Stmt], jumps: tuple[type[tree.Node], ...] = (tree.Return,)) -> bool:
    """Whether every path through statements ends in a `return`, or another of these jumps."""
    todo: list[Sequence[tree.Stmt]] = [stmts]
    while todo:
        match todo.pop()[-1:]:
            case [tree.If() as last]:
                todo += (last.then.stmts, else_statements(last.orelse))
            case [tree.Match() as last]:
                todo += [else_statements(case.body) for case in last.cases]
            case [last] if isinstance(last, jumps):
                pass
            case _:
                return False
    return True


def else_statements(orelse: tree.Expr | None) -> Statements:
    if orelse is None:
        return ()
    return orelse.stmts if isinstance(orelse, tree.Block) else (orelse,)


def continuing_branch(places: Sequence[tree.Expr]) -> int | None:
    """The index of the only side of a branch that does not end in a jump, or None."""
    found = [i for i, side in enumerate(places) if not ends_in_jump(else_statements(side), JUMPS)]
    return found[0] if len(found) == 1 else None
