"""Sums over a short axis of what is computed from smaller arrays become additions, and stay what they are."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.graph import Graph
from difflang.ops.op_factories import tensor_type
from difflang.passes.reductions import unroll_short_sums as passes

RNG = np.random.default_rng(3)
TAKES = "(p: f64[n, d], c: f64[k, d]) -> f64"
PROGRAMS = {
    "distances": "sum(for i, j => exp(-sum((p[i] - c[j])^2)))",
    "nearest": "sum(for i => min(for j => sum((p[i] - c[j])^2)))",
    "weighted": "sum(for i, j => sin(sum(for a => abs(p[i, a] - c[j, a]) * f64(a) * 0.5)))",
    "forces": "sum(for i => norm(sum(for j => (p[i] - c[j]) / (0.1 + sum((p[i] - c[j])^2))^1.5)))",
    "first axis": "sum(for i, j => cos(sum(for a => p[i, a] * 2.0 - c[j, a] / (1.0 + p[i, a]^2))))",
    "quadratic forms": "sum(for i, j => exp(-sum((c[..d] @ (p[i] - c[j]))^2)))",
    "two products": "sum(for i, j => tanh(sum(for a in 0..d => dot(c[a], p[i] - c[j]) * dot(p[a], p[i] * c[j]))))",
    "in a loop": "{ var s = 0.0\n"
    " for t in 0..3 { s = tanh(s) + sum(for i, j => exp(-f64(t) * sum((p[i] - c[j])^2))) }\n s }",
}


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MIN_BYTES", 1)


def program(body: str) -> Any:
    body = body if body.startswith("{") else f"= {body}"
    return difflang.loads(f"float f64\nfn f{TAKES} where k > 0 {body}\n", name="short_sums").f


def sizes_summed(graph: Graph) -> list[int]:
    """How many numbers each sum of floats adds."""
    found = [n for e in graph.eqns for r in e.regions for n in sizes_summed(r)]
    for eqn in graph.eqns:
        if eqn.op.name == "reduce_sum":
            shape = tensor_type(eqn.operands[0]).shape
            found.append(prod([n for a, n in enumerate(shape) if a in eqn.attrs["axes"] and isinstance(n, int)]))
    return found


@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_values_and_derivatives_stay(body: str, d: int) -> None:
    p, c = RNG.normal(size=(7, d)), RNG.normal(size=(11, d))
    f = program(body)
    assert d not in sizes_summed(f.lower(p, c).graph)
    np.testing.assert_allclose(f(p, c), f.interpret(p, c), rtol=1e-12)
    slope = f.grad(("p", "c"))
    found, wanted = slope(p, c), slope.interpret(p, c)
    np.testing.assert_allclose(found.p, wanted.p, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(found.c, wanted.c, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite(bad: float) -> None:
    p, c = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))
    p[1, 2] = bad
    f = program("sum(for i, j => exp(-sum((p[i] - c[j])^2)))")
    np.testing.assert_array_equal(np.isnan(f(p, c)), np.isnan(f.interpret(p, c)))


def test_what_is_stored_or_long_is_summed_along_its_axis() -> None:
    stored = difflang.loads("fn f(x: f64[n, m, 3]) -> f64[n, m] = sum(x, axis = 2)", name="stored").f
    assert 3 in sizes_summed(stored.lower(RNG.normal(size=(5, 4, 3))).graph)
    long = program(PROGRAMS["distances"])
    d = passes.MAX_TERMS + 1
    assert d in sizes_summed(long.lower(RNG.normal(size=(5, d)), RNG.normal(size=(4, d))).graph)


def test_more_terms_of_large_arrays_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    d = passes.MAX_TERMS + 1
    shapes = RNG.normal(size=(5, d)), RNG.normal(size=(4, d))
    monkeypatch.setattr(passes, "LARGE_BYTES", 5 * 4 * d * 8)
    assert d not in sizes_summed(program(PROGRAMS["distances"]).lower(*shapes).graph)
    monkeypatch.setattr(passes, "LARGE_BYTES", 5 * 4 * d * 8 + 1)
    assert d in sizes_summed(program(PROGRAMS["distances"]).lower(*shapes).graph)


def test_what_others_need_is_computed_twice_for_few_terms_only() -> None:
    d = passes.MAX_SHARED_TERMS + 1
    slope = program(PROGRAMS["distances"]).grad("p")
    assert d in sizes_summed(slope.lower(RNG.normal(size=(5, d)), RNG.normal(size=(4, d))).graph)
    assert d not in sizes_summed(
        program(PROGRAMS["distances"]).lower(RNG.normal(size=(5, d)), RNG.normal(size=(4, d))).graph
    )


def test_small_arrays_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MIN_BYTES", 1 << 15)
    assert 3 in sizes_summed(
        program(PROGRAMS["distances"]).lower(RNG.normal(size=(5, 3)), RNG.normal(size=(4, 3))).graph
    )


def test_f32() -> None:
    source = "fn f(p: f32[n, 3], c: f32[k, 3]) -> f32[n, k] = [for i, j => sum((p[i] - c[j])^2)]"
    p, c = RNG.normal(size=(9, 3)).astype(np.float32), RNG.normal(size=(8, 3)).astype(np.float32)
    found = difflang.loads(source, name="narrow").f(p, c)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ((p[:, None] - c) ** 2).sum(-1), rtol=1e-5)
