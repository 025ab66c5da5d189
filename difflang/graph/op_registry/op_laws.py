"""The laws of ops: what holds for every op, on calls that are drawn from its samples. `check_op` runs them.

Those of derivatives are in `gradcheck`, for the tests of the package too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from difflang.gradcheck.op_calls import Array, LawBroken, OpCall, check_close
from difflang.gradcheck.op_derivatives import (
    active_arrays,
    check_adjoint,
    check_jvp,
    check_second_order,
    float_results,
    jvp_graph,
    random_tangents,
    rounding_scales,
    rounding_sensitivity,
    vjp_graph,
)
from difflang.graph.run_graph import GraphProgram, free_context
from difflang.ir.builder import Builder
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import Op, TypeMismatch, result_types
from difflang.ir.symbolic_dims import Dim, UnknownSize, dim_name
from difflang.ir.tensor_types import C64, C128, F32, F64, DType, Tensor, numpy_dtype, stacked_type
from difflang.ops.control.map import map_
from difflang.passes.substitute_dims import substitute_graph_dims

ULPS = 32.0
INSTANCES = 2  # of a batch
SPECIAL = (np.nan, np.inf, -np.inf, 0.0)
SEED = 20_2407


class Skipped(Exception):
    """A law has nothing to test, for the reason that it gives."""


class LawRun(Struct, frozen=True, eq=False):
    """An op with its calls, and how far a compiled number may be off."""

    op: Op
    calls: Sequence[OpCall]
    ulps: float

    @property
    def active(self) -> list[OpCall]:
        """The calls that have a derivative. Errors: Skipped if there is none."""
        if self.op.inactive:
            raise Skipped("it has no derivative")
        found = [c for c in self.calls if c.active]
        if not found:
            raise Skipped("no sample has a derivative")
        return found

    def precise(self) -> tuple[list[OpCall], bool]:
        """Calls in which differences can be taken: in f64 or c128, else in f32 and then in extended precision."""
        double = [c for c in self.active if in_dtypes(c, (F64, C128))]
        single = [c for c in self.active if in_dtypes(c, (F32, C64))]
        if not double and not single:
            raise Skipped("no sample is in f64 or f32")
        return double or single, not double


def in_dtypes(call: OpCall, dtypes: Sequence[DType]) -> bool:
    """Whether all that has a derivative in a call is of these types."""
    operands = [t for t, w in zip(call.types, call.wrt, strict=True) if w]
    active = [t for t in (*operands, *call.results) if t.tangent is not None]
    return all(isinstance(t, Tensor) and t.dtype in dtypes for t in active)


# ---- Laws. Each gives the number of calls for which it held. Errors: LawBroken.


def check_types(run: LawRun) -> int:
    """The reference gives what the type rule says, in every element type."""
    for call in run.calls:
        for y, want in zip(call.references(), call.results, strict=True):
            assert isinstance(want, Tensor)
            if (y.dtype, y.shape) != (numpy_dtype(want.dtype), want.shape):
                raise LawBroken(f"the reference of {call}", f"{y.dtype}{list(y.shape)}", want, operands=call.arrays)
    return len(run.calls)


def check_symbolic_sizes(run: LawRun) -> int:
    """The type rule with names for sizes says what it says for their numbers."""
    count = 0
    for call in run.calls:
        types = [Tensor(t.dtype, tuple(map(symbolic_size, t.shape))) for t in call.types]
        builder = Builder()
        params = [builder.param(t) for t in types]
        try:
            results = result_types(run.op, types, (), call.attrs)
        except (TypeMismatch, UnknownSize):  # a size that the type or an attribute fixes has no name
            continue
        count += 1
        found = builder.append(run.op, tuple(params), results, **call.attrs)
        graph = substitute_graph_dims(builder.finish(found), number_of_size)
        given = tuple([r.type for r in graph.results])
        if given != call.results:
            shown = [", ".join(map(str, ts)) for ts in (given, call.results)]
            raise LawBroken(f"the type of {run.op}({', '.join(map(str, types))})", *shown)
    if not count:
        raise Skipped("its type fixes its sizes")
    return count


def check_rules(run: LawRun) -> int:
    """The derivative rules can be used: they give the right types, and each is linear."""
    for call in run.active:
        jvp_graph(call.graph(), call.wrt)
        vjp_graph(call.graph(), call.wrt)
    return len(run.active)


def symbolic_size(size: Dim) -> Dim:
    """Equal sizes get equal names; 0 and 1 mean what they say."""
    return dim_name(f"n{size}") if isinstance(size, int) and size > 1 else size


def number_of_size(name: str) -> Dim:
    return int(name[1:])


def check_lowering(run: LawRun) -> int:
    """Compiled, it is the reference."""
    compare_compiled(run, run.calls)
    return len(run.calls)


def check_special_values(run: LawRun) -> int:
    """Also where operands are NaN or infinite."""
    calls = [c for c in run.calls if any(x.size and x.dtype.kind == "f" for x in c.arrays)]
    if not calls:
        raise Skipped("no operand is a float")
    marked = [replace(c, arrays=tuple(with_special(c, special))) for c in calls for special in SPECIAL]
    compare_compiled(run, marked, special=True)
    return len(marked)


def with_special(call: OpCall, special: float) -> list[Array]:
    """The operands of a call with a special number as first element of each float operand."""
    found: list[Array] = []
    for x in call.arrays:
        if x.size and x.dtype.kind == "f":
            x = x.copy()
            x.flat[0] = special
        found.append(x)
    return found


def compare_compiled(run: LawRun, calls: Sequence[OpCall], *, special: bool = False) -> None:
    """All calls in one executable against the reference. Numbers beside special ones are compared loosely."""
    found = compiled([c.graph() for c in calls], [list(c.arrays) for c in calls])
    for call, got in zip(calls, found, strict=True):
        exact = call.op.inactive and "bit exact" in call.op.traits
        scales = list(map(largest_finite, call.references())) if special else rounding_scales(call)
        for y, want, scale in zip(got, call.references(), scales, strict=True):
            ulps = 0.0 if exact else run.ulps * (1024 if special else 1)
            check_close(np.asarray(y), want, scale, ulps, f"compiled, {call}", call.arrays)


def largest_finite(x: Array) -> Array:
    """The largest magnitude of the numbers that are neither NaN nor infinite, or 0."""
    magnitudes = np.abs(x[np.isfinite(x)]).astype(np.float64)
    return np.max(magnitudes, initial=0.0)


def compiled(graphs: Sequence[Graph], arguments: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The results of each graph on its arguments, all compiled as one program."""
    builder = Builder()
    params = [[builder.param(p.type) for p in g.params] for g in graphs]
    results = [builder.inline(g, *ps) for g, ps in zip(graphs, params, strict=True)]
    whole = builder.finish([r for rs in results for r in rs], [p for ps in params for p in ps])
    program = GraphProgram(whole, free_context(), False)
    values = iter(program.call([x for xs in arguments for x in xs]))
    return [[np.asarray(next(values)) for _ in rs] for rs in results]


