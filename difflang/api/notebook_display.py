"""What a notebook shows of functions and modules: signature, text, what is taken, sizes and effects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from difflang.api.sheets import EFFECTS, NotebookSheet
from difflang.api.signature import Parameter, Signature
from difflang.syntax import tree
from difflang.syntax.doc_pages import first_sentence
from difflang.types.module_scope import ModuleScope

if TYPE_CHECKING:
    from difflang.api.function import Function

COLUMNS = ("parameter", "type", "")


def function_mimebundle(f: Function) -> dict[str, str]:
    """A function, in all forms."""
    signature = f.signature
    rows = tuple([(p.name, p.type_text or "any", parameter_remark(p)) for p in signature.parameters])
    return NotebookSheet(
        f"{f.__name__}{signature.types}", f.__doc__ or "", COLUMNS, rows, tuple(signature_notes(signature))
    ).bundle()


def parameter_remark(p: Parameter) -> str:
    if p.is_dim:
        return "a size"
    return "may be left out" if p.optional else ""


def signature_notes(signature: Signature) -> Iterable[str]:
    if signature.dims:
        yield f"sizes: {', '.join(signature.dims)}"
    if signature.sizes:
        yield f"bound: {signature.bound}"
    if signature.effects:
        yield ", ".join([EFFECTS.get(effect, effect) for effect in signature.effects])


def module_mimebundle(name: str, module: ModuleScope, functions: Iterable[Function]) -> dict[str, str]:
    """A module: its functions with what is first said of them, and its records and enums."""
    rows = [(f"{f.__name__}{f.signature.types}", first_sentence(f.__doc__ or "")) for f in functions]
    for record in module.records.values():
        if module.declaring_module(record) is module:
            rows.append((one_line_declaration(record), first_sentence(record.doc or "")))
    return NotebookSheet(f"module {name}", "", ("", ""), tuple(rows)).bundle()


def one_line_declaration(item: tree.Record | tree.Enum) -> str:
    """A declaration, without the comments in it."""
    text = re.sub(r"#.*", "", item.span.text)  # no text stands in it that could hold a `#`
    return " ".join(text.split())
