"""The registry of built-in functions by name, the reader of their arguments, and the elementwise ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.base.diagnostics import DifflangError
from difflang.base.fixes import did_you_mean
from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext
from difflang.elaborate.expressions.operators import as_array, elementwise
from difflang.elaborate.reports.op_messages import REAL_PART_HELP, quote_source
from difflang.elaborate.terms import (
    Array,
    Closure,
    OpaqueTerm,
    PoisonTerm,
    Term,
    Tuple,
    ZipTerm,
    leaves,
    term_from_leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.symbolic_dims import Dim, Poly
from difflang.ir.tensor_types import BOOL, F32, REAL_DTYPE_OF, DType, Tensor
from difflang.types.dtype_variables import DTypeVar, is_known_float, prune_dtype
from difflang.types.language_types import show_type
from difflang.types.literal_numbers import number_as_typed
from difflang.types.type_errors import DeferCheck
from difflang.types.unify import unify_dtypes

TRANSFORM_NAMES = (
    "grad",
    "value_and_grad",
    "jvp",
    "vjp",
    "deriv",
    "vmap",
    "linearize",
    "jacobian",
    "jacfwd",
    "jacrev",
    "hvp",
    "hessian",
    "jet",
)

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

BuiltinFunction = Callable[[ElabContext, "CallArgs"], Walk[Term]]
BUILTINS: dict[str, BuiltinFunction] = {}
# The parameters of each: `axis?` may be left out, `..sizes` is any number of them, `|` parts two forms of a call.
PARAMETERS: dict[str, str] = {}


def builtin(*names: str, takes: str) -> Callable[[Callable[..., Term]], Callable[..., Term]]:
    """Registers a built-in that returns its term directly and needs no walk."""

    def register(function: Callable[..., Term]) -> Callable[..., Term]:
        for name in names:
            register_builtin(name, as_builtin(function, name), takes)
        return function

    return register


def register_builtin(name: str, walk: BuiltinFunction, takes: str) -> None:
    BUILTINS[name], PARAMETERS[name] = walk, takes


def as_builtin(function: Callable[..., Term], name: str) -> BuiltinFunction:
    def walk(cx: ElabContext, args: CallArgs) -> Walk[Term]:
        return function(cx, args, name)
        yield

    return walk


class BuiltinArgs:
    """Reads the arguments of a built-in function by position or name, and reports wrong ones."""

    def __init__(self, cx: ElabContext, args: CallArgs, name: str, takes: str = "") -> None:
        self.cx, self.args, self.name = cx, args, name
        self.params = (takes or PARAMETERS[name]).rpartition("| ")[2].split()
        names = [p.rstrip("?") for p in self.params]
        self.by_name = dict(zip(names, args.items, strict=False))
        needed = [p for p in self.params if not p.endswith("?")]
        unknown = [n for n in args.named if n not in names]
        twice = [n for n in args.named if n in self.by_name]
        self.by_name |= args.named
        if len(args.items) > len(names) or unknown or twice or any(n not in self.by_name for n in needed):
            signature = ", ".join(p if not p.endswith("?") else f"{p[:-1]} = …" for p in self.params)
            way = f"usage: `{name}({signature})`"
            if unknown:
                place = args.name_spans.get(unknown[0], args.span)
                said, fixes = did_you_mean(unknown[0], names, place)
                raise cx.error("DL0319", f"`{name}` has no parameter `{unknown[0]}`", place, said, way, fixes)
            wanted = next((n for n in needed if n not in self.by_name), None)
            what = f"`{name}` is missing `{wanted}`" if wanted else f"`{name}` has too many arguments"
            place = args.items[len(names)][1] if len(args.items) > len(names) else args.span
            raise cx.error("DL0319", what, place, "", way)

    def term(self, name: str) -> Term:
        term = self.by_name[name][0]
        if isinstance(term, PoisonTerm):
            raise AlreadyReported
        return term

    def array(self, name: str) -> Array:
        return as_array(self.cx, *self.by_name[name])

    def span(self, name: str) -> Span:
        return self.by_name[name][1] if name in self.by_name else self.args.span

    def is_present(self, name: str) -> bool:
        return name in self.by_name

    def static(self, name: str, default: Dim) -> Dim:
        if name not in self.by_name:
            return default
        term, span = self.by_name[name]
        return self.cx.static(term, span, f"`{name}`")

    def integer(self, name: str, default: int) -> int:
        value = self.static(name, default)
        if not isinstance(value, int):
            raise DeferCheck
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        if name not in self.by_name:
            return default
        term, span = self.by_name[name]
        if not isinstance(term, Array) or not isinstance(term.static, bool):
            raise self.cx.error("DL0305", f"`{name}` must be the literal `true` or `false`", span)
        return term.static

    def axes(self, rank: int, name: str = "axis") -> tuple[int, ...] | None:
        """The requested axes, counted from the front; None without the argument."""
        if name not in self.by_name:
            return None
        term, span = self.by_name[name]
        items = term.items if isinstance(term, Tuple) else (term,)
        if not all(isinstance(t, PoisonTerm) or (isinstance(t, Array) and may_be_integer(t)) for t in items):
            raise self.axis_error(name, term, span)
        # A negative axis counts from the end, as in NumPy.
        numbers = [self.cx.static(t, span, f"`{name}`") for t in items]
        axes = tuple(n + rank if isinstance(n, int) and n < 0 else n for n in numbers)
        if any(not isinstance(a, int) or not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
            raise self.cx.error(
                "DL0335",
                f"this axis does not exist: the array has {count_of(rank, 'axis', 'axes')}",
                span,
                f"axes are 0 to {rank - 1}" if rank > 1 else "its only axis is 0" if rank else "",
            )
        return tuple(sorted(a for a in axes if isinstance(a, int)))

    def axis_error(self, name: str, term: Term, span: Span) -> DifflangError:
        """The report of a float where an axis is expected, as in `sum(1.0, 2.0)`."""
        message = f"`{name}` of `{self.name}` must be the number of an axis"
        several = ", ".join(place.text for _, place in self.args.items)
        way = f"for several numbers, write `{self.name}([{several}])`" if len(self.args.items) > 1 else ""
        return self.cx.error("DL0313", message, span, f"this is {show_type(type_of(term))}", way)


def may_be_integer(x: Array) -> bool:
    dtype = prune_dtype(x.tensor.dtype)
    return any(c.is_integer for c in (dtype.candidates if isinstance(dtype, DTypeVar) else (dtype,)))


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


def convert_dtype(cx: ElabContext, dtype: DType, args: CallArgs) -> Walk[Term]:
    """`f64(x)`: conversion to another element type; floats become integers by rounding toward zero."""
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
    from difflang.elaborate.calls.call_args import CallArgs as Arguments
    from difflang.elaborate.calls.vmap import apply_vmap

    took = BuiltinArgs(cx, args, "map")
    f, (xs, at) = took.term("f"), took.by_name["xs"]
    if isinstance(xs, (Closure, OpaqueTerm)):
        way = f"write `map({quote_source(at, 'f')}, {quote_source(took.span('f'), 'xs')})`"
        raise cx.error("DL0332", "the first argument of `map` is the function", at, "this is a function", way)
    return (yield apply_vmap(cx, f, Arguments(args.span, [(xs, at)]), name="map"))


register_builtin("map", map_, "f xs")


def print_builtin(cx: ElabContext, args: CallArgs) -> Walk[Term]:
    from difflang.elaborate.statements.printing import print_

    return print_(cx, args)
    yield


register_builtin("print", print_builtin, "..values")


# Importing these modules registers their functions. It must come last: they import `builtin` from here.
from difflang.elaborate.arrays import (  # noqa: E402
    complex_numbers,
    convolution_pooling,
    creation_and_shape,
    fft,
    linear_algebra,
    random_draws,
    reductions,
    roll_tile_and_triangles,
)

__all__ = [
    "BUILTINS",
    "PARAMETERS",
    "TRANSFORM_NAMES",
    "BuiltinArgs",
    "builtin",
    "complex_numbers",
    "convert_dtype",
    "convolution_pooling",
    "creation_and_shape",
    "fft",
    "linear_algebra",
    "random_draws",
    "reductions",
    "register_builtin",
    "roll_tile_and_triangles",
]
