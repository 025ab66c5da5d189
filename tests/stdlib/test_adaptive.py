"""`adaptive`: its steps, and the states between them, against SciPy's of the same method; derivatives against the same steps in JAX."""

# ruff: noqa: E501 - a function of the language is a line

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate as si
from scipy.integrate._ivp.common import select_initial_step

from support.language import codes, ran
from support.library import Engine, Like, compared, stdlib

Array = Any
IMPORTS = stdlib("adaptive")
RNG = np.random.default_rng(3)
ARC = tuple(RNG.normal(size=(5, 3)))  # y, next, slope, slope_next, bend


def between(h: Array, y: Array, last: Array, slope: Array, slope_last: Array, bend: Array, part: Array) -> Array:
    """Hermite's polynomial of order 3, and the rest, which is 0 with its slope at both ends."""
    a, b, c, d = (
        (1 + 2 * part) * (1 - part) ** 2,
        part * (1 - part) ** 2,
        part**2 * (3 - 2 * part),
        part**2 * (part - 1),
    )
    return a * y + b * h * slope + c * last + d * h * slope_last + part**2 * (1 - part) ** 2 * bend


TABLE = [
    Like("along", "|h, a, b, c, d, e, part| along(Arc(t = zero(h), h = h, y = a, next = b, slope = c, slope_next = d, bend = e), part)", between, (np.float64(0.4), *ARC, np.float64(0.3))),
    Like("rms", "rms", lambda x: jnp.sqrt(jnp.mean(x**2)), (ARC[0],)),
    Like("rms of several", "|x, y| rms((x, [y, y]))", lambda x, y: jnp.sqrt(jnp.mean(jnp.concatenate([x, y, y]) ** 2)), (ARC[0], ARC[1])),
    Like("rms of nothing", "|x| rms(zeros(0)) + x", lambda x: x, (np.float64(2),)),
]  # fmt: skip
test_it_is_as_elsewhere = compared(TABLE, IMPORTS, long=True)

# A pendulum with friction and a drive.
START, DRIVE, ENDS, RTOL_OF_STEPS, ATOL_OF_STEPS = [1.0, -0.5], [0.1, 0.4], (0.25, 6.5), 1e-3, 1e-5


def pendulum(t: Any, y: Any, p: Any, np: Any = np) -> Any:
    return np.stack([y[1], -np.sin(y[0]) - p[0] * y[1] + p[1] * np.cos(t)])


def one_step(y: Array, h: Array, t: Array, p: Array) -> Array:
    """SciPy's tableau."""
    ks: list[Array] = []
    for a, c in zip(si.RK45.A, si.RK45.C, strict=True):
        ks.append(pendulum(t + c * h, y + h * sum((w * k for w, k in zip(a, ks, strict=False)), jnp.zeros(2)), p, jnp))
    return y + h * sum(w * k for w, k in zip(si.RK45.B, ks, strict=True))


@cache
def theirs() -> tuple[Any, list[Array]]:
    """SciPy's solution, and the last state's derivatives in the first one, the parameters and both ends, with the lengths of steps as given but for the last one."""
    f = lambda t, y: pendulum(t, y, DRIVE)
    path = si.solve_ivp(f, ENDS, START, rtol=RTOL_OF_STEPS, atol=ATOL_OF_STEPS, dense_output=True)
    with jax.enable_x64(True):

        def last(y: Array, p: Array, t0: Array, t1: Array) -> Array:
            t = t0
            for h in np.diff(path.t)[:-1]:
                y, t = one_step(y, h, t, p), t + h
            return one_step(y, t1 - t, t, p)

        given = (jnp.array(START), jnp.array(DRIVE), *map(jnp.float64, ENDS))
        np.testing.assert_allclose(last(*given), path.y[:, -1], rtol=1e-13)
        return path, list(map(np.asarray, jax.jacfwd(last, argnums=(0, 1, 2, 3))(*given)))


# Every step is noted, with its begin, its length and the state at 0.3 of it.
ASKED = """let (y0, p0, t0, t1): (N[2], N[2], N, N) = ([1.0, -0.5], [0.1, 0.4], 0.25, 6.5)
fn pendulum(t: N, y: N[2], p: N[2]) -> N[2] = [y[1], -sin(y[0]) - p[0] * y[1] + p[1] * cos(t)]
fn noted(seen: (i32, N[40, 4]), arc: Arc[N[2], N]) -> (i32, N[40, 4]) {
  var (k, now) = seen
  now[k] = concat([arc.t, arc.h], along(arc, 0.3))
  (k + 1, now)
}
let (y1, (steps, path)) = adaptive(|t, y| pendulum(t, y, p0), y0, t0, t1, 1e-3, 1e-5, (i32(0), zeros(40, 4)), noted, |_| false, |y| y)
let final = |y, p, a, b| { let (last, _) = adaptive(|t, y| pendulum(t, y, p), y, a, b, 1e-3, 1e-5, 0, |k, _| k, |_| false, |y| y)
  last }
let forward = (jacfwd(|x| final(x, p0, t0, t1))(y0), jacfwd(|x| final(y0, x, t0, t1))(p0), jacfwd(|x| final(y0, p0, x, t1))(t0), jacfwd(|x| final(y0, p0, t0, x))(t1))
let reverse = (jacrev(|x| final(x, p0, t0, t1))(y0), jacrev(|x| final(y0, x, t0, t1))(p0), jacrev(|x| final(y0, p0, x, t1))(t0), jacrev(|x| final(y0, p0, t0, x))(t1))
let way = |t, y: N[2]| pendulum(t, y, p0)
let none: N[2] = [0.0, 0.0]
let first = [
  first_step(way, y0, way(t0, y0), t0, t1, 1e-2, 1e-7, |y| y),
  first_step(way, y0, way(t0, y0), t0, t1, 1e-3, 1e-5, |y| y),
  first_step(way, y0, way(t1, y0), t1, t0, 1e-3, 1e-5, |y| y),
  first_step(way, y0, way(t0, y0), t0, t0 + 1e-3, 1e-2, 1e-2, |y| y),
  first_step(way, none, way(t0, none), t0, t1, 1e-3, 1e-5, |y| y),
  first_step(|_, y: N[2]| zero(y), y0, none, t0, t1, 1e-3, 1e-5, |y| y),
]
let moved = jvp(|y| first_step(way, y, way(t0, y), t0, t1, 1e-2, 1e-7, |y| y))(y0, y0) |> |(_, d)| d
let pulled = grad(|y| first_step(way, y, way(t0, y), t0, t1, 1e-2, 1e-7, |y| y))(y0)
"""


