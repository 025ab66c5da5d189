"""Which indices need no check, which fail where they did, and what `@unchecked` leaves out."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.base.errors import IndexFailure
from difflang.execution.check_failures import drop_proved_checks
from difflang.ir.builder import Builder
from difflang.ir.tensor_types import F64, I32, Tensor

V = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
K = np.array([5, 0, 3], np.int32)

PROVED = {
    "a multiple": "sum(for i in 0..n // 2 => v[2 * i + 1])",
    "a sum of indices": "sum(for i in 0..n - 2, j in 0..3 => v[i + j])",
    "backwards": "sum(for i in 0..n => v[n - 1 - i])",
    "a remainder": "sum(for i in 0..20 => v[(i * 7 - 3) % n])",
    "a quotient": "sum(for i in 0..2 * n => v[i // 2])",
    "the smaller one": "sum(for i in 0..n => v[min(i + 1, n - 1)])",
    "between bounds": "sum(for j => v[clamp(k[j], 0, n - 1)])",
    "one or the other": "sum(for i in 0..n => v[where(v[i] > 3.0, i, 0)])",
    "in a loop": "{ var s = 0.0\n for i in 0..n // 2 { s = sin(s + v[2 * i + 1] * v[n - 1 - i]) }\n s }",
    "in a function": "sum(for i in 0..n // 2 => at(v, 2 * i + 1))",
}
FAILS = {
    "a multiple": ("sum(for i in 0..n // 2 => v[2 * i + 2])", 6),
    "a sum of indices": ("sum(for i in 0..n - 2, j in 0..4 => v[i + j])", 6),
    "backwards": ("sum(for i in 0..n => v[n - 2 - i])", -1),
    "a remainder": ("sum(for i in 0..20 => v[i % (n + 1)])", 6),
    "the smaller one": ("sum(for i in 0..n => v[min(i - 1, n - 1)])", -1),
    "in a function": ("sum(for i in 0..n // 2 => at(v, 3 * i))", 6),
    "in a loop": ("{ var s = 0.0\n for i in 0..n { s = sin(s + v[k[0] + i]) }\n s }", 6),
    "a product that wraps around": ("sum(for i in 0..2 => v[i * 65536 * 65536 * 0 + 6 + 0 * i])", 6),
}


def module(body: str, before: str = "") -> Any:
    source = f"fn at(v: f64[n], i: i32) -> f64 = v[i]\n{before}fn f(v: f64[n], k: i32[m]) -> f64 = {body}\n"
    return difflang.loads("float f64\n" + source, name="bounds")


@pytest.mark.parametrize("body", PROVED.values(), ids=PROVED)
def test_what_sizes_prove_is_not_checked(body: str) -> None:
    f = module(body).f
    for g in (f, f.grad("v")):
        graph = g.lower(V, K).graph
        assert not {"ge", "lt", "reduce_any"} & {e.op.name for e in graph.eqns}
        np.testing.assert_allclose(g(V, K), g.interpret(V, K), rtol=1e-14)


@pytest.mark.parametrize(("body", "index"), FAILS.values(), ids=FAILS)
def test_what_is_out_of_range_says_which_index_and_size(body: str, index: int) -> None:
    f = module(body).f
    for g in (f, f.grad("v")):
        with pytest.raises(IndexFailure, match=rf"index {index} is out of range[\s\S]*0 to 5"):
            g(V, K)


def test_unchecked_reads_the_nearest_and_writes_nowhere() -> None:
    source = """float f64
