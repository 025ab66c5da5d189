"""Functions of one array against a twin in JAX: values, both modes and the second derivative, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import difflang

Array = Any
COMPILED = ("second",)  # what is compiled too: a compilation takes longer than all the rest
SOURCE = """float f64
{declarations}
fn f(x: f64[{shape}]) = {body}
fn energy(x: f64[{shape}]) = sum(f(x) * sin(f(x)))
fn value(x: f64[{shape}]) = f(x)
fn forwards(x: f64[{shape}]) = jacfwd(f)(x)
fn backwards(x: f64[{shape}]) = jacrev(f)(x)
fn second(x: f64[{shape}]) = hessian(energy)(x)
fn twice(x: f64[{shape}]) = jacrev(|x| grad(energy)(x))(x)
"""


def derivatives(body: str, shape: tuple[int, ...], declarations: str = "") -> Any:
    """A module with a function and its derivatives."""
    sizes = ", ".join(map(str, shape))
    return difflang.loads(SOURCE.format(body=body, shape=sizes, declarations=declarations), name="against_jax")


def check(body: str, twin: Callable[[Array], Array], x: Array, declarations: str = "", rtol: float = 1e-11) -> None:
    """Element by element against JAX's value and JAX's own derivatives."""
    module = derivatives(body, np.shape(x), declarations)

    def energy(x: Array) -> Array:
        return jnp.sum(twin(x) * jnp.sin(twin(x)))

    def everything(x: Array) -> tuple[Array, Array, Array]:
        return twin(x), jax.jacfwd(twin)(x), jax.jacfwd(jax.jacrev(energy))(x)

    with jax.enable_x64(True):
        value, jacobian, hessian = (np.asarray(y) for y in jax.jit(everything)(x))
    want = {"value": value, "forwards": jacobian, "backwards": jacobian, "second": hessian, "twice": hessian}
    for name, expected in want.items():
        function = getattr(module, name)
        for run in (function, function.interpret) if name in COMPILED else (function.interpret,):
            found = np.asarray(run(x))
            assert found.dtype == expected.dtype, f"{name} of {body}: {found.dtype}"
            scale = rtol * np.maximum(1.0, np.abs(expected))
            np.testing.assert_array_less(np.abs(found - expected), scale + 1e-300, err_msg=f"{name} of {body}")
