"""Programs on a mesh of devices: compiled by XLA's partitioner, and the collectives in them, by source line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from msgspec import Struct
from msgspec.structs import replace

from difflang.base.wording import count_of
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import Tensor, numpy_dtype
from difflang.ops.arrays.reshard import Split
from difflang.runtime.compile import compile_graph
from difflang.runtime.profiler_traces import (
    BRANCHES,
    COMPUTATION_REFERENCE,
    FRAME,
    HEAD,
    INSTRUCTION,
    TRIPS,
    SourceLine,
    parse_stack_frames,
)

HOST_DEVICES_FLAG = "--xla_force_host_platform_device_count"  # in XLA_FLAGS
MeshAxes = Mapping[str, int]  # the size of each axis, by name
COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast))(-start)?\("
)
SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
GROUPS = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
IOTA_GROUPS = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{}]*\})\}")
ELEMENT_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
                 "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16}  # fmt: skip


class Collective(Struct, frozen=True):
    """One operation in which devices exchange data.

    `bytes` is its result on each device, in `shape`. It runs `times` in a call; None: as often as a loop of unknown
    length takes a step. `axes` are those of the mesh along which data move.
    """

    kind: str
    shape: str
    bytes: int
    times: int | None
    axes: tuple[str, ...]
    line: SourceLine | None
    why: str = ""

    @property
    def parts(self) -> list[Collective]:
        """The exchange of each array, where XLA has made one of several; of an all-to-all these are pieces of one."""
        if self.kind == "all-to-all":
            return [self]
        return [replace(self, shape=shape, bytes=shape_bytes(shape)) for shape in self.shape.split(" ")]

    @property
    def alike(self) -> tuple[object, ...]:
        """What two exchanges that are one have in common: XLA may see more axes, another shape, or another line."""
        return self.kind, self.bytes, self.times


class PartitionedProgram(Struct, frozen=True):
    """What XLA made of a program on a mesh: its collectives, and bytes on each device."""

    collectives: tuple[Collective, ...]
    argument_bytes: int
    result_bytes: int
    temporary_bytes: int


def pretend_devices(count: int) -> None:
    """Have JAX split this machine's processor into so many devices, unless it has started, or the user set that."""
    if HOST_DEVICES_FLAG in os.environ.get("XLA_FLAGS", ""):
        return
    with suppress(RuntimeError):  # JAX has started
        jax.config.update("jax_num_cpu_devices", count)
        if not os.environ.get("JAX_PLATFORMS"):
            jax.config.update("jax_platforms", "cpu")


def compile_on_mesh(graph: Graph, axes: MeshAxes, splits: Sequence[Split]) -> PartitionedProgram:
    """Compile a finished graph for devices of this process, its params split so. XLA decides how results are split.

    Errors: RuntimeError if there are fewer devices than the mesh has.
    """
    devices = jax.devices()
    count = prod(axes.values())
    if len(devices) < count:
        raise RuntimeError(f"there {'is' if len(devices) == 1 else 'are'} {count_of(len(devices), 'device')}")
    places = np.array(devices[:count]).reshape(tuple(axes.values()))
    mesh = Mesh(places, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    shapes = [
        jax.ShapeDtypeStruct(p.type.shape, numpy_dtype(p.type.dtype), sharding=sharding_of_split(mesh, s))
        for p, s in zip(graph.params, splits, strict=True)
        if isinstance(p.type, Tensor)
    ]
    with jax.enable_x64(True), jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        compiled = jax.jit(compile_graph(graph)).lower(*shapes).compile()
    memory: Any = compiled.memory_analysis()
    return PartitionedProgram(
        tuple(find_collectives(compiled.as_text() or "", axes)),
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
    )


def sharding_of_split(mesh: Mesh, split: Split) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*[along or None for along in split]))


