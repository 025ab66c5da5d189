"""How values flow in and out of an equation's regions (consts, carries, items, outputs), in one form for all passes.

An op with regions declares `region_dataflow`, so passes never ask which op it is. An op without it is opaque to them:
all of its operands count as read, and nothing moves in or out of its regions.
"""

from __future__ import annotations

from msgspec import Struct

from difflang.ir.graph import Eqn

Position = int | None


class RegionSlot(Struct, frozen=True):
    """The positions of one value in an equation (operand, params, returns, result): kept or dropped together.

    A const is an operand and a param of each region. A carry is those, a value that the step returns, and a result. An
    item is an operand and a param; an output is a returned value and a result. A returned value without a result is
    always live.
    """

    operand: Position = None
    params: tuple[Position, ...] = ()  # one per region; () for none
    returns: tuple[Position, ...] = ()  # one per region: which of its results
    result: Position = None
    counted: str = ""  # the attribute that counts the slots of this kind
    invariant: bool = False  # the params are the operand itself, whenever the regions run

    @property
    def always_live(self) -> bool:
        return self.operand is None and self.result is None


class RegionDataflow(Struct, frozen=True):
    """The slots of an equation. Operands and results in no slot (a predicate, a limit, a count) are always kept."""

    slots: tuple[RegionSlot, ...]
    repeats: bool = False  # its regions run many times on the same fixed operands
    new_consts_at: Position = None  # the position of further consts, among operands and among the params of regions
    never_inlined: bool = False  # its one region is not inlined, though it runs once


def call_dataflow(eqn: Eqn) -> RegionDataflow:
    """`call(*operands) {body}`."""
    operands = [RegionSlot(i, (i,), invariant=True) for i in range(len(eqn.operands))]
    return RegionDataflow((*operands, *(RegionSlot(returns=(j,), result=j) for j in range(len(eqn.results)))))


def checkpoint_dataflow(eqn: Eqn) -> RegionDataflow:
    """`checkpoint(*operands) {body}`."""
    operands = [RegionSlot(i, (i,), invariant=True) for i in range(len(eqn.operands))]
    results = [RegionSlot(returns=(j,), result=j, counted="results") for j in range(len(eqn.results))]
    # Returned values without a result are what the block saves for reverse mode.
    saved = [RegionSlot(returns=(j,)) for j in range(len(eqn.results), len(eqn.regions[0].results))]
    return RegionDataflow((*operands, *results, *saved), never_inlined=True)


def invertible_dataflow(eqn: Eqn) -> RegionDataflow:
    """`invertible(*state, *others) {step} {back}`: each region takes and returns the state, as a loop's step does."""
    state = eqn.attrs["state"]
    assert isinstance(state, int)
    held = [RegionSlot(i, (i, i), (i, i), i, "state") for i in range(state)]
    others = [RegionSlot(i, (i, i), invariant=True) for i in range(state, len(eqn.operands))]
    return RegionDataflow(
        (*held, *others, *(RegionSlot(returns=(j, None), result=j) for j in range(state, len(eqn.results))))
    )


def cond_dataflow(eqn: Eqn) -> RegionDataflow:
    """`cond(pred, *operands) {then} {else}`."""
    operands = [RegionSlot(i + 1, (i, i), invariant=True) for i in range(len(eqn.operands) - 1)]
    return RegionDataflow((*operands, *(RegionSlot(returns=(j, j), result=j) for j in range(len(eqn.results)))))


def map_dataflow(eqn: Eqn) -> RegionDataflow:
    """`map(*consts, *xs) {body}`."""
    consts = eqn.attrs["consts"]
    assert isinstance(consts, int)
    operands = [
        RegionSlot(i, (i,), counted="consts" if i < consts else "", invariant=i < consts)
        for i in range(len(eqn.operands))
    ]
    return RegionDataflow(
        (*operands, *(RegionSlot(returns=(j,), result=j) for j in range(len(eqn.results)))),
        repeats=True,
        new_consts_at=consts,
    )


def loop_dataflow(eqn: Eqn) -> RegionDataflow:
    """`loop(limit, *consts, *carry, *xs) {step(index, ...)} [{go(index, ...)}]`."""
    consts, carry = eqn.attrs["consts"], eqn.attrs["carry"]
    assert isinstance(consts, int) and isinstance(carry, int)
    # A loop without a condition has one region; the condition takes the same params but returns no carry.
    go = len(eqn.regions) - 1
    slots = [RegionSlot(i, (i,) * (1 + go), counted="consts", invariant=True) for i in range(1, 1 + consts)]
    for k in range(carry):
        at = 1 + consts + k
        slots.append(RegionSlot(at, (at,) * (1 + go), (k, *(None,) * go), 1 + k, "carry"))
    slots += [RegionSlot(i, (i, *(None,) * go)) for i in range(1 + consts + carry, len(eqn.operands))]
    # Results are the step count, carries, outputs of arrays, and last those of histories, which are counted.
    ys, histories = range(carry, len(eqn.results) - 1), eqn.attrs.get("history_outputs", 0)
    counted = [""] * (len(ys) - histories) + ["history_outputs"] * histories
    slots += [RegionSlot(returns=(j, *(None,) * go), result=1 + j, counted=c) for j, c in zip(ys, counted, strict=True)]
    return RegionDataflow(tuple(slots), repeats=True, new_consts_at=1 + consts)
