"""`codes(texts)`: the categories in an array of texts, sorted, and the number of each text among them."""

from __future__ import annotations

import numpy as np

from difflang.base.diagnostics import printable
from difflang.base.source import Span
from difflang.base.text_numbers import numbered_text
from difflang.base.wording import count_of
from difflang.host.bindings import HostBindings
from difflang.host.builtins import BuiltinCall, RunningProgram, host_builtin
from difflang.host.values import HostValue
from difflang.ir.symbolic_dims import Dim, dim_name
from difflang.ir.tensor_types import I32, Tensor
from difflang.types.language_types import LangType, TextType, TupleType, array_axes, show_type
from difflang.types.type_errors import make_error


def codes_type(_: HostBindings, given: BuiltinCall) -> LangType:
    given.check_arity(1, 2)
    shapes = [text_axes(given, place) for place in range(len(given.items))]
    numbers = Tensor(I32, shapes[0])
    if len(shapes) == 2:
        if len(shapes[1]) != 1:
            raise given.usage_error(given.items[1][1], f"this has {count_of(len(shapes[1]), 'axis', 'axes')}")
        return numbers
    line, column = given.span.position
    return TupleType((numbers, TextType(number=Tensor(I32, (dim_name(f"texts of line {line}:{column}"),)))))


def text_axes(given: BuiltinCall, place: int) -> tuple[Dim, ...]:
    """The axes of an argument that is an array of texts. Errors: DL0319."""
    value, span = given.items[place]
    if not isinstance(value.type, TextType) or not array_axes(value.type):
        raise given.usage_error(span, f"this is {show_type(value.type)}, but an array of texts is required")
    return array_axes(value.type)


@host_builtin("codes", "`let (code, names) = codes(texts)`, or `codes(texts, names)`", codes_type)
def codes(_: RunningProgram, given: BuiltinCall) -> HostValue:
    """The sorted distinct texts and the place of each text among them, or their places among some names."""
    numbers = given.items[0][0].array
    distinct, places = distinct_numbers(numbers)
    texts = [numbered_text(n) for n in distinct.tolist()]
    if len(given.items) == 2:
        names = [numbered_text(n) for n in given.items[1][0].array.tolist()]
        return number_array(places_among(texts, names, given.items[0][1])[places])
    order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int32)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    code = number_array(rank[places])
    names = number_array(distinct[order])
    type = TupleType((code.type, TextType(number=names.type)))  # type: ignore[arg-type]
    return HostValue(type, (*(code.leaves or ()), *(names.leaves or ())))


def distinct_numbers(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers, and the place of each among them. Numbers of texts are dense, so nothing need be sorted."""
    here = np.zeros(numbers.max(initial=0) + 1, np.bool_)
    here[numbers] = True
    return np.flatnonzero(here), (np.cumsum(here) - 1)[numbers]


def number_array(numbers: np.ndarray) -> HostValue:
    return HostValue(Tensor(I32, numbers.shape), (numbers.astype(np.int32),))


def places_among(texts: list[str], names: list[str], span: Span) -> np.ndarray:
    """The place of each text among names. Errors: DL0910 for a text that is none of them."""
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    missing = sorted(set(texts) - set(places))
    if missing:
        some = ", ".join(f'"{printable(t)[:40]}"' for t in missing[:5]) + (", …" if len(missing) > 5 else "")
        raise make_error("DL0910", f"{some} {'is' if len(missing) == 1 else 'are'} not among the names", (span, ""))
    return np.array([places[text] for text in texts], np.int32)
