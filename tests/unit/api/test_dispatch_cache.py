"""The short way of a call finds the same program as the long one, whatever the calls before it were."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang
from difflang.api.specialization import CALLS_BEFORE_SENT
from difflang.runtime import pytrees

SOURCE = """
record P[n] { a: f32[n], b: f32 }
fn f(x: f32[n], i: i32) -> f32 = x[i] * f32(n)
fn h(x: f32, y: f64) -> f64 = f64(x) + y
fn g(p: P[n]) -> f32 = sum(p.a) * p.b
"""
MODULE = difflang.loads(SOURCE, name="short")


class Pair(NamedTuple):
    a: jax.Array
    b: jax.Array


def ones(n: int) -> jax.Array:
    return jnp.ones(n, jnp.float32)


CALLS = {
    "jax 2": (lambda: MODULE.f(ones(2), jnp.int32(1)), 2.0),
    "jax 3": (lambda: MODULE.f(ones(3), jnp.int32(1)), 3.0),
    "numpy": (lambda: MODULE.f(np.ones(3, np.float32), 2), 3.0),
    "jit": (lambda: jax.jit(MODULE.f)(ones(4), jnp.int32(1)), 4.0),
    "named": (lambda: MODULE.f(ones(2), i=jnp.int32(0)), 2.0),
}


@pytest.mark.parametrize("order", list(itertools.permutations(CALLS, 3)), ids="-".join)
def test_calls_in_any_order(order: tuple[str, ...]) -> None:
    for name in (*order, *order):
        call, expected = CALLS[name]
        assert float(call()) == expected, name


def test_a_failure_is_told_on_the_short_way_too() -> None:
    for _ in range(3):
        with pytest.raises(difflang.IndexFailure, match="index 2 is out of range"):
            MODULE.f(ones(2), jnp.int32(2))
        assert float(MODULE.f(ones(2), jnp.int32(1))) == 2.0


def test_records_of_several_kinds() -> None:
    own = MODULE.P(a=ones(2), b=jnp.float32(2))
    for _ in range(2):
        for given in (own, Pair(ones(2), jnp.float32(2)), {"a": ones(2), "b": 2.0}):
            assert float(MODULE.g(given)) == 4.0
        with pytest.raises(difflang.ArgumentError):
            MODULE.g(Pair(jnp.ones(2, jnp.int32), jnp.float32(2)))


def test_numbers_of_the_host_take_a_short_way_that_keeps_types() -> None:
    """f64 stays f64 in JAX's setting of 32 bits, and what does not fit is refused, call after call."""
    for _ in range(3):
        found = MODULE.h(0.5, 1e-12)
        assert found.dtype == np.float64 and float(found) == 0.5 + 1e-12
        assert float(MODULE.h(np.float32(0.5), np.float64(1e-12))) == 0.5 + 1e-12
        with pytest.raises(difflang.ArgumentError, match="is out of its range"):
            MODULE.h(1e300, 1.0)
        with pytest.raises(difflang.ArgumentError, match="f64 was given"):
            MODULE.h(np.float64(0.5), 1.0)
        assert float(MODULE.f(np.ones(2, np.float32), 1)) == 2.0
        with pytest.raises(difflang.IndexFailure, match="index 5 is out of range"):
            MODULE.f(np.ones(2, np.float32), 5)


def test_a_number_given_again_and_again_is_sent_once() -> None:
    """By its identity: another one, if only of another sign, is looked at anew."""
    f = difflang.loads("fn f(x: f64, k: f64, i: i32, b: bool) -> f64 = if b { x / k + f64(i) } else { k }").f
    rate = float("0.25")
    with jax.enable_x64(True):
        x = jnp.asarray(1.0)
    for _ in range(1 + CALLS_BEFORE_SENT):
        assert float(f(x, rate, 3, True)) == 7.0
    with jax.transfer_guard_host_to_device("disallow_explicit"):
        assert float(f(x, rate, 3, True)) == 7.0
    given = [((-rate, 3, True), -1.0), ((0.0, 3, True), np.inf), ((-0.0, 3, True), -np.inf), ((rate, 4, False), 0.25)]
    for numbers, expected in given * 2:
        for _ in range(1 + CALLS_BEFORE_SENT):
            assert float(f(x, *numbers)) == expected
    with pytest.raises(difflang.ArgumentError):
        f(x, 3, 3, 1)


def test_a_number_given_again_and_again_leaks_no_trace() -> None:
    f = difflang.loads("fn f(k: f32, x: f32[n]) -> f32[n] = k * x").f
    x, rate = ones(3), float("0.25")
    f(rate, x)
    with jax.checking_leaks():
        jax.jit(lambda y: sum([f(rate, x) for _ in range(2 * CALLS_BEFORE_SENT)], y))(x)
    for _ in range(3):
        np.testing.assert_array_equal(f(rate, x), 0.25)


def test_what_is_in_jax_is_not_copied() -> None:
    """Not even by a transfer that is asked for; of the host's numbers the guard takes note."""
    x, i = ones(2), jnp.int32(1)
    own = MODULE.P(a=x, b=jnp.float32(2))
    slope = MODULE.f.grad()
    MODULE.g(own), slope(x, i)
    with jax.transfer_guard_device_to_host("disallow_explicit"), jax.transfer_guard_host_to_device("disallow_explicit"):
        assert isinstance(MODULE.g(own), jax.Array) and isinstance(slope(x, i), jax.Array)
        with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device"):
            MODULE.g(MODULE.P(a=np.ones(2, np.float32), b=2.0))


