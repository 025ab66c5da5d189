"""Primary expressions: number literals, names, lambdas, tuples, arrays, fields, `with` updates, strings."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any, cast

import numpy as np

from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_registry import BUILTINS
from difflang.elaborate.calls.constructors import check_part_count
from difflang.elaborate.calls.signatures import constrain_alike
from difflang.elaborate.context import MAX_AXES, AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions import qualified_names
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.patterns.sum_type_arrays import stack_sum_values
from difflang.elaborate.patterns.sum_types import may_replace, variant_constructor
from difflang.elaborate.reports.name_errors import CONSTANTS, unknown_name_error
from difflang.elaborate.scope import BlockScope, LocalBinding
from difflang.elaborate.terms import (
    Array,
    Closure,
    InterpolatedValue,
    PoisonTerm,
    RecordTerm,
    StaticNumber,
    SumTerm,
    Term,
    TextTerm,
    Tuple,
    VariantTerm,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, DTYPES, DType, Tensor, numpy_dtype
from difflang.ops.value_formatting import format_number, format_value
from difflang.syntax import tree
from difflang.syntax.tree_queries import mentioned_names, mentioned_type_names, pattern_names
from difflang.types.dtype_variables import (
    DTypeParam,
    DTypeVar,
    imaginary_dtype,
    is_known_float,
    literal_dtype,
    prune_dtype,
)
from difflang.types.function_code import (
    BuiltinCode,
    ConvertCode,
    EnclosingGeneric,
    FnCode,
    LambdaCode,
    RecordCode,
    StaticCapture,
)
from difflang.types.language_types import show_type
from difflang.types.literal_numbers import float_literal, imaginary_literal
from difflang.types.module_scope import GlobalName, HostVar
from difflang.types.text_templates import check_format
from difflang.types.type_errors import MAX_LEAVES, leaf_limit_error


@elaborates(tree.Int)
def elaborate_int(cx: ElabContext, e: tree.Int) -> Walk[Term]:
    if e.value >= 2**63:
        raise cx.error(
            "DL0316", "this integer does not fit in any integer type", e.span, "64 bits hold integers below 2^63"
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


def lookup_name(cx: ElabContext, id: str, span: Span) -> Term:
    """Resolve a name: innermost scope first, then the file, then the language."""
    binding = cx.scope.find(id)
    if binding is not None:
        return binding_term(cx, binding, span)
    if id in cx.annotations.undetermined:
        raise cx.annotations.unbound_error(span, id)
    var = cx.host_value(id, span)
    if var is not None:
        return host_value_term(cx, GlobalName(cx.module, id), var, span)
    found = lookup_declaration(cx, id, span)
    if found is not None:
        return found
    raise unknown_name_error(cx, id, span)


def binding_term(cx: ElabContext, binding: LocalBinding, span: Span) -> Term:
    binding.was_read = True
    if isinstance(binding.term, (int, Poly)):
        return cx.integer_array(binding.term, span)
    if isinstance(binding.term, PoisonTerm):
        raise AlreadyReported
    return binding.term


def host_value_term(cx: ElabContext, name: GlobalName, var: HostVar, span: Span) -> Term:
    if var.invalid:
        raise AlreadyReported
    if cx.root.demand is None:
        # For the report of a later rebinding, which would change what the function sees.
        name.module.used.setdefault(var.name, span)
    if (known := host_constant(var)) is not None:
        return host_constant_term(cx, known, span)
    if var.mutable and cx.root.demand is None:
        raise cx.error(
            "DL0211",
            f"a function cannot use the top-level variable `{var.name}`",
            span,
            "it may change between calls",
            "pass it as an argument, or bind it with `let`",
        )
    return cx.global_term(name)


def host_constant(var: HostVar) -> StaticCapture | None:
    """An immutable scalar of the host that specialization may use as a constant, or None."""
    if var.static is None or var.mutable or not isinstance(var.type, Tensor):
        return None
    return StaticCapture(var.name, var.static, var.type)


def host_constant_term(cx: ElabContext, known: StaticCapture, span: Span) -> Array:
    return Array(cx.emit("const", span, value=known.value, type=known.type), known.value)


def bind_host_constants(cx: ElabContext, scope: BlockScope, code: FnCode | LambdaCode) -> None:
    """Bind the host constants that a function captured where it is defined."""
    for known in code.static_captures:
        scope.bind(known.name, host_constant_term(cx, known, code.decl.span))


def lookup_declaration(cx: ElabContext, id: str, span: Span) -> Term | None:
    """The declaration, constant or built-in of that name, in order of precedence."""
    module = cx.module
    if id in module.fns:
        return Closure(FnCode(module.fns[id], module), ())
    record = module.records.get(id)
    if isinstance(record, tree.Record):
        # Fields are resolved where the record is declared, not where it is used.
        return Closure(RecordCode(record, module.declaring_module(record)), ())
    if id in module.variants:
        return variant_constructor(*module.variants[id], module)
    if id in module.imported:
        return qualified_names.resolve_imported(cx, module.imported[id], span)
    if id in module.invalid_names:
        raise AlreadyReported  # its declaration was reported
    if id in CONSTANTS:
        return cx.literal_array(CONSTANTS[id], span, literal_dtype(CONSTANTS[id], module.default_float), CONSTANTS[id])
    if id in DTYPES or isinstance(cx.annotations.bound.get(id), DType):
        bound = cx.annotations.bound.get(id)
        return Closure(ConvertCode(bound if isinstance(bound, DType) else DTYPES[id]), ())
    if id in BUILTINS:
        return Closure(BuiltinCode(id), ())
    if module.prelude is not None and id in module.prelude.fns:
        return Closure(FnCode(module.prelude.fns[id], module.prelude), ())
    return None


# ---- Functions as values


@elaborates(tree.Lambda)
def elaborate_lambda(cx: ElabContext, e: tree.Lambda) -> Walk[Term]:
    from difflang.elaborate.derivatives import linear_functions

    names, terms, known = closure_values(cx, e)
    made = Closure(LambdaCode(e, cx.module, names, known, generic_bindings(cx, e)), terms)
    if e.linear:
        yield linear_functions.prove_annotated_lambda(cx, made)
    return made


def closure_values(
    cx: ElabContext, node: tree.Lambda | tree.Fn
) -> tuple[tuple[str, ...], tuple[Term, ...], tuple[StaticCapture, ...]]:
    """The captured variables of a function, their values, and the captured host constants.

    Only host code captures top-level values of the file; inside a `fn` they are globals.
    """
    own = {name for p in node.params for name in names_of_param(p)}
    names: list[str] = []
    known: list[StaticCapture] = []
    for name in mentioned_names(node):
        if (binding := cx.scope.find(name)) is not None:
            names += [] if isinstance(binding.term, PoisonTerm) else [name]
        elif cx.host is not None and name not in own and (var := cx.host_value(name, node.span)) is not None:
            found = host_constant(var)
            known += [] if found is None else [found]
            names += [] if found is not None or var.invalid else [name]
    return tuple(names), tuple(lookup_name(cx, n, node.span) for n in names), tuple(known)


def generic_bindings(cx: ElabContext, node: tree.Lambda | tree.Fn) -> tuple[EnclosingGeneric, ...]:
    """The bindings of generic names that a function uses from enclosing scopes."""
    generics, bound = cx.annotations.generics, cx.annotations.bound
    own = {g.name for g in node.generics} if isinstance(node, tree.Fn) else set[str]()
    names = [n for n in generics if n not in own] if generics else []
    mentioned = mentioned_type_names(node) if names else set[str]()
    return tuple([EnclosingGeneric(n, generics[n], cast("Any", bound.get(n))) for n in names if n in mentioned])


def names_of_param(param: tree.LambdaParam | tree.Param) -> Sequence[str]:
    return (param.name,) if isinstance(param, tree.Param) else pattern_names(param.pattern)


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
        dtype = literal_dtype(0.0, cx.module.default_float)
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
    if isinstance(terms[0], (Closure, VariantTerm, SumTerm)):
        return stack_sum_values(cx, terms, spans, e.span)
    parts = [as_array(cx, term, at) for term, at in zip(terms, spans, strict=True)]
    whole = stack_arrays(cx, e.span, parts, tuple(spans))
    sizes = tuple(p.static for p in parts)
    return Array(whole.value, elements=None if None in sizes else sizes)


def stack_arrays(cx: ElabContext, span: Span, parts: list[Array], spans: tuple[Span, ...], axis: int = 0) -> Array:
    first = parts[0].tensor
    for part, at in zip(parts, spans, strict=True):
        if not cx.unifier.same(first, part.tensor):
            raise cx.error(
                "DL0317",
                "the items of an array must have one type",
                at,
                f"this is {show_type(part.tensor)}, but the first is {show_type(first)}",
            )
    shape = (*first.shape[:axis], 1, *first.shape[axis:])
    rows = [Array(cx.emit("reshape", span, p.value, shape=shape)) for p in parts]
    return rows[0] if len(rows) == 1 else cx.emit_op("concat", span, *rows, axis=axis)


@elaborates(tree.Member)
def elaborate_member(cx: ElabContext, e: tree.Member) -> Walk[Term]:
    module = qualified_names.module_named_by(cx, e.base)
    if module is not None:
        return qualified_names.module_member(cx, module, e)
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
        found = interpolated_parts(value, part)
        if found is None:
            # Only the declaration of a value in it is known.
            return TextTerm(None)
        parts += found
        if len(parts) > MAX_LEAVES:
            raise leaf_limit_error(e.span)
    if all(isinstance(part, str) for part in parts):
        return TextTerm("".join(map(str, parts)))
    return TextTerm(None, tuple(parts))


def interpolated_parts(value: Term, part: tree.Interpolation) -> Sequence[str | InterpolatedValue] | None:
    """The parts of a text that replace an interpolated value: strings where it is known."""
    match value:
        case TextTerm(value=str() as text):
            return (format_value(text, part.format),)
        case TextTerm(parts=()):
            return None
        case TextTerm(parts=parts) if not part.format:
            return parts
        case Array(static=static) if (
            static is not None and (text := format_static(value, static, part.format)) is not None
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
