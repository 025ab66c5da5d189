"""Built-ins that apply an op to each element, convert element types, or go through several arrays together."""

from __future__ import annotations

import math
from typing import Any

from difflang.base.source import Span
from difflang.elaborate.arrays.item_functions import select_items
from difflang.elaborate.calls.application import applies
from difflang.elaborate.calls.builtin_registry import BUILTINS, BuiltinArgs, builtin, register_builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.calls.vmap import map_first_axes
from difflang.elaborate.context import ElabContext
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.patterns.structured_arrays import is_structured_array
from difflang.elaborate.reports.op_messages import REAL_PART_HELP, quote_source
from difflang.elaborate.terms import Array, Closure, OpaqueTerm, Term, ZipTerm, leaves, term_from_leaves, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Poly
from difflang.ir.tensor_types import BOOL, F32, REAL_DTYPE_OF, DType, Tensor
from difflang.types.dtype_variables import is_known_float, prune_dtype
from difflang.types.function_code import BuiltinCode, ConvertCode
from difflang.types.language_types import show_type
from difflang.types.literal_numbers import number_as_typed
from difflang.types.unify import unify_dtypes

# Elementwise functions, which have the names of their ops, by the parameters that they take.
ELEMENTWISE_NAMES = {
    "x": (
        "abs sign floor ceil round trunc sqrt cbrt exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh sigmoid relu softplus gelu erf erfc erfinv gamma lgamma isnan isinf isfinite "
        "bit_not popcount"
    ),
    "z": "real imag conj",
    "x y": "hypot logaddexp xlogy bit_and bit_or bit_xor",
    "x n": "shift_left shift_right",
    "y x": "atan2",
}


@applies(BuiltinCode)
def apply_builtin(cx: ElabContext, code: BuiltinCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    return BUILTINS[code.name](cx, args)


# ---- Elementwise


def elementwise_builtin(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    given = [took.by_name[param] for param in took.params]
    return elementwise(cx, name, args.span, [t for t, _ in given], [s for _, s in given])


for _takes, _names in ELEMENTWISE_NAMES.items():
    builtin(*_names.split(), takes=_takes)(elementwise_builtin)


@builtin("where", takes="condition x y")
def where(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    spans = [took.span(n) for n in ("condition", "x", "y")]
    x, y = took.term("x"), took.term("y")
    if is_structured_array(x) and is_structured_array(y):
        return select_items(cx, took.by_name["condition"], took.by_name["x"], took.by_name["y"], args.span)
    if (
        isinstance(x, Array)
        and isinstance(y, Array)
        and not cx.unifier.same(Tensor(x.tensor.dtype), Tensor(y.tensor.dtype))
    ):
        raise cx.error(
            "DL0311",
            "the two sides of `where` have different element types",
            spans[2],
            f"{show_type(x.tensor)} and {show_type(y.tensor)}",
        )
    return elementwise(cx, "select", args.span, [took.term("condition"), x, y], spans)


@builtin("clamp", takes="x low high")
def clamp(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    order = ("low", "x", "high")
    return elementwise(cx, "clamp", args.span, [took.term(n) for n in order], [took.span(n) for n in order])


@builtin("stop", takes="x")
def stop(cx: ElabContext, args: CallArgs, name: str) -> Term:
    term = BuiltinArgs(cx, args, name).term("x")
    return term_from_leaves(type_of(term), [cx.emit("stop", args.span, leaf) for leaf in leaves(term)])


@builtin("discrete", takes="x p")
def discrete(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    return elementwise(cx, "discrete", args.span, [took.array(n) for n in ("x", "p")], [took.span(n) for n in "xp"])


@applies(ConvertCode)
def convert_dtype(cx: ElabContext, code: ConvertCode, captures: tuple[Term, ...], args: CallArgs) -> Walk[Term]:
    """`f64(x)`: conversion to another element type; floats become integers by rounding toward zero."""
    dtype = code.dtype
    took = BuiltinArgs(cx, args, dtype.name, "x")
    x = took.array("x")
    if x.static is not None and not x.tensor.shape:
        # Static values stay static, so `i32(n) // 2` can still be a size.
        return convert_constant(cx, dtype, x, args.span)
    if prune_dtype(x.tensor.dtype) is dtype:
        return x
    if x.tensor.dtype.is_complex and not dtype.is_complex:
        at, shown = took.span("x"), show_type(x.tensor)
        way = REAL_PART_HELP.format(quote_source(at))
        raise cx.error("DL0311", f"`{dtype}` takes a real number, not {shown}", at, f"this is {shown}", way)
    # `truncate` has no derivative; `convert` passes the tangent on.
    name = "convert" if all(d.differentiable for d in getattr(dtype, "candidates", (dtype,))) else "truncate"
    return Array(cx.emit(name, args.span, x.value, dtype=dtype), upper_bound=x.upper_bound)
    yield


def convert_constant(cx: ElabContext, dtype: DType, x: Array, span: Span) -> Array:
    """A compile-time constant, converted to the requested type."""
    value: Any = x.static
    if x.literal and not isinstance(value, bool):
        # The number as written is of this type from the start.
        unify_dtypes(x.tensor.dtype, REAL_DTYPE_OF.get(dtype, dtype))
    value = number_as_typed(value, x.tensor.dtype)
    if isinstance(value, float) and dtype.is_integer:
        # An open type may still become one that does not have this number.
        if not math.isfinite(value) or (not is_known_float(x.tensor.dtype) and value != number_as_typed(value, F32)):
            return Array(cx.emit("truncate", span, x.value, dtype=dtype))
        value = int(value)
    if dtype is BOOL and not isinstance(value, Poly):
        value = bool(value)
    if isinstance(value, bool) and dtype is not BOOL:
        value = int(value)
    const = cx.emit("const", span, value=value, type=Tensor(dtype))
    return Array(const, value if dtype.is_integer or dtype is BOOL else None)


@builtin("zip", takes="..xs")
def zip_(cx: ElabContext, args: CallArgs, name: str) -> Term:
    if args.named or not args.items:
        raise cx.error("DL0319", "usage of `zip`: `zip(xs, ys, …)`", args.span)
    return ZipTerm(tuple(t for t, _ in args.items))


@builtin("enumerate", takes="xs")
def enumerate_(cx: ElabContext, args: CallArgs, name: str) -> Term:
    return ZipTerm((BuiltinArgs(cx, args, name).term("xs"),), counted=True)


def map_(cx: ElabContext, args: CallArgs) -> Walk[Term]:
    """`map(f, xs)`: f on each item."""
    took = BuiltinArgs(cx, args, "map")
    f, (xs, at) = took.term("f"), took.by_name["xs"]
    if isinstance(xs, (Closure, OpaqueTerm)):
        way = f"write `map({quote_source(at, 'f')}, {quote_source(took.span('f'), 'xs')})`"
        raise cx.error("DL0332", "the first argument of `map` is the function", at, "this is a function", way)
    return (yield map_first_axes(cx, f, CallArgs(args.span, [(xs, at)]), "map"))


register_builtin("map", map_, "f xs")
