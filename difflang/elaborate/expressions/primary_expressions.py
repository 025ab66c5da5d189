"""Primary expressions: number literals, names, lambdas, tuples, arrays, fields, `with` updates, strings."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import BUILTINS
from difflang.elaborate.calls.constructors import check_part_count
from difflang.elaborate.calls.lambdas import prove_annotated_lambda
from difflang.elaborate.calls.signatures import constrain_alike
from difflang.elaborate.context import MAX_AXES, AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.expressions.names import (
    closure_values,
    generic_bindings,
    lookup_name,
    module_member,
    module_named_by,
)
from difflang.elaborate.patterns.structured_arrays import stack_values
from difflang.elaborate.patterns.sum_types import may_replace
from difflang.elaborate.terms import (
    Array,
    Closure,
    InterpolatedValue,
    PoisonTerm,
    RecordTerm,
    SumTerm,
    Term,
    TextTerm,
    Tuple,
    VariantTerm,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, Tensor, numpy_dtype
from difflang.ops.value_formatting import format_number, format_value
from difflang.syntax import tree
from difflang.types.dtype_variables import (
    DTypeParam,
    DTypeVar,
    empty_dtype,
    imaginary_dtype,
    is_known_float,
    literal_dtype,
    prune_dtype,
)
from difflang.types.function_code import LambdaCode
from difflang.types.language_types import show_type
from difflang.types.literal_numbers import float_literal, imaginary_literal
from difflang.types.module_scope import StaticNumber
from difflang.types.text_templates import check_format
from difflang.types.type_errors import MAX_LEAVES, leaf_limit_error


@elaborates(tree.Int)
def elaborate_int(cx: ElabContext, e: tree.Int) -> Walk[Term]:
    if e.value >= 2**64:
        raise cx.error(
            "DL0316", "this integer does not fit in any integer type", e.span, "64 bits hold integers below 2^64"
        )
    return cx.literal_array(e.value, e.span, literal_dtype(e.value, cx.module.default_float), e.value)
    yield


@elaborates(tree.Float)
def elaborate_float(cx: ElabContext, e: tree.Float) -> Walk[Term]:
    if isinf(e.value):
        raise infinite_literal_error(cx, e)
    value = float_literal(e.value, e.text)
    return cx.literal_array(value, e.span, literal_dtype(value, cx.module.default_float), value)
    yield


@elaborates(tree.Imaginary)
def elaborate_imaginary(cx: ElabContext, e: tree.Imaginary) -> Walk[Term]:
    if isinf(e.value):
        raise infinite_literal_error(cx, e)
    dtype = imaginary_dtype(cx.module.default_float)
    value = imaginary_literal(e.value, e.text.removesuffix("j"))
    return Array(cx.emit("const", e.span, value=value, type=Tensor(dtype)))
    yield


def infinite_literal_error(cx: ElabContext, e: tree.Float | tree.Imaginary) -> DifflangError:
    return cx.error("DL0316", "this number does not fit in any float type", e.span, "the largest f64 is 1.8e+308")


@elaborates(tree.Bool)
def elaborate_bool(cx: ElabContext, e: tree.Bool) -> Walk[Term]:
    return cx.literal_array(e.value, e.span, BOOL, e.value)
    yield


# ---- Names


@elaborates(tree.Name)
def elaborate_name(cx: ElabContext, e: tree.Name) -> Walk[Term]:
    return lookup_name(cx, e.id, e.span)
    yield


# ---- Functions as values


@elaborates(tree.Lambda)
def elaborate_lambda(cx: ElabContext, e: tree.Lambda) -> Walk[Term]:
    names, terms, known = closure_values(cx, e)
    made = Closure(LambdaCode(e, cx.module, names, known, generic_bindings(cx, e)), terms)
    if e.linear:
        yield prove_annotated_lambda(cx, made)
    return made


# ---- Tuples, arrays, records


@elaborates(tree.TupleExpr)
def elaborate_tuple(cx: ElabContext, e: tree.TupleExpr) -> Walk[Term]:
    items: list[Term] = []
    for item in e.items:
        items.append((yield elaborate(cx, item)))
    return check_part_count(Tuple(tuple(items)), e.span)


@elaborates(tree.ArrayExpr)
def elaborate_array(cx: ElabContext, e: tree.ArrayExpr) -> Walk[Term]:
    """`[x, y]`: its items stacked along a new first axis."""
    if not e.items:
        dtype = empty_dtype(cx.module.default_float)
        return Array(cx.emit("const", e.span, value=0, type=Tensor(dtype, (0,))))
    # One constant instead of thousands of equations for a large table.
    rows = literal_rows(e)
    if rows is not None:
        shape, numbers = rows
        dtype = (
            BOOL
            if isinstance(numbers[0], bool)
            else literal_dtype(
                sum(numbers[:1], 0 * numbers[0]) if all(isinstance(x, int) for x in numbers) else 0.0,
                cx.module.default_float,
            )
        )
        value = cx.emit("dense", e.span, data=tuple(numbers), type=Tensor(dtype, shape))
        return Array(value, elements=tuple(numbers) if len(shape) == 1 else None)
    terms: list[Term] = []
    for item in e.items:
        terms.append((yield elaborate(cx, item)))
    spans = [item.span for item in e.items]
    if isinstance(terms[0], (Closure, RecordTerm, VariantTerm, SumTerm, TextTerm)):
        return stack_values(cx, terms, spans, e.span)
    parts = [as_array(cx, term, at) for term, at in zip(terms, spans, strict=True)]
    whole = stack_arrays(cx, e.span, parts, tuple(spans))
    sizes = tuple(p.static for p in parts)
    return Array(whole.value, elements=None if None in sizes else sizes)


def stack_arrays(cx: ElabContext, span: Span, parts: list[Array], spans: tuple[Span, ...], axis: int = 0) -> Array:
    first = parts[0].tensor
    for part, at in zip(parts, spans, strict=True):
        if not cx.unifier.same(first, part.tensor):
            here, wanted = [show_type(p.items or p.tensor) for p in (part, parts[0])]
            label = f"this is {here}, but the first is {wanted}"
            raise cx.error("DL0317", "the items of an array must have one type", at, label)
    shape = (*first.shape[:axis], 1, *first.shape[axis:])
    rows = [Array(cx.emit("reshape", span, p.value, shape=shape)) for p in parts]
    return rows[0] if len(rows) == 1 else cx.emit_op("concat", span, *rows, axis=axis)


@elaborates(tree.Member)
def elaborate_member(cx: ElabContext, e: tree.Member) -> Walk[Term]:
    module = module_named_by(cx, e.base)
    if module is not None:
        return module_member(cx, module, e)
    base = yield elaborate(cx, e.base)
    return select_field(cx, base, e)


def select_field(
    cx: ElabContext, base: Term, e: tree.Member, within: tuple[type[RecordTerm | VariantTerm], ...] = (RecordTerm,)
) -> Term:
    if isinstance(base, PoisonTerm):
        raise AlreadyReported
    if not isinstance(base, within):
        type, help = show_type(type_of(base)), missing_field_help(base, e.name)
        raise cx.error("DL0206", f"{type} has no field `{e.name}`", e.name_span, "", help)
    if e.name not in base.type.names:
        way, fixes = did_you_mean(e.name, base.type.names, e.name_span)
        way = way or f"it has {', '.join(base.type.names) or 'none'}"
        what = base.type.name if isinstance(base, VariantTerm) else base.type
        raise cx.error("DL0206", f"{what} has no field `{e.name}`", e.name_span, "", way, fixes)
    return base.field(e.name)


SIZE_HELP = "name the sizes in the type: with `x: f32[n, m]`, write `n`"
ARRAY_FIELD_HELP = {
    "T": "write `transpose(x)`",
    **dict.fromkeys(("shape", "size"), SIZE_HELP),
    "ndim": "the type of an array shows its axes",
    "at": "write `x[i] = e` or `x[i] += e`, where `x` is a `var`",
}


def missing_field_help(base: Term, name: str) -> str:
    """The help for field access as in other languages, such as `x.T` or `x.shape`."""
    if isinstance(base, Tuple):
        return "destructure a tuple: `let (a, b) = t`"
    if isinstance(base, Array) and name in ARRAY_FIELD_HELP:
        return ARRAY_FIELD_HELP[name]
    if isinstance(base, (VariantTerm, SumTerm)):
        return "read the contents of an enum with `match`"
    return f"it is a function: `x.{name}()`" if name in BUILTINS else "only records have fields"


@elaborates(tree.With)
def elaborate_with(cx: ElabContext, e: tree.With) -> Walk[Term]:
    base = yield elaborate(cx, e.base)
    for arg in e.fields:
        value = yield elaborate(cx, arg.value)
        name = tree.Member(arg.span, e.base, arg.name or "", arg.span)
        old = select_field(cx, base, name, within=(RecordTerm, VariantTerm))
        assert isinstance(base, (RecordTerm, VariantTerm))
        value = constrain_alike(old, value, arg.value.span)
        if not may_replace(cx, type_of(old), type_of(value)):
            raise cx.error(
                "DL0304",
                f"the field `{arg.name}` is {show_type(type_of(old))}",
                arg.value.span,
                f"this is {show_type(type_of(value))}",
            )
        base = base.with_field(arg.name or "", value)
    return base


@elaborates(tree.Str)
def elaborate_string(cx: ElabContext, e: tree.Str) -> Walk[Term]:
    parts: list[str | InterpolatedValue] = []
    for part in e.parts:
        if isinstance(part, str):
            parts.append(part)
            continue
        value = yield elaborate(cx, part.value)
        if isinstance(value, PoisonTerm):
            raise AlreadyReported
        check_format(type_of(value), part)
        found = interpolated_parts(value, part, named=cx.root.definition_only)
        if found is None:
            # Only the declaration of a value in it is known.
            return TextTerm(None)
        parts += found
        if len(parts) > MAX_LEAVES:
            raise leaf_limit_error(e.span)
    if all(isinstance(part, str) for part in parts):
        return TextTerm("".join(map(str, parts)))
    return TextTerm(None, tuple(parts))


def interpolated_parts(
    value: Term, part: tree.Interpolation, *, named: bool
) -> Sequence[str | InterpolatedValue] | None:
    """The parts of a text that replace an interpolated value: strings where it is known; if `named`, also of sizes."""
    match value:
        case TextTerm(value=str() as text):
            return (format_value(text, part.format),)
        case TextTerm(number=Value()):
            return (InterpolatedValue(value, part.format),)
        case TextTerm(parts=()):
            return None
        case TextTerm(parts=parts) if not part.format:
            return parts
        case Array(static=static) if (
            static is not None
            and (named or not isinstance(static, Poly))
            and (text := format_static(value, static, part.format)) is not None
        ):
            return (text,)
        case _:
            return (InterpolatedValue(value, part.format),)


def format_static(value: Array, static: StaticNumber, spec: str) -> str | None:
    """The text of a number known at compile time, if its element type is known too."""
    dtype = prune_dtype(value.tensor.dtype)
    if isinstance(static, Poly):
        return str(static)
    if isinstance(static, int) and not isinstance(static, bool) and not is_known_float(dtype):
        return format_value(static, spec)
    if isinstance(dtype, (DTypeVar, DTypeParam)):
        return None
    return format_number(np.asarray(static, numpy_dtype(dtype)), spec)


@elaborates(tree.Slice, tree.Dots)
def reject_open_range(cx: ElabContext, e: tree.Slice) -> Walk[Term]:
    raise cx.error("DL0313", "an open range can only be used as an index", e.span, "", "write both ends: `a..b`")
    yield


# ---- Array literals


def literal_rows(e: tree.ArrayExpr) -> tuple[tuple[int, ...], list[float]] | None:
    """Shape and numbers of an array literal, or None if an item is not a number literal."""
    level: list[tree.Expr] = [e]
    shape: list[int] = []
    while all(isinstance(item, tree.ArrayExpr) for item in level):
        if len(shape) > MAX_AXES:
            return None
        lengths = {len(item.items) for item in level if isinstance(item, tree.ArrayExpr)}
        if len(lengths) != 1 or 0 in lengths:
            return None
        shape.append(lengths.pop())
        level = [x for item in level if isinstance(item, tree.ArrayExpr) for x in item.items]
    numbers = [literal_number(item) for item in level]
    kinds = {isinstance(n, bool) for n in numbers}
    return (tuple(shape), [n for n in numbers if n is not None]) if None not in numbers and len(kinds) == 1 else None


def literal_number(e: tree.Expr) -> float | None:
    match e:
        case tree.Float(value=v) | tree.Unary(op="-", operand=tree.Float(value=v)) if isinf(v):
            return None  # `elaborate_float` reports it
        case tree.Int(value=v) | tree.Bool(value=v):
            return v
        case tree.Float(value=v, text=text):
            return float_literal(v, text)
        case tree.Unary(op="-", operand=tree.Int() | tree.Float() as operand):
            return -number if (number := literal_number(operand)) is not None else None
        case _:
            return None
