"""Unparse rule for calls of opaque functions (function parameters) and of their derivatives, by operators.

A derivative is written as `f'`, `grad(f)`, `hvp(f)` or `jvp(f)`. If an operator gives more than is read, such as the
value beside a tangent, a pattern discards the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from difflang.ir.graph import Eqn, Value
from difflang.ops.control.opaque_call import OpaqueFunction, function_of
from difflang.unparse.fragments import POSTFIX, CannotUnparse, Fragment
from difflang.unparse.unparser import NamePool, Unparser, tensor_type, tuple_text, unparse_rule


class CallText(Struct, frozen=True):
    """A function application: statements, and the values of its results."""

    lines: Sequence[str]
    values: Sequence[str]


@unparse_rule("opaque_call")
def opaque_call(writer: Unparser, eqn: Eqn) -> list[Fragment]:
    """A call: an expression if it gives one value, else statements that name the results that are read."""
    function, types = function_of(eqn), list(map(tensor_type, eqn.results))
    operands = [operand_text(writer, v, function) for v in eqn.operands]

    def named() -> list[str]:
        return [writer.names.fresh(writer.user_name(r) or "t") if writer.uses[r] else "_" for r in eqn.results]

    applied = call_text(writer.names, function, operands, named)
    if writer.single_expression and (applied.lines or len(types) != 1):
        raise CannotUnparse("a derivative with respect to several numbers of a function parameter has no formula")
    for line in applied.lines:
        writer.emit(line, eqn.span)
    return [Fragment(v, POSTFIX, t.shape, t.dtype) for v, t in zip(applied.values, types, strict=True)]


def operand_text(writer: Unparser, value: Value, function: OpaqueFunction) -> str:
    """An argument as text; a number literal needs no type if the function itself declares it."""
    words = writer.words(value)
    plain = function.operator is None and words.shape == tensor_type(value).shape
    return (words if plain else writer.full_shape(value)).text


def call_text(
    names: NamePool, function: OpaqueFunction, operands: Sequence[str], result_names: Callable[[], Sequence[str]]
) -> CallText:
    """A function applied to these texts; `result_names` makes names for results that a pattern binds."""
    if (known := derivative_name(function)) is not None or function.of is None:
        call = f"{known or function.name}({', '.join(operands)})"
        if len(function.results) == 1:
            return CallText((), (call,))
        results = result_names()
        return CallText((f"let {tuple_text(results)} = {call}",), results)
    # From here on a derivative that no single name expresses: a jvp, or a gradient in several parameters.
    of, count = function.of, len(function.of.params)
    if function.operator == "jvp":
        results = result_names()
        moved = iter(results)
        pattern = tuple_text([next(moved) if r.tangent is not None else "_" for r in of.results])
        call = f"jvp{wrt_brackets(function.wrt)}({function_expression(names, of)})({', '.join(operands)})"
        return CallText((f"let (_, {pattern}) = {call}",), results)
    params = lambda_parameters(names, count) if len(function.wrt) > 1 else []
    inner = f"|{', '.join(params)}| {lambda_body(names, of, params)}" if params else function_expression(names, of)
    places = f"[{', '.join(params[p] for p in function.wrt)}]" if params else wrt_brackets(function.wrt)
    call = f"{function.operator}{places}({inner})({', '.join(operands[:count])})"
    if function.operator == "grad":
        return CallText(*gradient_components(names, call, params, function.wrt))
    pull = names.fresh("pull")
    cts = iter(operands[count:])
    pulled = tuple_text([next(cts) if r.tangent is not None else "()" for r in of.results])
    lines, values = gradient_components(names, f"{pull}({pulled})", params, function.wrt)
    return CallText((f"let (_, {pull}) = {call}", *lines), values)


def gradient_components(
    names: NamePool, value: str, params: Sequence[str], places: Sequence[int]
) -> tuple[Sequence[str], Sequence[str]]:
    """The parts of a derivative in several parameters, which is a record."""
    if not params:
        return (), (value,)
    whole = names.fresh("d")
    return (f"let {whole} = {value}",), [f"{whole}.{params[p]}" for p in places]


def derivative_name(function: OpaqueFunction) -> str | None:
    """The expression of a function by its name and operators, if it has one."""
    of = function.of
    if of is None:
        return function.name
    match function.operator:
        case "deriv" if (inner := derivative_name(of)) is not None:
            return f"{inner}'"
        case "transpose" if (inner := derivative_name(of)) is not None:
            return f"transpose({inner})"
        case "grad" if len(function.wrt) == 1 and (inner := derivative_name(of)) is not None:
            return f"grad{wrt_brackets(function.wrt)}({inner})"
        case "jvp" if of.operator == "grad" and of.wrt == function.wrt and of.of is not None:
            inner = derivative_name(of.of) if len(of.wrt) == 1 else None
            return None if inner is None else f"hvp{wrt_brackets(of.wrt)}({inner})"
        case _:
            return None


def function_expression(names: NamePool, function: OpaqueFunction) -> str:
    """A function as an expression: its name with operators, or a lambda."""
    # `hvp(f)` has only the parameters of `f`, so a jvp needs a lambda.
    known = derivative_name(function)
    if known is not None and function.operator != "jvp":
        return known
    params = lambda_parameters(names, len(function.params))
    return f"|{', '.join(params)}| {lambda_body(names, function, params)}"


def lambda_body(names: NamePool, function: OpaqueFunction, params: Sequence[str]) -> str:
    """The body of a lambda that applies a function to its parameters."""
    if (known := derivative_name(function)) is not None:
        return f"{known}({', '.join(params)})"
    applied = call_text(names, function, params, lambda: [names.fresh("y") for _ in function.results])
    value = tuple_text(applied.values)
    return "{\n" + "\n".join([*applied.lines, value]) + "\n}" if applied.lines else value


def lambda_parameters(names: NamePool, count: int) -> list[str]:
    """Names for the parameters of a lambda."""
    # All lambdas share these names: none reads the parameters of a lambda around it.
    letters = "abcdefghij"
    while len(names.lambda_params) < count:
        names.lambda_params.append(names.fresh(letters[min(len(names.lambda_params), len(letters) - 1)]))
    return names.lambda_params[:count]


def wrt_brackets(places: Sequence[int]) -> str:
    """The parameters of a derivative in brackets; empty for the first, which is the default."""
    return "" if tuple(places) == (0,) else f"[{', '.join(map(str, places))}]"
