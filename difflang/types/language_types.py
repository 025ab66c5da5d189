"""Types of the language: tuples, records, enums, closures, texts, ranges, histories; tangent types and leaves.

An array's type is the IR's `Tensor`. During inference its element type may be a `DTypeVar` (of a literal) and, while a
definition is checked, a `DTypeParam` (a generic `T`), with polynomials as sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.partial_equality import PartialEquality
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import I32, U32, DType, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import default_dtype, dtype_text, prune_dtype

# ---- Kinds of types


class AxisSpread(Struct, frozen=True):
    """Any number of axes in a shape, `..s`, while a definition is checked."""

    name: str

    def __str__(self) -> str:
        return f"..{self.name}"


class TupleType(Struct, frozen=True):
    """A tuple, or the tangent of a function of type `closure`: of its captures."""

    items: tuple[LangType, ...]
    closure: ClosureType | None = None

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


UNIT = TupleType(())


class RecordType(Struct, frozen=True):
    """A record, or the tangent of one, which has only the fields with a tangent."""

    decl: tree.Record
    names: tuple[str, ...]
    fields: tuple[LangType, ...]
    # Its dims and element types; None for one not inferred yet.
    args: tuple[object, ...] = ()
    tangent: bool = False
    # The axes of an array of records; each field has them before its own, and so have types among the arguments.
    axes: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        args = [drop_axes(a, len(self.axes)) if isinstance(a, VALUE_TYPES) else a for a in self.args]
        return type_name_text(self.decl.name, args, self.tangent, self.axes)


def type_name_text(name: str, args: Sequence[object], tangent: bool, axes: Sequence[Dim] = ()) -> str:
    """A record or an enum with its arguments and the axes of an array of them: `Block[c][k]`, `D(Block[c])[k]`."""
    texts = ["_" if a is None else show_type(a) if isinstance(a, Tensor) else str(a) for a in args]
    whole = f"{name}[{', '.join(texts)}]" if args else name
    whole = f"D({whole})" if tangent else whole
    return f"{whole}[{', '.join(map(str, axes))}]" if axes else whole


class VariantType(PartialEquality, frozen=True, eq=False):
    """An enum whose variant is known, or its tangent, which has only the fields with a tangent."""

    decl: tree.Enum
    index: int
    names: tuple[str, ...]
    fields: tuple[LangType, ...]
    args: tuple[object, ...] = ()  # as those of a record
    tangent: bool = False
    # How names in the declaration are looked up, to add the other variants later; ignored in comparisons.
    home: Callable[[str], tree.Record | tree.Enum | None] | None = None

    @property
    def name(self) -> str:
        return self.decl.variants[self.index].name

    def __str__(self) -> str:
        return type_name_text(self.decl.name, self.args, self.tangent)


TAG = Tensor(I32)


class SumType(Struct, frozen=True, dict=True):
    """A sum, whose option the run selects: variants of an enum in order, functions, or tangents of these.

    Its leaves are a tag and those of every option; the options not selected are zero.
    """

    options: tuple[LangType, ...]
    tag: Tensor = TAG

    @cached_property
    def tag_values(self) -> tuple[int, ...]:
        """The tag of each option, ascending: a variant's index in its enum, else the position here."""
        return tuple([o.index if isinstance(o, VariantType) else i for i, o in enumerate(self.options)])

    @property
    def variants(self) -> tuple[VariantType, ...]:
        """The options, if they are variants of an enum."""
        return tuple([o for o in self.options if isinstance(o, VariantType)])

    def __str__(self) -> str:
        if self.variants:
            first = self.variants[0]
            return type_name_text(first.decl.name, first.args, first.tangent, self.tag.shape)
        return "one of " + ", ".join(map(show_type, self.options))


class FunctionCode(Struct, frozen=True):
    """The code of a function value; `function_code` has the kinds."""

    @property
    def signature(self) -> FnType | None:
        """The type of the function, if its code declares one."""
        return None

    @property
    def is_linear(self) -> bool:
        """Whether the function is linear, by construction or by its ascribed type."""
        return False


class ClosureType(Struct, frozen=True):
    """A function value: its code and the types of its captures. Two lambdas never have the same type."""

    code: FunctionCode
    captures: tuple[LangType, ...]

    def __str__(self) -> str:
        return f"function {self.code}"


class FnType(Struct, frozen=True):
    """A written function type, `(A, B) -> C`; the type of a function parameter while its definition is checked."""

    params: tuple[LangType, ...]
    result: LangType
    linear: bool = False

    def __str__(self) -> str:
        arrow = "-o" if self.linear else "->"
        return f"({', '.join(map(str, self.params))}) {arrow} {self.result}"


class TextHole(Struct, frozen=True):
    """An interpolated value in a text: its type, and its format as in Python."""

    type: LangType
    spec: str = ""


