"""How values flow in and out of an equation's regions (consts, carries, items, outputs), in one form for all passes.

An op with regions declares `region_dataflow`, a function of its equations, so passes never ask which op it is. An op
without it is opaque to them: all of its operands count as read, and nothing moves in or out of its regions.
"""

from __future__ import annotations

from msgspec import Struct

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
    independent: bool = False  # its runs read nothing of each other: devices may run some each, `along` a mesh axis
    never_inlined: bool = False  # its one region is not inlined, though it runs once
