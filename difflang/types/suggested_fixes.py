"""Fixes that several diagnostics suggest: `let` to `var`, conversions between element types."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError, Fix
from difflang.base.fixes import replacement_fix
from difflang.base.source import Span
from difflang.ir.tensor_types import DTYPES, REAL_DTYPE_OF, DType
from difflang.syntax import tree
from difflang.types.dtype_variables import DTypeParam, DTypeVar, prune_dtype

INTEGER_INITIALIZER = re.compile(r"[ \t]*=[ \t]*-?[0-9][0-9_]*(?=[ \t]*(?:[#}]|\r?$))", re.MULTILINE)

NAME = re.compile(r"\b[^\W\d]\w*")
NUMBER_DECLARATION = re.compile(
    r"^let[ \t]+(\w+)[ \t]*=[ \t]*(-?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)[ \t]*(?:#.*)?\r?$", re.MULTILINE
)


def add_helps(error: DifflangError, ways: Iterable[str]) -> DifflangError:
    """A report with further help texts added."""
    found = tuple([way for way in ways if way])
    return DifflangError(*[replace(d, helps=(*d.helps, *found)) for d in error.diagnostics])


def let_to_var_fix(bound: Span) -> tuple[Fix, ...]:
    """A fix that replaces the `let` before a bound name by `var`."""
    text = bound.source.text
    found = re.search(r"\blet[ \t]+$", text[text.rfind("\n", 0, bound.start) + 1 : bound.start])
    if found is None:
        return ()
    start = bound.start - len(found[0])
    said = f"declare it with `var`: `var {bound.text}`"
    return (replacement_fix(Span(bound.source, start, start + len("let")), "var", said),)


def float_initializer_hint(bound: Span) -> str:
    """The help for a variable that starts as an integer and is assigned floats, or "".

    It is not a fix: only the author knows whether integers are intended.
    """
    number = INTEGER_INITIALIZER.match(bound.source.text, bound.end)
    return f"or begin with a float: `var {bound.text}{number[0]}.0`" if number is not None else ""


def conversion_fix(span: Span, made: str) -> tuple[Fix, ...]:
    """A fix that converts a value where it is used."""
    return (replacement_fix(span, f"{made}({span.text})"),)


def widening_fix(span: Span, small: DType, large: DType) -> tuple[Fix, ...]:
    """A fix that converts to a wider type, if that is lossless.

    From a float to a wider float it needs review: the value keeps the digits of the narrow type.
    """
    fixes = conversion_fix(span, large.name) if is_widening(small, large) else ()
    if not small.is_float or small.bits >= REAL_DTYPE_OF.get(large, large).bits:
        return fixes
    more = ascribed_number(span, large)
    digits = f", which has the digits of {small.name}; to keep all digits, declare `{more}`" if more else ""
    return tuple([replace(fix, title=fix.title + digits, leaves_hole=True) for fix in fixes])


def ascribed_number(span: Span, wanted: DType) -> str:
    """A typed declaration for the top-level number that is the only name in a span, or "".

    Only names that are bound once at the top level count.
    """
    text, names = span.source.text, set(NAME.findall(span.text))
    begin = text.rfind("\n", 0, span.start) + 1
    line, before = text[begin : span.end], text[:begin].rstrip()
    if len(names) != 1 or line[:1].isspace() or re.match(r"fn\b|host\b|.*\bfor\b|.*\||.*=>", line):
        return ""
    # The line continues an expression from above.
    if before.endswith(("=", "+", "-", "*", "/", "(", "[", "{", ",", "|")):
        return ""
    (name,) = names
    number = dict(NUMBER_DECLARATION.findall(text[: span.start])).get(name)
    once = len(re.findall(rf"^(?:let|var)[ \t]+{name}\b", text, re.MULTILINE)) == 1
    return f"let {name}: {wanted.name} = {number}" if number is not None and once else ""


def declared_dtype_fix(written: tree.TypeExpr, found: DType, span: Span) -> tuple[Fix, ...]:
    """A fix that converts to the element type of a declared type."""
    if not isinstance(written, (tree.TypeName, tree.TypeApply)) or len(written.path) != 1:
        return ()
    wanted, given = DTYPES.get(written.path[0]), prune_dtype(found)
    return widening_fix(span, given, wanted) if wanted is not None else ()


def is_widening(small: DType, large: DType) -> bool:
    """Whether a conversion is safe to suggest: to a wider type, or from an integer to another kind."""
    if isinstance(small, (DTypeVar, DTypeParam)) or isinstance(large, (DTypeVar, DTypeParam)):
        return False
    if small.is_integer:
        return not large.is_integer or (large.kind in (small.kind, "int") and small.bits < large.bits)
    if small.is_complex:
        return large.is_complex and small.bits < large.bits
    wide = REAL_DTYPE_OF.get(large, large)
    return small.is_float and wide.is_float and (small.bits < wide.bits or (small is wide and large.is_complex))
