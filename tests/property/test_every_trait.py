"""What the traits of ops claim of numbers, on the numbers where such claims fail: zeros, infinities, NaN, tiny ones."""

from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest

from difflang.gradcheck.op_calls import Array, calls_of
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import F64

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1e308, -1e308])
TINY = np.finfo(np.float64).tiny
NUMBERS = [op for op in OPS.values() if op.elementwise and F64 in op.accepts and not op.equation_rules]


def having(trait: str) -> list[Op]:
    return [op for op in NUMBERS if trait in op.traits]


def at_edges(op: Op, values: Array) -> tuple[list[Array], dict[str, object]]:
    """Operands that meet each other in every combination, and attributes of one of the op's examples."""
    example = next(c for c in calls_of(op, (F64,)) if all(x.dtype == np.float64 for x in c.arrays))
    every = np.array(list(product(values, repeat=len(example.arrays)))).T
    return list(every), example.attrs


def by_both_engines(op: Op, xs: list[Array], attrs: dict[str, object]) -> list[Array]:
    """The results of the reference and of the compiled op."""
    with jax.enable_x64(True):
        compiled = np.asarray(jax.jit(lambda *xs: op.lower(jax, *xs, **attrs))(*xs))
    with np.errstate(all="ignore"):
        return [np.asarray(op.reference(*xs, **attrs)), compiled]


def is_nonnegative(x: Array) -> Array:
    return np.isnan(x) | ((x >= 0) & ~np.signbit(x))


@pytest.mark.parametrize("op", having("nonnegative"), ids=str)
def test_what_is_nonnegative_is_never_below_0(op: Op) -> None:
    assert all(is_nonnegative(y).all() for y in by_both_engines(op, *at_edges(op, EDGES)))


@pytest.mark.parametrize("op", having("keeps sign"), ids=str)
def test_what_keeps_signs_gives_nothing_below_0(op: Op) -> None:
    operands = at_edges(op, EDGES[is_nonnegative(EDGES)])
    assert all(is_nonnegative(y).all() for y in by_both_engines(op, *operands))


@pytest.mark.parametrize("op", [op for op in having("correctly rounded") if op.name != "convert"], ids=str)
def test_what_is_correctly_rounded_has_the_same_bits_compiled(op: Op) -> None:
    """But for subnormal numbers, which are 0 to XLA on the CPU."""
    wanted, compiled = by_both_engines(op, *at_edges(op, EDGES[~(np.abs(EDGES) < TINY) | (EDGES == 0)]))
    if wanted.dtype.kind == "f":
        wanted = np.where(np.abs(wanted) < TINY, np.copysign(0.0, wanted), wanted)
    np.testing.assert_array_equal(compiled, wanted)
    if wanted.dtype.kind == "f":
        a_number = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(compiled[a_number]), np.signbit(wanted[a_number]))
