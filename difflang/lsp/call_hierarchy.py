"""Who calls whom: functions, constructors of records and variants; one that is only mentioned counts as called."""

from __future__ import annotations

from collections.abc import Iterable

from difflang.lsp.incremental_parse import Piece
from difflang.lsp.name_resolution import Found, Target, references, target
from difflang.lsp.symbol_table import Binding, Use, names_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree

CALLED = ("function", "record", "variant")
Callers = dict[tuple[Document, Binding | None], list[Found]]


def callable_at(found: Found | None) -> Target | None:
    """What stands at a place, if that is something to be called."""
    goal = target(found) if found is not None else None
    return goal if goal is not None and goal.binding is not None and goal.binding.kind in CALLED else None


def incoming(goal: Target, documents: Iterable[Document]) -> Callers:
    """Where something is called, by the function or test in which that is; None stands for the statements of a file."""
    found: Callers = {}
    for each in references(goal, documents):
        if isinstance(each.name, Use) and calls(each.name):
            found.setdefault((each.document, around(each.piece, each.name.span.start)), []).append(each)
    return found


def outgoing(goal: Target) -> dict[Binding, tuple[Target, list[Found]]]:
    """What a function calls, and where."""
    found: dict[Binding, tuple[Target, list[Found]]] = {}
    if goal.piece is None or goal.binding is None:
        return found
    span = goal.binding.node.span
    for use in names_of(goal.piece).uses:
        if (
            calls(use)
            and span.start <= use.span.start < span.end
            and around(goal.piece, use.span.start) is goal.binding
        ):
            here = Found(goal.document, goal.piece, use)
            if (called := callable_at(here)) is not None and called.binding is not None:
                found.setdefault(called.binding, (called, []))[1].append(here)
    return found


def calls(use: Use) -> bool:
    """Whether a name stands where something may be called: not in a type, nor in an import."""
    return use.role in ("name", "member") and not isinstance(use.node, (tree.TypeName, tree.TypeApply, tree.TypeCall))


def around(piece: Piece, offset: int) -> Binding | None:
    """The innermost function, or the test, that a place of a part is in."""
    inside = [
        b for b in names_of(piece).bindings
        if b.kind in ("function", "test") and b.node.span.start <= offset < b.node.span.end
    ]  # fmt: skip
    return max(inside, key=lambda b: b.node.span.start, default=None)
