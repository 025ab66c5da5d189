"""What a history is while a program is lowered: no array, but a way to have its items again.

The one that makes a history keeps little (a loop some of its states, a branch or a map nothing), and the one that reads
it runs that part again. So memory does not grow with the number of steps, and nothing of run-time length crosses a
region. `tape` keeps the states of loops and `reader` has the others again; here are the other kinds, and sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from difflang.base.diagnostics import Diagnostic, DifflangError, InternalError
from difflang.ir.graph import Graph
from difflang.ir.interpreter import zero_array
from difflang.ir.tensor_types import History, Tensor, Type
from difflang.ops.control.print_effect import without_prints

Array = Any


class HistoryValue(Struct, frozen=True, eq=False):
    """A history."""


class EmptyHistory(HistoryValue, frozen=True, eq=False):
    """It reads zero everywhere."""


class HistorySum(HistoryValue, frozen=True, eq=False):
    """Item by item."""

    x: HistoryValue
    y: HistoryValue


class HistoryOutput(HistoryValue, frozen=True, eq=False):
    """What number `index` of the histories that a run gives is."""

    run: HistoryRun
    index: int


class HistoryRun(Struct, frozen=True, eq=False):
    """An equation with regions that gives histories, and what it was given."""


class CondRun(HistoryRun, frozen=True, eq=False):
    """A cond: the branch that was taken is run again where the history is read, in the same branch."""

    regions: tuple[Graph, ...]  # giving the histories alone
    arrays: Sequence[Any]


class MapRun(HistoryRun, frozen=True, eq=False):
    """A map: each lane is run again where it is read, in the same lane."""

    body: Graph  # giving the histories alone
    fixed: Sequence[Any]
    xs: Sequence[Any]


class HistoryReplay(Struct, frozen=True, eq=False):
    """Histories in a place where their makers can be run again, each once."""

    rerun: Callable[[HistoryRun], Sequence[Any]]
    done: dict[HistoryRun, Sequence[Any]] = field(default_factory=dict)

    def __call__(self, x: Any) -> Any:
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
    """The places of tensors and of histories."""
    places = range(len(types))
    return [i for i in places if isinstance(types[i], Tensor)], [i for i in places if isinstance(types[i], History)]


def merge_histories(tensors: Sequence[Any], histories: Sequence[Any], types: Sequence[Type]) -> list[Any]:
    """Both again in their places."""
    rest, saved = iter(tensors), iter(histories)
    return [next(rest) if isinstance(t, Tensor) else next(saved) for t in types]


def restrict_region(lowering: Any, region: Graph, places: Sequence[int]) -> Graph:
    """The region giving only some of its results."""
    return lowering.restrict_results(region, [region.results[i] for i in places])


def restrict_silently(lowering: Any, region: Graph, places: Sequence[int]) -> Graph:
    """The same for another run of it, which says nothing."""
    return restrict_region(lowering, without_prints(region), places)


def zero_item(jax: Any, type: Type) -> Any:
    if isinstance(type, History):
        return EmptyHistory()
    return jax.lax.full(type.shape, zero_array(Tensor(type.dtype)))


def add_items(jax: Any, x: Any, y: Any) -> Any:
    """The sum of two items; of two truths, whether one holds."""
    if isinstance(x, HistoryValue):
        return y if isinstance(x, EmptyHistory) else x if isinstance(y, EmptyHistory) else HistorySum(x, y)
    return jax.lax.bitwise_or(x, y) if x.dtype == np.bool_ else jax.lax.add(x, y)


def unreachable_history_error() -> InternalError:
    """Programs that read a history elsewhere than beside its maker do not come so far: see `lower.histories`."""
    return InternalError("a history is read where it cannot be had")


def too_many_loops_error(runs: int, most: int) -> DifflangError:
    """A loop that reads more loops than are run again beside it. Each order of reverse mode doubles their number."""
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
