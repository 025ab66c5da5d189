"""Random graphs with branches, loops of every kind, maps and calls in each other: forward and reverse mode agree."""

from __future__ import annotations

import numpy as np
import pytest

import difflang.ops.loop.step_transpose
from derivatives import FLOAT, composed, op
from difflang import graph as dg
from difflang.ad.expand_derivatives import differentiate
from difflang.ad.graph_gradient import ShiftedGraph
from difflang.gradcheck.evaluation_trace import EvaluationTrace, TraceNode
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from support.nightly import by_day
from support.random_graphs import VECTOR, Writer, depth, numbers, random_graph

SEEDS = range(by_day(20, 60))


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_and_reverse_mode_agree(seed: int) -> None:
    agree(random_graph(seed), seed)


def agree(graph: Graph, seed: int) -> None:
    """<ct, J dx> = <Jᵀ ct, dx>, of the function and of its derivatives; all of them give the function's value."""
    for order in ("", "V", "J"):
        f = composed(order, graph)
        forward, backward = composed("J", f), composed("V", f)
        xs = numbers(f, 0, seed)
        dxs, cts = numbers(forward, len(xs), seed + 1), numbers(backward, len(xs), seed + 2)
        ys, outs, back = evaluate(f, *xs), evaluate(forward, *xs, *dxs), evaluate(backward, *xs, *cts)
        for y, a, b in zip(ys, outs, back, strict=False):
            np.testing.assert_allclose(a, y, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(b, y, rtol=1e-12, atol=1e-13)
        left = [c * d for c, d in zip(cts, outs[len(ys) :], strict=True)]
        right = [c * d for c, d in zip(back[len(ys) :], dxs, strict=True)]
        size = sum(float(np.sum(np.abs(t))) for t in (*left, *right))
        assert abs(sum(map(np.sum, left)) - sum(map(np.sum, right))) <= 1e-11 * size + 1e-13, order


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_mode_agrees_with_differences(seed: int) -> None:
    plain = without_stops(seed)
    xs, dxs = numbers(plain, 0, seed), numbers(plain, 0, seed + 1)
    h = 1e-6
    ahead, behind = (evaluate(plain, *[x + s * d for x, d in zip(xs, dxs, strict=True)]) for s in (h, -h))
    got = evaluate(composed("J", plain), *xs, *dxs)[len(plain.results) :]
    for a, b, d in zip(ahead, behind, got, strict=True):
        np.testing.assert_allclose(d, (a - b) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_graphs_are_those_of_functions(seed: int) -> None:
    """Towards inputs and values between, whatever is recomputed: of a function that adds to each of these values."""
    f, rng = random_graph(seed), np.random.default_rng(seed)
    between = [v for eqn in f.eqns for v in eqn.results if v.type in (FLOAT, VECTOR)]
    towards = [between[i] for i in sorted(rng.choice(len(between), min(3, len(between)), replace=False))]
    g, added = dg.Graph(f), ShiftedGraph(f, towards)
    shifted = added.graph.with_results(map(added.read, f.results))
    xs = numbers(f, 0, seed)
    shifts = [np.zeros(v.type.shape) for v in shifted.params[len(xs) :]]
    derived = composed("V", shifted)
    cts = numbers(derived, len(shifted.params), seed + 1)
    want = evaluate(derived, *xs, *shifts, *cts)[len(f.results) :]
    recomputed = {eqn for eqn in f.eqns if rng.random() < 0.4}
    for recompute in (None, lambda e: e.ir in recomputed, lambda e: True):
        d = dg.gradient(
            g, g.outputs, [*g.inputs, *[dg.Value(v, g) for v in towards]], ["one", "two"], unreachable="zero",
            recompute=recompute,
        )  # fmt: skip
        got = evaluate(differentiate(d.ir), *xs, *cts)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
        blocks = [e for e in d.walk() if e.op == "checkpoint"]
        assert recompute is not None or not blocks


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_towards_all_values_are_the_cotangents_of_a_trace(seed: int) -> None:
    f, xs = random_graph(seed), numbers(random_graph(seed), 0, seed)
    trace = EvaluationTrace([TraceNode(x, p.type, active=True) for x, p in zip(xs, f.params, strict=True)])
    trace.pull(trace.run(f, trace.arguments)[0])
    steps = {step.eqn: step for step in trace.steps if step.eqn in f.eqns}
    g = dg.Graph(f)
    towards = [v for e in g.equations if e.ir in steps for v in e.outputs]
    d = dg.gradient(g, g.outputs[0], [*g.inputs, *towards], unreachable="zero")
    want = [*trace.arguments, *[node for e in g.equations if e.ir in steps for node in steps[e.ir].results]]
    for node, got in zip(want, evaluate(differentiate(d.ir), *xs), strict=True):
        np.testing.assert_allclose(got, node.adjoint, rtol=1e-11, atol=1e-13)


def without_stops(seed: int) -> Graph:
    """A random graph with no `stop`: a difference sees through it."""
    writer = Writer(seed)
    writer.unary = lambda known, depth: [  # type: ignore[method-assign]
        op(str(writer.rng.choice(["sin", "cos", "tanh", "neg", "exp"])), op("tanh", writer.any(known)))
    ]
    return build_region([FLOAT, VECTOR, FLOAT], lambda *xs: writer.body(xs, depth(seed), 5, [FLOAT, VECTOR]))


def test_the_graphs_are_worth_testing() -> None:
    """Every region op occurs in many of them, nested in others."""
    seen: dict[str, int] = {}
    for seed in SEEDS:
        for name in names(random_graph(seed)):
            seen[name] = seen.get(name, 0) + 1
    assert all(seen.get(name, 0) >= len(SEEDS) // 4 for name in ("cond", "loop", "map", "call")), seen


def test_most_derivatives_are_not_zero() -> None:
    found = 0
    for seed in SEEDS:
        graph = random_graph(seed)
        xs, dxs = numbers(graph, 0, seed), numbers(graph, 0, seed + 1)
        found += all(np.all(d != 0) for d in evaluate(composed("J", graph), *xs, *dxs)[2:])
    assert found > 0.6 * len(SEEDS), found


@pytest.mark.nightly
def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cotangents of what a loop only reads, not summed over its steps: most graphs with a loop notice."""
    monkeypatch.setattr(difflang.ops.loop.step_transpose, "add_tangents", lambda x, y: y)
    caught = 0
    for seed in SEEDS:
        try:
            agree(random_graph(seed), seed)
        except AssertionError:
            caught += 1
    assert caught > 0.5 * len(SEEDS), caught


def names(graph: Graph) -> set[str]:
    return {e.op.name for e in graph.eqns}.union(*[names(r) for e in graph.eqns for r in e.regions])
