"""What devices exchange for an equation, as it is predicted."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from difflang.base.source import Span
from difflang.ir.tensor_types import Tensor
from difflang.ops.arrays.reshard import Along

MOVES = {"all-gather": "made whole", "all-to-all": "split another way", "collective-permute": "on other devices"}


class PredictedCollective(Struct, frozen=True):
    """An exchange that an equation needs: its kind, and what each device has afterwards.

    It runs `times` in a call; None: as often as a loop of unknown length takes a step. With `declared` the program says
    so, by a type or by `reshard`.
    """

    kind: str
    type: Tensor  # on each device
    axes: Along
    span: Span
    why: str
    times: int | None = 1
    declared: bool = False

    def repeated(self, times: int | None) -> PredictedCollective:
        """The same in so many runs; None: as many as steps of a loop of unknown length."""
        return replace(self, times=None if times is None or self.times is None else self.times * times)
