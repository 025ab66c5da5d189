"""Enums in the second implementation of the language: a dict of a variant's fields, its name under the empty key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from difflang.syntax import tree

Variants = dict[str, tuple[str, ...]]  # the names of the fields


def variants_of(items: Iterable[tree.Node]) -> Variants:
    enums = [item for item in items if isinstance(item, tree.Enum)]
    return {v.name: tuple(f.name for f in v.fields) for enum in enums for v in enum.variants}


def constructors(variants: Variants) -> dict[str, Any]:
    """Each variant by its name: a function of its fields, or a value."""

    def of(name: str, fields: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
        return lambda *args: {"": name, **dict(zip(fields, args, strict=True))}

    return {name: of(name, fields) if fields else of(name, ())() for name, fields in variants.items()}


def fitting(pattern: tree.CasePattern, value: Any, variants: Variants) -> dict[str, Any] | None:
    """What the names of a pattern stand for, if the value fits it."""
    match pattern:
        case tree.NamePattern(name=name) if name not in variants:
            return {name: value}
        case tree.NamePattern(name=name) | tree.VariantPattern(path=(name,)):
            items = pattern.items if isinstance(pattern, tree.VariantPattern) else ()
            if value[""] != name:
                return None
            parts = [value[field] for field in variants[name]]
        case tree.TupleCasePattern(items=items):
            parts = value
        case tree.LiteralPattern(value=tree.Int(value=number) | tree.Bool(value=number)):
            return {} if value == number else None
        case _:
            raise NotImplementedError(pattern)
    found: dict[str, Any] = {}
    for item, part in zip(items, parts, strict=True):
        inside = fitting(item, part, variants)
        if inside is None:
            return None
        found |= inside
    return found
