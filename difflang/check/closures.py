"""What a function value runs: its code. With the types of what it captured it is a type of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from difflang.base.source import Span
from difflang.ir.graph import Graph
from difflang.ir.types import DType, Tensor
from difflang.syntax import tree

if TYPE_CHECKING:
    from difflang.base.source import Span
    from difflang.check.modules import Module, Static
    from difflang.check.types import FnType, LangType


@dataclass(frozen=True, slots=True)
class Known:
    """A number of the host that a function found where it stands, and that specialization may know."""

    name: str
    value: Static
    type: Tensor


@dataclass(frozen=True, slots=True)
class FnCode:
    """A declared function. A nested one captures `names` from the function around it."""

    decl: tree.Fn
    module: Module
    names: tuple[str, ...] = ()
    known: tuple[Known, ...] = ()

    def __str__(self) -> str:
        return self.decl.name


@dataclass(frozen=True, slots=True)
class LambdaCode:
    """A lambda: it captures `names` from where it stands."""

    decl: tree.Lambda
    module: Module
    names: tuple[str, ...]
    known: tuple[Known, ...] = ()

    def __str__(self) -> str:
        return "|" + ", ".join(p.span.text for p in self.decl.params) + "| ..."


@dataclass(frozen=True, slots=True)
class BuiltinCode:
    """A function of the language itself."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RecordCode:
    """The constructor of a record."""

    decl: tree.Record
    module: Module

    def __str__(self) -> str:
        return self.decl.name


@dataclass(frozen=True, slots=True)
class VariantCode:
    """The constructor of a variant of an enum that has fields."""

    decl: tree.Enum
    index: int
    module: Module

    def __str__(self) -> str:
        return self.decl.variants[self.index].name


Wrt = tuple[str | int, ...]  # a parameter by name or position, then a path of fields


@dataclass(frozen=True, slots=True)
class DerivativeCode:
    """`grad[w](f)` and its kin; captures `f`."""

    operator: str
    wrt: tuple[Wrt, ...]
    order: int = 1  # of a jet
    asked: str = ""  # the operator that the program wrote, where this is a part of it
    at: tuple[Span, ...] = field(default=(), compare=False)  # where it names what it is taken in

    def __str__(self) -> str:
        return self.asked or self.operator


@dataclass(frozen=True, slots=True)
class MapCode:
    """A linear map, such as `vjp` and `linearize` give beside the value.

    It captures the tags of what it takes and of what it gives, then the residuals of `graph`. Equal maps hold one
    graph. `back` is the graph of the transposed map, where it is known.
    """

    graph: Graph  # residuals ++ the numbers of what it takes -> the numbers of what it gives
    takes: LangType
    gives: LangType
    back: Graph | None = field(default=None, compare=False)

    def __str__(self) -> str:
        from difflang.check.types import FnType, show_type

        return show_type(FnType((self.takes,), self.gives, linear=True))


@dataclass(frozen=True, slots=True)
class VmapCode:
    """`vmap(f)`; captures `f`. Python may say along which axis of each argument it goes, and where the lanes come."""

    axes: tuple[int | None, ...] = ()  # of each parameter, None where all lanes share it; () for the first of each
    out: int | tuple[int, ...] = 0  # of the result, or of each item of a tuple

    def __str__(self) -> str:
        return "vmap"


@dataclass(frozen=True, slots=True)
class ConvertCode:
    """`f64(x)`: conversion to an element type."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True, slots=True)
class AscribedCode:
    """A function held to the type of the parameter that it was given for; captures the function."""

    type: FnType
    name: str
    given: Span = field(compare=False)
    declared: Span = field(compare=False)

    def __str__(self) -> str:
        return self.name


Code = (
    AscribedCode
    | ConvertCode
    | FnCode
    | LambdaCode
    | BuiltinCode
    | RecordCode
    | VariantCode
    | DerivativeCode
    | MapCode
    | VmapCode
)


def is_linear(code: Code) -> bool:
    """Whether a function with this code is linear, by what made it or by the type that it is held to."""
    match code:
        case MapCode():
            return True
        case LambdaCode(decl=decl):
            return decl.linear
        case AscribedCode(type=type):
            return type.linear
        case _:
            return False
