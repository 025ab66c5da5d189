"""An executable keeps its types in every surrounding, and is about as fast to call as jitted JAX."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  fills the registry
from difflang.base.diagnostics import DifflangError
from difflang.ir.builder import Builder, build_region
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F32, F64, I32, DType, Tensor
from difflang.runtime import compile as module
from difflang.runtime.compile import Executable, compile_graph


def square(dtype: DType, *shape: int) -> Executable:
    t = Tensor(dtype, shape)
    return compile_graph(build_region([t], lambda x: [x * x + 0.1]))


@pytest.mark.parametrize("x64", [False, True])
def test_f64_stays_f64_whatever_the_process_says(x64: bool) -> None:
    f = square(F64)
    for given in (1.5, np.float64(1.5), np.array(1.5)):
        with jax.enable_x64(x64):
            (y,) = f(given)
            (z,) = f(y)
        assert y.dtype == z.dtype == np.float64
        assert float(y) == 1.5 * 1.5 + 0.1
        assert float(z) == float(y) ** 2 + 0.1
    assert isinstance(y, jax.Array)


@pytest.mark.parametrize("x64", [False, True])
def test_f32_stays_f32(x64: bool) -> None:
    f = square(F32)
    with jax.enable_x64(x64):
        assert [f(x)[0].dtype for x in (1.5, 2, np.float32(1.5), jnp.float32(1.5))] == [np.float32] * 4


def test_inside_outer_jit_vmap_scan_and_grad() -> None:
    f = square(F64)

    def wide(x: Any) -> Any:
        return f(x)[0]

    with jax.enable_x64(True):
        xs = jnp.arange(3.0)
    assert jax.jit(wide)(xs[1]).dtype == np.float64
    assert jax.vmap(wide)(xs).tolist() == [x * x + 0.1 for x in (0.0, 1.0, 2.0)]
    _, ys = jax.lax.scan(lambda c, x: (c, wide(x)), 0, xs)
    assert ys.dtype == np.float64
    assert jax.jit(jax.vmap(wide))(xs).dtype == np.float64


def test_inside_an_outer_trace_nothing_is_compiled_apart() -> None:
    f = square(F32, 3)
    jax.jit(lambda x: f(x)[0])(jnp.ones(3, jnp.float32))
    assert f.compiled is None


def test_a_tracer_of_another_type_is_refused() -> None:
    f, g = square(F32), square(I32)
    with pytest.raises(DifflangError, match="f32"), jax.enable_x64(True):
        jax.jit(lambda x: f(x)[0])(jnp.float64(1.0))
    with pytest.raises(DifflangError, match="i32"):
        jax.jit(lambda x: g(x)[0])(1.0)
    assert jax.jit(lambda x: f(x)[0])(2.0).dtype == np.float32
    with jax.enable_x64(True):
        assert jax.jit(lambda x: f(x)[0])(2.0).dtype == np.float32, "a Python number on its way through jit"


def test_arrays_that_do_not_fit_are_refused_after_the_first_call_too() -> None:
    f = square(F32, 3)
    for _ in range(2):
        with pytest.raises(DifflangError, match=r"axis 0 is 4, not 3"):
            f(jnp.ones(4, jnp.float32))
        with jax.enable_x64(True), pytest.raises(DifflangError, match="f64"):
            f(jnp.ones(3, jnp.float64))
        with pytest.raises(DifflangError, match="takes 1 argument, not 2"):
            f(jnp.ones(3, jnp.float32), 1.0)
        assert f(jnp.ones(3, jnp.float32))[0].shape == (3,)


def test_on_a_device_that_is_named() -> None:
    f = compile_graph(build_region([Tensor(F64)], lambda x: [x + 1.0]), device=jax.devices("cpu")[0])
    (y,) = f(1.0)
    assert y.devices() == {jax.devices("cpu")[0]}
    assert float(f(y)[0]) == 3.0


def test_a_program_without_params_and_one_that_gives_its_param() -> None:
    builder = Builder()
    three = builder.const(3.0, Tensor(F64, (2,)))
    assert compile_graph(builder.finish([three]))()[0].tolist() == [3.0, 3.0]
    assert [float(y) for y in compile_graph(build_region([Tensor(F64)], lambda x: [x, x]))(1.5)] == [1.5, 1.5]


def test_it_is_compiled_once_for_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    f, lowered, count = square(F32, 5), module.lower_graph, []

    def counted(*args: Any, **rest: Any) -> Any:
        count.append(1)
        return lowered(*args, **rest)

    monkeypatch.setattr(module, "lower_graph", counted)
    threads = [threading.Thread(target=f, args=(np.ones(5, np.float32),)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(count) == 1


def test_names_of_params_are_in_messages() -> None:
    builder = Builder()
    x = builder.param(Tensor(F32), "m.w")
    with pytest.raises(DifflangError, match=r"`m\.w` is an f32\[\]"):
        compile_graph(builder.finish([OPS["sin"].one(x)]))(np.float64(1.0))
