"""Arrays on several devices: values stay right and where they were, or an error says why not."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import difflang
from difflang import ArgumentError

P = PartitionSpec
AUTO = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
X = np.linspace(-1, 1, 16, dtype=np.float32)
ROWS = X.reshape(8, 2)


def put(array: Any, *spec: str | None, mesh: Any = AUTO) -> jax.Array:
    return jax.device_put(array, NamedSharding(mesh, P(*spec)))


def device_numbers(array: jax.Array) -> list[int]:
    return sorted(d.id for d in jax.block_until_ready(array).sharding.device_set)


def test_an_extremum_along_a_split_axis() -> None:
    m = difflang.loads("""
        fn total(x: f32[n]) -> f32 = logsumexp(x)
        fn weights(x: f32[n, d]) -> f32[n, d] = softmax(x, 0)
    """)
    np.testing.assert_allclose(jax.block_until_ready(m.total(put(X, "data"))), m.total(X), rtol=1e-6)
    slope = jax.block_until_ready(m.total.grad()(put(X, "data")))
    np.testing.assert_allclose(slope, m.total.grad()(X), rtol=1e-6)
    np.testing.assert_allclose(jax.block_until_ready(m.weights(put(ROWS, "data"))), m.weights(ROWS), rtol=1e-6)


def test_an_array_put_on_another_device_stays_there() -> None:
    f = difflang.loads("fn f(x: f32[n]) -> f32 = sum(x^2)").f
    there = jax.device_put(X, jax.devices()[3])
    for _ in range(2):  # before and after it is compiled for the first device
        assert device_numbers(f(there)) == device_numbers(f.grad()(there)) == device_numbers(jax.jit(f)(there)) == [3]
        assert device_numbers(f(X)) == device_numbers(f.grad()(X)) == [0]
    assert float(f(there)) == float(f(X))


def test_the_default_device_is_that_of_the_call() -> None:
    f = difflang.loads("fn f(x: f32[n], a: f32) -> f32[n] = a * x").f
    for number in (2, None, 1, 2):
        with jax.default_device(None if number is None else jax.devices()[number]):
            assert device_numbers(f(X, 2.0)) == [number or 0]
            assert device_numbers(f(jax.numpy.ones(3), jax.numpy.float32(2))) == [number or 0]


def test_a_failed_check_elsewhere_has_its_details() -> None:
    f = difflang.loads("fn pick(x: f32[n], i: i32) -> f32 = x[i]").pick
    for x in (jax.device_put(X, jax.devices()[1]), put(X, "data")):
        with pytest.raises(difflang.IndexFailure, match="index 99 is out of range: `x` has 16 elements"):
            f(x, 99)
        assert float(f(x, 2)) == X[2]


def test_a_capacity_grows_elsewhere() -> None:
    f = difflang.loads("""
        fn f(x: f32) -> f32 {
          var s = x
          while s < 1000.0 { s = s * 1.0002 }
          s * x
        }
    """).f.grad()
    there = jax.device_put(np.float32(1), jax.devices()[1])
    assert device_numbers(f(there)) == [1]
    assert float(f(there)) == float(f(1.0))


@pytest.mark.parametrize("pair", [(1, 2), (1, "all"), ("all", 3)])
def test_arrays_on_different_devices(pair: tuple[Any, Any]) -> None:
    f = difflang.loads("fn f(w: f32[n], x: f32[n]) -> f32 = sum(w * x)").f
    w, x = [put(X, "data") if where == "all" else jax.device_put(X, jax.devices()[where]) for where in pair]
    for run in (f, f.grad(), jax.grad(f)):
        with pytest.raises(ArgumentError, match=r"DL0609.*`w` is on .*, but `x` is on"):
            run(w, x)
