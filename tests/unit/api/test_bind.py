"""`f.bind`: a function for certain sizes, which takes fewer arguments, refuses others and needs no specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import difflang
import difflang.runtime

PROGRAM = """
record Net[d] { w: f64[d], b: f64 }
fn loss(m: Net[d], x: f64[n, d]) -> f64 = mean((x @ m.w + m.b)^2)
fn powers(x: f64, n: dim, by: f64) -> f64[n] = [for i in 0..n => by * x^f64(i)]
fn twice(f: (f64) -> f64[n], x: f64) -> f64 = sum(f(x))
"""
M, X = {"w": np.ones(2), "b": 0.5}, np.ones((3, 2))


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="bound")


def test_a_dim_is_no_parameter_any_more(m: Any) -> None:
    f = m.powers.bind(n=3)
    for run in (f, f, f.interpret):
        np.testing.assert_allclose(run(2.0, 1.5), [1.5, 3, 6])
    np.testing.assert_allclose(f(x=2.0, by=1.0), [1, 2, 4])
    assert f.signature.names == ("x", "by") and "with n = 3" in repr(f) and f.signature.sizes == (("n", 3),)
    np.testing.assert_allclose(f.jacfwd("x")(2.0, 1.0), [0, 1, 4])
    np.testing.assert_allclose(f.jacfwd(1)(2.0, 1.0), [1, 2, 4], err_msg="a parameter is counted without the dim")
    np.testing.assert_allclose(f.jvp(1).vmap({"x": 0})(np.array([2.0, 3.0]), 1.0, 1.0)[1], [[1, 2, 4], [1, 3, 9]])
    with pytest.raises(difflang.ArgumentError, match="takes 2 arguments, not 3"):
        f(2.0, 3, 1.5)


def test_arguments_of_other_sizes_are_refused_also_where_they_were_taken_before(m: Any) -> None:
    f = m.loss.bind(d=2, n=3)
    assert float(m.loss(M, np.ones((4, 2)))) == float(f(M, X)) == 6.25
    for g in (f, f.grad("m"), m.loss.grad("m").bind(n=3)):
        with pytest.raises(difflang.ArgumentError, match=r"f64\[4, 2\] was given") as caught:
            g(M, np.ones((4, 2)))
        assert "n is bound to 3" in str(caught.value)


def test_the_levels_below_need_no_specs(m: Any, tmp_path: Path) -> None:
    f = m.loss.bind(d=2, n=3)
    assert "f64[3, 2]" in f.ir() == m.loss.ir("ir", "Net[2]", "f64[3, 2]")
    assert "stablehlo" in f.grad().stablehlo() and f.memory().account.arguments == 72
    assert "f64[3, 2]" in f.jvp("x").ir(), "a tangent is like what it belongs to"
    f.export(tmp_path / "loss.dflx", platforms=())
    assert float(difflang.runtime.load(tmp_path / "loss.dflx")(M, X)) == 6.25
    with pytest.raises(difflang.ArgumentError) as caught:
        m.loss.bind(d=2).ir()
    assert "the size n of `loss` is not given" in str(caught.value) and "f.bind(n=3)" in str(caught.value)


def test_it_stays_bound_as_a_structure_of_jax(m: Any) -> None:
    f = jax.tree.map(lambda x: x, m.powers.bind(n=2))
    np.testing.assert_allclose(f(2.0, 1.0), [1, 2])


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"e": 3}, "has no size `e`"),
        ({"x": 3}, "its sizes are d, n"),
        ({"n": 2.5}, "but a float was given"),
        ({"n": True}, "but a bool was given"),
        ({"n": -1}, "`n` is a size, and -1 is out of its range"),
        ({"n": 2**70}, "it is an i32, from 0 to 2,147,483,647"),
    ],
)
def test_what_is_no_size(m: Any, sizes: Any, says: str) -> None:
    with pytest.raises(difflang.ArgumentError) as caught:
        m.loss.bind(**sizes)
    assert says in str(caught.value)


def test_a_size_is_bound_once_and_for_python_alone(m: Any) -> None:
    with pytest.raises(difflang.ArgumentError, match="the size `n` is already bound to 3"):
        m.loss.bind(n=3).bind(n=4)
    assert m.loss.bind(n=3).bind(d=2).signature.bound == "d = 2, n = 3"
    with pytest.raises(difflang.ArgumentError, match="a function with bound sizes"):
        m.twice(m.powers.bind(n=2), 2.0)
