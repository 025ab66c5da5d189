"""The functions of the language itself, by name. Those that an op computes elementwise are found in the registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import difflang.ops  # noqa: F401 - fills the registry
from difflang.base.source import Span
from difflang.check.annotations import Undecided
from difflang.check.types import UNIT, Spread, literal_dtype, pruned, show_type, tangent_type
from difflang.elaborate.context import Context, Reported
from difflang.elaborate.operators import array, elementwise
from difflang.elaborate.terms import (
    UNIT_TERM,
    Array,
    Poison,
    Record,
    Static,
    Term,
    Tuple,
    Zip,
    leaves,
    rebuild,
    type_of,
)
from difflang.elaborate.trampoline import Walk
from difflang.ir.dims import Dim, Poly, floor_div
from difflang.ir.types import BOOL, I32, DType, Tensor

if TYPE_CHECKING:
    from difflang.elaborate.calls import Args

TRANSFORMS = (
    "grad", "value_and_grad", "jvp", "vjp", "deriv", "vmap", "linearize", "jacobian", "jacfwd", "jacrev", "hvp",
    "hessian", "jet",
)  # fmt: skip

# Elementwise functions whose name in the language is that of the op; how many arrays each takes.
ELEMENTWISE = {
    **dict.fromkeys(
        "abs sign floor ceil round trunc sqrt cbrt exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh sigmoid relu softplus erf erfc erfinv lgamma digamma isnan isinf isfinite bit_not popcount"
        .split(), 1),
    **dict.fromkeys("atan2 hypot bit_and bit_or bit_xor shift_left shift_right".split(), 2),
}  # fmt: skip

Builtin = Callable[[Context, "Args"], Walk[Term]]
BUILTINS: dict[str, Builtin] = {}


def builtin(*names: str) -> Callable[[Callable[..., Term]], Callable[..., Term]]:
    """Registers a function that gives its term at once."""

    def register(function: Callable[..., Term]) -> Callable[..., Term]:
        for name in names:
            BUILTINS[name] = immediate(function, name)
        return function

    return register


def immediate(function: Callable[..., Term], name: str) -> Builtin:
    def walk(cx: Context, args: Args) -> Walk[Term]:
        return function(cx, args, name)
        yield

    return walk


class Taken:
    """Reads the arguments of a built-in function by position or name, and says what is wrong with them."""

    def __init__(self, cx: Context, args: Args, name: str, params: str) -> None:
        self.cx, self.args, self.name = cx, args, name
        self.params = params.split()
        names = [p.rstrip("?") for p in self.params]
        self.found = dict(zip(names, args.items, strict=False))
        needed = [p for p in self.params if not p.endswith("?")]
        unknown = [n for n in args.named if n not in names]
        twice = [n for n in args.named if n in self.found]
        self.found |= args.named
        if len(args.items) > len(names) or unknown or twice or any(n not in self.found for n in needed):
            signature = ", ".join(p if not p.endswith("?") else f"{p[:-1]} = …" for p in self.params)
            raise cx.error("DL0319", f"`{name}` is called as `{name}({signature})`", args.span)

    def term(self, name: str) -> Term:
        term = self.found[name][0]
        if isinstance(term, Poison):
            raise Reported
        return term

    def array(self, name: str) -> Array:
        return array(self.cx, *self.found[name])

    def span(self, name: str) -> Span:
        return self.found[name][1] if name in self.found else self.args.span

    def has(self, name: str) -> bool:
        return name in self.found

    def static(self, name: str, default: Dim) -> Dim:
        if name not in self.found:
            return default
        term, span = self.found[name]
        return self.cx.static(term, span, f"`{name}`")

    def integer(self, name: str, default: int) -> int:
        value = self.static(name, default)
        if not isinstance(value, int):
            raise Undecided
        return value

    def flag(self, name: str) -> bool:
        if name not in self.found:
            return False
        term, span = self.found[name]
        if not isinstance(term, Array) or not isinstance(term.static, bool):
            raise self.cx.error("DL0305", f"`{name}` is `true` or `false` as written", span)
        return term.static

    def axes(self, rank: int, name: str = "axis") -> tuple[int, ...] | None:
        """The axes asked for, counted from the front; None where none are."""
        if name not in self.found:
            return None
        term, span = self.found[name]
        items = term.items if isinstance(term, Tuple) else (term,)
        numbers = [self.cx.static(t, span, f"`{name}`") for t in items]
        axes = tuple(n + rank if isinstance(n, int) and n < 0 else n for n in numbers)
        if any(not isinstance(a, int) or not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
            raise self.cx.error("DL0335", f"there is no such axis: the array has {rank}", span, f"axes are 0 to {rank - 1}")
        return tuple(sorted(a for a in axes if isinstance(a, int)))


# ---- Elementwise


def _elementwise(cx: Context, args: Args, name: str) -> Term:
    count = ELEMENTWISE[name]
    if len(args.items) != count or args.named:
        raise cx.error("DL0319", f"`{name}` takes {count} argument{'s' if count > 1 else ''}", args.span)
    return elementwise(cx, name, args.span, [t for t, _ in args.items], [s for _, s in args.items])


for _name in ELEMENTWISE:
    BUILTINS[_name] = immediate(_elementwise, _name)


@builtin("where")
def where(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "condition x y")
    spans = [took.span(n) for n in ("condition", "x", "y")]
    x, y = took.term("x"), took.term("y")
    if isinstance(x, Array) and isinstance(y, Array) and not cx.unifier.same(Tensor(x.tensor.dtype), Tensor(y.tensor.dtype)):
        raise cx.error("DL0311", "the two sides of `where` have different element types", spans[2],
                       f"{show_type(x.tensor)} and {show_type(y.tensor)}")  # fmt: skip
    return elementwise(cx, "select", args.span, [took.term("condition"), x, y], spans)


@builtin("clamp")
def clamp(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "x low high")
    order = ("low", "x", "high")
    return elementwise(cx, "clamp", args.span, [took.term(n) for n in order], [took.span(n) for n in order])


@builtin("stop")
def stop(cx: Context, args: Args, name: str) -> Term:
    term = Taken(cx, args, name, "x").term("x")
    return rebuild(type_of(term), [cx.emit("stop", args.span, leaf) for leaf in leaves(term)])


def converted(cx: Context, dtype: DType, args: Args) -> Walk[Term]:
    """`f64(x)`: to another element type; floats to integers toward zero."""
    took = Taken(cx, args, dtype.name, "x")
    x = took.array("x")
    if x.static is not None and not x.tensor.shape:
        return converted_static(cx, dtype, x, args.span)
    if pruned(x.tensor.dtype) is dtype:
        return x
    name = "convert" if all(d.differentiable for d in getattr(dtype, "candidates", (dtype,))) else "truncate"
    return Array(cx.emit(name, args.span, x.value, dtype=dtype), below=x.below)
    yield


def converted_static(cx: Context, dtype: DType, x: Array, span: Span) -> Array:
    """A number known already, of the type asked for."""
    value: Any = x.static
    if isinstance(value, float) and dtype.is_integer:
        value = int(value)
    if dtype is BOOL and not isinstance(value, Poly):
        value = bool(value)
    if isinstance(value, bool) and dtype is not BOOL:
        value = int(value)
    const = cx.emit("const", span, value=value, type=Tensor(dtype))
    return Array(const, value if dtype.is_integer or dtype is BOOL else None)


# ---- Making arrays


def shape_of(cx: Context, items: Sequence[tuple[Term, Span]]) -> tuple[Dim, ...]:
    """Sizes given one by one, `zeros(n, m)`, or as one list or tuple, `zeros([n, m])`."""
    if len(items) == 1:
        term, span = items[0]
        if isinstance(term, Tuple):
            items = [(t, span) for t in term.items]
        elif isinstance(term, Array) and term.tensor.rank == 1:
            if term.elements is None:
                raise cx.error("DL0305", "a shape must be known before the program runs", span, "write its sizes: `[n, m]`")
            return tuple(sized(cx, e, span) for e in term.elements)
    return tuple(sized(cx, cx.static(t, s, "a size"), s) for t, s in items)


def sized(cx: Context, size: Static, span: Span) -> Dim:
    if isinstance(size, bool) or not isinstance(size, (int, Poly)):
        raise cx.error("DL0305", "a size is an integer", span)
    if isinstance(size, int) and size < -1:
        raise cx.error("DL0303", "a size is not negative", span, f"this is {size}")
    return size


def filled(cx: Context, shape: tuple[Dim, ...], value: float, dtype: DType, span: Span) -> Array:
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise cx.error("DL0303", "a size is not negative", span, f"the shape is {list(shape)}")
    return Array(cx.emit("const", span, value=value, type=Tensor(dtype, shape)))


@builtin("zeros", "ones")
def zeros(cx: Context, args: Args, name: str) -> Term:
    if args.named:
        raise cx.error("DL0319", f"`{name}` is called as `{name}(n, m, …)`", args.span)
    dtype = literal_dtype(0)
    dtype.default = cx.module.default_float
    return filled(cx, shape_of(cx, args.items), 0 if name == "zeros" else 1, dtype, args.span)


@builtin("fill")
def fill(cx: Context, args: Args, name: str) -> Term:
    if len(args.items) < 1:
        raise cx.error("DL0319", "`fill` is called as `fill(n, m, value)`", args.span)
    value = array(cx, *args.items[-1])
    shape = shape_of(cx, args.items[:-1]) if len(args.items) > 1 else ()
    from difflang.elaborate.operators import broadcast_to

    return broadcast_to(cx, value, shape, args.span)


@builtin("zeros_like", "ones_like")
def zeros_like(cx: Context, args: Args, name: str) -> Term:
    """Of an array, an array; of a record, its tangent."""
    term = Taken(cx, args, name, "x").term("x")
    value = 0 if name == "zeros_like" else 1
    if isinstance(term, Array):
        return Array(cx.emit("const", args.span, value=value, type=term.tensor))
    return filled_tangent(cx, term, value, args.span)


@builtin("zero")
def zero(cx: Context, args: Args, name: str) -> Term:
    """The zero of a vector space: a change of `x` that changes nothing."""
    return filled_tangent(cx, Taken(cx, args, name, "x").term("x"), 0, args.span)


def filled_tangent(cx: Context, term: Term, value: float, span: Span) -> Term:
    type = tangent_type(type_of(term))
    if type == UNIT and not isinstance(term, Tuple):
        raise cx.error("DL0401", f"{show_type(type_of(term))} has no tangent", span)
    from difflang.check.types import leaf_types

    return rebuild(type, [cx.emit("const", span, value=value, type=t) for t in leaf_types(type)])


@builtin("eye")
def eye(cx: Context, args: Args, name: str) -> Term:
    n = Taken(cx, args, name, "n").static("n", 0)
    grid = Tensor(I32, (n, n))
    rows, columns = (cx.emit("iota", args.span, type=grid, axis=a) for a in (0, 1))
    same = cx.emit("eq", args.span, rows, columns)
    dtype = literal_dtype(0)
    dtype.default = cx.module.default_float
    one, nothing = (cx.emit("const", args.span, value=v, type=Tensor(dtype, (n, n))) for v in (1, 0))
    return Array(cx.emit("select", args.span, same, one, nothing))


@builtin("iota")
def iota(cx: Context, args: Args, name: str) -> Term:
    n = Taken(cx, args, name, "n").static("n", 0)
    return Array(cx.emit("iota", args.span, type=Tensor(I32, (n,)), axis=0), below=n)


@builtin("linspace")
def linspace(cx: Context, args: Args, name: str) -> Term:
    """`n` numbers evenly from `a` to `b`, both included."""
    took = Taken(cx, args, name, "a b n")
    a, b, n = took.array("a"), took.array("b"), took.static("n", 0)
    width = elementwise(cx, "sub", args.span, (b, a))
    dtype = literal_dtype(0.0, cx.module.default_float)
    steps = Array(cx.emit("iota", args.span, type=Tensor(I32, (n,)), axis=0))
    steps = Array(cx.emit("convert", args.span, steps.value, dtype=dtype))
    last = n - 1 if not isinstance(n, int) or n > 1 else 1
    count = Array(cx.emit("const", args.span, value=last, type=Tensor(dtype)))
    part = elementwise(cx, "div", args.span, (steps, count))
    return elementwise(cx, "add", args.span, (a, elementwise(cx, "mul", args.span, (width, part))))


# ---- Shapes


@builtin("reshape")
def reshape(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "x shape")
    x = took.array("x")
    shape = shape_of(cx, [took.found["shape"]])
    total = product(x.tensor.shape)
    if shape.count(-1) == 1:
        rest = product(tuple(d for d in shape if d != -1))
        shape = tuple(floor_div(total, rest) if d == -1 and rest != 0 else d for d in shape)
    if any(isinstance(d, Spread) for d in x.tensor.shape):
        raise Undecided
    if not cx.unifier.equal(product(shape), total):
        raise cx.error("DL0336", "the new shape holds another number of elements", took.span("shape"),
                       f"{product(shape)} here, {total} in {show_type(x.tensor)}")  # fmt: skip
    return Array(cx.emit("reshape", args.span, x.value, shape=shape))


def product(shape: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for size in shape:
        if isinstance(size, Spread):
            raise Undecided
        total = total * size
    return total


@builtin("transpose")
def transpose(cx: Context, args: Args, name: str) -> Term:
    """All axes reversed, or in the order given."""
    took = Taken(cx, args, name, "x axes?")
    if not isinstance(took.term("x"), Array):
        raise cx.not_yet("the transposition of a linear function is", args.span)
    x = took.array("x")
    perm = tuple(reversed(range(x.tensor.rank)))
    if took.has("axes"):
        term, span = took.found["axes"]
        items = term.items if isinstance(term, Tuple) else (term,)
        perm = tuple(n for n in (cx.static(t, span, "an axis") for t in items) if isinstance(n, int))
        if sorted(perm) != list(range(x.tensor.rank)):
            raise cx.error("DL0335", "every axis is named once", span, f"the array has {x.tensor.rank}")
    return Array(cx.emit("transpose", args.span, x.value, perm=perm))


@builtin("concat")
def concat(cx: Context, args: Args, name: str) -> Term:
    axis_given = "axis" in args.named
    parts = [array(cx, t, s) for t, s in args.items]
    if not parts or set(args.named) - {"axis"} or not parts[0].tensor.shape:
        raise cx.error("DL0319", "`concat` is called as `concat(x, y, axis = 0)` with arrays", args.span)
    axis = one_axis(cx, args, parts[0].tensor.rank) if axis_given else 0
    spans = tuple(s for _, s in args.items)
    return cx.op("concat", args.span, *parts, spans=spans, axis=axis)


def one_axis(cx: Context, args: Args, rank: int) -> int:
    term, span = args.named["axis"]
    axis = cx.static(term, span, "`axis`")
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise cx.error("DL0335", f"there is no such axis: the array has {rank}", span)
    return axis % rank


@builtin("stack")
def stack(cx: Context, args: Args, name: str) -> Term:
    from difflang.elaborate.expressions import stack as stacked

    parts = [array(cx, t, s) for t, s in args.items]
    if not parts or set(args.named) - {"axis"}:
        raise cx.error("DL0319", "`stack` is called as `stack(x, y, axis = 0)`", args.span)
    axis = one_axis(cx, args, parts[0].tensor.rank + 1) if "axis" in args.named else 0
    return stacked(cx, args.span, parts, tuple(s for _, s in args.items), axis)


@builtin("reverse")
def reverse(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "x axis?")
    x = took.array("x")
    axes = took.axes(x.tensor.rank) or (0,)
    if not x.tensor.shape:
        raise cx.error("DL0313", "`reverse` takes an array", args.span, f"this is {show_type(x.tensor)}")
    return Array(cx.emit("reverse", args.span, x.value, axes=axes))


@builtin("pad")
def pad(cx: Context, args: Args, name: str) -> Term:
    """`pad(x, low, high, value = 0)`: as many more places at each end of every axis."""
    took = Taken(cx, args, name, "x low high value?")
    x = took.array("x")
    rank = x.tensor.rank
    sides: list[tuple[Dim, ...]] = []
    for side in ("low", "high"):
        given = shape_of(cx, [took.found[side]])
        sides.append(given * rank if len(given) == 1 else given)
    if any(len(s) != rank for s in sides):
        raise cx.error("DL0335", f"one number an axis, or one for all: the array has {rank}", args.span)
    value = took.array("value") if took.has("value") else Array(cx.emit("const", args.span, value=0, type=Tensor(x.tensor.dtype)))
    low, high = sides
    return cx.op("pad", args.span, x, value, low=low, high=high, interior=(0,) * rank)


@builtin("outer")
def outer(cx: Context, args: Args, name: str) -> Term:
    took = Taken(cx, args, name, "x y")
    x, y = took.array("x"), took.array("y")
    return cx.op("dot_general", args.span, x, y, contract=((), ()), batch=((), ()))


@builtin("dot")
def dot(cx: Context, args: Args, name: str) -> Term:
    """The inner product of two vectors of one space: arrays, tuples or tangents of records."""
    took = Taken(cx, args, name, "x y")
    products = elementwise(cx, "mul", args.span, (took.term("x"), took.term("y")), (took.span("x"), took.span("y")))
    return total(cx, products, args.span)


def total(cx: Context, term: Term, span: Span) -> Array:
    """The sum of every element of every leaf."""
    match term:
        case Array():
            axes = tuple(range(term.tensor.rank))
            return Array(cx.emit("reduce_sum", span, term.value, axes=axes)) if axes else term
        case Tuple() | Record():
            parts = [total(cx, t, span) for t in (term.items if isinstance(term, Tuple) else term.fields) if t is not UNIT_TERM]
            if not parts:
                raise cx.error("DL0401", "there is no number in this to add up", span)
            result: Term = parts[0]
            for part in parts[1:]:
                result = elementwise(cx, "add", span, (result, part))
            assert isinstance(result, Array)
            return result
        case _:
            raise cx.error("DL0313", "a vector is expected here", span, f"this is {show_type(type_of(term))}")


@builtin("zip")
def zip_(cx: Context, args: Args, name: str) -> Term:
    return Zip(tuple(t for t, _ in args.items))


@builtin("enumerate")
def enumerate_(cx: Context, args: Args, name: str) -> Term:
    return Zip((Taken(cx, args, name, "xs").term("xs"),), counted=True)


def map_(cx: Context, args: Args) -> Walk[Term]:
    """`map(f, xs)`: f on each item."""
    from difflang.elaborate.calls import Args as Arguments
    from difflang.elaborate.comprehension import vmapped

    took = Taken(cx, args, "map", "f xs")
    return (yield vmapped(cx, took.term("f"), Arguments(args.span, [took.found["xs"]])))


BUILTINS["map"] = map_


# ---- What is to come


LATER = (
    "sort argsort cumsum cumprod roll split repeat tile diag tril triu gather solve inv det slogdet cholesky qr svd eigh expm "
    "trace reduce scan print assert_close gamma zeta"
).split()


def _later(cx: Context, args: Args, name: str) -> Term:
    raise cx.not_yet(f"`{name}` inside a function is" if name == "print" else f"`{name}` is", args.span)


for _name in LATER:
    BUILTINS[_name] = immediate(_later, _name)

from difflang.elaborate import networks, randomness, reductions  # noqa: E402 - they register their functions here

__all__ = ["BUILTINS", "TRANSFORMS", "Taken", "builtin", "converted", "networks", "randomness", "reductions"]