def check_elementwise(run: LawRun) -> int:
    """An op that says so computes each element from those in its place."""
    if not run.op.elementwise:
        raise Skipped("it does not say that it is elementwise")
    for call in run.calls:
        reversed_results = call.references(*map(reverse_elements, call.arrays))
        for y, want in zip(reversed_results, call.references(), strict=True):
            what = f"elements in another order, {call}"
            check_close(reverse_elements(y), want, np.abs(want), run.ulps, what, call.arrays)
    return len(run.calls)


def reverse_elements(x: Array) -> Array:
    return x.reshape(-1)[::-1].reshape(x.shape)


def check_jvps(run: LawRun) -> int:
    """The jvp is the derivative, by differences in f64."""
    calls, wide = run.precise()
    with extended_precision(wide):
        for call in calls:
            check_jvp(call.smooth(), call.arrays, call.wrt, rng(), call, wide=wide)
    return len(calls)


def check_transposes(run: LawRun) -> int:
    """The transpose is the adjoint of the jvp, in every float type."""
    for call in run.active:
        check_adjoint(call.graph(), call.arrays, call.wrt, rng(), call)
    return len(run.active)


def check_second_orders(run: LawRun) -> int:
    """Jvp and vjp are differentiated again, in both modes."""
    calls, wide = run.precise()
    with extended_precision(wide):
        for call in calls[:3]:
            check_second_order(call, rng(), wide=wide)
    return len(calls[:3])


