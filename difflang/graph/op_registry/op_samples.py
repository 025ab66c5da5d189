"""How the laws draw operands of a user's op: by an interval, by one for each operand, or by examples.

An example names every operand and attribute. An operand is a type as text, `"f64[3, 2]"`, or an array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from difflang.base.error_codes import suggestion
from difflang.graph.builder_attributes import type_from_spec
from difflang.graph.graph_errors import graph_error
from difflang.graph.op_registry.op_signature import OpSignature, element_name
from difflang.ir.graph import Attr
from difflang.ir.tensor_types import DTYPES, DType, Tensor
from difflang.ops.op_factories import DrawnOperand, FixedOperand, OpExample, UniformSamples
from difflang.runtime.argument_conversion import DTYPE_BY_NUMPY

Interval = UniformSamples | tuple[float, float]
Samples = Interval | Mapping[str, Interval] | Sequence[Mapping[str, Any]]
FORMS = 'an interval `(-2.0, 2.0)`, one for each operand `{"x": (0.1, 2.0)}`, or examples `[{"x": "f64[3]", "k": 2}]`'


def read_samples(
    name: str,
    given: Any,
    signature: OpSignature | None,
    operands: Sequence[str],
    attributes: Sequence[str],
    *,
    elementwise: bool,
) -> tuple[OpExample, ...]:
    """The examples of an op. Errors: DL1270 for anything else, and where the type alone says no shapes."""
    if isinstance(given, list):
        examples = [read_example(name, one, signature, operands, attributes) for one in cast(list[Any], given)]
        if not examples:
            raise graph_error("DL1270", f"`{name}` has no samples", help=f"`samples` is {FORMS}")
        return tuple(examples)
    if signature is None:
        message = f"the type of `{name}` is a function, so no samples can be drawn"
        raise graph_error("DL1270", message, help=f'give examples: `samples=[{{"{operands[0]}": "f64[3]"}}]`')
    intervals = read_intervals(name, given, operands)
    return tuple([
        OpExample(tuple([drawn(p.type, t, intervals[p.name]) for p, t in zip(signature.operands, types, strict=True)]),
                  attrs)
        for types, attrs in signature.sample_types(elementwise)
    ])  # fmt: skip


def drawn(written: Any, type: Tensor, interval: UniformSamples) -> DrawnOperand:
    """An operand of a signature: in the element type under test, if it is generic."""
    shape = tuple([n for n in type.shape if isinstance(n, int)])
    return DrawnOperand(shape, interval, DTYPES.get(element_name(written)))


def read_intervals(name: str, given: Any, operands: Sequence[str]) -> dict[str, UniformSamples]:
    if isinstance(given, Mapping):
        named = cast(Mapping[Any, Any], given)
        for operand in named:
            if operand not in operands:
                message = f"`{name}` has no operand `{operand}` to draw"
                raise graph_error("DL1270", message, help=suggestion(str(operand), operands))
        return {n: read_interval(name, named.get(n, UniformSamples())) for n in operands}
    return dict.fromkeys(operands, read_interval(name, given))


def read_interval(name: str, given: Any) -> UniformSamples:
    """Errors: DL1270 for anything but two numbers, the smaller first."""
    if isinstance(given, UniformSamples):
        return given
    bounds = cast(tuple[Any, ...], given) if isinstance(given, tuple) else ()
    if len(bounds) == 2 and all(type(x) in (int, float) and np.isfinite(x) for x in bounds) and bounds[0] < bounds[1]:
        return UniformSamples(float(bounds[0]), float(bounds[1]))
    raise graph_error("DL1270", f"{given!r:.60} is no interval of samples for `{name}`", help=f"`samples` is {FORMS}")


def read_example(
    name: str, given: Any, signature: OpSignature | None, operands: Sequence[str], attributes: Sequence[str]
) -> OpExample:
    if not isinstance(given, Mapping):
        raise graph_error("DL1270", f"{given!r:.60} is no example of `{name}`", help=f"`samples` is {FORMS}")
    named = dict(cast(Mapping[str, Any], given))
    wanted = [*operands, *attributes]
    if unknown := [n for n in named if n not in wanted]:
        message = f"an example of `{name}` has `{unknown[0]}`, which is no operand or attribute"
        raise graph_error("DL1270", message, help=suggestion(str(unknown[0]), wanted))
    if missing := [n for n in wanted if n not in named]:
        raise graph_error("DL1270", f"an example of `{name}` lacks `{missing[0]}`")
    declared = {p.name: DTYPES.get(element_name(p.type)) for p in signature.operands} if signature else {}
    attrs: dict[str, Attr] = {n: named[n] for n in attributes}
    made = [read_operand(name, n, named[n], declared.get(n), generic=n in declared) for n in operands]
    return OpExample(tuple(made), attrs)


def read_operand(
    name: str, operand: str, given: Any, declared: DType | None, *, generic: bool
) -> DrawnOperand | FixedOperand:
    """An operand of an example, in its declared element type; one of a generic element type takes that under test."""
    if isinstance(given, str):
        type = type_from_spec(given)
        if not isinstance(type, Tensor) or not all(isinstance(n, int) for n in type.shape):
            raise graph_error("DL1270", f"`{operand}` of an example of `{name}` has no shape of numbers: {given}")
        shape = tuple([n for n in type.shape if isinstance(n, int)])
        return DrawnOperand(shape, None, declared if generic else type.dtype)
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    dtype = DTYPE_BY_NUMPY.get(array.dtype)
    if dtype is None:
        message = f"`{operand}` of an example of `{name}` is {given!r:.40}, not an array or a type"
        raise graph_error("DL1270", message, help=f"`samples` is {FORMS}")
    return FixedOperand(array.tolist(), declared if generic else dtype)
