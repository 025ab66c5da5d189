"""A model of XLA's fusion on the CPU: which values become arrays in memory, and in which order kernels run.

A kernel makes one or more arrays from others; values in between are computed inside it and never stored. The model has
few rules (docs/decisions/0027). `buffer_assignment` derives a program's memory from it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import compress
from operator import not_

from msgspec import Struct

from difflang.lower.jaxpr_reader import CONTROL_FLOW, ArrayValue, Computation, JaxprInstruction

# The most kernels that may each recompute one value.
MAX_KERNELS_PER_VALUE = 8


class Kernel(Struct, frozen=True, eq=False):
    """A step that makes arrays, and the arrays that it and everything fused into it read."""

    step: JaxprInstruction
    reads: tuple[ArrayValue, ...]
    # Operands that it may overwrite, since it reads each element where it writes it.
    overwritable: tuple[ArrayValue, ...]


KernelOrder = Callable[[Sequence[Kernel]], list[Kernel]]


def build_kernels(part: Computation, order: KernelOrder) -> list[Kernel]:
    """The kernels of a computation, in the given order."""
    fusion = FusionModel(part)
    found = [s for s in part.steps if not fusion.stored.isdisjoint(s.makes) or s.kind in CONTROL_FLOW]
    return order([Kernel(s, tuple(kernel_inputs(s.reads, s, fusion)), overwritable_inputs(s, fusion)) for s in found])


def overwritable_inputs(step: JaxprInstruction, fusion: FusionModel) -> tuple[ArrayValue, ...]:
    if step.kind == "update":
        places = kernel_inputs(step.reads[:1], step, fusion)
        return tuple(places) if places.keys().isdisjoint(kernel_inputs(step.reads[1:], step, fusion)) else ()
    if step.kind not in ("fused", "costly") or step.moves:
        return ()
    return tuple([v for v, moved in kernel_inputs(step.reads, step, fusion).items() if not moved])


class FusionModel:
    """Which values of a computation are arrays in memory, and which of these kernels recompute as well."""

    def __init__(self, part: Computation) -> None:
        self.maker = {v: s for s in part.steps for v in s.makes}
        self.takes = set(part.takes)
        self.readers: dict[ArrayValue, list[JaxprInstruction]] = {}
        for s in part.steps:
            for v in dict.fromkeys(s.reads):
                self.readers.setdefault(v, []).append(s)
        self.level = self.levels(part)
        self.demanded = set(part.gives)
        # For each value the arrays whose kernels compute it.
        self.inside: dict[ArrayValue, set[ArrayValue]] = {}
        self.stored: set[ArrayValue] = set()
        self.both: set[ArrayValue] = set()
        # Whether only quick steps lie between a value and its kernels.
        self.quick: dict[ArrayValue, bool] = {}
        # The arrays whose kernels contain sums, and those that are sums themselves.
        self.library: set[ArrayValue] = set()
        self.sums: set[ArrayValue] = set()
        for step in reversed(part.steps):
            self.step(step)

    def levels(self, part: Computation) -> dict[ArrayValue, int]:
        """For each value the longest chain before it of steps that have a kernel whatever reads them."""
        level: dict[ArrayValue, int] = {}
        for step in part.steps:
            costly = step.kind == "costly" and len(self.readers.get(step.makes[0], ())) > 1
            own_kernel = costly or step.kind not in ("fused", "costly", "made", "alias")
            level.update(dict.fromkeys(step.makes, max([level.get(v, 0) for v in step.reads], default=0) + own_kernel))
        return level

    def step(self, step: JaxprInstruction) -> None:
        """Decide whether a step has a kernel, after its readers have been decided."""
        made = step.makes[0] if step.makes else ArrayValue(0, (), None)
        where = self.inside.get(made, set())
        demanded = not self.demanded.isdisjoint(step.makes) or self.by_library(step, where)
        absorbed = not demanded and self.is_absorbed(step, where)
        quick = self.quick.get(made, True) and (step.quick or step.kind == "sum" or absorbed)
        if step.kind == "alias":
            self.demanded.update(step.reads[:1] if demanded else ())
        elif absorbed:
            self.library.update(where)
        elif step.kind not in ("fused", "costly", "made") or demanded or self.has_own_kernel(step, where):
            where, quick = self.kernel(step, made, where), step.quick or step.kind == "sum"
        for at, v in enumerate(step.reads):
            self.inside.setdefault(v, set()).update(where)
            self.quick[v] = self.quick.get(v, True) and quick
            arrays = step.kind in (*CONTROL_FLOW, "call", "array") or (step.kind == "product" and not absorbed)
            if arrays or (step.kind == "update" and at == 0):
                self.demanded.add(v)

    def kernel(self, step: JaxprInstruction, made: ArrayValue, where: set[ArrayValue]) -> set[ArrayValue]:
        """Record a kernel for a step; return the kernels that compute it: readers may recompute a cheap step."""
        self.stored.update(step.makes)
        if step.kind == "sum":
            self.library.add(made)
            self.sums.add(made)
        others = where - self.library
        if step.kind != "fused" or not others or self.reads_many_arrays(step):
            return {made}
        self.both.add(made)
        return {made, *others}

    def by_library(self, step: JaxprInstruction, where: set[ArrayValue]) -> bool:
        """Whether a sum needs the value as an array. A sum computes quick operands itself."""
        if self.library.isdisjoint(where):
            return False
        return not ((step.quick or step.kind in ("sum", "product", "alias")) and len(where) == 1)

    def is_absorbed(self, step: JaxprInstruction, where: set[ArrayValue]) -> bool:
        """Whether a sum or a product is fused into its only reader: after a sum, only if that is quick."""
        if len(where) != 1:
            return False
        if step.kind == "sum":
            alone = len(self.readers.get(step.makes[0], ())) == 1 and (where <= self.sums or not where & self.library)
            return alone and self.quick.get(step.makes[0], True)
        return step.kind == "product" and self.library.issuperset(where)

    def has_own_kernel(self, step: JaxprInstruction, where: set[ArrayValue]) -> bool:
        """Whether a step has its own kernel, though all its readers could compute it.

        Expensive steps run once. So does a step on several arrays whose reader also reads a later kernel made from it.
        """
        if step.kind == "made":
            return False
        readers = self.readers.get(step.makes[0], ())
        if len(where) > (1 if step.kind == "costly" else MAX_KERNELS_PER_VALUE):
            return True
        if len(readers) < 2 or not self.reads_many_arrays(step):
            return False
        before = self.level[step.makes[0]]
        return step.kind == "costly" or any(self.level.get(v, 0) > before for s in readers for v in s.reads)

    def reads_many_arrays(self, step: JaxprInstruction) -> bool:
        """Whether a step reads several arrays, rather than one array and scalars."""
        rank = len(step.makes[0].shape)
        reads = [v for v in dict.fromkeys(step.reads) if len(v.shape) >= rank and not self.is_made(v)]
        return len(reads) > 1

    def is_made(self, v: ArrayValue) -> bool:
        step = self.maker.get(v)
        return step is not None and (step.kind == "made" or step.broadcasts)


def kernel_inputs(reads: Sequence[ArrayValue], step: JaxprInstruction, fusion: FusionModel) -> dict[ArrayValue, bool]:
    """The arrays and params that a kernel reads for these values, and whether their elements are permuted on the way.

    Constants are part of the program.
    """
    found: dict[ArrayValue, bool] = {}
    todo, seen = [(v, False) for v in reads], set[tuple[ArrayValue, bool]]()
    through = fusion.both if step.kind in ("fused", "costly", "update") else ()
    while todo:
        v, moved = todo.pop()
        if (v, moved) in seen:
            continue
        seen.add((v, moved))
        if v in fusion.takes or (v in fusion.stored and v not in through):
            found[v] = found.get(v, False) or moved
        elif v in fusion.maker:
            maker = fusion.maker[v]
            todo += [(x, moved or maker.moves) for x in maker.reads]
    return found


def order_by_readiness(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Kernels in the order in which they become ready, as XLA on the CPU runs them.

    Of the kernels that one makes ready, XLA's fusions come first, the last of the program before the others.
    """
    _, readers, waits = kernel_dependencies(kernels)
    ready = deque([k for k in kernels if not waits[k]])
    order: list[Kernel] = []
    while ready:
        order.append(ready.popleft())
        for reader in fusions_first(readers.get(order[-1], ())):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return order


