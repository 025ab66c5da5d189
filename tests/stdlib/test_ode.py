"""`ode`: against closed forms, against SciPy's method of the same coefficients and steps, and its derivatives."""

# ruff: noqa: E501 - a program is a line

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from difflang.execution.engine import Engine
from support.language import answer, codes, ran
from support.programs import programs

IMPORT = "import ode (dopri5, rk4)\n"
PREY = "fn prey(t: f64, y: f64[2]) -> f64[2] = [1.1 * y[0] - 0.4 * y[0] * y[1], 0.1 * y[0] * y[1] - 0.4 * y[1] + 0.1 * sin(t)]\n"


def prey(t: float, y: np.ndarray) -> list[float]:
    return [1.1 * y[0] - 0.4 * y[0] * y[1], 0.1 * y[0] * y[1] - 0.4 * y[1] + 0.1 * math.sin(t)]


@pytest.mark.parametrize(
    ("t0", "t1", "rtol", "atol"), [(0, 9, 1e-6, 1e-9), (0, 20, 1e-3, 1e-6), (2, -3, 1e-8, 1e-10), (1, 1, 1e-6, 1e-9)]
)
def test_the_steps_are_those_of_scipy(t0: float, t1: float, rtol: float, atol: float) -> None:
    """Another choice of steps would differ by the tolerance; rounding alone does by far less."""
    theirs = solve_ivp(prey, (t0, t1), [10.0, 5.0], method="RK45", rtol=rtol, atol=atol).y[:, -1]
    ask = f"dopri5(prey, [10.0, 5.0], {t0}.0, {t1}.0, rtol = {rtol}, atol = {atol})"
    np.testing.assert_allclose(answer(ask, IMPORT + PREY), theirs, rtol=1e-9)


def test_a_tuple_is_integrated_as_an_array_is() -> None:
    pair = """fn parts(t: f64, y: (f64, (f64[1], f64))) -> (f64, (f64[1], f64)) {
  let (a, (b, c)) = y
  let r = prey(t, [a, b[0]])
  (r[0], ([r[1]], -c))
}
"""
    ask = "(dopri5(parts, (10.0, ([5.0], 0.0)), 0.0, 5.0), dopri5(|t, y| concat(prey(t, y[..2]), -y[2..]), [10.0, 5.0, 0.0], 0.0, 5.0))"
    a, b, c, whole = answer(ask, IMPORT + PREY + pair)
    np.testing.assert_allclose([a, b[0], c], whole, rtol=1e-12)


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_rk4_is_of_order_4(way: float) -> None:
    ask = ", ".join(f"rk4(|t, y| {way} * y * cos(t), 1.0, 0.0, {2 * way}, steps = {n})" for n in (20, 40, 80))
    found = np.array(answer(f"({ask})", IMPORT))
    off = np.abs(found - math.exp(way * math.sin(2 * way)))
    np.testing.assert_allclose(off[:-1] / off[1:], 16, rtol=0.06)


def test_a_record_is_moved_in_what_changes() -> None:
    """A planet goes once around; its mass and its number stay."""
    declarations = """
record Planet { x: f64[2], v: f64[2], mass: f64, id: i32 }
fn rate(p: Planet) -> D(Planet) = zero(p) with (x = p.v, v = -p.x / norm(p.x)^3)
fn after(p: Planet, t: f64) -> Planet = rk4(|_, p| rate(p), p, 0.0, t, steps = 200)
let p = Planet(x = [1.0, 0.0], v = [0.0, 1.0], mass = 3.0, id = 7)
"""
    x, v, mass, id = answer("after(p, 2 * pi)", IMPORT + declarations)
    np.testing.assert_allclose([*x, *v], [1, 0, 0, 1], atol=2e-7)
    assert float(mass) == 3 and int(id) == 7
    slope = answer("grad[p.v](|p, t| after(p, t).x[0])(p, 0.3)", IMPORT + declarations)
    moved = [answer(f"after(p with (v = [{h}, 1.0]), 0.3).x[0]", IMPORT + declarations) for h in (1e-6, -1e-6)]
    assert slope[0] == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-8)


# ---- Derivatives


DECAY = (
    "fn y(k: f64, y0: f64, t0: f64, t1: f64) -> f64 = dopri5(|t, y| -k * y, y0, t0, t1, rtol = 1e-11, atol = 1e-13)\n"
)


