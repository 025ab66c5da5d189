"""How ops run on each device of a mesh by itself, with what it has of their operands."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any

import numpy as np

from difflang.ir.array_types import Jax, JaxArray

LEFT_TO_XLA: ContextVar[bool] = ContextVar("left_to_xla", default=False)


@contextmanager
def splits_left_to_xla(left: bool) -> Generator[None]:
    """Whether what is lowered here does not say how its arrays are split."""
    token = LEFT_TO_XLA.set(left)
    try:
        yield
    finally:
        LEFT_TO_XLA.reset(token)


def mesh_here(jax: Jax) -> tuple[Any, frozenset[str]]:
    """The mesh that a program is lowered for, and its axes along which XLA splits arrays."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh, frozenset(mesh.axis_names) - frozenset(mesh.manual_axes)


def mesh_axes(jax: Jax) -> frozenset[str]:
    """The axes of that mesh; none on one device."""
    return mesh_here(jax)[1]


def whole_axes(jax: Jax, x: JaxArray, axes: Sequence[int]) -> JaxArray:
    """An array of which every device has the whole of these axes; as it is, if there is no mesh."""
    mesh, free = mesh_here(jax)
    if not axes or not free:
        return x
    sharding, anyhow = jax.sharding, jax.sharding.PartitionSpec.UNCONSTRAINED
    spec = sharding.PartitionSpec(*[None if a in axes else anyhow for a in range(x.ndim)])
    return jax.lax.with_sharding_constraint(x, sharding.NamedSharding(mesh, spec))


def whole_uneven_axes(jax: Jax, x: JaxArray, axes: Sequence[int]) -> JaxArray:
    """An array of which every device has the whole of those axes that XLA may split into parts of several sizes."""
    mesh, free = mesh_here(jax)
    count = prod([mesh.shape[a] for a in free]) if LEFT_TO_XLA.get() else 1
    return whole_axes(jax, x, [a for a in axes if x.shape[a] % count])


def partition_spec(jax: Jax, split: Sequence[tuple[str, ...]], free: frozenset[str]) -> Any:
    """How an array is split, without axes that the mesh does not have."""
    return jax.sharding.PartitionSpec(*[tuple([a for a in along if a in free]) or None for along in split])


def on_each_device(
    jax: Jax, run: Callable[..., tuple[Any, ...]], arrays: Sequence[Any], given: Sequence[Any], found: Any
) -> tuple[Any, ...]:
    """`run` on each device, with its part of each array as `given` splits it; the results are split as `found`."""
    _, free = mesh_here(jax)
    return jax.shard_map(run, in_specs=tuple(given), out_specs=found, axis_names=free, check_vma=False)(*arrays)


def permute_parts(jax: Jax, here: JaxArray, along: Sequence[str], pairs: Sequence[tuple[int, int]]) -> JaxArray:
    """The part that another device has; `pairs` say who sends to whom, numbered along these mesh axes in this order."""
    mesh, _ = mesh_here(jax)
    # `ppermute` numbers devices in the order of the mesh, whatever the order of its axes in the call.
    ordered = [a for a in mesh.axis_names if a in along]
    numbers = np.arange(np.prod([mesh.shape[a] for a in ordered], dtype=int)).reshape([mesh.shape[a] for a in ordered])
    renumbered = numbers.transpose([ordered.index(a) for a in along]).ravel().tolist()
    return jax.lax.ppermute(here, tuple(ordered), [(renumbered[i], renumbered[j]) for i, j in pairs])


def part_of_neighbour(jax: Jax, here: JaxArray, along: Sequence[str], distance: int) -> JaxArray:
    """The part that the device so many further on along these mesh axes has; zeros where there is none."""
    mesh, _ = mesh_here(jax)
    count = int(np.prod([mesh.shape[a] for a in along], dtype=int))
    pairs = [(i + distance, i) for i in range(count) if 0 <= i + distance < count]
    return permute_parts(jax, here, along, pairs) if pairs else jax.lax.full_like(here, 0)