@cache
def ours(dtype: str) -> dict[str, tuple[Array, ...]]:
    source = ("float f64\n" if dtype == "f64" else "") + IMPORTS + re.sub(r"\bN\b", dtype, ASKED)
    values, _ = ran(source, Engine("interpret"))
    kept = ("y1", "steps", "path", "forward", "reverse", "first", "moved", "pulled")
    return {k: tuple(map(np.asarray, values[k].leaves or ())) for k in kept}


def started(y: Any, t0: float, t1: float, rtol: float, atol: float, f: Any = pendulum) -> Any:
    """SciPy's first step."""
    way, y = (lambda t, y: np.asarray(f(t, y, DRIVE))), np.asarray(y, float)
    return select_initial_step(way, t0, y, t1, np.inf, way(t0, y), np.sign(t1 - t0), 4, rtol, atol)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.nightly_except("f32")
def test_steps_and_what_is_between_them_are_those_of_scipy(dtype: str) -> None:
    """In f32 the lengths of steps are those of rounded errors, and the path differs by as much less than its own error."""
    (path, _), found = theirs(), ours(dtype)
    (y1,), (steps,), (seen,) = found["y1"], found["steps"], found["path"]
    close = {"f64": 1e-11, "f32": 1e-4}[dtype]
    assert y1.dtype == {"f32": np.float32, "f64": np.float64}[dtype]
    assert steps == len(path.t) - 1
    np.testing.assert_allclose(y1, path.y[:, -1], rtol=0, atol=close)
    seen = seen[: int(steps)].astype(np.float64)
    lengths = {"f64": 1e-9, "f32": 2e-2}[dtype]
    np.testing.assert_allclose(seen[:, 0], path.t[:-1], rtol=lengths)
    np.testing.assert_allclose(seen[:, 1], np.diff(path.t), rtol=lengths, atol=lengths)
    np.testing.assert_allclose(seen[:, 2:], path.sol(seen[:, 0] + 0.3 * seen[:, 1]).T, rtol=0, atol=close)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_derivatives_are_those_of_the_steps(dtype: str) -> None:
    """In the first state, in parameters, and in both ends, forward and in reverse."""
    for way in ("forward", "reverse"):
        for got, want in zip(ours(dtype)[way], theirs()[1], strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol={"f64": 1e-10, "f32": 1e-3}[dtype])


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_the_first_step_is_that_of_scipy(dtype: str) -> None:
    (first,), (moved,), (pulled,) = (ours(dtype)[k] for k in ("first", "moved", "pulled"))
    a, b = ENDS
    wanted = [
        started(START, a, b, 1e-2, 1e-7),
        started(START, a, b, 1e-3, 1e-5),
        started(START, b, a, 1e-3, 1e-5),
        started(START, a, a + 1e-3, 1e-2, 1e-2),
        started([0, 0], a, b, 1e-3, 1e-5),
        started(START, a, b, 1e-3, 1e-5, lambda t, y, p: np.zeros(2)),
    ]
    rtol = {"f64": 1e-9, "f32": 2e-3}[dtype]  # the second slope is a difference of nearly equal numbers
    np.testing.assert_allclose(first, wanted, rtol=rtol)
    h = 1e-4
    slopes = [(started(np.add(START, h * e), a, b, 1e-2, 1e-7) - started(np.subtract(START, h * e), a, b, 1e-2, 1e-7)) / (2 * h) for e in np.eye(2)]  # fmt: skip
    np.testing.assert_allclose(pulled, slopes, rtol={"f64": 1e-6, "f32": 2e-2}[dtype])
    np.testing.assert_allclose(moved, pulled @ START, rtol={"f64": 1e-12, "f32": 1e-2}[dtype])


@pytest.mark.parametrize(
    "wrong", ["0.0, inf, 1e-3, 1e-3", "nan, 1.0, 1e-3, 1e-3", "0.0, 1.0, -1e-3, 1e-3", "0.0, 1.0, 1e-3, nan"]
)
def test_what_does_not_fit(wrong: str) -> None:
    ask = f"let y = first_step(|t, y| -y, 1.0, -1.0, {wrong}, |y| y)\n"
    assert [c for c, _ in codes(IMPORTS + ask, Engine("interpret"))] == ["DL0901"]