def test_gradients_of_the_closed_form() -> None:
    k, y0, t0, t1 = 0.7, 2.0, 0.5, 2.5
    value = y0 * math.exp(-k * (t1 - t0))
    ask = f"grad[k, y0, t0, t1](y)({k}, {y0}, {t0}, {t1})"
    expected = (-(t1 - t0) * value, value / y0, k * value, -k * value)
    np.testing.assert_allclose(answer(ask, IMPORT + DECAY), expected, rtol=1e-9)
    second = answer(f"(grad(grad(y))({k}, {y0}, {t0}, {t1}), hvp(y)({k}, {y0}, {t0}, {t1}, 1.0))", IMPORT + DECAY)
    np.testing.assert_allclose(second, (t1 - t0) ** 2 * value, rtol=1e-8)
    pushed = answer(f"jvp[k, t1](y)({k}, {y0}, {t0}, {t1}, 1.0, 2.0)", IMPORT + DECAY)[1]
    assert pushed == pytest.approx(expected[0] + 2 * expected[3], rel=1e-9)


def test_gradients_are_those_of_the_steps_taken() -> None:
    """To the last digits: the same steps, done in 40 digits, and differentiated."""

    def steps(k: Any) -> Any:
        y, h = mp.mpf(1), mp.mpf(1) / 7
        for _ in range(7):
            z = -k * h
            y *= 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24
        return y

    with mp.workdps(40):
        expected = [float(mp.diff(steps, mp.mpf("1.3"), n)) for n in (1, 2, 3)]
    f = "fn f(k: f64) -> f64 = rk4(|t, y| -k * y, 1.0, 0.0, 1.0, steps = 7)\n"
    np.testing.assert_allclose(answer("(f'(1.3), f''(1.3), f'''(1.3))", IMPORT + f), expected, rtol=1e-13)


NEURAL = programs()["chapter7/neural_ode.dfl"]
DATA = """
fn start(d: dim, h: dim) -> Net[d, h] = Net(a = 0.5 * normal(h, d), p = normal(h), b = 0.5 * normal(d, h), q = normal(d))
let net = start(2, 3)
let z0 = normal(4, 2)
let z1 = normal(4, 2)
"""


@pytest.mark.nightly
def test_a_neural_ode_learns() -> None:
    """As it stands in the language's description, compiled: a long step down the gradient."""
    single = NEURAL.replace("-0.01 *", "-0.1 *") + re.sub(r"(normal\([^()]*\))", r"f32(\1)", DATA)
    before, after = answer("(loss(net, z0, z1), loss(step(net, z0, z1), z0, z1))", single, Engine("xla"))
    assert np.asarray(before).dtype == np.float32 and after < 0.95 * before


def test_the_gradient_of_a_neural_ode() -> None:
    """Forward and reverse mode agree to rounding, and with differences of a loss that is nearly exact."""
    double = (NEURAL + DATA).replace("f32", "f64").replace("rtol = 1e-6", "rtol = 1e-9, atol = 1e-11")
    ask = """
fn along(net: Net[2, 3], v: D(Net[2, 3]), s: f64) -> f64 = loss(net + s * v, z0, z1)
let v = grad[net](loss)(net, z0, z1)
"""
    found = answer(
        "(dot(v, v), jvp[net](loss)(net, z0, z1, v) |> |(y, dy)| dy, (along(net, v, 1e-4) - along(net, v, -1e-4)) / 2e-4)",
        double + ask,
    )
    backwards, forwards, differences = map(float, found)
    assert forwards == pytest.approx(backwards, rel=1e-12)
    assert differences == pytest.approx(backwards, rel=1e-6)


# ---- What cannot be integrated


@pytest.mark.parametrize("engine", ["interpret", "xla"])
@pytest.mark.parametrize("rate", ["y * y", "0.0 / (1.0 - t) / 0.0", "sqrt(-y)"])
def test_no_step_is_short_enough(rate: str, engine: str) -> None:
    """y' = y² leaves every bound at t = 1, and others are no numbers: an error, and no loop without end."""
    program = f"{IMPORT}print(dopri5(|t, y| {rate}, 1.0, 0.0, 2.0))\n"
    ((code, _),) = codes(program, Engine(engine))  # type: ignore[arg-type]
    assert code == "DL0901"


def test_a_batch_is_integrated_lane_by_lane() -> None:
    f = "fn f(k: f64) -> f64 = dopri5(|t, y| -k * y * y, 1.0, 0.0, 1.0)\n"
    ask = (
        "([for i in 0..3 => f(f64(i) * 3.0)], vmap(grad(f))([0.5, 5.0]), [f(0.0), f(3.0), f(6.0)], [f'(0.5), f'(5.0)])"
    )
    lanes, slopes, alone, each = answer(ask, IMPORT + f, Engine("xla"))
    np.testing.assert_allclose(lanes, alone, rtol=1e-15)
    np.testing.assert_allclose(slopes, each, rtol=1e-13)


