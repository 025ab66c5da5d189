"""Built-ins that create arrays (`zeros`, `fill`, `linspace`), change their shape, or take inner products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from difflang.base.source import Span
from difflang.base.wording import count_of
from difflang.elaborate.arrays.complex_numbers import as_real_pairs
from difflang.elaborate.arrays.item_functions import over_items
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin, register_builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import ElabContext
from difflang.elaborate.derivatives.linear_functions import transpose_function
from difflang.elaborate.derivatives.tangents import tangent_term
from difflang.elaborate.expressions.broadcasting import as_array, broadcast_to, require_rank
from difflang.elaborate.expressions.elementwise import elementwise
from difflang.elaborate.expressions.primary_expressions import stack_arrays
from difflang.elaborate.patterns.structured_arrays import is_sum_array, map_sum_items
from difflang.elaborate.statements.branches import MatchArm, switch_on_tag
from difflang.elaborate.terms import (
    Array,
    Closure,
    HistoryTerm,
    OpaqueTerm,
    RecordTerm,
    SumTerm,
    Term,
    Tuple,
    VariantTerm,
    child_terms,
    leaves,
    type_of,
)
from difflang.elaborate.trampoline import Walk, run_walk
from difflang.ir.graph import Value
from difflang.ir.symbolic_dims import Dim, Poly, floor_div
from difflang.ir.tensor_types import I32, DType, Tensor
from difflang.types.dtype_variables import literal_dtype, prune_dtype
from difflang.types.join_types import contains_kind
from difflang.types.language_types import UNIT, AxisSpread, SumType, VariantType, leaf_types, show_type, tangent_type
from difflang.types.module_scope import StaticNumber
from difflang.types.type_errors import DeferCheck


def shape_argument(cx: ElabContext, items: Sequence[tuple[Term, Span]], least: int = 0) -> tuple[Dim, ...]:
    """Sizes passed one by one, `zeros(n, m)`, or as one list or tuple, `zeros([n, m])`. Errors: DL0303, DL0305."""
    if len(items) == 1:
        term, span = items[0]
        if isinstance(term, Tuple):
            items = [(t, span) for t in term.items]
        elif isinstance(term, Array) and term.tensor.rank == 1:
            if term.elements is None:
                raise cx.error(
                    "DL0305", "a shape must be known before the program runs", span, "write its sizes: `[n, m]`"
                )
            return tuple(check_size(cx, e, span, least) for e in term.elements)
    return tuple(check_size(cx, cx.static(t, s, "a size"), s, least) for t, s in items)


def check_size(cx: ElabContext, size: StaticNumber, span: Span, least: int) -> Dim:
    if isinstance(size, bool) or not isinstance(size, (int, Poly)):
        raise cx.error("DL0305", "a size is an integer", span)
    if isinstance(size, int) and size < least:
        raise cx.error("DL0303", "a size cannot be negative", span, f"this is {size}")
    return size


@builtin("zeros", "ones", takes="..sizes")
def zeros(cx: ElabContext, args: CallArgs, name: str) -> Term:
    if args.named:
        raise cx.error("DL0319", f"usage of `{name}`: `{name}(n, m, …)`", args.span)
    dtype = literal_dtype(0, cx.module.default_float)
    dtype.default = cx.module.default_float
    type = Tensor(dtype, shape_argument(cx, args.items))
    return Array(cx.emit("const", args.span, value=0 if name == "zeros" else 1, type=type))


@builtin("fill", takes="..sizes value")
def fill(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """An array of the given shape filled with one number, or with copies of an array along new leading axes."""
    if len(args.items) < 1 or args.named:
        raise cx.error("DL0319", "usage of `fill`: `fill(n, m, value)`", args.span)
    value, at = as_array(cx, *args.items[-1]), args.items[-1][1]
    shape = shape_argument(cx, args.items[:-1]) if len(args.items) > 1 else ()
    # `..s` stands for any number of axes: only a specialization can tell.
    require_rank(value)
    missing = len(shape) - value.tensor.rank
    if missing < 0 or not all(map(cx.unifier.equal, value.tensor.shape, shape[missing:])):
        sizes = ", ".join(map(str, shape))
        message = f"`fill` takes all sizes of the result, but [{sizes}] does not end with the sizes of its value"
        way = "write `fill(k, n, x)` for k copies of an array `x` of size n, and `x` itself for one"
        raise cx.error("DL0310", message, at, f"this is {show_type(value.tensor)}", way)
    return broadcast_to(cx, value, shape, args.span)


@builtin("zeros_like", "ones_like", takes="x")
def zeros_like(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """An array for an array; a tangent of the record for a record."""
    term = BuiltinArgs(cx, args, name).term("x")
    value = 0 if name == "zeros_like" else 1
    if isinstance(term, Array):
        return Array(cx.emit("const", args.span, value=value, type=term.tensor))
    return constant_tangent(cx, term, constant_maker(cx, value, args.span), args.span)


@builtin("zero", takes="x")
def zero(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The zero tangent of `x`."""
    return constant_tangent(cx, BuiltinArgs(cx, args, name).term("x"), constant_maker(cx, 0, args.span), args.span)


