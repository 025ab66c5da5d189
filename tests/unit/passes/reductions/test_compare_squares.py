"""Norms that are only compared with usual numbers are compared as their squares; others stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import difflang
from derivatives import choose, total
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F32, F64, DType, Tensor
from difflang.passes.dce import dce
from difflang.passes.reductions.compare_squares import compare_squares
from support.graphs import bits, floats_near


def compare_norm(x: Value, name: str, number: float) -> list[Value]:
    norm = OPS["reduce_norm"].one(x, axes=(1,))
    return [OPS[name].one(norm, x.home.const(number, norm.type))]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge"])
@pytest.mark.parametrize("number", [1e-5, 0.1, 1.0, 3.0, 1e7])
def test_squares_are_compared_as_norms_are(dtype: DType, name: str, number: float) -> None:
    """At each float around the number, and where squares overflow or underflow as those of a norm do not; at NaN."""
    near = floats_near(number, dtype)
    three, four = np.array([0.6, 0.8], near.dtype)
    xs = np.concatenate([np.stack(pair, axis=1) for pair in ((near, np.zeros_like(near)), (three * near, four * near))])
    graph = build_region([Tensor(dtype, xs.shape)], partial(compare_norm, name=name, number=number))
    after = dce(compare_squares(graph))
    assert "reduce_norm" not in {eqn.op.name for eqn in after.eqns}
    with np.errstate(all="ignore"):
        assert bits(evaluate(graph, xs)) == bits(evaluate(after, xs))


@pytest.mark.parametrize("number", [0.0, -1.0, 1e-200, 1e200, np.inf, np.nan])
def test_a_norm_is_compared_with_extreme_numbers_as_it_is(number: float) -> None:
    graph = build_region([Tensor(F64, (3, 2))], partial(compare_norm, name="gt", number=number))
    assert compare_squares(graph) is graph


def test_a_comparison_guards_a_branch_that_computes_the_norm_again() -> None:
    """Norms of arrays of another type are another matter."""

    def guarded(branch: Callable[[Value], Value]) -> Graph:
        def program(x: Value) -> list[Value]:
            norm = OPS["reduce_norm"].one(x, axes=(0,))
            inside = OPS["le"].one(norm, x.home.const(1.0, norm.type))
            return [*choose(inside, lambda x: [branch(x)], lambda x: [total(x)], x)]

        return build_region([Tensor(F64, (4,))], program)

    same = guarded(lambda x: OPS["reduce_norm"].one(x, axes=(0,)))
    assert compare_squares(same) is same
    other = guarded(
        lambda x: OPS["reduce_norm"].one(OPS["slice"].one(x, starts=(0,), stops=(2,), steps=(1,)), axes=(0,))
    )
    assert "reduce_norm" not in {e.op.name for e in dce(compare_squares(other)).eqns}


@pytest.mark.parametrize("columns", [2, 3, 8, 12])
def test_a_comparison_guards_what_else_reads_the_norm(columns: int) -> None:
    """A norm and a sum of squares that are rounded differently would be on two sides of the number."""
    source = """float f64
fn angles(x: f64[n, d]) -> f64[n] = [for i => if norm(x[i]) <= 1.0 { acos(norm(x[i])) } else { 0.0 }]
fn inside(x: f64[n, d]) -> bool[n] = norm(x, axis = 1) <= 1.0"""
    m: Any = difflang.loads(source, name="guarded_norms")
    x = np.random.default_rng(columns).normal(size=(4000, columns))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert np.all(np.isfinite(m.angles(x)))
    assert "reduce_norm" not in {e.op.name for e in m.inside.lower(x).graph.eqns}
