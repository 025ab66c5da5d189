"""Functions as modules of flax: the same loss curve plain, in nnx and in linen, alone and nested."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import difflang
from difflang.bridge import flax as bridge

STEPS = 20


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads("""
record Layer[i, o] { w: f32[i, o], b: f32[o] }
record Net[i, h, o] { first: Layer[i, h], last: Layer[h, o], name: str }
record Stats[d] { mean: f32[d], count: f32 }
fn score(m: Net[i, h, o], x: f32[n, i]) -> f32[n, o] = tanh(x @ m.first.w + m.first.b) @ m.last.w + m.last.b
fn loss(m: Net[i, h, o], x: f32[n, i], y: f32[n, o]) -> f32 = mean((score(m, x) - y)^2)
fn layer(i: dim, o: dim) -> Layer[i, o] = Layer(w = normal(i, o), b = zeros(o))
fn start() -> Net[3, 4, 2] = Net(first = layer(3, 4), last = layer(4, 2), name = "small")
fn centred(w: f32[d], stats: Stats[d], x: f32[n, d]) -> (f32[n, d], Stats[d]) {
  let seen = 0.9 * stats.mean + 0.1 * mean(x, axis = 0)
  (w * (x - seen), Stats(mean = seen, count = stats.count + 1))
}
fn noisy(w: f32[d], x: f32[d]) -> f32[d] = w * x + normal(d)
""")


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    a, b = jax.random.split(jax.random.key(1))
    return np.asarray(jax.random.normal(a, (8, 3))), np.asarray(jax.random.normal(b, (8, 2)))


@pytest.fixture(scope="module")
def curve(m: Any, data: Any) -> list[float]:
    """The losses of plain training, with the function's own gradient."""
    optimizer, found = optax.adam(0.05), list[float]()
    first = m.start(key=0)
    params = {"first": first.first, "last": first.last, "name": ""}
    moving = {k: params[k] for k in ("first", "last")}
    slope = jax.jit(lambda p: m.loss.value_and_grad("m.first", "m.last")({**p, "name": ""}, *data))
    state = optimizer.init(moving)
    for _ in range(STEPS):
        value, g = slope(moving)
        updates, state = optimizer.update({"first": g.first, "last": g.last}, state, moving)
        moving = optax.apply_updates(moving, updates)
        found.append(float(value))
    return found


def test_nnx_has_the_same_curve(m: Any, data: Any, curve: list[float]) -> None:
    x, y = data
    net = bridge.nnx(m.score, params="m")(m.start(key=0))
    optimizer = nnx.Optimizer(net, optax.adam(0.05), wrt=nnx.Param)

    @nnx.jit
    def step(net: Any, optimizer: Any) -> Any:
        value, g = nnx.value_and_grad(lambda net: jnp.mean((net(x) - y) ** 2))(net)
        optimizer.update(net, g)
        return value

    np.testing.assert_allclose([step(net, optimizer) for _ in range(STEPS)], curve, rtol=1e-6)
    assert set(nnx.to_pure_dict(nnx.state(net, nnx.Param))["record"]) == {"first", "last"}


def test_linen_has_the_same_curve(m: Any, data: Any, curve: list[float]) -> None:
    x, y = data
    net = bridge.linen(m.score, params="m")(m.start(key=0))
    optimizer = optax.adam(0.05)

    @jax.jit
    def step(variables: Any, state: Any) -> Any:
        value, g = jax.value_and_grad(lambda v: jnp.mean((net.apply(v, x) - y) ** 2))(variables)
        updates, state = optimizer.update(g, state)
        return optax.apply_updates(variables, updates), state, value

    variables = net.init(jax.random.key(0), x)
    state, found = optimizer.init(variables), []
    for _ in range(STEPS):
        variables, state, value = step(variables, state)
        found.append(float(value))
    np.testing.assert_allclose(found, curve, rtol=1e-6)


def test_they_nest(m: Any, data: Any) -> None:
    x, _ = data
    first = m.start(key=0)
    wanted = m.score(first, x)
    Net, Linen = bridge.nnx(m.score, params="m"), bridge.linen(m.score, params="m")
    chain = nnx.Sequential(Net(first), nnx.Linear(2, 1, rngs=nnx.Rngs(0)))
    assert chain(x).shape == (8, 1) and len(jax.tree.leaves(nnx.state(chain, nnx.Param))) == 6
    chain = linen.Sequential([Linen(first), linen.Dense(1)])
    variables = chain.init(jax.random.key(0), x)
    assert chain.apply(variables, x).shape == (8, 1)
    assert set(variables["params"]["layers_0"]["record"]) == {"first", "last"}
    over = nnx.bridge.lazy_init(nnx.bridge.ToNNX(Linen(first), rngs=nnx.Rngs(0)), x)
    np.testing.assert_array_equal(over(x), wanted)
    under = nnx.bridge.to_linen(Net, first)
    np.testing.assert_array_equal(under.apply(under.init(jax.random.key(0), x), x), wanted)
    drawn = Linen(m.start)
    assert drawn.apply(drawn.init(jax.random.key(0), x), x).shape == (8, 2)


def test_state_is_kept_in_batch_statistics(m: Any) -> None:
    w, x = np.ones(2, np.float32), np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    stats = m.Stats(mean=np.zeros(2, np.float32), count=np.float32(0))
    net = bridge.nnx(m.centred, params="w", state="stats")(w, stats)
    nnx.jit(lambda net: net(x))(net)
    np.testing.assert_allclose(net.state["mean"].get_value(), [0.2, 0.3], rtol=1e-6)
    assert len(jax.tree.leaves(nnx.state(net, nnx.BatchStat))) == 2
    other = bridge.linen(m.centred, params="w", state="stats")(w, stats)
    variables = other.init(jax.random.key(0), x)
    assert variables["batch_stats"]["stats"]["count"] == 0
    _, after = other.apply(variables, x, mutable=["batch_stats"])
    np.testing.assert_allclose(after["batch_stats"]["stats"]["mean"], [0.2, 0.3], rtol=1e-6)


def test_what_draws_has_a_stream(m: Any) -> None:
    w = np.ones(2, np.float32)
    net = bridge.nnx(m.noisy, params="w", stream="noise")(w, rngs=nnx.Rngs(noise=3))
    first, second = nnx.jit(lambda net: (net(w), net(w)))(net)
    assert not np.array_equal(first, second)
    other = bridge.linen(m.noisy, params="w", stream="noise")(w)
    a, b = (other.apply({"params": {"record": {"value": w}}}, w, rngs={"noise": jax.random.key(k)}) for k in (0, 1))
    assert not np.array_equal(a, b)


def test_a_parameter_that_is_not_there(m: Any) -> None:
    for make in (bridge.nnx, bridge.linen):
        with pytest.raises(difflang.ArgumentError, match="has no parameter `parms`"):
            make(m.score, params="parms")
    net = bridge.nnx(m.score, params="m")
    with pytest.raises(difflang.ArgumentError, match="needs `rngs`"):
        net(m.start)
    with pytest.raises(difflang.ArgumentError, match="takes 1 argument, not 2"):
        net(m.start(key=0))(1.0, 2.0)
