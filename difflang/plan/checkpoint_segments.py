"""Splits straight-line code into checkpoint segments, which reverse mode may recompute instead of saving residuals.

A segment is a run of consecutive equations between two points where few bytes are live. Loops, maps and prints are in
no segment; calls are inlined. Views of arguments (slices, reshapes) and constants belong to no segment: they are cheap
to have, and each segment gets its own constants.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

from msgspec import Struct

from difflang.base.source import Span
from difflang.ir.builder import Builder
from difflang.ir.graph import Attrs, Eqn, Graph, Value, graphs_postorder
from difflang.ir.tensor_types import History
from difflang.ops.control.checkpoint_block import checkpoint
from difflang.ops.loop.residual_selection import total_bytes
from difflang.passes.inline import is_inlinable_call, splice

T = TypeVar("T")

# Ops that are cheap on arguments: XLA fuses them into their readers.


class CheckpointSegment(Struct, frozen=True, eq=False):
    """Consecutive equations of a graph."""

    eqns: tuple[Eqn, ...]

    @property
    def span(self) -> Span:
        """The source position of the first equation with the largest results."""
        return max(self.eqns, key=lambda e: total_bytes(e.results)).span


def identity(x: T) -> T:
    return x


def single_equation(eqn: Eqn) -> Sequence[Eqn]:
    return (eqn,)


def map_equations(changed: Callable[[Eqn], Sequence[Eqn]], eqns: Iterable[Eqn]) -> list[Eqn]:
    """The replacements of all equations, in order."""
    return [new for eqn in eqns for new in changed(eqn)]


def inline_calls(graph: Graph, max_eqns: int) -> Graph:
    """The graph with its calls inlined, except in regions; unchanged if that gave more than `max_eqns` equations."""
    if not any(map(is_inlinable_call, graph.eqns)):
        return graph
    order, _ = graphs_postorder(graph)
    # Sizes first: calls of calls may grow exponentially, and a count costs little.
    sizes: dict[Graph, int] = {}
    for inner in order:
        sizes[inner] = sum([sizes[e.regions[0]] if is_inlinable_call(e) else 1 for e in inner.eqns])
    if sizes[graph] > max_eqns:
        return graph
    done: dict[Graph, Graph] = {}
    for inner in order:
        if sizes[inner] <= max_eqns:
            done[inner] = inline_calls_in(inner, done)
    return done[graph]


def inline_calls_in(graph: Graph, done: Mapping[Graph, Graph]) -> Graph:
    eqns: list[Eqn] = []
    to: dict[Value, Value] = {}
    for old in graph.eqns:
        eqn = old.replace_operands(to)
        if is_inlinable_call(eqn):
            to.update(zip(eqn.results, splice(done[eqn.regions[0]], eqn.operands, eqns), strict=True))
        else:
            eqns.append(eqn)
    return graph.with_eqns(eqns).replace_results(to) if to else graph


def find_segments(graph: Graph, count: int) -> list[CheckpointSegment]:
    """About `count` segments that make similar numbers of bytes, each ending where few are live. Cost: linear."""
    _, rest = split_views(graph)
    found: list[CheckpointSegment] = []
    runs = recomputable_runs(rest)
    whole = sum([total_bytes(e.results) for run in runs for e in run])
    alive = dict(zip(rest, live_bytes_after(graph, rest), strict=True))
    # Each run gets segments in proportion to the bytes that it makes.
    for run in runs:
        share = round(count * sum([total_bytes(e.results) for e in run]) / max(1, whole))
        edges = [0, *choose_cuts([total_bytes(e.results) for e in run], [alive[e] for e in run], share), len(run)]
        found += [CheckpointSegment(tuple(run[i:j])) for i, j in pairwise(edges) if share and i < j]
    return found


def split_views(graph: Graph) -> tuple[list[Eqn], list[Eqn]]:
    """The constants and the views of arguments, and all other equations."""
    known, views, rest = set(graph.params), list[Eqn](), list[Eqn]()
    for eqn in graph.eqns:
        constant = not eqn.operands and not eqn.regions and not eqn.op.effect
        if constant or ("view" in eqn.op.traits and known.issuperset(eqn.operands)):
            known.update(eqn.results)
            views.append(eqn)
        else:
            rest.append(eqn)
    return views, rest


def recomputable_runs(eqns: Sequence[Eqn], *, loops: bool = False) -> list[list[Eqn]]:
    """The longest runs of equations that can be recomputed, including loops or separated by them."""
    runs: list[list[Eqn]] = [[]]
    for eqn in eqns:
        if is_recomputable(eqn, loops):
            runs[-1].append(eqn)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def is_recomputable(eqn: Eqn, loops: bool) -> bool:
    if eqn.effectful or eqn.op.is_derivative:
        return False
    if any([isinstance(v.type, History) for v in (*eqn.operands, *eqn.results)]):
        return False
    return not eqn.regions or (
        eqn.op.region_dataflow is not None and (loops or not eqn.op.region_dataflow(eqn).repeats)
    )


def live_bytes_after(graph: Graph, eqns: Sequence[Eqn]) -> list[int]:
    """After each equation, the bytes of their results that are live."""
    last = {v: i for i, e in enumerate(eqns) for v in e.operands}
    last |= dict.fromkeys(graph.results, len(eqns))
    # A value adds its bytes where it is made and takes them back at its last use: a running sum gives the live bytes.
    change = [0] * (len(eqns) + 1)
    for i, eqn in enumerate(eqns):
        for v in eqn.results:
            if last.get(v, -1) > i:
                change[i] += total_bytes([v])
                change[last[v]] -= total_bytes([v])
    return list(accumulate(change))[: len(eqns)]


def choose_cuts(made: Sequence[int], alive: Sequence[int], count: int) -> list[int]:
    """Where to cut a run into `count` parts: within half a part of equal sizes, where the fewest bytes are live."""
    upto = list(accumulate(made))
    step = upto[-1] / max(1, count)
    cuts: list[int] = []
    for number in range(1, count):
        low, high = [bisect_left(upto, step * (number + off)) for off in (-0.5, 0.5)]
        places = range(max(low, cuts[-1] if cuts else 0), min(high, len(made) - 1))
        if places:
            cuts.append(1 + min(places, key=lambda i: (alive[i], abs(upto[i] - step * number))))
    return cuts


def boundary_bytes(graph: Graph, found: Sequence[CheckpointSegment]) -> int:
    """The live bytes at the ends of all segments: what checkpointing has to save."""
    _, rest = split_views(graph)
    alive = dict(zip(rest, live_bytes_after(graph, rest), strict=True))
    return sum([alive[piece.eqns[-1]] for piece in found])


def checkpoint_segments(
    graph: Graph,
    blocks: Mapping[CheckpointSegment, Attrs],
    rewrite_eqn: Callable[[Eqn], Sequence[Eqn]] = single_equation,
    rewrite_body: Callable[[Graph], Graph] = identity,
) -> Graph:
    """The graph where these segments are `checkpoint` equations, with attributes of their own.

    `rewrite_eqn` replaces all equations, `rewrite_body` the bodies of blocks without `min_cut`. Cost: linear.
    """
    views, rest = split_views(graph)
    constants = {e.results[0]: e for e in views if not e.operands}
    piece_of = {e: piece for piece in blocks for e in piece.eqns}
    if not piece_of:
        return graph.with_eqns(map_equations(rewrite_eqn, graph.eqns))
    read_by: dict[Value, set[CheckpointSegment | None]] = {v: {None} for v in graph.results}
    for eqn in rest:
        for v in eqn.operands:
            read_by.setdefault(v, set()).add(piece_of.get(eqn))
    eqns = map_equations(rewrite_eqn, views)
    for eqn in rest:
        piece = piece_of.get(eqn)
        if piece is None:
            eqns += rewrite_eqn(eqn)
        elif eqn is piece.eqns[0]:
            # The results of a segment are the values that something outside it reads.
            made = [v for e in piece.eqns for v in e.results if read_by.get(v, set()) - {piece}]
            if made:
                inner = identity if blocks[piece].get("min_cut") else rewrite_body
                eqns.append(
                    checkpoint_equation(
                        map_equations(rewrite_eqn, piece.eqns), made, constants, piece.span, blocks[piece], inner
                    )
                )
    return graph.with_eqns(eqns)


def checkpoint_equation(
    eqns: Sequence[Eqn],
    made: Sequence[Value],
    constants: Mapping[Value, Eqn],
    span: Span,
    attrs: Attrs,
    within: Callable[[Graph], Graph],
) -> Eqn:
    """One `checkpoint` equation that runs these equations and gives the results `made`."""
    own = {v for e in eqns for v in e.results}
    reads = dict.fromkeys([v for e in eqns for v in e.operands if v not in own])
    builder = Builder()
    operands = [v for v in reads if v not in constants]
    env = {v: builder.param(v.type, v.hint) for v in operands}
    for eqn in (*[constants[v] for v in reads if v in constants], *eqns):
        env.update(zip(eqn.results, builder.copy(eqn, tuple([env[v] for v in eqn.operands])), strict=True))
    body = within(builder.finish([env[v] for v in made]))
    whole = {"results": len(made), "recompute": False, **attrs}
    return Eqn(checkpoint, tuple(operands), tuple(made), whole, (body,), span)
