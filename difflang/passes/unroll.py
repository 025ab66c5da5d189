"""Loop unrolling: short loops with small steps, where they are inside other loops or are layers of a network.

An inner loop costs its overhead at every step of the outer one: on the CPU XLA runs each operation of each step by
itself without fusion, and reverse mode reads saved values from arrays of arrays. Unrolled steps are fused, simplified
and differentiated with the code around them.

For the layers of a network, which have a weight matrix each, unrolling saves a tenth of the gradient's time: in a loop
each step copies its weights out of an array, and the gradients of weights cannot overlap with other work. For the value
alone, or if all steps share a matrix, a loop is better: see `contract_after_loops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from difflang.ir.graph import Attr, Eqn, Graph, Value
from difflang.ir.op import OPS, result_types
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.loop.residual_selection import total_bytes
from difflang.ops.op_factories import tensor_type
from difflang.passes.inline import splice

MAX_UNROLLED_EQNS = 200  # equations that a loop may become, including those of loops inside it
# A longer chain of elementwise equations is recomputed by XLA for each reader, which costs more than a loop.
MAX_ELEMENTWISE_DEPTH = 24
# Bytes that the steps of an inner loop may make: beyond, its overhead is negligible and the saved values are not.
MAX_INNER_BYTES = 1 << 18
MAX_LAYERS = 8  # steps of an outermost loop
MAX_LAYER_BYTES = 1 << 22  # bytes that its steps may make: beyond, the copies of weights are negligible
INDEX = Tensor(I32)
PRODUCT, TRANSPOSE = OPS["dot_general"], OPS["transpose"]
DEFAULT_KEEP = (0, 0)  # `keep` of a loop without a `@checkpoint` policy


def unroll(graph: Graph) -> Graph:
    """Unroll short loops inside loops, and short loops over layers that are differentiated; inner loops first.

    A loop with a `@checkpoint` policy stays a loop, and so does one with a loop or a derivative in its step.
    Cost: linear; no loop becomes more than `MAX_UNROLLED_EQNS` equations.
    """
    return Unroller().graph(graph, UnrollContext())


class UnrollContext(Struct, frozen=True):
    """The context of a graph: whether it runs at every step of a loop, and whether it is differentiated."""

    in_loop: bool = False
    differentiated: bool = False

    def inside(self, eqn: Eqn) -> UnrollContext:
        return UnrollContext(self.in_loop or eqn.op is loop, self.differentiated or eqn.op.is_derivative)


class Unroller:
    def __init__(self) -> None:
        self.done: dict[tuple[Graph, UnrollContext], Graph] = {}

    def graph(self, graph: Graph, place: UnrollContext) -> Graph:
        if not any([e.regions for e in graph.eqns]):
            return graph
        key = graph, place
        if key not in self.done:
            self.done[key] = self.rewrite(graph, place)
        return self.done[key]

    def rewrite(self, graph: Graph, place: UnrollContext) -> Graph:
        to: dict[Value, Value] = {}
        eqns: list[Eqn] = []
        for old in graph.eqns:
            eqn = old.replace_operands(to) if to else old
            if eqn.regions:
                within = place.inside(eqn)
                eqn = eqn.with_regions([self.graph(region, within) for region in eqn.regions])
            if eqn.op is loop and should_unroll(eqn, place):
                to.update(zip(eqn.results, emit_unrolled(eqn, eqns), strict=True))
            else:
                eqns.append(eqn)
        return graph.with_eqns(eqns).replace_results(to)


def should_unroll(eqn: Eqn, place: UnrollContext) -> bool:
    """Whether a loop takes a few steps, a fixed number, and its steps are small and without loops."""
    # An outermost loop must also be one over a few layers, in a derivative.
    form, values = LoopAttrs.of(eqn), (*eqn.operands, *eqn.results)
    if not form.exact or not isinstance(form.length, int) or not all([isinstance(v.type, Tensor) for v in values]):
        return False
    if form.keep != DEFAULT_KEEP or form.host or form.reversible:
        return False
    step = eqn.regions[0]
    if not place.in_loop and not (
        place.differentiated and form.length <= MAX_LAYERS and multiplies_own_matrix(step, form)
    ):
        return False
    # Equations besides the step's own: the index, two for each item and two for each output.
    moves = 1 + 2 * (len(form.parts(eqn.operands).xs) + len(step.results) - form.carry)
    budget = MAX_UNROLLED_EQNS // form.length - moves if form.length > 1 else 0
    if budget <= 0 or not is_small_step(step, budget):
        return False
    made = total_bytes([r for e in step.eqns for r in e.results])
    return (
        form.length * made <= (MAX_INNER_BYTES if place.in_loop else MAX_LAYER_BYTES)
        and form.length * elementwise_depth(step) <= MAX_ELEMENTWISE_DEPTH
    )


def is_small_step(step: Graph, budget: int) -> bool:
    """Whether a step has at most `budget` equations, including those of its regions, and no loop or derivative."""
    todo = [step]
    while todo:
        eqns = todo.pop().eqns
        budget -= len(eqns)
        if budget < 0 or any([e.op is loop or e.op.is_derivative for e in eqns]):
            return False
        todo += [region for e in eqns for region in e.regions]
    return True


def multiplies_own_matrix(step: Graph, form: LoopAttrs) -> bool:
    """Whether a step has a product with a matrix of its own, as a layer with its weights."""
    own = {x for x in form.parts(step.params).xs if len(tensor_type(x).shape) > 1}
    for eqn in step.eqns:
        if eqn.op is PRODUCT and not own.isdisjoint(eqn.operands):
            return True
        if eqn.op is TRANSPOSE and not own.isdisjoint(eqn.operands):
            own.update(eqn.results)
    return False


def elementwise_depth(step: Graph) -> int:
    """The longest chain of equations, not counting products and sums, at which XLA ends a fusion."""
    ends: dict[Value, int] = {}
    for eqn in step.eqns:
        if eqn.operands and not (
            "fusion barrier" in eqn.op.traits or (eqn.op.operand_rules.linear_in_each and not eqn.op.elementwise)
        ):
            inner = max([1, *map(elementwise_depth, eqn.regions)])
            ends.update(dict.fromkeys(eqn.results, inner + max([ends.get(v, 0) for v in eqn.operands])))
    return max(ends.values(), default=0)


def emit_unrolled(eqn: Eqn, eqns: list[Eqn]) -> list[Value]:
    """Append the steps of a loop one after the other to `eqns`; returns its results."""
    form = LoopAttrs.of(eqn)
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
        items = [step_item(emit, x, i) for x in parts.xs]
        outs = splice(step, (index(i), *parts.consts, *state, *items), eqns)
        state = outs[: form.carry]
        for ys, y in zip(given, outs[form.carry :], strict=True):
            ys.append(y)
    ys = [stack_items(emit, column[::-1] if form.reverse else column) for column in given]
    return [index(form.length), *state, *ys]


Emit = Callable[..., Value]


def step_item(emit: Emit, x: Value, i: int) -> Value:
    """The item of an array that step i reads."""
    shape = tensor_type(x).shape
    rest = shape[1:]
    piece = emit("slice", x, starts=(i, *[0] * len(rest)), stops=(i + 1, *rest), steps=(1,) * len(shape))
    return emit("reshape", piece, shape=rest)


def stack_items(emit: Emit, items: Sequence[Value]) -> Value:
    """The outputs of the steps in one array."""
    return emit("concat", *[emit("reshape", y, shape=(1, *tensor_type(y).shape)) for y in items], axis=0)
