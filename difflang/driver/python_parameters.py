"""Parameters of functions as Python sees them: what they are called, and how they are given."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter
from itertools import count
from keyword import iskeyword
from typing import Any


class UnquotedText(str):
    """Text of a program, which Python shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def tangent_name(name: str, path: Sequence[str], taken: Sequence[str]) -> str:
    """What the tangent of a parameter, or of a part of it, is called beside other parameters."""
    wanted = "_".join([f"d_{name}", *path])
    return next(n for i in count(1) if (n := wanted if i == 1 else f"{wanted}_{i}") not in taken)


def parameter_kind(names: Sequence[str]) -> Any:
    """The kind of parameters with these names: by position alone where one of them is a word of Python."""
    words = any(iskeyword(n) or not n.isidentifier() for n in names)
    return Parameter.POSITIONAL_ONLY if words else Parameter.POSITIONAL_OR_KEYWORD
