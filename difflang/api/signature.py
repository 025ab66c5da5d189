"""Signatures of function values for Python: parameters and results, also of derivatives and mapped functions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.driver.python_parameters import UnquotedText, parameter_kind, tangent_name
from difflang.driver.type_specs import param_size_names
from difflang.elaborate.calls.signatures import is_dim
from difflang.ir.tensor_types import DTYPES
from difflang.syntax import tree
from difflang.types.function_code import DerivativeCode, FnCode, LambdaCode, LinearMapCode, VmapCode, Wrt
from difflang.types.language_types import ClosureType
from difflang.types.module_scope import ModuleScope

MAX_DEFAULT_CHARS = 30  # a longer default is shown as `...`


class Parameter(Struct, frozen=True, eq=False):
    """One parameter. `tangent_of` says of which parameter, and of which path in it, it is a tangent."""

    name: str
    declared_type: tree.TypeExpr | None = None
    span: Span | None = None
    default: str = ""  # the text of its default, if it has one
    tangent_of: tuple[int, tuple[str, ...]] | None = None
    axes: tuple[int | None, ...] = ()  # its batch axes, the outermost `vmap` first

    @property
    def is_dim(self) -> bool:
        return is_dim(self.declared_type)

    @property
    def optional(self) -> bool:
        return bool(self.default)

    @property
    def type_text(self) -> str:
        along = [axis for axis in self.axes if axis is not None]
        if self.declared_type is None:
            return ""
        return self.declared_type.span.text + "".join(
            [" per batch element" + (f" of axis {axis}" if axis else "") for axis in along]
        )


class Signature(Struct, frozen=True, eq=False):
    """The parameters of a function in order, and its effects: `rand` draws, `print` prints, `fail` has checks.

    Without `fixed` the parameters are unknown, as for a builtin. `sizes` are the bound ones.
    """

    parameters: tuple[Parameter, ...] = ()
    module: ModuleScope | None = None
    generics: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    result: tree.TypeExpr | None = None
    gaps: bool = False  # whether a parameter in the middle may be omitted
    fixed: bool = True
    effects: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    vmap_depth: int = 0  # how often it is mapped: the result is per batch element

    @property
    def dims(self) -> tuple[str, ...]:
        """The unbound size names in its parameters, in order of appearance."""
        if self.module is None:
            return ()
        bound, written = dict(self.sizes), [(p.name, p.declared_type) for p in self.parameters]
        return tuple([n for n in param_size_names(self.module, written, self.generics) if n not in bound])

    @property
    def dtypes(self) -> dict[str, str]:
        """The declared element types by parameter: `f32`, or a generic name such as `T`."""
        found: dict[str, str] = {}
        for p in self.parameters:
            match p.declared_type:
                case tree.TypeName(path=(name,)) | tree.TypeApply(path=(name,)) if name in {*DTYPES, *self.generics}:
                    found[p.name] = name
                case _:
                    pass
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @property
    def python_signature(self) -> inspect.Signature:
        """The signature for `inspect.signature`, with types in the language's notation."""
        kind, nothing = parameter_kind(self.names), inspect.Parameter.empty
        # Python allows a default only if all later parameters have one.
        rest = [all(p.optional for p in self.parameters[i:]) for i in range(len(self.parameters))]
        return inspect.Signature(
            [
                inspect.Parameter(
                    p.name,
                    kind,
                    default=UnquotedText(p.default) if may_miss else nothing,
                    annotation=UnquotedText(p.type_text) or nothing,
                )
                for p, may_miss in zip(self.parameters, rest, strict=True)
            ],
            return_annotation=UnquotedText(self.result_text) or inspect.Signature.empty,
        )

    def drop_dims(self, sizes: Mapping[str, int]) -> Signature:
        """The same without the bound `dim`s."""
        kept = tuple([p for p in self.parameters if not (p.is_dim and p.name in sizes)])
        return self if len(kept) == len(self.parameters) else replace(self, parameters=kept)

    @property
    def result_text(self) -> str:
        """The declared result type, if there is one."""
        return self.result.span.text + " per batch element" * self.vmap_depth if self.result is not None else ""

    def __str__(self) -> str:
        """One line: `(x: f32[n], k: f32 = 2.0) -> f32  # rand, with n = 3`."""
        notes = [*self.effects, *([f"with {bound}"] if (bound := self.bound) else [])]
        return self.types + f"  # {', '.join(notes)}" * bool(notes)

    @property
    def types(self) -> str:
        """The parameters and the result, without effects and bound sizes: `(x: f32[n], k: f32 = 2.0) -> f32`."""
        params = [
            p.name + f": {p.type_text}" * bool(p.type_text) + f" = {p.default}" * p.optional for p in self.parameters
        ]
        return f"({', '.join(params)})" + f" -> {self.result_text}" * bool(self.result_text)

    @property
    def bound(self) -> str:
        """The bound sizes, as `n = 3`."""
        return ", ".join([f"{name} = {size}" for name, size in self.sizes])


