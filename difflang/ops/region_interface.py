"""What the rules of ops with regions get to lower and to interpret these, and the values that flow through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Protocol

from msgspec import Struct

from difflang.ir.array_types import Array, Jax, JaxArray
from difflang.ir.graph import Eqn, Graph, Value
from difflang.ir.interpreter import TextSink
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import Tensor


class HistoryValue(Struct, frozen=True, eq=False):
    """A history during lowering; see `loop.history_value`."""


LoweredValue = JaxArray | HistoryValue
# In the interpreter a history is a list of its items.
ReferenceValue = Array | list["ReferenceValue"]
# Interprets a graph on values: the first argument of the reference of an op with regions.
Evaluate = Callable[Concatenate[Graph, ...], list[Any]]


class RegionLowering(Protocol):
    """Lowers regions: the first argument of the lowering rule of an op with regions, or with an effect.

    What it returns are arrays, or `HistoryValue`s where the results of the graph are histories.
    """

    in_loop: bool
    batch_size: int  # the product of the batch sizes of enclosing maps

    @property
    def jax(self) -> Jax: ...
    @property
    def platform(self) -> str: ...
    @property
    def on_print(self) -> TextSink: ...
    def graph(self, graph: Graph, *arrays: LoweredValue) -> list[Any]: ...
    def call(self, body: Graph, *arrays: LoweredValue) -> list[Any]: ...
    def lower_isolated(self, body: Graph, *arrays: LoweredValue) -> list[Any]: ...
    def restrict_results(self, region: Graph, results: Sequence[Value]) -> Graph: ...
    def zeros_on_host(self, like: Tensor) -> JaxArray: ...
    def batch_scope(self, count: int) -> AbstractContextManager[None]: ...
    def loop_scope(self) -> AbstractContextManager[None]: ...


# An output of a node of the dataflow machine.
Port = Any


class StackStorage(Protocol):
    """Where a device of the dataflow machine keeps what its loops push on stacks."""

    def keep(self, value: Any) -> Any: ...
    def zeros(self, item: Tensor, length: Dim) -> Any: ...
    def fetch(self, sequence: Any, item: Any) -> Any: ...


class DataflowLowering(Protocol):
    """Lowers regions to nodes of the dataflow machine: the first argument of `RegionRules.dataflow_lower_rule`."""

    def graph(self, graph: Graph, inputs: Sequence[Port]) -> list[Port]: ...
    def cond(self, predicate: Port, inputs: Sequence[Port], regions: Sequence[Graph]) -> list[Port]: ...
    def compute(self, what: str, function: Callable[..., Any], *inputs: Port) -> Port: ...

    # The function receives the `StackStorage` of the device first.
    def compute_with_storage(self, what: str, function: Callable[..., Any], *inputs: Port) -> Port: ...
    def unpack(self, packed: Port, count: int) -> list[Port]: ...

    # `go` and `step` receive the ports of what is fixed and of the values that change, inside the loop.
    def while_loop(
        self, fixed: Sequence[Port], start: Sequence[Port],
        go: Callable[[list[Port], list[Port]], Port], step: Callable[[list[Port], list[Port]], list[Port]],
        *, effectful: bool = False,
    ) -> list[Port]: ...  # fmt: skip


def region_to_dataflow(lowering: DataflowLowering, eqn: Eqn, inputs: Sequence[Port]) -> list[Port]:
    """The dataflow rule of an op whose results are the first ones of its first region."""
    return lowering.graph(eqn.regions[0], inputs)[: len(eqn.results)]
