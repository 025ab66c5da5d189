"""Type unification, the checker's `TypeSolver`: solves open element types and proves sizes equal."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.op import STRICT_SOLVER, TypeMismatch
from difflang.ir.size_equality import SizeCondition, always_equal, differing_numbers
from difflang.ir.symbolic_dims import Dim, Poly, has_floor_div
from difflang.ir.tensor_types import BOOL, C64, COMPLEX_DTYPE_OF, COMPLEXES, FLOATS, REAL_DTYPE_OF, DType, Tensor
from difflang.types.dtype_variables import DTypeParam, DTypeVar, default_dtype, dtype_text, prune_dtype
from difflang.types.language_types import (
    AxisSpread,
    ClosureType,
    FnType,
    LangType,
    RecordType,
    SumType,
    TextHole,
    TextType,
    TupleType,
    VariantType,
    array_axes,
    show_type,
)


class Unifier:
    """A `TypeSolver` that unifies.

    Under `where` clauses, and under floor division by names, sizes pass that no small numbers tell apart: the
    specialization proves them, where every size is a number.
    """

    __slots__ = ("conditions", "decided", "differing", "unproved")

    def __init__(self) -> None:
        # The `where` clauses of the definition that is checked; None for one that depends on more than sizes.
        self.conditions: list[SizeCondition | None] = []
        # For sizes that were compared: numbers for which they differ, if some were found.
        self.decided: dict[tuple[Dim, Dim, int], dict[str, int] | None] = {}
        # The sizes last found to differ for some numbers, and these numbers.
        self.differing: tuple[Dim, Dim, dict[str, int]] | None = None
        # Sizes that pass without a proof and without a `where` clause.
        self.unproved: list[tuple[Dim, Dim]] = []

    def dtype(self, a: Tensor, b: Tensor) -> None:
        if not unify_dtypes(a.dtype, b.dtype):
            raise TypeMismatch(f"element types differ: {dtype_text(a.dtype)} and {dtype_text(b.dtype)}")

    def accepts(self, a: Tensor, dtypes: Sequence[DType]) -> None:
        dtype = prune_dtype(a.dtype)
        if isinstance(dtype, DTypeVar):
            if not narrow_candidates(dtype, [c for c in dtype.candidates if c in dtypes]):
                raise TypeMismatch(f"takes {dtype_family_name(dtypes)}, not {dtype_text(dtype)}")
        elif isinstance(dtype, DTypeParam):
            if not all(c in dtypes for c in dtype.candidates):
                raise TypeMismatch(f"takes {dtype_family_name(dtypes)}; `{dtype}` may be another type")
        elif dtype not in dtypes:
            raise TypeMismatch(f"takes {dtype_family_name(dtypes)}, not {dtype}")

    def vector(self, type: LangType) -> bool:
        """Whether values of a type form a vector space, with `+`, `dot` and `zero`; literals become floats."""
        match type:
            case Tensor():
                try:
                    self.accepts(type, FLOATS + COMPLEXES)
                except TypeMismatch:
                    return False
                return True
            case TupleType(items=parts):
                return all([self.vector(t) for t in parts])
            case RecordType(fields=parts) | VariantType(fields=parts):
                return type.tangent and all([self.vector(t) for t in parts])
            case SumType(options=parts):
                return all([self.vector(t) for t in parts])
            case _:
                return False

    def shape(self, a: Tensor, b: Tensor, except_axis: int | None = None) -> None:
        if a.rank != b.rank:
            raise TypeMismatch(f"shapes differ: {show_type(a)} and {show_type(b)}")
        for axis, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)):
            if axis != except_axis and not self.equal(m, n):
                raise TypeMismatch(f"shapes differ: {show_type(a)} and {show_type(b)}")

    def size(self, a: Dim, b: Dim, quantity: str = "size") -> None:
        if not self.equal(a, b):
            raise TypeMismatch(f"the {quantity} differs: {a} and {b}")

    def window(self, size: Dim, whole: Dim) -> None:
        STRICT_SOLVER.window(size, whole)

    def real_dtype(self, z: Tensor) -> DType:
        return REAL_DTYPE_OF[default_dtype(z.dtype)]

    def complex_dtype(self, part: Tensor) -> DType:
        return COMPLEX_DTYPE_OF[default_dtype(part.dtype)]

    def require(self, condition: bool, message: str, *parts: object) -> None:
        if not condition:
            raise TypeMismatch(message.format(*parts))

    def equal(self, a: Dim | AxisSpread, b: Dim | AxisSpread) -> bool:
        """Whether two sizes are equal, or may be and the specialization will prove it."""
        if a == b:
            return True
        if isinstance(a, AxisSpread) or isinstance(b, AxisSpread):
            return bool(self.conditions)
        difference = a - b
        # Polynomials have a normal form, which floor division and conditions do not.
        if isinstance(difference, int) or not (self.conditions or has_floor_div(difference)):
            return False
        # What one more condition implies may not have held before.
        key = a, b, len(self.conditions)
        if key not in self.decided:
            self.decided[key] = self.numbers_apart(a, b)
        if (numbers := self.decided[key]) is not None:
            self.differing = a, b, numbers
        return numbers is None

    def numbers_apart(self, a: Dim, b: Dim) -> dict[str, int] | None:
        """Small numbers that meet the conditions and tell two sizes apart; None if the sizes may be equal."""
        if always_equal(a, b):
            return None
        known = [c for c in self.conditions if c is not None]
        # A condition on more than sizes may exclude any of these numbers.
        if len(known) == len(self.conditions) and (numbers := differing_numbers(a, b, known)) is not None:
            return numbers
        if not self.conditions:
            self.unproved.append((a, b))
        return None

    def same(self, a: LangType, b: LangType) -> bool:
        """Unify two types; returns whether that is possible."""
        match a, b:
            case Tensor(), Tensor():
                return (
                    a.rank == b.rank
                    and unify_dtypes(a.dtype, b.dtype)
                    and all(self.equal(m, n) for m, n in zip(a.shape, b.shape, strict=True))
                )
            case TupleType(), TupleType():
                of_one = a.closure is None or b.closure is None or self.same(a.closure, b.closure)
                return of_one and self.all_same(a.items, b.items)
            case RecordType(), RecordType():
                return self.same_record(a, b) and self.all_same(a.fields, b.fields)
            case VariantType(), VariantType():
                one = a.decl is b.decl and a.tangent == b.tangent and a.index == b.index and a.names == b.names
                return one and self.same_args(a, b) and self.all_same(a.fields, b.fields)
            case SumType(), SumType():
                return a.tag_values == b.tag_values and self.same(a.tag, b.tag) and self.all_same(a.options, b.options)
            case ClosureType(), ClosureType():
                return a.code == b.code and self.all_same(a.captures, b.captures)
            case FnType(), FnType():
                return a.linear == b.linear and self.all_same((*a.params, a.result), (*b.params, b.result))
            case TextType(), TextType():
                return self.same_text(a, b)
            case _:
                return a == b

    def same_record(self, a: RecordType, b: RecordType) -> bool:
        """Whether two records agree in all but their fields: in declaration, tangent and axes."""
        one = a.decl is b.decl and a.tangent == b.tangent and a.names == b.names and len(a.axes) == len(b.axes)
        return one and all(map(self.equal, a.axes, b.axes))

    def same_text(self, a: TextType, b: TextType) -> bool:
        """Whether two texts are equal apart from run-time values, as far as they are known."""
        if a.number is not None and b.number is not None:
            return self.same(a.number, b.number)
        declared = TextType()
        if declared in (a, b):
            return not array_axes(a) and not array_axes(b)
        if a.number is not None or b.number is not None:
            return False
        return a.value == b.value and len(a.parts) == len(b.parts) and all(map(self.same_hole, a.parts, b.parts))

    def same_hole(self, a: str | TextHole, b: str | TextHole) -> bool:
        if isinstance(a, TextHole) and isinstance(b, TextHole):
            return a.spec == b.spec and self.same(a.type, b.type)
        return a == b

    def same_args(self, a: VariantType, b: VariantType) -> bool:
        """Whether two enums have, or may have, the same arguments."""
        return all(m is None or n is None or self.argument(m, n) for m, n in zip(a.args, b.args, strict=True))

    def argument(self, a: object, b: object) -> bool:
        if isinstance(a, DType) and isinstance(b, DType):
            return unify_dtypes(a, b)
        if isinstance(a, (int, Poly)) and isinstance(b, (int, Poly)):
            return self.equal(a, b)
        return True  # whole types: the fields are compared

    def all_same(self, first: Sequence[LangType], second: Sequence[LangType]) -> bool:
        return len(first) == len(second) and all(self.same(a, b) for a, b in zip(first, second, strict=True))


def type_differences(unifier: Unifier, a: LangType, b: LangType) -> list[tuple[LangType, LangType]]:
    """The parts of two types that do not unify."""
    found: list[tuple[LangType, LangType]] = []
    todo = [(a, b)]
    while todo:
        a, b = todo.pop()
        if unifier.same(a, b):
            continue
        match a, b:
            case (TupleType(items=first), TupleType(items=second)) if len(first) == len(second):
                todo += zip(first, second, strict=True)
            case RecordType(), RecordType() if unifier.same_record(a, b):
                todo += zip(a.fields, b.fields, strict=True)
            case VariantType(), VariantType() if a.decl is b.decl and a.index == b.index and a.names == b.names:
                todo += zip(a.fields, b.fields, strict=True)
            case _:
                found.append((a, b))
    return found


def unify_dtypes(a: DType, b: DType) -> bool:
    """Unify two element types; returns whether that is possible."""
    a, b = prune_dtype(a), prune_dtype(b)
    if a is b:
        return True
    if isinstance(b, DTypeVar) and not isinstance(a, DTypeVar):
        a, b = b, a
    if not isinstance(a, DTypeVar):
        return False
    if isinstance(b, DTypeVar):
        # Two open types become one: `a` is solved by `b`, which keeps the common candidates.
        common = [c for c in a.candidates if c in b.candidates]
        # That of a list without items is any type: what it is joined with decides.
        sides = [v.default for v in (b, a) if BOOL not in v.candidates] or [b.default]
        wanted = [d for d in sides if d in common]
        if not narrow_candidates(b, common):
            return False
        # Literals of files with different default floats: the wider default wins.
        b.default = max(wanted, key=lambda d: d.bits, default=b.default)
        b.default_real = max(b.default_real, a.default_real, key=lambda d: d.bits)
        a.solution = b
        return True
    needed = b.candidates if isinstance(b, DTypeParam) else (b,)
    if any(c not in a.candidates for c in needed):
        return False
    a.solution = b
    return True


def narrow_candidates(var: DTypeVar, candidates: Sequence[DType]) -> bool:
    """Restrict a variable to these candidates; False if none remains. A single candidate is its solution."""
    if not candidates:
        return False
    var.candidates = tuple(candidates)
    if len(candidates) == 1:
        var.solution = candidates[0]
    # Keep the default valid: prefer the file's float, or the complex type with such parts.
    elif var.default not in candidates:
        wanted = (var.default_real, COMPLEX_DTYPE_OF.get(var.default_real, C64))
        var.default = next((d for d in wanted if d in candidates), candidates[0])
    return True


def dtype_family_name(dtypes: Sequence[DType]) -> str:
    """The name of a set of element types in messages."""
    kinds = {d.kind for d in dtypes}
    if kinds == {"float"} and len(dtypes) < len(FLOATS):
        return " or ".join(map(str, dtypes))
    named = {
        frozenset({"float"}): "a float",
        frozenset({"int", "uint"}): "an integer",
        frozenset({"complex"}): "a complex number",
        frozenset({"float", "complex"}): "a float or complex number",
        frozenset({"int", "uint", "float"}): "a real number",
        frozenset({"int", "uint", "float", "complex"}): "a number",
        frozenset({"bool"}): "a bool",
    }
    return named.get(frozenset(kinds), ", ".join(map(str, dtypes)))
