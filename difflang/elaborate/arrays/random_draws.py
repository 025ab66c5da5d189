"""Random draws and keys: `normal`, `uniform`, `permutation`, `key`, `fold_in`, `with_key`.

Each draw folds the ordinal of its call, and the index of every enclosing loop, into the function's key.
"""

from __future__ import annotations

from difflang.base.source import Span
from difflang.elaborate.arrays.creation_and_shape import constant_tangent, shape_argument
from difflang.elaborate.calls.builtin_registry import BuiltinArgs, builtin
from difflang.elaborate.calls.call_args import CallArgs
from difflang.elaborate.context import AlreadyReported, ElabContext, elaborate, elaborates
from difflang.elaborate.expressions.broadcasting import as_array
from difflang.elaborate.terms import Array, KeyTerm, PoisonTerm, RecordTerm, SumTerm, Term, Tuple, VariantTerm, type_of
from difflang.elaborate.trampoline import Walk
from difflang.ir.graph import Value
from difflang.ir.op import TypeMismatch
from difflang.ir.tensor_types import FLOATS, INTEGERS, U32, Tensor
from difflang.syntax import tree
from difflang.types.dtype_variables import literal_dtype
from difflang.types.language_types import KEY_DATA, show_type


@builtin("normal", "uniform", takes="..sizes")
def draw(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`normal(n, m)`: standard normal numbers; `uniform(n, m)`: in [0, 1)."""
    if args.named:
        way = f"set the seed with `--seed`, or use a key: `with_key(key(7)) {{ {name}(n) }}`"
        raise cx.error("DL0319", f"usage of `{name}`: `{name}(n, m, …)`", args.span, "", way)
    shape = shape_argument(cx, args.items)
    dtype = literal_dtype(0.0, cx.module.default_float)
    dtype.candidates = tuple(c for c in dtype.candidates if c.is_float)
    return Array(cx.emit(name, args.span, cx.draw_key(args.span), shape=shape, dtype=dtype))


@builtin("normal_like", "uniform_like", takes="x")
def draw_like(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`normal_like(x)`, `uniform_like(x)`: a draw for each number of an array, of its element type.

    For a record, a tuple or an enum the result is a tangent, D(…), as for `zeros_like(x)`.
    """
    x, span = BuiltinArgs(cx, args, name).by_name["x"]

    def draw_leaf(given: Tensor) -> Value:
        return emit_draw(cx, name, given, span, args.span)

    if isinstance(x, (RecordTerm, Tuple, VariantTerm, SumTerm)):
        return constant_tangent(cx, x, draw_leaf, args.span)
    return Array(draw_leaf(as_array(cx, x, span).tensor))


def emit_draw(cx: ElabContext, name: str, given: Tensor, at: Span, span: Span) -> Value:
    """A draw for each number of an array. Errors: DL0313 where the numbers are not floats."""
    try:
        cx.unifier.accepts(given, FLOATS)
    except TypeMismatch:
        way = f"draw floats, and give the size: `{name.removesuffix('_like')}(n)`"
        raise cx.error("DL0313", f"`{name}` draws floats", at, f"this is {show_type(given)}", way) from None
    return cx.emit(name.removesuffix("_like"), span, cx.draw_key(span), shape=given.shape, dtype=given.dtype)


@builtin("permutation", takes="n")
def permutation(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """The numbers 0 … n − 1 in random order."""
    n = BuiltinArgs(cx, args, name).static("n", 0)
    return Array(cx.emit("permutation", args.span, cx.draw_key(args.span), n=n), upper_bound=n)


@builtin("key", takes="seed")
def key_from_seed(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`key(seed)`: the same key that `--seed` starts a session with."""
    taken = BuiltinArgs(cx, args, name)
    seed = integer_argument(cx, *taken.by_name["seed"])
    if isinstance(seed.static, int) and not isinstance(seed.static, bool):
        # A constant seed keeps its low 64 bits; of a run-time one the low 32 count.
        words = (seed.static >> 32 & 0xFFFFFFFF, seed.static & 0xFFFFFFFF)
        return KeyTerm(cx.emit("dense", args.span, data=words, type=KEY_DATA))
    low = cx.emit("reshape", args.span, low_bits(cx, seed, args.span), shape=(1,))
    high = cx.emit("const", args.span, value=0, type=Tensor(U32, (1,)))
    return KeyTerm(cx.emit("concat", args.span, high, low, axis=0))


@builtin("fold_in", takes="key n")
def fold_in(cx: ElabContext, args: CallArgs, name: str) -> Term:
    """`fold_in(k, n)`: a new key from a key and a number."""
    taken = BuiltinArgs(cx, args, name)
    base, span = taken.by_name["key"]
    if not isinstance(base, KeyTerm):
        raise cx.error("DL0313", "expected a random key", span, f"this is {show_type(type_of(base))}")
    number = integer_argument(cx, *taken.by_name["n"])
    return KeyTerm(cx.emit("fold_in", args.span, base.value, low_bits(cx, number, args.span)))


def integer_argument(cx: ElabContext, term: Term, span: Span) -> Array:
    """A whole number. Errors: DL0313 for anything else."""
    number = as_array(cx, term, span)
    try:
        cx.unifier.accepts(number.tensor, INTEGERS)
    except TypeMismatch:
        pass
    else:
        if not number.tensor.shape:
            return number
    raise cx.error("DL0313", "a seed must be an integer", span, f"this is {show_type(number.tensor)}")


def low_bits(cx: ElabContext, number: Array, span: Span) -> Value:
    """The lowest 32 bits of a number."""
    return cx.emit("truncate", span, number.value, dtype=U32)


@elaborates(tree.WithKey)
def with_key_block(cx: ElabContext, e: tree.WithKey) -> Walk[Term]:
    """A block whose draws use the program's own key."""
    key = yield elaborate(cx, e.key)
    if isinstance(key, PoisonTerm):
        raise AlreadyReported
    if not isinstance(key, KeyTerm):
        way = "create a key with `key(seed)`, or derive one with `fold_in(k, n)`"
        raise cx.error("DL0313", "expected a random key", e.key.span, f"this is {show_type(type_of(key))}", way)
    effects = set(cx.root.effects)
    with cx.with_random_key(key.value):
        value = yield elaborate(cx, e.body)
    # Draws from an explicit key are pure: the enclosing function takes no key for them.
    if "rand" not in effects:
        cx.root.effects.discard("rand")
    return value
