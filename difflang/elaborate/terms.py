"""Terms, the values of expressions during elaboration: arrays, tuples, records, enums, closures, histories.

Graphs contain only their leaves, IR values in the order of `leaves`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from difflang.base.diagnostics import DifflangError, InternalError
from difflang.base.source import Span
from difflang.base.wording import with_article
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Value
from difflang.ir.op import Fill
from difflang.ir.size_equality import Samples, SizeCondition, evaluate_dim
from difflang.ir.symbolic_dims import Dim, Poly, dim_names
from difflang.ir.tensor_types import Tensor, Type, numpy_dtype
from difflang.types.dtype_variables import DTypeParam, is_known_float, prune_dtype
from difflang.types.language_types import (
    KEY,
    NEVER,
    ClosureType,
    FnType,
    FunctionCode,
    HistoryType,
    KeyType,
    LangType,
    NeverType,
    RangeType,
    RecordType,
    SumType,
    TextHole,
    TextType,
    TupleType,
    VariantType,
    leaf_types,
)
from difflang.types.module_scope import StaticNumber
from difflang.types.type_errors import make_error

# ---- Kinds of terms


class IndexedLoop(Struct, frozen=True, eq=False):
    """A loop or map of known length, whose body may index arrays by its counter: they are scanned item by item.

    `arrays` are those arrays in the outer graph, `rows` the params of the body that hold one item each.
    """

    # The builder of the body: its depth tells arrays from outside the loop.
    builder: Builder
    length: Dim
    arrays: list[Value] = field(default_factory=list[Value])
    rows: dict[tuple[Value, int, Dim], Value] = field(default_factory=dict[Any, Value])


class Array(Struct, frozen=True, eq=False):
    """A number or an array.

    `static` is its value where specialization knows it. `literal` marks a number literal, which broadcasts as a larger
    constant. With an `upper_bound` it is known to be in `0 .. upper_bound - 1`. `elements` are the items of a list of
    sizes, `[n, m]`. With `index_of_loop` it is that loop's counter plus `index_offset`. A factor of `cholesky` is
    `lower_triangular`. One leaf of an array of items has the type of those, for reports, in `items`.
    """

    value: Value
    static: StaticNumber = None
    literal: bool = False
    upper_bound: Dim | None = None
    origin: Span | None = None
    elements: tuple[StaticNumber, ...] | None = None
    index_of_loop: IndexedLoop | None = None
    index_offset: Dim = 0
    lower_triangular: bool = False
    items: LangType | None = None

    @property
    def tensor(self) -> Tensor:
        assert isinstance(self.value.type, Tensor)
        return self.value.type


class Tuple(Struct, frozen=True, eq=False):
    """A tuple, or the tangent of a function of type `function_type`."""

    items: tuple[Term, ...]
    function_type: ClosureType | None = None


class RecordTerm(Struct, frozen=True, eq=False):
    type: RecordType
    fields: tuple[Term, ...]

    def field(self, name: str) -> Term:
        return self.fields[self.type.names.index(name)]

    def with_field(self, name: str, value: Term) -> RecordTerm:
        at = self.type.names.index(name)
        return record_of_fields(self.type, (*self.fields[:at], value, *self.fields[at + 1 :]))


class VariantTerm(Struct, frozen=True, eq=False):
    """A value of an enum whose variant is known at compile time."""

    type: VariantType
    fields: tuple[Term, ...]

    def field(self, name: str) -> Term:
        return self.fields[self.type.names.index(name)]

    def with_field(self, name: str, value: Term) -> VariantTerm:
        at = self.type.names.index(name)
        return variant_of_fields(self.type, (*self.fields[:at], value, *self.fields[at + 1 :]))


class SumTerm(Struct, frozen=True, eq=False, dict=True):
    """One of several values, selected by a run-time tag: see `SumType`."""

    tag: Value
    parts: tuple[Term, ...]

    @cached_property
    def type(self) -> SumType:
        assert isinstance(self.tag.type, Tensor)
        return SumType(tuple(map(type_of, self.parts)), self.tag.type)


class Closure(Struct, frozen=True, eq=False):
    code: FunctionCode
    captures: tuple[Term, ...]


class OpaqueTerm(Struct, frozen=True, eq=False):
    """A parameter of function type while its definition is checked."""

    type: FnType


class InterpolatedValue(Struct, frozen=True, eq=False):
    """A value interpolated in a text, with its format."""

    term: Term
    spec: str = ""


class TextTerm(Struct, frozen=True, eq=False):
    """A string: its known `value`, `parts` with run-time values, or the `number` that the run has; see `TextType`."""

    value: str | None
    parts: tuple[str | InterpolatedValue, ...] = ()
    number: Value | None = None

    @property
    def type(self) -> TextType:
        if self.number is not None:
            assert isinstance(self.number.type, Tensor)
            return TextType(number=self.number.type)
        holes = [p if isinstance(p, str) else TextHole(type_of(p.term), p.spec) for p in self.parts]
        return TextType(self.value, tuple(holes))


class KeyTerm(Struct, frozen=True, eq=False):
    value: Value


class RangeTerm(Struct, frozen=True, eq=False):
    start: Array
    stop: Array
    step: Array | None


class ZipTerm(Struct, frozen=True, eq=False):
    """`zip(xs, ys)` or, with a count in front, `enumerate(xs)`: only a loop can use it."""

    items: tuple[Term, ...]
    counted: bool = False


class YieldSteps(Struct, frozen=True, eq=False):
    """The steps of a loop that yields: their number, the flags whether each reached its `yield`, the loop's span.

    With a `capacity`, the yielded items are stored in arrays of that length, whose unused part is never read.
    """

    count: Value
    capacity: Dim | None
    reached_yield: Value | None
    span: Span


class HistoryTerm(Struct, frozen=True, eq=False):
    """A history, see `yield_histories`. Its values stay in the graph of its loop."""

    type: LangType
    values: tuple[Value, ...]
    steps: YieldSteps
    backwards: bool = False


class PoisonTerm(Struct, frozen=True, eq=False):
    """The binding of a name whose definition had an error: its uses are not reported."""


class UnsetTerm(Struct, frozen=True, eq=False):
    """A function's result before a loop sets it, where its type is not declared."""