def default_text(param: tree.Param) -> str:
    """The source of a parameter's default, or `...` if it is long or spans lines."""
    text = param.default.span.text if param.default is not None else ""
    return text if len(text) <= MAX_DEFAULT_CHARS and "\n" not in text else "..."


def signature_of(type: ClosureType) -> Signature:
    """The signature of a function value."""
    match type.code:
        case FnCode(decl=decl, module=module):
            parameters = tuple(Parameter(p.name, p.type, p.span, default_text(p)) for p in decl.params)
            return Signature(parameters, module, {g.name: g.bound for g in decl.generics}, decl.result, gaps=True)
        case LambdaCode(decl=lam, module=module):
            parameters = tuple(Parameter(pattern_name(p.pattern, i), p.type, p.span) for i, p in enumerate(lam.params))
            return Signature(parameters, module)
        case DerivativeCode(operator=operator, wrt=wrt):
            inner = signature_of(inner_function(type))
            whole = replace(inner, result=None, gaps=False)
            # These take tangents as further parameters.
            for place in wrt if operator in ("jvp", "hvp") else ():
                whole = replace(whole, parameters=(*whole.parameters, tangent_parameter(inner, place, whole.names)))
            return whole
        case VmapCode(axes=axes):
            inner = signature_of(inner_function(type))
            # `vmap` in the language maps all arguments along their first axis.
            axes = axes or (0,) * len(inner.parameters)
            mapped = [replace(p, axes=(a, *p.axes)) for p, a in zip(inner.parameters, axes, strict=True)]
            return replace(inner, parameters=tuple(mapped), vmap_depth=inner.vmap_depth + 1)
        case LinearMapCode():
            return Signature((Parameter("ct"),))
        case _:
            return Signature(fixed=False)


def inner_function(type: ClosureType) -> ClosureType:
    inner = type.captures[0]
    assert isinstance(inner, ClosureType)
    return inner


def pattern_name(pattern: tree.Pattern, position: int) -> str:
    return pattern.name if isinstance(pattern, tree.NamePattern) and pattern.name.isidentifier() else f"_{position}"


def tangent_parameter(inner: Signature, wrt: Wrt, used_names: tuple[str, ...]) -> Parameter:
    first, *path = wrt
    position = first if isinstance(first, int) else inner.names.index(first)
    base = inner.parameters[position] if position < len(inner.parameters) else Parameter(f"_{position}")
    fields = tuple(map(str, path))
    return Parameter(tangent_name(base.name, fields, used_names), None, base.span, tangent_of=(position, fields))


def innermost_function(type: ClosureType) -> ClosureType:
    """The function below all derivative operators and `vmap`s."""
    while isinstance(type.code, (DerivativeCode, VmapCode)) and isinstance(type.captures[0], ClosureType):
        type = type.captures[0]
    return type


def function_name(type: ClosureType) -> str:
    """`loss`, `grad_loss`; a lambda has no name."""
    prefix = ""
    while isinstance(type.code, (DerivativeCode, VmapCode)) and isinstance(type.captures[0], ClosureType):
        prefix += f"{type.code.operator if isinstance(type.code, DerivativeCode) else 'vmap'}_"
        type = type.captures[0]
    text = str(type.code)
    return prefix + (text if text.isidentifier() else "function")
