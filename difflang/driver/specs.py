"""Types written outside a program, such as `f32[3, 4]` or `Mlp[64, 32, 10]`: what an argument will be."""

from __future__ import annotations

import re

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.check.annotations import Annotations, mistake
from difflang.check.modules import Module
from difflang.check.types import LangType
from difflang.check.unify import Unifier
from difflang.ir.types import DTYPES, Tensor
from difflang.syntax import tree
from difflang.syntax.parse import parse

PLAIN = re.compile(r"\s*(\w+)\s*(?:\[\s*(\d+(?:\s*,\s*\d+)*)\s*\])?\s*", re.ASCII)


def parsed_type(text: str, module: Module) -> LangType:
    """The type that a text spells, with numbers for sizes. Errors: DL1210."""
    found = PLAIN.fullmatch(text)
    if found is not None and found[1] in DTYPES:
        shape = tuple(int(n) for n in found[2].split(",")) if found[2] else ()
        return Tensor(DTYPES[found[1]], shape)
    source = Source("<type>", f"fn f(x: {text}) = 0")
    parsed = parse(source)
    items = parsed.module.items
    if parsed.diagnostics or len(items) != 1 or not isinstance(items[0], tree.Fn) or len(items[0].params) != 1:
        raise no_type(text)
    written = items[0].params[0].type
    assert written is not None
    try:
        return Annotations(Unifier(), module.records.get).type(written)
    except DifflangError as error:
        raise no_type(text, error.diagnostics[0].message) from None


def no_type(text: str, why: str = "") -> DifflangError:
    message = f"`{text}` is no type of an argument" + (f": {why}" if why else "")
    return mistake("DL1210", message, help="write `f32[3, 4]`, or `f32` for a number")
