"""In programs of JAX beyond single transformations: failures, texts, traces, transfers, precision, threads, devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.export
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

import difflang

SOURCE = """
fn pick(x: f32[n], i: i32) -> f32 = x[i] * x[0]
fn square(x: f32) -> f32 = x * x
fn heron(a: f64) -> f64 {
  var y = a
  while abs(y * y - a) > 1e-13 * a { y = 0.5 * (y + a / y) }
  y
}
fn said(x: f32) -> f32 {
  print("x is {x:.1f}")
  x * x
}
fn noise(x: f32) -> f32 = x * normal()
fn root(x: f32) -> f32 {
  assert x >= 0, "no root of what is negative"
  sqrt(x)
}
record P { w: f64[2], n: i32, name: str }
fn energy(p: P, z: c128) -> f64 = abs(z * complex(sum(p.w), 0.0))^2 + f64(p.n)
"""
X = np.array([1.0, 2.0], np.float32)


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(SOURCE, name="at_home")


# ---- failures


def test_a_failing_check_is_nan_in_every_derivative_and_is_reported(m: Any, capfd: Any) -> None:
    value, slope = jax.jit(jax.value_and_grad(m.pick))(X, 5)
    lanes = jax.jit(jax.vmap(jax.grad(m.pick), in_axes=(None, 0)))(X, np.array([1, 5]))
    _, change = jax.jvp(lambda x: m.pick(x, 5), (X,), (X,))
    jax.effects_barrier()
    assert np.isnan(value) and np.isnan(slope).all() and np.isnan(change)
    assert np.isnan(lanes).tolist() == [[False] * 2, [True] * 2]
    told = capfd.readouterr().err
    assert "warning[DL0902]: an index is out of range" in told and "fn pick(x: f32[n], i: i32)" in told
    assert jax.jit(m.pick)(X, 1) == 2
    jax.effects_barrier()
    assert not capfd.readouterr().err


def test_checked_gives_the_failure_beside_the_result(m: Any) -> None:
    pick = difflang.checked(m.pick)
    failure, value = jax.jit(pick)(X, 1)
    assert not failure and value == 2 and failure.error() is None and repr(failure) == "<no failure>"
    failure, _ = jax.jit(pick)(X, 7)
    with pytest.raises(difflang.IndexFailure, match="index 7 is out of range"):
        failure.throw()
    lanes, values = jax.vmap(pick, in_axes=(None, 0))(X, jnp.array([0, 5, 1]))
    assert lanes.happened.tolist() == [False, True, False] and values[2] == 2 and "index 5" in repr(lanes)
    assert jax.grad(lambda x: pick(x, 1)[1])(X).tolist() == [2, 1]
    assert isinstance(difflang.checked(m.root)(-1.0)[0].error(), difflang.AssertionFailure)
    assert not difflang.checked(m.square)(2.0)[0]
    with pytest.raises(difflang.ArgumentError, match="is not known yet"):
        jax.jit(lambda i: pick(X, i)[0].throw())(1)
    with pytest.raises(difflang.ArgumentError, match="a function of a loaded module"):
        difflang.checked(len)


# ---- what is printed


def test_what_prints_is_printed_once_under_every_transformation(m: Any, capfd: Any) -> None:
    def lines(run: Any) -> list[str]:
        run()
        jax.effects_barrier()
        return capfd.readouterr().out.split("\n")[:-1]

    assert lines(lambda: jax.jit(jax.grad(m.said))(2.0)) == ["x is 2.0"]
    assert lines(lambda: jax.grad(jax.jit(m.said))(2.0)) == ["x is 2.0"]
    assert lines(lambda: jax.jvp(m.said, (2.0,), (1.0,))) == ["x is 2.0"]
    assert lines(lambda: jax.vmap(m.said)(X)) == ["x is 1.0", "x is 2.0"]
    assert lines(lambda: jax.hessian(m.said)(3.0)) == ["x is 3.0"]


def test_random_functions_take_a_key_under_derivatives(m: Any) -> None:
    key = jax.random.key(0)
    slope = jax.grad(lambda x: m.noise(x, key=key))(2.0)
    np.testing.assert_allclose(slope, m.noise.interpret(1.0, key=key), rtol=1e-6)
    with pytest.raises(difflang.ArgumentError, match="needs a key"):
        jax.grad(m.noise)(2.0)


# ---- traces, transfers, precision


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """What JAX compiles meanwhile."""
    seen: list[str] = []

    def listener(event: str, duration: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listener)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listener)


def test_a_thousand_calls_are_one_trace(compilations: list[str]) -> None:
    def times(run: Any) -> int:
        before = len(compilations)
        for _ in range(1000):
            run()
        return len(compilations) - before

    x = jnp.float32(3)
    counts = []
    for _ in range(2):  # and once more after the file is loaded again
        f = difflang.loads("fn f(x: f32) -> f32 = x * x * x").f
        jitted = jax.jit(jax.grad(f))
        counts.append([times(lambda f=f: f(x)), times(lambda g=jitted: g(x))])
    assert counts == [[1, 1], [1, 1]]


def test_values_in_and_out_of_transformations_share_what_was_made(m: Any) -> None:
    f = difflang.loads("fn f(x: f32) -> f32 = x + 1").f
    x = jnp.float32(1)
    f(x), jax.jit(f)(x), jax.grad(f)(x), jax.vmap(f)(jnp.ones(2))
    assert len(f._dispatch.specializations) == 1


def test_nothing_goes_to_the_host_and_back(m: Any) -> None:
    x, i, jitted = jnp.float32(2), jnp.int32(1), jax.jit(jax.value_and_grad(m.square))
    array = jnp.asarray(X)
    run = [lambda: m.square(x), lambda: m.pick(array, i), lambda: jitted(x), lambda: jax.vmap(m.square)(array)]
    for f in run:
        f()
    with jax.transfer_guard("disallow"):
        for f in run:
            f()


def test_f64_stays_so_with_jax_s_own_setting_off(m: Any) -> None:
    assert not jax.config.jax_enable_x64
    x = np.float64(2)
    with jax.enable_x64(True):
        x = jnp.asarray(x)
    assert [jax.grad(m.heron)(x).dtype, jax.jit(jax.grad(m.heron))(x).dtype] == [np.float64] * 2
    np.testing.assert_allclose(jax.jit(jax.grad(m.heron))(x), 0.5 / np.sqrt(2), rtol=1e-15)
    np.testing.assert_allclose(jax.jvp(m.heron, (x,), (x,))[1], 1 / np.sqrt(2), rtol=1e-15)
    with pytest.raises(difflang.ArgumentError, match="f32 was given"):
        jax.grad(m.heron)(jnp.float32(2))
    with pytest.raises(difflang.ArgumentError, match="f64 was given"):
        jax.grad(m.square)(x)
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("wide", [False, True])
def test_jax_exports_for_several_platforms_at_once(wide: bool) -> None:
    """Each with its own lowering; those for one platform call the same functions as those around them."""
    m = difflang.loads("""
        fn f(x: f32[n]) -> f32 = logsumexp(x) + f32(sum(cumsum(f64(x))^2))
        fn g(x: f32[n]) -> f32 { var y = f(x)
          while y > 1.0 { y = 0.5 * y }
          y }
    """)
    x = np.array([0.5, 1.0, -2.0], np.float32)
    with jax.enable_x64(wide):
        both = jax.jit(lambda x: (m.f(x), jax.grad(m.g)(x), jnp.cumsum(x)))
        exported = jax.export.export(both, platforms=["tpu", "cuda", "cpu"])(jax.ShapeDtypeStruct((3,), x.dtype))
        jax.tree.map(np.testing.assert_array_equal, exported.call(x), both(x))


def test_records_integers_and_complex_numbers(m: Any) -> None:
    with jax.enable_x64(True):
        p, z = m.P(w=jnp.array([1.0, 2.0]), n=jnp.int64(1).astype(jnp.int32), name="p"), jnp.asarray(1.0 + 2.0j)
        theirs = lambda w, z: jnp.abs(z * jnp.sum(w)) ** 2
        ours = lambda w, z: m.energy(m.P(w=w, n=p.n, name="p"), z)
        for number in (0, 1):  # the gradient in a complex number as JAX pairs them
            wanted = jax.grad(theirs, number)(p.w, z)
            np.testing.assert_allclose(jax.grad(ours, number)(p.w, z), wanted, rtol=1e-12)
            np.testing.assert_allclose(jax.jacrev(ours, number)(p.w, z), wanted, rtol=1e-12)
        slope = jax.grad(m.energy, allow_int=True)(p, z)
        assert type(slope) is m.P and slope.w.shape == (2,)


# ---- threads and devices


def test_eight_threads_give_what_one_gives() -> None:
    m = difflang.loads(SOURCE, name="threads")  # nothing is made yet
    calls = [
        lambda k: m.square(jnp.float32(k)),
        lambda k: jax.grad(m.square)(jnp.float32(k)),
        lambda k: jax.jit(jax.vmap(m.square))(jnp.arange(k % 3 + 1.0)).sum(),
        lambda k: m.pick(jnp.arange(5.0), k % 5),
        lambda k: m.heron.grad()(2.0 + k % 4),
    ]
    work = [(calls[k % len(calls)], k) for k in range(80)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda item: float(item[0](item[1])), work))
    assert found == [float(f(k)) for f, k in work]


DEVICES = """
import jax, jax.numpy as jnp, numpy as np, difflang
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
m = difflang.loads('''
fn steps(w: f32[d], x: f32[n, d]) -> f32 {
  var s = w
  while sum(s * s) > 0.5 { s = s - 0.1 * transpose(x) @ tanh(x @ s) }
  sum(s) / f32(n)
}
fn loss(w: f32[d], x: f32[n, d]) -> f32 = mean(tanh(x @ w)^2)
fn pick(x: f32[n], i: i32) -> f32 = x[i]
''')
mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
x, w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4), np.ones(4, np.float32)
split = jax.device_put(x, NamedSharding(mesh, P("d")))
everywhere = jax.device_put(w, NamedSharding(mesh, P()))
near = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
near(m.loss(everywhere, split), m.loss(w, x))
near(m.loss.grad()(everywhere, split), m.loss.grad()(w, x))
near(jax.jit(jax.grad(m.loss))(everywhere, split), m.loss.grad()(w, x))
near(m.pick(jax.device_put(w, NamedSharding(mesh, P())), 2), 1)
try:
    m.pick(everywhere, 9)
except difflang.IndexFailure:
    pass
else:
    raise AssertionError("no failure")
def mean(f):
    each = lambda w, x: jax.lax.pmean(f(w, x), "d")
    return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=(P(), P("d")), out_specs=P()))
for f in (m.loss, m.steps):
    wanted = jax.grad(lambda w: jax.vmap(lambda x: f(w, x))(x.reshape(8, 2, 4)).mean())(w)
    near(jax.grad(mean(f))(w, x), wanted)
    inside = lambda w, x: jax.grad(lambda w: jax.lax.pmean(f(w, x), "d"))(w)
    near(jax.jit(jax.shard_map(inside, mesh=mesh, in_specs=(P(), P("d")), out_specs=P()))(w, x), wanted)
"""


@pytest.mark.slow
def test_arrays_on_eight_devices_and_shard_map() -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", DEVICES], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600,
        env={**os.environ, "XLA_FLAGS": flags},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
