"""Programs with axes of a mesh in their types on four devices: as on one, and laid out as they say."""

from __future__ import annotations

import re
from itertools import permutations, product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from click.testing import CliRunner
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import difflang
from difflang.cli import main
from difflang.host.data.numpy_files import ArrayInFile
from difflang.ops.arrays.resplit import resplit

P = PartitionSpec
MESHES = {
    "auto": lambda: jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2),
    "explicit": lambda: jax.make_mesh((2, 2), ("data", "model")),
    "sizes": lambda: {"data": 2, "model": 2},
    "one axis": lambda: {"data": 4},
}
SOURCE = """float f64
axes data, model
record Net[d, h] { w: f64[d, h @model], v: f64[h @model] }
fn hidden(w: f64[d, h @model], x: f64[n @data, d]) -> f64[n @data, h @model] = tanh(x @ w)
fn loss(net: Net[d, h], x: f64[n @data, d], y: f64[n @data]) -> f64 {
  let s = hidden(net.w, x) @ net.v
  mean((s - y)^2)
}
fn gathered(w: f64[d @data, d], x: f64[n @data, d]) -> f64 {
  var z = x
  let whole = reshard(w, _, _)
  for _ in 0..3 { z = tanh(z @ whole) }
  sum(z^2)
}
fn turned(x: f64[n @data, d @model]) -> f64[n @model, d @data] = 2.0 * reshard(x, @model, @data)
fn root(a: f64[n @data]) -> f64[n @data] {
  var y = a
  while max(abs(y * y - a)) > 1e-9 { y = 0.5 * (y + a / y) }
  y
}
fn heat(rod: f64[n @data]) -> f64 {
  var t = rod
  for _ in 0..5 { t[1..n - 1] += 0.2 * (t[2..] - 2.0 * t[1..n - 1] + t[..n - 2]) }
  sum(t * t)
}
fn sheet(t: f64[n @data, m @model]) -> f64 {
  var u = t
  for _ in 0..3 {
    u[1..n - 1, 1..m - 1] += 0.1 * (u[2.., 1..m - 1] + u[..n - 2, 1..m - 1] - 4.0 * u[1..n - 1, 1..m - 1])
    let p = pad(u, (1, 1), (1, 1), 0.5)
    u = 0.3 * (p[2.., 1..m + 1] + p[1..n + 1, ..m]) + 0.2 * roll(u, 3)
  }
  sum(u * u)
}
@memory(32 KiB)
fn cooled(rod: f64[n @(data, model)]) -> f64 = heat(reshard(rod, @data))
fn newton(a: f64, at: f64[2]) -> f64 {
  assert a < 30.0, "no root of {a}"
  var y = at[0]
  while abs(y * y - a) > 1e-9 * at[1] { y = 0.5 * (y + a / y) }
  y
}
fn each_root(a: f64[n @data], at: f64[2 @model]) -> f64[n @data] {
  var t = a
  for _ in 0..2 { t = [for x in t => 1.0 + newton(x, at)] }
  t
}
fn all_roots(a: f64[n @(data, model)], at: f64[2]) -> f64 = sum(vmap(|x| newton(x, at))(a))
fn recurrent(w: f64[d, d], x: f64[n @data, t, d]) -> f64 {
  var s = zeros(n, d)
  var i = 0
  while i < 2 * t and max(s) < 9.0 {
    s = tanh(s @ w + x[.., i % t] @ w) + 0.1 * mean(s) * w[0]
    for j in 0..i { s = sin(s @ (0.3 * w)) }
    i += 1
  }
  sum(s)
}
fn heads(x: f64[n @data, d], q: f64[d, h @model], k: f64[d, h @model]) -> f64 = sum(tanh(x @ q) * tanh(x @ k))
fn blurred(k: f64[3, 4, c], x: f64[n, h @data, 4]) -> f64 = sum(tanh(conv1d(x, k, padding = "same"))^2)
fn filtered(k: f64[3, 4, c @model], x: f64[n, h @data, 4]) -> f64 = sum(tanh(conv1d(x, k, padding = "same"))^2)
fn climb(a: f64, k: i32) -> f64 {
  var y = a
  while y < 9.0 {
    var z = [y, 1.0]
    for j in 0..4 { z[(2 * j + k) % 2] = 0.4 * [0.3, y][j % 2] }
    y += sum(z)
  }
  y
}
fn climbs(a: f64[n @data], k: i32) -> f64 = sum([for i => climb(a[i], k)]^2)
fn slopes(a: f64[n @(data, model)], at: f64[2]) -> f64 = sum(grad(all_roots)(a, at)^2)
fn pairs(a: f64[n @data, 2 @model]) -> f64 = sum([for x in a => newton(1.0 + x[0] * x[0], x + 2.0)])
fn noise(n: dim) -> f64[n @data] = normal(n)
fn orbit(x: f64, y: f64, z: f64) -> f64 {
  var total = [x, z]
  for v in [[x, 0.5], total, [z, y]] @ [1.0, x] {
    var u = y
    while u^2 < 1.1 {
      total[0] = tanh(total[1] * v)
      u = 1.1 * u + 0.2
    }
  }
  sum(total)
}
fn perhaps(a: f64[n @data], k: i32) -> f64 {
  var y = a
  if k > 2 {
    while max(y) > 0.5 { y = 0.8 * sin(roll(y, 1)) }
    for _ in 0..k { y += mean(y) * y }
  }
  sum(y * y)
}
fn orbits(x: f64[n @(model, data)], y: f64[n @(data, model)], z: f64[n @data]) -> f64 =
  sum(for i => orbit(x[i], y[i], z[i]))
"""
NET = {"w": np.linspace(-1, 1, 12).reshape(3, 4), "v": np.linspace(1, 2, 4)}
X, Y = np.linspace(-2, 2, 24).reshape(8, 3), np.linspace(0, 1, 8)
SQUARE = np.linspace(-1, 1, 16).reshape(4, 4)
KERNEL, IMAGES = np.linspace(-1, 1, 48).reshape(3, 4, 4), np.sin(np.arange(64)).reshape(2, 8, 4)
CALLS: dict[str, tuple[Any, ...]] = {
    "loss": (NET, X, Y), "hidden": (NET["w"], X), "gathered": (SQUARE, np.linspace(-2, 2, 32).reshape(8, 4)),
    "each_root": (1.0 + Y, np.ones(2)), "all_roots": (1.0 + Y, np.ones(2)),
    "pairs": (X[:, :2] / 2,), "turned": (SQUARE,), "root": (1.0 + Y,), "heat": (Y,), "sheet": (SQUARE,), "cooled": (Y,),
    "recurrent": (np.linspace(-1, 1, 9).reshape(3, 3), np.stack([X, X / 2], 1)),
    "heads": (X, NET["w"], NET["w"] / 2), "climbs": (Y, 2), "orbits": (Y, Y + 0.1, 1.0 - Y),
    "perhaps": (Y, 3), "blurred": (KERNEL, IMAGES), "filtered": (KERNEL, IMAGES),
}  # fmt: skip
ONE = difflang.loads(SOURCE)


