"""Where no derivative exists: every row of the table of conventions, both ways round and on both engines."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.gradcheck.op_calls import OpCall
from difflang.gradcheck.op_derivatives import jvp_graph, random_tangents, vjp_graph
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import BOOL, F64, I32, Tensor
from support.op_calls import lowered

INF, NAN = math.inf, math.nan


def partials(graph: Graph, xs: list[Any], wrt: tuple[bool, ...]) -> dict[str, list[float]]:
    """The derivative of a scalar function in each scalar, both ways round and on both engines."""
    # One operand at a time: the others have no tangent, for a zero tangent times Inf would be NaN.
    alone = [tuple(w and i == k for i, w in enumerate(wrt)) for k, w in enumerate(wrt) if w]
    one = np.array(1.0)
    pushes = [jvp_graph(graph, only) for only in alone]
    pulls = vjp_graph(graph, wrt)
    with jax.enable_x64(True):
        compiled = jax.jit(lambda xs, one: ([lowered(p)(*xs, one)[0] for p in pushes], lowered(pulls)(*xs, one)))(
            xs, one
        )
    return {
        "forward": [float(evaluate(p, *xs, one)[0]) for p in pushes],
        "reverse": [float(y) for y in evaluate(pulls, *xs, one)],
        "compiled forward": [float(y) for y in compiled[0]],
        "compiled reverse": [float(y) for y in compiled[1]],
    }


SCALARS: list[tuple[str, tuple[float, ...], tuple[float, ...]]] = [
    ("abs", (0.0,), (0.0,)),
    ("abs", (-0.0,), (0.0,)),
    ("relu", (0.0,), (0.0,)),
    ("relu", (-0.0,), (0.0,)),
    ("relu", (NAN,), (1.0,)),  # that of `x`, as in `if x <= 0 { 0 } else { x }`
    ("hypot", (0.0, 0.0), (0.0, 0.0)),
    ("hypot", (0.0, -2.0), (0.0, -1.0)),
    ("hypot", (3e200, 4e200), (0.6, 0.8)),
    ("hypot", (3e-200, 4e-200), (0.6, 0.8)),
    ("digamma", (0.0,), (INF,)),
    ("lgamma", (0.0,), (-INF,)),
    ("lgamma", (-0.0,), (INF,)),
    ("lgamma", (-1e-300,), (1e300,)),
    ("gelu_slope", (INF,), (0.0,)),
    ("gelu_slope", (-INF,), (0.0,)),
    ("gamma", (0.0,), (-INF,)),
    ("gamma", (-0.0,), (-INF,)),
    ("xlogy", (0.0, NAN), (NAN, NAN)),
    ("logaddexp", (-INF, -INF), (0.0, 0.0)),
    ("logaddexp", (INF, INF), (0.5, 0.5)),
    ("logaddexp", (1.0, -INF), (1.0, 0.0)),
    ("max", (1.0, 1.0), (0.5, 0.5)),
    ("max", (0.0, -0.0), (0.5, 0.5)),
    ("max", (2.0, 1.0), (1.0, 0.0)),
    ("max", (INF, INF), (0.5, 0.5)),
    ("max", (NAN, 1.0), (NAN, NAN)),
    ("max", (1.0, NAN), (NAN, NAN)),
    ("min", (1.0, 1.0), (0.5, 0.5)),
    ("min", (2.0, 1.0), (0.0, 1.0)),
    ("min", (NAN, 1.0), (NAN, NAN)),
    ("clamp", (-1.0, -1.0, 1.0), (0.0, 1.0, 0.0)),
    ("clamp", (-1.0, 1.0, 1.0), (0.0, 1.0, 0.0)),
    ("clamp", (-1.0, 2.0, 1.0), (0.0, 0.0, 1.0)),
    ("clamp", (-1.0, -2.0, 1.0), (1.0, 0.0, 0.0)),
    ("clamp", (2.0, 0.0, 1.0), (0.0, 0.0, 1.0)),
    ("clamp", (-1.0, NAN, 1.0), (NAN, NAN, NAN)),
    ("sqrt", (0.0,), (INF,)),
    ("sqrt", (-0.0,), (INF,)),
    ("sqrt", (-1.0,), (NAN,)),
    ("rsqrt", (0.0,), (-INF,)),
    ("rsqrt", (-0.0,), (-INF,)),
    ("cbrt", (0.0,), (INF,)),
    ("cbrt", (-0.0,), (INF,)),
    ("log", (0.0,), (INF,)),
    ("log", (-0.0,), (INF,)),
    ("log", (-1.0,), (NAN,)),
    ("log1p", (-1.0,), (INF,)),
    ("log1p", (-2.0,), (NAN,)),
    ("asin", (1.0,), (INF,)),
    ("asin", (-1.0,), (INF,)),
    ("asin", (1.5,), (NAN,)),
    ("acos", (1.0,), (-INF,)),
    ("acos", (-1.5,), (NAN,)),
    ("acosh", (1.0,), (INF,)),
    ("acosh", (0.5,), (NAN,)),
    ("acosh", (-2.0,), (NAN,)),
    ("atanh", (1.0,), (INF,)),
    ("atanh", (-1.0,), (INF,)),
    ("atanh", (2.0,), (NAN,)),
    ("erfinv", (1.0,), (INF,)),
    ("erfinv", (2.0,), (NAN,)),
    ("pow", (0.0, 0.0), (0.0, 0.0)),
    ("pow", (3.0, 0.0), (0.0, math.log(3.0))),
    ("pow", (-2.0, 0.0), (0.0, NAN)),
    ("pow", (0.0, 1.0), (1.0, 0.0)),
    ("pow", (0.0, 2.0), (0.0, 0.0)),
    ("pow", (0.0, 0.5), (INF, 0.0)),
    ("pow", (0.0, -1.0), (-INF, -INF)),
    ("pow", (-2.0, 3.0), (12.0, NAN)),
    ("pow", (-0.0, 2.0), (0.0, 0.0)),
    ("atan2", (0.0, 0.0), (0.0, 0.0)),
    ("atan2", (-0.0, 0.0), (0.0, 0.0)),
    ("atan2", (1e200, 1e200), (0.5e-200, -0.5e-200)),
    ("rem", (7.0, 2.0), (1.0, -3.0)),
    ("rem", (-7.0, 2.0), (1.0, 4.0)),
    ("rem", (6.0, 2.0), (1.0, -3.0)),
]


@pytest.mark.parametrize(("name", "at", "want"), SCALARS, ids=lambda v: str(v))
def test_the_table(name: str, at: tuple[float, ...], want: tuple[float, ...]) -> None:
    call = OpCall(OPS[name], tuple(np.array(x) for x in at), {})
    for way, got in partials(call.graph(), list(call.arrays), call.wrt).items():
        np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=f"{name}{at}, {way}")


@pytest.mark.parametrize(
    "name", ["floor", "ceil", "round", "trunc", "sign", "floor_div", "eq", "lt", "truncate", "stop"]
)
def test_what_is_flat_has_a_structural_zero(name: str) -> None:
    assert OPS[name].inactive


POWERS = [
    (0, 0.0, 0.0),
    (1, 0.0, 1.0),
    (2, 0.0, 0.0),
    (3, -2.0, 12.0),
    (-1, 2.0, -0.25),
    (-1, 0.0, -INF),
    (7, 2.0, 448.0),
]


@pytest.mark.parametrize(("n", "x", "want"), POWERS)
def test_an_integer_power_is_exact(n: int, x: float, want: float) -> None:
    call = OpCall(OPS["integer_pow"], (np.array(x),), {"n": n})
    for way, got in partials(call.graph(), list(call.arrays), call.wrt).items():
        assert got == [want], way


def gradient(name: str, *xs: Any, ct: Any = None, **attrs: Any) -> list[Any]:
    """The pullback of one op at a cotangent of ones."""
    call = OpCall(OPS[name], tuple(np.asarray(x) for x in xs), attrs)
    y = call.reference()
    return evaluate(vjp_graph(call.graph(), call.wrt), *call.arrays, np.ones_like(y) if ct is None else np.asarray(ct))


@pytest.mark.parametrize(("x", "y", "want"), [(30.0, 1e20, np.inf), (0.1, -1e20, -np.inf), (0.5, 1e20, 0.0)])
@pytest.mark.parametrize("T", ["f32", "f64"])
def test_a_power_that_overflows_has_a_slope_of_its_sign(T: str, x: float, y: float, want: float) -> None:
    """What `y - 1` loses is as much as 1 there, and `1 - log x` no factor."""
    f = difflang.compile(f"fn f(x: {T}, y: {T}) -> {T} = x^y").grad()
    given = (np.dtype(f"float{T[1:]}").type(x), np.dtype(f"float{T[1:]}").type(y))
    assert float(f(*given)) == want
    with np.errstate(all="ignore"):
        assert float(f.interpret(*given)) == want


def test_ties_share_evenly() -> None:
    x = [1.0, 3.0, 3.0, 0.0, 3.0]
    assert gradient("reduce_max", x, axes=(0,))[0].tolist() == [0.0, 1 / 3, 1 / 3, 0.0, 1 / 3]
    assert gradient("reduce_min", [2.0, 1.0, 1.0], axes=(0,))[0].tolist() == [0.0, 0.5, 0.5]
    pool = {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}
    image = np.array([[1.0, 5.0], [5.0, 2.0]]).reshape(1, 2, 2, 1)
    assert gradient("max_pool", image, **pool)[0].ravel().tolist() == [0.0, 0.5, 0.5, 0.0]
    assert np.isnan(gradient("reduce_max", [1.0, NAN], axes=(0,))[0]).all()


def test_padding_never_wins_a_pool() -> None:
    pool = {"window": (2, 2), "strides": (2, 2), "padding": ((1, 1), (1, 1))}
    image = np.full((1, 2, 2, 1), -3.0)
    assert OpCall(OPS["max_pool"], (image,), pool).reference().ravel().tolist() == [-3.0] * 4
    assert gradient("max_pool", image, **pool)[0].ravel().tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("x", "want"),
    [([2.0, 0.0, 3.0], [0.0, 6.0, 0.0]), ([0.0, 0.0, 3.0], [0.0, 0.0, 0.0]), ([2.0, 5.0], [5.0, 2.0]), ([0.0], [1.0])],
)
def test_a_product_with_zeros_is_exact(x: list[float], want: list[float]) -> None:
    assert gradient("reduce_prod", x, axes=(0,))[0].tolist() == want


def test_the_second_derivative_of_a_product_with_zeros_is_exact() -> None:
    """With two zeros the gradient vanishes and the Hessian does not."""
    call = OpCall(OPS["reduce_prod"], (np.array([0.0, 0.0, 3.0]),), {"axes": (0,)})
    hessian = jvp_graph(vjp_graph(call.graph(), (True,)), (True, False))
    rows = [evaluate(hessian, *call.arrays, np.array(1.0), row)[0].tolist() for row in np.eye(3)]
    assert rows == [[0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_the_last_write_wins_and_the_derivative_follows() -> None:
    x, updates, at = np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2, 3], np.int32)
    call = OpCall(OPS["scatter"], (x, updates, at), {"axes": (0,)})
    assert call.reference().tolist() == [2.0, 0.0, 3.0, 4.0]
    dx, dupdates = gradient("scatter", x, updates, at, axes=(0,), ct=[10.0, 20.0, 30.0, 40.0])
    assert dx.tolist() == [0.0, 20.0, 0.0, 0.0]
    assert dupdates.tolist() == [0.0, 10.0, 30.0, 40.0]


def test_duplicates_accumulate() -> None:
    x, updates, at = np.ones(3), np.array([1.0, 2.0, 4.0]), np.array([2, 2, 0], np.int32)
    assert OpCall(OPS["scatter_add"], (x, updates, at), {"axes": (0,)}).reference().tolist() == [5.0, 1.0, 4.0]
    dx, dupdates = gradient("scatter_add", x, updates, at, axes=(0,), ct=[1.0, 10.0, 100.0])
    assert (dx.tolist(), dupdates.tolist()) == ([1.0, 10.0, 100.0], [100.0, 100.0, 1.0])


# ------------------------------------------------------------------------------------------ laws of selection


def selections() -> list[tuple[str, list[Any], int, float]]:
    """An op, its operands, the one that is not selected, and the tangent of the others' sum."""
    no, yes = np.array(False), np.array(True)
    return [
        ("select", [yes, np.array(1.0), np.array(2.0)], 2, 1.0),
        ("select", [no, np.array(1.0), np.array(2.0)], 1, 1.0),
        ("max", [np.array(2.0), np.array(1.0)], 1, 1.0),
        ("min", [np.array(2.0), np.array(1.0)], 0, 1.0),
        ("clamp", [np.array(-1.0), np.array(3.0), np.array(1.0)], 1, 1.0),
        ("clamp", [np.array(-1.0), np.array(0.0), np.array(1.0)], 0, 1.0),
        ("relu", [np.array(-1.0)], 0, 0.0),
    ]


