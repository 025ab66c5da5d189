"""Loops are written out where they take few small steps: those within loops, and those of layers in a derivative.

What a loop within a loop costs is the loop, at every step of the one around it: on the CPU XLA calls each operation of
each step by itself and fuses nothing into it, and what reverse mode reads back of its steps goes through arrays of
arrays. Written out, the steps are as any other code: fused, simplified and differentiated with what is around them.

Of the layers of a network, which multiply by an array of their own each, that is a tenth of the gradient: in a loop
each step copies its weights out of those of all, and the gradients of weights, for which nothing waits, are computed
one by one with what is waited for. Where only the value is asked for, or all steps multiply by the same, a loop is
better: see `defer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ir.op import OPS, result_types
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.loop.loop_op import Form, loop
from difflang.ops.loop.residual_selection import size
from difflang.passes.inline import spliced
from difflang.passes.simplify import tensor

MOST = 200  # equations that a loop may become, those of loops within it included
DEEP = 24  # elementwise equations on end: more of them XLA computes again for each reader, which costs more than a loop
LARGE = 1 << 18  # bytes that its steps may make: of more, the loop itself is not felt, and what it keeps is
LAYERS = 8  # steps of a loop that stands in no other
HEAVY = 1 << 22  # bytes that those may make: of more, the copies are not felt, and what it keeps is
INDEX = Tensor(I32)
PRODUCT, TRANSPOSE = OPS["dot_general"], OPS["transpose"]
AS_SAID = (0, 0)  # `keep` of a loop of which the program says nothing


def unroll(graph: Graph) -> Graph:
    """Write out the loops within loops, and those of layers of which a derivative is taken, that take few small steps.

    Inner ones come first.
    Where the program says what a loop keeps for its derivative it stays one, and so does one with a loop or a
    derivative in its step. Cost: linear; no loop becomes more than `MOST` equations.
    """
    return Unroller().graph(graph, Place())


class Place(Struct, frozen=True):
    """Where a graph stands: is it run at every step of a loop, and is a derivative of it taken?"""

    looped: bool = False
    derived: bool = False

    def inside(self, eqn: Eqn) -> Place:
        return Place(self.looped or eqn.op is loop, self.derived or eqn.op.expand is not None)


class Unroller:
    def __init__(self) -> None:
        self.done: dict[tuple[Graph, Place], Graph] = {}

    def graph(self, graph: Graph, place: Place) -> Graph:
        if not any([e.regions for e in graph.eqns]):
            return graph
        key = graph, place
        if key not in self.done:
            self.done[key] = self.rewritten(graph, place)
        return self.done[key]

    def rewritten(self, graph: Graph, place: Place) -> Graph:
        to: dict[Value, Value] = {}
        eqns: list[Eqn] = []
        for old in graph.eqns:
            eqn = old.renamed(to) if to else old
            if eqn.regions:
                within = place.inside(eqn)
                eqn = eqn.with_regions([self.graph(region, within) for region in eqn.regions])
            if eqn.op is loop and is_short(eqn, place):
                to.update(zip(eqn.results, written_out(eqn, eqns), strict=True))
            else:
                eqns.append(eqn)
        return graph.with_eqns(eqns).renamed_results(to)


def is_short(eqn: Eqn, place: Place) -> bool:
    """Whether a loop takes a few steps, always as many, and its steps are small and straight.

    One that does not stand inside another also has to be of few layers, in a derivative.
    """
    form, values = Form.of(eqn), (*eqn.operands, *eqn.results)
    if not form.exact or not isinstance(form.length, int) or not all([isinstance(v.type, Tensor) for v in values]):
        return False
    if form.keep != AS_SAID or form.host or form.undo:
        return False
    step = eqn.regions[0]
    if not place.looped and not (place.derived and form.length <= LAYERS and multiplies(step, form)):
        return False
    moves = 1 + 2 * (len(form.parts(eqn.operands).xs) + len(step.results) - form.carry)  # index, items, what is given
    room = MOST // form.length - moves if form.length > 1 else 0
    if room <= 0 or not fits(step, room):
        return False
    made = size([r for e in step.eqns for r in e.results])
    return form.length * made <= (LARGE if place.looped else HEAVY) and form.length * depth(step) <= DEEP


def fits(step: Graph, room: int) -> bool:
    """Whether a step has no more equations, those of its regions included, and no loop and no derivative."""
    todo = [step]
    while todo:
        eqns = todo.pop().eqns
        room -= len(eqns)
        if room < 0 or any([e.op is loop or e.op.expand is not None for e in eqns]):
            return False
        todo += [region for e in eqns for region in e.regions]
    return True


def multiplies(step: Graph, form: Form) -> bool:
    """Whether a step has a product with a matrix that no other step has."""
    own = {x for x in form.parts(step.params).xs if len(tensor(x).shape) > 1}
    for eqn in step.eqns:
        if eqn.op is PRODUCT and not own.isdisjoint(eqn.operands):
            return True
        if eqn.op is TRANSPOSE and not own.isdisjoint(eqn.operands):
            own.update(eqn.results)
    return False


def depth(step: Graph) -> int:
    """How many equations follow one another, but for products and sums, which XLA keeps apart."""
    ends: dict[Value, int] = {}
    for eqn in step.eqns:
        if eqn.operands and not (eqn.op.barrier or (eqn.op.term_by_term and not eqn.op.elementwise)):
            inner = max([1, *map(depth, eqn.regions)])
            ends.update(dict.fromkeys(eqn.results, inner + max([ends.get(v, 0) for v in eqn.operands])))
    return max(ends.values(), default=0)


def written_out(eqn: Eqn, eqns: list[Eqn]) -> list[Value]:
    """The results of a loop whose steps come one after the other at the end of `eqns`."""
    form = Form.of(eqn)
    parts, step = form.parts(eqn.operands), eqn.regions[0]
    assert isinstance(form.length, int)

    def emit(name: str, *operands: Value, **attrs: Attr) -> Value:
        op = OPS[name]
        (type,) = result_types(op, [v.type for v in operands], (), attrs)
        eqns.append(Eqn(op, operands, (Value(type, eqn.results[0].home),), attrs, (), eqn.span))
        return eqns[-1].results[0]

    def index(i: int) -> Value:
        return emit("const", value=i, type=INDEX)

    state, given = list(parts.carry), [list[Value]() for _ in step.results[form.carry :]]
    for i in reversed(range(form.length)) if form.reverse else range(form.length):
        items = [row(emit, x, i) for x in parts.xs]
        outs = spliced(step, (index(i), *parts.consts, *state, *items), eqns)
        state = outs[: form.carry]
        for ys, y in zip(given, outs[form.carry :], strict=True):
            ys.append(y)
    ys = [stack(emit, column[::-1] if form.reverse else column) for column in given]
    return [index(form.length), *state, *ys]


Emit = Callable[..., Value]


def row(emit: Emit, x: Value, i: int) -> Value:
    """What step i reads of an array."""
    shape = tensor(x).shape
    rest = shape[1:]
    piece = emit("slice", x, starts=(i, *[0] * len(rest)), stops=(i + 1, *rest), steps=(1,) * len(shape))
    return emit("reshape", piece, shape=rest)


def stack(emit: Emit, items: Sequence[Value]) -> Value:
    """What the steps gave, in one array."""
    return emit("concat", *[emit("reshape", y, shape=(1, *tensor(y).shape)) for y in items], axis=0)
