"""Checks of indices that the limits of loops bound are gone, and no others."""

from __future__ import annotations

import pytest

import difflang
from difflang.ir.builder import Builder
from difflang.ir.graph import Eqn
from difflang.ir.tensor_types import I32, Tensor
from difflang.ops.loop.loop_op import loop
from difflang.passes.loops.index_bounds import Affine, Symbol, counter_bound


@pytest.mark.parametrize(
    ("loops", "proved"),
    [
        ("for i in 0..n { for j in 0..i { y = sin(y + a[i, j]) } }", True),
        ("for i in 0..n { for j in i..n { y = sin(y + a[i, j]) } }", True),
        ("for i in 0..n { for j in i + 1..n { y = sin(y + a[i, j - 1]) } }", True),
        ("for i in 0..n { for j in 0..n - i { y = sin(y + a[i, i + j]) } }", True),
        ("for i in 0..n { for j in 0..n - i { y = sin(y + a[i, j + 1]) } }", False),
        ("for i in 0..n { for j in 0..i { y = sin(y + a[2 * i - j, j]) } }", False),
        ("for i in 0..m { for j in 0..i { y = sin(y + a[j, j]) } }", False),
    ],
)
def test_bounds_of_nested_loops_prove_checks(loops: str, proved: bool) -> None:
    m = difflang.loads(f"fn f(a: f64[n, n], m: i32) -> f64 {{\n var y = 0.0\n {loops}\n y\n}}\n")
    assert ("failure" not in m.f.ir("optimized", "f64[5, 5]", "i32")) == proved


@pytest.mark.parametrize(("factor", "bound"), [(-1, 4), (10 - 2**32, None)])
def test_a_limit_beyond_32_bits_bounds_nothing(factor: int, bound: int | None) -> None:
    builder = Builder()
    limit, count = [builder.param(Tensor(I32)) for _ in range(2)]
    attrs = {"consts": 0, "carry": 0, "length": None, "exact": False, "reverse": False}
    form = Affine(5, {Symbol(1, Affine(1)): factor})
    found = counter_bound({limit: form}, Eqn(loop, (limit,), (count,), attrs))
    assert (found.maximum if found is not None else None) == bound