@pytest.mark.parametrize(("name", "xs", "loser", "want"), selections(), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("poison", [INF, NAN])
def test_the_side_not_selected_contributes_nothing(
    name: str, xs: list[Any], loser: int, want: float, poison: float
) -> None:
    """Its tangent may be Inf or NaN; the others' are 0 but for the winner's, which is 1."""
    call = OpCall(OPS[name], tuple(xs), {})
    tangents = [np.array(poison if i == loser else 1.0) for i, w in enumerate(call.wrt) if w]
    (dy,) = evaluate(jvp_graph(call.graph(), call.wrt), *xs, *tangents)
    assert float(dy) == want
    back = evaluate(vjp_graph(call.graph(), call.wrt), *xs, np.array(1.0))
    assert float(back[sum(call.wrt[:loser])]) == 0.0


def test_a_numeric_zero_times_inf_is_nan() -> None:
    """Only a structural zero is absent: `x * sqrt(x)` at 0 is NaN, as the docs say."""
    (dy,) = evaluate(
        jvp_graph(build_region([Tensor(F64)], lambda x: [x * OPS["sqrt"].one(x)]), (True,)),
        np.array(0.0),
        np.array(1.0),
    )
    assert np.isnan(dy)


def test_a_stopped_path_contributes_nothing() -> None:
    graph = build_region([Tensor(F64)], lambda x: [x * OPS["stop"].one(OPS["sqrt"].one(x))])
    assert evaluate(vjp_graph(graph, (True,)), np.array(0.0), np.array(1.0))[0] == 0.0


def test_integers_and_truths_lose_the_derivative() -> None:
    """Through a cast to an integer and back the derivative is absent, not a number."""

    def body(x: Any) -> list[Any]:
        whole = OPS["truncate"].one(x, dtype=I32)
        back = OPS["convert"].one(whole, dtype=F64)
        positive = OPS["convert"].one(OPS["truncate"].one(x, dtype=BOOL), dtype=F64)
        return [x * 2.0 + back + positive]

    graph = build_region([Tensor(F64)], body)
    assert evaluate(vjp_graph(graph, (True,)), np.array(1.5), np.array(1.0))[0] == 2.0


def test_derivatives_are_linear_in_the_tangent() -> None:
    rng = np.random.default_rng(3)
    call = OpCall(OPS["atan2"], (rng.normal(size=4), rng.normal(size=4)), {})
    graph = jvp_graph(call.graph(), call.wrt)
    v, w = random_tangents(rng, call.arrays), random_tangents(rng, call.arrays)
    (jv,), (jw,) = evaluate(graph, *call.arrays, *v), evaluate(graph, *call.arrays, *w)
    (both,) = evaluate(graph, *call.arrays, *(2.0 * a - 3.0 * b for a, b in zip(v, w, strict=True)))
    np.testing.assert_allclose(both, 2.0 * jv - 3.0 * jw, rtol=1e-14)
