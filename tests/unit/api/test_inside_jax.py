"""Inside JAX programs, and with JAX's 64-bit setting either way."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang

PROGRAM = """
record P { w: f32[3], b: f32 }
let c: f32[3] = [1.0, 2.0, 3.0]
fn square(x: f32) -> f32 = x * x
fn wide(x: f64[n]) -> f64 = sum(x * x)
fn dot(p: P, x: f32[3]) -> P = P(w = p.w * x, b = p.b)
fn pick(x: f32[n], i: i32) -> (f32, i32) = (x[i], i)
fn noise(x: f32) -> f32 = x + normal()
fn scaled(x: f32) -> f32 = x * sum(c)
"""


@pytest.fixture
def m() -> Any:
    """Fresh each time, so that the first call happens inside the transformation."""
    return difflang.loads(PROGRAM, name="in_jax")


def test_functions_are_parts_of_jitted_mapped_and_scanned_programs(m: Any) -> None:
    assert jax.jit(lambda x: m.square(x) + 1)(jnp.float32(3)) == 10
    np.testing.assert_array_equal(jax.vmap(m.square)(jnp.arange(4.0)), [0, 1, 4, 9])
    _, ys = jax.lax.scan(lambda s, x: (m.square(s), m.square(x)), jnp.float32(2), jnp.arange(3.0))
    np.testing.assert_array_equal(ys, [0, 1, 4])
    assert jax.jit(lambda: m.square(3.0))() == 9
    assert m.square(jnp.float32(3)) == 9, "and outside again"
    assert jax.vmap(m.square.grad())(jnp.arange(3.0)).tolist() == [0, 2, 4]


def test_records_go_through_jax(m: Any) -> None:
    p = m.P(w=jnp.ones(3), b=jnp.float32(1))
    out = jax.jit(lambda p: m.dot(p, jnp.arange(3.0)))(p)
    assert type(out) is m.P and out.w.tolist() == [0, 1, 2]
    batch = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), p)
    assert jax.vmap(m.dot, in_axes=(0, None))(batch, jnp.ones(3)).w.tolist() == [[1, 1, 1], [2, 2, 2]]


def test_a_file_s_own_values_are_found_inside_a_trace(m: Any) -> None:
    assert jax.jit(m.scaled)(jnp.float32(2)) == 12
    assert m.scaled(1.0) == 6


def test_a_failing_check_gives_nan_where_nothing_can_be_raised(m: Any) -> None:
    value, i = jax.jit(m.pick)(jnp.ones(3), 7)
    assert np.isnan(value) and i == 7
    good, _ = jax.vmap(m.pick, in_axes=(None, 0))(jnp.ones(3), jnp.array([0, 5, 2]))
    assert np.isnan(good).tolist() == [False, True, False]


def test_a_random_function_in_a_trace_needs_a_key(m: Any) -> None:
    for program in (lambda x: m.noise(x), lambda x: m.noise(1.0)):
        with pytest.raises(difflang.ArgumentError) as error:
            jax.jit(program)(jnp.float32(1))
        assert error.value.diagnostics[0].code == "DL1208"
    keys = jax.random.split(jax.random.key(0), 3)
    found = jax.vmap(lambda k: m.noise(1.0, key=k))(keys)
    expected = [m.noise(1.0, key=k) for k in keys]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_wrong_argument_in_a_trace_is_refused(m: Any) -> None:
    with pytest.raises(difflang.ArgumentError, match="declared f32"):
        jax.jit(m.square)(jnp.ones(3))
    with pytest.raises(difflang.ArgumentError):
        jax.jit(lambda x: m.square.interpret(x))(1.0)


X64 = """
import jax, numpy as np, jax.numpy as jnp, difflang
jax.config.update("jax_enable_x64", {setting})
m = difflang.loads("fn f(x: f64[n]) -> f64 = sum(x * x)\\nfn s(x: f64) -> f64 = x / 3.0\\nfn n(x: f32) -> f32 = x")
x = np.array([1.0 + 2**-40, 2.0])
for _ in range(2):
    y = m.f(x)
    assert y.dtype == np.float64 and float(y) == float(np.sum(x * x)), y
    g = m.f.grad()(x)
    assert g.dtype == np.float64 and np.array_equal(g, 2 * x)
    assert m.f(g) == float(np.sum(4 * x * x))
    third = m.s(1.0)
    assert third.dtype == np.float64 and float(third) == 1 / 3
    assert m.f.interpret(x) == y
    inside = jax.jit(lambda: m.f(x))()
    assert inside.dtype == np.float64 and inside == y
    assert m.n(1.0).dtype == np.float32
    try:
        m.n(np.float64(1))
    except difflang.ArgumentError:
        pass
    else:
        raise AssertionError("narrowed")
    try:
        m.n(third)
    except difflang.ArgumentError:
        pass
    else:
        raise AssertionError("narrowed")
assert jax.config.jax_enable_x64 is {setting}
assert jnp.asarray(1.0).dtype == ("float64" if {setting} else "float32")
"""


@pytest.mark.parametrize("setting", [False, True])
def test_f64_is_exact_whatever_the_process_says(setting: bool) -> None:
    command = [sys.executable, "-c", X64.format(setting=setting)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, done.stderr


def test_where_jax_compiles_nothing_a_program_is_compiled_all_the_same() -> None:
    """`jax.disable_jit` is for looking into functions of Python."""
    m = difflang.loads("fn f(x: f32[n], a: f32) -> f32 = a * sum(x^2)", name="disabled")
    x = np.arange(3, dtype=np.float32)
    with jax.disable_jit():
        for given in (x, jax.numpy.asarray(x)):
            for _ in range(2):
                assert float(m.f(given, 2.0)) == 10.0
            np.testing.assert_array_equal(m.f.grad("x")(given, 2.0), 4 * x)
            np.testing.assert_array_equal(jax.grad(m.f)(jax.numpy.asarray(given), 2.0), 4 * x)
        np.testing.assert_array_equal(jax.jit(jax.vmap(m.f, (0, None)))(np.stack([x, x]), 2.0), [10.0, 10.0])
