"""Outlined segments: equations grouped, in order, into functions that XLA does not inline.

`split_fusion_chains` decides which equations are outlined, and why. A segment takes few operands: it recomputes the
constants it reads, and cheap functions of one value where it reads several of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.op import Placement
from difflang.ir.tensor_types import FLOATS, Tensor, Type

# The weight at which a segment ends; an equation on no long chain weighs 1.
SEGMENT_SIZE = 100
# The weight of an equation on a long chain: longer segments compile no faster, shorter ones run no faster.
LINK_WEIGHT = 4
# The same for large arrays, where recomputing costs more than storing a value.
LARGE_LINK_WEIGHT = 25
LARGE_ELEMENTS = 1 << 15
# The longest chain of the ops below that a segment recomputes.
MAX_RECOMPUTED = 4
BIT_STABLE_OPS = frozenset(
    {"sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "neg", "abs", "sign", "mul"}
)
DISCONTINUOUS_OPS = frozenset({"max", "min", "clamp", "floor", "ceil", "round", "trunc", "floor_div", "rem", "sign"})
# A longer attribute is data, not worth duplicating.
MAX_ATTR_LENGTH = 16


class OutlinedSegment(Struct, frozen=True):
    """Equations outlined as one function, the values they read from outside, and their results that others read."""

    eqns: tuple[Eqn, ...]
    operands: Values
    results: Values


EqnOrSegment = Eqn | OutlinedSegment


def is_fusion_barrier(eqn: Eqn) -> bool:
    """Whether XLA fuses nothing through an equation."""
    return (
        "fusion barrier" in eqn.op.traits
        or eqn.effectful
        or (eqn.op.operand_rules.linear_in_each and not eqn.op.elementwise)
    )


class SegmentBuilder:
    """Collects equations into segments, in order. Values that are cheap to recompute are recomputed in each segment."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Eqn | list[Eqn]] = []
        self.run: list[Eqn] = []
        self.made: set[Value] = set()
        self.size = 0
        self.constants: dict[Value, Eqn] = {}
        self.makers: dict[Value, Eqn] = {}
        self.placements = {r: e for e in graph.eqns if isinstance(e.op.movement, Placement) for r in e.results}
        self.rounding_sensitive = {v for e in graph.eqns if is_rounding_sensitive(e) for v in e.operands}
        self.eqn_index = {e: i for i, e in enumerate(graph.eqns)}

    def waits_for(self, eqn: Eqn) -> bool:
        return not self.made.isdisjoint(eqn.operands)

    def add_to_run(self, eqn: Eqn, size: int) -> None:
        self.run.append(eqn)
        self.made.update(eqn.results)
        if is_recomputable(eqn):
            self.makers[eqn.results[0]] = eqn
        self.size += size
        if self.size >= SEGMENT_SIZE:
            self.flush()

    def add_standalone(self, eqn: Eqn) -> None:
        if self.waits_for(eqn) or eqn.effectful:
            self.flush()
        if is_small_constant(eqn):
            self.constants.update(dict.fromkeys(eqn.results, eqn))
        self.steps.append(eqn)

    def flush(self) -> None:
        if self.run:
            self.steps.append(self.run)
        self.run, self.made, self.size = [], set(), 0

    def finish(self) -> tuple[EqnOrSegment, ...]:
        """The steps. They are built from last to first, since a segment returns what later ones still read."""
        self.flush()
        read, found = set(self.graph.results), list[EqnOrSegment]()
        for step in reversed(self.steps):
            if isinstance(step, list):
                step = self.make_segment(step, read)
                if not step.results:
                    continue
                step, after = self.placed_inside(step)
                found += after
            read.update(step.operands)
            found.append(step)
        return tuple(reversed(found))

    def placed_inside(self, step: OutlinedSegment) -> tuple[OutlinedSegment, list[Eqn]]:
        """The segment, whose params and results are placed on devices inside and outside, since XLA does not see
        through the call of a function; and the equations that place the results outside.
        """
        placed = [v for v in (*step.operands, *step.results) if v in self.placements]
        inside = {v: Value(v.type, v.home, v.hint) for v in placed}
        before = [self.placing(v, v, inside[v]) for v in step.operands if v in inside]
        after = [self.placing(v, inside[v], v) for v in step.results if v in inside]
        results = tuple([inside.get(r, r) for r in step.results])
        eqns = (*before, *[rename_values(eqn, inside) for eqn in step.eqns])
        return OutlinedSegment(eqns, step.operands, results), after

    def placing(self, value: Value, operand: Value, result: Value) -> Eqn:
        """An equation that places one value as another one is."""
        eqn = self.placements[value]
        return Eqn(eqn.op, (operand,), (result,), eqn.attrs, (), eqn.span)

    def make_segment(self, run: Sequence[Eqn], read: set[Value]) -> OutlinedSegment:
        results = tuple([r for e in run for r in e.results if r in read])
        live, reads = live_eqns(run, results)
        recomputed = sorted(self.find_recomputable(reads), key=self.eqn_index.__getitem__)
        live, reads = live_eqns([*recomputed, *live], results)
        copied = dict.fromkeys([self.constants[v] for v in reads if v in self.constants])
        return OutlinedSegment((*copied, *live), tuple([v for v in reads if v not in self.constants]), results)

    def find_recomputable(self, reads: Sequence[Value]) -> set[Eqn]:
        """The equations to recompute so that fewer values are read: of several that derive from one root, pass the
        root.
        """
        lineages = {v: self.lineage(v) for v in reads}
        roots = Counter([root for _, root in lineages.values()])
        return {eqn for eqns, root in lineages.values() if roots[root] > 1 for eqn in eqns}

    def lineage(self, value: Value) -> tuple[list[Eqn], Value]:
        """The equations that make a value from one root and constants, the last one first, and that root."""
        found: list[Eqn] = []
        # Makers precede their readers, so the root is defined before every segment that reads the value.
        while len(found) < MAX_RECOMPUTED and value not in self.rounding_sensitive and (eqn := self.makers.get(value)):
            variable = {v for v in eqn.operands if v not in self.constants}
            if len(variable) != 1:
                break
            found.append(eqn)
            (value,) = variable
        return found, value


