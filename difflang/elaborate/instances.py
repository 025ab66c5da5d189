"""What an instance of a function is found by: the types, sizes and known values that it was made for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from difflang.check.annotations import Annotations
from difflang.check.closures import FnCode
from difflang.check.modules import Global
from difflang.check.types import LangType, pruned_type
from difflang.elaborate.context import Context
from difflang.elaborate.signatures import is_dim
from difflang.elaborate.terms import Array, Closure, Record, Sum, Term, Tuple, Variant, Zip, type_of


class Key(NamedTuple):
    """What an instance of a function is found by."""

    code: FnCode
    types: tuple[LangType, ...]
    known: Hashable
    sizes: Hashable
    definition: bool


def key_of(
    cx: Context, code: FnCode, captures: tuple[Term, ...], terms: dict[str, Term], annotations: Annotations
) -> Key:
    types = tuple(pruned_type(type_of(t)) for t in (*captures, *terms.values()))
    sizes = tuple((n, annotations.bound[n]) for p in code.decl.params if is_dim(p.type) for n in (p.name,))
    functions = [t for t in terms.values() if isinstance(t, Closure)]
    return Key(code, types, tuple(map(known_of, (*captures, *functions))), sizes, cx.root.definition)


def known_of(term: Term) -> Hashable:
    """What specialization knows of a value that is captured, by the function or by one that is passed to it: all that
    `like` keeps of it inside.
    """
    match term:
        case Array():
            return type(term.static), repr(term.static), term.below
        case Tuple() | Zip():
            return tuple(map(known_of, term.items))
        case Record() | Variant():
            return tuple(map(known_of, term.fields))
        case Sum():
            return tuple(map(known_of, term.parts))
        case Closure():
            return tuple(map(known_of, term.captures))
        case _:
            return None


def type_now(name: Global) -> LangType | None:
    """The type of a top-level value, None where there is none."""
    return name.var.type if name.var is not None else None
