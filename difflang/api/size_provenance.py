"""Finds which earlier argument bound a size name, for error messages."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names

# The values before another, with their declared types.
PrecedingTypes = Sequence[tuple[str, "tree.TypeExpr | None"]]


def preceding_fields(fields: Sequence[tree.Field], field: tree.Field, path: str) -> PrecedingTypes:
    return [(f"{path}.{f.name}", f.type) for f in fields[: fields.index(field)]]


def find_size_source(name: str, preceding: PrecedingTypes) -> str | None:
    """The first of some values whose declared type mentions a size name."""
    return next((n for n, w in preceding if n == name or (w is not None and name in mentioned_names(w))), None)
