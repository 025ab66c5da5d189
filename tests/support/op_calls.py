"""Uses of every op, drawn from its own samples, and the ways to ask whether its derivative is right."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import jax
import ml_dtypes
import numpy as np
from msgspec import Struct

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.ad.expand_derivatives import differentiate
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate, evaluate_eqn
from difflang.ir.op import OPS, Op, result_types
from difflang.ir.tensor_types import (
    BF16,
    BOOL,
    C64,
    C128,
    DTYPES,
    F16,
    F32,
    F64,
    I8,
    I32,
    U32,
    DType,
    Tensor,
    Type,
    numpy_dtype,
)
from difflang.ops.op_factories import FixedOperand, GradedMatrices, OpExample, UniformSamples

Array = Any
Mask = tuple[bool, ...]

# What an op that takes any element type is tested on, and which types get one example instead of all.
ANY_DTYPE = (F32, F64, I32, BOOL, F16, BF16, C64, C128, I8, U32)
THOROUGH = (F32, F64, I32, BOOL, C128)
SHAPES = ((3,), (), (1, 0), (1, 1))
DTYPE_OF = {numpy_dtype(d): d for d in DTYPES.values()}

DRAWN = [op for op in OPS.values() if op.samples is not None]
DIFFERENTIABLE = [op for op in DRAWN if not op.inactive]


class Call(Struct, frozen=True):
    """One use of an op on given arrays."""

    op: Op
    arrays: tuple[Array, ...]
    attrs: dict[str, Any]
    mixes: bool = False  # its elements with each other, as a factorization does: rounding moves them all

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.types))}) {self.attrs}"

    @property
    def types(self) -> list[Type]:
        return [Tensor(DTYPE_OF[x.dtype], x.shape) for x in self.arrays]

    @property
    def results(self) -> tuple[Type, ...]:
        return result_types(self.op, self.types, (), self.attrs)

    @property
    def wrt(self) -> Mask:
        """Which operands have a derivative: float ones that the op has a rule for."""
        rules = self.op.operand_rules.of_operands
        return tuple(
            x.dtype.kind in "fcV" and rules[min(i, len(rules) - 1)] is not None for i, x in enumerate(self.arrays)
        )

    @property
    def active(self) -> bool:
        return not self.op.inactive and any(self.wrt) and any(r.tangent is not None for r in self.results)

    def graph(self) -> Graph:
        return build_region(self.types, lambda *xs: self.op(*xs, **self.attrs))

    def smooth(self) -> Graph:
        """The graph, giving what does not depend on complex phases that the op is free to choose."""
        phases, complex = self.op.phase_invariants, any(t.dtype.is_complex for t in self.types)
        if phases is None or not complex:
            return self.graph()
        return build_region(self.types, lambda *xs: phases(*self.op(*xs, **self.attrs)))

    def references(self, *arrays: Array) -> list[Array]:
        """What the reference gives, one array for each result."""
        with np.errstate(all="ignore"):
            found = self.op.reference(*(arrays or self.arrays), **self.attrs)
        return [np.asarray(y) for y in (found if len(self.results) > 1 else [found])]

    def reference(self, *arrays: Array) -> Array:
        """The same of an op with one result."""
        (found,) = self.references(*arrays)
        return found

    def lower(self, *arrays: Any) -> list[Any]:
        """What the lowering for the CPU gives, under a trace of JAX."""
        found = (self.op.cpu_lower_rule or self.op.lower)(jax, *arrays, **self.attrs)
        return list(found) if len(self.results) > 1 else [found]


def calls_of(op: Op, dtypes: Iterable[DType] | None = None) -> list[Call]:
    """The op's samples in every element type it takes; in those that are not tested thoroughly, the first of them."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    found: list[Call] = []
    for dtype in op.accepts or ANY_DTYPE:
        if dtypes is None or dtype in dtypes:
            drawn = draws(op, dtype, rng)
            found += drawn if dtype in THOROUGH else [next(drawn)]
    seen: set[str] = set()
    return [c for c in found if str(c) not in seen and not seen.add(str(c))] if not found[0].arrays else found


def draws(op: Op, dtype: DType, rng: np.random.Generator) -> Iterator[Call]:
    samples = (op.samples,) if isinstance(op.samples, UniformSamples) else op.samples
    if all(isinstance(s, UniformSamples) for s in samples):
        for shape in SHAPES:
            yield Call(op, tuple(draw(rng, dtype, shape, u) for u in samples), {})
        return
    for example in samples:
        assert isinstance(example, OpExample)
        operands = (
            fixed(o, dtype) if isinstance(o, FixedOperand) else draw(rng, dtype, o, example.draw)
            for o in example.operands
        )
        yield Call(op, tuple(operands), dict(example.attrs), isinstance(example.draw, GradedMatrices))


def fixed(operand: FixedOperand, dtype: DType) -> Array:
    return np.asarray(operand.data).astype(numpy_dtype(operand.dtype or dtype))