@unchecked
fn read(v: f64[n], k: i32[m]) -> f64[m] = [for i => v[k[i]]]
fn count(v: f64[n], k: i32[m]) -> f64[n] {
  var h = v
  @unchecked for i in 0..m { h[k[i]] += 1.0 }
  h
}
@unchecked
fn put(v: f64[n], k: i32[m]) -> f64[n] {
  var h = v
  var s = 0.0
  for i in 0..m {
    h[k[i]] = 9.0 + s
    s += 1.0
  }
  h
}
"""
    m = difflang.loads(source, name="unchecked")
    v, k = V[:3], np.array([1, 7, -2], np.int32)
    for f, want in ((m.read, [2.0, 3.0, 1.0]), (m.count, [1.0, 3.0, 3.0]), (m.put, [11.0, 9.0, 10.0])):
        assert len(f.lower(v, k).graph.results) == 1
        np.testing.assert_array_equal(f(v, k), want)
        np.testing.assert_array_equal(f.interpret(v, k), want)


def test_unchecked_is_what_stands_inside_it() -> None:
    """What is called from there is checked, and so are assertions and what stands beside the loop."""
    called = module("sum(for j => at(v, k[j] + 3))", "@unchecked\n").f
    with pytest.raises(IndexFailure, match="index 8"):
        called(V, K)
    beside = module("{ var s = v[k[0] + 1]\n @unchecked for j in 0..3 { s += v[k[j] + 9] }\n s }").f
    with pytest.raises(IndexFailure, match="index 6"):
        beside(V, K)
    lambdas = """float f64
@unchecked
fn each(g: (i32) -> f64, i: i32) -> f64 = g(i)
fn f(v: f64[n], i: i32) -> f64 = each(|j| v[j], i)
"""
    given = difflang.loads(lambdas, name="given")
    with pytest.raises(IndexFailure, match="index 7"):
        given.f(V, 7)
    asserted = module('{ assert v[0] > 1.0, "more"\n v[k[0] + 9] }', "@unchecked\n").f
    with pytest.raises(difflang.DifflangError, match="more"):
        asserted(V, K)


def test_unchecked_takes_nothing() -> None:
    with pytest.raises(difflang.DifflangError, match="DL0209"):
        difflang.loads("@unchecked(3)\nfn f(x: f32) -> f32 = x\n", name="arguments")


def test_a_check_that_is_proved_gives_no_failure() -> None:
    builder = Builder()
    x = builder.param(Tensor(F64))
    zero, one = (builder.const(v, Tensor(I32)) for v in (0, 1))
    proved = builder.finish([x, zero, zero, zero])
    assert drop_proved_checks(proved) is not None
    assert drop_proved_checks(proved.with_results([x, one, zero, zero])) is None


MANY = 2003
AMONG_MANY = {
    "at once": "sum(v[k])",
    "in a map": "sum(for i => v[k[i]])",
    "in a map of maps": "sum([for i in 0..2 => sum(for j => v[k[j] + 0 * i])])",
    "rows of a map": "sum([for i in 0..2 => sum(v[k])])",
    "written": "{ var h = v\n for i in 0..m { h[k[i]] += 1.0 }\n sum(h * v) }",
    "in a while": "{ var s = 0.0\n var i = 0\n while i < 2 {\n s += sum(v[k]) * v[0]\n i += 1\n }\n s }",
    "in a branch": "if v[0] > 0.0 { sum(v[k]) } else { 0.0 }",
}


@pytest.mark.parametrize("body", AMONG_MANY.values(), ids=AMONG_MANY)
def test_one_bad_index_among_many_is_found_wherever_it_stands(body: str) -> None:
    f = module(body).f
    slope = f.grad("v")
    fine = np.arange(MANY, dtype=np.int32) % 6
    np.testing.assert_allclose(slope(V, fine), slope.interpret(V, fine), rtol=1e-12)
    # In the first row, in one of the last, in what is left over.
    for g, place, bad in ((f, 0, 6), (f, 1999, -1), (f, MANY - 1, 1 - 2**31), (slope, MANY - 1, 6)):
        k = fine.copy()
        k[place] = bad
        with pytest.raises(IndexFailure, match=rf"index {bad} is out of range[\s\S]*0 to 5"):
            g(V, k)


def test_lanes_of_jax_fail_by_themselves_among_many_indices() -> None:
    """A lane that does not come by a bad index has its value."""
    f = module("if v[0] > 0.0 { sum(v[k]) } else { 7.0 }").f
    k = np.arange(2 * MANY, dtype=np.int32).reshape(2, MANY) % 6
    k[1, MANY - 1] = 6
    values = np.stack([V, V, -V])
    with jax.enable_x64(True):
        found = jax.vmap(f, in_axes=(0, 0))(values, k[[0, 1, 1]])
    np.testing.assert_allclose(found, [V[k[0]].sum(), np.nan, 7.0], rtol=1e-12)
