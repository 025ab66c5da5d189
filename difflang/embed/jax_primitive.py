"""The JAX primitive for difflang programs, and its rules for JAX's transformations: each rule gives a derived program.

So `jax.grad`, `jax.jvp`, `jax.vmap`, `scan`, `checkpoint` and their combinations differentiate and batch our functions
by our own rules, to any order. Only this module uses JAX's internal rule registries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.core
import jax.dtypes
import jax.extend.core
import numpy as np
from jax.experimental import io_callback
from jax.extend.core import Primitive
from jax.extend.source_info_util import user_context
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe
from jax.sharding import AxisType, ManualAxisType, NamedSharding, PartitionSpec

from difflang.analysis.mesh_splits import Split, result_splits, whole_split
from difflang.base.errors import classify_errors
from difflang.embed.derived_programs import EmbeddedProgram, Mask, select_by_mask
from difflang.ir.tensor_types import Tensor, Type, numpy_dtype
from difflang.lower.graph_to_jax import Lowering
from difflang.runtime.compile import options_of
from difflang.runtime.devices import device_of, refuse_scattered

Array = Any
program_p = Primitive("difflang")
program_p.multiple_results = True


def bind_program(program: EmbeddedProgram, arrays: Sequence[Array]) -> list[Array]:
    """The results of a program on arrays, in whatever JAX transformation is active."""
    # A memory limit that cannot be kept fails here: while JAX lowers a program, it hides the program's lines.
    if program.hooks.limit:
        with classify_errors():
            program.finished_graph  # noqa: B018
    with jax.enable_x64(True):
        typed = [cast_to_param(x, p.type) for x, p in zip(arrays, program.graph.params, strict=True)]
        return list(program_p.bind(*unify_varying_axes(typed), program=program))


def cast_to_param(x: Array, type: Type) -> Array:
    """An array of the param's element type; JAX may have narrowed f64 to f32."""
    assert isinstance(type, Tensor)
    dtype = numpy_dtype(type.dtype)
    return x if getattr(x, "dtype", None) == dtype else jax.lax.convert_element_type(x, dtype)


def unify_varying_axes(arrays: Sequence[Array]) -> list[Array]:
    """The arrays, inside `shard_map` all marked as varying along the mesh axes along which any of them varies."""
    axes = [varying_axes(jax.typeof(x)) for x in arrays]
    union = frozenset[str]().union(*axes)
    return [
        jax.lax.pcast(x, tuple(sorted(union - here)), to="varying") if here != union else x
        for x, here in zip(arrays, axes, strict=True)
    ]


def varying_axes(aval: Any) -> frozenset[str]:
    """The mesh axes along which a value varies from device to device, inside `shard_map`."""
    return aval.manual_axis_type.varying


# ---- Types and execution


def abstract_eval(*avals: Any, program: EmbeddedProgram) -> tuple[list[Any], Any]:
    """The types of its results, and its effects: prints are ordered."""
    effects = ordered_print_effects() if program.graph.effectful else jax.extend.core.no_effects
    results = program.graph.results
    like = next((a for a in avals if varying_axes(a)), next((a for a in avals if a.sharding.mesh.axis_names), None))
    splits = result_splits_of(avals, program) if like is not None else [whole_split(r.type) for r in results]
    return [abstract_array(r.type, like, s) for r, s in zip(results, splits, strict=True)], effects


def result_splits_of(avals: Sequence[Any], program: EmbeddedProgram) -> Sequence[Split]:
    """How results are split, where the axes of a mesh are explicit in the types of JAX. Errors: DL0604, DL0605."""
    params = tuple([tuple([axes_of_entry(e) for e in a.sharding.spec]) for a in avals])
    mesh = dict(next((a.sharding.mesh.shape for a in avals if any(a.sharding.spec)), {}))

    def find() -> list[Split]:
        with classify_errors():
            return result_splits(program.graph, params, mesh)

    return program.cached(("splits", params, tuple(mesh.items())), find)


