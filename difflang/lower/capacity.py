"""Capacities for recursion depth, saved loop steps and dynamic loop outputs, and how they grow on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from difflang.base.check_sites import CheckSite, CheckTable
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.symbolic_dims import Dim
from difflang.ir.tensor_types import History, Type
from difflang.ops.control.derivative_operators import vjp
from difflang.passes.dynamic_loop_outputs import arrays_to_histories
from difflang.passes.substitute_dims import CAPACITY_PREFIX, DimValues, substitute_graph_dims
from difflang.recursion.drop_step_limit_in_loops import drop_step_limit_in_loops

T = TypeVar("T")

# A number of steps that stands for no limit. It is also the largest legal size, so an array may be as long.
UNBOUNDED = 2**31 - 1
# The factor by which each capacity grows when a run exceeds it.
GROWTH = {"frames": 4, "steps": 8, "items": 8}
MAX_CAPACITY = {"frames": 1 << 20, "steps": 1 << 24, "items": 1 << 24}
CAPACITY_LABELS = {"frames": "nested calls", "steps": "steps of reverse-mode loops"}
# Fewer frames: the interpreter copies the whole stack at every step.
MAX_INTERPRETED_FRAMES = 1 << 12


class Capacity(Struct, frozen=True):
    """Limits on recursion depth (frames), loop steps with stored residuals, and outputs of dynamic loops (items)."""

    frames: int
    steps: int
    items: int = 256

    def grown(self, site: CheckSite, *, interpreted: bool = False) -> Capacity | None:
        """This capacity with more of what the failed check exceeded; `None` at the maximum, or for other checks."""
        if not site.capacity:
            return None
        now = asdict(self)[site.capacity]
        most = MAX_INTERPRETED_FRAMES if interpreted and site.capacity == "frames" else MAX_CAPACITY[site.capacity]
        return replace(self, **{site.capacity: now * GROWTH[site.capacity]}) if now < most else None


INITIAL_CAPACITY = Capacity(64, 4096)


class Growable(Generic[T]):
    """A value built for some capacity, and rebuilt for a larger one when a run exceeds it."""

    def __init__(self, make: Callable[[Capacity], T], capacity: Capacity = INITIAL_CAPACITY) -> None:
        self.build, self.capacity = make, capacity
        self.made = make(capacity)

    def grow(self, checks: CheckTable, number: int, *, interpreted: bool = False) -> bool:
        """Whether the check with that number failed for lack of capacity, and the value was rebuilt with more."""
        more = self.capacity.grown(checks.sites[number - 1], interpreted=interpreted)
        if more is not None:
            self.capacity, self.made = more, self.build(more)
        return more is not None


def with_capacity(graph: Graph, capacity: Capacity, *, arrays: bool = False) -> Graph:
    """The graph with its capacities in numbers. Steps inside loops are not limited.

    Outputs of dynamic loops are histories, which need no capacity, unless `arrays` is set or that is not possible.
    """
    freely = None if arrays else arrays_to_histories(graph)
    return substitute_graph_dims(
        drop_step_limit_in_loops(graph if freely is None else freely), capacity_numbers(capacity)
    )


def capacity_numbers(capacity: Capacity) -> DimValues:
    """The values of the capacities' symbolic names."""
    numbers = asdict(capacity)
    return lambda n: numbers[n.removeprefix(CAPACITY_PREFIX)]


def capacities_used(graph: Graph, capacity: Capacity) -> dict[str, int]:
    """Which entries of `CAPACITY_LABELS` a graph uses, and how much of each; steps only where there is a vjp."""
    found: set[str] = set()
    number = capacity_numbers(capacity)

    def record(name: str) -> Dim:
        found.add(name.removeprefix(CAPACITY_PREFIX))
        return number(name)

    substitute_graph_dims(graph, record)
    if not any(eqn.op is vjp for inner in graphs_postorder(graph)[0] for eqn in inner.eqns):
        found.discard("steps")
    return {key: amount for key, amount in asdict(capacity).items() if key in found & CAPACITY_LABELS.keys()}


def describe_capacity(capacity: Mapping[str, int]) -> str:
    return ", and ".join(f"{capacity[key]:,} {text}" for key, text in CAPACITY_LABELS.items() if key in capacity)


def stores_unbounded_steps(graph: Graph) -> bool:
    """Whether a graph stores an array over `UNBOUNDED` many steps."""
    graphs, _ = graphs_postorder(graph)
    return any(is_unbounded(r.type) for g in graphs for eqn in g.eqns for r in eqn.results)


def is_unbounded(type: Type) -> bool:
    return not isinstance(type, History) and UNBOUNDED in type.shape
