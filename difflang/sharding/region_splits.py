"""How splits of arrays over a mesh go into regions and come out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from difflang.ir.graph import Eqn, graphs_postorder
from difflang.ir.region_dataflow import RegionSlot
from difflang.ir.tensor_types import History, Tensor, Type
from difflang.ops.arrays.reshard import Along, Split
from difflang.ops.loop.checkpoint_store import find_state_carries
from difflang.ops.loop.loop_attrs import LoopAttrs
from difflang.ops.loop.loop_op import loop


def array_shape(type: Type) -> tuple[object, ...]:
    """The shape of an array, or of the items of a history."""
    return array_shape(type.item) if isinstance(type, History) else type.shape


def whole_split(type: Type) -> Split:
    """The split of what every device has the whole of; a history is split as its items."""
    return ((),) * len(array_shape(type))


def joined(slot: RegionSlot, splits: Sequence[Split], whole: set[tuple[RegionSlot, int]]) -> Split:
    """How several splits of one array go together: what is whole somewhere can be cut; of two ways none is taken."""
    found: list[Along] = []
    for i, here in enumerate(zip(*splits, strict=True)):
        ways = set(filter(None, here))
        if len(ways) > 1:
            whole.add((slot, i))
        found.append(ways.pop() if len(ways) == 1 and (slot, i) not in whole else ())
    return tuple(found)


def steps_of(eqn: Eqn) -> int | None:
    """How many steps a loop takes, if that is known."""
    length = eqn.attrs.get("length") if eqn.attrs.get("exact", True) else None
    return length if isinstance(length, int) else None


def runs_of_regions(eqn: Eqn) -> int | None:
    """How often the regions of a loop run in XLA's program, if that is not decided as it runs: what reads histories, or
    stores each so many states, goes from one stored state to the next.
    """
    reads = any(isinstance(v.type, History) for v in eqn.operands)
    slots, interval, *_ = eqn.attrs.get("keep", (0, 0))
    return None if reads or (interval and not slots) else steps_of(eqn)


def lane(eqn: Eqn, slot: RegionSlot, split: Split) -> Along:
    """Along what the instances of the regions are split, as far as one operand of them tells."""
    return split[0] if split and is_item(eqn, 0, slot) else ()


def runs_by_device(eqn: Eqn) -> bool:
    """Whether each device runs the instances that lie there by itself: each takes a number of steps of its own.

    Side by side on all devices, a step would wait for every instance of the others.
    """
    graphs, _ = graphs_postorder(eqn.regions[0])
    whole = eqn.operands[: eqn.attrs.get("consts", 0)]
    return (
        not any(g.effectful for g in graphs)
        and all(isinstance(v.type, Tensor) for v in whole)
        and any(counts_own_steps(e) for g in graphs for e in g.eqns)
    )


def counts_own_steps(eqn: Eqn) -> bool:
    """Whether an equation is a loop of unknown length."""
    flow = eqn.op.region_dataflow(eqn) if eqn.op.region_dataflow is not None else None
    carries = flow is not None and any(s.operand is not None and s.result is not None for s in flow.slots)
    return flow is not None and flow.repeats and carries and steps_of(eqn) is None


def stores_states(eqn: Eqn) -> bool:
    """Whether a loop stores states as it runs: it asks its condition at each step, and where it decides to store."""
    return any(isinstance(r.type, History) for r in eqn.results)


def alone(eqn: Eqn, slot: RegionSlot, split: Split, lanes: Along) -> Split:
    """How devices that run instances by themselves take an operand: their items, and all else whole."""
    first = lanes if is_item(eqn, 0, slot) else ()
    return tuple([() if i else first for i in range(len(split))])


def is_item(eqn: Eqn, region: int, slot: RegionSlot) -> bool:
    """Whether each run of a region takes one item of the operand."""
    at = slot.params[region]
    if slot.operand is None or at is None:
        return False
    whole, item = eqn.operands[slot.operand].type, eqn.regions[region].params[at].type
    return isinstance(whole, Tensor) and isinstance(item, Tensor) and whole.rank == item.rank + 1


def region_params(eqn: Eqn, region: int, starts: Mapping[RegionSlot, Split]) -> list[Split]:
    found = [whole_split(p.type) for p in eqn.regions[region].params]
    for slot, split in starts.items():
        at = slot.params[region] if slot.params else None
        if at is not None:
            found[at] = split[1:] if is_item(eqn, region, slot) else split
    return found


def returned(slot: RegionSlot, ends: Sequence[Sequence[Split]]) -> list[Split]:
    """The splits of what the regions give back for a slot."""
    return [end[at] for end, at in zip(ends, slot.returns, strict=False) if at is not None]


def region_results(eqn: Eqn, region: int, returns: Mapping[RegionSlot, Split]) -> list[Split | None]:
    """How a region gives back each of its results; None for what flows nowhere."""
    found: list[Split | None] = [None] * len(eqn.regions[region].results)
    for slot, split in returns.items():
        at = slot.returns[region] if region < len(slot.returns) else None
        if at is not None:
            found[at] = split
    return found


def lasting_results(eqn: Eqn) -> list[int]:
    """The results of the first region that are computed as it runs: of a loop's step all but the items of histories."""
    again = replayed_results(eqn)[0] if eqn.op is loop and stores_states(eqn) else []
    return [i for i in range(len(eqn.regions[0].results)) if i not in again]


def replayed_results(eqn: Eqn) -> list[list[int]]:
    """What a loop that reads the histories of this one computes again: their items, and the states that are not stored.

    As positions of results of this loop's step.
    """
    form, step = LoopAttrs.of(eqn), eqn.regions[0]
    items = [i for i in range(form.carry, len(step.results)) if isinstance(eqn.results[1 + i].type, History)]
    first = 1 + form.consts
    gives = step.with_results([step.results[i] for i in items])
    return [items, list(find_state_carries(step, gives, range(first, first + form.carry)))]