def axes_of_entry(entry: Any) -> tuple[str, ...]:
    """The mesh axes that an entry of a `PartitionSpec` names."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


@cache
def ordered_print_effects() -> Any:
    """The effect that JAX gives an ordered callback."""
    return jax.make_jaxpr(lambda: io_callback(print, None, ordered=True))().effects


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


def run_compiled(*arrays: Array, program: EmbeddedProgram) -> list[Array]:
    """Run outside of any trace, as when `jax.grad` is not inside `jax.jit`: compiled once. Errors: DL0609."""
    device = device_of(arrays)
    compiled = program.cached(("jitted", device.platform), lambda: jit_program(program, device))
    try:
        with jax.enable_x64(True):
            return compiled(*arrays)
    except ValueError:
        refuse_scattered(arrays, [p.hint or f"argument {i}" for i, p in enumerate(program.graph.params, 1)])
        raise


def jit_program(program: EmbeddedProgram, device: Any) -> Callable[..., list[Array]]:
    """The program as JAX compiles it for devices of the kind of this one."""
    options = options_of(program.finished_graph, device)
    return jax.jit(lambda *xs: program_p.bind(*xs, program=program), compiler_options=options or None)


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
    function = program.cached(("function", platform), lambda: jit_finished_graph(program, platform))
    with jax.enable_x64(True), user_context(NO_TRACEBACK):
        plain = ctx.replace(
            avals_in=[abstract_array(p.type) for p in program.graph.params], dim_var_values=wide_platform_index(ctx)
        )
        results = mlir.lower_fun(with_declared_shardings(function, ctx.avals_out))(plain, *operands)
    if plain.tokens_out is not None:
        ctx.set_tokens_out(plain.tokens_out)
    return results


def wide_platform_index(ctx: Any) -> list[Any]:
    """The number of the platform, which a module for several of them takes: functions expect 64 bits of it here."""
    number = jax.core.ShapedArray((), np.dtype(np.int32))
    widen = mlir.lower_fun(lambda i: i.astype(np.int64), multiple_results=False)
    return [widen(ctx.replace(avals_in=[number], tokens_in=mlir.TokenSet()), i)[0] for i in ctx.dim_var_values]


def with_declared_shardings(function: Callable[..., list[Array]], avals: Sequence[Any]) -> Callable[..., list[Array]]:
    """The function, whose results are split as their types say. Inside of it XLA splits what it likes."""
    mesh = next((a.sharding.mesh for a in avals if a.sharding.mesh.explicit_axes), None)
    if mesh is None:
        return function
    inside = mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, AxisType.Auto))

    def run(*arrays: Array) -> list[Array]:
        with jax.sharding.use_abstract_mesh(inside):
            found = function(*arrays)
        return [jax.sharding.reshard(y, a.sharding) for y, a in zip(found, avals, strict=True)]

    return run


def jit_finished_graph(program: EmbeddedProgram, platform: str) -> Callable[..., list[Array]]:
    """The finished graph as a function that JAX traces once, however many programs it is a part of."""
    graph, checked = program.finished_graph, program.failure_index

    def function(*arrays: Array) -> list[Array]:
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


# ---- Derivatives


def jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, program: EmbeddedProgram
) -> tuple[list[Array], list[Any]]:
    """The jvp rule: value and tangent in one program."""
    active = tuple([has_tangent(t) for t in tangents])
    if not any(active):
        results = bind_program(program, primals)
        return results, [zero_tangent(y) for y in results]
    found = bind_program(program.jvp(active), [*primals, *select_by_mask(tangents, active)])
    return split_tangents(program, found)


def split_tangents(program: EmbeddedProgram, found: Sequence[Array]) -> tuple[list[Array], list[Any]]:
    count = len(program.graph.results)
    dys = iter(found[count:])
    results = list(found[:count])
    return results, [
        next(dys) if s else zero_tangent(y) for y, s in zip(results, program.differentiable_results, strict=True)
    ]


def has_tangent(tangent: Any) -> bool:
    return not isinstance(tangent, ad.Zero) and getattr(tangent, "dtype", None) != jax.dtypes.float0


def zero_tangent(result: Array) -> Any:
    return ad.Zero(jax.typeof(result).to_tangent_aval())


def partial_eval(trace: Any, *tracers: Any, program: EmbeddedProgram) -> list[Any]:
    """The partial evaluation rule: reverse mode computes the values now and the tangents later."""
    origin = program.origin
    count = len(origin.base.graph.params) if origin is not None else 0
    known = [t.pval.get_known() for t in tracers]
    if origin is None or origin.tangent_only or any(x is None for x in known[:count]) or None not in known[count:]:
        return trace.default_process_primitive(program_p, tracers, {"program": program})
    halves = origin.base.split(origin.active)
    found = bind_program(halves.first, known[:count])
    results = len(origin.base.graph.results)
    kept = known[:count] if halves.residuals_are_arguments else found[results:]
    later = [*[trace.new_const(x) for x in kept], *tracers[count:]]
    dys = trace.default_process_primitive(program_p, later, {"program": halves.tangent})
    return [*[trace.new_const(y) for y in found[:results]], *dys]


def partial_eval_eqn(_: Any, unknown: Sequence[bool], instantiated: Sequence[bool], eqn: Any) -> Any:
    """The same for an equation in `jax.checkpoint`: known results are computed now, and all of them again later."""
    program: EmbeddedProgram = eqn.params["program"]
    origin = program.origin
    needed = [
        x for x, there in zip(eqn.invars, instantiated, strict=True) if not there and isinstance(x, jax.extend.core.Var)
    ]
    count = len(origin.base.graph.params) if origin is not None else 0
    if origin is None or origin.tangent_only or any(unknown[:count]):
        everything = [True] * len(eqn.outvars)
        return None, eqn, everything, everything, needed
    results = len(origin.base.graph.results)
    known = eqn.replace(
        invars=eqn.invars[:count], outvars=eqn.outvars[:results], params={**eqn.params, "program": origin.base}
    )
    later = [i >= results for i in range(len(eqn.outvars))]
    return known, eqn, later, [True] * len(eqn.outvars), needed


def transpose(cts: Sequence[Any], *arguments: Any, program: EmbeddedProgram) -> list[Any]:
    """The transpose rule of a linear program."""
    # JAX's inner product of complex numbers has no conjugate and ours has one, so cotangents are conjugated.
    linear = tuple([ad.is_undefined_primal(x) for x in arguments])
    smooth = select_by_mask(cts, program.differentiable_results)
    arriving = tuple([has_tangent(ct) for ct in smooth])
    known = select_by_mask(arguments, tuple([not z for z in linear]))
    transposed = transposed_program(program, linear, arriving)
    found = iter(bind_program(transposed, [*known, *[conjugate(ct) for ct in select_by_mask(smooth, arriving)]]))
    return [reshard_like(conjugate(next(found)), x.aval) if z else None for x, z in zip(arguments, linear, strict=True)]


def reshard_like(ct: Array, aval: Any) -> Array:
    """A cotangent with the sharding of its primal, where mesh axes are part of JAX's types."""
    return jax.sharding.reshard(ct, aval.sharding) if any(aval.sharding.spec) else ct