def close(got: Any, want: Any) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), jax.block_until_ready(got), want
    )


@pytest.mark.parametrize("kind", MESHES)
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_those_of_one_device(kind: str, name: str) -> None:
    f, g, arguments = difflang.loads(SOURCE, mesh=MESHES[kind]())[name], ONE[name], CALLS[name]
    close(f(*arguments), g(*arguments))
    close(f.jvp()(*arguments, arguments[0])[1], g.jvp()(*arguments, arguments[0])[1])
    if np.ndim(g(*arguments)) == 0:
        close(f.grad()(*arguments), g.grad()(*arguments))


def test_shares_of_a_convolution_of_16_bit_floats_are_added_before_they_are_rounded() -> None:
    """Each device finds two or three times 2^16, which no f16 holds; their sum is 0."""
    source = """axes data
    fn filtered(x: f16[n, h, c @data], k: f16[3, c @data, o]) -> f16[n, h, o] = conv1d(x, k, padding = "same")
    """
    x, k = np.full((1, 4, 2), 256, np.float16), np.full((3, 2, 1), 256, np.float16)
    k[:, 1] *= -1
    found = difflang.loads(source, mesh={"data": 2}).filtered(x, k)
    np.testing.assert_array_equal(found, np.zeros((1, 4, 1), np.float16))