class TextType(Struct, frozen=True):
    """A string: its `value` is known at compile time, it has `parts` with run-time values, or the run has its number.

    The numbers of an array of strings have its axes; see `text_numbers`. A string of which only the declaration is
    known has none of these.
    """

    value: str | None = None
    parts: tuple[str | TextHole, ...] = ()
    number: Tensor | None = None

    def __str__(self) -> str:
        return f"str[{', '.join(map(str, axes))}]" if (axes := array_axes(self)) else "str"


class KeyType(Struct, frozen=True):
    """A random key; `u32[2]` in the IR."""

    def __str__(self) -> str:
        return "key"


KEY = KeyType()
KEY_DATA = Tensor(U32, (2,))


class RangeType(Struct, frozen=True):
    """`a..b by s`; the ends may be static."""

    ends: tuple[Dim | float | None, ...]

    def __str__(self) -> str:
        return "range"


class HistoryType(Struct, frozen=True):
    """The type of what a loop of run-time length yields. It never leaves its function, so it is never written."""

    item: LangType

    def __str__(self) -> str:
        return f"history[{show_type(self.item)}]"


class NeverType(Struct, frozen=True):
    """The bottom type: of a variable not set yet, which takes any type that it is set to."""

    def __str__(self) -> str:
        return "nothing yet"


NEVER = NeverType()

StructuredType = TupleType | RecordType | VariantType | SumType | ClosureType | FnType
LangType = Tensor | StructuredType | TextType | KeyType | RangeType | HistoryType | NeverType
VALUE_TYPES = (Tensor, TupleType, RecordType, VariantType, SumType, ClosureType, FnType)


# ---- Operations on types


def tangent_type(type: LangType) -> LangType:
    """`D(type)`: the type of tangents of such a value."""
    match type:
        case Tensor():
            return type if prune_dtype(type.dtype).differentiable else UNIT
        case TupleType():
            return TupleType(tuple(map(tangent_type, type.items)), type.closure)
        case RecordType():
            pairs = [(n, tangent_type(f)) for n, f in zip(type.names, type.fields, strict=True)]
            # Fields without a tangent are dropped, so that a tangent holds only numbers and tags.
            kept = [(n, t) for n, t in pairs if t != UNIT]
            names, fields = tuple([n for n, _ in kept]), tuple([t for _, t in kept])
            return RecordType(type.decl, names, fields, type.args, True, type.axes)
        case VariantType():
            pairs = [(n, tangent_type(f)) for n, f in zip(type.names, type.fields, strict=True)]
            kept = [(n, t) for n, t in pairs if t != UNIT]
            names, fields = tuple([n for n, _ in kept]), tuple([t for _, t in kept])
            return VariantType(type.decl, type.index, names, fields, type.args, True, type.home)
        case SumType():
            return SumType(tuple(map(tangent_type, type.options)), type.tag)
        case ClosureType():
            # A closure's tangent keeps its type, which `value + tangent` needs to find the code.
            return TupleType(tuple(map(tangent_type, type.captures)), type)
        case _:
            return UNIT


def is_linear_type(type: LangType) -> bool:
    """Whether it is the type of a function known to be linear."""
    if isinstance(type, ClosureType):
        return type.code.is_linear
    if isinstance(type, SumType):
        return all(map(is_linear_type, type.options))
    return isinstance(type, FnType) and type.linear


def function_signature(type: ClosureType | FnType) -> FnType | None:
    """The signature of a function, if its code declares one."""
    return type if isinstance(type, FnType) else type.code.signature


def map_tensors(
    type: LangType, change: Callable[[Tensor], Tensor], axes: Callable[[RecordType], tuple[Dim, ...]] | None = None
) -> LangType:
    """The same type with every array type in it changed.

    The axes of an array of records change like an array of that shape, or to what `axes` gives for them.
    """

    def mapped(part: LangType) -> LangType:
        return map_tensors(part, change, axes)

    match type:
        case Tensor():
            return change(type)
        case TupleType():
            of = None if type.closure is None else map_closure(type.closure, change, axes)
            return TupleType(tuple(map(mapped, type.items)), of)
        case RecordType():
            fields = tuple(map(mapped, type.fields))
            args = tuple(map_type_arg(a, change, axes) for a in type.args)
            own = change(Tensor(I32, type.axes)).shape if axes is None else axes(type)
            return RecordType(type.decl, type.names, fields, args, type.tangent, own)
        case VariantType():
            return replace(type, fields=tuple(map(mapped, type.fields)))
        case SumType():
            return SumType(tuple(map(mapped, type.options)), change(type.tag))
        case TextType(number=Tensor() as number):
            return TextType(number=change(number))
        case TextType(parts=parts) if parts:
            return TextType(None, tuple([p if isinstance(p, str) else TextHole(mapped(p.type), p.spec) for p in parts]))
        case ClosureType():
            return map_closure(type, change, axes)
        case FnType():
            return FnType(tuple(map(mapped, type.params)), mapped(type.result), type.linear)
        case _:
            return type


