"""Random draws. Each folds the ordinal of its call, and the index of every loop around, into the function's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from difflang.check.types import literal_dtype
from difflang.elaborate.arrays import shape_of
from difflang.elaborate.builtins import Taken, builtin
from difflang.elaborate.context import Context
from difflang.elaborate.terms import Array, Term

if TYPE_CHECKING:
    from difflang.elaborate.arguments import Args


@builtin("normal", "uniform")
def draw(cx: Context, args: Args, name: str) -> Term:
    """`normal(n, m)`: standard normal numbers; `uniform(n, m)`: in [0, 1)."""
    if args.named:
        raise cx.error("DL0319", f"`{name}` is called as `{name}(n, m, …)`", args.span)
    shape = shape_of(cx, args.items)
    dtype = literal_dtype(0.0, cx.module.default_float)
    dtype.candidates = tuple(c for c in dtype.candidates if c.is_float)
    return Array(cx.emit(name, args.span, cx.draw(args.span), shape=shape, dtype=dtype))


@builtin("permutation")
def permutation(cx: Context, args: Args, name: str) -> Term:
    """The numbers 0 … n − 1 in random order."""
    n = Taken(cx, args, name, "n").static("n", 0)
    return Array(cx.emit("permutation", args.span, cx.draw(args.span), n=n), below=n)
