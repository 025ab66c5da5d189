"""Straight code in pieces: cut where little is alive, and in blocks it computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.ir.graph import Attrs, Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.verify import verify_if_enabled
from difflang.passes.pipelines import PREPARE_KEEPING_LOOPS
from difflang.plan.checkpoint_segments import (
    CheckpointSegment,
    boundary_bytes,
    checkpoint_segments,
    find_segments,
    inline_calls,
    split_views,
)
from difflang.tools.emit import EmitRequest, function_graph

LAYERS = """
fn layer(x: f64[n], w: f64[n, n]) -> f64[n] {
  let wide = exp(reshape(x, [n, 1]) * w) + cos(w * 2.0) * sin(w) + tanh(w * w + reshape(x, [1, n])) * exp(-w * w)
  let other = sqrt(wide * wide + 1.0) * tanh(wide) + w * w * w - exp(w) * sin(reshape(x, [n, 1]) * w)
  x + 0.1 * sum(wide * other, axis = 1)
}
fn f(w: f64[4, n, n], x: f64[n]) -> f64 {
  let a = layer(layer(x, w[0]), w[1])
  LOOP
  sum(layer(layer(b, w[2]), w[3]))
}
"""


def graph(loop: str = "let b = a") -> Graph:
    checked = check_program(Source("layers", LAYERS.replace("LOOP", loop)), None, Path(), ())
    assert not checked.diagnostics
    whole = PREPARE_KEEPING_LOOPS(function_graph(checked, checked.module.fns["f"], EmitRequest("ir", "f", {"n": "5"})))
    return PREPARE_KEEPING_LOOPS(inline_calls(whole, 1000))


def test_layers_are_found_and_what_is_called_is_written_out() -> None:
    whole = graph()
    assert all(e.op.name != "call" for e in whole.eqns)
    found = find_segments(whole, 4)
    assert [len(p.eqns) for p in found[:-1]] == [len(found[0].eqns)] * 3
    assert boundary_bytes(whole, found) == 3 * 5 * 8 + 8  # between layers a vector is alive, and the result at the end
    views, rest = split_views(whole)
    assert [e for p in found for e in p.eqns] == rest
    assert {e.op.name for e in views} == {"const", "slice", "reshape"}


def test_a_function_that_would_grow_too_large_is_left_as_it_is() -> None:
    whole = graph()
    assert inline_calls(whole, 10) is whole
    checked = check_program(Source("layers", LAYERS.replace("LOOP", "let b = a")), None, Path(), ())
    calls = PREPARE_KEEPING_LOOPS(function_graph(checked, checked.module.fns["f"], EmitRequest("ir", "f", {"n": "5"})))
    assert any(e.op.name == "call" for e in calls.eqns)
    assert inline_calls(calls, 30) is calls


@pytest.mark.parametrize("attrs", [{}, {"min_cut": True}, {"loop_step": True}], ids=str)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_blocks_compute_the_same(count: int, attrs: Attrs) -> None:
    whole = graph()
    found = checkpoint_segments(
        whole, dict.fromkeys(find_segments(whole, count)[:-1] if count > 1 else find_segments(whole, 1), attrs)
    )
    assert len([e for e in found.eqns if e.op.name == "checkpoint"]) == max(1, count - 1)
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(4, 5, 5)), rng.normal(size=5)
    np.testing.assert_array_equal(
        evaluate(verify_if_enabled(found, after="in_blocks"), *arrays), evaluate(whole, *arrays)
    )


def test_loops_are_in_no_piece() -> None:
    whole = graph("var b = a\n for i in 0..3 { b = b + 0.1 * sin(b) }")
    found = find_segments(whole, 4)
    assert found and not any(e.op.name == "loop" for p in found for e in p.eqns)
    (loop,) = [e for e in whole.eqns if e.op.name == "loop"]
    at = whole.eqns.index(loop)
    assert all(len({whole.eqns.index(e) < at for e in p.eqns}) == 1 for p in found)


def test_nothing_makes_no_piece() -> None:
    whole = graph()
    assert checkpoint_segments(whole, {}) is whole
    assert find_segments(whole.with_eqns([e for e in whole.eqns if not e.operands]).with_results([]), 3) == []
    assert CheckpointSegment(whole.eqns).span.source.name == "layers"
