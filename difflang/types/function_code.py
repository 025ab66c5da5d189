"""What a function value runs: its code. With the types of what it captured it is a type of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from difflang.base.partial_equality import PartialEquality
from difflang.base.source import Span
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import DType, Tensor
from difflang.syntax import tree

if TYPE_CHECKING:
    from difflang.base.source import Span
    from difflang.ops.control.opaque_call import OpaqueFunction
    from difflang.types.language_types import FnType, LangType
    from difflang.types.module_scope import ModuleScope, StaticNumber


class StaticCapture(Struct, frozen=True):
    """A number of the host that a function found where it stands, and that specialization may know."""

    name: str
    value: StaticNumber
    type: Tensor


class EnclosingGeneric(Struct, frozen=True):
    """What a generic name stands for around a function that mentions it: its bound, and a type once that is told."""

    name: str
    bound: str | None
    type: DType | LangType | None


@contextmanager
def bind_generics(annotations: Any, types: Sequence[EnclosingGeneric], sizes: Mapping[str, Any]) -> Generator[None]:
    """Meanwhile these are the generic names in written types, and these sizes are called so."""
    names, both = {*annotations.generics, *[t.name for t in types], *sizes}, (annotations.generics, annotations.bound)
    before = [{n: known[n] for n in names if n in known} for known in both]
    now = {t.name: t.bound for t in types}, {t.name: t.type for t in types if t.type is not None} | {**sizes}
    swap_bindings(both, names, now)
    try:
        yield
    finally:
        swap_bindings(both, names, before)


def swap_bindings(both: Sequence[dict[str, Any]], names: Iterable[str], now: Sequence[Mapping[str, Any]]) -> None:
    """What is known of some names, exchanged for what is known of them now."""
    for known, new in zip(both, now, strict=True):
        for name in names:
            known.pop(name, None)
        known.update(new)


class FnCode(Struct, frozen=True):
    """A declared function. A nested one captures `names` from the function around it."""

    decl: tree.Fn
    module: ModuleScope
    names: tuple[str, ...] = ()
    static_captures: tuple[StaticCapture, ...] = ()
    enclosing_generics: tuple[EnclosingGeneric, ...] = ()

    def __str__(self) -> str:
        return self.decl.name


class LambdaCode(Struct, frozen=True):
    """A lambda: it captures `names` from where it stands."""

    decl: tree.Lambda
    module: ModuleScope
    names: tuple[str, ...]
    static_captures: tuple[StaticCapture, ...] = ()
    enclosing_generics: tuple[EnclosingGeneric, ...] = ()

    def __str__(self) -> str:
        return "|" + ", ".join(p.span.text for p in self.decl.params) + "| ..."


class BuiltinCode(Struct, frozen=True):
    """A function of the language itself."""

    name: str

    def __str__(self) -> str:
        return self.name


class RecordCode(Struct, frozen=True):
    """The constructor of a record."""

    decl: tree.Record
    module: ModuleScope

    def __str__(self) -> str:
        return self.decl.name


class VariantCode(Struct, frozen=True):
    """The constructor of a variant of an enum that has fields."""

    decl: tree.Enum
    index: int
    module: ModuleScope

    def __str__(self) -> str:
        return self.decl.variants[self.index].name


Wrt = tuple[str | int, ...]  # a parameter by name or position, then a path of fields


class DerivativeCode(PartialEquality, frozen=True, eq=False):
    """`grad[w](f)` and its kin; captures `f`."""

    operator: str
    wrt: tuple[Wrt, ...]
    order: int = 1  # of a jet
    source_operator: str = ""  # the operator that the program wrote, where this is a part of it
    wrt_spans: tuple[Span, ...] = ()  # where it names what it is taken in

    def __str__(self) -> str:
        return self.source_operator or self.operator


class LinearMapCode(PartialEquality, frozen=True, eq=False):
    """A linear map, such as `vjp` and `linearize` give beside the value.

    It captures the tags of what it takes and of what it gives, then the residuals of `graph`. Equal maps hold one
    graph. `back` is the graph of the transposed map, where it is known.
    """

    graph: Graph  # residuals ++ the numbers of what it takes -> the numbers of what it gives
    domain: LangType
    gives: LangType
    transposed: Graph | None = None

    def __str__(self) -> str:
        from difflang.types.language_types import FnType, show_type

        return show_type(FnType((self.domain,), self.gives, linear=True))


class VmapCode(Struct, frozen=True):
    """`vmap(f)`; captures `f`. Python may say along which axis of each argument it goes, and where the lanes come."""

    axes: tuple[int | None, ...] = ()  # of each parameter, None where all lanes share it; () for the first of each
    out: int | tuple[int, ...] = 0  # of the result, or of each item of a tuple

    def __str__(self) -> str:
        return "vmap"


class ConvertCode(Struct, frozen=True):
    """`f64(x)`: conversion to an element type."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


class AscribedCode(PartialEquality, frozen=True, eq=False):
    """A function held to the type of the parameter that it was given for; captures the function."""

    type: FnType
    name: str
    argument_span: Span
    declared_span: Span

    IGNORED_FIELDS: ClassVar[int] = 2

    def __str__(self) -> str:
        return self.name


class OpaqueFnCode(Struct, frozen=True):
    """A function that whoever calls gives, as `function` knows it: nothing is known but its type."""

    function: OpaqueFunction
    type: FnType

    def __str__(self) -> str:
        return self.function.name


Code = (
    AscribedCode
    | ConvertCode
    | FnCode
    | OpaqueFnCode
    | LambdaCode
    | BuiltinCode
    | RecordCode
    | VariantCode
    | DerivativeCode
    | LinearMapCode
    | VmapCode
)


def is_linear_code(code: Code) -> bool:
    """Whether a function with this code is linear, by what made it or by the type that it is held to."""
    match code:
        case LinearMapCode():
            return True
        case LambdaCode(decl=decl):
            return decl.linear
        case AscribedCode(type=type):
            return type.linear
        case _:
            return False