def draw(
    rng: np.random.Generator, dtype: DType, shape: Sequence[int], within: UniformSamples | GradedMatrices
) -> Array:
    if isinstance(within, GradedMatrices):
        small = rng.uniform(-within.width, within.width, shape)
        return (small + np.eye(*shape[-2:]) * np.arange(1.0, shape[-1] + 1)).astype(numpy_dtype(dtype))
    if dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_integer:
        low = max(int(np.ceil(within.low)), 0 if dtype.kind == "uint" else -128)
        return np.asarray(rng.integers(low, min(int(within.high), 127) + 1, shape)).astype(numpy_dtype(dtype))
    numbers = np.asarray(rng.uniform(within.low, within.high, shape))
    for point in within.avoid:
        numbers = np.where(np.abs(numbers - point) < 0.1, point + 0.2, numbers)
    if dtype.kind == "complex":  # in every quadrant, as far from both axes as the interval is from 0
        parts = numbers, rng.uniform(within.low, within.high, shape)
        numbers = sum(unit * part * rng.choice([-1.0, 1.0], shape) for unit, part in zip((1, 1j), parts, strict=True))
    return numbers.astype(numpy_dtype(dtype))


# --------------------------------------------------------------------------------------------- comparing


def epsilon(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(np.real(np.zeros((), dtype)).dtype).eps)


def wide(x: Array) -> Array:
    """Exactly, in a type with room."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def assert_close(got: Array, want: Array, scale: Array, ulps: float, what: object) -> None:
    """Element by element within `ulps` units in the last place of `scale`; equal infinities and NaNs are equal."""
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{what}: {got.shape}, not {want.shape}"
    if got.dtype.kind in "biu":
        assert np.array_equal(got, want), f"{what}: {got} is not {want}"
        return
    g, w = wide(got), wide(want)
    tiny = float(ml_dtypes.finfo(np.real(want).dtype).tiny)
    with np.errstate(all="ignore"):
        near = np.abs(g - w) <= ulps * epsilon(want.dtype) * np.maximum(np.abs(w), np.abs(scale)) + tiny
    good = near | (g == w) | (np.isnan(g) & np.isnan(w))
    assert good.all(), f"{what}: {got[~good][:4]} is not {want[~good][:4]}"


def scales_of(call: Call) -> list[Array]:
    """For each result the sum of absolute terms: what rounding errors are to be compared with.

    For an op that is linear in every operand the op on absolute values; else |x f'(x)| over the operands, the effect of
    rounding the operands. A factorization is exact for operands that are off by rounding of their largest element.
    """
    if linear(call):
        sizes = (np.abs(x).astype(x.dtype) if w else x for x, w in zip(call.arrays, call.wrt, strict=True))
        return [np.abs(wide(y)) for y in call.references(*sizes)]
    if not call.active:
        return [np.zeros(())] * len(call.results)
    totals = [np.zeros(y.shape) for y in evaluate(call.graph(), *call.arrays)]
    for i, (x, w) in enumerate(zip(call.arrays, call.wrt, strict=True)):
        if w:
            push = pushed(call.graph(), tuple(j == i for j in range(len(call.arrays))))
            for change in one_at_a_time(x) if call.mixes else [x]:
                dys = evaluate(push, *call.arrays, change)
                totals = [total + np.abs(wide(dy)) for total, dy in zip(totals, dys, strict=True)]
    return totals


def linear(call: Call) -> bool:
    rules = call.op.operand_rules.transpose
    return rules is not None and all(rules[min(i, len(rules) - 1)] is not None for i, w in enumerate(call.wrt) if w)


def one_at_a_time(x: Array) -> Iterator[Array]:
    """The size of the array's largest element in each place by itself."""
    for place in np.ndindex(x.shape):
        only = np.zeros_like(x)
        only[place] = np.abs(x).max()
        yield only


# ------------------------------------------------------------------------------------------- derivatives


def pushed(f: Graph, wrt: Mask) -> Graph:
    """params ++ tangents -> tangents of the results."""
    params, results = f.type
    tangents = [p for p, w in zip(params, wrt, strict=True) if w]
    jvp = OPS["jvp"]
    return differentiate(
        build_region([*params, *tangents], lambda *vs: jvp(*vs, regions=(f,), wrt=wrt)[len(results) :], "jvp")
    )


def pulled(f: Graph, wrt: Mask) -> Graph:
    """params ++ cotangents -> cotangents of the params."""
    params, results = f.type
    vjp = OPS["vjp"]
    return differentiate(
        build_region([*params, *results], lambda *vs: vjp(*vs, regions=(f,), wrt=wrt)[len(results) :], "vjp")
    )


def arrows(rng: np.random.Generator, like: Iterable[Array]) -> list[Array]:
    """Directions of length about one."""
    return [draw(rng, DTYPE_OF[x.dtype], x.shape, UniformSamples(-1.0, 1.0)) for x in like]


def chosen(xs: Sequence[Array], wrt: Mask) -> list[Array]:
    return [x for x, w in zip(xs, wrt, strict=True) if w]


