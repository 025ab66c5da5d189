"""`sparse`, `data` and `prob`: against SciPy's matrices, NumPy, and distributions that are known."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sparse

from support.language import answer, codes
from support.library import Engine, Like, compared, stdlib

IMPORTS = stdlib("sparse") + stdlib("data") + stdlib("prob")
RNG = np.random.default_rng(9)
ROW, COLUMN = np.array([3, 0, 1, 1, 2, 3, 3, 0]), np.array([0, 0, 1, 2, 2, 3, 3, 2])
VALUE, X = RNG.normal(size=8) + 3, RNG.normal(size=4)
TABLE_OF_DATA = RNG.normal(size=(6, 2))
PLACES = f"row = {ROW.tolist()}, column = {COLUMN.tolist()}"


def full(v: Any) -> Any:
    return jnp.zeros((4, 4)).at[ROW, COLUMN].add(v)


TABLE = [
    Like("coo_dense", f"|v| coo_dense(Coo({PLACES}, value = v), 4, 4)", full, (VALUE,)),
    Like("coo_times", f"|v, x| coo_times(Coo({PLACES}, value = v), x, 4)", lambda v, x: full(v) @ x, (VALUE, X)),
    Like("coo_transpose", f"|v, x| coo_times(coo_transpose(Coo({PLACES}, value = v)), x, 4)", lambda v, x: full(v).T @ x, (VALUE, X)),
    Like("coo_solve", f"|v, x| coo_solve(Coo({PLACES}, value = v), x)", lambda v, x: jnp.linalg.solve(full(v), x), (VALUE, X), loose=20),
    Like("csr_times", f"|v, x| csr_times(csr_of(Coo({PLACES}, value = v), 4), x)", lambda v, x: full(v) @ x, (VALUE, X)),
    Like("csr_dense", f"|v| csr_dense(csr_of(Coo({PLACES}, value = v), 4), 4)", full, (VALUE,)),
    Like("coo_of", f"|v| coo_dense(coo_of(csr_of(Coo({PLACES}, value = v), 4)), 4, 4)", full, (VALUE,)),
    Like("csr_solve", f"|v, x| csr_solve(csr_of(Coo({PLACES}, value = v), 4), x)", lambda v, x: jnp.linalg.solve(full(v), x), (VALUE, X), loose=20),
    Like("coo_matmul", f"|v, x| coo_matmul(Coo({PLACES}, value = v), x, 4)", lambda v, x: full(v) @ x, (VALUE, TABLE_OF_DATA[:4])),
    Like("csr_matmul", f"|v, x| csr_matmul(csr_of(Coo({PLACES}, value = v), 4), x)", lambda v, x: full(v) @ x, (VALUE, TABLE_OF_DATA[:4])),
    Like("coo_sum", f"|v| {{ let a = Coo({PLACES}, value = v)\n  coo_dense(coo_sum(a, coo_transpose(a)), 4, 4) }}", lambda v: full(v) + full(v).T, (VALUE,)),
    Like("coo_diagonal", f"|v| coo_diagonal(Coo({PLACES}, value = v), 4)", lambda v: jnp.diag(full(v)), (VALUE,)),
    Like("one_hot", "|k, o| one_hot(k, 5, one = o)", lambda k, o: o * jnp.eye(5)[k], (ROW, np.float64(2))),
    Like("standard", "|x| scaled(standard(x), x)", lambda x: (x - x.mean(0)) / x.std(0), (TABLE_OF_DATA,)),
    Like("unit_range", "|x| scaled(unit_range(x), x)", lambda x: (x - x.min(0)) / (x.max(0) - x.min(0)), (TABLE_OF_DATA,)),
    Like("unscaled", "|s, x| unscaled(Scaling(shift = s, scale = s), x)", lambda s, x: x * s + s, (X[:2], TABLE_OF_DATA)),
    Like("kl_normal", "kl_normal", lambda m, s, n, t: jnp.log(t / s) + (s**2 + (m - n) ** 2) / (2 * t**2) - 0.5, (X, VALUE[:4], VALUE[4:], VALUE[2:6])),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)


def test_rows_as_scipy_keeps_them() -> None:
    start, column, value = answer(f"csr_of(Coo({PLACES}, value = {VALUE.tolist()}), 4)", IMPORTS, Engine("interpret"))
    theirs = sparse.csr_array((value, column, start), shape=(4, 4)).toarray()
    np.testing.assert_allclose(theirs, sparse.coo_array((VALUE, (ROW, COLUMN)), shape=(4, 4)).toarray(), rtol=1e-15)


def test_what_is_drawn_of_data() -> None:
    x = np.arange(14).reshape(7, 2)
    ask = f"(batches(11, 3), shuffled({x.tolist()}), split_rows({x.tolist()}, 5), folds(11, 4), bootstrap(50), batches(2, 3), split_rows({x.tolist()}, 0))"
    rows, mixed, train, test, fold, places, none, empty, whole = answer(ask, IMPORTS, Engine("interpret"))
    assert rows.shape == (3, 3) and len(set(rows.ravel().tolist())) == 9 and rows.max() < 11
    for both in (mixed, np.concatenate([train, test]), np.concatenate([empty, whole])):
        assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, x.tolist()))
    assert sorted(np.bincount(fold).tolist()) == [2, 3, 3, 3] and none.shape == (0, 3)
    assert places.min() >= 0 and places.max() < 50 and len(set(places.tolist())) < 45


@pytest.mark.nightly
def test_chains_and_bounds() -> None:
    """A normal pair with correlation: moments of the chains, the bound that a right guess meets, and its gradient 0 there."""
    cov = np.array([[1.0, 0.6], [0.6, 2.0]])
    p = np.linalg.inv(cov).tolist()
    ask = f"""(hmc(|x| -dot(x, {p} @ x) / 2, [0.0, 0.0], 0.5, 5, 1500), metropolis(|x| -dot(x, x) / 2, [0.0], 2.0, 1500),
      elbo(|x| -(x[0] - 1.0)^2 / 8.0, [1.0], [log(2.0)], 400), grad[middle](elbo)(|x| -(x[0] - 1.0)^2 / 8.0, [0.0], [log(2.0)], 400),
      effective_size([for i in 0..400 => normal()]), potential_scale([[1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 3.0, 7.0]]))"""
    x, taken, y, moved, bound, uphill, size, scale = answer(ask, IMPORTS, Engine("interpret"), seed=2)
    assert 0.6 < taken <= 1 and 0.3 < moved < 0.8
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.3)
    assert abs(y.var() - 1) < 0.2 and abs(y.mean()) < 0.2
    assert float(bound) == pytest.approx(0.5 * np.log(2 * np.pi * 4), abs=0.1) and 0.1 < uphill[0] < 0.4
    assert 200 < size < 800
    chains = np.array([[1.0, 2, 3, 4], [2, 4, 3, 7]])
    within, between = chains.var(axis=1, ddof=1).mean(), chains.mean(axis=1).var(ddof=1)
    assert float(scale) == pytest.approx(np.sqrt((within * 3 / 4 + between) / within), rel=1e-13)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("coo_times(Coo(row = [2], column = [0], value = [1.0]), [1.0], 2)", "DL0902"),
        ("one_hot([3], 3)", "DL0902"),
        ("hmc(|x| -x[0]^2, [0.0], 0.0, 1, 2)", "DL0901"),
        ("metropolis(|x| log(x[0]), [-1.0], 1.0, 2)", "DL0901"),
    ],
)
def test_what_does_not_fit(wrong: str, code: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == [code]
