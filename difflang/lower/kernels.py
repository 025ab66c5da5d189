"""Which loops run as one kernel on the CPU: those of functions that call themselves, where a step is little work.

XLA runs the instructions of a loop one by one, each a task that takes 0.1 µs to begin, and a step of a machine has fifty
of them on single numbers. It has another way, a kernel that holds a whole computation, which it takes by itself for the
smallest loops only. `jax.Lowering.whole` asks for it. A machine's step is a hundred times as fast so.
"""

from __future__ import annotations

from math import prod

from difflang.ir.graph import Eqn, Graph, Value, inner_first
from difflang.ir.types import Tensor

MOST = 4096  # elements of what a step computes; beyond, its instructions are worth being run by themselves
SIMPLE = frozenset(  # besides elementwise ops, what XLA emits within a kernel
    {"call", "cond", "loop", "const", "iota", "broadcast", "reshape", "transpose", "reverse", "concat", "slice", "pad"}
    | {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_all", "reduce_any"}
    | {"dynamic_slice", "dynamic_update", "exchange"}
)
IN_PLACE = frozenset({"exchange", "cond", "loop"})  # what may pass a large array on


def is_one_kernel(step: Graph) -> bool:
    """Whether a loop with this step is a machine, and does nothing that a kernel cannot hold.

    Cost: one walk over the step.
    """
    if not any(e.op.name == "exchange" for e in step.eqns):
        return False
    graphs, _ = inner_first(step)
    return all(map(is_simple, [eqn for graph in graphs for eqn in graph.eqns]))


def is_simple(eqn: Eqn) -> bool:
    known = eqn.op.elementwise or eqn.op.name in SIMPLE
    return known and (eqn.op.name in IN_PLACE or all(map(is_small, eqn.results)))


def is_small(value: Value) -> bool:
    return isinstance(value.type, Tensor) and prod([n for n in value.type.shape if isinstance(n, int)]) <= MOST