def moved(xs: Sequence[Array], dxs: Sequence[Array], wrt: Mask, step: float) -> list[Array]:
    left = iter(dxs)
    return [np.asarray(x + step * next(left)) if w else x for x, w in zip(xs, wrt, strict=True)]


def differences(f: Graph, xs: Sequence[Array], dxs: Sequence[Array], wrt: Mask) -> list[Array]:
    """The derivative along `dxs` by central differences, extrapolated three times (Richardson)."""
    steps = [4e-3 / 2**k for k in range(4)]
    rows: list[list[Array]] = []
    for h in steps:
        ahead, behind = evaluate(f, *moved(xs, dxs, wrt, h)), evaluate(f, *moved(xs, dxs, wrt, -h))
        with np.errstate(invalid="ignore"):  # what stays at Inf does not move
            rows.append([np.where(a == b, 0.0, a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)])
    for k in range(1, 4):
        rows = [
            [fine + (fine - coarse) / (4**k - 1) for coarse, fine in zip(a, b, strict=True)] for a, b in pairwise(rows)
        ]
    return rows[0]


def check_jvp(f: Graph, xs: Sequence[Array], wrt: Mask, rng: np.random.Generator, what: object) -> None:
    """The jvp of a graph in double precision against differences of the graph."""
    dxs = arrows(rng, chosen(xs, wrt))
    got = evaluate(pushed(f, wrt), *xs, *dxs)
    for dy, want in zip(got, differences(f, xs, dxs, wrt), strict=True):
        size = np.abs(wide(want))
        bound = 1e-8 * np.maximum(size, 1.0)
        assert (np.abs(dy - want) <= bound).all(), f"the jvp of {what} gives {dy}, differences {want}"


def sensitivity(graph: Graph, xs: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """How far each result moves, per unit of relative error, when every value on the way is a little off."""
    exact = evaluate(graph, *xs)
    found = [np.zeros(y.shape) for y in exact]
    with np.errstate(all="ignore"):
        for _ in range(3):
            for i, y in enumerate(shaken(graph, xs, rng)):
                off = 2.0**-4 if y.dtype.itemsize == 2 else 2.0**-10
                found[i] = np.fmax(found[i], np.abs(wide(y) - wide(exact[i])) / off)
    return found


def shaken(graph: Graph, xs: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """The results when each float on the way is off by a fixed relative amount, up or down."""

    def off(x: Array) -> Array:
        if x.dtype.kind not in "fcV":
            return x
        amount = 2.0**-4 if x.dtype.itemsize == 2 else 2.0**-10
        return (x * (1 + amount * rng.choice([-1.0, 1.0], x.shape))).astype(x.dtype)

    env = {p: off(x) for p, x in zip(graph.params, xs, strict=True)}
    for eqn in graph.eqns:
        found = evaluate_eqn(eqn, [env[v] for v in eqn.operands])
        env.update((r, off(np.asarray(y))) for r, y in zip(eqn.results, found, strict=True))
    return [env[r] for r in graph.results]


def inner(xs: Sequence[Array], ys: Sequence[Array]) -> tuple[float, float]:
    """Re <x, y>, and the sum of its absolute terms."""
    terms = [(np.conj(wide(x)) * wide(y)).real for x, y in zip(xs, ys, strict=True)]
    return float(sum(t.sum() for t in terms)), float(sum(np.abs(t).sum() for t in terms))


def check_adjoint(f: Graph, xs: Sequence[Array], wrt: Mask, rng: np.random.Generator, what: object) -> None:
    """<ct, J dx> = <Jᵀ ct, dx>, within rounding of the sum of absolute terms."""
    dxs = arrows(rng, chosen(xs, wrt))
    dys = evaluate(pushed(f, wrt), *xs, *dxs)
    cts = arrows(rng, dys)
    back = evaluate(pulled(f, wrt), *xs, *cts)
    forward, size = inner(cts, dys)
    backward, also = inner(back, dxs)
    eps = max((epsilon(x.dtype) for x in (*dxs, *cts)), default=0.0)
    bound = 64 * eps * (size + also)
    assert abs(forward - backward) <= bound, f"{what}: <ct, J dx> = {forward}, <Jᵀ ct, dx> = {backward}"


def lowered(graph: Graph) -> Callable[..., list[Any]]:
    """A graph without regions as a function that JAX can trace: each equation by its op's `lower`."""

    def function(*arrays: Any) -> list[Any]:
        env = dict(zip(graph.params, arrays, strict=True))
        for eqn in graph.eqns:
            found = eqn.op.lower(jax, *(env[v] for v in eqn.operands), **eqn.attrs)
            env.update(zip(eqn.results, found if len(eqn.results) > 1 else [found], strict=True))
        return [env[r] for r in graph.results]

    return function


def compiled(op: Op, *xs: Any, **attrs: Any) -> Any:
    """What an op gives once it is lowered and compiled."""
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda *xs: op.lower(jax, *xs, **attrs))(*xs))