def order_by_memory(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Kernels in list-scheduling order: of those that are ready, the one that adds the fewest bytes.

    So does XLA, or it keeps program order, where its scheduler is set to minimize memory.
    """
    maker, readers, waits = kernel_dependencies(kernels)
    uses = Counter([v for k in kernels for v in dict.fromkeys(k.reads)])

    def bytes_added(kernel: Kernel) -> int:
        gone = [v.bytes for v in dict.fromkeys(kernel.reads) if uses[v] == 1 and v in maker]
        return sum([v.bytes for v in kernel.step.makes]) - sum(gone)

    ready = [k for k in kernels if not waits[k]]
    order: list[Kernel] = []
    while ready:
        ready.remove(kernel := min(ready, key=bytes_added))
        order.append(kernel)
        uses.subtract(dict.fromkeys(kernel.reads, 1))
        for reader in readers.get(kernel, ()):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return order


def kernel_dependencies(
    kernels: Sequence[Kernel],
) -> tuple[dict[ArrayValue, Kernel], dict[Kernel, list[Kernel]], dict[Kernel, int]]:
    """The kernel that makes each array, the kernels that read from each, and how many each waits for."""
    maker = {v: k for k in kernels for v in k.step.makes}
    readers: dict[Kernel, list[Kernel]] = {}
    waits: dict[Kernel, int] = {}
    for kernel in kernels:
        before = dict.fromkeys([maker[v] for v in kernel.reads if v in maker])
        waits[kernel] = len(before)
        for k in before:
            readers.setdefault(k, []).append(kernel)
    return maker, readers, waits


def fusions_first(readers: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that may be fusions of several equations, last first, then the others."""
    fused = [k.step.kind in ("fused", "costly") for k in readers]
    return [*compress(readers[::-1], fused[::-1]), *compress(readers, map(not_, fused))]
