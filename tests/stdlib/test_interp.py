"""`interp`: values and derivatives of curves against SciPy's, in f32 and f64."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate as si

from support.language import answer, codes
from support.library import Engine, Like, compared, stdlib

IMPORTS = stdlib("interp")
RNG = np.random.default_rng(6)
X = np.array([-1.0, -0.2, 0.5, 1.7, 2.0, 3.5])
Y = RNG.normal(size=6)
AT = np.array([-0.9, -0.1, 0.7, 1.9, 2.2, 3.4])
BEYOND = np.array([-2.0, 4.0, 0.1])
GRID = RNG.normal(size=(4, 5))
ROWS, COLUMNS = np.array([0.3, 2.9, 1.5]), np.array([3.2, 0.1, 2.5])


def linear_in_y(method: Any) -> Any:
    """A curve that depends on y linearly, by its values for unit vectors: as JAX sees it, in the places a cubic each."""

    def twin(at: Any, y: Any) -> Any:
        pieces = [method(X, e) for e in np.eye(6)]
        i = jnp.clip(jnp.searchsorted(jnp.asarray(X), at, side="right") - 1, 0, 4)
        total: Any = 0
        for k, piece in enumerate(pieces):
            c = jnp.asarray(piece.c)
            powers = sum(c[j][i] * (at - jnp.asarray(X)[i]) ** (len(c) - 1 - j) for j in range(len(c)))
            total = total + y[k] * powers
        return total

    return twin


def lagrange(at: Any, y: Any) -> Any:
    return sum(
        y[k] * jnp.prod(jnp.stack([(at - X[j]) / (X[k] - X[j]) for j in range(6) if j != k]), axis=0) for k in range(6)
    )


def bilinear(grid: Any, i: Any, j: Any) -> Any:
    return jax.scipy.ndimage.map_coordinates(grid, [i, j], order=1, mode="nearest")


def linear_in_y_of(curve: Any, at: Any) -> Any:
    i = jnp.clip(jnp.searchsorted(jnp.asarray(curve.x), at, side="right") - 1, 0, len(curve.x) - 2)
    c = jnp.asarray(curve.c)
    return sum(c[j][i] * (at - jnp.asarray(curve.x)[i]) ** (len(c) - 1 - j) for j in range(len(c)))


XS = f"{X.tolist()}"
TABLE = [
    Like("linear_interp", "|at, x, y| linear_interp(at, x, y)", jnp.interp, (AT, X, Y)),
    Like("linear_interp beyond", "|at, y| linear_interp(at, [-1.0, -0.2, 0.5, 1.7, 2.0, 3.5], y)", lambda at, y: jnp.interp(at, X, y), (BEYOND, Y)),
    Like("nearest", "|at, y| nearest(at, [-1.0, -0.2, 0.5, 1.7, 2.0, 3.5], y)", lambda at, y: y[np.argmin(np.abs(AT[:, None] - X), axis=1)] + 0 * at, (AT, Y)),
    Like("natural_spline", f"|at, y| curve_at(natural_spline({XS}, y), at)", linear_in_y(lambda x, y: si.CubicSpline(x, y, bc_type="natural")), (AT, Y), loose=3),
    Like("natural_spline beyond", f"|at, y| curve_at(natural_spline({XS}, y), at)", linear_in_y(lambda x, y: si.CubicSpline(x, y, bc_type="natural")), (BEYOND, Y), loose=20),
    Like("clamped_spline", f"|at, y| curve_at(clamped_spline({XS}, y, 0.0, 0.0), at)", linear_in_y(lambda x, y: si.CubicSpline(x, y, bc_type="clamped")), (AT, Y), loose=3),
    Like("pchip", f"|at| curve_at(pchip({XS}, {Y.tolist()}), at)", lambda at: linear_in_y_of(si.PchipInterpolator(X, Y), at), (AT,), loose=3),
    Like("barycentric", f"|at, y| barycentric(at, {XS}, y)", lagrange, (AT, Y), loose=100),
    Like("bilinear", "bilinear", bilinear, (GRID, ROWS, COLUMNS)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS)


def test_derivatives_in_the_values_of_pchip() -> None:
    """It is not linear in them: against differences of SciPy's."""
    slope = answer(f"jacobian(|y| curve_at(pchip({XS}, y), {AT.tolist()}))({Y.tolist()})", IMPORTS, Engine("interpret"))
    h = 1e-6
    theirs = [
        (si.pchip_interpolate(X, Y + h * e, AT) - si.pchip_interpolate(X, Y - h * e, AT)) / (2 * h) for e in np.eye(6)
    ]
    np.testing.assert_allclose(slope, np.array(theirs).T, atol=1e-8)


def test_edges_and_broken_numbers() -> None:
    ask = """(linear_interp(zeros(0), [0.0, 1.0], [1.0, 2.0]), curve_at(natural_spline([0.0, 2.0], [1.0, 5.0]), [1.0]),
      isnan(linear_interp([nan, 0.5], [0.0, 1.0], [1.0, 2.0])), bilinear([[0.0, 1.0], [2.0, 3.0]], [-3.0, 9.0], [-1.0, 9.0]), barycentric([7.0], [1.0], [4.0]))"""
    none, line, nan, corners, one = answer(ask, IMPORTS, Engine("interpret"))
    assert (
        none.shape == (0,) and line == 3 and nan.tolist() == [True, False] and corners.tolist() == [0, 3] and one == 4
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "linear_interp([1.0], [1.0, 1.0], [0.0, 0.0])",
        "nearest([1.0], [1.0, nan], [0.0, 0.0])",
        "natural_spline([2.0, 1.0], [0.0, 0.0])",
        "clamped_spline([2.0, 1.0], [0.0, 0.0], 0.0, 0.0)",
        "pchip([2.0, 1.0, 3.0], [0.0, 0.0, 0.0])",
    ],
)
def test_what_does_not_fit(wrong: str) -> None:
    assert [c for c, _ in codes(f"{IMPORTS}let y = {wrong}\n", Engine("interpret"))] == ["DL0901"]
