"""The JAX primitive for difflang programs, and its rules for JAX's transformations: each rule gives a derived program.

So `jax.grad`, `jax.jvp`, `jax.vmap`, `scan`, `checkpoint` and their combinations differentiate and batch our functions
by our own rules, to any order. Only this module uses JAX's internal rule registries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.dtypes
import jax.extend.core
from jax.experimental import io_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe
from jax.sharding import AbstractMesh

from difflang.base.errors import classify_errors
from difflang.embed.derived_programs import EmbeddedProgram, Mask, PipelineHooks, select_by_mask
from difflang.embed.lower_program import abstract_array, axes_of_entry, lower_program, mesh_sizes, varying_axes
from difflang.ir.graph import Graph
from difflang.ir.interpreter import discard_text
from difflang.ir.tensor_types import Tensor, Type, numpy_dtype
from difflang.ops.arrays.reshard import Split
from difflang.runtime.compile import options_of, refuse_prints_elsewhere
from difflang.runtime.devices import check_divides, device_of, refuse_scattered
from difflang.sharding.entry_splits import check_placements
from difflang.sharding.mesh_splits import result_splits
from difflang.sharding.region_splits import whole_split

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


# ---- Types and execution


def abstract_eval(*avals: Any, program: EmbeddedProgram) -> tuple[list[Any], Any]:
    """The types of its results, and its effects: prints are ordered."""
    effects = ordered_print_effects() if program.graph.effectful else jax.extend.core.no_effects
    results = program.graph.results
    like = next((a for a in avals if varying_axes(a)), next((a for a in avals if a.sharding.mesh.axis_names), None))
    if like is not None:
        refuse_undivided(program, like.sharding.mesh)
    splits = result_splits_of(avals, program) if like is not None else [whole_split(r.type) for r in results]
    return [abstract_array(r.type, like, s) for r, s in zip(results, splits, strict=True)], effects


def refuse_undivided(program: EmbeddedProgram, mesh: Any) -> None:
    """Errors: DL0603 for a size that the program splits along axes of a mesh that do not divide it."""
    sizes = mesh_sizes(mesh)

    def check() -> None:
        with classify_errors():
            check_placements(program.graph, sizes)

    program.cached(("divided", tuple(sizes.items())), check)


def result_splits_of(avals: Sequence[Any], program: EmbeddedProgram) -> Sequence[Split]:
    """How results are split, where the axes of a mesh are explicit in the types of JAX. Errors: DL0604, DL0605."""
    params = tuple([tuple([axes_of_entry(e) for e in a.sharding.spec]) for a in avals])
    mesh = dict(next((a.sharding.mesh.shape for a in avals if any(a.sharding.spec)), {}))

    def find() -> list[Split]:
        with classify_errors():
            return result_splits(program.graph, params, mesh)

    return program.cached(("splits", params, tuple(mesh.items())), find)


@cache
def ordered_print_effects() -> Any:
    """The effect that JAX gives an ordered callback."""
    return jax.make_jaxpr(lambda: io_callback(print, None, ordered=True))().effects


def run_compiled(*arrays: Array, program: EmbeddedProgram) -> list[Array]:
    """Run outside of any trace, as when `jax.grad` is not inside `jax.jit`: compiled once. Errors: DL0609."""
    device = device_of(arrays)
    compiled = program.cached(("jitted", device.platform), lambda: jit_program(program, device))
    try:
        with jax.enable_x64(True), jax.disable_jit(False):
            return compiled(*arrays)
    except ValueError:
        placed = [x.sharding if isinstance(x, jax.Array) and x.committed else None for x in arrays]
        refuse_scattered(placed, param_names(program.graph))
        raise


def param_names(graph: Graph) -> list[str]:
    return [p.hint or f"argument {i}" for i, p in enumerate(graph.params, 1)]


def jit_program(program: EmbeddedProgram, device: Any) -> Callable[..., list[Array]]:
    """The program as JAX compiles it for devices of the kind of this one."""
    options = options_of(program.finished_graph, device)
    return jax.jit(lambda *xs: program_p.bind(*xs, program=program), compiler_options=options or None)


def lower_placed(graph: Graph, shardings: Sequence[Any], platform: str | None = None) -> Any:
    """JAX's lowered program of a finished graph, its first params split like this; None says nothing of devices.

    Errors: DL0603 to DL0605; DL0609 for params on devices that differ; DL1221.
    """
    placed = [*shardings, *[None] * (len(graph.params) - len(shardings))]
    structs: list[Any] = []
    for param, name, sharding in zip(graph.params, param_names(graph), placed, strict=True):
        assert isinstance(param.type, Tensor)
        if sharding is not None:
            check_divides(sharding, param.type, name)
        structs.append(jax.ShapeDtypeStruct(param.type.shape, numpy_dtype(param.type.dtype), sharding=sharding))
    hooks = PipelineHooks(finish=lambda graph: graph, on_print=discard_text, report=lambda number: None)
    program = EmbeddedProgram(graph, hooks)
    abstract = any(isinstance(getattr(s, "mesh", None), AbstractMesh) for s in placed)
    wanted = platform or (jax.default_backend() if abstract else None)
    refuse_scattered(placed, param_names(graph))
    if wanted is not None:
        refuse_prints_elsewhere(graph, wanted)

    def run(*arrays: Array) -> list[Array]:
        return program_p.bind(*arrays, program=program)

    run.__name__ = run.__qualname__ = str(program)
    with jax.enable_x64(True):
        return jax.jit(run, keep_unused=True).trace(*structs).lower(lowering_platforms=(wanted,) if wanted else None)


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
