"""What a function takes: its parameters as written, of derivatives too. Nothing is looked up in arguments here."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace

from difflang.base.source import Span
from difflang.check.closures import DerivativeCode, FnCode, LambdaCode, MapCode, VmapCode, Wrt
from difflang.check.modules import Module
from difflang.check.types import ClosureType
from difflang.driver.parameters import kind_of, tangent_name
from difflang.elaborate.signatures import is_dim
from difflang.syntax import tree


@dataclass(frozen=True, eq=False, slots=True)
class Parameter:
    """One parameter. `written` is its declared type; `tangent_of` says of which parameter's part it is a tangent."""

    name: str
    written: tree.TypeExpr | None = None
    span: Span | None = None
    optional: bool = False
    tangent_of: tuple[int, tuple[str, ...]] | None = None

    @property
    def is_dim(self) -> bool:
        return is_dim(self.written)

    @property
    def shown(self) -> str:
        return self.written.span.text if self.written is not None else ""


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """The parameters of a function in order. Without `fixed` nothing is known of them, as of a builtin's."""

    parameters: tuple[Parameter, ...] = ()
    module: Module | None = None
    generics: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    result: tree.TypeExpr | None = None
    gaps: bool = False  # whether one in the middle may be left out
    fixed: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @property
    def python(self) -> inspect.Signature:
        """For `inspect.signature`; the types as the language writes them."""
        kind, nothing = kind_of(self.names), inspect.Parameter.empty
        rest = [all(p.optional for p in self.parameters[i:]) for i in range(len(self.parameters))]
        return inspect.Signature(
            [
                inspect.Parameter(p.name, kind, default=... if may_miss else nothing, annotation=p.shown or nothing)
                for p, may_miss in zip(self.parameters, rest, strict=True)
            ],
            return_annotation=self.result.span.text if self.result is not None else inspect.Signature.empty,
        )


def signature_of(type: ClosureType) -> Signature:
    """The signature of a function value."""
    match type.code:
        case FnCode(decl=decl, module=module):
            parameters = tuple(Parameter(p.name, p.type, p.span, p.default is not None) for p in decl.params)
            return Signature(parameters, module, {g.name: g.bound for g in decl.generics}, decl.result, gaps=True)
        case LambdaCode(decl=lam, module=module):
            parameters = tuple(Parameter(pattern_name(p.pattern, i), p.type, p.span) for i, p in enumerate(lam.params))
            return Signature(parameters, module)
        case DerivativeCode(operator=operator, wrt=wrt):
            inner = signature_of(function_in(type))
            whole = replace(inner, result=None, gaps=False)
            for place in wrt if operator in ("jvp", "hvp") else ():
                whole = replace(whole, parameters=(*whole.parameters, tangent(inner, place, whole.names)))
            return whole
        case VmapCode():
            inner = signature_of(function_in(type))
            return replace(
                inner, parameters=tuple(Parameter(p.name, None, p.span) for p in inner.parameters), result=None
            )
        case MapCode():
            return Signature((Parameter("ct"),))
        case _:
            return Signature(fixed=False)


def function_in(type: ClosureType) -> ClosureType:
    inner = type.captures[0]
    assert isinstance(inner, ClosureType)
    return inner


def pattern_name(pattern: tree.Pattern, position: int) -> str:
    return pattern.name if isinstance(pattern, tree.NamePattern) and pattern.name.isidentifier() else f"_{position}"


def tangent(inner: Signature, wrt: Wrt, taken: tuple[str, ...]) -> Parameter:
    first, *path = wrt
    position = first if isinstance(first, int) else inner.names.index(first)
    base = inner.parameters[position] if position < len(inner.parameters) else Parameter(f"_{position}")
    fields = tuple(map(str, path))
    return Parameter(tangent_name(base.name, fields, taken), None, base.span, tangent_of=(position, fields))


def innermost(type: ClosureType) -> ClosureType:
    """The function that derivatives are of."""
    while isinstance(type.code, DerivativeCode) and isinstance(type.captures[0], ClosureType):
        type = type.captures[0]
    return type


def name_of(type: ClosureType) -> str:
    """`loss`, `grad_loss`; a lambda has no name."""
    prefix = ""
    while isinstance(type.code, DerivativeCode) and isinstance(type.captures[0], ClosureType):
        prefix += f"{type.code.operator}_"
        type = type.captures[0]
    text = str(type.code)
    return prefix + (text if text.isidentifier() else "function")