def test_devices_run_instances_by_themselves() -> None:
    """Each for as many steps as those that lie there take; what is sent is one number, whether a check failed."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    with jax.enable_x64(True):
        a = jax.device_put(1.0 + Y, NamedSharding(mesh, P("data")))
        text: Any = jax.jit(ONE.all_roots.grad()).lower(a, np.ones(2)).compile().as_text()
    assert text.count(" while(") >= 2
    assert re.findall(r" (all-\w+|collective-\w+)\(", text) == ["all-reduce"]


def test_devices_read_histories_of_their_own_instances() -> None:
    """Also where the gradient of a result comes from outside of the instances."""
    f = difflang.loads(
        SOURCE.replace("= sum(vmap(|x| newton(x, at))(a))", "= sum(vmap(|x| newton(x, at))(a)^2)")
    ).all_roots
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    with jax.enable_x64(True):
        a = jax.device_put(1.0 + Y, NamedSharding(mesh, P("data")))
        gradient: Any = jax.jit(f.grad()).lower(a, np.ones(2)).compile()
        close(gradient(a, np.ones(2)), f.grad()(1.0 + Y, np.ones(2)))
    assert re.findall(r" (all-\w+|collective-\w+)\(", gradient.as_text()) == ["all-reduce"]


def test_second_derivatives_read_the_histories_of_instances() -> None:
    f, g = difflang.loads(SOURCE, mesh={"data": 4}).slopes, ONE.slopes
    close(f.grad()(1.0 + Y, np.ones(2)), g.grad()(1.0 + Y, np.ones(2)))


def test_a_check_in_an_instance_that_one_device_runs() -> None:
    with pytest.raises(difflang.DifflangError, match="no root of 31"):
        difflang.loads(SOURCE, mesh={"data": 4}).all_roots(np.array([1.0, 1, 1, 1, 31, 1, 1, 1]), np.ones(2))


def test_an_array_gets_from_any_split_to_any_other() -> None:
    names = [p for count in range(3) for p in permutations(("data", "model"), count)]
    splits = sorted({(along[:k], along[k:]) for along in names for k in range(len(along) + 1)})
    mesh: Any = MESHES["auto"]()
    x = np.arange(64.0).reshape(8, 8)

    def run(x: Any) -> list[Any]:
        return [resplit.lower(jax, x, given=a, wanted=b) for a, b in product(splits, splits)]

    places = [NamedSharding(mesh, P(*[along or None for along in b])) for _, b in product(splits, splits)]
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        found = jax.block_until_ready(jax.jit(run, out_shardings=places)(x))
    assert len(found) == 121
    for y in found:
        np.testing.assert_array_equal(y, x)


def spec(array: Any) -> PartitionSpec:
    return jax.block_until_ready(array).sharding.spec


def test_results_and_gradients_are_laid_out_as_types_say() -> None:
    m = difflang.loads(SOURCE, mesh=MESHES["auto"]())
    assert spec(m.hidden(NET["w"], X)) == P("data", "model")
    assert spec(m.turned(SQUARE)) == P("model", "data")
    slope = m.loss.grad()(NET, X, Y)
    assert (spec(slope["w"]), spec(slope["v"])) == (P(None, "model"), P("model"))
    assert spec(m.gathered.grad("w")(SQUARE, SQUARE)) == P("data", None)
    assert spec(m.cooled.grad()(Y)) == P(("data", "model"))
    close(m.noise(8, key=0), ONE.noise(8, key=0))


def test_the_mesh_of_the_arrays() -> None:
    mesh: Any = MESHES["auto"]()

    def put(x: Any) -> jax.Array:
        with jax.enable_x64(True):
            return jax.device_put(x, NamedSharding(mesh, P()))

    slope = ONE.loss.grad()(jax.tree.map(put, NET), put(X), put(Y))
    assert spec(slope["w"]) == P(None, "model")
    close(slope, ONE.loss.grad()(NET, X, Y))
    with pytest.raises(difflang.ShapeError, match="7 is not a multiple of 2, the size of `data`"):
        ONE.heat(put(Y[:7]))
    close(jax.jit(ONE.hidden)(put(NET["w"]), put(X)), ONE.hidden(NET["w"], X))
    inside = jax.shard_map(ONE.heat, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    close(inside(put(Y)), ONE.heat(Y))


def test_arrays_of_another_mesh_are_moved_to_that_of_the_program() -> None:
    """Another mesh of the same devices does not stand in for it, in names of axes or order of devices."""
    mesh = Mesh(np.array(jax.devices()[:4])[::-1].reshape(2, 2), ("data", "model"))
    other = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))
    m = difflang.loads(SOURCE, mesh=mesh)
    with jax.enable_x64(True):
        x = jax.device_put(SQUARE, NamedSharding(other, P("batch")))
    found = m.turned(x)
    assert spec(found) == P("model", "data") and found.sharding.mesh == mesh
    close(found, ONE.turned(SQUARE))
    close(m.gathered(x, SQUARE), ONE.gathered(SQUARE, SQUARE))


def test_arrays_that_are_split_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    source = 'axes data\nfn show(x: f64[n @data]) -> f64 {\n  print(x)\n  print("as {x}")\n  sum(x * x)\n}\n'
    printed: list[str] = []
    for module in (difflang.loads(source), difflang.loads(source, mesh={"data": 4})):
        close(module.show.grad()(Y[:4]), 2 * Y[:4])
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[1] != ""


def test_instances_that_print_are_run_one_after_the_other(capfd: pytest.CaptureFixture[str]) -> None:
    source = """axes data
