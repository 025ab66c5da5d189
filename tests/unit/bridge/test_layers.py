"""Layers with state and with draws beside flax's own: the same numbers and gradients; and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import difflang
from difflang.bridge import flax as bridge


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads("""
import nn
fn layer(
  l: nn.Norm[f32, c], seen: nn.BatchStats[f32, c], x: f32[n, c], train: bool,
) -> (f32[n, c], nn.BatchStats[f32, c]) {
  if train { nn.batch_norm(l, seen, x, keep = 0.9) } else { (nn.batch_norm_seen(l, seen, x), seen) }
}
fn drop(rate: f32, x: f32[n], train: bool) -> f32[n] {
  let thinned = nn.dropout(x, rate)
  if train { thinned } else { x }
}
fn norm(c: dim) -> nn.Norm[f32, c] = nn.init_norm(c, gain = f32(1))
fn fresh(c: dim) -> nn.BatchStats[f32, c] = nn.init_batch_stats(c, f32(1))
record Part { w: f32[2], times: i32, on: bool, name: str }
fn repeated(p: Part, x: f32[2]) -> f32[2] = if p.on { x * p.w * f32(p.times) } else { x }
fn part() -> Part = Part(w = normal(2), times = 3, on = true, name = "drawn")
fn no_next(w: f32[2], stats: f32[2], x: f32[2]) -> f32[2] = w * x + stats
""")


BATCHES = np.random.default_rng(0).normal(2.0, 3.0, (3, 16, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)


def norms(m: Any) -> tuple[Any, Any, Any]:
    ours = bridge.nnx(m.layer, params="l", state="seen", training="train")(m.norm(4), m.fresh(4))
    theirs = nnx.BatchNorm(4, momentum=0.9, epsilon=1e-5, rngs=nnx.Rngs(0))
    other = bridge.linen(m.layer, params="l", state="seen")(m.norm(4), m.fresh(4))
    return ours, theirs, other


def test_batch_norm_is_that_of_flax(m: Any) -> None:
    ours, theirs, other = norms(m)
    variables = other.init(jax.random.key(0), BATCHES[0], train=True)

    @nnx.jit
    def slope(net: Any, x: Any) -> Any:
        return nnx.value_and_grad(lambda net: jnp.sum(WEIGHTS * net(x) ** 2))(net)

    for x in BATCHES:
        (mine, g), (pure, h) = slope(ours, x), slope(theirs, x)
        np.testing.assert_allclose(mine, pure, rtol=1e-5)
        np.testing.assert_allclose(g["record"]["scale"].get_value(), h["scale"].get_value(), rtol=2e-4)
        np.testing.assert_allclose(g["record"]["shift"].get_value(), h["bias"].get_value(), rtol=2e-4)
        _, after = other.apply(variables, x, train=True, mutable=["batch_stats"])
        variables = {**variables, **after}
    seen = {"mean": theirs.mean.get_value(), "variance": theirs.var.get_value()}
    for name, wanted in seen.items():
        np.testing.assert_allclose(ours.state[name].get_value(), wanted, rtol=1e-5)
        np.testing.assert_allclose(variables["batch_stats"]["seen"][name], wanted, rtol=1e-5)
    ours.eval(), theirs.eval()
    wanted = theirs(BATCHES[0])
    np.testing.assert_allclose(ours(BATCHES[0]), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other.apply(variables, BATCHES[0], train=False), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.state["mean"].get_value(), seen["mean"], rtol=1e-5)
    np.testing.assert_allclose(ours(BATCHES[0], train=False), wanted, rtol=1e-4, atol=1e-5)
    ours.train()
    assert not np.allclose(ours(BATCHES[0]), wanted, atol=1e-3)


def test_the_initializers_of_flax_give_a_record(m: Any) -> None:
    both = nnx.initializers.lecun_normal(), nnx.initializers.zeros
    dense = difflang.loads("""