def find_collectives(text: str, axes: MeshAxes) -> Iterator[Collective]:
    """The collectives of a compiled program, from its text in HLO."""
    frames, times = parse_stack_frames(text), computation_runs(text)
    computation = ""
    for row in text.splitlines():
        found = COLLECTIVE.search(row)
        if found is None:
            computation = head[1] if (head := HEAD.match(row)) is not None else computation
            continue
        shapes = SHAPE.findall(found[1])
        # The result of a start is a pair of its operand and what it will give.
        shapes = shapes[len(shapes) // 2 :] if found[3] and len(shapes) > 1 else shapes
        texts = [f"{dtype}[{dims}]" for dtype, dims in shapes]
        frame = FRAME.search(row)
        yield Collective(
            found[2], " ".join(texts), sum(map(shape_bytes, texts)), times.get(computation, 1),
            crossed_axes(row, axes), frames.get(int(frame[1])) if frame else None,
        )  # fmt: skip


def shape_bytes(text: str) -> int:
    """The bytes of an array of a shape as XLA writes it, `f32[16,4]`."""
    return sum([ELEMENT_BYTES.get(dtype, 0) * size_of(dims) for dtype, dims in SHAPE.findall(text)])


def size_of(dims: str) -> int:
    return prod([int(n) for n in dims.split(",") if n])


def computation_runs(text: str) -> dict[str, int | None]:
    """How often a call runs each computation; None if a loop of unknown length runs it. A branch counts as taken."""
    uses: dict[str, list[tuple[str, int | None]]] = {}
    computation, order = "", list[str]()
    for row in text.splitlines():
        if (head := HEAD.match(row)) is not None:
            computation = head[1]
            order.append(computation)
        elif (made := INSTRUCTION.match(row)) is not None and (found := used_computations(row)):
            trips = TRIPS.search(row)
            steps = (int(trips[1]) if trips else None) if made[2] == "while" else 1
            uses.setdefault(computation, []).extend([(name, steps) for name in found])
    runs: dict[str, int | None] = dict.fromkeys(order, 0)
    if order:
        runs[order[-1]] = 1  # XLA prints a computation after those that it uses
    for outer in reversed(order):
        for name, steps in uses.get(outer, ()):
            before, here = runs.get(name, 0), runs[outer]
            runs[name] = None if before is None or here is None or steps is None else before + here * steps
    return runs


def used_computations(row: str) -> list[str]:
    branches = BRANCHES.search(row)
    named = [part.strip().removeprefix("%") for part in branches[1].split(",")] if branches else []
    return [*named, *COMPUTATION_REFERENCE.findall(row)]


def crossed_axes(row: str, axes: MeshAxes) -> tuple[str, ...]:
    """The axes of the mesh along which a collective moves data: of the smallest set that contains each group."""
    ids = np.arange(prod(axes.values())).reshape(tuple(axes.values()))
    groups = communicating_groups(row)
    if groups is None:
        return tuple(axes)
    places = {int(n): place for place, n in np.ndenumerate(ids)}
    for count in range(len(axes) + 1):
        for chosen in combinations(range(len(axes)), count):
            fixed = [i for i in range(len(axes)) if i not in chosen]
            if all(len({places[n][i] for n in group if n in places}) <= 1 for group in groups for i in fixed):
                return tuple([name for i, name in enumerate(axes) if i in chosen])
    return tuple(axes)


def communicating_groups(row: str) -> list[list[int]] | None:
    """The devices that communicate with each other; None if all do."""
    if (iota := IOTA_GROUPS.search(row)) is not None:
        dims = [int(n) for n in iota[3].split(",")]
        ids = np.arange(prod(dims)).reshape(dims)
        if iota[4]:
            ids = ids.transpose([int(n) for n in iota[4].split(",")])
        return ids.reshape(int(iota[1]), int(iota[2])).tolist()
    found = PAIRS.search(row) or GROUPS.search(row)
    if found is None:
        return None
    return [[int(n) for n in group.split(",") if n] for group in re.findall(r"\{([\d,]*)\}", found[1])]
