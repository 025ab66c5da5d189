"""The attributes of the `loop` op, and its operands by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn, Value
from difflang.ir.symbolic_dims import Dim
from difflang.ops.loop.step_transpose import INDEX

Part = TypeVar("Part")


class LoopAttrs(NamedTuple):
    """The attributes of a loop."""

    consts: int
    carry: int
    length: Dim | None
    exact: bool
    reverse: bool
    # How many states reverse mode stores, and the steps between them; 0: chosen by size. A third number means that the
    # residuals of the steps between two are buffered while these are reversed.
    keep: tuple[int, ...] = (0, 0)
    history_outputs: int = 0  # this many of the last outputs are histories although the length is known
    reversible: bool = False  # made for a derivative alone: states may be recomputed by inverse steps
    host: bool = False  # residuals are offloaded to the host

    @classmethod
    def of(cls, eqn: Eqn) -> LoopAttrs:
        return cls(**eqn.attrs)

    @property
    def recomputes_states(self) -> bool:
        """Whether reverse mode recomputes from stored states, because it does not store every step's."""
        slots, steps, *_ = self.keep
        every = isinstance(self.length, int) and steps == 1 and slots >= self.length
        return self.keep != (0, 0) and not every

    def parts(self, values: Sequence[Part]) -> LoopOperands[Part]:
        """Operands, params of the step, or masks of either, by group."""
        a, b = 1 + self.consts, 1 + self.consts + self.carry
        return LoopOperands(values[0], list(values[1:a]), list(values[a:b]), list(values[b:]))

    def derived_limit(self, builder: Builder, limit: Value) -> Value:
        """The limit of a derived loop: an exact one has a constant limit."""
        return builder.const(self.length, INDEX) if self.exact and isinstance(self.length, int) else limit


class LoopOperands(NamedTuple, Generic[Part]):
    first: Part  # the limit; of a step, the index
    consts: list[Part]
    carry: list[Part]
    xs: list[Part]