@contextmanager
def extended_precision(wide: bool) -> Generator[None]:
    """Around a comparison, maybe in extended precision. Errors: Skipped if the reference does not compute in that."""
    try:
        yield
    except TypeError as error:
        if not wide:
            raise
        raise Skipped(f"no sample is in f64, and of its reference: {error}") from None


def check_compiled_derivatives(run: LawRun) -> int:
    """Compiled, jvp and vjp are the interpreted ones."""
    jobs: list[tuple[str, Graph, list[Array]]] = []
    for call in run.active[:6]:
        graph, dxs = call.graph(), random_tangents(rng(), active_arrays(call.arrays, call.wrt))
        cts = random_tangents(rng(), evaluate(float_results(graph), *call.arrays))
        jobs.append((f"the jvp of {call}", jvp_graph(graph, call.wrt), [*call.arrays, *dxs]))
        jobs.append((f"the vjp of {call}", vjp_graph(graph, call.wrt), [*call.arrays, *cts]))
    found = compiled([graph for _, graph, _ in jobs], [xs for _, _, xs in jobs])
    for (what, graph, xs), got in zip(jobs, found, strict=True):
        scales = rounding_sensitivity(graph, xs, rng())
        for y, want, scale in zip(got, evaluate(graph, *xs), scales, strict=True):
            check_close(np.asarray(y), want, scale, run.ulps, f"compiled, {what}", xs)
    return len(jobs) // 2


def check_batching(run: LawRun) -> int:
    """A batch is computed as its instances are, one by one; also where only some operands are batched."""
    calls = [c for c in run.calls if c.arrays and all(x.dtype.kind != "V" for x in c.arrays)][:4]
    if not calls:
        raise Skipped("it has no operands")
    cases = [(c, mask) for c in calls for mask in batch_masks(len(c.arrays))]
    jobs = [(batched_graph(c, mask), batched_arrays(c, mask)) for c, mask in cases]
    found = compiled([graph for graph, _ in jobs], [xs for _, xs in jobs])
    for (call, mask), (_, xs), got in zip(cases, jobs, found, strict=True):
        for i in range(INSTANCES):
            instance = replace(call, arrays=tuple([x[i] if b else x for x, b in zip(xs, mask, strict=True)]))
            for y, want, scale in zip(got, instance.references(), rounding_scales(instance), strict=True):
                check_close(np.asarray(y[i]), want, scale, run.ulps, f"batched, {instance}", instance.arrays)
    return len(cases)


def batch_masks(count: int) -> list[tuple[bool, ...]]:
    """All operands batched, and each alone."""
    alone = [tuple([i == j for j in range(count)]) for i in range(count)]
    return list(dict.fromkeys([(True,) * count, *alone]))


def batched_arrays(call: OpCall, mask: Sequence[bool]) -> list[Array]:
    return [np.stack([x, reverse_elements(x)]) if b else x for x, b in zip(call.arrays, mask, strict=True)]


def batched_graph(call: OpCall, mask: Sequence[bool]) -> Graph:
    """A map of the op over its batched operands."""
    inner, outer = Builder(), Builder()
    params = [outer.param(stacked_type(t, INSTANCES) if b else t) for t, b in zip(call.types, mask, strict=True)]
    own = [inner.param(t) for t in call.types]
    order = sorted(range(len(own)), key=lambda i: mask[i])  # those that are fixed come first
    body = inner.finish(call.op(*own, **call.attrs), [own[i] for i in order])
    fixed = len(mask) - sum(mask)
    results = outer.emit(map_, [params[i] for i in order], (body,), consts=fixed, length=INSTANCES)
    return outer.finish(results)


def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


Law = tuple[str, str, Callable[[LawRun], int]]
LAWS: tuple[Law, ...] = tuple([
    (name, (test.__doc__ or "").strip(), test)
    for name, test in [
        ("types", check_types), ("symbolic sizes", check_symbolic_sizes), ("rules", check_rules),
        ("lowering", check_lowering),
        ("special values", check_special_values), ("elementwise", check_elementwise), ("jvp", check_jvps),
        ("transpose", check_transposes), ("second order", check_second_orders),
        ("compiled derivatives", check_compiled_derivatives), ("batching", check_batching),
    ]
])  # fmt: skip