# ---- The other methods, dense output and events, from one program


OTHERS = """import ode (euler, midpoint, implicit_euler, rk4, leapfrog, rosenbrock23, dopri5, dopri5_at, dopri5_until)
fn wave(t: f64, y: f64[1]) -> f64[1] = [y[0] * cos(t)]
fn vdp(t: f64, y: f64[2]) -> f64[2] = [y[1], 30 * (1 - y[0]^2) * y[1] - y[0]]
fn robertson(k: f64, y: f64[3]) -> f64[3] {
  let (slow, fast, back) = (k * y[0], 3e7 * y[1]^2, 1e4 * y[1] * y[2])
  [-slow + back, slow - fast - back, fast]
}
let grid = {grid}
let path = dopri5_at(prey, [10.0, 5.0], 0.0, 9.0, grid, rtol = 1e-9, atol = 1e-11)
let back = dopri5_at(prey, [10.0, 5.0], 9.0, 0.0, [9.0, 4.5, 0.0])
let slope_at = (|t| dopri5_at(prey, [10.0, 5.0], 0.0, 9.0, [t], rtol = 1e-9, atol = 1e-11)[0, 0])'(3.0)
let slope_k = (|k| dopri5_at(|t, y| -k * y, [2.0], 0.0, 2.0, [0.7, 1.9], rtol = 1e-10, atol = 1e-12)[.., 0]) |> |f| jacfwd(f)(1.3)
let ball = dopri5_until(|t, y| [y[1], -9.81 - 0.1 * y[1]], |t, y| y[0], [10.0, 2.0], 0.0, 99.0, rtol = 1e-9)
let landing = (|v| dopri5_until(|t, y| [y[1], -9.81 - 0.1 * y[1]], |t, y| y[0], [10.0, v], 0.0, 99.0, rtol = 1e-9).y[1])
let slope_landing = grad(landing)(2.0)
let landings = (landing(2.0001) - landing(1.9999)) / 2e-4
let stiff = rosenbrock23(vdp, [2.0, 0.0], 0.0, 5.0, rtol = 1e-5, atol = 1e-8)
let chemistry = |k| rosenbrock23(|t, y| robertson(k, y), [1.0, 0.0, 0.0], 0.0, 40.0, rtol = 1e-4, atol = 1e-8)
let fast = chemistry(0.04)
let slope_fast = jacfwd(chemistry)(0.04)
fn swing(x: f64[2]) -> f64[2] = -sin(x)
fn after(x: f64[2], v: f64[2], n: i32) -> f64[2] { let (y, w) = leapfrog(swing, x, v, 2.0 / f64(n), n)
  y }
let slope_leap = jacobian(|x| after(x, [0.3, -0.2], 50))([1.0, 0.5])
let leap_apart = [for j in 0..2 => (after([1.0, 0.5] + 1e-5 * eye(2)[j], [0.3, -0.2], 50) - after([1.0, 0.5] - 1e-5 * eye(2)[j], [0.3, -0.2], 50)) / 2e-5]
let single = dopri5_at(|t, y| -y, [f32(1)], 0.0, 1.0, [0.5, 1.0])
let none = dopri5_at(|t, y| -y, zeros(0), 0.0, 1.0, [0.5, 1.0])
"""
GRID = [0.0, 0.1, 3.0, 4.5, 8.9, 9.0]
ORDERS = {"euler": 1, "midpoint": 2, "rk4": 4, "implicit_euler": 1, "leapfrog": 2}


@cache
def others() -> dict[str, np.ndarray]:
    source = OTHERS.replace("{grid}", str(GRID)) + PREY
    for name in ORDERS:
        for n in (40, 80):
            call = (
                f"after([1.0, 0.5], [0.3, -0.2], {n})"
                if name == "leapfrog"
                else f"{name}(wave, [1.0], 0.0, 2.0, steps = {n})"
            )
            source += f"let {name}_{n} = {call}\n"
    values, _ = ran("float f64\n" + source, Engine("interpret"))
    return {
        k: np.asarray(v.leaves[0]) if len(v.leaves) == 1 else np.array([np.asarray(x) for x in v.leaves], dtype=object)
        for k, v in values.items()
        if v.leaves
    }


