"""Moves contractions that a reverse-mode loop sums up out of it: one contraction over all steps after the loop.

The cotangent of a matrix that every step reads is a sum over the steps of products of an input and a cotangent. The
inputs are often saved for each step anyway. Where the cotangents are no larger than the sum, they are saved too, and
one contraction over the steps replaces a product and an addition of matrices in each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import AxisPermutation
from difflang.ir.tensor_types import Tensor, stacked_type
from difflang.ops.control.map import map_
from difflang.ops.elementwise.linear_arithmetic import add
from difflang.ops.linalg.dot_general import dot_general
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop
from difflang.ops.op_factories import tensor_type
from difflang.passes.contractions.drop_batch_axes import drop_batch_axes
from difflang.passes.contractions.sums_to_contractions import sum_terms
from difflang.passes.maps.vectorize_maps import vectorize_maps
from difflang.passes.rules.reshapes_and_constants import int_tuple
from difflang.passes.simplify import simplify


def contract_after_loops(graph: Graph) -> Graph:
    """Move sums of contractions out of reverse loops and of maps around them; dce drops the dead rest. Cost: linear."""
    deferrer = LoopContractionMover()
    found = deferrer.graph(graph)
    if found is graph:
        return graph
    # The cotangents of a matrix that a batch shares become one contraction over steps and batch.
    return drop_batch_axes(vectorize_maps(simplify(found)) if deferrer.changed_maps else found)


class LoopContractionMover:
    def __init__(self) -> None:
        self.done: dict[Graph, Graph] = {}
        self.changed_maps = False  # whether sums left loops in maps

    def graph(self, graph: Graph) -> Graph:
        if graph not in self.done:
            self.done[graph] = self.rebuild(graph) if any([e.regions for e in graph.eqns]) else graph
        return self.done[graph]

    def rebuild(self, graph: Graph) -> Graph:
        eqns: list[Eqn] = []
        to: dict[Value, Value] = {}
        for old in graph.eqns:
            inner = old.with_regions(map(self.graph, old.regions)) if old.regions else old
            self.changed_maps |= inner is not old and old.op is map_
            eqn = inner.replace_operands(to)
            plan = LoopContractionPlan.of(eqn) if eqn.op is loop else None
            if plan is None or not plan.sums:
                eqns.append(eqn)
            else:
                to |= plan.emit(eqns)
        return graph.with_eqns(eqns).replace_results(to)


class StepContraction(Struct, frozen=True, eq=False):
    """A term of a sum: a contraction, and the axis permutations after it, last first."""

    dot: Eqn
    moves: tuple[Eqn, ...]

    def contract_all_steps(self, builder: Builder, lhs: Value, rhs: Value) -> Value:
        """The sum of the terms of all steps, from their stacked factors."""
        contract, batch = (
            tuple([(*first, *[a + 1 for a in int_tuple(axes)]) for axes in self.dot.attrs[name]])
            for name, first in (("contract", (0,)), ("batch", ()))
        )
        result = builder.one("dot_general", lhs, rhs, contract=contract, batch=batch)
        for eqn in reversed(self.moves):
            (result,) = builder.emit(eqn.op, [result], **eqn.attrs)
        return result


class LoopContractionPlan(Struct, frozen=True, eq=False):
    """A loop, the terms of its sums that leave it, and the values that it must save for them at each step."""

    eqn: Eqn
    form: LoopAttrs
    sums: dict[int, tuple[list[Value], list[StepContraction]]]  # by carry: terms that stay, and those that leave
    saved_values: list[Value]

    @classmethod
    def of(cls, eqn: Eqn) -> LoopContractionPlan | None:
        """A plan for a reverse loop with a known number of steps."""
        # Only derivatives make reverse loops. The sums of the program itself keep their order of additions.
        form = LoopAttrs.of(eqn)
        if form.history_outputs or not (
            form.reverse and form.exact and isinstance(form.length, int) and form.length > 1
        ):
            return None
        pairs = zip(form.parts(eqn.regions[0].params).xs, form.parts(eqn.operands).xs, strict=True)
        step = ReverseStep(eqn.regions[0], form, {item for item, x in pairs if isinstance(x.type, Tensor)})
        sums = {i: found for i in range(form.carry) if (found := step.sum(i))[1]}
        return cls(eqn, form, sums, list(step.saved))

    def emit(self, eqns: list[Eqn]) -> dict[Value, Value]:
        """Append the loop and the contractions after it; returns the replacements of its sums."""
        eqn, (step,) = self.eqn, self.eqn.regions
        # The loop keeps the terms that stay, and gives the factors of the others as further outputs.
        results, rest = list(step.results), list(step.eqns)
        for i, (terms, _) in self.sums.items():
            results[i] = add_terms(terms, rest, eqn)
        given = [Value(stacked_type(v.type, self.form.length), eqn.results[0].home) for v in self.saved_values]
        carries = [Value(r.type, r.home, r.hint) if i - 1 in self.sums else r for i, r in enumerate(eqn.results)]
        region = Graph(step.params, tuple(rest), (*results, *self.saved_values), step.name)
        eqns.append(Eqn(eqn.op, eqn.operands, (*carries, *given), eqn.attrs, (region,), eqn.span))
        items = self.form.parts(step.params).xs
        whole = dict(zip([*items, *self.saved_values], [*self.form.parts(eqn.operands).xs, *given], strict=True))
        return {eqn.results[1 + i]: self.total(i, carries[1 + i], whole, eqns) for i in self.sums}

    def total(self, carry: int, rest: Value, whole: dict[Value, Value], eqns: list[Eqn]) -> Value:
        """Append the contractions over all steps of one sum, and add them to the terms that stayed in the loop."""
        products = self.sums[carry][1]
        builder = Builder(span=self.eqn.span)
        reads = [rest, *[whole[v] for p in products for v in p.dot.operands]]
        total, *factors = [builder.param(v.type) for v in reads]
        to = dict(zip([total, *factors], reads, strict=True))
        for product, lhs, rhs in zip(products, factors[::2], factors[1::2], strict=True):
            total += product.contract_all_steps(builder, lhs, rhs)
        eqns += [e.replace_operands(to) for e in builder.eqns]
        return total


class ReverseStep(Struct, eq=False):
    """The step of a loop, and the products chosen to leave it."""

    graph: Graph
    form: LoopAttrs
    items: set[Value]  # items of arrays; a history cannot be contracted after the loop
    saved: dict[Value, None] = field(default_factory=dict)  # the factors that the step must save
    makers: dict[Value, Eqn] = field(default_factory=dict)
    readers: Counter[Value] = field(default_factory=Counter[Value])
    # The step may save as many bytes as it reads of values saved before; none where the loop has a small budget.
    bytes_left: int = 0

    def __post_init__(self) -> None:
        self.makers = {r: e for e in self.graph.eqns for r in e.results}
        self.readers = Counter([*self.graph.results, *[v for e in self.graph.eqns for v in e.operands]])
        self.bytes_left = 0 if self.form.recomputes_states else total_bytes(self.items)

    def sum(self, carry: int) -> tuple[list[Value], list[StepContraction]]:
        """The terms that a step adds to a carry, and the products among them that leave the loop."""
        # Only a carry that nothing but its own sum reads may be wrong until the loop has ended.
        before = self.form.parts(self.graph.params).carry[carry]
        terms = sum_terms(self.graph.results[carry], self.makers, self.readers)
        if before not in terms or self.readers[before] > 1:
            return terms, []
        found = {
            v: product
            for v in terms
            if (product := self.contraction_of(v)) is not None and self.accept_if_small(product)
        }
        return [v for v in terms if v not in found], list(found.values())

    def contraction_of(self, value: Value) -> StepContraction | None:
        """The contraction that makes a value, up to the order of its axes, if nothing else reads it."""
        moves: list[Eqn] = []
        while (eqn := self.makers.get(value)) is not None and self.readers[value] == 1:
            if eqn.op is dot_general:
                return StepContraction(eqn, tuple(moves))
            if not isinstance(eqn.op.movement, AxisPermutation):
                return None
            moves.append(eqn)
            (value,) = eqn.operands
        return None

    def accept_if_small(self, product: StepContraction) -> bool:
        """Accept a product if saving its missing factors takes no more memory than the sum; they are saved then."""
        missing = {v for v in product.dot.operands if v not in self.items and v not in self.saved}
        needs = total_bytes(missing)
        if (
            needs > total_bytes(product.dot.results)
            or needs > self.bytes_left
            or not all(map(self.is_step_dependent, missing))
        ):
            return False
        self.bytes_left -= needs
        self.saved |= dict.fromkeys(v for v in product.dot.operands if v in missing)
        return True

    def is_step_dependent(self, value: Value) -> bool:
        """Whether a value is computed in the step, or by the step before it."""
        return value in self.makers or value in self.form.parts(self.graph.params).carry


def total_bytes(values: Iterable[Value]) -> int:
    return sum([tensor_type(v).bytes for v in values if isinstance(v.type, Tensor)])


def add_terms(terms: Sequence[Value], eqns: list[Eqn], like: Eqn) -> Value:
    """Append equations that add the terms in their order."""
    total, *others = terms
    for term in others:
        result = Value(total.type, total.home)
        eqns.append(Eqn(add, (total, term), (result,), {}, (), like.span))
        total = result
    return total
