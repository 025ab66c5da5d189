"""A history is read where its maker can be run again: by an equation of the same kind, over the same steps.

Derivatives are made that way: a branch's residuals are read in the same branch, a loop's by a loop of its own count.
Lowering relies on it (see `ops.saved`), so it is looked at here, where a count or a condition is one value.
"""

from __future__ import annotations

from collections.abc import Iterator

from difflang.base.diagnostics import DifflangError
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.op import OPS
from difflang.ir.types import History
from difflang.lower.locations import placed
from difflang.ops.cond import cond
from difflang.ops.loop import Form, loop
from difflang.ops.map import map_
from difflang.ops.saved import no_history


def refuse_strays(graph: Graph) -> None:
    """Errors: DL0801 for a history that is read elsewhere."""
    makers = [e for e in graph.eqns if e.regions and any(isinstance(r.type, History) for r in e.results)]
    for maker in makers:
        for made in maker.results:
            if isinstance(made.type, History):
                try:
                    follow(graph, made, maker, steps_of(maker))
                except DifflangError as error:
                    raise placed(error, maker) from None


def steps_of(maker: Eqn) -> Value | None:
    """What its readers must share with it: a count, a condition. None where the type says enough."""
    if maker.op is cond:
        return maker.operands[0]
    return maker.results[0] if maker.op is loop and Form.of(maker).length is None else None


def counts(graph: Graph) -> dict[Value, Value]:
    """The limits that are the counts of loops: those without a condition take every step."""
    return {e.results[0]: e.operands[0] for e in graph.eqns if e.op is loop and len(e.regions) == 1}


def follow(graph: Graph, history: Value, maker: Eqn, shared: Value | None) -> None:
    """Look at every equation that the history comes to."""
    limits = counts(graph)
    while shared in limits:
        shared = limits[shared]
    for eqn in graph.eqns:
        for place in [i for i, v in enumerate(eqn.operands) if v is history]:
            if eqn.op is OPS["add_history"]:
                follow(graph, eqn.results[0], maker, shared)
            elif not reads(eqn, place, maker, shared, limits):
                for region, at in entered(eqn, place):
                    inner = None if shared is None else param_of(eqn, shared, region)
                    if shared is not None and inner is None:
                        raise no_history()
                    follow(region, region.params[at], maker, inner)


def reads(eqn: Eqn, place: int, maker: Eqn, shared: Value | None, limits: dict[Value, Value]) -> bool:
    """Whether the history is read step by step, lane by lane, in the branch: and then by the same ones."""
    key = eqn.operands[0]
    while key in limits:
        key = limits[key]
    if eqn.op is loop and place > Form.of(eqn).consts:
        form, made = Form.of(eqn), Form.of(maker) if maker.op is loop else None
        in_step = place > form.consts + form.carry and made is not None and made.length == form.length
        good = in_step and len(eqn.regions) == 1 and (shared is None or key is shared)
    elif eqn.op is map_ and place >= consts_of(eqn):
        good = maker.op is map_ and maker.attrs["length"] == eqn.attrs["length"]
    elif eqn.op is cond and maker.op is cond:
        good = key is shared
    else:
        return False
    if not good:
        raise no_history()
    return True


def consts_of(eqn: Eqn) -> int:
    consts = eqn.attrs["consts"]
    assert isinstance(consts, int)
    return consts


def entered(eqn: Eqn, place: int) -> Iterator[tuple[Graph, int]]:
    """The regions that a value passes into as it is, and which param it is there."""
    if not eqn.regions:
        raise no_history()
    for region in eqn.regions:
        yield region, place - 1 if eqn.op is cond else place


def param_of(eqn: Eqn, value: Value, region: Graph) -> Value | None:
    """What a value is called inside, if it passes into the region as it is."""
    for place, operand in enumerate(eqn.operands):
        fixed = eqn.op is not loop or 0 < place <= Form.of(eqn).consts
        if operand is value and fixed and (eqn.op is not map_ or place < consts_of(eqn)):
            at = place - 1 if eqn.op is cond else place
            return region.params[at] if at >= 0 else None
    return None