def rename_values(eqn: Eqn, names: Mapping[Value, Value]) -> Eqn:
    """An equation with other operands and results; itself if none is in `names`."""
    if names.keys().isdisjoint((*eqn.operands, *eqn.results)):
        return eqn
    operands, results = [tuple([names.get(v, v) for v in values]) for values in (eqn.operands, eqn.results)]
    return Eqn(eqn.op, operands, results, eqn.attrs, eqn.regions, eqn.span)


def live_eqns(run: Sequence[Eqn], results: Sequence[Value]) -> tuple[list[Eqn], list[Value]]:
    """The equations that some results depend on, and the values they read from others, in order."""
    used, found = set(results), list[Eqn]()
    for eqn in reversed(run):
        if not used.isdisjoint(eqn.results):
            used.update(eqn.operands)
            found.append(eqn)
    found.reverse()
    made = {r for e in found for r in e.results}
    return found, list(dict.fromkeys([v for e in found for v in e.operands if v not in made]))


def is_recomputable(eqn: Eqn) -> bool:
    """Whether recomputing gives the same bits and costs one cheap instruction.

    A sum does not qualify: with a product in the same kernel it becomes one fused multiply-add, which rounds once.
    """
    type = eqn.results[0].type if eqn.results else None
    return eqn.op.name in BIT_STABLE_OPS and isinstance(type, Tensor) and type.dtype in FLOATS and not is_large(type)


def is_rounding_sensitive(eqn: Eqn) -> bool:
    """Whether a difference in the last bit of an operand may change the result discontinuously."""
    return (
        is_fusion_barrier(eqn)
        or eqn.op.name in DISCONTINUOUS_OPS
        or any(r.type.dtype not in FLOATS for r in eqn.results if isinstance(r.type, Tensor))
    )


def stays_inline(eqn: Eqn) -> bool:
    """Not worth outlining: it has an effect, or already is a function of its own."""
    return eqn.effectful or (bool(eqn.regions) and "fusion barrier" in eqn.op.traits)


def link_weight(eqn: Eqn) -> int:
    if any(is_large(r.type) for r in eqn.results):
        return LARGE_LINK_WEIGHT
    return LINK_WEIGHT


def is_large(type: Type) -> bool:
    return isinstance(type, Tensor) and prod([n for n in type.shape if isinstance(n, int)]) >= LARGE_ELEMENTS


def is_small_constant(eqn: Eqn) -> bool:
    """Whether it is built from a few literal numbers, so that recomputing it costs nothing."""
    short = not any(isinstance(a, tuple) and len(a) > MAX_ATTR_LENGTH for a in eqn.attrs.values())
    return not eqn.operands and not eqn.regions and not eqn.op.effect and short
