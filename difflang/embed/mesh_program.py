"""Programs on a mesh of devices: arguments are put where their types say, and XLA partitions the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.base.wording import count_of
from difflang.embed.derived_programs import EmbeddedProgram, PipelineHooks
from difflang.embed.jax_primitive import bind_program, lower_placed
from difflang.ir.graph import Graph
from difflang.ir.interpreter import TextSink, discard_text
from difflang.ops.arrays.reshard import Split
from difflang.ops.control.print_effect import has_check_messages
from difflang.runtime import pytrees
from difflang.runtime.argument_conversion import argument_converter
from difflang.runtime.joined_processes import broadcast_json
from difflang.sharding.entry_splits import entry_splits
from difflang.sharding.region_splits import whole_split

__all__ = [
    "Mesh",
    "MeshProgram",
    "compile_on_devices",
    "find_mesh",
    "lower_on_mesh",
    "mesh_sharding",
    "place_arguments",
    "put_parts",
    "splits_or_whole",
]

Array = Any


class SplitArray:
    """An array whose parts are in several processes. NumPy gets it whole: each process must ask, in the same order."""

    def __init__(self, parts: jax.Array) -> None:
        self.parts, self.shape, self.dtype = parts, parts.shape, parts.dtype

    @cached_property
    def whole(self) -> np.ndarray:
        return pytrees.host_array(self.parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.whole, dtype, copy=copy)

    def block_until_ready(self) -> SplitArray:
        self.parts.block_until_ready()
        return self


def readable(array: jax.Array) -> jax.Array | SplitArray:
    """An array that NumPy can read."""
    return array if array.is_fully_addressable or array.is_fully_replicated else SplitArray(array)


class MeshProgram:
    """A finished graph as a callable on a mesh. `on_print` receives what it prints.

    On the devices of several processes, each must call it.
    """

    orders = low_memory = False  # XLA chooses the order of kernels

    def __init__(self, graph: Graph, mesh: Mesh, on_print: TextSink = discard_text) -> None:
        self.graph, self.mesh, self.on_print = graph, mesh, on_print
        self.explains = jax.process_count() > 1 and has_check_messages(graph)
        self.failures: list[tuple[int, str]] = []  # messages of failed checks that process 0 has received
        hooks = PipelineHooks(finish=lambda graph: graph, on_print=self.hear, report=lambda number: None)
        self.program = EmbeddedProgram(graph, hooks)
        self.converters = [argument_converter(p.type, p.hint or f"argument {i}") for i, p in enumerate(graph.params, 1)]

    def __call__(self, *given: Any) -> list[Array]:
        parts = [x.parts if isinstance(x, SplitArray) else x for x in given]
        arrays = [convert(x) for convert, x in zip(self.converters, parts, strict=True)]
        results = bind_program(self.program, place_arguments(arrays, self.graph, self.mesh))
        # Exchanges of a few calls that are under way at once stop each other on the processor's threads.
        if self.mesh.devices.flat[0].platform == "cpu":
            jax.block_until_ready(results)
        if self.graph.effectful:
            jax.effects_barrier()
        if self.explains:
            self.tell_failures()
        return [readable(y) for y in results]

    def hear(self, site: int, text: str) -> None:
        """Take a text that the program prints, in process 0; the message of a failed check waits for the others."""
        if self.explains and site:
            self.failures.append((site, text))
        else:
            self.on_print(site, text)

    def tell_failures(self) -> None:
        """Give the messages of failed checks to every process."""
        found, self.failures = self.failures, []
        for site, text in broadcast_json(found):
            self.on_print(site, text)

    @property
    def memory_bytes(self) -> int:
        """What one device needs: arguments, results and temporary buffers."""
        shardings = [mesh_sharding(self.mesh, s) for s in splits_or_whole(self.graph)]
        sizes: Any = lower_placed(self.graph, shardings).compile().memory_analysis()
        return sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes


def compile_on_devices(graph: Graph, mesh: Mesh, *, sparing: bool = False) -> MeshProgram:
    """A finished graph as a program on a mesh, to be measured."""
    assert not sparing
    return MeshProgram(graph, mesh)


def lower_on_mesh(graph: Graph, axes: Mapping[str, int], platform: str | None = None) -> str:
    """StableHLO of a finished graph for a mesh whose devices need not be there. Errors: DL0603, DL1221."""
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    return lower_placed(graph, [mesh_sharding(mesh, s) for s in splits_or_whole(graph)], platform).as_text()


def find_mesh(axes: Mapping[str, int]) -> Mesh:
    """A mesh of the devices of this process. Errors: DL0601 for fewer devices than it has."""
    devices, count = jax.devices(), prod(axes.values())
    if len(devices) != count and jax.process_count() > 1:
        message = (
            f"the mesh has {count_of(count, 'device')}, but the {jax.process_count()} processes have {len(devices)}"
        )
        raise DifflangError(Diagnostic("DL0601", message, helps=("each process must have an equal part of the mesh",)))
    if len(devices) < count:
        message = f"the mesh has {count_of(count, 'device')}, but there {'is' if len(devices) == 1 else 'are'}"
        way = f"to try it on one processor: `XLA_FLAGS=--xla_force_host_platform_device_count={count}`"
        raise DifflangError(Diagnostic("DL0601", f"{message} {count_of(len(devices), 'device')} here", (), (way,)))
    places = np.array(devices[:count]).reshape(tuple(axes.values()))
    return Mesh(places, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def check_mesh(given: object) -> Mesh | None:
    """The mesh for sizes by axis, `{"data": 4}`, or for a mesh of JAX. Errors: DL1207 for anything else; DL0601."""
    if given is None or isinstance(given, Mesh):
        return given
    if isinstance(given, Mapping):
        sizes: Mapping[object, object] = given
        named = {name: size for name, size in sizes.items() if isinstance(name, str) and type(size) is int and size > 0}
        if len(named) == len(sizes):
            return find_mesh(named)
    way = 'write `mesh={"data": 4}`, or give a `jax.sharding.Mesh`'
    raise DifflangError(Diagnostic("DL1207", f"`mesh` is no mesh of devices: {given!r:.80}", (), (way,)))


def place_arguments(arrays: Sequence[Any], graph: Graph, mesh: Mesh) -> list[Array]:
    """The arguments on the mesh: those that are not there yet as their types declare, or whole on every device."""
    with jax.enable_x64(True):
        return [
            x if is_on(x, mesh) else put_whole(x, mesh_sharding(mesh, split))
            for x, split in zip(arrays, splits_or_whole(graph), strict=True)
        ]


def put_whole(array: Any, sharding: NamedSharding) -> Array:
    """An array that this process has whole, and all others too, on the devices of a mesh."""
    if jax.process_count() == 1:
        return jax.device_put(array, sharding)
    whole = np.asarray(array)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def put_parts(
    mesh: Mesh, split: Split, shape: tuple[int, ...], part: Callable[[tuple[slice, ...]], np.ndarray]
) -> jax.Array | SplitArray:
    """An array on a mesh, of whose parts each process makes its own. Errors: those of `part`."""
    made: dict[str, np.ndarray] = {}  # devices that have the same part ask for it one by one

    def part_of_device(index: Any) -> np.ndarray:
        if str(index) not in made:
            made[str(index)] = part(index)
        return made[str(index)]

    with jax.enable_x64(True):
        return readable(jax.make_array_from_callback(shape, mesh_sharding(mesh, split), part_of_device))


def is_on(array: Any, mesh: Mesh) -> bool:
    """Whether an array was put on the devices of a mesh, and on no other mesh of them."""
    if not isinstance(array, jax.Array) or not array.committed or array.sharding.device_set != set(mesh.devices.flat):
        return False
    other = getattr(array.sharding, "mesh", mesh)
    return dict(other.shape) == dict(mesh.shape) and list(other.devices.flat) == list(mesh.devices.flat)


def splits_or_whole(graph: Graph) -> list[Split]:
    """How each param of a graph is put on a mesh."""
    return [split or whole_split(p.type) for p, split in zip(graph.params, entry_splits(graph), strict=True)]


def mesh_sharding(mesh: Any, split: Split) -> NamedSharding:
    """A split as JAX has it, without axes that the mesh does not have."""
    spec = [tuple([a for a in along if a in mesh.axis_names]) or None for along in split]
    return NamedSharding(mesh, PartitionSpec(*spec))
