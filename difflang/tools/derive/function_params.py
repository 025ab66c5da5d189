"""Parameters that are functions, in a derivative that is written down: nobody says which, so their types are known."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from difflang.base.diagnostics import DifflangError
from difflang.driver.elaborate_call import Argument
from difflang.ir.builder import region
from difflang.ir.graph import Graph
from difflang.ir.symbolic_dims import names
from difflang.ir.tensor_types import Tensor
from difflang.ops.control.opaque_call import Given, call_of
from difflang.syntax import tree
from difflang.types.function_code import GivenCode, MapCode
from difflang.types.language_types import ClosureType, FnType, LangType, TupleType, declared_type, leaf_types, show_type
from difflang.types.type_errors import mistake


def with_functions(decl: tree.Fn, arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments, where a type of functions is that of one that is given. Errors: DL0802."""
    told = {n for a in arguments for n in names_in([a.type])} | {a.name for a in arguments if a.size is not None}
    params = {p.name: p for p in decl.params}
    found: list[Argument] = []
    for argument in arguments:
        if isinstance(argument.type, FnType):
            argument = replace(argument, type=given_function(params[argument.name], argument.type, told))
        found.append(argument)
    return tuple(found)


def given_function(param: tree.Param, type: FnType, told: set[str]) -> ClosureType:
    """A function of this type that whoever calls gives. Errors: DL0802."""
    taken, results = list(type.params), flat(type.result)
    if not all([isinstance(t, Tensor) for t in (*taken, *results)]) or not taken or not results:
        raise cannot(param, f"`{param.name}` is a function {show_type(type)}, of more than numbers and arrays")
    if type.linear and len(taken) + len(results) > 2:
        raise cannot(param, f"`{param.name}` is a linear function of several values, or to several")
    for name in names_in([*taken, *results]):
        if name not in told:
            way = f"tell it: `--arg {name}=3` writes the derivative down for that"
            raise cannot(param, f"the size `{name}` is named by the type of `{param.name}` alone", way)
    params, gives = tuple(leaf_types(TupleType(type.params))), tuple(leaf_types(type.result))
    function = Given(param.name, params, gives, type.linear)
    if not type.linear:
        return ClosureType(GivenCode(function, type), ())
    return ClosureType(MapCode(call_alone(function), taken[0], type.result, call_alone(function.turned)), ())


def call_alone(function: Given) -> Graph:
    return region(function.params, lambda *xs: call_of(xs[0].home, function, *xs), function.name)


def flat(type: LangType) -> Sequence[LangType]:
    return type.items if isinstance(type, TupleType) else (type,)


def names_in(types: Sequence[LangType]) -> dict[str, None]:
    """The names of sizes in types."""
    return {n: None for t in types for leaf in leaf_types(t) for d in leaf.shape for n in sorted(names(d))}


def cannot(param: tree.Param, message: str, way: str = "derive a function that calls it with one") -> DifflangError:
    return mistake("DL0802", message, (param.span, ""), help=way)


def shown(type: LangType) -> str:
    """A type as people write it, who put what a function takes into parentheses."""
    known = declared_type(type) if isinstance(type, ClosureType) else None
    if known is None or known.linear:
        return show_type(known or type)
    return f"({', '.join(map(show_type, known.params))}) -> {show_type(known.result)}"
