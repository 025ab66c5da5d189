"""The signature of an op in the notation of the language: `[T: float](x: T[n, m], w: T[m]) -> T[n]`.

It is what stands behind the name in an `extern op`. Parameters of type `dim` and `str` are attributes of the op, all
others its operands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count, cycle
from typing import Any

from msgspec import Struct

from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.base.wording import count_of
from difflang.graph.graph_errors import graph_error
from difflang.ir.graph import Attr
from difflang.ir.op import TypeMismatch, TypeRule, TypeSolver
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import DTYPES, DType, Tensor, Type
from difflang.syntax import tree
from difflang.syntax.parse import parse
from difflang.types.annotations import AnnotationResolver
from difflang.types.dtype_variables import DTYPE_BOUNDS
from difflang.types.size_expressions import refuse_unbound_sizes
from difflang.types.type_errors import DeferCheck
from difflang.types.unify import Unifier

EXAMPLE = '`"[T: float](x: T[n, m], w: T[m]) -> T[n]"`'
# Sizes and ranks for samples: distinct sizes, so that no two agree by accident, then ones. Attributes that are sizes,
# those of a window or the like, are smaller.
SAMPLE_SIZES = ((5, 3, 4, 6), (1, 1, 1, 1))
SAMPLE_ATTRIBUTES = (2, 1)
SAMPLE_SHAPES = ((3,), (2, 1))
ELEMENTWISE_SHAPES = ((3,), (), (2, 1), (0, 2))


class OpSignature(Struct, frozen=True, eq=False):
    """A signature that was read: its operands, its attributes, its result and its generic element types."""

    text: str
    operands: tuple[tree.Param, ...]
    attributes: tuple[tree.Param, ...]
    result: tree.TypeExpr
    generics: Mapping[str, str | None]

    @property
    def results(self) -> tuple[tree.TypeExpr, ...]:
        return self.result.items if isinstance(self.result, tree.TypeTuple) else (self.result,)

    def type_rule(self) -> TypeRule:
        """The type rule of the op. It also knows the names of operands and attributes."""

        def rule(same: TypeSolver, *types: Type, **attrs: Attr) -> tuple[Type, ...]:
            return self.result_types(same, types, attrs)

        rule.__signature__ = self.python_signature()  # pyright: ignore[reportFunctionMemberAccess]
        return rule

    def python_signature(self) -> inspect.Signature:
        kinds = inspect.Parameter
        named = [kinds(p.name, kinds.POSITIONAL_OR_KEYWORD) for p in self.operands]
        keywords = [kinds(p.name, kinds.KEYWORD_ONLY) for p in self.attributes]
        return inspect.Signature([kinds("same", kinds.POSITIONAL_OR_KEYWORD), *named, *keywords])

    def result_types(self, same: TypeSolver, types: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        """The types of the results. Errors: TypeMismatch."""
        if len(types) != len(self.operands):
            raise TypeMismatch(f"it takes {count_of(len(self.operands), 'operand')}, not {len(types)}")
        self.check_attributes(attrs)
        sizes = {p.name: attrs[p.name] for p in self.attributes if type_name(p.type) == "dim"}
        # A rule of the IR compares strictly, and so does a unifier that nothing has been told to.
        resolver = self.resolver(same if isinstance(same, Unifier) else Unifier(), sizes)
        for i, (param, type) in enumerate(zip(self.operands, types, strict=True)):
            assert param.type is not None
            if not isinstance(type, Tensor) or not resolver.match(param.type, type):
                shown = f"`{param.name}` is {param.type.span.text}"
                raise TypeMismatch(f"{shown}, which {type} does not fit", (i,), (shown,))
        try:
            found = [resolver.type(result) for result in self.results]
        except (DifflangError, DeferCheck) as error:
            raise TypeMismatch(f"the type of its result cannot be computed: {error}") from None
        return tuple([require_array(type) for type in found])

    def resolver(self, unifier: Unifier, bound: Mapping[str, Any]) -> AnnotationResolver:
        return AnnotationResolver(unifier, lambda _: None, dict(bound), dict(self.generics))

    def check_attributes(self, attrs: Mapping[str, Attr]) -> None:
        """Errors: TypeMismatch for one that is missing, unknown or of another kind."""
        for param in self.attributes:
            value, wanted = attrs.get(param.name), type_name(param.type)
            fits = isinstance(value, str) if wanted == "str" else is_size(value)
            if not fits:
                given = "missing" if value is None else f"{value!r:.40}"
                raise TypeMismatch(f"its attribute `{param.name}` is a {wanted}, not {given}")
        if unknown := [name for name in attrs if name not in [p.name for p in self.attributes]]:
            raise TypeMismatch(f"it has no attribute `{unknown[0]}`")

    def accepted_dtypes(self) -> tuple[DType, ...]:
        """The element types on which laws are tested: those of the first operand that has a generic one."""
        names = [element_name(p.type) for p in self.operands]
        bounds = [DTYPE_BOUNDS[self.generics[n] or ""] for n in names if n in self.generics]
        return bounds[0] if bounds else (DTYPES[names[0]],) if names else ()

    def sample_types(self, elementwise: bool) -> list[tuple[list[Tensor], dict[str, Attr]]]:
        """Types of the operands and attributes for samples, some lists of them; generic element types are left open.

        Errors: DL1270 if an attribute is a text, for which there is no sample.
        """
        if texts := [p.name for p in self.attributes if type_name(p.type) == "str"]:
            way = f'give examples: `samples=[{{"{self.operands[0].name}": "f64[3]", "{texts[0]}": "…"}}]`'
            raise graph_error("DL1270", f"no value is known for the attribute `{texts[0]}`", help=way)
        open_types = dict.fromkeys(self.generics, DTYPES["f64"])
        found: list[tuple[list[Tensor], dict[str, Attr]]] = []
        shapes = ELEMENTWISE_SHAPES if elementwise else SAMPLE_SHAPES
        attributes = [p.name for p in self.attributes]
        for sizes, attribute, shape in zip(cycle(SAMPLE_SIZES), cycle(SAMPLE_ATTRIBUTES), shapes, strict=False):
            numbers = dict.fromkeys(attributes, attribute)
            lone = [n for n in self.size_names() if n not in attributes]
            numbers |= dict(zip(lone, chain(sizes, count(sizes[-1])), strict=False))
            resolver = self.resolver(Unifier(), {**open_types, **numbers, **dict.fromkeys(self.shape_names(), shape)})
            types = [require_array(resolver.type(p.type)) for p in self.operands if p.type is not None]
            attrs = {p.name: numbers[p.name] for p in self.attributes}
            found.append((types, attrs))
        return found

    def size_names(self) -> list[str]:
        """The names of sizes: attributes first, then those in types, in order."""
        axes = [a for p in self.operands if isinstance(p.type, tree.TypeApply) for a in p.type.args]
        lone = [a.path[0] for a in axes if isinstance(a, tree.TypeName)]
        parts = [n for a in axes if isinstance(a, tree.DimBinary) for n in names_in(a)]
        return list(dict.fromkeys([*[p.name for p in self.attributes], *lone, *parts]))

    def shape_names(self) -> list[str]:
        axes = [a for p in self.operands if isinstance(p.type, tree.TypeApply) for a in p.type.args]
        return [a.name for a in axes if isinstance(a, tree.AnyShape)]


def read_signature(name: str, text: str) -> OpSignature:
    """The signature that a text describes. Errors: DL1270 for a text that is none, and for types that are no arrays."""
    source = Source(f"the type of {name}", f"extern op {name}{text}")
    parsed = parse(source)
    items = parsed.module.items
    if parsed.diagnostics or len(items) != 1 or not isinstance(items[0], tree.Fn):
        reason = f": {parsed.diagnostics[0].message}" if parsed.diagnostics else ""
        way = f"write it as in a program, {EXAMPLE}"
        raise graph_error("DL1270", f"the type of `{name}` cannot be read: `{text}`{reason}", help=way)
    decl = items[0]
    assert decl.result is not None
    generics = {g.name: g.bound for g in decl.generics}
    for generic, bound in generics.items():
        if bound not in DTYPE_BOUNDS:
            bounds = ", ".join(DTYPE_BOUNDS)
            raise graph_error("DL1270", f"`{generic}` of `{name}` is not an element type", help=f"bounds are {bounds}")
    attributes = tuple([p for p in decl.params if type_name(p.type) in ("dim", "str")])
    operands = tuple([p for p in decl.params if p not in attributes])
    found = OpSignature(text.strip(), operands, attributes, decl.result, generics)
    check_signature(name, found, decl)
    return found


def check_signature(name: str, found: OpSignature, decl: tree.Fn) -> None:
    """Errors: DL1270 for what no op has: no operand, a value that is no array, a default, a size from nowhere."""
    if not found.operands:
        raise graph_error("DL1270", f"`{name}` has no operand", help="an op is a function of one or more arrays")
    for what, type in [*[(f"`{p.name}`", p.type) for p in found.operands], *[("a result", r) for r in found.results]]:
        if element_name(type) not in {*DTYPES, *found.generics}:
            shown = "without a type" if type is None else f"of type `{type.span.text}`"
            way = f"operands and results are arrays, attributes are `dim` or `str`: {EXAMPLE}"
            raise graph_error("DL1270", f"{what} of `{name}` is {shown}", help=way)
    if not found.results:
        raise graph_error("DL1270", f"`{name}` has no result", help="an op gives one or more arrays")
    if open_names := set(found.generics) - {element_name(p.type) for p in found.operands}:
        way = "an element type follows from those of the operands"
        raise graph_error("DL1270", f"no operand of `{name}` has the element type `{min(open_names)}`", help=way)
    if twice := [p.name for i, p in enumerate(decl.params) if p.name in [q.name for q in decl.params[:i]]]:
        raise graph_error("DL1270", f"`{name}` has two parameters `{twice[0]}`")
    if given := [p.name for p in decl.params if p.default is not None]:
        raise graph_error("DL1270", f"`{given[0]}` of `{name}` has a default, which no op has", help="leave it out")
    known = {*found.size_names(), *found.shape_names(), *found.generics}
    try:
        refuse_unbound_sizes(found.result, known)
    except DifflangError as error:
        raise graph_error("DL1270", f"the type of `{name}`: {error.diagnostics[0].message}") from None


def elementwise_signature(name: str, function: Callable[..., Any]) -> OpSignature:
    """`[T: float](x: T[..s], y: T[..s]) -> T[..s]`, with the names of the function's parameters."""
    names = [p.name for p in positional_parameters(name, function)]
    params = ", ".join([f"{n}: T[..s]" for n in names])
    return read_signature(name, f"[T: float]({params}) -> T[..s]")