Term = (
    Array
    | Tuple
    | RecordTerm
    | VariantTerm
    | SumTerm
    | Closure
    | OpaqueTerm
    | TextTerm
    | KeyTerm
    | RangeTerm
    | ZipTerm
    | HistoryTerm
    | PoisonTerm
    | UnsetTerm
)
UNIT_TERM = Tuple(())
# What an array of items is, if they are not numbers.
Items = RecordTerm | SumTerm | TextTerm


def type_of(term: Term) -> LangType:
    match term:
        case Array():
            return term.tensor
        case Tuple():
            return TupleType(tuple(map(type_of, term.items)), term.function_type)
        case ZipTerm():
            return TupleType(tuple(map(type_of, term.items)))
        case RecordTerm() | VariantTerm() | SumTerm():
            return term.type
        case Closure():
            return closure_type(term)
        case OpaqueTerm():
            return term.type
        case TextTerm():
            return term.type
        case KeyTerm():
            return KEY
        case RangeTerm():
            # Static ends are part of the type, so that slices by a captured range have known lengths.
            ends = (term.start, term.stop, term.step)
            return RangeType(tuple(e.static if e is not None else 1 for e in ends))
        case HistoryTerm():
            return HistoryType(term.type)
        case UnsetTerm():
            return NEVER
        case PoisonTerm():
            # Callers test for poison first: see `AlreadyReported`.
            raise TypeError("a poisoned name has no type")


def closure_type(term: Closure) -> ClosureType:
    return ClosureType(term.code, tuple(map(type_of, term.captures)))


def child_terms(term: Term) -> tuple[Term, ...]:
    """The direct parts of a structured value; none for others."""
    match term:
        case RecordTerm(fields=parts) | VariantTerm(fields=parts) | Tuple(items=parts) | SumTerm(parts=parts):
            return parts
        case _:
            return ()


# ---- Terms and their leaves