def test_arrays_of_numpy_beside_those_of_jax_need_no_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    f = difflang.loads("fn f[T: float](x: T[n], y: T[n], k: T) -> T[n] = x * y + k", name="beside").f
    x, y = np.arange(3.0, dtype=np.float32), np.ones(3, np.float32)
    f(jnp.asarray(x), y, np.float32(1))
    looked: list[int] = []
    quick = pytrees.fast_tree_key
    monkeypatch.setattr(pytrees, "fast_tree_key", lambda *given: looked.append(1) or quick(*given))
    assert np.array_equal(f(jnp.asarray(x), y, np.float32(2)), x + 2)
    assert np.array_equal(f(x, jnp.asarray(y), np.float32(3)), x + 3)
    assert looked == []
    assert f(x.astype(np.float64), y.astype(np.float64), np.float64(1)).dtype == np.float64
    for n in (2, 3, 2, 3):
        assert f(jnp.asarray(x[:n]), y[:n], np.float32(1)).shape == (n,)
    with pytest.raises(difflang.ArgumentError):
        f(jnp.asarray(x), y.astype(np.float64), np.float32(1))


def test_numbers_of_python_need_no_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their classes are those of the last call, whose program compares the types of the arrays beside them."""
    f = difflang.loads(
        "fn f[T: num](x: T[n], k: T, on: bool) -> T[n] = if on { k * x } else { x }\nfn g[T: num](k: T) -> T = k + k\n",
        name="numbers",
    )
    x = np.arange(3, dtype=np.float32)
    f.f(jnp.asarray(x), 2.0, True)
    looked: list[int] = []
    quick = pytrees.fast_tree_key
    monkeypatch.setattr(pytrees, "fast_tree_key", lambda *given: looked.append(1) or quick(*given))
    for k, on in ((2.0, True), (3.0, False), (0.5, True)):
        np.testing.assert_array_equal(f.f(jnp.asarray(x), k, on), k * x if on else x)
    assert looked == []
    with jax.enable_x64(True):
        for kind in (np.float64, np.float32, np.int32, np.float64):
            found = f.f(jnp.asarray(x.astype(kind)), 2, True)
            assert found.dtype == kind and np.array_equal(found, 2 * x)
    assert [f.g(k).dtype.name for k in (1, 1.0, 2, 2.0, np.float64(1.0))] == [
        "int32",
        "float32",
        "int32",
        "float32",
        "float64",
    ]


def test_where_nothing_is_looked_at_the_program_itself_is_called() -> None:
    """While it is the only one for so many arrays: with a second size it is found as others are, and other types are
    refused as ever.
    """
    f = difflang.loads("fn f(x: f32[n]) -> f32[n] = 2.0 * x", name="bare").f
    for _ in range(2):
        np.testing.assert_array_equal(f(ones(3)), 2.0)
        assert list(f._dispatch.bare) == [(1,)]
        with pytest.raises(difflang.ArgumentError, match="i32"):
            f(jnp.ones(3, jnp.int32))
        with pytest.raises(difflang.ArgumentError):
            f(ones(3), ones(3))
        np.testing.assert_array_equal(jax.vmap(f)(jnp.ones((2, 3))), 2.0)
        np.testing.assert_array_equal(f(np.ones(3, np.float32)), 2.0)
    for n in (4, 3, 4):
        assert f(ones(n)).shape == (n,)
    assert not f._dispatch.bare


def test_for_each_dim_and_each_number_of_arrays_a_program_is_called() -> None:
    f = difflang.loads(
        "fn f(k: dim, x: f32[n], y: f32 = 1.0) -> f32[k] = [for i in 0..k => f32(i) + sum(x) + y]", name="dims"
    ).f
    for _ in range(2):
        for k in (2, 5):
            np.testing.assert_array_equal(f(k, ones(3)), np.arange(k) + 4)
            np.testing.assert_array_equal(f(k, ones(3), jnp.float32(2) + 0), np.arange(k) + 5)
    assert set(f._dispatch.bare) == {(1, 2), (1, 5), (2, 2), (2, 5)}
    np.testing.assert_array_equal(f(2, ones(4)), np.arange(2) + 5)
    assert set(f._dispatch.bare) == {(1, 5), (2, 2), (2, 5)}
    with pytest.raises(difflang.ArgumentError):
        f(True, ones(3))


def test_the_program_of_a_tuple_is_not_taken_for_its_parts() -> None:
    module = difflang.loads(
        "fn h(x, y: f32 = 100.0) -> f32 = norm(x) + y\nfn k(x: f32, p: ()) -> f32 = x\n", name="parts"
    )
    a, b = jnp.float32(3) + 0, jnp.float32(4) + 0
    for _ in range(2):
        assert float(module.h((a, b))) == 105.0
        assert float(module.h(a, b)) == 7.0
        assert float(module.k(a, ())) == 3.0
        with pytest.raises(difflang.ArgumentError):
            module.k(a)


def test_sizes_and_numbers_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size has a program of its own, found by its value; what is no plain int is looked at each time."""
    f = difflang.loads("fn f(x: f32, n: dim, k: i32) -> f32[n] = fill(n, x * f32(k))", name="sized").f
    for n in (2, 3, 2, 3, np.int64(2)):
        np.testing.assert_array_equal(f(jnp.float32(1.5), n, 2), np.full(n, 3.0))
    monkeypatch.setattr(f, "_bind_arguments", None)
    for n in (3, 2):
        np.testing.assert_array_equal(f(jnp.float32(1.5), n, 4), np.full(n, 6.0))
    monkeypatch.undo()
    with pytest.raises(difflang.ArgumentError, match="out of its range"):
        f(jnp.float32(1.5), 2, 2**31)
    for wrong in (-1, True, 2.0):
        with pytest.raises(difflang.DifflangError):
            f(jnp.float32(1.5), wrong, 2)
