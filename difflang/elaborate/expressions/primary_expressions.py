"""Plain expressions: literals, names, tuples, arrays, fields, strings."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any, cast

import numpy as np

from difflang.base.fixes import meant
from difflang.base.source import Span
from difflang.elaborate.calls.builtin_functions import BUILTINS
from difflang.elaborate.calls.constructors import within_parts
from difflang.elaborate.calls.signatures import held_alike
from difflang.elaborate.context import Context, Reported, walk, walks
from difflang.elaborate.expressions import qualified_names
from difflang.elaborate.expressions.literals import literal_rows
from difflang.elaborate.expressions.operators import array
from difflang.elaborate.patterns.sum_type_arrays import stacked
from difflang.elaborate.patterns.sum_types import constructor, takes_place
from difflang.elaborate.reports.name_errors import CONSTANTS, unknown_name
from difflang.elaborate.scope import Binding, Scope
from difflang.elaborate.terms import (
    Array,
    Closure,
    Filled,
    Poison,
    Record,
    Static,
    Sum,
    Term,
    Text,
    Tuple,
    Variant,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.interpreter import numpy_dtype
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, DTYPES, DType, Tensor
from difflang.ops.value_formatting import formatted, number
from difflang.syntax import tree
from difflang.syntax.tree_queries import bound_names, free_names, type_names
from difflang.types.dtype_variables import DTypeParam, DTypeVar, imaginary_dtype, literal_dtype, pruned
from difflang.types.function_code import BuiltinCode, ConvertCode, FnCode, Known, LambdaCode, Meant, RecordCode
from difflang.types.language_types import show_type
from difflang.types.module_scope import Global, HostVar
from difflang.types.text_templates import check_format


@walks(tree.Int)
def integer(cx: Context, e: tree.Int) -> Walk[Term]:
    if e.value >= 2**63:
        raise cx.error("DL0316", "this integer fits in no integer type", e.span, "64 bits hold less than 2^63")
    return cx.literal(e.value, e.span, literal_dtype(e.value, cx.module.default_float), e.value)
    yield


@walks(tree.Float)
def float_(cx: Context, e: tree.Float) -> Walk[Term]:
    if isinf(e.value):
        raise cx.error("DL0316", "this number fits in no float type", e.span, "f64 ends at 1.8e+308")
    return cx.literal(e.value, e.span, literal_dtype(e.value, cx.module.default_float), e.value)
    yield


@walks(tree.Imaginary)
def imaginary(cx: Context, e: tree.Imaginary) -> Walk[Term]:
    dtype = imaginary_dtype(cx.module.default_float)
    return Array(cx.emit("const", e.span, value=complex(0.0, e.value), type=Tensor(dtype)))
    yield


@walks(tree.Bool)
def bool_(cx: Context, e: tree.Bool) -> Walk[Term]:
    return cx.literal(e.value, e.span, BOOL, e.value)
    yield


# ---- Names


@walks(tree.Name)
def name(cx: Context, e: tree.Name) -> Walk[Term]:
    return lookup(cx, e.id, e.span)
    yield


def lookup(cx: Context, id: str, span: Span) -> Term:
    """What a name stands for: innermost scope first, then the file, then the language."""
    binding = cx.scope.find(id)
    if binding is not None:
        return bound_term(cx, binding, span)
    if id in cx.annotations.untold:
        raise cx.annotations.unbound(span, id)
    var = cx.host_value(id, span)
    if var is not None:
        return host_term(cx, Global(cx.module, id), var, span)
    found = declared(cx, id, span)
    if found is not None:
        return found
    raise unknown_name(cx, id, span)


def bound_term(cx: Context, binding: Binding, span: Span) -> Term:
    binding.read = True
    if isinstance(binding.term, (int, Poly)):
        return cx.integer(binding.term, span)
    if isinstance(binding.term, Poison):
        raise Reported
    return binding.term


def host_term(cx: Context, name: Global, var: HostVar, span: Span) -> Term:
    if var.broken:
        raise Reported
    if cx.root.demand is None:
        name.module.used.setdefault(var.name, span)
    if (known := known_of(var)) is not None:
        return known_term(cx, known, span)
    if var.mutable and cx.root.demand is None:
        raise cx.error(
            "DL0211",
            f"a function cannot use the top-level variable `{var.name}`",
            span,
            "it may change between calls",
            "pass it as an argument, or bind it with `let`",
        )
    return cx.global_term(name)


def known_of(var: HostVar) -> Known | None:
    """What specialization may know of a value of the host."""
    if var.static is None or var.mutable or not isinstance(var.type, Tensor):
        return None
    return Known(var.name, var.static, var.type)


def known_term(cx: Context, known: Known, span: Span) -> Array:
    return Array(cx.emit("const", span, value=known.value, type=known.type), known.value)


def bind_known(cx: Context, scope: Scope, code: FnCode | LambdaCode) -> None:
    """The numbers that a function found where it stands, under their names."""
    for known in code.known:
        scope.bind(known.name, known_term(cx, known, code.decl.span))


def declared(cx: Context, id: str, span: Span) -> Term | None:
    """A function, a record or a constant of that name."""
    module = cx.module
    if id in module.fns:
        return Closure(FnCode(module.fns[id], module), ())
    record = module.records.get(id)
    if isinstance(record, tree.Record):
        return Closure(RecordCode(record, module.home(record)), ())
    if id in module.variants:
        return constructor(*module.variants[id], module)
    if id in module.imported:
        return qualified_names.meant(cx, module.imported[id], span)
    if id in module.later:
        raise Reported  # what it is declared as is not there yet, and that was said
    if id in CONSTANTS:
        return cx.literal(CONSTANTS[id], span, literal_dtype(CONSTANTS[id], module.default_float), CONSTANTS[id])
    if id in DTYPES or isinstance(cx.annotations.bound.get(id), DType):
        bound = cx.annotations.bound.get(id)
        return Closure(ConvertCode(bound if isinstance(bound, DType) else DTYPES[id]), ())
    if id in BUILTINS:
        return Closure(BuiltinCode(id), ())
    if module.prelude is not None and id in module.prelude.fns:
        return Closure(FnCode(module.prelude.fns[id], module.prelude), ())
    return None


# ---- Functions as values


@walks(tree.Lambda)
def lambda_(cx: Context, e: tree.Lambda) -> Walk[Term]:
    from difflang.elaborate.derivatives import linear_functions

    names, terms, known = captured(cx, e)
    made = Closure(LambdaCode(e, cx.module, names, known, types_around(cx, e)), terms)
    if e.linear:
        yield linear_functions.prove_made(cx, made)
    return made


def captured(cx: Context, node: tree.Lambda | tree.Fn) -> tuple[tuple[str, ...], tuple[Term, ...], tuple[Known, ...]]:
    """The names that a function uses from around it and what they stand for now, and the numbers that are known.

    Of the file's own values only host code has some: those of a `fn` are the same whenever it is called.
    """
    own = {name for p in node.params for name in names_of(p)}
    names: list[str] = []
    known: list[Known] = []
    for name in free_names(node):
        if (binding := cx.scope.find(name)) is not None:
            names += [] if isinstance(binding.term, Poison) else [name]
        elif cx.host is not None and name not in own and (var := cx.host_value(name, node.span)) is not None:
            found = known_of(var)
            known += [] if found is None else [found]
            names += [] if found is not None or var.broken else [name]
    return tuple(names), tuple(lookup(cx, n, node.span) for n in names), tuple(known)


def types_around(cx: Context, node: tree.Lambda | tree.Fn) -> tuple[Meant, ...]:
    """What the generic names that a function uses from around it stand for, wherever it is called."""
    generics, bound = cx.annotations.generics, cx.annotations.bound
    own = {g.name for g in node.generics} if isinstance(node, tree.Fn) else set[str]()
    names = [n for n in generics if n not in own] if generics else []
    mentioned = type_names(node) if names else set[str]()
    return tuple([Meant(n, generics[n], cast("Any", bound.get(n))) for n in names if n in mentioned])


def names_of(param: tree.LambdaParam | tree.Param) -> Sequence[str]:
    return (param.name,) if isinstance(param, tree.Param) else bound_names(param.pattern)


# ---- Tuples, arrays, records


@walks(tree.TupleExpr)
def tuple_(cx: Context, e: tree.TupleExpr) -> Walk[Term]:
    items: list[Term] = []
    for item in e.items:
        items.append((yield walk(cx, item)))
    return within_parts(Tuple(tuple(items)), e.span)


@walks(tree.ArrayExpr)
def array_(cx: Context, e: tree.ArrayExpr) -> Walk[Term]:
    """`[x, y]` stacks its items on a new first axis."""
    if not e.items:
        dtype = literal_dtype(0.0, cx.module.default_float)
        return Array(cx.emit("const", e.span, value=0, type=Tensor(dtype, (0,))))
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
        terms.append((yield walk(cx, item)))
    spans = [item.span for item in e.items]
    if isinstance(terms[0], (Closure, Variant, Sum)):
        return stacked(cx, terms, spans, e.span)
    parts = [array(cx, term, at) for term, at in zip(terms, spans, strict=True)]
    whole = stack(cx, e.span, parts, tuple(spans))
    sizes = tuple(p.static for p in parts)
    return Array(whole.value, elements=None if None in sizes else sizes)


def stack(cx: Context, span: Span, parts: list[Array], spans: tuple[Span, ...], axis: int = 0) -> Array:
    first = parts[0].tensor
    for part, at in zip(parts, spans, strict=True):
        if not cx.unifier.same(first, part.tensor):
            raise cx.error(
                "DL0317",
                "the items of an array have one type",
                at,
                f"this is {show_type(part.tensor)}, the first {show_type(first)}",
            )
    shape = (*first.shape[:axis], 1, *first.shape[axis:])
    rows = [Array(cx.emit("reshape", span, p.value, shape=shape)) for p in parts]
    return rows[0] if len(rows) == 1 else cx.op("concat", span, *rows, axis=axis)


@walks(tree.Member)
def member(cx: Context, e: tree.Member) -> Walk[Term]:
    module = qualified_names.module_of(cx, e.base)
    if module is not None:
        return qualified_names.member_of(cx, module, e)
    base = yield walk(cx, e.base)
    return field(cx, base, e)


def field(cx: Context, base: Term, e: tree.Member, within: tuple[type[Record | Variant], ...] = (Record,)) -> Term:
    if isinstance(base, Poison):
        raise Reported
    if not isinstance(base, within):
        type, help = show_type(type_of(base)), other_than_field(base, e.name)
        raise cx.error("DL0206", f"{type} has no field `{e.name}`", e.name_span, "", help)
    if e.name not in base.type.names:
        way, fixes = meant(e.name, base.type.names, e.name_span)
        way = way or f"it has {', '.join(base.type.names) or 'none'}"
        what = base.type.name if isinstance(base, Variant) else base.type
        raise cx.error("DL0206", f"{what} has no field `{e.name}`", e.name_span, "", way, fixes)
    return base.field(e.name)


SIZES = "sizes have names in types: with `x: f32[n, m]` write `n`"
OF_ARRAYS = {"T": "write `transpose(x)`", "shape": SIZES, "size": SIZES, "ndim": "the type of an array says its axes",
             "at": "write `x[i] = e` or `x[i] += e` of a `var`"}  # fmt: skip


def other_than_field(base: Term, name: str) -> str:
    """The way to what others write as a field."""
    if isinstance(base, Tuple):
        return "a tuple is taken apart: `let (a, b) = t`"
    if isinstance(base, Array) and name in OF_ARRAYS:
        return OF_ARRAYS[name]
    if isinstance(base, (Variant, Sum)):
        return "what an enum holds is taken out by `match`"
    return f"it is a function: `x.{name}()`" if name in BUILTINS else "only records have fields"


@walks(tree.With)
def with_(cx: Context, e: tree.With) -> Walk[Term]:
    base = yield walk(cx, e.base)
    for arg in e.fields:
        value = yield walk(cx, arg.value)
        name = tree.Member(arg.span, e.base, arg.name or "", arg.span)
        old = field(cx, base, name, within=(Record, Variant))
        assert isinstance(base, (Record, Variant))
        value = held_alike(old, value, arg.value.span)
        if not takes_place(cx, type_of(old), type_of(value)):
            raise cx.error(
                "DL0304",
                f"the field `{arg.name}` is {show_type(type_of(old))}",
                arg.value.span,
                f"this is {show_type(type_of(value))}",
            )
        base = base.with_field(arg.name or "", value)
    return base


@walks(tree.Str)
def string(cx: Context, e: tree.Str) -> Walk[Term]:
    parts: list[str | Filled] = []
    for part in e.parts:
        if isinstance(part, str):
            parts.append(part)
            continue
        value = yield walk(cx, part.value)
        if isinstance(value, Poison):
            raise Reported
        check_format(type_of(value), part)
        found = filled_in(value, part)
        if found is None:
            return Text(None)  # as long as only the declaration of what fills it in is known
        parts += found
    if all(isinstance(part, str) for part in parts):
        return Text("".join(map(str, parts)))
    return Text(None, tuple(parts))


def filled_in(value: Term, part: tree.Interpolation) -> Sequence[str | Filled] | None:
    """What stands in the place of a value in a text: strings as far as they are known."""
    match value:
        case Text(value=str() as text):
            return (formatted(text, part.format),)
        case Text(parts=()):
            return None
        case Text(parts=parts) if not part.format:
            return parts
        case Array(static=static) if static is not None and (text := spelled(value, static, part.format)) is not None:
            return (text,)
        case _:
            return (Filled(value, part.format),)


def spelled(value: Array, static: Static, spec: str) -> str | None:
    """A number that is known beforehand, if its element type is too."""
    dtype = pruned(value.tensor.dtype)
    if isinstance(static, Poly):
        return str(static)
    if isinstance(static, int) and not isinstance(static, bool):
        return formatted(static, spec)
    if isinstance(dtype, (DTypeVar, DTypeParam)):
        return None
    return number(np.asarray(static, numpy_dtype(dtype)), spec)


@walks(tree.Slice, tree.Dots)
def slice_(cx: Context, e: tree.Slice) -> Walk[Term]:
    raise cx.error("DL0313", "an open range is an index only", e.span, "", "write both ends: `a..b`")
    yield
