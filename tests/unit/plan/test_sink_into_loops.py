"""What loops read step by step is made in their steps, where that takes less room: the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.graph import Eqn, Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.text_printer import graph_to_text
from difflang.ir.verify import verify
from difflang.ops.loop.loop_op import loop
from difflang.passes.pipelines import PREPARE_KEEPING_LOOPS
from difflang.plan.sink_into_loops import sink_into_loops

PARAMETERS = "xs: f64[6, 4, 3], w: f64[3, 50], b: f64[50], v: f64[50, 4]"
SUNK = {
    "a product": "xs @ w",
    "a product and a sum": "xs @ w + b",
    "functions of it": "tanh(2.0 * (xs @ w) + b) * b",
    "a product of products": "((xs @ w) @ v) @ transpose(v)",
}
STAYS = {
    "what takes no less room": "tanh(xs)",
    "a product over steps": "[for t in 0..6 => sum(for u => xs[u] * f64(t))]",
    "an order of its own": "reverse(xs @ w)",
    "one repeated for all steps": "xs[0..1, .., 0..1] * xs[.., .., 0..1] * reshape(w, [1, 1, 150])",
}
DRAW = np.random.default_rng(0)
GIVEN = tuple([DRAW.normal(size=s) for s in ((6, 4, 3), (3, 50), (50,), (50, 4))])


def body(what: str, after: str = "sum(s^2)") -> Graph:
    source = f"float f64\nfn f({PARAMETERS}) -> f64 {{\n let r = {what}\n var s = zeros_like(r[0])\n"
    source += f" for t in 0..6 {{ s = tanh(s + r[t]) }}\n {after}\n}}\n"
    f: Any = difflang.loads(source, name="sink").f
    return PREPARE_KEEPING_LOOPS(f._elaborate(GIVEN, {}).graph)


def loop_of(graph: Graph) -> Eqn:
    (found,) = [e for e in graph.eqns if e.op is loop]
    return found


@pytest.mark.parametrize("what", SUNK.values(), ids=SUNK)
def test_what_the_steps_can_make_is_made_there(what: str) -> None:
    before = body(what)
    after = sink_into_loops(before)
    verify(after)
    assert "dot_general" in graph_to_text(loop_of(after).regions[0])
    assert max(v.type.bytes for v in loop_of(after).operands) <= 8 * 200
    np.testing.assert_allclose(evaluate(after, *GIVEN), evaluate(before, *GIVEN), rtol=1e-12)


@pytest.mark.parametrize("what", STAYS.values(), ids=STAYS)
def test_what_gains_nothing_stays(what: str) -> None:
    graph = body(what)
    assert loop_of(sink_into_loops(graph)) is loop_of(graph)


def test_what_is_read_elsewhere_stays() -> None:
    graph = body("xs @ w", "sum(s^2) + sum(r)")
    assert sink_into_loops(graph) is graph
