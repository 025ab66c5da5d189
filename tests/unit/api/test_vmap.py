"""`f.vmap` from Python: axes by number, order and name; what it gives is a function as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang
import difflang.runtime

PROGRAM = """
record Net[d] { w: f64[d], b: f64, tag: str }
enum Shape { Circle(r: f64), Box(w: f64, h: f64) }
## How far it is off.
fn loss(m: Net[d], x: f64[d], y: f64 = 0.0, k: f64 = 1.0) -> f64 = k * (sum(m.w * x) + m.b - y)^2
fn both(x: f64[n], s: f64) -> (f64[n], f64) = (s * x, sum(x))
fn filled(x: f64, n: dim) -> f64[n] = fill(n, x)
fn noisy(x: f64[n]) -> f64[n] = x + normal(n)
fn area(s: Shape) -> f64 = match s { Circle(r) => pi * r^2, Box(w, h) => w * h }
fn rolled(s: Shape, by: f64) -> Shape = if area(s) > by { s } else { Box(by, by) }
fn applied(f: (f64) -> f64, x: f64) -> f64 = f(x)
fn keyed(x: f64, k: key) -> f64 = with_key(k) { x + f64(normal()) }
fn weighed(a: f64, b: f64, s: f64) -> f64 = s * a * b
fn through(g: (f64[n], f64[k], f64) -> f64[n], x: f64[n], y: f64[k], s: f64) -> f64 = sum(g(x, y, s))
fn constant() -> f64 = 1.0
record Drawn { k: key, x: f64 }
fn drawn(d: Drawn) -> f64 = with_key(d.k) { d.x + f64(normal()) }
fn pick(x: f64[n], i: i32) -> f64 = x[i]
fn heron(a: f64) -> f64 {
  if a <= 0 { return 0.0 }
  print("a is {a}")
  var x = a
  while abs(x * x - a) > 1e-12 { x = 0.5 * (x + a / x) }
  x
}
"""
M = {"w": np.array([1.0, 2.0]), "b": 0.5, "tag": "a"}
X = np.arange(6.0).reshape(3, 2)
Y = np.array([0.5, 1.0, -1.0])


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="lanes")


def loss(x: Any, y: Any = 0.0) -> Any:
    return (x @ M["w"] + 0.5 - y) ** 2


@pytest.mark.parametrize(
    ("axes", "args", "wanted"),
    [
        ({"x": 0}, (M, X), loss(X)),
        ({"x": 1}, (M, X.T), loss(X)),
        ({"x": np.int64(-1)}, (M, X.T), loss(X)),
        ((None, 0, 0, None), (M, X, Y), loss(X, Y)),
        ([None, 0, None, None], (M, X, 2.0), loss(X, 2.0)),
        ({"y": 0}, (M, X[1], Y), loss(X[1], Y)),
        (0, ({"w": np.tile(M["w"], (3, 1)), "b": np.full(3, 0.5), "tag": "a"}, X), loss(X)),
    ],
)
def test_the_axis_of_each_argument_is_said(m: Any, axes: Any, args: Any, wanted: Any) -> None:
    f = m.loss.vmap(axes)
    for run in (f, f, f.interpret):
        np.testing.assert_allclose(run(*args), wanted, rtol=1e-14)


def test_what_is_left_out_between_arguments_is_shared(m: Any) -> None:
    k = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(m.loss.vmap({"x": 0, "k": 0})(M, X, k=k), k * loss(X))
    np.testing.assert_allclose(m.loss.vmap({"x": 0, "y": 0, "k": 0})(M, X, k=k), k * loss(X))


def test_lanes_come_where_they_are_wanted(m: Any) -> None:
    first, second = m.both.vmap(out_axes=(1, 0))(X, Y)
    np.testing.assert_allclose(first, (Y[:, None] * X).T)
    np.testing.assert_allclose(second, X.sum(1))
    assert m.filled.vmap(out_axes=-1)(Y, 2).shape == (2, 3) and m.filled.vmap()(Y, n=4).shape == (3, 4)


def test_records_and_enums_have_lanes_in_each_array(m: Any) -> None:
    nets = m.Net(w=np.tile(M["w"], (3, 1)), b=np.full(3, 0.5), tag="a")
    np.testing.assert_allclose(m.loss.vmap({"m": 0})(nets, X[1]), np.full(3, loss(X[1])))
    np.testing.assert_allclose(m.area.vmap()(m.Box(w=Y, h=Y)), Y * Y)
    rolled = m.rolled.vmap((0, None))(m.Circle(r=np.array([1.0, 3.0])), 4.0)
    assert [float(m.area(jax.tree.map(lambda x, i=i: x[i], rolled).known())) for i in range(2)] == pytest.approx(
        [16, 9 * np.pi]
    )


def test_the_gradient_of_each_lane_and_the_gradient_of_all(m: Any) -> None:
    each = m.loss.grad("m").vmap({"x": 0})(M, X)
    slopes = 2 * (X @ M["w"] + 0.5)
    assert isinstance(each, dict)
    np.testing.assert_allclose(each["w"], slopes[:, None] * X)
    np.testing.assert_allclose(each["b"], slopes)
    mapped = m.loss.vmap({"x": 0})
    np.testing.assert_allclose(mapped.jacobian("m.w")(M, X), slopes[:, None] * X)
    value, pull = mapped.vjp("m")(M, X)
    np.testing.assert_allclose(value, loss(X))
    np.testing.assert_allclose(pull(Y).w, (Y * slopes) @ X)
    value, change = mapped.jvp("x")(M, X, d_x=X, y=0.0, k=1.0)
    np.testing.assert_allclose(change, slopes * (X @ M["w"]))


def test_tangents_in_lanes_beside_one_point(m: Any) -> None:
    """The columns of a Jacobian, and a pullback of many cotangents."""
    columns = m.both.jvp("x").vmap({"d_x": 0})(X[0], 2.0, np.eye(2))
    np.testing.assert_allclose(columns[1][0], 2 * np.eye(2))
    _, pull = m.both.vjp("x")(X[0], 2.0)
    np.testing.assert_allclose(pull.vmap()((np.eye(2), np.zeros(2))), 2 * np.eye(2))
    deep = m.both.vmap((1, None)).jvp("x").vmap({"d_x": 0})
    assert deep(X, 2.0, np.ones((5, 3, 2)))[1][0].shape == (5, 2, 3)


def test_lanes_of_lanes(m: Any) -> None:
    f = m.loss.vmap({"x": 1}).vmap({"x": 0, "y": 0})
    x = np.arange(24.0).reshape(4, 2, 3)
    wanted = [[float(m.loss(M, x[i, :, j], float(i))) for j in range(3)] for i in range(4)]
    np.testing.assert_allclose(f(M, x, np.arange(4.0)), wanted)


def test_a_lane_that_is_not_there_prints_nothing_and_keeps_no_loop_going(
    m: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """For -1 the loop would never end."""
    f = m.heron.vmap()
    for run in (f, f.interpret):
        np.testing.assert_allclose(run(np.array([4.0, -1.0, 9.0])), [2, 0, 3])
        assert capsys.readouterr().out == "a is 4.0\na is 9.0\n"
    np.testing.assert_allclose(m.heron.grad().vmap()(np.array([4.0, -1.0])), [0.25, 0])


def test_a_check_that_fails_in_a_lane_fails_the_call(m: Any) -> None:
    f = m.pick.vmap((None, 0))
    indices = np.array([1, 0, 5, 7], np.int32)
    with pytest.raises(difflang.IndexFailure, match="index 5 is out of range"):
        f(Y, indices)
    failure, _ = difflang.checked(f)(Y, indices)
    assert bool(failure)
    np.testing.assert_array_equal(f(Y, indices[:2]), Y[[1, 0]])


def test_lanes_draw_apart(m: Any) -> None:
    drawn = m.noisy.vmap()(np.zeros((4, 3)), key=np.array([0, 1], np.uint32))
    assert len(np.unique(np.asarray(drawn))) == 12


def test_it_is_a_part_of_programs_of_jax(m: Any) -> None:
    f = m.loss.vmap({"x": 0})
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(lambda w: jnp.sum(f({**M, "w": w}, X))))(jnp.asarray(M["w"]))
        np.testing.assert_allclose(gradient, 2 * (X @ M["w"] + 0.5) @ X)
        twice = jax.vmap(lambda x: f(M, x))(jnp.stack([X, 2 * X]))
    np.testing.assert_allclose(twice, [loss(X), loss(2 * X)])


def test_the_levels_below(m: Any, tmp_path: Path) -> None:
    f = m.both.vmap()
    assert "f64[3, 2]" in f.ir("optimized", "f64[3, 2]", "f64[3]") == f.ir("optimized", X, Y)
    assert "stablehlo" in f.stablehlo("f64[3, 2]", "f64[3]")
    f.export(tmp_path / "both.dflx", X, Y, platforms=())
    again = difflang.runtime.load(tmp_path / "both.dflx")
    for found, wanted in zip(again(X, Y), f(X, Y), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert f.check_grad(X, Y).right
    assert m.both.vmap().__name__ == "vmap_both" and m.loss.vmap({"x": 0}).__doc__ == m.loss.__doc__
    assert "x: f64[d] per batch element of axis 1" in repr(m.loss.vmap({"x": 1}))


def test_a_key_in_a_record_has_no_lanes(m: Any) -> None:
    keys = np.array([[0, 1], [0, 2], [0, 3]], np.uint32)
    with pytest.raises(difflang.ArgumentError, match="it contains a key, which the whole batch shares"):
        m.drawn.vmap()({"k": keys, "x": Y})


def test_a_text_in_a_record_is_no_spec(m: Any) -> None:
    f = m.loss.vmap({"m": 0})
    nets = {"w": X, "b": Y, "tag": "a"}
    assert "f64[3]" in f.ir("ir", nets, "f64[2]") == f.ir("ir", {**nets, "w": "f64[3, 2]"}, "f64[2]")
    with pytest.raises(difflang.ArgumentError, match="`f6` is not an argument type"):
        f.ir("ir", {**nets, "w": "f6"}, "f64[2]")


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"z": 0}, "has no parameter `z`"),
        ({}, "over no argument"),
        ((None,) * 4, "over no argument"),
        ((0,), "has 1 entry"),
        ({"x": "0"}, "`in_axes` of `x` is a number or None, not a str"),
        ({"x": True}, "not a bool"),
        ({"m": {"w": 0}}, "not a dict"),
    ],
)
def test_axes_that_are_none(m: Any, axes: Any, says: str) -> None:
    with pytest.raises(difflang.ArgumentError) as caught:
        m.loss.vmap(axes)
    assert says in str(caught.value) and "= help: " in str(caught.value)


def test_what_all_lanes_share_has_no_axis(m: Any) -> None:
    cases = ((m.filled, (0, 0), "a size"), (m.applied, {"f": 0}, "a function"), (m.keyed, 0, "a single key"))
    for f, axes, what in cases:
        with pytest.raises(difflang.ArgumentError, match=f"is {what}, shared by the whole batch") as caught:
            f.vmap(axes)
        assert 'leave it out: `in_axes={"x": 0}`' in str(caught.value), "an argument that may have lanes"
    np.testing.assert_allclose(m.applied.vmap()(m.heron.grad(), np.array([4.0, 9.0])), [1 / 4, 1 / 6])
    with pytest.raises(difflang.ArgumentError, match="`out_axes` is a number, not None"):
        m.both.vmap(out_axes=None)
    with pytest.raises(difflang.ArgumentError, match="no argument can be mapped"):
        m.constant.vmap()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ((M, X[0]), "DL1202", "these types are of one batch element: `x` is mapped along axis 0"),
        ((M, np.float64(1)), "DL1202", "mapped along axis 0, but f64 has no such axis"),
        ((M, 1.0), "DL1206", "`x` is mapped but has no axis"),
        ((M, [1.0]), "DL1206", "write `np.array(x, np.float64)`"),
        ((M, np.ones((3, 5))), "DL1202", "`x` is declared f64[d], but f64[5] was given"),
        ((M, X.astype(np.float32)), "DL1201", "x.astype(np.float64)"),
        ((M, X, np.ones(2)), "DL1202", "over 3 batch elements of `x`, but over 2 of `y`"),
        ((M, X[:1], np.ones(2)), "DL1202", "over 1 batch element of `x`, but over 2 of `y`"),
        ((M, np.ma.masked_array(X)), "DL1206", "masked"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_is_traced(
    m: Any, args: Any, code: str, says: str
) -> None:
    with pytest.raises(difflang.ArgumentError) as caught:
        m.loss.vmap({"x": 0, "y": 0})(*args)
    assert caught.value.diagnostics[0].code == code and says in str(caught.value)


def test_the_array_in_a_record_that_does_not_fit_is_named(m: Any) -> None:
    nets = {"w": X, "b": Y, "tag": "a"}
    with pytest.raises(difflang.ArgumentError, match=r"`m\.b` is mapped along axis 1, but f64\[3\] has no such axis"):
        m.loss.vmap({"m": 1})(nets, X[0])
    with pytest.raises(difflang.ArgumentError, match=r"over 3 batch elements of `m\.b`, but over 2 of `m\.w`"):
        m.loss.vmap({"m": 0})({**nets, "w": X[:2]}, X[0])


def test_lanes_of_an_argument_that_all_share_are_refused_with_the_way_out(m: Any) -> None:
    with pytest.raises(difflang.ArgumentError, match="the whole batch shares `y`: `in_axes` names no axis of it"):
        m.loss.vmap({"x": 0})(M, X, Y)


def test_a_program_that_gives_a_mapped_function_other_numbers_of_lanes(m: Any) -> None:
    f = m.weighed.vmap((0, 0, None))
    assert float(m.through.interpret(f, Y, Y, 2.0)) == 2 * float(Y @ Y)
    with pytest.raises(difflang.CheckError, match="must have the same batch size") as caught:
        m.through.interpret(f, Y, Y[:2], 2.0)
    assert "here 3 and 2" in str(caught.value) and "a number has none" not in str(caught.value)


def test_results_that_have_no_lanes(m: Any) -> None:
    for f, says in (
        (m.filled.vmap(out_axes=2), "puts the batch axis at position 2"),
        (m.filled.vmap(out_axes=(0, 1)), "has 2 entries"),
        (m.heron.vjp().vmap(), "a mapped function cannot return functions"),
    ):
        args = (Y, 2) if "filled" in f.__name__ else (Y,)
        with pytest.raises(difflang.CheckError, match=says) as caught:
            f(*args)
        assert caught.value.diagnostics[0].code == "DL0332"
    with pytest.raises(difflang.ArgumentError, match="does not say along which axis"):
        m.loss.vmap({"m": 0}).ir("ir", "Net[2]", "f64[2]")
