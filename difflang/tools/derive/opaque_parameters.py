"""Parameters without a known value in a derived program: opaque functions, and one case for each variant of an enum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.base.wording import with_article
from difflang.driver.elaborate_call import CallArgument
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.symbolic_dims import dim_names
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.opaque_call import OpaqueFunction, emit_opaque_call
from difflang.syntax import tree
from difflang.tools.derive.enum_arrays import is_plain_enum_array
from difflang.types.function_code import LinearMapCode, OpaqueFnCode
from difflang.types.language_types import (
    ClosureType,
    FnType,
    LangType,
    RecordType,
    SumType,
    TextType,
    TupleType,
    VariantType,
    function_signature,
    leaf_types,
    show_type,
)
from difflang.types.type_errors import make_error


def bind_function_params(decl: tree.Fn, arguments: Sequence[CallArgument]) -> tuple[CallArgument, ...]:
    """The arguments with opaque functions for parameters of function type. Errors: DL0802."""
    known = {n for a in arguments for n in size_names([a.type])} | {a.name for a in arguments if a.size is not None}
    params = {p.name: p for p in decl.params}
    found: list[CallArgument] = []
    for argument in arguments:
        if isinstance(argument.type, FnType):
            argument = replace(argument, type=opaque_function(params[argument.name], argument.type, known))
        found.append(argument)
    return tuple(found)


def opaque_function(param: tree.Param, type: FnType, known: set[str]) -> ClosureType:
    """A function of this type that the caller supplies. Errors: DL0802."""
    taken, results = list(type.params), tuple_items(type.result)
    if not all([isinstance(t, Tensor) for t in (*taken, *results)]) or not taken or not results:
        raise unsupported_param(
            param,
            (f"`{param.name}` is a function {show_type(type)}, which takes or returns more than numbers and arrays"),
        )
    if type.linear and len(taken) + len(results) > 2:
        raise unsupported_param(param, f"`{param.name}` is a linear function from or to several values")
    # A size that only the function's type mentions could not be determined in a call.
    for name in size_names([*taken, *results]):
        if name not in known:
            way = f"set it: `--arg {name}=3` writes the derivative for that size"
            raise unsupported_param(param, f"only the type of `{name}` names the size `{param.name}`", way)
    params, gives = tuple(leaf_types(TupleType(type.params))), tuple(leaf_types(type.result))
    function = OpaqueFunction(param.name, params, gives, type.linear)
    if not type.linear:
        return ClosureType(OpaqueFnCode(function, type), ())
    return ClosureType(
        LinearMapCode(single_call_graph(function), taken[0], type.result, single_call_graph(function.transposed)), ()
    )


def single_call_graph(function: OpaqueFunction) -> Graph:
    return build_region(function.params, lambda *xs: emit_opaque_call(xs[0].home, function, *xs), function.name)


def tuple_items(type: LangType) -> Sequence[LangType]:
    return type.items if isinstance(type, TupleType) else (type,)


def size_names(types: Sequence[LangType]) -> dict[str, None]:
    """The size names in types."""
    return {n: None for t in types for leaf in leaf_types(t) for d in leaf.shape for n in sorted(dim_names(d))}


def unsupported_param(
    param: tree.Param, message: str, way: str = "derive a function that calls it with one"
) -> DifflangError:
    return make_error("DL0802", message, (param.span, ""), help=way)


def function_type_text(type: LangType) -> str:
    """A type as source text, with the parameters of a function in parentheses."""
    known = function_signature(type) if isinstance(type, ClosureType) else None
    if known is None or known.linear:
        return show_type(known or type)
    return f"({', '.join(map(show_type, known.params))}) -> {show_type(known.result)}"


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
            f"`{decl.name}` takes one of {count} combinations of variants, but at most {MAX_CASES} are written out"
        )
        raise make_error("DL0802", message, (decl.name_span, ""), help="derive a function of fewer enums")
    return [dict(zip(sums, chosen, strict=True)) for chosen in product(*sums.values())]


def refuse_sums(decl: tree.Fn, type: LangType) -> None:
    """Errors: DL0802 for a sum type or an array of texts, or a type that contains one."""
    if isinstance(type, TextType) and type.number is not None:
        message = f"`{decl.name}` takes {with_article(show_type(type))}, whose texts are numbers in the derivative"
        way = "derive a function of the numbers that `codes` gives for the texts"
        raise make_error("DL0802", message, (decl.name_span, ""), help=way)
    if isinstance(type, (SumType, VariantType)) and not is_plain_enum_array(type):
        message = f"`{decl.name}` takes or returns {with_article(show_type(type))}, whose tangents cannot be written"
        raise make_error(
            "DL0802", message, (decl.name_span, ""), help="derive a function of the contents of its variants"
        )
    inner = type.fields if isinstance(type, RecordType) else getattr(type, "items", ())
    for each in inner:
        refuse_sums(decl, each)
