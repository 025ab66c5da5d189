"""Python parameters of the language's functions: names of tangents, and positional or keyword kinds."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter
from itertools import count
from keyword import iskeyword
from typing import Any


class UnquotedText(str):
    """Program text that Python shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def tangent_name(name: str, path: Sequence[str], taken: Sequence[str]) -> str:
    """The name for the tangent of a parameter, or of a part of it, distinct from the other parameters."""
    base = "_".join([f"d_{name}", *path])
    return next(n for i in count(1) if (n := base if i == 1 else f"{base}_{i}") not in taken)


def parameter_kind(names: Sequence[str]) -> Any:
    """The kind of parameters with these names: positional only if one of them is a Python keyword."""
    words = any(iskeyword(n) or not n.isidentifier() for n in names)
    return Parameter.POSITIONAL_ONLY if words else Parameter.POSITIONAL_OR_KEYWORD
