"""Functions of an artifact with symbolic sizes: the sizes of a call, and the function for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from difflang.artifact.argument_leaves import flatten_value
from difflang.artifact.artifact_graph import GraphFunction
from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.ir.symbolic_dims import dim_name, dim_names
from difflang.ir.verify import verify
from difflang.passes.constant_integers import select_known_branches
from difflang.passes.substitute_dims import DimValues, substitute_graph_dims, substitute_in_attr
from difflang.runtime.value_layouts import (
    FunctionLayout,
    LeafLayout,
    RecordLayout,
    TupleLayout,
    UnionLayout,
    ValueLayout,
    leaves_of,
)


def sizes_of_call(body: GraphFunction, given: Sequence[Any]) -> dict[str, int]:
    """The symbolic sizes of a function, from the first axis of an argument that is one.

    Errors: DL1202 if an argument that has it has other axes; those of `flatten_value`.
    """
    found: dict[str, int] = {}
    for param, value in zip(body.params, given, strict=True):
        leaves = flatten_value(param.layout, value, param.name)
        for leaf, layout in zip(leaves, leaves_of(param.layout), strict=True):
            type = layout.type if isinstance(layout, LeafLayout) else layout
            shape = np.shape(leaf)
            if type is None or len(shape) != len(type.shape):
                continue
            for size, number in zip(type.shape, shape, strict=True):
                for name in dim_names(size):
                    if size == dim_name(name):
                        found.setdefault(name, number)
    missing = [name for name in body.sizes if name not in found]
    if missing:
        message = f"the size `{missing[0]}` of `{body.name}` is not that of an argument: the arguments have other axes"
        raise DifflangError(Diagnostic("DL1202", message, helps=(f"it takes {', '.join(map(shown, body.params))}",)))
    return found


def shown(param: Any) -> str:
    return f"{param.name}: {param.layout}"


def with_sizes(body: GraphFunction, sizes: Mapping[str, int]) -> GraphFunction:
    """The function for these numbers. Errors: DL1202 for 0, and for numbers that parts of its graph do not allow.

    Whether an array may be empty is checked where a function is elaborated for a number.
    """
    try:
        if 0 in sizes.values():
            raise ValueError
        return substitute_sizes(body, lambda name: sizes[name] if name in sizes else dim_name(name))
    except (InternalError, ValueError, ArithmeticError) as error:
        case = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        message = f"`{body.name}` with symbolic sizes cannot be called for {case}"
        way = "it takes an element, or makes an array, that is not there then: export it for that number"
        raise DifflangError(Diagnostic("DL1202", message, helps=(way,))) from error


def substitute_sizes(body: GraphFunction, number: DimValues) -> GraphFunction:
    """The function with numbers for symbolic sizes. Errors: InternalError for numbers that its types do not allow."""
    return replace(
        body,
        graph=verify(select_known_branches(substitute_graph_dims(body.graph, number))),
        params=tuple([replace(p, layout=sized_layout(p.layout, number)) for p in body.params]),
        result=sized_layout(body.result, number),
        sizes=tuple([name for name in body.sizes if number(name) == dim_name(name)]),
    )


def sized_layout(layout: ValueLayout, number: DimValues) -> ValueLayout:
    """A layout with numbers for symbolic sizes."""

    def each(parts: Sequence[ValueLayout]) -> tuple[ValueLayout, ...]:
        return tuple([sized_layout(part, number) for part in parts])

    match layout:
        case LeafLayout(type=type):
            return replace(layout, type=substitute_in_attr(type, number))
        case TupleLayout(parts=parts) | RecordLayout(parts=parts):
            return replace(layout, parts=each(parts))
        case UnionLayout(parts=parts, tag=tag):
            return replace(layout, parts=each(parts), tag=substitute_in_attr(tag, number))
        case FunctionLayout(function_info=GraphFunction() as function):
            return replace(layout, function_info=substitute_sizes(function, number))
        case _:
            return layout
