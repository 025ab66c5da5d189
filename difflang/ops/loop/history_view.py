"""The histories that a loop reads, at one of its steps; and what a loop is to its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from difflang.ir.array_types import JaxArray
from difflang.ir.graph import Graph, Value
from difflang.ir.tensor_types import Type
from difflang.ops.loop.checkpoint_store import LoopRun, read_item
from difflang.ops.loop.history_value import (
    EmptyHistory,
    HistoryOutput,
    HistoryRun,
    HistorySum,
    add_items,
    unreachable_history_error,
    zero_item,
)
from difflang.ops.region_interface import HistoryValue, LoweredValue, RegionLowering

State = TypeVar("State")


class HistoryView(Struct, frozen=True, eq=False):
    """The histories at one step."""

    lowering: RegionLowering
    index: JaxArray
    low: JaxArray  # the first index of the chunk
    stores: Mapping[LoopRun, Sequence[JaxArray]]  # the slots, where the reader carries them
    chunk_states: Mapping[LoopRun, Sequence[JaxArray]]  # the recomputed states of the chunk
    replayed_outputs: dict[HistoryRun, Sequence[LoweredValue]]
    # The states that the reader itself carries.
    carried_states: dict[LoopRun, Sequence[JaxArray]] = field(default_factory=dict)

    def item(self, x: LoweredValue, type: Type) -> LoweredValue:
        jax = self.lowering.jax
        match x:
            case HistoryOutput(run, index) if isinstance(run, LoopRun):
                if run not in self.replayed_outputs:
                    self.replayed_outputs[run] = self.rerun(run, run.source.outputs)
                return self.replayed_outputs[run][index]
            case HistorySum(a, b):
                return add_items(jax, self.item(a, type), self.item(b, type))
            case EmptyHistory():
                return zero_item(jax, type)
            case HistoryValue():
                raise unreachable_history_error()
            case _:
                return read_item(jax.lax, x, self.index)

    def state(self, run: LoopRun) -> list[JaxArray]:
        """The state before this step: the reader's, or from the store if it holds all, else from the chunk."""
        lax = self.lowering.jax.lax
        if run in self.carried_states:
            return list(self.carried_states[run])
        at, ordinal = lax.sub(self.index, self.low), run.step_number(lax, self.index)
        chunk = [read_item(lax, r, at) for r in self.chunk_states.get(run, ())]
        if chunk and not run.may_store_all:
            return chunk
        kept = [read_item(lax, s, ordinal) for s in self.stores.get(run, run.slots)]
        return [lax.select(run.all_stored(lax), k, a) for k, a in zip(kept, chunk, strict=True)] if chunk else kept

    def rerun(self, run: LoopRun, graph: Graph, state: Sequence[JaxArray] | None = None) -> list[Any]:
        source = run.source
        items = [
            self.item(x, p.type) for x, p in zip(source.xs, last_params(graph.params, len(source.xs)), strict=True)
        ]
        return self.lowering.graph(
            graph, self.index, *source.fixed, *(self.state(run) if state is None else state), *items
        )


class StepLoop(Protocol[State]):
    """A loop whose steps a `HistoryReader` takes. `state` is everything that it carries."""

    @property
    def limit(self) -> JaxArray: ...
    @property
    def reverse(self) -> bool: ...
    @property
    def steps(self) -> int: ...  # the interval of its store, 0 if that decides nothing as the loop runs

    def should_continue(self, count: JaxArray, state: State) -> JaxArray: ...
    def take_step(self, count: JaxArray, index: JaxArray, view: HistoryView, state: State) -> State: ...
    # As `CheckpointStore.begin_chunk`.
    def begin_chunk(
        self, count: JaxArray, state: State, apart: JaxArray, boundary: JaxArray
    ) -> tuple[State, JaxArray]: ...


def last_params(params: Sequence[Value], count: int) -> Sequence[Value]:
    return params[len(params) - count :]
