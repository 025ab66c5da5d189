"""Rewrites by what is known of values: that they are not negative, chosen again, flags, alike along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from difflang.ir.builder import region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F64, I32, Tensor
from difflang.passes.rules.reshapes_and_constants import apply, filled, ints, on_ints, on_matrix, on_vector
from difflang.passes.simplify import Guarded, Rewriter, tensor

Found = Sequence[Value] | None

MOVES = ("reshape", "broadcast", "transpose", "reverse", "slice", "reduce_sum", "reduce_max", "sqrt")
DEPTH = 4  # how far back is looked


def never_negative(to: Rewriter, value: Value, depth: int = DEPTH) -> bool:
    """Whether a value is by its making no negative number, nor -0.0. It may be NaN."""
    eqn = to.made.get(value)
    if eqn is None or depth == 0 or not tensor(value).dtype.is_float:
        return False
    name = eqn.op.name
    if name in ("exp", "exp_sub", "abs", "sech2", "sigmoid"):
        return True
    if name == "const":
        number = to.number(value)
        return isinstance(number, float) and number > 0
    if name == "mul" and eqn.operands[0] is eqn.operands[1]:
        return True
    if name in ("add", "mul", "div"):
        return all([never_negative(to, v, depth - 1) for v in eqn.operands])
    if name in MOVES and 0 not in tensor(eqn.operands[0]).shape:
        return never_negative(to, eqn.operands[0], depth - 1)
    return False


def positive_by_its_making(to: Rewriter, eqn: Eqn) -> Found:
    """Where there is nothing below 0 a logarithm's slope needs no guard."""
    return eqn.operands if never_negative(to, eqn.operands[0]) else None


def constant_last(to: Rewriter, eqn: Eqn) -> Found:
    """Sums and products with a constant are spelled one way, so that equal ones are seen to be."""
    x, y = eqn.operands
    return None if to.maker(y, "const") is not None else to.emit(eqn, eqn.op.name, y, x)


def chosen_again(to: Rewriter, eqn: Eqn) -> Found:
    """`select(p, f(select(p, x, y), w), z)` reads of `f` only where `p` holds: the choice inside is `x`. So for `z`."""
    truth = eqn.operands[0]
    for side in (1, 2):
        inner = to.made.get(eqn.operands[side])
        if inner is None or not inner.op.elementwise or inner.op.chooses:
            continue
        operands = tuple([behind(to, v, truth, side) for v in inner.operands])
        if operands != inner.operands:
            sides = list(eqn.operands)
            (sides[side],) = to.emit(inner, inner.op.name, *operands, **inner.attrs)
            return to.emit(eqn, "select", *sides)
    return None


def behind(to: Rewriter, value: Value, truth: Value, side: int) -> Value:
    """A value, or that side of it if it is a choice by the same truth."""
    choice = to.maker(value, "select")
    return choice.operands[side] if choice is not None and choice.operands[0] is truth else value


def flag(to: Rewriter, eqn: Eqn) -> Found:
    """The greatest of numbers that are a positive one where a truth holds and 0 elsewhere."""
    chosen = to.maker(eqn.operands[0], "select")
    if chosen is None or 0 in tensor(eqn.operands[0]).shape:
        return None
    truth, there, elsewhere = chosen.operands
    number = to.number(there)
    if not isinstance(number, int) or number <= 0 or to.number(elsewhere) != 0:
        return None
    type = eqn.results[0].type
    some = to.emit(eqn, "reduce_any", truth, axes=ints(eqn.attrs["axes"]))[0]
    return to.emit(eqn, "select", some, to.const(eqn, number, type), to.const(eqn, 0, type))


def spread_late(to: Rewriter, eqn: Eqn) -> Found:
    """What is computed of arrays that repeat along an axis is computed once, and repeated along it afterwards."""
    if not spreads_alone(to, eqn.operands):
        return None
    shape = tensor(eqn.results[0]).shape
    spreads = [to.maker(v, "broadcast") for v in eqn.operands]
    axes = tuple(sorted({a for s in spreads if s is not None for a in ints(s.attrs["axes"])}))
    if all(size == 1 or a in axes for a, size in enumerate(shape)):
        return None
    inner, operands = tuple([shape[a] for a in axes]), list[Value]()
    for operand, made in zip(eqn.operands, spreads, strict=True):
        if made is None:
            number = to.number(operand)
            assert number is not None
            operands.append(to.const(eqn, number, Tensor(tensor(operand).dtype, inner)))
        else:
            places = tuple([axes.index(a) for a in ints(made.attrs["axes"])])
            operands += to.emit(made, "broadcast", made.operands[0], shape=inner, axes=places)
    (once,) = to.emit(eqn, eqn.op.name, *operands, **eqn.attrs)
    return to.emit(eqn, "broadcast", once, shape=shape, axes=axes)


def spreads_alone(to: Rewriter, operands: Sequence[Value]) -> bool:
    """Whether all operands repeat along axes or are known numbers, and one of them repeats."""
    found = False
    for operand in operands:
        made = to.made.get(operand)
        if made is None:
            return False
        if made.op.name == "broadcast":
            found = True
        elif to.number(operand) is None:
            return False
    return found


