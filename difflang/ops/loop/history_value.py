"""History values during lowering: not arrays, but recipes to recompute their items where they are read.

The producer of a history stores little (a loop some of its states, a branch or a map nothing), and its reader reruns
that part. So memory does not grow with the number of steps, and nothing of run-time length crosses a region.
`checkpoint_store` stores the states of loops and `history_replay` recomputes the others; here are histories of branches
and maps, and sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, field

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.ir.array_types import Jax
from difflang.ir.graph import Graph
from difflang.ir.interpreter import zero_array
from difflang.ir.tensor_types import History, Tensor, Type
from difflang.ops.control.print_effect import without_prints
from difflang.ops.region_interface import HistoryValue, LoweredValue, RegionLowering


class EmptyHistory(HistoryValue, frozen=True, eq=False):
    """A history that reads zero everywhere."""


class HistorySum(HistoryValue, frozen=True, eq=False):
    """The sum of two histories, item by item."""

    x: LoweredValue
    y: LoweredValue


class HistoryOutput(HistoryValue, frozen=True, eq=False):
    """Number `index` of the histories that a run produced."""

    run: HistoryRun
    index: int


class HistoryRun(Struct, frozen=True, eq=False):
    """A lowered equation with regions that produces histories, and its operands."""


class CondRun(HistoryRun, frozen=True, eq=False):
    """A cond: the branch taken is rerun where the history is read, in the same branch."""

    regions: tuple[Graph, ...]  # with the histories as only results
    arrays: Sequence[LoweredValue]


class MapRun(HistoryRun, frozen=True, eq=False):
    """A map: each instance is rerun where it is read, in the same instance."""

    body: Graph  # with the histories as only results
    fixed: Sequence[LoweredValue]
    xs: Sequence[LoweredValue]


class HistoryReplay(Struct, frozen=True, eq=False):
    """Replaces histories by recomputed ones where their producers can be rerun; each producer is rerun once."""

    rerun: Callable[[HistoryRun], Sequence[LoweredValue]]
    done: dict[HistoryRun, Sequence[LoweredValue]] = field(default_factory=dict)

    def __call__(self, x: LoweredValue) -> LoweredValue:
        match x:
            case HistoryOutput(run, index) if isinstance(run, (CondRun, MapRun)):
                if run not in self.done:
                    self.done[run] = self.rerun(run)
                return self.done[run][index]
            case HistorySum(a, b):
                return HistorySum(self(a), self(b))
            case _:
                return x


def split_histories(types: Sequence[Type]) -> tuple[list[int], list[int]]:
    """The indices of tensors and of histories."""
    places = range(len(types))
    return [i for i in places if isinstance(types[i], Tensor)], [i for i in places if isinstance(types[i], History)]


def merge_histories(
    tensors: Sequence[LoweredValue], histories: Sequence[LoweredValue], types: Sequence[Type]
) -> list[LoweredValue]:
    """The inverse of `split_histories`: tensors and histories in the order of `types`."""
    rest, saved = iter(tensors), iter(histories)
    return [next(rest) if isinstance(t, Tensor) else next(saved) for t in types]


def restrict_region(lowering: RegionLowering, region: Graph, places: Sequence[int]) -> Graph:
    """The region with only some of its results."""
    return lowering.restrict_results(region, [region.results[i] for i in places])


def restrict_silently(lowering: RegionLowering, region: Graph, places: Sequence[int]) -> Graph:
    """The same without prints, for a rerun."""
    return restrict_region(lowering, without_prints(region), places)


def zero_item(jax: Jax, type: Type) -> LoweredValue:
    if isinstance(type, History):
        return EmptyHistory()
    return jax.lax.full(type.shape, zero_array(Tensor(type.dtype)))


def add_items(jax: Jax, x: LoweredValue, y: LoweredValue) -> LoweredValue:
    """The sum of two items; for booleans, whether one holds."""
    if isinstance(x, HistoryValue):
        return y if isinstance(x, EmptyHistory) else x if isinstance(y, EmptyHistory) else HistorySum(x, y)
    assert not isinstance(y, HistoryValue)
    return jax.lax.bitwise_or(x, y) if x.dtype == np.bool_ else jax.lax.add(x, y)


def unreachable_history_error() -> InternalError:
    """A bug: `lower.check_history_reads` keeps programs out that read a history away from its producer."""
    return InternalError("a history is read where its producer cannot be replayed")


def too_many_loops_error(runs: int, most: int) -> DifflangError:
    """A loop that reads too many source loops. Each order of reverse mode doubles their number."""
    return DifflangError(
        Diagnostic(
            "DL1013",
            (
                f"reverse mode would run {runs} more loops beside this one, but at most {most} are allowed: "
                "five levels of reverse mode"
            ),
            helps=("use `jvp` of the gradient if one direction is enough: forward mode adds no loops",),
        )
    )