fn up(x: f64[n @data]) -> f64 = sum([for a in x => {
  var y = a
  while y < 3.0 { y += a
    print("{y:.3f}") }
  y }])"""
    printed: list[str] = []
    for module in (difflang.loads(source), difflang.loads(source, mesh={"data": 4})):
        close(module.up.grad()(0.5 + Y[:4]), [6.0, 5.0, 4.0, 4.0])
        printed.append(capfd.readouterr().out)
    assert printed[0] == printed[1] != ""


@pytest.mark.parametrize(
    "wrong", [{"data": -2}, {"data": 0}, {"data": 2.0}, {"data": True}, "data=4", 4, [("data", 4)], {1: 2}]
)
def test_what_is_no_mesh(wrong: Any) -> None:
    with pytest.raises(difflang.DifflangError, match=r"DL1207.*`mesh` is no mesh of devices"):
        difflang.loads(SOURCE, mesh=wrong)


def test_a_size_that_the_mesh_does_not_divide() -> None:
    with pytest.raises(difflang.ShapeError, match=r"(?s)DL0603.*7 is not a multiple of 4.*called here"):
        difflang.loads(SOURCE, mesh={"data": 4}).heat(Y[:7])
    with pytest.raises(difflang.CheckError, match=r"(?s)DL0606.*`rows`"):
        difflang.loads(SOURCE, mesh={"rows": 4})
    with pytest.raises(difflang.LimitError, match=r"(?s)DL0601.*the mesh has 8 devices, but there are 4"):
        difflang.loads(SOURCE, mesh={"data": 8})


DEEP = """
axes data
fn step(w: f32[d, d], x: f32[n @data, d]) -> f32[n @data, d] = tanh(x @ w)
fn deep(w: f32[d, d], x: f32[n @data, d], steps: dim) -> f32 {
  var y = x
  for _ in 0..steps { y = step(w, y) }
  mean(y^2)
}
@memory(LIMIT KiB)
fn limited(w: f32[d, d], x: f32[n @data, d], steps: dim) -> f32 = deep(w, x, steps)
"""


def test_memory_and_costs_are_those_of_each_device() -> None:
    types = ("f32[8, 8]", "f32[512, 8]")
    one, four = [difflang.loads(DEEP.replace("LIMIT", "100"), mesh=mesh) for mesh in (None, {"data": 4})]
    whole, each = [m.deep.memory(*types, steps=20, wrt="w", compiled=True) for m in (one, four)]
    assert each.account.peak < 0.3 * whole.account.peak
    assert each.account.peak == pytest.approx(each.measured, rel=0.1)
    assert "on each device of data = 4" in str(each)
    whole, each = [m.deep.cost(*types, steps=20) for m in (one, four)]
    assert each.gradient.operations < 0.27 * whole.gradient.operations


def test_a_memory_limit_is_that_of_each_device() -> None:
    """One device needs 129 KiB at least, each of four 33."""
    w, x = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8) / 8, np.ones((512, 8), np.float32)
    four = difflang.loads(DEEP.replace("LIMIT", "120"), mesh={"data": 4})
    plan = four.limited.memory(w, x, steps=20, wrt="w").plan
    assert plan.choices and plan.account.peak <= 120 * 1024 < plan.unplanned.peak
    want = difflang.loads(DEEP.replace("LIMIT", "200")).deep.grad()(w, x, 20)
    np.testing.assert_allclose(jax.block_until_ready(four.limited.grad()(w, x, 20)), want, rtol=1e-4)
    for limit, mesh in (("120", None), ("16", {"data": 4})):
        with pytest.raises(difflang.LimitError, match=r"DL1012.*it needs at least"):
            difflang.loads(DEEP.replace("LIMIT", limit), mesh=mesh).limited.grad()(w, x, 20)


def test_a_run(tmp_path: Path) -> None:
    """What a program prints, its failed checks and its tests are those of one device."""
    program = """