def leaves(term: Term) -> list[Value]:
    """The IR values of a term, in the order of `leaf_types(type_of(term))`.

    Errors: DL0508 for a history, which cannot leave its function.
    """
    match term:
        case Array() | KeyTerm():
            return [term.value]
        case Tuple() | ZipTerm():
            return [leaf for item in term.items for leaf in leaves(item)]
        case RecordTerm() | VariantTerm():
            return [leaf for item in term.fields for leaf in leaves(item)]
        case SumTerm():
            return [term.tag, *[leaf for part in term.parts for leaf in leaves(part)]]
        case Closure():
            return [leaf for item in term.captures for leaf in leaves(item)]
        case RangeTerm():
            return [term.start.value, term.stop.value, *([term.step.value] if term.step else [])]
        case TextTerm(number=Value() as number):
            return [number]
        case TextTerm():
            return [leaf for p in term.parts if not isinstance(p, str) for leaf in leaves(p.term)]
        case HistoryTerm():
            raise history_escape_error(term)
        case _:
            return []


def history_escape_error(past: HistoryTerm) -> DifflangError:
    """The report of a history used as an ordinary value."""
    kind = with_article(str(HistoryType(past.type)))
    return make_error(
        "DL0508",
        "only loops of the same function can read a history",
        (past.steps.span, f"the number of steps is known only at run time, so this loop yields {kind}"),
        help=(
            "read it there with `for v in h` or `for v in reverse(h)`; or store the values in an array of a known size"
        ),
    )


def build_term(type: LangType, values: Iterator[Value]) -> Term:
    """The term of a type whose leaves are these values."""
    match type:
        case Tensor():
            return Array(next(values))
        case TupleType():
            return Tuple(tuple([build_term(t, values) for t in type.items]), type.closure)
        case RecordType():
            return record_of_fields(type, tuple([build_term(t, values) for t in type.fields]))
        case VariantType():
            return variant_of_fields(type, tuple([build_term(t, values) for t in type.fields]))
        case SumType():
            return SumTerm(next(values), tuple([build_term(t, values) for t in type.options]))
        case ClosureType():
            return Closure(type.code, tuple([build_term(t, values) for t in type.captures]))
        case FnType():
            return OpaqueTerm(type)
        case TextType(number=Tensor()):
            return TextTerm(None, (), next(values))
        case TextType():
            parts = [
                p if isinstance(p, str) else InterpolatedValue(build_term(p.type, values), p.spec) for p in type.parts
            ]
            return TextTerm(type.value, tuple(parts))
        case KeyType():
            return KeyTerm(next(values))
        case RangeType():
            start, stop, step = type.ends
            first, last = Array(next(values), start), Array(next(values), stop)
            return RangeTerm(first, last, None if step == 1 else Array(next(values), step))
        case NeverType():
            return UnsetTerm()
        case HistoryType():
            raise InternalError(f"no values make a {type}")


def with_leaves(term: Term, values: Iterator[Value]) -> Term:
    """The same term with other leaves; its static facts are kept."""
    match term:
        case Array():
            return Array(next(values), term.static, upper_bound=term.upper_bound)
        case Tuple():
            return Tuple(tuple([with_leaves(t, values) for t in term.items]), term.function_type)
        case ZipTerm():
            return ZipTerm(tuple([with_leaves(t, values) for t in term.items]), term.counted)
        case RecordTerm():
            return RecordTerm(term.type, tuple([with_leaves(t, values) for t in term.fields]))
        case VariantTerm():
            return VariantTerm(term.type, tuple([with_leaves(t, values) for t in term.fields]))
        case SumTerm():
            return SumTerm(next(values), tuple([with_leaves(t, values) for t in term.parts]))
        case Closure():
            return Closure(term.code, tuple([with_leaves(t, values) for t in term.captures]))
        case TextTerm(number=Value()):
            return TextTerm(None, (), next(values))
        case TextTerm():
            parts = [
                p if isinstance(p, str) else InterpolatedValue(with_leaves(p.term, values), p.spec) for p in term.parts
            ]
            return TextTerm(term.value, tuple(parts))
        case _:
            return build_term(type_of(term), values)


def term_from_leaves(type: LangType, values: Sequence[Value]) -> Term:
    return build_term(type, iter(values))


