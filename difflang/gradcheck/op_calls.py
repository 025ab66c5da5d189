"""Calls of every op, drawn from the samples of its declaration, and comparisons of arrays: for the laws of ops.

An op that a program's author declares is drawn like one of the package. See `op_derivatives` for laws of derivatives.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct

from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph
from difflang.ir.op import Op, result_types
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
from difflang.ops.op_factories import DrawnOperand, FixedOperand, GradedMatrices, OpExample, UniformSamples

Array = Any
Mask = tuple[bool, ...]

# What an op that takes any element type is tested on, and which types get one example instead of all.
ANY_DTYPE = (F32, F64, I32, BOOL, F16, BF16, C64, C128, I8, U32)
THOROUGH = (F32, F64, I32, BOOL, C128)
SHAPES = ((3,), (), (1, 0), (1, 1))
DTYPE_OF = {numpy_dtype(d): d for d in DTYPES.values()}


class OpCall(Struct, frozen=True):
    """One use of an op on given arrays."""

    op: Op
    arrays: tuple[Array, ...]
    attrs: dict[str, Any]
    mixes: bool = False  # its elements with each other, as a factorization does: rounding moves them all

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.types))}){f' {self.attrs}' if self.attrs else ''}"

    @property
    def types(self) -> list[Tensor]:
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
        builder = Builder()  # an op without operands has no other
        params = [builder.param(t) for t in self.types]
        return builder.finish(builder.emit(self.op, params, **self.attrs))

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


def calls_of(op: Op, dtypes: Iterable[DType] | None = None) -> list[OpCall]:
    """The op's samples in every element type it takes; in those that are not tested thoroughly, the first of them."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    found: list[OpCall] = []
    for dtype in op.accepts or ANY_DTYPE:
        if dtypes is None or dtype in dtypes:
            drawn = draws(op, dtype, rng)
            found += drawn if dtype in THOROUGH else [next(drawn)]
    seen: set[str] = set()
    return [c for c in found if str(c) not in seen and not seen.add(str(c))] if found and found[0].arrays else found


def draws(op: Op, dtype: DType, rng: np.random.Generator) -> Iterator[OpCall]:
    samples = (op.samples,) if isinstance(op.samples, UniformSamples) else op.samples
    if all(isinstance(s, UniformSamples) for s in samples):
        for shape in SHAPES:
            yield OpCall(op, tuple(draw_array(rng, dtype, shape, u) for u in samples), {})
        return
    for example in samples:
        assert isinstance(example, OpExample)
        operands = tuple([draw_operand(rng, dtype, o, example.draw) for o in example.operands])
        yield OpCall(op, operands, dict(example.attrs), isinstance(example.draw, GradedMatrices))


def draw_operand(
    rng: np.random.Generator,
    dtype: DType,
    operand: tuple[int, ...] | FixedOperand | DrawnOperand,
    within: UniformSamples | GradedMatrices,
) -> Array:
    """One operand of an example, in the dtype under test unless it has one of its own."""
    match operand:
        case FixedOperand():
            return np.asarray(operand.data).astype(numpy_dtype(operand.dtype or dtype))
        case DrawnOperand():
            return draw_array(rng, operand.dtype or dtype, operand.shape, operand.draw or within)
        case _:
            return draw_array(rng, dtype, operand, within)


def draw_array(
    rng: np.random.Generator, dtype: DType, shape: Sequence[int], within: UniformSamples | GradedMatrices
) -> Array:
    if isinstance(within, GradedMatrices):
        small = rng.uniform(-within.width, within.width, shape)
        return (small + np.eye(shape[-2], shape[-1]) * np.arange(1.0, shape[-1] + 1)).astype(numpy_dtype(dtype))
    if dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_integer:
        low = max(int(np.ceil(within.low)), 0 if dtype.kind == "uint" else -128)
        return np.asarray(rng.integers(low, min(int(within.high), 127) + 1, shape)).astype(numpy_dtype(dtype))
    numbers = np.asarray(rng.uniform(within.low, within.high, shape))
    for point in within.avoid:
        numbers = np.where(np.abs(numbers - point) < 0.1, point + 0.2, numbers)
    if dtype.kind == "complex":  # in every quadrant, as far from both axes as the interval is from 0
        imaginary = rng.uniform(within.low, within.high, shape)
        numbers = numbers * rng.choice([-1.0, 1.0], shape)
        numbers = np.asarray(numbers + 1j * imaginary * rng.choice([-1.0, 1.0], shape))
    return numbers.astype(numpy_dtype(dtype))


# ---- Comparisons


class LawBroken(AssertionError):
    """An op breaks a law: `what` was compared, and the op `got` something else than `expected`.

    `inputs` are the arrays by role: operands, tangents, cotangents.
    """

    def __init__(self, what: object, got: Any, expected: Any, message: str = "", **inputs: Sequence[Array]) -> None:
        super().__init__(message or f"{what}: {got} is not {expected}")
        self.what, self.got, self.expected, self.inputs = what, got, expected, inputs


def epsilon(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(np.real(np.zeros((), dtype)).dtype).eps)


def widened(x: Array) -> Array:
    """The same numbers in f64 or c128."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def check_close(
    got: Array, want: Array, scale: Array, ulps: float, what: object, operands: Sequence[Array] = ()
) -> None:
    """Element by element within `ulps` units in the last place of `scale`; equal infinities and NaNs are equal.

    Errors: LawBroken.
    """
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        one, two = f"{got.dtype}{list(got.shape)}", f"{want.dtype}{list(want.shape)}"
        raise LawBroken(what, one, two, operands=operands)
    if got.dtype.kind in "biu":
        if not np.array_equal(got, want):
            raise LawBroken(what, got, want, operands=operands)
        return
    g, w = widened(got), widened(want)
    tiny = float(ml_dtypes.finfo(np.real(want).dtype).tiny)
    with np.errstate(all="ignore"):
        size = np.maximum(np.nan_to_num(np.abs(w), posinf=0.0), np.abs(scale))
        close = np.ones(want.shape, bool)
        for x, y in ((g.real, w.real), (g.imag, w.imag)):
            near = np.abs(x - y) <= ulps * epsilon(want.dtype) * np.maximum(size, np.abs(y)) + tiny
            close &= near & np.isfinite(y) | (x == y)
    good = close | (np.isnan(g) & np.isnan(w))
    if not good.all():
        message = f"{what}: {got[~good][:4]} is not {want[~good][:4]}"
        raise LawBroken(what, got, want, message, operands=operands)
