"""Enum parameters in a derived program: one case for each choice of variants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from difflang.driver.elaborate_call import CallArgument
from difflang.syntax import tree
from difflang.types.language_types import LangType, RecordType, SumType, VariantType, show_type
from difflang.types.type_errors import make_error

MAX_CASES = 32  # each case is a full derivative


def variant_choices(decl: tree.Fn, arguments: Sequence[CallArgument]) -> list[dict[str, VariantType]]:
    """The choices of variants of the enum parameters, by name; one empty choice if there are none. Errors: DL0802."""
    sums: dict[str, tuple[VariantType, ...]] = {}
    for name, type in [(a.name, a.type) for a in arguments]:
        if isinstance(type, SumType) and type.variants and not type.tag.shape:
            sums[name] = type.variants
        for each in [f for v in sums[name] for f in v.fields] if name in sums else [type]:
            refuse_sums(decl, each)
    count = prod(map(len, sums.values()))
    if count > MAX_CASES:
        message = (
            f"`{decl.name}` takes one of {count} choices of variants, of which {MAX_CASES} at most are written out"
        )
        raise make_error("DL0802", message, (decl.name_span, ""), help="derive a function of fewer enums")
    return [dict(zip(sums, chosen, strict=True)) for chosen in product(*sums.values())]


def refuse_sums(decl: tree.Fn, type: LangType) -> None:
    """Errors: DL0802 for a sum type, or a type that contains one."""
    if isinstance(type, (SumType, VariantType)):
        message = f"`{decl.name}` takes or gives a {show_type(type)}, whose changes are not written out"
        raise make_error("DL0802", message, (decl.name_span, ""), help="derive a function of what its variants hold")
    inner = type.fields if isinstance(type, RecordType) else getattr(type, "items", ())
    for each in inner:
        refuse_sums(decl, each)
