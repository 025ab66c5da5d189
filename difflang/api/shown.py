"""What a notebook shows of functions and modules: signature, text, what is taken, sizes and effects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from difflang.api.signature import Parameter, Signature
from difflang.check.modules import Module
from difflang.driver.sheets import EFFECTS, Sheet
from difflang.syntax import tree

if TYPE_CHECKING:
    from difflang.api.function import Function

COLUMNS = ("parameter", "type", "")


def bundle_of(f: Function) -> dict[str, str]:
    """A function, in all forms."""
    signature = f.signature
    rows = tuple([(p.name, p.shown or "any", remark(p)) for p in signature.parameters])
    plain = f"{f.__name__}{signature}".partition("  #")[0]
    return Sheet(plain, f.__doc__ or "", COLUMNS, rows, tuple(notes(signature))).bundle()


def remark(p: Parameter) -> str:
    if p.is_dim:
        return "a size"
    return "may be left out" if p.optional else ""


def notes(signature: Signature) -> Iterable[str]:
    if signature.dims:
        yield f"sizes: {', '.join(signature.dims)}"
    if signature.sizes:
        yield f"bound: {signature.bound}"
    if signature.effects:
        yield ", ".join([EFFECTS.get(effect, effect) for effect in signature.effects])


def bundle_of_module(name: str, module: Module, functions: Iterable[Function]) -> dict[str, str]:
    """A module: its functions with what is first said of them, and its records and enums."""
    rows = [(f"{f.__name__}{f.signature}".partition("  #")[0], sentence(f.__doc__)) for f in functions]
    for record in module.records.values():
        if module.home(record) is module:
            rows.append((in_one_line(record), sentence(record.doc)))
    return Sheet(f"module {name}", "", ("", ""), tuple(rows)).bundle()


def in_one_line(record: tree.Record | tree.Enum) -> str:
    return " ".join(record.span.text.split())


def sentence(text: str | None) -> str:
    """The first one of a text, if it ends in its first paragraph; else that paragraph."""
    first = " ".join((text or "").strip().partition("\n\n")[0].split())
    head, stop, _ = first.partition(". ")
    return head + stop.strip()
