"""Functions called from Python: what they take, what they give, and what they refuse before anything is traced."""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass, is_dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang

PROGRAM = """
record Layer[d] { w: f32[d], b: f32 }
record Net[d] { first: Layer[d], tag: str, count: i32 }

## The square.
fn square(x: f32) -> f32 = x * x
fn loss(net: Net[d], x: f32[n, d]) -> f32 = mean((x @ net.first.w + net.first.b) ^ 2)
fn moved(net: Net[d], by: f32) -> Net[d] = net with (first = Layer(w = net.first.w + by, b = net.first.b))
fn generic[T: float](x: T[n], s: T) -> (T[n], T) = (s * x, sum(x))
fn power(x: f64, k: dim, shift: f64 = 1.0) -> f64[k] = fill(k, x + shift)
fn pick(x: f32[n], i: i32) -> f32 = x[i]
fn positive(x: f32) -> f32 { assert x > 0.0, "x is positive"
  x }
fn draw(n: dim) -> f32[n] = normal(n)
fn both(p: (f32, f32)) -> f32 { let (a, b) = p
  a * b }
fn adder(k: f32) -> f32 = k
fn twice(f: (f32) -> f32, x: f32) -> f32 = f(f(x))
fn narrow(x: i32) -> i32 = x
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="calls")


class Layer(NamedTuple):
    b: Any  # another order than the record's
    w: Any


@dataclass
class Net:
    tag: str
    first: Any
    count: int


def net(m: Any) -> Any:
    return m.Net(first=m.Layer(w=jnp.ones(3), b=jnp.float32(1)), tag="t", count=jnp.int32(4))


# ---- What is taken and given


@pytest.mark.parametrize("x", [3, 3.0, np.float32(3), np.array(3, np.float32), jnp.float32(3), jnp.asarray(3.0)])
def test_a_number_is_taken_in_every_form(m: Any, x: Any) -> None:
    for _ in range(2):  # the second time by the short way
        y = m.square(x)
        assert isinstance(y, jax.Array) and y.shape == () and y.dtype == np.float32 and y == 9


def test_records_are_taken_by_field_name(m: Any) -> None:
    x, w = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    plain = {"first": {"b": 1.0, "w": w}, "count": 4, "tag": "t"}
    mixed = Net(tag="t", first=Layer(b=1.0, w=w), count=4)
    for given in (net(m), plain, mixed, {"tag": "u", "first": Layer(1.0, w), "count": 4}):
        for _ in range(2):
            assert m.loss(given, x) == 16


def test_records_come_back_as_frozen_dataclasses_that_jax_knows(m: Any) -> None:
    moved = m.moved(net(m), 1.0)
    assert type(moved) is m.Net and is_dataclass(moved) and moved.tag == "t"
    np.testing.assert_array_equal(moved.first.w, [2, 2, 2])
    with pytest.raises(AttributeError):
        moved.tag = "u"
    doubled = jax.tree.map(lambda x: 2 * x, moved)
    assert type(doubled) is m.Net and doubled.first.b == 2 and doubled.tag == "t"
    gradient = m.loss.grad("net")(net(m), np.ones((2, 3), np.float32))
    assert list(gradient.__dataclass_fields__) == ["first"], "what has no tangent is not in a tangent"
    assert type(m.loss.grad(0)(net(m), np.ones((2, 3), np.float32))) is type(gradient)


def test_element_types_and_sizes_specialize(m: Any) -> None:
    wide, total = m.generic(np.ones(3), 2)
    assert wide.dtype == np.float64 and total.dtype == np.float64 and isinstance((wide, total), tuple)
    thin, _ = m.generic(np.ones(5, np.float32), 2.0)
    assert thin.dtype == np.float32 and thin.shape == (5,)
    assert m.power(2, 3).tolist() == [3, 3, 3] and m.power(k=2, x=1.0, shift=0.5).tolist() == [1.5, 1.5]
    assert m.power(2.0, 4).shape == (4,) and m.power(2.0, 3).shape == (3,)


def test_functions_are_arguments_and_results(m: Any) -> None:
    assert m.twice(m.square, 3.0) == 81
    assert m.twice(m.square.grad(), 3.0) == 12
    value, pullback = m.generic.vjp("x")(np.ones(3), 2.0)
    assert float(value[1]) == 3
    np.testing.assert_array_equal(pullback((np.ones(3), 1.0)), [3, 3, 3])
    np.testing.assert_array_equal(pullback((np.zeros(3), 2.0)), [2, 2, 2])


def test_the_signature_and_doc_are_those_of_the_source(m: Any) -> None:
    assert m.square.__name__ == "square" and "The square." in m.square.__doc__
    signature = inspect.signature(m.power)
    assert list(signature.parameters) == ["x", "k", "shift"] and signature.parameters["x"].annotation == "f64"
    assert signature.parameters["shift"].default == "1.0" and signature.return_annotation == "f64[k]"
    assert m.square.grad().__name__ == "grad_square" and list(inspect.signature(m.square.jvp()).parameters) == [
        "x",
        "d_x",
    ]


def test_a_module_has_its_functions_as_attributes_and_items(m: Any) -> None:
    assert m["square"] is m.square and "loss" in m and "Net" in m and "nothing" not in m
    assert {"square", "Layer"} <= set(m) <= set(dir(m))
    with pytest.raises(AttributeError, match="did you mean `square`"):
        m.squar  # noqa: B018
    with pytest.raises(KeyError):
        m["squar"]


# ---- What is refused


def refused(code: str, *words: str) -> Any:
    class Check:
        def __enter__(self) -> None:
            return None

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            assert error is not None, "nothing was refused"
            assert isinstance(error, difflang.ArgumentError) and isinstance(error, TypeError), error
            assert error.diagnostics[0].code == code, error
            for word in words:
                assert word in str(error)
            return True

    return Check()


def test_a_float64_array_is_refused_with_the_line_to_write(m: Any) -> None:
    for given in (np.float64(1), np.array(1.0)):
        with refused("DL1201", "`x` is declared f32, but f64 was given", "x.astype(np.float32)"):
            m.square(given)
    bad = {"first": {"w": np.ones(3), "b": 1.0}, "tag": "", "count": 1}
    with refused("DL1201", "`net.first.w` is declared f32[d], but f64[3] was given", "net.first.w.astype(np.float32)"):
        m.loss(bad, np.ones((2, 3), np.float32))
    m.square(1.0)
    with refused("DL1201"):
        m.square(np.float64(1))


def test_what_is_refused_of_python_is_told_where_it_is_declared_and_what_to_write() -> None:
    source = "record P { x: f64, n: i32 }\nfn f(p: P, k: i32) -> f64 = p.x\n"
    source += "fn g(t: (f64, i32)) -> f64 {\n  let (x, _) = t\n  x\n}"
    m = difflang.loads(source, name="declared")
    with refused("DL1206", "`t` is declared (f64, i32), but a tuple was given", "it has 2 parts, but 3 were given"):
        m.g((1.0, 1, 1))
    with refused("DL1201", "`k` is i32, but the float 1.5 was given", "declared:2:12", "write `round(k)`"):
        m.f({"x": 1.0, "n": 1}, 1.5)
    with refused("DL1206", "`p` is declared P, but a tuple was given", "`dict(x=…, n=…)`, or a record of the module"):
        m.f((1.0, 1), 1)
    for key in (2, None):
        with refused("DL1207", "the keys of a dict must have the same type", "the names of fields"):
            m.f({"x": 1.0, key: 2}, 1)


def test_a_text_of_numpy_counts_by_its_value() -> None:
    f = difflang.loads('fn f(x: f32, s: str) -> f32 = if s == "a" { x } else { -x }', name="texts").f
    assert [float(f(np.float32(1), np.str_(s))) for s in "abab"] == [1.0, -1.0, 1.0, -1.0]


def test_a_float32_array_is_not_widened_for_float64() -> None:
    m = difflang.loads("fn f(x: f64[n]) -> f64 = sum(x)\nfn g(x: f64) -> f64 = x", name="wide")
    with refused("DL1201", "`x` is declared f64[n], but f32[3] was given", "x.astype(np.float64)"):
        m.f(np.ones(3, np.float32))
    with refused("DL1201", "`x` is declared f64[n], but f32[3] was given", "np.asarray(x, np.float64)"):
        m.f(jnp.ones(3))
    with refused("DL1201", "c128[3] was given", "`x.real`"):
        m.f(np.ones(3, np.complex128))
    with refused("DL1201", "write `with jax.enable_x64(True):` around the call, or declare `x` f32"):
        jax.jit(m.f)(jnp.ones(3))
    assert [float(y) for y in (m.g(2), m.g(2.0), m.g(jnp.asarray(2)))] == [2.0] * 3
    with refused("DL1201", "write `with jax.enable_x64(True):` around the call, or declare `x` f32"):
        jax.jit(m.g)(0.1)
    with jax.enable_x64(True):
        assert float(jax.jit(m.g)(0.1)) == 0.1
    with refused("DL1201"):
        m.g(jnp.float32(2))


def test_python_numbers_under_jax_transformations_take_the_declared_type() -> None:
    f = difflang.loads("fn f(x: f32) -> f32 = x * x * 2.0\n", name="narrow").f
    for value, slope in (jax.jvp(f, (2.0,), (1.0,)), (f(2.0), jax.grad(f)(2.0)), (f(2.0), jax.jacfwd(f)(2.0))):
        assert value.dtype == slope.dtype == np.float32
        assert (float(value), float(slope)) == (8.0, 8.0)


def test_sizes_that_do_not_agree_are_refused_with_what_they_are(m: Any) -> None:
    with refused("DL1202", "f32[2, 4] was given", "d is 3"):
        m.loss(net(m), np.ones((2, 4), np.float32))
    with refused("DL1202", "declared f32, but f32[2] was given"):
        m.square(np.ones(2, np.float32))


def test_structures_and_other_things_are_refused(m: Any) -> None:
    x = np.ones((2, 3), np.float32)
    with refused("DL1207", "is missing the field `b`"):
        m.loss({"first": {"w": x[0]}, "tag": "", "count": 1}, x)
    with refused("DL1207", "no field `c`"):
        m.loss({"first": {"w": x[0], "b": 1.0, "c": 2}, "tag": "", "count": 1}, x)
    with refused("DL1206", "a list was given", "np.array(x, np.float32)"):
        m.pick([1.0, 2.0], 0)
    with refused("DL1206"):
        m.square("text")
    with refused("DL1206"):
        m.square(None)
    with refused("DL1206"):
        m.both((1.0, 2.0, 3.0))
    with refused("DL1205"):
        m.narrow(2**40)
    for size in (2.5, np.float32(2), "2"):
        with refused("DL1206", "`k` is a dim", f"but a {type(size).__name__} was given", "declared here"):
            m.power(1.0, size)
    with refused("DL1205", "`k` is a dim, and 2147483648 is out of its range", "declared here"):
        m.power(1.0, 2**31)
    with refused("DL1206", '`jax.jit(f, static_argnames="k")`'):
        jax.jit(m.power)(np.float32(1), 2)
    with refused("DL1206"):
        m.twice(lambda x: x, 1.0)


def test_wrong_argument_lists_are_refused(m: Any) -> None:
    with refused("DL1207", "is missing `x`"):
        m.square()
    with refused("DL1207", "takes 1 argument, not 2"):
        m.square(1.0, 2.0)
    with refused("DL1207", "no parameter `shif`", "did you mean `shift`"):
        m.power(1.0, 2, shif=1)
    with refused("DL1207", "`x` twice"):
        m.square(1.0, x=1.0)


def test_failing_checks_raise_where_the_program_stands(m: Any) -> None:
    x = np.ones(4, np.float32)
    assert m.pick(x, 3) == 1
    for _ in range(2):
        with pytest.raises(difflang.IndexFailure, match="index 9 is out of range") as failure:
            m.pick(x, 9)
        assert isinstance(failure.value, IndexError) and failure.value.diagnostics[0].span.text == "i"
    with pytest.raises(difflang.AssertionFailure, match="x is positive") as failed:
        m.positive(-1.0)
    assert isinstance(failed.value, AssertionError)
    with pytest.raises(IndexError):
        m.pick.interpret(x, 9)


# ---- Randomness, threads, one trace


def test_random_functions_draw_anew_unless_a_key_is_given(m: Any) -> None:
    a, b = m.draw(4), m.draw(4)
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(m.draw(4, key=7), m.draw(4, key=np.array([0, 7], np.uint32)))
    np.testing.assert_array_equal(m.draw(4, key=7), m.draw(4, key=jax.random.key(7)))
    np.testing.assert_allclose(m.draw(4, key=7), m.draw.interpret(4, key=7), rtol=1e-6)
    again = difflang.loads(PROGRAM, seed=0)
    np.testing.assert_array_equal(again.draw(4), a)
    assert not np.array_equal(difflang.loads(PROGRAM, seed=1).draw(4), a)
    with refused("DL1207", "draws no random numbers"):
        m.square(1.0, key=3)


def test_the_same_arguments_are_elaborated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from difflang.api import loaded_program

    made: list[str] = []
    original = loaded_program.elaborate_call
    monkeypatch.setattr(loaded_program, "elaborate_call", lambda *args: made.append(args[2]) or original(*args))
    m = difflang.loads(PROGRAM)
    for i in range(50):
        m.square(jnp.float32(i))
        m.square.grad()(jnp.float32(i))
        m.moved(net(m), jnp.float32(i))
    assert made == ["square", "grad_square", "moved"]
    m.generic(np.ones(2), 1.0), m.generic(np.ones(3), 1.0), m.generic(np.ones(2), 2.0)
    assert made[3:] == ["generic", "generic"]


def test_threads_get_what_one_thread_gets() -> None:
    m = difflang.loads(PROGRAM)
    results: list[Any] = [None] * 8
    start = threading.Barrier(8)

    def work(i: int) -> None:
        start.wait()
        results[i] = [
            (float(m.square(float(j))), m.generic(np.ones(j + 1), 2.0)[0].shape, float(m.square.grad()(float(i))))
            for j in range(6)
        ]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[(float(j * j), (j + 1,), 2.0 * i) for j in range(6)] for i in range(8)]


def test_a_masked_array_is_refused_since_its_mask_would_be_lost(m: Any) -> None:
    x = np.ma.masked_array(np.ones(3, np.float32), mask=[False, True, False])
    m.pick(np.ones(3, np.float32), 0)  # the short way is there
    for call in (lambda: m.pick(x, 0), lambda: m.pick.interpret(x, 0)):
        with refused("DL1206", "`x` is a masked array", "`x.filled(0)`", "`x.mask`"):
            call()
    given = {"first": {"w": x, "b": 1.0}, "count": 4, "tag": "t"}
    with refused("DL1206", "`net.first.w` is a masked array"):
        m.loss(given, np.ones((2, 3), np.float32))
    with refused("DL1206", "`x` is a masked array"):
        m.square(np.ma.masked)


def test_a_misfit_names_only_what_earlier_values_bound() -> None:
    m = difflang.loads(
        "record Gru[i, h] { w: f64[i, h], u: f64[h, h] }\n"
        "fn f(l: Gru[i, h], x: f64[n, t, i], k: dim, y: f64[k, n]) -> f64 = sum(x) + sum(l.w) + sum(y)"
    )
    layer, x = m.Gru(np.ones((4, 3)), np.ones((3, 3))), np.ones((6, 7, 4))
    for given, story in (
        ((layer, np.ones((6, 7, 5)), 2, np.ones((2, 6))), "declared here, and i is 4 by `l`"),
        ((layer, x, 2, np.ones((3, 6))), "declared here, and k is 2 by `k`, n is 6 by `x`"),
        ((m.Gru(np.ones((4, 3)), np.ones((2, 2))), x, 2, np.ones((2, 6))), "declared here, and h is 3 by `l.w`"),
    ):
        with pytest.raises(difflang.ArgumentError) as error:
            m.f(*given)
        assert any(line.endswith(story) for line in str(error.value).splitlines()), str(error.value)
