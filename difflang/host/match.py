"""Host `match` statements: which cases a value's type admits, and which case the value matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from difflang.base.source import Span
from difflang.elaborate.patterns.match_expressions import read_cases
from difflang.host.values import HostValue, known_texts
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.syntax import tree
from difflang.types.join_types import is_array_of_sums, sum_options
from difflang.types.language_types import LangType, TextType, TupleType, VariantType, show_type
from difflang.types.match_patterns import CheckedPattern, ConstructorPattern, IrrefutablePattern
from difflang.types.type_errors import make_error
from difflang.types.unify import Unifier

if TYPE_CHECKING:
    from difflang.host.bindings import HostBindings


def possible_cases(host: HostBindings, e: tree.Match, subject: HostValue) -> list[tuple[CheckedPattern, tree.Case]]:
    """The cases of a host `match` that a value of this type may match. Errors: DL035."""
    if is_array_of_sums(subject.type):
        message, way = "`match` takes one value, not an array", "match each of them in a function"
        raise make_error("DL0353", message, (e.subject.span, f"this is {show_type(subject.type)}"), help=way)
    fits = read_cases(Unifier(), host.module, e, subject.type)
    return [(fit, case) for fit, case in zip(fits, e.cases, strict=True) if may_match(fit, subject.type)]


def may_match(fit: CheckedPattern, type: LangType) -> bool:
    if isinstance(fit, IrrefutablePattern):
        return True
    variants = [o for o in sum_options(type) if isinstance(o, VariantType)]
    if not variants:
        parts = type.items if isinstance(type, TupleType) else ()
    else:
        parts = next((v.fields for v in variants if ("variant", v.index) == fit.key), None)
    return parts is not None and all(map(may_match, fit.items, parts))


def matches(fit: CheckedPattern, value: HostValue) -> bool:
    """Whether a known value matches a pattern."""
    if isinstance(fit, IrrefutablePattern):
        return True
    # A value of a sum type is matched by its current variant.
    value = value.chosen()
    kind, what = fit.key
    if kind == "literal":
        return equals_literal(value, what)
    if isinstance(value.type, VariantType) and value.type.index != what:
        return False
    return all(matches(item, value.part(i)) for i, item in enumerate(fit.items))


def equals_literal(value: HostValue, literal: Any) -> bool:
    """Whether a text or a number equals a literal, converted to the value's type."""
    if not isinstance(value.type, Tensor):
        return isinstance(value.type, TextType) and known_texts(value).type == TextType(str(literal))
    number = value.static if value.leaves is None else value.leaves[0]
    return bool(np.asarray(number) == np.asarray(literal, numpy_dtype(value.type.dtype)))


def bind_pattern(host: HostBindings, fit: CheckedPattern, value: HostValue, span: Span) -> None:
    """Bind the names of a pattern; for an unknown value, to its parts in the pattern's variant."""
    if isinstance(fit, IrrefutablePattern):
        host.bind(tree.NamePattern(span, fit.name), value, False, span)
        return
    inside = narrow_to_case(fit, value)
    for i, item in enumerate(fit.items):
        bind_pattern(host, item, inside.part(i), span)


def narrow_to_case(fit: ConstructorPattern, value: HostValue) -> HostValue:
    # At run time the variant is known; during checking take the pattern's.
    if value.leaves is not None:
        return value.chosen()
    options = [o for o in sum_options(value.type) if isinstance(o, VariantType) and ("variant", o.index) == fit.key]
    return HostValue(options[0], None) if options else value
