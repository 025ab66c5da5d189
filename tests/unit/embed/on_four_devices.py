"""Arrays on several devices: values stay right and where they were, or an error says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import difflang
from difflang import ArgumentError
from difflang.bridge import train
from difflang.bridge.orbax import Checkpoints
from difflang.embed.derived_programs import EmbeddedProgram, PipelineHooks
from difflang.embed.jax_primitive import bind_program
from difflang.execution.engine import Engine
from difflang.ir.builder import build_region
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F32, Tensor
from difflang.lower.lowering_pipeline import finalize_graph
from support.language import ran

P = PartitionSpec
AUTO = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
EXPLICIT = jax.make_mesh((2, 2), ("data", "model"))
X = np.linspace(-1, 1, 16, dtype=np.float32)
ROWS = X.reshape(8, 2)


def put(array: Any, *spec: str | None, mesh: Any = AUTO) -> jax.Array:
    return jax.device_put(array, NamedSharding(mesh, P(*spec)))


def device_numbers(array: jax.Array) -> list[int]:
    return sorted(d.id for d in jax.block_until_ready(array).sharding.device_set)


def test_an_extremum_along_a_split_axis() -> None:
    m = difflang.loads("""
        fn total(x: f32[n]) -> f32 = logsumexp(x)
        fn weights(x: f32[n, d]) -> f32[n, d] = softmax(x, 0)
    """)
    np.testing.assert_allclose(jax.block_until_ready(m.total(put(X, "data"))), m.total(X), rtol=1e-6)
    slope = jax.block_until_ready(m.total.grad()(put(X, "data")))
    np.testing.assert_allclose(slope, m.total.grad()(X), rtol=1e-6)
    np.testing.assert_allclose(jax.block_until_ready(m.weights(put(ROWS, "data"))), m.weights(ROWS), rtol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_writes_at_as_many_places_as_a_mesh_does_not_divide(kind: AxisType, jitted: bool) -> None:
    """XLA's partitioner writes at the first place what it adds to the places, where a mesh has a second axis."""
    m = difflang.loads(
        """
fn marks(x: f32[n, m]) -> f32[n, m] {
  var z = zeros(n, m)
  for (i, r) in enumerate(x[1..]) { z[i, argmax(r)] += 1.0 }
  z
}
fn hot(x: f32[n, m]) -> f32 = sum([for r in x[1..] => r[argmax(r)]]^2)
fn best(x: f32[n, m]) -> f32 { let (found, _) = top_k(x, 3, axis = 1); sum(found^2) }
fn least(x: f32[n, m]) -> f32 = sum(sort(x[1..], axis = 1)[.., 0]^2)
fn highest(x: f32[n, m]) -> f32[m] { var y = x[0]; for r in x[1..] { y[argmax(r)] max= 2.0 * r[0] }; y }
""".replace("; ", "\n")
    )
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(kind,) * 2)
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    for f in (m.marks, m.highest, m.hot.grad(), m.best.grad(), m.least.grad()):
        for spec in (P("data"), P(None, "model"), P("data", "model"), P(("data", "model"))):
            given = jax.device_put(x, NamedSharding(mesh, spec))
            found = (jax.jit(f) if jitted else f)(given)
            np.testing.assert_allclose(jax.block_until_ready(found), f(x), rtol=1e-6)


def test_a_write_into_parts_of_several_sizes() -> None:
    """One write is done on every device by XLA's partitioner, also beyond the end of the last part."""
    m = difflang.loads(
        """
fn added(x: f32[n], i: i32[k], v: f32[k]) -> f32[n] { var y = x; for t in 0..k { y[i[t]] += v[t] }; y }
fn written(x: f32[n], i: i32[k], v: f32[k]) -> f32[n] { var y = x; for t in 0..k { y[i[t]] = v[t] }; y }
fn squares(x: f32[n], i: i32[k], v: f32[k]) -> f32 = sum(added(x, i, v)^2)
""".replace("; ", "\n")
    )
    for mesh, n in ((AUTO, 5), (jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2), 7)):
        x, i, v = X[:n], np.array([n - 1], np.int32), np.array([9], np.float32)
        for f in (m.added, m.written, m.squares.grad("x"), m.squares.grad("v")):
            split = NamedSharding(mesh, P("data"))
            found = jax.jit(lambda x, i, v: f(jax.lax.with_sharding_constraint(x, split), i, v))(x, i, v)  # noqa: B023
            np.testing.assert_allclose(jax.block_until_ready(found), f(x, i, v), rtol=1e-6)


