"""The gradient of each example, element by element, against JAX's own differentiation of its twin, in f64."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from support.twins import entry
from twins import NAMES, differentiated


def arrays(value: Any, of: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a record by path, field by field as the NamedTuple `of` has them; an array alone has no name."""
    if not isinstance(of, tuple):
        yield name, np.asarray(value)
        return
    for field in type(of)._fields:
        yield from arrays(getattr(value, field), getattr(of, field), f"{name}.{field}")


def alike(ours: Any, theirs: Any, rel: float) -> None:
    """Each element by itself, never scaled by the largest one."""
    for (name, found), (_, expected) in zip(arrays(ours, theirs), arrays(theirs, theirs), strict=True):
        assert found.dtype == np.float64 and found.shape == expected.shape, name
        np.testing.assert_allclose(found, expected, rtol=rel, atol=0, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.nightly_except("fit_curve|logistic|bayes|molecules|digits")
def test_value_and_gradient_agree_with_the_twin(name: str) -> None:
    twin = import_module(f"twins.{name}")
    arguments = twin.arguments(np.float64)
    value, gradient = differentiated(name)
    loss = entry(name, ("f32", "f64"))
    assert float(loss(*arguments)) == pytest.approx(float(value), rel=1e-12)
    alike(loss.grad(twin.WRT)(*arguments), gradient, rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_interpreter_agrees_too(name: str) -> None:
    twin = import_module(f"twins.{name}")
    arguments = twin.arguments(np.float64)
    _, gradient = differentiated(name)
    loss = entry(name, ("f32", "f64"))
    alike(loss.grad(twin.WRT).interpret(*arguments), gradient, rel=1e-10)