def transposed_program(program: EmbeddedProgram, linear: Mask, arriving: Mask) -> EmbeddedProgram:
    """The transpose of a program; that of a tangent program is the vjp of its primal program."""
    origin = program.origin
    if origin is not None and origin.tangent_only:
        count = len(origin.base.graph.params)
        if linear == tuple([i >= count for i in range(len(linear))]):
            return origin.base.pulled(origin.active, arriving)
    return program.transposed(linear, arriving)


def conjugate(x: Array) -> Array:
    return jax.lax.conj(x) if jax.numpy.iscomplexobj(x) else x


# ---- Batching


def batch(arrays: Sequence[Array], dims: Sequence[Any], *, program: EmbeddedProgram) -> tuple[list[Array], list[Any]]:
    """The vmap rule: the program for each item of the batch."""
    # If only tangents are batched, as in `jax.jacfwd`, the value is computed once.
    origin = program.origin
    if origin is not None and not origin.tangent_only:
        count = len(origin.base.graph.params)
        if all(d is None for d in dims[:count]):
            results = bind_program(origin.base, arrays[:count])
            tangents, batched = batch(arrays, dims, program=origin.base.tangent_program(origin.active))
            return [*results, *tangents], [*[None] * len(results), *batched]
    batched = tuple([d is not None for d in dims])
    with jax.enable_x64(True):
        moved = [jax.numpy.moveaxis(x, d, 0) if d is not None else x for x, d in zip(arrays, dims, strict=True)]
    length = next(x.shape[0] for x in select_by_mask(moved, batched))
    found = bind_program(program.vmap(batched, length), moved)
    return found, [0] * len(found)


program_p.def_impl(run_compiled)
program_p.def_effectful_abstract_eval(abstract_eval)
mlir.register_lowering(program_p, lower_program)
mlir.register_lowering(program_p, partial(lower_program), platform="cpu")  # where it differs: another rule for JAX
ad.primitive_jvps[program_p] = jvp
ad.primitive_transposes[program_p] = transpose
pe.custom_partial_eval_rules[program_p] = partial_eval
pe.partial_eval_jaxpr_custom_rules[program_p] = partial_eval_eqn
batching.primitive_batchers[program_p] = batch
