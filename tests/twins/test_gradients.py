"""The gradient of each example, element by element, against JAX's own differentiation of its twin, in f64."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from twins import NAMES, entry, source


def fields(value: Any) -> dict[str, np.ndarray]:
    """The arrays of a record or NamedTuple by field; an array alone has no name."""
    if isinstance(value, tuple):
        return {name: np.asarray(getattr(value, name)) for name in type(value)._fields}
    return {"": np.asarray(value)}


def alike(ours: Any, theirs: Any, rel: float) -> None:
    """Each element by itself, never scaled by the largest one."""
    for name, expected in fields(theirs).items():
        found = np.asarray(getattr(ours, name) if name else ours)
        assert found.dtype == np.float64 and found.shape == expected.shape, name
        np.testing.assert_allclose(found, expected, rtol=rel, atol=0, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradient_agree_with_the_twin(name: str) -> None:
    twin = import_module(f"twins.{name}")
    arguments = twin.arguments(np.float64)
    with jax.enable_x64(True):
        value, gradient = jax.value_and_grad(twin.loss)(*arguments)
    loss = entry(difflang.loads(source(name, swap=("f32", "f64")), name=name), twin)
    assert float(loss(*arguments)) == pytest.approx(float(value), rel=1e-12)
    alike(loss.grad(twin.WRT)(*arguments), gradient, rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_interpreter_agrees_too(name: str) -> None:
    twin = import_module(f"twins.{name}")
    arguments = twin.arguments(np.float64)
    with jax.enable_x64(True):
        gradient = jax.grad(twin.loss)(*arguments)
    loss = entry(difflang.loads(source(name, swap=("f32", "f64")), name=name), twin)
    alike(loss.grad(twin.WRT).interpret(*arguments), gradient, rel=1e-10)
