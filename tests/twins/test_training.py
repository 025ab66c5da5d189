"""The losses of two examples fall as those of their twins do: step by step, in f32."""

from __future__ import annotations

from importlib import import_module

import jax
import numpy as np
import pytest

from support.twins import training
from twins.training import NAMES, batches, begun, like, step

STEPS = 40


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.nightly
def test_the_loss_falls_as_the_twins_does(name: str) -> None:
    ours, theirs = training(name), jax.jit(step(name))
    m = ours.start()
    seen = ours.first(m)
    twin = like(import_module(f"twins.{name}").arguments(np.float32)[0], m)
    moments = begun(twin)
    found, expected = [], []
    for batch in batches(name, STEPS):
        value, m, seen = ours.trained(m, seen, *batch)
        wanted, twin, moments = theirs(twin, moments, *batch)
        found.append(float(value))
        expected.append(float(wanted))
    assert np.mean(expected[-5:]) < 0.9 * np.mean(expected[:5])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
