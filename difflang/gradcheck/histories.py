"""Histories cannot leave a program: one is judged by a loop that reads it, put behind the equation that gives it."""

from __future__ import annotations

from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import I32, History, Tensor
from difflang.ops.ad_interface import zeros
from difflang.passes.dce import dce

INDEX = Tensor(I32)


def history_probes(graph: Graph) -> list[tuple[Eqn, Graph]]:
    """Each equation that gives histories of floats, and the graph up to it with what a loop reads of them."""
    maker = {r: e for e in graph.eqns for r in e.results}
    found: list[tuple[Eqn, Graph]] = []
    for eqn in graph.eqns:
        limits = {
            r: limit for r in eqn.results if is_readable_history(r) and (limit := loop_limit_of(r, maker)) is not None
        }
        if limits:
            found.append((eqn, build_history_probe(graph, limits)))
    return found


def is_readable_history(value: Value) -> bool:
    item = value.type.item if isinstance(value.type, History) else None
    return isinstance(item, Tensor) and item.tangent is not None


def loop_limit_of(history: Value, maker: dict[Value, Eqn]) -> Value | None:
    """The limit of the loop that wrote a history: only a loop of the same limit may read it."""
    while (eqn := maker.get(history)) is not None:
        sources = [v for v in eqn.operands if isinstance(v.type, History)]
        if not sources:
            return eqn.operands[0] if eqn.operands and eqn.operands[0].type == INDEX else None
        history = sources[0]
    return None


def build_history_probe(graph: Graph, limits: dict[Value, Value]) -> Graph:
    """The graph giving a sum of each of these histories, where earlier items count for less."""
    part = dce(graph.with_results([*limits, *limits.values()]))
    builder = Builder()
    found = builder.inline(part, *[builder.param(p.type, p.hint) for p in part.params])
    pairs = zip(found[: len(limits)], found[len(limits) :], strict=True)
    return builder.finish([decayed_sum(builder, history, limit) for history, limit in pairs])


def decayed_sum(builder: Builder, history: Value, limit: Value) -> Value:
    assert isinstance(history.type, History)
    item = history.type.item
    step = build_region([INDEX, item, item], lambda _, s, x: [s * 0.5 + x])
    _, found = OPS["loop"](
        limit, zeros(builder, item), history,
        regions=(step,), consts=0, carry=1, length=None, exact=False, reverse=False,
    )  # fmt: skip
    return found