def record_of_fields(type: RecordType, fields: tuple[Term, ...]) -> RecordTerm:
    """A record with its field types updated from its fields."""
    # The declared field types may be wider: a field can hold a closure or a known variant.
    return RecordTerm(replace(type, fields=tuple(map(type_of, fields))), fields)


def variant_of_fields(type: VariantType, fields: tuple[Term, ...]) -> VariantTerm:
    """A variant with its field types updated from its fields."""
    return VariantTerm(replace(type, fields=tuple(map(type_of, fields))), fields)


def leaf_hints(type: LangType, name: str) -> list[str]:
    """A name for each leaf, such as `m.w`."""
    match type:
        case RecordType():
            return [h for n, t in zip(type.names, type.fields, strict=True) for h in leaf_hints(t, f"{name}.{n}")]
        case VariantType():
            inside = f"{name}.{type.name}"
            return [h for n, t in zip(type.names, type.fields, strict=True) for h in leaf_hints(t, f"{inside}.{n}")]
        case SumType():
            return [f"{name}.tag", *[h for t in type.options for h in leaf_hints(t, name)]]
        case TupleType():
            return [h for i, t in enumerate(type.items) for h in leaf_hints(t, f"{name}.{i}")]
        case ClosureType():
            return [h for t in type.captures for h in leaf_hints(t, name)]
        case _:
            return [name] * len(leaf_types(type))


def is_size_condition(condition: Value) -> bool:
    """Whether a condition depends only on sizes and literals, so that every specialization decides it."""
    return size_equations(condition) is not None


def size_equations(condition: Value) -> list[Eqn] | None:
    """The equations that compute a condition, if it depends only on sizes and literals.

    Cost: one walk over the graph that computes it.
    """
    homes: dict[Builder, dict[Value, Eqn]] = {}
    todo, found = [condition], set[Eqn]()
    while todo:
        value = todo.pop()
        if value.home not in homes:
            homes[value.home] = {r: eqn for eqn in value.home.eqns for r in eqn.results}
        eqn = homes[value.home].get(value)
        # Params have no equation: anything that depends on one is decided at run time.
        if eqn is None or not (eqn.op.elementwise or isinstance(eqn.op.movement, Fill)):
            return None
        if eqn not in found:
            found.add(eqn)
            todo += eqn.operands
    return [e for home in sorted(homes, key=lambda b: b.depth) for e in home.eqns if e in found]


def size_condition(condition: Value) -> SizeCondition | None:
    """A condition on sizes that many numbers can be tried on; None if it depends on more than sizes."""
    eqns = size_equations(condition)
    if eqns is None:
        return None
    # A literal may have no element type yet: its number is read, not its array.
    constants = {e.results[0]: e.attrs["value"] for e in eqns if not e.operands}

    def holds(samples: Samples) -> NDArray[np.bool_]:
        values: dict[Value, Any] = {}
        valid = np.True_
        for eqn in eqns:
            (result,) = eqn.results
            if isinstance(size := constants.get(result), Poly):
                number, known = evaluate_dim(size, samples)
                values[result], valid = as_dtype(number, result.type), valid & known
            elif size is not None:
                values[result] = as_dtype(np.asarray(size), result.type)
            else:
                values[result] = eqn.op.reference(*[values[v] for v in eqn.operands], **eqn.attrs)
        return np.logical_and(values[condition], valid)

    names = [dim_names(size) for size in constants.values() if isinstance(size, Poly)]
    return SizeCondition(with_inner_names(frozenset().union(*names)), holds)


def as_dtype(number: NDArray[Any], type: Type) -> NDArray[Any]:
    """The number in the element type of a value, if that is known to be one of floats; integers stay wide."""
    dtype = prune_dtype(type.dtype) if isinstance(type, Tensor) else None
    if dtype is None or not is_known_float(dtype):
        return number
    return number.astype(np.float64 if isinstance(dtype, DTypeParam) else numpy_dtype(dtype))


def with_inner_names(names: frozenset[str]) -> frozenset[str]:
    """The names of sizes, and those in the name of the greater of two sizes, `max(n, m)`."""
    return names.union(*[re.findall(r"[A-Za-z_]\w*", name) for name in names if not name.isidentifier()])
