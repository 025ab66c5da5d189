"""`@deterministic`: XLA is told to add up in one order, by whichever door a program is run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.execution.engine import Engine
from difflang.runtime import compile
from support.language import codes, ran

SOURCE = """float f64
MARK
fn counts(x: f64[n], idx: i32[n], k: dim) -> f64[k] {
  var bins = zeros(k)
  MARK
  for i in 0..n { bins[idx[i]] += x[i] }
  bins
}
fn loss(x: f64[n], idx: i32[n]) -> f64 = sum(counts(x, idx, 3)^2)
let slope = grad(loss)([0.5, 1.0, 2.0], [1, 0, 1])
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What XLA is told, program by program."""
    found: list[Any] = []
    compiled = compile.compile_lowered

    def noted(program: Any, graph: Any, options: Any = None) -> Any:
        found.append(options)
        return compiled(program, graph, options)

    monkeypatch.setattr(compile, "compile_lowered", noted)
    return found


@pytest.mark.parametrize("mark", ["", "@deterministic"])
def test_a_program_says_so_to_xla(mark: str, told: list[Any]) -> None:
    values, _ = ran(SOURCE.replace("MARK", mark), Engine())
    leaves = values["slope"].leaves
    assert leaves is not None
    np.testing.assert_array_equal(leaves[0], [5.0, 2.0, 5.0])
    program: Any = difflang.loads(SOURCE.replace("MARK", mark), name="order")
    x, idx = np.array([0.5, 1.0, 2.0]), np.array([1, 0, 1], np.int32)
    np.testing.assert_array_equal(program.loss.grad("x")(x, idx), [5.0, 2.0, 5.0])
    asked = compile.EXACT_OPTIONS | (compile.DETERMINISTIC_OPTIONS if mark else {})
    assert told and all(options == asked for options in told)


def test_it_takes_nothing() -> None:
    assert codes("@deterministic(1)\nfn f(x: f32) -> f32 = x\n") == [("DL0209", 1)]