def positional_parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Errors: DL1270 if Python does not know them, as for some functions in C."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        way = 'say the type: `type="[T: float](x: T[..s]) -> T[..s]"`'
        raise graph_error("DL1270", f"the parameters of the reference of `{name}` are not known", help=way) from None
    # The others are options, as those of a function of NumPy.
    return [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]


def type_name(type: tree.TypeExpr | None) -> str:
    return ".".join(type.path) if isinstance(type, tree.TypeName) else ""


def element_name(type: tree.TypeExpr | None) -> str:
    """The element type of an array type, as it is written."""
    return ".".join(type.path) if isinstance(type, (tree.TypeName, tree.TypeApply)) else ""


def names_in(size: tree.TypeExpr | tree.AnyShape) -> list[str]:
    match size:
        case tree.DimBinary():
            return [*names_in(size.lhs), *names_in(size.rhs)]
        case tree.TypeName():
            return [size.path[0]]
        case _:
            return []


def is_size(value: Attr) -> bool:
    return isinstance(value, Poly) or (type(value) is int and value >= 0)


def require_array(type: Any) -> Tensor:
    """Errors: TypeMismatch for a size below 0."""
    assert isinstance(type, Tensor)
    if any(isinstance(n, int) and n < 0 for n in type.shape):
        raise TypeMismatch(f"its result would be an {type}")
    return type