let y: f64[8] = [for i in 0..8 => 1.0 + f64(i)]
print(heat(y), grad(heat)(y))
print(root(y))
fn shown(x: f64[n @data], i: i32) -> f64 {
  print("sum {sum(x):.3f}")
  x[i]
}
test "a step" { assert abs(heat(ones(8)) - 8.0) < 1e-9 }
print(shown(y, 2))
print(shown(y, 9))
"""
    file = tmp_path / "heat.dfl"
    file.write_text(SOURCE + program)
    one, many = [CliRunner().invoke(main, ["run", *words, str(file)]) for words in ([], ["--mesh", "data=4"])]
    assert many.output == one.output and "DL0902" in many.output and many.exit_code == one.exit_code == 3
    tested = CliRunner().invoke(main, ["test", "--mesh", "data=2,model=2", "-k", "step", str(file)])
    assert "1 passed" in tested.output, tested.output
    refused = CliRunner().invoke(main, ["check", "--mesh", "data=16", str(file)])
    assert "DL0603" in refused.output


def test_each_device_gets_its_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a field, of an array that is the argument of a call, and of one that is not declared to be split."""
    counts: list[int] = []
    read = ArrayInFile.read_elements
    monkeypatch.setattr(
        ArrayInFile, "read_elements", lambda self, start, count: counts.append(count) or read(self, start, count)
    )
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "net.npz", w=NET["w"], v=NET["v"])
    file = tmp_path / "read.dfl"
    program = """
let x: f64[n @data, d] = read_npy("x.npy")
let again: f64[n @data, d] = open_npy("x.npy")
let whole: f64[n, d] = read_npy("x.npy")
let net: Net[d, h] = load("net.npz")
print(sum(x - whole), sum(again - whole), "{loss(net, x, x[.., 0]):.6f}")
"""
    file.write_text(SOURCE + program)
    one, many = [CliRunner().invoke(main, ["run", *words, str(file)]) for words in ([], ["--mesh", "data=2,model=2"])]
    assert one.output == many.output and not one.exit_code, many.output
    # Halves of `v`, halves of `x` twice, of `w` twice all rows for a half of its columns, and `x` whole.
    assert sorted(counts[4:]) == [2] * 2 + [12] * 6 + [24]
    words = "run", "--mesh", "data=4", f"{file}:hidden", "--set", "w=zeros(3, 4)", "--arg", f"x=@{tmp_path}/x.npy"
    counts.clear()
    assert not CliRunner().invoke(main, words).exit_code and counts == [6] * 4
