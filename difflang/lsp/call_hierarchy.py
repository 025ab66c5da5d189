"""The call hierarchy: calls of functions and of record and variant constructors; a mere mention counts as a call."""

from __future__ import annotations

from collections.abc import Iterable

from difflang.lsp.incremental_parse import ParsedPart
from difflang.lsp.name_resolution import Definition, NameOccurrence, definition_of, references
from difflang.lsp.symbol_table import NameBinding, NameUse, symbols_of
from difflang.lsp.workspace import Document
from difflang.syntax import tree

CALLABLE_KINDS = ("function", "record", "variant")
Callers = dict[tuple[Document, NameBinding | None], list[NameOccurrence]]


def callable_at(found: NameOccurrence | None) -> Definition | None:
    """The definition of the name at a position, if it can be called."""
    goal = definition_of(found) if found is not None else None
    return goal if goal is not None and goal.binding is not None and goal.binding.kind in CALLABLE_KINDS else None


def incoming_calls(goal: Definition, documents: Iterable[Document]) -> Callers:
    """The calls of a definition, by the function or test around each; None stands for the statements of a file."""
    found: Callers = {}
    for each in references(goal, documents):
        # Without types any use that may be a call counts.
        if isinstance(each.name, NameUse) and is_call(each.name):
            found.setdefault((each.document, enclosing_function(each.piece, each.name.span.start)), []).append(each)
    return found


def outgoing_calls(goal: Definition) -> dict[NameBinding, tuple[Definition, list[NameOccurrence]]]:
    """The definitions that a function calls, with the places of the calls."""
    found: dict[NameBinding, tuple[Definition, list[NameOccurrence]]] = {}
    if goal.piece is None or goal.binding is None:
        return found
    span = goal.binding.node.span
    for use in symbols_of(goal.piece).uses:
        if (
            is_call(use)
            and span.start <= use.span.start < span.end
            and enclosing_function(goal.piece, use.span.start) is goal.binding
        ):
            here = NameOccurrence(goal.document, goal.piece, use)
            if (called := callable_at(here)) is not None and called.binding is not None:
                found.setdefault(called.binding, (called, []))[1].append(here)
    return found


def is_call(use: NameUse) -> bool:
    """Whether a name is used where it may be called: not in a type, nor in an import."""
    return use.role in ("name", "member") and not isinstance(use.node, (tree.TypeName, tree.TypeApply, tree.TypeCall))


def enclosing_function(piece: ParsedPart, offset: int) -> NameBinding | None:
    """The innermost function or test around an offset of a part."""
    inside = [
        b for b in symbols_of(piece).bindings
        if b.kind in ("function", "test") and b.node.span.start <= offset < b.node.span.end
    ]  # fmt: skip
    return max(inside, key=lambda b: b.node.span.start, default=None)