def test_the_gradient_of_every_second_row() -> None:
    """XLA's partitioner writes what is padded between the rows of an array that is split to wrong places."""
    f = difflang.loads("axes data\nfn f(x: f32[6 @data, d]) -> f32[3, d] = x[0..6 by 2]").f
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    x, ct = put(ROWS[:6], None, mesh=mesh), put(1.0 + ROWS[:3], None, mesh=mesh)
    slope = np.asarray(jax.block_until_ready(jax.vjp(f, x)[1](ct)[0]))
    np.testing.assert_array_equal(slope[::2], ct)
    np.testing.assert_array_equal(slope[1::2], 0)


def test_an_array_put_on_another_device_stays_there() -> None:
    f = difflang.loads("fn f(x: f32[n]) -> f32 = sum(x^2)").f
    there = jax.device_put(X, jax.devices()[3])
    for _ in range(2):  # before and after it is compiled for the first device
        assert device_numbers(f(there)) == device_numbers(f.grad()(there)) == device_numbers(jax.jit(f)(there)) == [3]
        assert device_numbers(f(X)) == device_numbers(f.grad()(X)) == [0]
    assert float(f(there)) == float(f(X))


def test_the_default_device_is_that_of_the_call() -> None:
    f = difflang.loads("fn f(x: f32[n], a: f32) -> f32[n] = a * x").f
    for number in (2, None, 1, 2):
        with jax.default_device(None if number is None else jax.devices()[number]):
            for _ in range(12):  # after some calls the number stays on the device
                assert device_numbers(f(X, 2.0)) == device_numbers(f(jax.numpy.ones(3), 2.0)) == [number or 0]
            assert device_numbers(f(jax.numpy.ones(3), jax.numpy.float32(2))) == [number or 0]


def test_the_device_of_the_command_line() -> None:
    source = "fn f(x: f32[n]) -> f32[n] = tanh(x) + 1.0\nlet y = f(ones(100))\nlet z = f(y)\n"
    for name, number in (("cpu", 0), ("cpu:1", 1), ("cpu:3", 3)):
        values, _ = ran(source, Engine("xla", device=name))
        assert [device_numbers((values[n].leaves or ())[0]) for n in "yz"] == [[number]] * 2
    with pytest.raises(difflang.DifflangError, match=r"DL0601.*no device `cpu:4`"):
        ran(source, Engine("xla", device="cpu:4"))


def test_a_failed_check_elsewhere_has_its_details() -> None:
    f = difflang.loads("fn pick(x: f32[n], i: i32) -> f32 = x[i]").pick
    for x in (jax.device_put(X, jax.devices()[1]), put(X, "data")):
        with pytest.raises(difflang.IndexFailure, match="index 99 is out of range: `x` has 16 elements"):
            f(x, 99)
        assert float(f(x, 2)) == X[2]


def test_a_capacity_grows_elsewhere() -> None:
    f = difflang.loads("""
        fn f(x: f32) -> f32 {
          var s = x
          while s < 1000.0 { s = s * 1.0002 }
          s * x
        }
    """).f.grad()
    there = jax.device_put(np.float32(1), jax.devices()[1])
    assert device_numbers(f(there)) == [1]
    assert float(f(there)) == float(f(1.0))


@pytest.mark.parametrize("pair", [(1, 2), (1, "all"), ("all", 3)])
def test_arrays_on_different_devices(pair: tuple[Any, Any]) -> None:
    f = difflang.loads("fn f(w: f32[n], x: f32[n]) -> f32 = sum(w * x)").f
    w, x = [put(X, "data") if where == "all" else jax.device_put(X, jax.devices()[where]) for where in pair]
    for run in (f, f.grad(), jax.grad(f)):
        with pytest.raises(ArgumentError, match=r"DL0609.*`w` is on .*, but `x` is on"):
            run(w, x)


