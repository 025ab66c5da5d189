"""Every example's value and gradient lower for each platform on a machine that has none of them but the CPU."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from support.twins import entry
from twins import NAMES


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.nightly_except("(fit_curve|bayes|logistic|learned_rate|recurrent|kalman)-.*")
def test_an_example_lowers_for_a_platform(name: str, platform: str) -> None:
    twin = import_module(f"twins.{name}")
    arguments = twin.arguments(np.float32)
    loss = entry(name, ("f64", "f32"))
    for function in (loss, loss.grad(twin.WRT)):
        text = function.lower(*arguments, platform=platform).as_text()
        assert "func.func public @main" in text
        assert "stablehlo." in text
