"""Random plain programs: what is compiled, with every pass, is what is interpreted, without those that reorder work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from support.plain_programs import plain_program
from support.seeds import SEEDS


def close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    scale = np.max(np.abs(b[np.isfinite(b)]), initial=1.0)
    return np.allclose(a, b, rtol=1e-8, atol=1e-10 * scale, equal_nan=True)


def arguments(seed: int, n: int, kind: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    found = [rng.uniform(-1.5, 1.5, size=s) for s in ((n,), (n,), (n, n))]
    if kind == "ties":
        found = [np.round(2 * v) / 2 for v in found]
    if kind == "nan":
        found[2][n // 2, 0] = np.nan
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_as_interpreted(seed: int) -> None:
    source = plain_program(seed)
    program = difflang.loads(source, name=f"plain_{seed}").f
    slope = program.grad(("x", "a"))
    for kind, n in (("plain", 5), ("ties", 4), ("nan", 3)):
        given = arguments(seed, n, kind)
        assert close(program(*given), program.interpret(*given)), f"the value, {kind}\n{source}"
        got, wanted = slope(*given), slope.interpret(*given)
        assert close(got.x, wanted.x) and close(got.a, wanted.a), f"the gradient, {kind}\n{source}"
