"""How a program is lowered as a part of one of JAX: on the devices of its arguments, for one or more platforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.source_info_util import user_context
from jax.interpreters import mlir
from jax.sharding import AxisType, ManualAxisType, NamedSharding, PartitionSpec

from difflang.embed.derived_programs import EmbeddedProgram
from difflang.ir.graph import Graph
from difflang.ir.tensor_types import Tensor, Type, numpy_dtype
from difflang.lower.graph_to_jax import Lowering
from difflang.ops.arrays.reshard import Split
from difflang.ops.device_regions import splits_left_to_xla
from difflang.passes.drop_placements import has_placements
from difflang.sharding.entry_splits import entry_splits
from difflang.sharding.pin_splits import pin_splits
from difflang.sharding.region_splits import whole_split

Array = Any


def varying_axes(aval: Any) -> frozenset[str]:
    """The mesh axes along which a value varies from device to device, inside `shard_map`."""
    return aval.manual_axis_type.varying


def abstract_array(type: Type, like: Any = None, split: Split = ()) -> Any:
    """A type as JAX's abstract array: on the mesh of `like`, and inside `shard_map` varying as that does."""
    assert isinstance(type, Tensor)
    dtype = numpy_dtype(type.dtype)
    if like is None:
        return jax.core.ShapedArray(type.shape, dtype)
    entries = [along if len(along) > 1 else along[0] if along else None for along in split or whole_split(type)]
    kind = ManualAxisType(varying=varying_axes(like))
    sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*entries))
    return jax.core.ShapedArray(type.shape, dtype, sharding=sharding, manual_axis_type=kind)


class NoTraceback:
    """Stands for the traceback of a call, at which JAX would locate every operation of the program that is called."""

    def __bool__(self) -> bool:
        return False

    def as_python_traceback(self) -> None:
        """What JAX adds to exceptions."""


NO_TRACEBACK: Any = NoTraceback()


def lower_program(ctx: Any, *operands: Any, program: EmbeddedProgram) -> Any:
    """Lower the finished graph, each equation with its own source position; one function per module."""
    platform = (ctx.platforms or ctx.module_context.platforms)[0]
    avals = (*ctx.avals_in, *ctx.avals_out)
    mesh = next((a.sharding.mesh for a in avals if a.sharding.mesh.axis_names), None)
    placed = mesh is not None and has_placements(program.graph)
    params = declared_params(program.finished_graph, ctx.avals_in, mesh) if placed else None
    sizes = mesh_sizes(mesh) if params is not None else {}
    function = program.cached(
        ("function", platform, params, tuple(sizes.items())),
        lambda: jit_finished_graph(program, platform, params, sizes),
    )
    with jax.enable_x64(True), user_context(NO_TRACEBACK):
        plain = ctx.replace(
            avals_in=[abstract_array(p.type) for p in program.graph.params], dim_var_values=wide_platform_index(ctx)
        )
        if mesh is not None:
            function = on_mesh(function, mesh, ctx.avals_out)
        results = mlir.lower_fun(function)(plain, *operands)
    if plain.tokens_out is not None:
        ctx.set_tokens_out(plain.tokens_out)
    return results


def wide_platform_index(ctx: Any) -> list[Any]:
    """The number of the platform, which a module for several of them takes: functions expect 64 bits of it here."""
    number = jax.core.ShapedArray((), np.dtype(np.int32))
    widen = mlir.lower_fun(lambda i: i.astype(np.int64), multiple_results=False)
    return [widen(ctx.replace(avals_in=[number], tokens_in=mlir.TokenSet()), i)[0] for i in ctx.dim_var_values]


def on_mesh(function: Callable[..., list[Array]], mesh: Any, avals: Sequence[Any]) -> Callable[..., list[Array]]:
    """The function on a mesh: inside of it XLA splits what the program does not say.

    Along explicit axes its results are split as their types in JAX say.
    """
    inside = mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, AxisType.Auto))

    def run(*arrays: Array) -> list[Array]:
        with jax.sharding.use_abstract_mesh(inside):
            found = function(*arrays)
        if not mesh.explicit_axes:
            return found
        return [jax.sharding.reshard(y, a.sharding) for y, a in zip(found, avals, strict=True)]

    return run


def mesh_sizes(mesh: Any) -> dict[str, int]:
    """The sizes of the axes along which XLA splits a program."""
    return {name: mesh.shape[name] for name in mesh.axis_names if name not in mesh.manual_axes}


def declared_params(graph: Graph, avals: Sequence[Any], mesh: Any) -> tuple[Split, ...] | None:
    """How each param of a graph is split, by its type in JAX or as the program declares it; None if that is unknown."""
    found: list[Split] = []
    for param, aval, split in zip(graph.params, avals, entry_splits(graph), strict=True):
        if mesh.explicit_axes:
            split = tuple([axes_of_entry(entry) for entry in aval.sharding.spec])
        elif split is None and aval.shape:
            return None
        found.append(split or whole_split(param.type))
    return tuple(found)


def axes_of_entry(entry: Any) -> tuple[str, ...]:
    """The mesh axes that an entry of a `PartitionSpec` names."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def jit_finished_graph(
    program: EmbeddedProgram, platform: str, params: Sequence[Split] | None, mesh: Mapping[str, int]
) -> Callable[..., list[Array]]:
    """The finished graph as a function that JAX traces once, however many programs it is a part of.

    If its params are known to be split over a mesh, it says how its values are.
    """
    graph, checked = program.finished_graph, program.failure_index
    if params is not None:
        graph = pin_splits(graph, params, mesh)

    def function(*arrays: Array) -> list[Array]:
        with splits_left_to_xla(params is None):
            found = Lowering(jax, platform, program.hooks.on_print).graph(graph, *arrays)
        if checked is not None:
            report_failed_check(program, found[checked])
        return found

    function.__name__ = function.__qualname__ = str(program)
    return jax.jit(function)


def report_failed_check(program: EmbeddedProgram, word: Array) -> None:
    """Report the number of a failed check when the program runs."""

    def send_report(word: Array) -> None:
        for number in np.unique(np.asarray(word)):
            if number:
                program.hooks.report(int(number))

    failed = jax.numpy.any(word != 0)
    jax.lax.cond(failed, lambda w: jax.debug.callback(send_report, w), lambda w: None, word)
