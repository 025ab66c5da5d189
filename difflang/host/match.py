"""Enums between host statements: which cases of a `match` a value may be of, and which one it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from difflang.base.source import Span
from difflang.elaborate.patterns.match_expressions import rows
from difflang.host.values import HostValue
from difflang.ir.interpreter import numpy_dtype
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.types.join_types import is_stacked, options_of
from difflang.types.language_types import LangType, TextType, TupleType, VariantType, show_type
from difflang.types.match_patterns import Anything, Begins, Fit
from difflang.types.type_errors import mistake
from difflang.types.unify import Unifier

if TYPE_CHECKING:
    from difflang.host.bindings import Bindings


def cases_of(host: Bindings, e: tree.Match, subject: HostValue) -> list[tuple[Fit, tree.Case]]:
    """The cases of a host `match` that a value of this type may be of. Errors: DL035."""
    if is_stacked(subject.type):
        message, way = "one value is matched, not an array of them", "match each of them in a function"
        raise mistake("DL0353", message, (e.subject.span, f"this is {show_type(subject.type)}"), help=way)
    fits = rows(Unifier(), host.module, e, subject.type)
    return [(fit, case) for fit, case in zip(fits, e.cases, strict=True) if possible(fit, subject.type)]


def possible(fit: Fit, type: LangType) -> bool:
    if isinstance(fit, Anything):
        return True
    variants = [o for o in options_of(type) if isinstance(o, VariantType)]
    if not variants:
        parts = type.items if isinstance(type, TupleType) else ()
    else:
        parts = next((v.fields for v in variants if ("variant", v.index) == fit.key), None)
    return parts is not None and all(map(possible, fit.items, parts))


def fitting(fit: Fit, value: HostValue) -> bool:
    """Whether a value that is there fits a pattern."""
    if isinstance(fit, Anything):
        return True
    value = value.chosen()
    kind, what = fit.key
    if kind == "literal":
        return equal(value, what)
    if isinstance(value.type, VariantType) and value.type.index != what:
        return False
    return all(fitting(item, value.part(i)) for i, item in enumerate(fit.items))


def equal(value: HostValue, literal: Any) -> bool:
    """Whether a text or a number is the one that is written, as a number of the same type."""
    if not isinstance(value.type, Tensor):
        return isinstance(value.type, TextType) and value.type.value == literal
    number = value.static if value.leaves is None else value.leaves[0]
    return bool(np.asarray(number) == np.asarray(literal, numpy_dtype(value.type.dtype)))


def bind(host: Bindings, fit: Fit, value: HostValue, span: Span) -> None:
    """Bind the names of a pattern; of a value that is not there yet, to what is of the pattern's variant."""
    if isinstance(fit, Anything):
        host.bind(tree.NamePattern(span, fit.name), value, False, span)
        return
    inside = of_case(fit, value)
    for i, item in enumerate(fit.items):
        bind(host, item, inside.part(i), span)


def of_case(fit: Begins, value: HostValue) -> HostValue:
    if value.leaves is not None:
        return value.chosen()
    options = [o for o in options_of(value.type) if isinstance(o, VariantType) and ("variant", o.index) == fit.key]
    return HostValue(options[0], None) if options else value