@pytest.mark.parametrize("default", ["", "float f64\n"])
def test_dense_output_where_a_step_ends(default: str) -> None:
    """Of a time that is the end of a step to the last bit, the part of the step may be rounded up to more than 1."""
    f = "|t, y| -y * cos(t)"
    source = f"""{default}import ode (dopri5_at)
import adaptive (adaptive)
let (_, (_, ends)) = adaptive({f}, 1.0, 1.0, 9.0, 1e-6, 1e-9, (0, fill(40, 9.0)), |(k, ends), arc| {{
  var more = ends
  more[k] = arc.t + arc.h
  (k + 1, more)
}}, |_| false, |y| y)
let y = dopri5_at({f}, [1.0], 1.0, 9.0, ends)[.., 0]
"""
    values, _ = ran(source)
    times, found = (np.asarray((values[name].leaves or ())[0], float) for name in ("ends", "y"))
    np.testing.assert_allclose(found, np.exp(math.sin(1) - np.sin(times)), rtol=1e-4)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.nightly_except("euler")
def test_the_order_of_convergence(name: str) -> None:
    """Half the step, a 2^order-th of the error."""
    if name == "leapfrog":
        swing = solve_ivp(lambda _, s: [*s[2:], *-np.sin(s[:2])], (0, 2), [1.0, 0.5, 0.3, -0.2], rtol=1e-12, atol=1e-13)
        exact: Any = swing.y[:2, -1]
    else:
        exact = math.exp(math.sin(2))
    coarse, fine = (np.abs(others()[f"{name}_{n}"] - exact) for n in (40, 80))
    np.testing.assert_allclose(np.log2(coarse / fine), ORDERS[name], atol=0.1)


def test_dense_output_is_the_solution() -> None:
    theirs = solve_ivp(prey, (0, 9), [10.0, 5.0], t_eval=GRID, rtol=1e-12, atol=1e-13).y.T
    np.testing.assert_allclose(others()["path"], theirs, rtol=2e-6)
    assert others()["slope_at"] == pytest.approx(prey(3.0, theirs[2])[0], rel=1e-4)
    np.testing.assert_allclose(others()["back"][0], [10, 5], rtol=0)
    times = np.array([0.7, 1.9])
    np.testing.assert_allclose(others()["slope_k"], -times * 2 * np.exp(-1.3 * times), rtol=1e-6)
    assert others()["single"].dtype == np.float32 and others()["none"].shape == (2, 0)


def test_events_and_their_derivatives() -> None:
    def ground(_: float, y: np.ndarray) -> float:
        return y[0]

    ground.terminal = True  # type: ignore[attr-defined]
    theirs = solve_ivp(
        lambda _, y: [y[1], -9.81 - 0.1 * y[1]], (0, 99), [10.0, 2.0], events=ground, rtol=1e-10, atol=1e-12
    )
    t, y, happened = others()["ball"]
    assert happened and float(t) == pytest.approx(theirs.t_events[0][0], rel=1e-7)
    assert y[1] == pytest.approx(theirs.y_events[0][0, 1], rel=1e-7)
    assert others()["slope_landing"] == pytest.approx(float(others()["landings"]), rel=1e-5)


def test_stiff_equations() -> None:
    """Van der Pol's with 30, and Robertson's reactions, against SciPy's Radau, and the derivative against that of Radau."""
    vdp = solve_ivp(
        lambda _, y: [y[1], 30 * (1 - y[0] ** 2) * y[1] - y[0]],
        (0, 5),
        [2.0, 0.0],
        method="Radau",
        rtol=1e-9,
        atol=1e-11,
    )
    np.testing.assert_allclose(others()["stiff"], vdp.y[:, -1], rtol=1e-3)

    def reaction(_: float, y: np.ndarray, k: float = 0.04) -> list[float]:
        slow, fast, back = k * y[0], 3e7 * y[1] ** 2, 1e4 * y[1] * y[2]
        return [-slow + back, slow - fast - back, fast]

    low, theirs, high = (
        solve_ivp(reaction, (0, 40), [1.0, 0, 0], method="Radau", rtol=1e-10, atol=1e-13, args=(k,)).y[:, -1]
        for k in (0.0399, 0.04, 0.0401)
    )
    np.testing.assert_allclose(others()["fast"], theirs, rtol=2e-3)
    np.testing.assert_allclose(others()["slope_fast"], (high - low) / 2e-4, rtol=2e-2)


def test_the_gradient_of_a_leap_is_that_of_its_steps() -> None:
    np.testing.assert_allclose(others()["slope_leap"], others()["leap_apart"].T, rtol=1e-8)


@pytest.mark.parametrize(
    "wrong", ["euler(|t, y| y, 1.0, 0.0, 1.0, steps = 0)", "rosenbrock23(|t, y| y * y, [1.0], 0.0, 2.0)"]
)
def test_what_does_not_fit(wrong: str) -> None:
    assert [c for c, _ in codes(f"import ode (euler, rosenbrock23)\nlet y = {wrong}\n", Engine("interpret"))] == [
        "DL0901"
    ]
