"""The code of function values: declared functions, lambdas, built-ins, constructors, derivatives, linear maps.

A code with the types of its captures is a type, see `ClosureType`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from msgspec import Struct

from difflang.base.partial_equality import PartialEquality
from difflang.base.source import Span
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import DType, Tensor
from difflang.ops.control.opaque_call import OpaqueFunction
from difflang.syntax import tree
from difflang.types.language_types import FnType, FunctionCode, LangType, show_type
from difflang.types.module_scope import ModuleScope, StaticNumber


class StaticCapture(Struct, frozen=True):
    """A host constant that a function captured and specialization may use."""

    name: str
    value: StaticNumber
    type: Tensor


class EnclosingGeneric(Struct, frozen=True):
    """A generic of an enclosing function that a function mentions: its bound, and its type once inferred."""

    name: str
    bound: str | None
    type: DType | LangType | None


@contextmanager
def bind_generics(annotations: Any, types: Sequence[EnclosingGeneric], sizes: Mapping[str, Any]) -> Generator[None]:
    """Inside, annotations see these generics and sizes in addition to their own."""
    names, both = {*annotations.generics, *[t.name for t in types], *sizes}, (annotations.generics, annotations.bound)
    before = [{n: known[n] for n in names if n in known} for known in both]
    now = {t.name: t.bound for t in types}, {t.name: t.type for t in types if t.type is not None} | {**sizes}
    swap_bindings(both, names, now)
    try:
        yield
    finally:
        swap_bindings(both, names, before)


def swap_bindings(both: Sequence[dict[str, Any]], names: Iterable[str], now: Sequence[Mapping[str, Any]]) -> None:
    """Replace the bindings of these names."""
    for known, new in zip(both, now, strict=True):
        for name in names:
            known.pop(name, None)
        known.update(new)


class FnCode(FunctionCode, frozen=True):
    """A declared function. A nested one captures `names` from the function around it."""

    decl: tree.Fn
    module: ModuleScope
    names: tuple[str, ...] = ()
    static_captures: tuple[StaticCapture, ...] = ()
    enclosing_generics: tuple[EnclosingGeneric, ...] = ()

    def __str__(self) -> str:
        return self.decl.name


class LambdaCode(FunctionCode, frozen=True):
    """A lambda. It captures `names` from its scope."""

    decl: tree.Lambda
    module: ModuleScope
    names: tuple[str, ...]
    static_captures: tuple[StaticCapture, ...] = ()
    enclosing_generics: tuple[EnclosingGeneric, ...] = ()

    def __str__(self) -> str:
        return "|" + ", ".join(p.span.text for p in self.decl.params) + "| ..."

    @property
    def is_linear(self) -> bool:
        return self.decl.linear


class BuiltinCode(FunctionCode, frozen=True):
    """A built-in function."""

    name: str

    def __str__(self) -> str:
        return self.name


class RecordCode(FunctionCode, frozen=True):
    """The constructor of a record."""

    decl: tree.Record
    module: ModuleScope

    def __str__(self) -> str:
        return self.decl.name


class VariantCode(FunctionCode, frozen=True):
    """The constructor of a variant of an enum that has fields."""

    decl: tree.Enum
    index: int
    module: ModuleScope

    def __str__(self) -> str:
        return self.decl.variants[self.index].name


Wrt = tuple[str | int, ...]  # a parameter by name or position, then a path of fields


class DerivativeCode(PartialEquality, FunctionCode, frozen=True, eq=False):
    """`grad[w](f)` or another derivative operator; captures `f`."""

    operator: str
    wrt: tuple[Wrt, ...]
    order: int = 1  # the order of a jet
    # The operator in the source, such as `hessian`, if this one implements a part of it.
    source_operator: str = ""
    wrt_spans: tuple[Span, ...] = ()  # the spans of the names in `[…]`

    def __str__(self) -> str:
        return self.source_operator or self.operator


PRIME = DerivativeCode("deriv", ((0,),))  # of `f'`


class LinearMapCode(PartialEquality, FunctionCode, frozen=True, eq=False):
    """A linear map, such as `vjp` and `linearize` return beside the value.

    It captures the tags of its domain and of its result, then the residuals of `graph`. Equal maps share one graph.
    `transposed` is the graph of the transposed map, if it is known.
    """

    # Its params are the residuals and the numbers of the domain; its results the numbers of the result.
    graph: Graph
    domain: LangType
    gives: LangType
    transposed: Graph | None = None

    def __str__(self) -> str:
        return show_type(self.signature)

    @property
    def signature(self) -> FnType:
        return FnType((self.domain,), self.gives, linear=True)

    @property
    def is_linear(self) -> bool:
        return True


class VmapCode(FunctionCode, frozen=True):
    """`vmap(f)`; captures `f`. Python may choose the batch axis of each argument and of the result."""

    # The batch axis of each parameter, None for a shared one; () for the first axis of each.
    axes: tuple[int | None, ...] = ()
    out: int | tuple[int, ...] = 0  # of the result, or of each item of a tuple

    def __str__(self) -> str:
        return "vmap"


class ConvertCode(FunctionCode, frozen=True):
    """`f64(x)`: conversion to an element type."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


class AscribedCode(PartialEquality, FunctionCode, frozen=True, eq=False):
    """A function with an ascribed type, such as that of the parameter it was passed for; captures the function.

    Nothing has bound the sizes `open` in that type: each call does.
    """

    type: FnType
    open: tuple[str, ...]
    name: str  # as messages show it
    what: str
    argument_span: Span
    declared_span: Span

    IGNORED_FIELDS: ClassVar[int] = 3

    def __str__(self) -> str:
        return self.name.strip("`")

    @property
    def signature(self) -> FnType | None:
        return None if self.open else self.type

    @property
    def is_linear(self) -> bool:
        return self.type.linear


class OpaqueFnCode(FunctionCode, frozen=True):
    """A function parameter supplied by the caller of a compiled program: only its type is known."""

    function: OpaqueFunction
    type: FnType

    def __str__(self) -> str:
        return self.function.name

    @property
    def signature(self) -> FnType:
        return self.type