# ---- Meshes whose axes are explicit in types

LAYERS = difflang.loads("""
    fn score(w: f32[d, h], x: f32[n, d]) -> f32[n, h] = tanh(x @ w)
    fn loss(w: f32[d, h], x: f32[n, d]) -> f32 = sum(score(w, x)^2)
    fn add(x: f32[n], y: f32[n]) -> f32[n] = x + y
    fn products(x: f32[n, d]) -> f32[n, n] = x @ transpose(x)
    fn pick(x: f32[n], i: i32[m]) -> f32[m] = [for k => x[i[k]]]
    fn roots(a: f32[n]) -> f32[n] = [for i => {
        var x = 1.0 + a[i]
        while abs(x * x - a[i]) > 1e-5 * a[i] { x = 0.5 * (x + a[i] / x) }
        x
    }]
    fn steps(x: f32[n, d], w: f32[d, d]) -> (f32[n, d], i32) {
        var y = x
        var k = 0
        while k < 3 {
            y = tanh(y @ w)
            k += 1
        }
        (y, k)
    }
""")
W = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def explicit(array: Any, *spec: str | None) -> jax.Array:
    return put(array, *spec, mesh=EXPLICIT)


def type_of(array: jax.Array) -> str:
    return str(jax.typeof(jax.block_until_ready(array)))


def test_results_have_the_splits_of_arguments() -> None:
    x, w, row = explicit(ROWS, "data"), explicit(W, None, "model"), explicit(X, "data")
    with jax.set_mesh(EXPLICIT):
        assert type_of(LAYERS.score(w, x)) == type_of(jax.jit(LAYERS.score)(w, x)) == "float32[8@data,4@model]"
        assert type_of(LAYERS.loss(w, x)) == "float32[]"
        assert type_of(LAYERS.add(row, explicit(X))) == type_of(LAYERS.add(explicit(X), row)) == "float32[16@data]"
        assert type_of(LAYERS.pick(explicit(X), explicit(np.arange(4, dtype=np.int32), "model"))) == "float32[4@model]"
        assert type_of(LAYERS.pick(row, explicit(np.arange(4, dtype=np.int32)))) == "float32[4]"
        assert type_of(LAYERS.roots(row * row + 1)) == "float32[16@data]"
        y, k = LAYERS.steps(x, explicit(W[:, :2]))
        assert (type_of(y), type_of(k)) == ("float32[8@data,2]", "int32[]")
        y, k = LAYERS.steps(x, explicit(W[:, :2], "model"))  # y is whole after a step
        assert (type_of(y), int(k)) == ("float32[8@data,2]", 3)
        batch = jax.vmap(LAYERS.add, (0, None))(x, explicit(ROWS[0]))
        assert type_of(batch) == "float32[8@data,2]"
    np.testing.assert_allclose(LAYERS.score(w, x), np.tanh(ROWS @ W), rtol=1e-6)