def in_place(to: Rewriter, eqn: Eqn) -> Found:
    """Positions counted along an axis lie within bounds that no count along it reaches beyond."""
    low, counted, high = eqn.operands
    iota, least, most = to.maker(counted, "iota"), to.number(low), to.number(high)
    if iota is None or least is None or most is None or isinstance(least, complex) or isinstance(most, complex):
        return None
    size = tensor(counted).shape[iota.attrs["axis"]]
    return [counted] if isinstance(size, int) and least <= 0 and most >= size - 1 else None


def reduced_once(to: Rewriter, eqn: Eqn) -> Found:
    """What is chosen of numbers that repeat along an axis is chosen of them once, if they have no derivative."""
    made, summed = to.maker(eqn.operands[0], "broadcast"), ints(eqn.attrs["axes"])
    x = tensor(eqn.operands[0])
    if made is None or x.dtype.differentiable or any(x.shape[a] == 0 for a in summed):
        return None
    axes = ints(made.attrs["axes"])
    if all(a in axes for a in summed):
        return None
    inner = tuple([i for i, a in enumerate(axes) if a in summed])
    (once,) = to.emit(eqn, eqn.op.name, made.operands[0], axes=inner) if inner else (made.operands[0],)
    left = [a for a in range(x.rank) if a not in summed]
    places = tuple([left.index(a) for a in axes if a not in summed])
    return to.emit(eqn, "broadcast", once, shape=tensor(eqn.results[0]).shape, axes=places)


def squares(x: Value) -> Value:
    return apply("reduce_sum", x * x + filled(x, 1.0), axes=(1,))


def flags(p: Value) -> Value:
    type = Tensor(I32, (2, 3))
    return apply("reduce_max", apply("select", p, filled(p, 7, type), filled(p, 0, type)), axes=(0,))


def choice(x: Value, name: str, *others: Value, side: int = 2) -> Value:
    truth, zero = apply("le", x, filled(x, 0.0)), filled(x, 0.0)
    pair = (lambda y: (zero, y)) if side == 2 else (lambda y: (y, zero))
    return apply("select", truth, *pair(apply(name, apply("select", truth, *pair(x)), *others)))


def spread_over(x: Value, *axes: int) -> Value:
    return apply("broadcast", x, shape=(3, 3, 3), axes=axes)


def counted(low: int, high: int, axis: int) -> Graph:
    type = Tensor(I32, (2, 3))

    def body(x: Value) -> list[Value]:
        iota = x.home.one("iota", type=type, axis=axis)
        return [apply("clamp", filled(iota, low), iota, filled(iota, high))]

    return region([type], body)


ELEMENTWISE = tuple([name for name, op in OPS.items() if op.elementwise])

FACTS = (
    Guarded(
        ("positive",),
        positive_by_its_making,
        (
            on_matrix(lambda x: apply("positive", squares(x))),
            on_vector(lambda x: apply("positive", apply("exp", x))),
            on_vector(lambda x: apply("positive", apply("abs", x))),
        ),
    ),
    Guarded(
        ("add", "mul"),
        constant_last,
        (on_vector(lambda x: filled(x, 2.0) + x), on_ints(lambda x: filled(x, 2) * x)),
        need=(0, "const"),
    ),
    Guarded(
        ("select",),
        chosen_again,
        (on_vector(lambda x: choice(x, "mul", x)), on_vector(lambda x: choice(x, "exp", side=1))),
    ),
    Guarded(("reduce_max",), flag, (lambda: region([Tensor(BOOL, (2, 3))], lambda p: [flags(p)]),), need=(0, "select")),
    Guarded(
        ELEMENTWISE,
        spread_late,
        (
            on_vector(lambda x: apply("exp", spread_over(x, 1))),
            on_vector(lambda x: spread_over(x, 1) * spread_over(x, 2)),
            on_vector(lambda x: spread_over(x, 1) / filled(x, 3.0, Tensor(F64, (3, 3, 3)))),
            on_ints(lambda x: apply("select", spread_over(apply("lt", x, filled(x, 2)), 0), *[spread_over(x, 2)] * 2)),
        ),
    ),
    Guarded(
        ("clamp",),
        in_place,
        (lambda: counted(0, 1, axis=0), lambda: counted(-3, 2, axis=1), lambda: counted(0, 7, axis=1)),
        need=(1, "iota"),
    ),
    Guarded(
        ("reduce_any", "reduce_all", "reduce_max", "reduce_min", "reduce_top"),
        reduced_once,
        (
            on_ints(lambda x: apply("reduce_max", spread_over(x, 1), axes=(0, 1))),
            on_ints(lambda x: apply("reduce_min", spread_over(x, 2), axes=(0,))),
            on_ints(lambda x: apply("reduce_any", spread_over(apply("lt", x, filled(x, 2)), 1), axes=(0, 1, 2))),
        ),
        need=(0, "broadcast"),
    ),
)