def constant_maker(cx: ElabContext, value: float, span: Span) -> Callable[[Tensor], Value]:
    return lambda type: cx.emit("const", span, value=value, type=type)


@builtin("as_tangent", takes="x")
def as_tangent(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The numbers of a value as a tangent of it."""
    term = BuiltinArgs(cx, args, name).term("x")
    require_tangent(cx, term, args.span)
    pairs = zip(leaves(term), leaf_types(type_of(term)), strict=True)
    return tangent_term(term, iter([value for value, t in pairs if prune_dtype(t.dtype).differentiable]))


def require_tangent(cx: ElabContext, term: Term, span: Span) -> None:
    """Errors: DL0401 for a value without a tangent."""
    type = tangent_type(type_of(term))
    if type == UNIT and not isinstance(term, Tuple):
        raise cx.error("DL0401", f"{show_type(type_of(term))} has no tangent", span)


def constant_tangent(cx: ElabContext, term: Term, make_leaf: Callable[[Tensor], Value], span: Span) -> Term:
    """A tangent of a value, each array of it built by `make_leaf`. Errors: DL0401 for a value without a tangent."""
    require_tangent(cx, term, span)
    types = [t for t in leaf_types(type_of(term)) if prune_dtype(t.dtype).differentiable]
    return tangent_term(term, iter([make_leaf(t) for t in types]))


@builtin("eye", takes="n")
def eye(cx: ElabContext, args: CallArgs, name: str) -> Term:
    n = BuiltinArgs(cx, args, name).static("n", 0)
    dtype = literal_dtype(0, cx.module.default_float)
    dtype.default = cx.module.default_float
    return Array(identity_matrix(cx, n, dtype, args.span))


def identity_matrix(cx: ElabContext, n: Dim, dtype: DType, span: Span) -> Value:
    """Ones on the diagonal."""
    # Counters instead of constant data: the size may be a name.
    rows, columns = (cx.emit("iota", span, type=Tensor(I32, (n, n)), axis=a) for a in (0, 1))
    one, nothing = (cx.emit("const", span, value=v, type=Tensor(dtype, (n, n))) for v in (1, 0))
    return cx.emit("select", span, cx.emit("eq", span, rows, columns), one, nothing)


@builtin("iota", takes="n")
def iota(cx: ElabContext, args: CallArgs, name: str) -> Term:
    n = BuiltinArgs(cx, args, name).static("n", 0)
    return Array(cx.emit("iota", args.span, type=Tensor(I32, (n,)), axis=0), upper_bound=n)


@builtin("linspace", takes="a b n")
def linspace(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`n` evenly spaced numbers from `a` to `b`, both included."""
    took = BuiltinArgs(cx, args, name)
    a, b, n = took.array("a"), took.array("b"), took.static("n", 0)
    width = elementwise(cx, "sub", args.span, (b, a))
    dtype = literal_dtype(0.0, cx.module.default_float)
    steps = Array(cx.emit("iota", args.span, type=Tensor(I32, (n,)), axis=0))
    steps = Array(cx.emit("convert", args.span, steps.value, dtype=dtype))
    # One point is `a` itself: dividing by 1 rather than 0 keeps it from being NaN.
    last = n - 1 if not isinstance(n, int) or n > 1 else 1
    count = Array(cx.emit("const", args.span, value=last, type=Tensor(dtype)))
    part = elementwise(cx, "div", args.span, (steps, count))
    return elementwise(cx, "add", args.span, (a, elementwise(cx, "mul", args.span, (width, part))))


# ---- Shapes


@builtin("reshape", takes="x shape")
def reshape(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    shape = shape_argument(cx, [took.by_name["shape"]], least=-1)
    total = shape_product(x.tensor.shape)
    # As in NumPy, one size of -1 is inferred from the others.
    if shape.count(-1) == 1:
        rest = shape_product(tuple(d for d in shape if d != -1))
        shape = tuple(floor_div(total, rest) if d == -1 and rest != 0 else d for d in shape)
    require_rank(x)
    if not cx.unifier.equal(shape_product(shape), total):
        raise cx.error(
            "DL0336",
            "the new shape has a different number of elements",
            took.span("shape"),
            f"{shape_product(shape)} here, but {total} in {show_type(x.tensor)}",
        )
    return Array(cx.emit("reshape", args.span, x.value, shape=shape))


def shape_product(shape: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for size in shape:
        if isinstance(size, AxisSpread):
            raise DeferCheck
        total = total * size
    return total


def transpose(cx: ElabContext, args: CallArgs) -> Walk[Term]:
    """The axes of an array reversed, or in the given order; for a linear function, its transpose."""
    took = BuiltinArgs(cx, args, "transpose")
    if isinstance(took.term("x"), (Closure, OpaqueTerm)) and not took.is_present("axes"):
        return (yield transpose_function(cx, took.term("x"), took.span("x")))
    return permute_axes(cx, took)


register_builtin("transpose", transpose, "l | x axes?")


def permute_axes(cx: ElabContext, took: BuiltinArgs) -> Term:
    x, span = took.array("x"), took.args.span
    perm = tuple(reversed(range(x.tensor.rank)))
    if took.is_present("axes"):
        term, at = took.by_name["axes"]
        items = term.items if isinstance(term, Tuple) else (term,)
        perm = tuple(n for n in (cx.static(t, at, "an axis") for t in items) if isinstance(n, int))
        if sorted(perm) != list(range(x.tensor.rank)):
            raise cx.error(
                "DL0335", "name each axis once", at, f"the array has {count_of(x.tensor.rank, 'axis', 'axes')}"
            )
    return Array(cx.emit("transpose", span, x.value, perm=perm))


@builtin("concat", takes="..arrays axis?")
@over_items()
def concat(cx: ElabContext, args: CallArgs, name: str) -> Term:
    axis_given = "axis" in args.named
    parts = [as_array(cx, t, s) for t, s in args.items]
    if not parts or set(args.named) - {"axis"} or not parts[0].tensor.shape:
        raise cx.error("DL0319", "usage of `concat`: `concat(x, y, axis = 0)` with arrays", args.span)
    axis = axis_argument(cx, args, parts[0].tensor.rank) if axis_given else 0
    spans = tuple(s for _, s in args.items)
    return cx.emit_op("concat", args.span, *parts, spans=spans, axis=axis)


def axis_argument(cx: ElabContext, args: CallArgs, rank: int) -> int:
    term, span = args.named["axis"]
    axis = cx.static(term, span, "`axis`")
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise cx.error("DL0335", f"this axis does not exist: the array has {count_of(rank, 'axis', 'axes')}", span)
    return axis % rank


@builtin("stack", takes="..arrays axis?")
@over_items(new_axis=True)
def stack(cx: ElabContext, args: CallArgs, name: str) -> Term:
    parts = [as_array(cx, t, s) for t, s in args.items]
    if not parts or set(args.named) - {"axis"}:
        raise cx.error("DL0319", "usage of `stack`: `stack(x, y, axis = 0)`", args.span)
    axis = axis_argument(cx, args, parts[0].tensor.rank + 1) if "axis" in args.named else 0
    return stack_arrays(cx, args.span, parts, tuple(s for _, s in args.items), axis)


@builtin("reverse", takes="x axis?")
@over_items()
def reverse(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    past = took.term("x")
    if isinstance(past, HistoryTerm):
        # A history is not stored in order: loops over it read it backwards instead.
        return replace(past, backwards=not past.backwards)
    x = took.array("x")
    axes = took.axes(x.tensor.rank) or (0,)
    if not x.tensor.shape:
        raise cx.error("DL0313", "`reverse` takes an array", args.span, f"this is {show_type(x.tensor)}")
    return Array(cx.emit("reverse", args.span, x.value, axes=axes))


@builtin("pad", takes="x low high value?")
def pad(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`pad(x, low, high, value = 0)`: that many extra elements at each end of every axis."""
    took = BuiltinArgs(cx, args, name)
    x = took.array("x")
    rank = x.tensor.rank
    sides: list[tuple[Dim, ...]] = []
    for side in ("low", "high"):
        given = shape_argument(cx, [took.by_name[side]])
        sides.append(given * rank if len(given) == 1 else given)
    if any(len(s) != rank for s in sides):
        raise cx.error(
            "DL0335",
            f"write one number per axis, or one for all axes: the array has {count_of(rank, 'axis', 'axes')}",
            args.span,
        )
    value = (
        took.array("value")
        if took.is_present("value")
        else Array(cx.emit("const", args.span, value=0, type=Tensor(x.tensor.dtype)))
    )
    low, high = sides
    spans = (took.span("x"), took.span("value")) if took.is_present("value") else ()
    return cx.emit_op("pad", args.span, x, value, spans=spans, low=low, high=high, interior=(0,) * rank)


@builtin("outer", takes="x y")
def outer(cx: ElabContext, args: CallArgs, name: str) -> Term:
    took = BuiltinArgs(cx, args, name)
    x, y = took.array("x"), took.array("y")
    spans = (took.span("x"), took.span("y"))
    return cx.emit_op("dot_general", args.span, x, y, spans=spans, display_name=name, contract=((), ()), batch=((), ()))


@builtin("dot", takes="x y")
def dot(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The sum of the products of two arrays; for tuples and record tangents, the real inner product."""
    took = BuiltinArgs(cx, args, name)
    x, y = took.term("x"), took.term("y")
    if not isinstance(x, Array) and not isinstance(y, Array):
        # Tangent spaces are real vector spaces, so complex parts count as two real numbers.
        x, y = as_real_pairs(cx, x, args.span), as_real_pairs(cx, y, args.span)
    products = elementwise(cx, "mul", args.span, (x, y), (took.span("x"), took.span("y")))
    return sum_leaves(cx, products, args.span)


def sum_leaves(cx: ElabContext, term: Term, span: Span) -> Array:
    """The sum of all elements of all leaves; a part without numbers adds 0.

    Errors: DL0401 where no value of the type holds a number.
    """
    if isinstance(term, Array):
        axes = tuple(range(term.tensor.rank))
        return Array(cx.emit("reduce_sum", span, term.value, axes=axes)) if axes else term
    if not isinstance(term, (SumTerm, Tuple, RecordTerm, VariantTerm)):
        raise cx.error("DL0313", "expected a vector here", span, f"this is {show_type(type_of(term))}")
    if not has_numbers(term):
        if not contains_kind(type_of(term), (VariantType, SumType)):
            raise cx.error("DL0401", "this contains no number to sum", span)
        return cx.literal_array(0.0, span, literal_dtype(0.0, cx.module.default_float), 0.0)
    if is_sum_array(term):
        return sum_leaves(cx, map_sum_items(cx, [term], span, lambda items: sum_leaves(cx, items[0], span)), span)
    if isinstance(term, SumTerm):
        return sum_active_option(cx, term, span)
    first, *rest = [sum_leaves(cx, t, span) for t in child_terms(term) if has_numbers(t)]
    for part in rest:
        first = as_array(cx, elementwise(cx, "add", span, (first, part)), span)
    return first


def has_numbers(term: Term) -> bool:
    """Whether a value holds a number other than the tags of enums and functions."""
    return isinstance(term, Array) or any(map(has_numbers, child_terms(term)))


def sum_active_option(cx: ElabContext, term: SumTerm, span: Span) -> Array:
    """The sum over the option that the tag selects at run time."""

    def option_arm(part: Term) -> MatchArm:
        def body() -> Walk[Term]:
            return sum_leaves(cx, part, span) if has_numbers(part) else cx.literal_array(0.0, span, nothing, 0.0)
            yield

        return MatchArm(body, span)

    nothing = literal_dtype(0.0, cx.module.default_float)
    found = run_walk(
        switch_on_tag(
            cx, term.tag, term.type.tag_values, [option_arm(p) for p in term.parts], [cx.failure_word], "`sum`"
        )
    )
    return as_array(cx, found, span)