def add_tags(type: LangType) -> LangType:
    """The type with a tag for every enum and function, and a number for every text, known ones too: the item type of an
    array.
    """
    match type:
        case TupleType():
            return replace(type, items=tuple(map(add_tags, type.items)))
        case RecordType():
            return replace(type, fields=tuple(map(add_tags, type.fields)))
        case VariantType() | ClosureType():
            return SumType((number_texts(type),))
        case _:
            return number_texts(type)


def number_texts(type: LangType) -> LangType:
    """The type with a number for every text in it, known ones too."""
    match type:
        case TextType(number=None):
            return TextType(number=TAG)
        case TupleType():
            return replace(type, items=tuple(map(number_texts, type.items)))
        case RecordType() | VariantType():
            return replace(type, fields=tuple(map(number_texts, type.fields)))
        case SumType():
            return replace(type, options=tuple(map(number_texts, type.options)))
        case _:
            return type


def drop_axes(type: LangType, count: int) -> LangType:
    """The type of one item of an array of that many axes."""
    return map_tensors(type, lambda t: Tensor(t.dtype, t.shape[count:]))


def add_axes(type: LangType, axes: tuple[Dim, ...]) -> LangType:
    """The type of an array of values of this type."""
    return map_tensors(type, lambda t: Tensor(t.dtype, (*axes, *t.shape)))


def array_axes(type: LangType) -> tuple[Dim, ...]:
    """The axes of an array: of numbers, of records, of enums or functions, or of texts; none for another value."""
    match type:
        case TextType(number=Tensor(shape=axes)):
            return axes
        case Tensor(shape=axes) | RecordType(axes=axes) | SumType(tag=Tensor(shape=axes)):
            return axes
        case _:
            return ()


def is_one_text(type: LangType) -> bool:
    """Whether it is the type of a text, and not of an array of texts."""
    return isinstance(type, TextType) and not array_axes(type)


def map_closure(
    type: ClosureType, change: Callable[[Tensor], Tensor], axes: Callable[[RecordType], tuple[Dim, ...]] | None = None
) -> ClosureType:
    return ClosureType(type.code, tuple(map_tensors(t, change, axes) for t in type.captures))


def map_type_arg(
    argument: object, change: Callable[[Tensor], Tensor], axes: Callable[[RecordType], tuple[Dim, ...]] | None
) -> object:
    """An argument of a record, changed like its fields; sizes are unchanged."""
    match argument:
        case DType():
            return change(Tensor(argument)).dtype
        case Tensor() | TupleType() | RecordType() | ClosureType() | FnType():
            return map_tensors(argument, change, axes)
        case _:
            return argument


def default_open_dtypes(type: LangType) -> LangType:
    """The type with every open element type set to its default."""
    return map_tensors(type, lambda t: Tensor(default_dtype(t.dtype), t.shape))


def prune_type(type: LangType) -> LangType:
    """The type with solved element-type variables replaced by their solutions."""
    return map_tensors(type, lambda t: Tensor(prune_dtype(t.dtype), t.shape))


def leaf_types(type: LangType) -> list[Tensor]:
    """The array types that a value of this type flattens to, in order."""
    match type:
        case Tensor():
            return [type]
        case TupleType():
            return [leaf for t in type.items for leaf in leaf_types(t)]
        case RecordType() | VariantType():
            return [leaf for t in type.fields for leaf in leaf_types(t)]
        case SumType():
            # Every option has its own leaves: variants share no storage, which keeps derivatives simple.
            return [type.tag, *[leaf for t in type.options for leaf in leaf_types(t)]]
        case ClosureType():
            return [leaf for t in type.captures for leaf in leaf_types(t)]
        case TextType(number=Tensor() as number):
            return [number]
        case TextType():
            return [leaf for p in type.parts if not isinstance(p, str) for leaf in leaf_types(p.type)]
        case KeyType():
            return [KEY_DATA]
        case RangeType():
            # A step of 1 is not stored.
            return [Tensor(I32)] * (2 if type.ends[2] == 1 else 3)
        case _:
            return []


def show_type(type: LangType) -> str:
    """A type as messages show it."""
    match type:
        case Tensor():
            name = dtype_text(type.dtype)
            return f"{name}[{', '.join(map(str, type.shape))}]" if type.shape else name
        case TupleType():
            return f"({', '.join(map(show_type, type.items))})"
        case FnType(params=params):
            arrow = "-o" if type.linear else "->"
            alone = len(params) == 1 and not isinstance(params[0], (FnType, TupleType))
            taken = show_type(params[0]) if alone else f"({', '.join(map(show_type, params))})"
            return f"{taken} {arrow} {show_type(type.result)}"
        case _:
            return str(type)
