"""Shifts that cancel: a maximum that is subtracted before exponentials and added after the logarithm has no derivative.

In `top + log(sum(exp(x - top)))`, as in a softmax, the result does not depend on `top`, whatever it is. Its derivative
is zero, but computed it is a sum of terms that cancel, which then goes through the mask of a maximum. How a value moves
with the shift t is followed by algebra: it is `w + a t` or `w e^(a t)` with a number a, its degree, and w free of t.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from math import isfinite, prod

from msgspec import Struct

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import AxisPermutation
from difflang.ops.arrays.axis_reductions import reduce_max, reduce_min, reduce_sum
from difflang.ops.arrays.constants import const
from difflang.ops.arrays.shape_manipulation import broadcast
from difflang.ops.elementwise.comparison_and_logic import max_, min_
from difflang.ops.elementwise.elementary_functions import exp, log
from difflang.ops.elementwise.linear_arithmetic import add, div, mul, neg, select, sub
from difflang.ops.elementwise.nonlinear_arithmetic import integer_pow
from difflang.ops.elementwise.powers_and_logs import exp_sub
from difflang.ops.elementwise.roots_and_distances import positive, sqrt
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.op_factories import static_size, tensor_type
from difflang.passes.graph_levels import replace_equations, rewrite_levels
from difflang.passes.reductions.axis_labels import FreshLabels, operand_labels
from difflang.passes.rules.reshapes_and_constants import int_tuple

SHIFTS = (reduce_max, reduce_min, max_, min_)  # what programs subtract, and whose derivative is expensive
MAX_READERS = 64  # equations that may depend on one shift

MakerMap = Mapping[Value, Eqn]


class Motion(Struct, frozen=True):
    """How a value moves with the shift t: as `w + degree t`, or as `w e^(degree t)` if `scales`."""

    degree: Fraction
    scales: bool
    axes: tuple[int, ...]  # for each axis of the shift the axis of the value that runs with it


def cancel_shifts(graph: Graph) -> Graph:
    """Stop the derivatives of extrema on which no result depends. Only within derivatives. Cost: linear."""
    return rewrite_levels(graph, cancel_level, in_maps=True)


def cancel_level(graph: Graph, differentiated: bool) -> Graph:
    """One graph, whose regions have been rewritten."""
    if not differentiated or not any([e.op in SHIFTS for e in graph.eqns]):
        return graph
    made = {r: e for e in graph.eqns for r in e.results}
    readers: dict[Value, list[int]] = {}
    for i, eqn in enumerate(graph.eqns):
        for v in dict.fromkeys(eqn.operands):
            readers.setdefault(v, []).append(i)
    found = [e for e in graph.eqns if e.op in SHIFTS and cancels(e.results[0], graph, readers, made)]
    return replace_equations(graph, {e: partial(emit_stopped, e) for e in found})


def emit_stopped(eqn: Eqn, builder: Builder, env: Mapping[Value, Value]) -> list[Value]:
    """The equation, and its result without a derivative."""
    (result,) = builder.copy(eqn, tuple([env[v] for v in eqn.operands]))
    return [builder.one("stop", result)]


def cancels(shift: Value, graph: Graph, readers: Mapping[Value, list[int]], made: MakerMap) -> bool:
    """Whether no result of the graph moves with the shift, and something does on the way."""
    moves = {shift: Motion(Fraction(1), False, tuple(range(tensor_type(shift).rank)))}
    todo, seen = list(readers.get(shift, ())), set[int]()
    while todo:  # what depends on the shift, directly or not
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if len(seen) > MAX_READERS:
            return False
        eqn = graph.eqns[i]
        if not eqn.op.inactive:
            todo += [j for r in eqn.results for j in readers.get(r, ())]
    for i in sorted(seen):
        eqn = graph.eqns[i]
        if eqn.op.inactive or moves.keys().isdisjoint(eqn.operands):
            continue
        motion = moved(eqn, moves, made)
        if motion is None:
            return False
        if motion.degree:
            moves[eqn.results[0]] = motion
    return len(moves) > 1 and moves.keys().isdisjoint(graph.results)


def moved(eqn: Eqn, moves: Mapping[Value, Motion], made: MakerMap) -> Motion | None:
    """How the result of an equation moves, of which at least one operand does; None if that is not known."""
    if len(eqn.results) != 1:
        return None
    rank = tensor_type(eqn.results[0]).rank
    labels = operand_labels(eqn, tuple(range(rank)), FreshLabels(rank))
    if labels is None:
        return None
    found = {tuple([a[i] for i in moves[v].axes]) for v, a in zip(eqn.operands, labels, strict=True) if v in moves}
    if len(found) > 1:  # elements of different shifts meet, such as t[i] and t[j]
        return None
    (axes,) = found
    if any([a >= rank for a in axes]):  # it sums what moves with different shifts
        return None
    step = degree_of(eqn, [moves.get(v) for v in eqn.operands], made)
    return None if step is None else Motion(step[0], step[1], axes)


Step = tuple[Fraction, bool]


def degree_of(eqn: Eqn, operands: list[Motion | None], made: MakerMap) -> Step | None:
    """The degree of the result, and whether it scales; None if it does not move in either way."""
    op = eqn.op
    scaling = [m.scales for m in operands if m is not None]
    degrees = [Fraction(0) if m is None else m.degree for m in operands]
    if op is broadcast or op is positive or isinstance(op.movement, AxisPermutation) or op in (reduce_max, reduce_min):
        return degrees[0], scaling[0]
    if op is neg:
        return (degrees[0] if scaling[0] else -degrees[0]), scaling[0]
    if all(scaling):
        return scaled_degree(eqn, operands, degrees, made)
    if any(scaling):
        return None
    match op:
        case _ if op is add:
            return degrees[0] + degrees[1], False
        case _ if op is sub:
            return degrees[0] - degrees[1], False
        case _ if op is exp_sub:
            return degrees[0] - degrees[1], True
        case _ if op is exp:
            return degrees[0], True
        case _ if op is mul:
            return multiplied(eqn, operands, degrees, made)
        case _ if op is div and operands[1] is None:
            divisor = filled_with(eqn.operands[1], made)
            return None if not divisor else (degrees[0] / divisor, False)
        case _ if op is reduce_sum:
            sizes = [tensor_type(eqn.operands[0]).shape[a] for a in int_tuple(eqn.attrs["axes"])]
            return degrees[0] * prod(map(static_size, sizes)), False
        case _ if op is select and degrees[1] == degrees[2]:
            return degrees[1], False
        case _:
            return None


def scaled_degree(eqn: Eqn, operands: list[Motion | None], degrees: list[Fraction], made: MakerMap) -> Step | None:
    """The same, where all operands that move scale."""
    op = eqn.op
    if op in (mul, dot_general):
        return degrees[0] + degrees[1], True
    if op is div:
        return degrees[0] - degrees[1], True
    if op is log:
        return degrees[0], False
    if op is sqrt:
        return degrees[0] / 2, True
    if op is integer_pow:
        return degrees[0] * eqn.attrs["n"], True
    if op is reduce_sum:
        return degrees[0], True
    if op in (add, sub, select):  # zero scales with any degree
        parts = list(zip(eqn.operands, operands, degrees, strict=True))[-2:]
        some = {d for v, m, d in parts if m is not None or filled_with(v, made) != 0}
        return (some.pop(), True) if len(some) == 1 else None
    return None


def multiplied(eqn: Eqn, operands: list[Motion | None], degrees: list[Fraction], made: MakerMap) -> Step | None:
    """The degree of a product of a value that moves and a number."""
    for side in (0, 1):
        if operands[side] is None and (factor := filled_with(eqn.operands[side], made)) is not None:
            return degrees[1 - side] * factor, False
    return None


def filled_with(value: Value, made: MakerMap) -> Fraction | None:
    """The finite number that an array is filled with, if it is one."""
    eqn = made.get(value)
    while eqn is not None and eqn.op is broadcast:
        eqn = made.get(eqn.operands[0])
    number = None if eqn is None or eqn.op is not const else eqn.attrs["value"]
    return Fraction(number) if isinstance(number, (int, float)) and isfinite(number) else None
