"""JAX and NumPy have what the types of `array_types` promise to the rules of ops."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from difflang.ir.array_types import Jax, JaxArray, JaxNumpyModule, LaxModule, LinalgModule, TracedArray

PROMISES = [
    (Jax, jax), (JaxNumpyModule, jax.numpy), (LaxModule, jax.lax), (LinalgModule, jax.lax.linalg),
    (TracedArray, jax.Array), (JaxArray, jax.Array), (JaxArray, np.ndarray),
]  # fmt: skip


@pytest.mark.parametrize(("promised", "real"), PROMISES, ids=lambda x: x.__name__)
def test_what_rules_may_use_exists(promised: type, real: object) -> None:
    members = [*vars(promised), *promised.__annotations__]
    absent = [name for name in members if not name.startswith("_") and not hasattr(real, name)]
    assert not absent