record Dense[i, o] { w: f32[i, o], b: f32[o] }
fn dense(m: Dense[i, o], x: f32[n, i]) -> f32[n, o] = x @ m.w + m.b
""")
    init = lambda key: dense.Dense(w=both[0](key, (4, 2)), b=both[1](key, (2,)))
    net = bridge.nnx(dense.dense, params="m")(init, rngs=nnx.Rngs(params=3))
    pure = nnx.Linear(
        4, 2, kernel_init=lambda key, shape, dtype: both[0](nnx.Rngs(params=3).params(), shape, dtype), rngs=nnx.Rngs(0)
    )
    np.testing.assert_allclose(net(BATCHES[0]), pure(BATCHES[0]), rtol=1e-5, atol=1e-6)
    over = bridge.linen(dense.dense, params="m")(init)
    assert set(over.init(jax.random.key(0), BATCHES[0])["params"]["record"]) == {"w", "b"}


def test_dropout_is_that_of_flax_but_for_what_falls_out(m: Any) -> None:
    x = np.arange(1.0, 1001.0, dtype=np.float32)
    Drop = bridge.nnx(m.drop, params="rate", stream="dropout", training="train")
    ours, again = (Drop(np.float32(0.25), rngs=nnx.Rngs(dropout=5)) for _ in range(2))
    theirs = nnx.Dropout(0.25, rngs=nnx.Rngs(dropout=5))
    first = np.asarray(ours(x))
    for y in (first, np.asarray(theirs(x))):
        np.testing.assert_allclose(y[y != 0], x[y != 0] / 0.75, rtol=1e-6)
        assert 0.2 < np.mean(y == 0) < 0.3
    np.testing.assert_array_equal(first, again(x))
    assert not np.array_equal(first, ours(x)), "each call draws anew"
    ours.eval(), theirs.eval()
    np.testing.assert_array_equal(ours(x), theirs(x))


def test_what_has_no_derivative_is_no_parameter(m: Any) -> None:
    x, given = np.ones(2, np.float32), m.Part(w=np.ones(2, np.float32), times=np.int32(3), on=np.bool_(True), name="p")
    for initial in (given, {"w": given.w, "times": given.times, "on": given.on, "name": "p"}):
        net = bridge.nnx(m.repeated, params="p")(initial)
        assert len(jax.tree.leaves(nnx.state(net, nnx.Param))) == 1
        g = nnx.grad(lambda net: net(x).sum())(net)
        np.testing.assert_array_equal(g["record"]["w"].get_value(), [3.0, 3.0])
        other = bridge.linen(m.repeated, params="p")(initial)
        variables = other.init(jax.random.key(0), x)
        assert set(variables["params"]["record"]) == {"w"} and set(variables["fixed"]["record"]) == {"times", "on"}
        g = jax.grad(lambda p, net=other, v=variables: net.apply({**v, "params": p}, x).sum())(variables["params"])
        np.testing.assert_array_equal(g["record"]["w"], [3.0, 3.0])
    drawn = bridge.linen(m.repeated, params="p")(m.part)
    variables = drawn.init(jax.random.key(0), x)
    assert variables["fixed"]["record"]["times"] == 3
    np.testing.assert_allclose(drawn.apply(variables, x), 3 * variables["params"]["record"]["w"], rtol=1e-6)


def test_modules_are_taken_apart_and_made_in_lanes(m: Any) -> None:
    x = np.ones(2, np.float32)
    Net = bridge.nnx(m.repeated, params="p")
    net = Net(m.part, rngs=nnx.Rngs(0))
    graph, state = nnx.split(net)
    np.testing.assert_array_equal(nnx.merge(graph, state)(x), net(x))
    assert nnx.split(Net(m.part, rngs=nnx.Rngs(1)))[0] == graph, "what differs is in the state alone"


def test_what_a_module_is_made_of_is_looked_at(m: Any) -> None:
    refused = pytest.raises(difflang.ArgumentError, match="starts from a state")
    with refused:
        bridge.nnx(m.layer, params="l", state="seen", training="train")(m.norm(4))
    with pytest.raises(difflang.ArgumentError, match="starts from a state"):
        bridge.linen(m.layer, params="l", state="seen")(m.norm(4)).init(jax.random.key(0), BATCHES[0], True)
    with pytest.raises(difflang.ArgumentError, match="has no state"):
        bridge.nnx(m.repeated, params="p")(m.part(), np.ones(2))
    with pytest.raises(difflang.ArgumentError, match="draws random numbers needs `rngs`"):
        bridge.nnx(m.drop, params="rate", stream="dropout", training="train")(np.float32(0.1))
    with pytest.raises(difflang.ArgumentError, match="no parameter `trian`"):
        bridge.nnx(m.drop, params="rate", training="trian")
    two = np.ones(2, np.float32)
    for net in (bridge.nnx(m.no_next, params="w", state="stats")(two, two),):
        with pytest.raises(difflang.ArgumentError, match="does not return its result and the next `stats`"):
            net(two)
    other = bridge.linen(m.no_next, params="w", state="stats")(two, two)
    with pytest.raises(difflang.ArgumentError, match="does not return its result and the next `stats`"):
        other.init(jax.random.key(0), two)


def test_a_linen_module_keeps_its_place_in_others(m: Any) -> None:
    class Pair(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            Layer = bridge.linen(m.repeated, params="p")
            return Layer(m.part, name="a")(x) + Layer(m.part, name="b")(x)

    variables = Pair().init(jax.random.key(0), np.ones(2, np.float32))
    assert set(variables["params"]) == {"a", "b"} == set(variables["fixed"])
    a, b = (variables["params"][k]["record"]["w"] for k in "ab")
    np.testing.assert_allclose(Pair().apply(variables, np.ones(2, np.float32)), 3 * (a + b), rtol=1e-6)