def test_gradients_have_the_splits_of_arguments() -> None:
    x, w = explicit(ROWS, "data"), explicit(W, None, "model")
    with jax.set_mesh(EXPLICIT):
        for gradient in (
            LAYERS.loss.grad("w", "x"),
            jax.grad(LAYERS.loss, (0, 1)),
            jax.jit(jax.grad(LAYERS.loss, (0, 1))),
        ):
            dw, dx = jax.tree.leaves(gradient(w, x))
            assert (type_of(dw), type_of(dx)) == ("float32[2,4@model]", "float32[8@data,2]")
            for found, wanted in zip((dw, dx), jax.tree.leaves(LAYERS.loss.grad("w", "x")(W, ROWS)), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_jax_goes_on_with_results() -> None:
    """As with those of its own functions: it refuses what its types say is split otherwise."""
    x = explicit(ROWS, "data")
    with jax.set_mesh(EXPLICIT):
        y = LAYERS.score(W, x)
        assert type_of(jax.numpy.where(y > 0, y, jax.numpy.tanh(x @ W))) == "float32[8@data,4]"
        assert type_of(jax.lax.dynamic_update_slice(x @ W, y, (0, 0))) == "float32[8@data,4]"
        assert type_of(jax.numpy.einsum("nd,nd->n", y, y)) == "float32[8@data]"
        double = jax.shard_map(lambda y: 2 * y, in_specs=P("data"), out_specs=P("data"))
        assert type_of(double(y)) == "float32[8@data,4]"
        part = jax.shard_map(lambda y: LAYERS.score(W, y), in_specs=P("data"), out_specs=P("data"))
        np.testing.assert_array_equal(jax.block_until_ready(part(x)), y)


def test_nothing_is_made_whole_inside() -> None:
    with jax.set_mesh(EXPLICIT):
        text = jax.jit(LAYERS.score).lower(explicit(W, None, "model"), explicit(ROWS, "data")).compile().as_text()
    assert text and "all-gather" not in text


def test_what_is_split_in_two_ways_is_refused() -> None:
    along, across, x = explicit(X, "data"), explicit(X, "model"), explicit(ROWS, "data")
    with jax.set_mesh(EXPLICIT):
        for add in (LAYERS.add, jax.jit(LAYERS.add), LAYERS.add.vjp()):
            with pytest.raises(difflang.CheckError, match=r"(?s)DL0605.*`data` and along `model`.*x \+ y"):
                add(along, across)
        with pytest.raises(difflang.CheckError, match=r"(?s)DL0604.*along `data`.*x @ transpose\(x\)"):
            LAYERS.products(x)
        free = jax.sharding.auto_axes(LAYERS.products, out_sharding=P("data"))
        assert type_of(jax.jit(free)(x)) == "float32[8@data,8]"


# ---- Programs for arguments that are only described


def described(mesh: Any, shape: tuple[int, ...], *spec: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("abstract", [False, True])
def test_a_lowered_program_has_the_shardings_of_specs(axis_type: AxisType, abstract: bool) -> None:
    make = jax.sharding.AbstractMesh if abstract else jax.make_mesh
    mesh = make((2, 2), ("data", "model"), axis_types=(axis_type, axis_type))
    w, x = described(mesh, (2, 4), "data", "model"), described(mesh, (8, 2), "data")
    for lowered in (LAYERS.loss.lower(w, x), LAYERS.loss.grad("w").lower(w, x)):
        assert '[{"data"}, {"model"}]' in lowered.as_text()
        assert '[{"data"}, {}]' in lowered.as_text()
    batch = LAYERS.add.vmap((0, None)).lower(described(mesh, (6, 8), "model"), described(mesh, (8,)))
    assert '[{"model"}, {}]' in batch.as_text()
    assert '[{"data"}, {}]' in LAYERS.loss.lower(w, x, platform="tpu").as_text()
    if abstract:
        with pytest.raises(difflang.LimitError, match=r"DL0601.*abstract mesh has no devices"):
            LAYERS.loss.lower(w, x).compile()
    else:
        (found,) = LAYERS.loss.lower(w, x).compile()(put(W, "data", "model", mesh=mesh), put(ROWS, "data", mesh=mesh))
        np.testing.assert_allclose(jax.block_until_ready(found), LAYERS.loss(W, ROWS), rtol=1e-6)


def test_a_lowered_program_is_for_the_devices_of_arrays() -> None:
    assert '[{"data"}, {}]' in LAYERS.loss.lower(W, explicit(ROWS, "data")).as_text()
    third = jax.device_put(ROWS, jax.devices()[2])
    assert device_numbers(LAYERS.loss.lower(W, third).compile()(W, third)[0]) == [2]


def test_what_cannot_be_split_so_is_refused() -> None:
    w, x = described(AUTO, (2, 4)), described(AUTO, (8, 2), "data")
    with pytest.raises(difflang.ShapeError, match=r"DL0603.*`x` is f32\[6, 2\]: 6 is not a multiple of 4"):
        LAYERS.loss.lower(w, described(AUTO, (6, 2), "data"))
    with pytest.raises(ArgumentError, match=r"DL0609.*`w` is on 4 devices.*, but `x` is on a mesh with data = 2"):
        LAYERS.loss.lower(w, described(jax.sharding.AbstractMesh((2,), ("data",)), (8, 2)))
    with pytest.raises(difflang.CheckError, match=r"DL0801.*on several devices is not predicted"):
        LAYERS.loss.memory(w, x)
    assert str(LAYERS.loss.cost(w, x)) == str(LAYERS.loss.cost("f32[2, 4]", "f32[8, 2]"))
    says = difflang.loads("fn f(x: f32[n]) -> f32 { print(n)\n sum(x) }").f
    with pytest.raises(difflang.DifflangError, match="DL1221"):
        says.lower(described(AUTO, (8,), "data"), platform="tpu")


# ---- Training


@pytest.mark.parametrize("mesh", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_a_resumed_training_has_its_parameters_where_they_were(mesh: Any, tmp_path: Path) -> None:
    loss = difflang.loads("fn loss(w: f32[n], x: f32[n]) -> f32 = sum((w - x)^2)").loss
    start, batch = put(np.zeros_like(X), "data", mesh=mesh), (put(X, "data", mesh=mesh),)

    def fit(steps: int) -> jax.Array:
        path = tmp_path / "state.npz"
        found = train.fit(loss, start, lambda _: batch, optax.adam(0.1), steps=steps, checkpoint=path)
        return jax.block_until_ready(found.params)

    assert fit(2).sharding.spec == fit(4).sharding.spec == fit(4).sharding.spec == P("data")


def test_a_state_is_read_as_the_new_one_is_split(tmp_path: Path) -> None:
    """Whatever devices it was written from; orbax writes and reads its parts."""

    def state(count: int, *spec: str) -> dict[str, Any]:
        mesh = jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:count])
        with jax.enable_x64(True):
            return {"w": jax.device_put(np.arange(8.0) / 3, NamedSharding(mesh, P(*spec))), "n": np.int32(3)}

    states = Checkpoints(tmp_path / "states")
    states.save(1, state(4, "data"))
    for count, spec in ((4, ("data",)), (2, ("data",)), (2, ()), (1, ())):
        like = state(count, *spec)
        found = states.load(like)
        assert not spec or found["w"].sharding == like["w"].sharding
        np.testing.assert_array_equal(found["w"], np.arange(8.0) / 3, strict=False)
        assert found["w"].dtype == np.float64 and found["n"] == 3
    with pytest.raises(difflang.DataError, match=r"expected f32\[8\] for `w`, found f64\[8\]"):
        states.load({"w": state(4, "data")["w"].astype(np.float32), "n": np.int32(3)})
    states.close()


def test_a_convolution_with_gaps_along_a_split_axis() -> None:
    """XLA's partitioner ends the process at this one, if it may split it."""
    image, kernel = Tensor(F32, (1, 3, 4, 3, 2)), Tensor(F32, (2, 1, 2, 1, 2))
    attrs = {"strides": (1, 2, 1), "padding": ((0, 1), (1, 0), (0, 0)), "input_dilation": (1, 1, 1),
             "kernel_dilation": (1, 1, 2), "groups": 2}  # fmt: skip
    graph = build_region([image, kernel], lambda x, w: [OPS["conv"].one(x, w, **attrs)])
    hooks = PipelineHooks(finalize_graph, lambda site, text: None, lambda number: None)
    pulled = EmbeddedProgram(graph, hooks).pulled((True, True), (True,))
    (result,) = graph.results
    types = (image, kernel, result.type)
    x, w, ct = [np.cos(np.arange(np.prod(t.shape), dtype=np.float32)).reshape(t.shape) for t in types]
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    split = jax.device_put(x, NamedSharding(mesh, P(None, None, "data")))
    for found, wanted in zip(bind_program(pulled, [split, w, ct]), bind_program(pulled, [x, w, ct]), strict=True):
        np.testing.assert_allclose(jax.block_until_ready(found), wanted, rtol=1e-5, atol=1e-5)
