"""Functions of a given type, to be passed to a program that takes one: smooth ones with roots, minima, fixed points."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.base.source import Source
from difflang.driver.elaborate_call import CallArgument, elaborate_call
from difflang.elaborate.context import Session
from difflang.ir.tensor_types import Tensor
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType, FnType, LangType, TupleType, function_signature
from difflang.types.module_scope import ModuleScope

KINDS = {
    "a contraction": "0.4 * sin({0}) + 0.2",
    "one that grows": "{0} + 0.3 * sin({0}) - 0.5",
    "one that falls": "0.3 * cos({0}) - {0}",
    "a bowl": "0.5 * ({0})^2 + 0.1 * cos({0})",
}


def closed(module: ModuleScope, arguments: Sequence[CallArgument], kind: str) -> tuple[CallArgument, ...]:
    """The arguments, a function of that kind for each that is a function."""
    return tuple([CallArgument(a.name, known(module, a.type, kind), a.size, a.by_name) for a in arguments])


def known(module: ModuleScope, type: LangType, kind: str) -> LangType:
    """The type of a lambda that fits a type of functions; of anything else that type itself."""
    function = function_signature(type) if isinstance(type, (ClosureType, FnType)) else None
    if function is None:
        return type
    (made,) = parse(Source("<given>", f"fn made() = {written(function, kind)}")).module.items
    assert isinstance(made, tree.Fn)
    return elaborate_call(Session(), module, "made", ClosureType(FnCode(made, module), ()), ()).type


def written(type: FnType, kind: str) -> str:
    """A lambda of that type: the formula of the kind in a mixture of what it takes. One that is linear is symmetric."""
    if type.linear:
        (taken,) = type.params
        assert taken == type.result and isinstance(taken, Tensor) and len(taken.shape) < 2, type
        return f"linear |x: {str(taken).replace('[]', '')}| 3.0 * x" + (" + 0.5 * reverse(x)" if taken.shape else "")
    results = type.result.items if isinstance(type.result, TupleType) else (type.result,)
    values = [formula(type.params, r, kind, 1.0 + 0.1 * i) for i, r in enumerate(results)]
    head = ", ".join(f"x{i}" for i in range(len(type.params)))
    return f"|{head}| " + (f"({', '.join(values)})" if isinstance(type.result, TupleType) else values[0])


def formula(params: Sequence[LangType], result: LangType, kind: str, scale: float) -> str:
    """One of the results: element by element in what has its shape, of the rest in the sum."""
    assert isinstance(result, Tensor)
    terms: list[str] = []
    for i, type in enumerate(params):
        if isinstance(type, Tensor) and type.dtype.is_float:
            term = f"x{i}" if type.shape in ((), result.shape) else f"sum(x{i})"
            terms.append(f"{scale / (1 + len(terms))} * {term}")
    value = KINDS[kind].format(" + ".join(terms) or "0.7")
    if result.shape and not any(isinstance(t, Tensor) and t.shape == result.shape for t in params):
        value = f"fill({', '.join(map(str, result.shape))}, {value})"
    return value if result.dtype.is_float else f"{value} > 0.1"
