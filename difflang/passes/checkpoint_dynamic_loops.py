"""Steps and branches with a loop of unknown length in them: reverse mode keeps what they take, and does them again.

What such a loop keeps for each of its steps is a history. Kept for each step of a loop around, or in a branch, it would
be a history of histories; where a step is done again, its histories begin and end with it.
"""

from __future__ import annotations

from difflang.ir.builder import build_region
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.op import OPS
from difflang.ir.tensor_types import History
from difflang.ops.control.checkpoint_block import emit_checkpoint


def checkpoint_dynamic_loops(graph: Graph) -> Graph:
    """The graph in which these are blocks that are computed again. Cost: linear."""
    done: dict[Graph, Graph] = {}
    endless: dict[Graph, bool] = {}
    for inner in graphs_postorder(graph)[0]:
        endless[inner] = any(is_dynamic_loop(e) or any(endless[r] for r in e.regions) for e in inner.eqns)
        eqns = [e.with_regions([done[r] for r in e.regions]) if e.regions else e for e in inner.eqns]
        new = [checkpoint_bodies(e, old, endless) for e, old in zip(eqns, inner.eqns, strict=True)]
        done[inner] = inner.with_eqns(new)
    return done[graph]


def is_dynamic_loop(eqn: Eqn) -> bool:
    """Whether only the run knows how many steps it takes."""
    return eqn.op is OPS["loop"] and not eqn.attrs["exact"]


def checkpoint_bodies(eqn: Eqn, old: Eqn, endless: dict[Graph, bool]) -> Eqn:
    """The equation whose steps, or branches, are blocks where there is such a loop in them."""
    count = {OPS["loop"]: 1, OPS["map"]: 1, OPS["cond"]: len(eqn.regions)}.get(eqn.op, 0)
    regions = list(eqn.regions)
    for i, was in enumerate(old.regions[:count]):
        if endless[was] and not any(isinstance(v.type, History) for v in (*was.params, *was.results)):
            regions[i] = wrap_in_checkpoint(regions[i])
    return eqn.with_regions(regions)


def wrap_in_checkpoint(body: Graph) -> Graph:
    types = [p.type for p in body.params]
    return build_region(
        types, lambda *xs: emit_checkpoint(xs[0].home, body, xs, len(body.results), recompute=False), body.name
    )
