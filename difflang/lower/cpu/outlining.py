"""Equations gathered in order, in parts that XLA keeps apart: `chains` says of which equations, and why.

A part is handed little: constants are made again in each that reads them, and so is what simple steps make of one
value, where several such things are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from msgspec import Struct

from difflang.ir.graph import Eqn, Graph, Value, Values
from difflang.ir.tensor_types import FLOATS, Tensor, Type

SEGMENT_SIZE = 100  # what a segment holds: this many equations that are on no long chain
LINK_WEIGHT = 4  # what one on a long chain counts for: longer segments compile no sooner, shorter ones run no sooner
LARGE_LINK_WEIGHT = 25  # the same for large arrays, where evaluating again costs more than writing a value out
LARGE_ELEMENTS = 1 << 15  # elements
MAX_RECOMPUTED = 4  # equations in a row that are made again, of these
BIT_STABLE_OPS = frozenset(
    {"sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "neg", "abs", "sign", "mul"}
)
DISCONTINUOUS_OPS = frozenset({"max", "min", "clamp", "floor", "ceil", "round", "trunc", "floor_div", "rem", "sign"})
MAX_ATTR_LENGTH = 16  # an attribute longer than this is data, not worth having twice


class OutlinedSegment(Struct, frozen=True):
    """Equations that are outlined together: what they read from outside, and what others read of them."""

    eqns: tuple[Eqn, ...]
    operands: Values
    results: Values


EqnOrSegment = Eqn | OutlinedSegment


def is_fusion_barrier(eqn: Eqn) -> bool:
    """XLA keeps it apart on its own: nothing is fused through it."""
    return eqn.op.fusion_barrier or eqn.effectful or (eqn.op.linear_in_each and not eqn.op.elementwise)


class SegmentBuilder:
    """Gathers equations in order. What is had again from little is made again in each segment that reads it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Eqn | list[Eqn]] = []
        self.run: list[Eqn] = []
        self.made: set[Value] = set()
        self.size = 0
        self.constants: dict[Value, Eqn] = {}
        self.makers: dict[Value, Eqn] = {}
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
        """The steps, from the last to the first: what a segment gives is what later ones still read."""
        self.flush()
        read, found = set(self.graph.results), list[EqnOrSegment]()
        for step in reversed(self.steps):
            if isinstance(step, list):
                step = self.make_segment(step, read)
                if not step.results:
                    continue
            read.update(step.operands)
            found.append(step)
        return tuple(reversed(found))

    def make_segment(self, run: Sequence[Eqn], read: set[Value]) -> OutlinedSegment:
        results = tuple([r for e in run for r in e.results if r in read])
        wanted, reads = live_eqns(run, results)
        again = sorted(self.find_recomputable(reads), key=self.eqn_index.__getitem__)
        wanted, reads = live_eqns([*again, *wanted], results)
        copied = dict.fromkeys([self.constants[v] for v in reads if v in self.constants])
        return OutlinedSegment((*copied, *wanted), tuple([v for v in reads if v not in self.constants]), results)

    def find_recomputable(self, reads: Sequence[Value]) -> set[Eqn]:
        """What makes the values read from fewer: those that lead back to one root are handed over as that."""
        lineages = {v: self.lineage(v) for v in reads}
        roots = Counter([root for _, root in lineages.values()])
        return {eqn for eqns, root in lineages.values() if roots[root] > 1 for eqn in eqns}

    def lineage(self, value: Value) -> tuple[list[Eqn], Value]:
        """The equations that make a value of one other and of constants, the last one first, and that other. It is
        gathered earlier than whoever asks.
        """
        found: list[Eqn] = []
        while len(found) < MAX_RECOMPUTED and value not in self.rounding_sensitive and (eqn := self.makers.get(value)):
            variable = {v for v in eqn.operands if v not in self.constants}
            if len(variable) != 1:
                break
            found.append(eqn)
            (value,) = variable
        return found, value


def live_eqns(run: Sequence[Eqn], results: Sequence[Value]) -> tuple[list[Eqn], list[Value]]:
    """Those of some equations that results need, and what they read of others, in order."""
    wanted, found = set(results), list[Eqn]()
    for eqn in reversed(run):
        if not wanted.isdisjoint(eqn.results):
            wanted.update(eqn.operands)
            found.append(eqn)
    found.reverse()
    made = {r for e in found for r in e.results}
    return found, list(dict.fromkeys([v for e in found for v in e.operands if v not in made]))


def is_recomputable(eqn: Eqn) -> bool:
    """Made again it is the same to the last bit, and costs little: one instruction of XLA's.

    A sum is not: with a product that is made in the same kernel it is rounded once.
    """
    type = eqn.results[0].type if eqn.results else None
    return eqn.op.name in BIT_STABLE_OPS and isinstance(type, Tensor) and type.dtype in FLOATS and not is_large(type)


def is_rounding_sensitive(eqn: Eqn) -> bool:
    """Whether a last bit may decide something there."""
    return (
        is_fusion_barrier(eqn)
        or eqn.op.name in DISCONTINUOUS_OPS
        or any(r.type.dtype not in FLOATS for r in eqn.results if isinstance(r.type, Tensor))
    )


def stays_inline(eqn: Eqn) -> bool:
    """Not worth outlining: it says something, or is a function of its own already."""
    return eqn.effectful or (bool(eqn.regions) and eqn.op.fusion_barrier)


def link_weight(eqn: Eqn) -> int:
    if any(is_large(r.type) for r in eqn.results):
        return LARGE_LINK_WEIGHT
    return LINK_WEIGHT


def is_large(type: Type) -> bool:
    return isinstance(type, Tensor) and prod([n for n in type.shape if isinstance(n, int)]) >= LARGE_ELEMENTS


def is_small_constant(eqn: Eqn) -> bool:
    """Made from a few numbers in the program, so that it costs nothing to make it again."""
    short = not any(isinstance(a, tuple) and len(a) > MAX_ATTR_LENGTH for a in eqn.attrs.values())
    return not eqn.operands and not eqn.regions and not eqn.op.effect and short
