"""Functions written to a file and loaded again: they give what they gave, bit for bit, and so do their derivatives."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import difflang
import difflang.runtime

SOURCE = """
record Layer[d] { w: f32[d], b: f32 }
record Net[d] { first: Layer[d], steps: i32, name: str }
enum Shape { Circle(r: f32), Box(w: f32, h: f32) }
let table = [0.5, 1.5, 2.5]

fn score(m: Layer[d], x: f32[n, d]) -> f32[n] = tanh(x @ m.w + m.b)
fn loss(m: Layer[d], x: f32[n, d], y: f32[n]) -> f32 = mean((score(m, x) - y)^2)
fn deep(m: Net[d], x: f32[d]) -> f32 { assert m.steps > 0, "{m.name} takes {m.steps} steps"
  m.first.w @ x * f32(m.steps) }
fn same(m: Net[d]) -> (Net[d], i32) = (m, 3)
fn looked(x: f32[3], i: i32) -> f32 = x[i] * table[i]
fn powers(x: f64, n: dim) -> f64[n] = [for i in 0..n => x * f64(i)]
fn heron(a: f64) -> f64 {
  var x = a
  while abs(x * x - a) > 1e-12 { x = 0.5 * (x + a / x) }
  x
}
fn down(x: f64) -> f64 = if x < 1 { x } else { x + down(x - 1) }
fn area(s: Shape) -> f32 = match s { Circle(r) => pi * r^2, Box(w, h) => w * h }
fn rolled(s: Shape, by: f32) -> Shape = if area(s) > by { s } else { Box(by, by) }
fn layers(m: Layer[d][k], x: f32[d]) -> f32 = sum(for l in m => score(l, x[newaxis, ..])[0])
fn heads(m: Layer[d][k]) -> Layer[d][k] = reverse(m)
fn areas(s: Shape[n]) -> f32[n] = [for x in s => area(x)]
fn told(x: f64) -> (f64, str) = (x * x, "x is {x:.2f}")
fn draws(x: f32[3]) -> f32 = sum(x * normal(3))
fn waves(z: c128[n]) -> f64 = sum(abs(fft(z)))
fn halves(x: bf16[n], y: f16) -> bf16 = sum(x * x)
fn solved(a: f64[n, n], b: f64[n]) -> f64[n] = solve(a, b)
@memory(200 KiB)
fn long(x: f64[1000]) -> f64 {
  var y = x
  for _ in 0..1000 { y = sin(y) }
  sum(y)
}
fn by_default(x: f64, scale: f64 = 3.0, shift: f64 = 1.0) -> f64 = scale * x + shift
"""
M: Any = difflang.loads(SOURCE, name="artifacts")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 2)).astype(np.float32)
Y = np.ones(3, np.float32)
LAYER = M.Layer(w=np.array([0.5, -1.0], np.float32), b=np.float32(0.25))
LAYERS = M.Layer.stack([LAYER, LAYER, LAYER])
NET = M.Net(first=LAYER, steps=np.int32(2), name="ann")
A = RNG.standard_normal((3, 3))


@dataclass(frozen=True)
class Case:
    """A function at arguments, and in what it is differentiated if its result is one real number."""

    name: str
    args: tuple[Any, ...]
    wrt: Any = None
    key: Any = None


CASES = [
    Case("score", (LAYER, X)),
    Case("loss", (LAYER, X, Y), ("x", "m.w")),
    Case("deep", (NET, X[0]), "m"),
    Case("same", (NET,)),
    Case("looked", (Y, np.int32(2)), "x"),
    Case("powers", (1.5, 4)),
    Case("heron", (2.0,), 0),
    Case("down", (200.5,), 0),
    Case("area", (M.Box(np.float32(2.0), np.float32(3.0)),), "s"),
    Case("rolled", (M.Circle(np.float32(1.0)), np.float32(4.0))),
    Case("layers", (LAYERS, X[0]), "m"),
    Case("layers", ([LAYER, LAYER], X[0]), "x"),
    Case("heads", ([vars(LAYER), LAYER],)),
    Case("areas", ([M.Circle(np.float32(1.0)), M.Box(np.float32(2.0), np.float32(3.0))],)),
    Case("told", (1.25,)),
    Case("draws", (Y,), "x", np.array([1, 2], np.uint32)),
    Case("waves", (A[0] + 1j * A[1],), "z"),
    Case("halves", (Y.astype("bfloat16"), np.float16(1.0))),
    Case("solved", (A, A[0])),
    Case("long", (RNG.standard_normal(1000),), "x"),
    Case("by_default", (2.0,), "x"),
]


def artifact(folder: Path, f: Any, *specs: Any, **options: Any) -> Any:
    """A function through a file, without StableHLO unless it is asked for."""
    path = folder / "f.dflx"
    f.export(path, *specs, **{"platforms": (), **options})
    return difflang.runtime.load(path)


def described(value: Any) -> Any:
    """What must be the same of two values: classes by name, the fields, the bytes of arrays."""
    if hasattr(value, "__dataclass_fields__"):
        return type(value).__name__, [(n, described(getattr(value, n))) for n in value.__dataclass_fields__]
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    if isinstance(value, (str, dict)):
        return value
    array = np.asarray(value)
    return array.dtype.name, array.shape, array.tobytes()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_value_and_gradient_are_the_same_bits(case: Case, tmp_path: Path) -> None:
    f, key = M[case.name], {} if case.key is None else {"key": case.key}
    loaded = artifact(tmp_path, f, *case.args)
    assert described(loaded(*case.args, **key)) == described(f(*case.args, **key))
    if case.wrt is not None:
        found = loaded.value_and_grad(case.wrt)(*case.args, **key)
        assert described(found) == described(f.value_and_grad(case.wrt)(*case.args, **key))


OPERATORS = ["jvp", "hvp", "hessian", "jacobian", "jacfwd", "jacrev"]


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return artifact(tmp_path_factory.mktemp("loss"), M.loss, LAYER, X, Y)


@pytest.mark.parametrize(("operator", "wrt"), [(o, "m") for o in OPERATORS] + [("jacrev", "x"), ("hvp", "m.w")])
def test_every_operator_gives_what_the_original_gives(operator: str, wrt: str, loss: Any) -> None:
    args: tuple[Any, ...] = (LAYER, X, Y)
    if operator in ("jvp", "hvp"):
        args = (*args, {"m": LAYER, "m.w": LAYER.w, "x": X}[wrt])
    found, wanted = (getattr(f, operator)(wrt)(*args) for f in (loss, M.loss))
    assert described(found) == described(wanted)


def test_pullbacks_and_linear_maps(loss: Any) -> None:
    for wrt in (("x", "m"), "m.b"):
        value, pull = loss.vjp(wrt)(LAYER, X, Y)
        wanted, theirs = M.loss.vjp(wrt)(LAYER, X, Y)
        assert described(value) == described(wanted)
        assert described(pull(np.float32(2))) == described(theirs(np.float32(2)))
    moved = {"x": X, "w": LAYER.w}
    assert described(loss.linearize("x", "m.w")(LAYER, X, Y)[1](moved)) == described(
        M.loss.linearize("x", "m.w")(LAYER, X, Y)[1](moved)
    )


def test_derivatives_of_derivatives(loss: Any) -> None:
    found = loss.grad("m.w").jacfwd("x")(LAYER, X, Y)
    assert described(found) == described(M.loss.grad("m.w").jacfwd("x")(LAYER, X, Y))
    assert described(loss.grad("m.b").deriv("m.b")(LAYER, X, Y)) == described(
        M.loss.grad("m.b").deriv("m.b")(LAYER, X, Y)
    )


TRANSFORMED = {
    "jit": lambda f: jax.jit(f)(LAYER, X, Y),
    "grad": lambda f: jax.grad(f)(LAYER, X, Y),
    "vmap": lambda f: jax.jit(jax.vmap(f, in_axes=(None, None, 0)))(LAYER, X, np.stack([Y, Y + 1])),
    "hessian": lambda f: jax.hessian(f, argnums=1)(LAYER, X, Y),
    "jvp": lambda f: jax.jvp(lambda x: f(LAYER, x, Y), (X,), (X,)),
    "linearize": lambda f: jax.linearize(lambda x: f(LAYER, x, Y), X)[1](X),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(lambda x: f(LAYER, x, Y)))(X),
    "scan": lambda f: jax.lax.scan(lambda y, _: (y + f(LAYER, X, y), None), Y, None, length=3)[0],
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_it_is_a_part_of_programs_of_jax(name: str, loss: Any) -> None:
    assert described(jax.tree.leaves(TRANSFORMED[name](loss))) == described(jax.tree.leaves(TRANSFORMED[name](M.loss)))


def test_a_while_of_unknown_length_goes_through_jax(tmp_path: Path) -> None:
    heron = artifact(tmp_path, M.heron)
    with jax.enable_x64(True):
        assert float(jax.grad(heron)(2.0)) == pytest.approx(0.5 / 2.0**0.5, rel=1e-12)


def test_an_exported_derivative_is_a_function_too(tmp_path: Path) -> None:
    loaded = artifact(tmp_path, M.loss.grad("m"), LAYER, X, Y)
    assert described(loaded(LAYER, X, Y)) == described(M.loss.grad("m")(LAYER, X, Y))


def test_the_gradient_of_a_loaded_record_is_of_its_class(loss: Any) -> None:
    gradient = loss.grad("m")(LAYER, X, Y)
    assert type(gradient) is loss.classes["Layer"]
    assert jax.tree.structure(gradient) == jax.tree.structure(loss.classes["Layer"](LAYER.w, LAYER.b))


def test_variants_are_of_the_class_of_their_enum(tmp_path: Path) -> None:
    rolled = artifact(tmp_path, M.rolled, M.Circle(np.float32(1.0)), "f32")
    found = rolled(M.Circle(np.float32(1.0)), 4.0)
    assert type(found) is rolled.classes["Box"] and type(found).__mro__[1].__name__ == "Shape"
    inside = jax.jit(rolled)(M.Circle(np.float32(1.0)), 4.0)
    assert described(inside.known()) == described(found)


def test_signatures_documentation_and_interpretation(loss: Any) -> None:
    assert repr(loss) == "<difflang function loss(m: Layer, x: f32[3, 2], y: f32[3]) -> f32 from an artifact>"
    assert described(loss.interpret(LAYER, X, Y)) == described(M.loss.interpret(LAYER, X, Y))
    assert described(loss(y=Y, x=X, m={"w": LAYER.w, "b": 0.25})) == described(loss(LAYER, X, Y))


# ---- Failures


def reports(f: Any, *args: Any) -> str:
    with pytest.raises(difflang.DifflangError) as caught:
        f(*args)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_failing_checks_are_reported_as_by_the_original(tmp_path: Path) -> None:
    deep, looked = artifact(tmp_path, M.deep, NET, X[0]), artifact(tmp_path, M.looked, Y, np.int32(0))
    bad = M.Net(first=LAYER, steps=np.int32(0), name="ann")
    for f, original, args in [(deep, M.deep, (bad, X[0])), (looked, M.looked, (Y, 3)), (deep, M.deep, (bad, X[0]))]:
        wanted = reports(original, *args)
        assert "artifacts:" in wanted and "^" in wanted
        assert reports(f, *args) == wanted
        assert reports(f.interpret, *args) == wanted
        assert reports(f.grad(1 if f is deep else 0), *args) == wanted
    assert "ann takes 0 steps" in reports(deep.hessian("x"), bad, X[0])
    assert np.isnan(jax.jit(looked)(Y, 3))


def test_a_recursion_without_end_is_told(tmp_path: Path) -> None:
    endless = difflang.loads("fn f(x: f64) -> f64 = if x < 0 { x } else { 1 + f(x + 1) }").f
    assert reports(artifact(tmp_path, endless), 1.0) == reports(endless, 1.0)


def test_without_the_text_the_place_is_still_told(tmp_path: Path) -> None:
    looked = artifact(tmp_path, M.looked, Y, np.int32(0), source=False)
    said = reports(looked, Y, 3)
    assert "x[i]" not in said and "index 3 is out of range" in said
    assert next(line for line in said.splitlines() if "-->" in line) in reports(M.looked, Y, 3)
    assert b"x[i]" not in (tmp_path / "f.dflx").read_bytes()


# ---- What is refused


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((LAYER, X), "`loss` is missing `y`"),
        ((LAYER, X, Y, Y), "takes 3 arguments, not 4"),
        ((LAYER, X[:2], Y), "`x` is an f32[3, 2]"),
        ((LAYER, X.astype(np.float64), Y), "write `x.astype(np.float32)`"),
        (({"w": LAYER.w}, X, Y), "is missing the field `b`"),
        (({"w": LAYER.w, "b": 0.0, "c": 0}, X, Y), "has no field `c`"),
        ((3.0, X, Y), "`m` is Layer, but a float was given"),
        ((LAYER, "x", Y), "`x` is an f32[3, 2]"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(args: tuple[Any, ...], said: str, loss: Any) -> None:
    with pytest.raises(difflang.ArgumentError) as caught:
        loss(*args)
    assert said in str(caught.value)


def test_names_that_are_not_there(loss: Any) -> None:
    with pytest.raises(difflang.ArgumentError, match="has no parameter `xs`"):
        loss(LAYER, y=Y, xs=X)
    for wrt in ("w", "m.v", "x.y", 3, ("m", "m.w")):
        with pytest.raises(difflang.DifferentiationError, match="DL0403"):
            loss.grad(wrt)


def test_what_has_no_derivative(tmp_path: Path) -> None:
    score = artifact(tmp_path, M.score, LAYER, X)
    with pytest.raises(difflang.DifferentiationError, match="DL0402"):
        score.grad()
    with pytest.raises(difflang.DifferentiationError, match="DL0401"):
        artifact(tmp_path, M.looked, Y, np.int32(0)).grad("i")
    waves = artifact(tmp_path, M.waves, A[0] + 0j)
    with pytest.raises(difflang.CheckError, match="DL0801"):
        waves.jacobian()
    long = artifact(tmp_path, M.long)
    with pytest.raises(difflang.DifflangError, match="DL1014"):
        long.vjp()


def test_a_random_function_asks_for_its_key(tmp_path: Path) -> None:
    draws = artifact(tmp_path, M.draws)
    with pytest.raises(difflang.ArgumentError, match="DL1208"):
        draws(Y)
    assert described(draws(Y, key=jax.random.key(3))) == described(M.draws(Y, key=jax.random.key(3)))
    assert "key" in str(draws.__signature__)
    with pytest.raises(difflang.ArgumentError, match="draws no random numbers"):
        artifact(tmp_path, M.heron)(2.0, key=1)


def test_sizes_are_fixed(tmp_path: Path) -> None:
    powers = artifact(tmp_path, M.powers, "f64", 4)
    assert described(powers(1.5)) == described(powers(1.5, 4))
    with pytest.raises(difflang.ArgumentError, match="export the function for this value too"):
        powers(1.5, 5)
    with pytest.raises(difflang.ArgumentError, match="DL1210"):
        M.score.export(tmp_path / "none.dflx")
    assert not (tmp_path / "none.dflx").exists()


SYMBOLIC = """
record Net[d] { w: f32[d], b: f32 }
record Row { x: f32, k: f32 }
fn score(m: Net[d], x: f32[n, d]) -> f32[n] = [for i => tanh(x[i] @ m.w + m.b)]
fn loss(m: Net[d], x: f32[n, d], y: f32[n]) -> (f32, f32[n]) {
  let z = score(m, x)
  (mean((z - y)^2), z)
}
fn branch(x: f32[n]) -> f32 = if n > 3 { sum(x) } else { sum(x^2) }
fn steps(x: f32[n]) -> f32 {
  var s = 0.0
  for i in 1..n { s = 0.5 * s + x[i] - x[i - 1] }
  s / f32(n)
}
fn grown(x: f32[n], y: f32[m]) -> f32[n + m, 2] = [for a in concat(x, y) => [a, f32(n // 2)]]
fn noisy(x: f32[n]) -> f32[n] = x + normal(n)
fn asserted(x: f32[n]) -> f32 {
  assert n > 3, "{n} are too few"
  std(x)
}
fn rows(t: Row[n]) -> f32 = dot(t.x, t.k)
fn guarded(x: f32[n]) -> f32 {
  let k = n
  var s = 0.0
  for i in 0..2 { s += if n > 1 { if k > 3 { x[k - 4] * x[3] } else { x[1] } } else { x[0] } }
  s
}
fn third(x: f32[n]) -> f32 = x[2]
fn nearby(x: f32[n]) -> f32 {
  let small = x[0] < 9.0
  if n > 2 and small { x[2] } else if not (n < 2 or small) { x[1] } else { x[0] }
}
fn chosen(x: f32[n], how: str) -> f32 = if how == "sum" { sum(x) } else { max(x) }
fn even(x: f32[n]) -> f32 where n % 2 == 0 = sum(x)
fn halves(x: f32[2 * n]) -> f32[n] = x[..n]
"""
S: Any = difflang.loads(SYMBOLIC, name="symbolic")


def symbolic(folder: Path, f: Any, *sizes: str) -> Any:
    f.export(folder / "f.dflx", symbolic=sizes)
    return difflang.runtime.load(folder / "f.dflx")


def rows(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def symbolic_arguments(name: str, n: int) -> tuple[Any, ...]:
    net = S.Net(w=np.array([0.5, -1.0], np.float32), b=np.float32(0.25))
    known = {
        "score": (net, rows(n, 2)), "loss": (net, rows(n, 2), rows(n)), "grown": (rows(n), rows(3)),
        "rows": (S.Row(x=rows(n), k=rows(n)),),
    }  # fmt: skip
    return known.get(name, (rows(n),))


@pytest.mark.parametrize(
    "name", ["score", "loss", "branch", "guarded", "nearby", "steps", "grown", "noisy", "asserted", "rows"]
)
def test_one_artifact_serves_many_sizes(name: str, tmp_path: Path) -> None:
    """Bit for bit what the original gives, with its derivatives, and for any size."""
    f = getattr(S, name).bind(d=2) if name in ("score", "loss") else getattr(S, name)
    g = symbolic(tmp_path, f, *(["n", "m"] if name == "grown" else ["n"]))
    assert "f32[n" in repr(g) or name == "rows"
    for n in (1, 4, 5, 16):
        args, key = symbolic_arguments(name, n), {"key": np.array([0, 1], np.uint32)} if name == "noisy" else {}
        if name == "asserted" and n < 4:
            with pytest.raises(difflang.AssertionFailure, match="1 are too few"):
                g(*args)
            continue
        assert described(g(*args, **key)) == described(f(*args, **key))
        assert described(jax.jit(g)(*args, **key)) == described(jax.jit(f)(*args, **key))
        if name in ("branch", "guarded", "nearby", "steps", "loss"):
            wrt = "x" if name == "loss" else 0
            ours, theirs = g.value_and_grad(wrt)(*args), f.value_and_grad(wrt)(*args)
            assert described(ours) == described(theirs)


def test_symbolic_sizes_can_be_bound(tmp_path: Path) -> None:
    g = symbolic(tmp_path, S.steps, "n")
    assert str(g.bind(n=3)).startswith("<difflang function steps(x: f32[3]) -> f32")
    x = rows(3)
    assert described(g.bind(n=3).hessian()(x)) == described(S.steps.hessian()(x))
    value, pull = g.vjp()(x)
    assert described(value) == described(S.steps(x)) and pull(np.float32(1)).shape == (3,)
    with pytest.raises(difflang.DifflangError, match="a Jacobian needs numbers"):
        g.hessian()
    for wrong, said in [({"m": 3}, "no symbolic size `m`"), ({"n": -1}, "got -1 for the size `n`")]:
        with pytest.raises(difflang.ArgumentError, match=said):
            g.bind(**wrong)
    with pytest.raises(difflang.ArgumentError, match="cannot be called for n = 2"):
        symbolic(tmp_path, S.third, "n")(rows(2))
    with pytest.raises(difflang.ArgumentError, match="cannot be called for n = 0"):
        g(rows(0))
    with pytest.raises(difflang.ArgumentError, match="the arguments have other axes"):
        g(rows(3, 2))
    with pytest.raises(difflang.ArgumentError, match=r"`y` is an f32\[3\]"):
        symbolic(tmp_path, S.loss.bind(d=2), "n")(*symbolic_arguments("score", 3), rows(4))


def test_a_text_beside_symbolic_sizes_is_passed_by_name(tmp_path: Path) -> None:
    S.chosen.export(tmp_path / "f.dflx", symbolic="n", how="max")
    g = difflang.runtime.load(tmp_path / "f.dflx")
    for n in (1, 4):
        assert described(g(rows(n))) == described(g(rows(n), "max")) == described(S.chosen(rows(n), "max"))


@pytest.mark.parametrize(
    ("name", "sizes", "more", "said"),
    [
        ("even", ["n"], {}, "`n % 2 == 0` depends on symbolic sizes"),
        ("halves", ["n"], {}, "no axis of an argument of `halves` is `n` alone"),
        ("score", ["n"], {}, "bind its sizes"),
        ("steps", ["k"], {}, "has no size `k`"),
        ("steps", ["n"], {"platforms": ("cpu",)}, "StableHLO is for sizes that are numbers"),
        ("steps", ["n"], {"x": "f32[3]"}, "only bound sizes and named texts describe arguments"),
        ("chosen", ["n"], {}, r'the text of parameter `how` of `chosen` is not given(.|\n)*symbolic="n", how="…"'),
    ],
)
def test_sizes_that_cannot_be_symbolic(
    name: str, sizes: list[str], more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(difflang.DifflangError, match=said):
        getattr(S, name).export(tmp_path / "f.dflx", symbolic=sizes, **more)
    with pytest.raises(difflang.DifflangError, match="axes that no declaration names"):
        S.steps.vmap().export(tmp_path / "f.dflx", symbolic="n")


def test_constants_that_nothing_reads_are_not_in_the_file(tmp_path: Path) -> None:
    m = difflang.loads("""
record Net { w: f32[3], b: f32 }
record State { net: Net, mean: f32[3], count: i32 }
let s = State(net = Net(w = [1.0, 2.0, 3.0], b = 0.5), mean = zeros(3), count = 7)
fn score(x: f32[n, 3]) -> f32[n] = x @ s.net.w + s.net.b
""")
    m.score.export(tmp_path / "f.dflx", "f32[4, 3]", platforms=("cpu",))
    with zipfile.ZipFile(tmp_path / "f.dflx") as archive:
        assert [n for n in archive.namelist() if n.startswith("constants")] == ["constants/0", "constants/1"]
        program = jax.export.deserialize(bytearray(archive.read("stablehlo/cpu")))
    f, x = difflang.runtime.load(tmp_path / "f.dflx"), rows(4, 3)
    assert described(f(x)) == described(m.score(x)) and described(f.vjp()(x)[0]) == described(m.score(x))
    assert np.allclose(program.call(x, np.array([1, 2, 3], np.float32), np.float32(0.5))[0], f(x))


REFUSED = {
    "prints": 'fn f(x: f32) -> f32 {\n  print("x is {x}")\n  x\n}',
    "prints in a function that it calls": "fn g(x: f32) -> f32 {\n  print(x)\n  x\n}\nfn f(x: f32) -> f32 = g(x) + 1",
    "gives a function": "fn f(x: f32) -> (f32) -> f32 = |y| x * y",
    "gives a text of an array": 'fn f(x: f32) -> str = ["a", "b"][i32(x)]',
    "says a text of an array": 'fn f(x: f32) -> f32 {\n  let s = ["a"][i32(x)]\n  assert x > 0, "not {s}"\n  x\n}',
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_exported(why: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", difflang.DifflangWarning)
        f = difflang.loads(REFUSED[why]).f
    with pytest.raises(difflang.ArtifactError, match="DL1240"):
        f.export(tmp_path / "f.dflx", "f32")
    assert list(tmp_path.iterdir()) == []


def test_a_pullback_is_not_exported(tmp_path: Path) -> None:
    _, pull = M.heron.vjp()(2.0)
    with pytest.raises(difflang.ArtifactError, match="DL1240"):
        pull.export(tmp_path / "f.dflx", "f64")


def test_a_field_that_is_a_word_of_python_is_told(tmp_path: Path) -> None:
    source = "record R { lambda: f32 }\nfn f(r: R) -> f32 = 2 * r.lambda\nfn same(r: R) -> R = r"
    m: Any = difflang.loads(source)
    given = {"lambda": np.float32(1.5)}
    assert artifact(tmp_path, m.f, given)(given) == m.f(given) == 3.0
    for made in (lambda: m.R, lambda: m.same(given), lambda: artifact(tmp_path, m.same, given)(given)):
        with pytest.raises(difflang.DifflangError, match="DL0801"):
            made()


def test_what_is_given_for_a_size_or_a_text(tmp_path: Path) -> None:
    powers = artifact(tmp_path, M.powers, "f64", 4)
    assert described(powers(1.5, np.int64(4))) == described(powers(1.5))
    deep = artifact(tmp_path, M.deep, NET, X[0])
    for name in (np.zeros(2), 3, "bob"):
        with pytest.raises(difflang.ArgumentError, match=r"`m\.name` is 'ann' in this artifact"):
            deep({"first": LAYER, "steps": NET.steps, "name": name}, X[0])


def test_a_library_that_nobody_promises_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jax import export

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("Cannot serialize code with custom calls whose targets have no compatibility guarantees: x")

    monkeypatch.setattr(export, "export", refuse)
    with pytest.raises(difflang.CheckError, match=r"DL0801.*for `tpu`.*no compatibility guarantees"):
        M.heron.export(tmp_path / "f.dflx", platforms=("tpu",))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(difflang.DifflangError, match="did you mean `tpu`"):
        M.heron.export(tmp_path / "f.dflx", platforms=("tpus",))
    with pytest.raises(difflang.DifflangError, match="DL0601"):
        M.heron.export(tmp_path / "f.dflx", platforms="cpu")


def test_nothing_of_the_machine_is_in_the_file(tmp_path: Path) -> None:
    artifact(tmp_path, M.heron, platforms=("cpu",))
    data = (tmp_path / "f.dflx").read_bytes()
    assert b"artifacts" in data
    assert not any(str(path).encode() in data for path in (Path.cwd(), Path(__file__).parent, tmp_path))


@pytest.mark.parametrize("loaded", [True, False], ids=["artifact", "module"])
def test_a_tangent_has_a_name_that_no_parameter_has(loaded: bool, tmp_path: Path) -> None:
    """`d_x` was two parameters with one name: a function from an artifact took the tangent for both."""
    f: Any = difflang.loads("fn f(x: f64, d_x: f64) -> f64 = x * x * d_x").f
    f = artifact(tmp_path, f, "f64", "f64") if loaded else f
    assert list(inspect.signature(f.jvp("x")).parameters) == ["x", "d_x", "d_x_2"]
    found = f.jvp("x")(2.0, 3.0, 5.0), f.jvp("x")(2.0, d_x=3.0, d_x_2=5.0)
    assert [[float(v) for v in pair] for pair in found] == [[12.0, 60.0]] * 2
    (value, once), (also, twice) = f.jvp("x").jvp("x")(2.0, 3.0, 5.0, 7.0)
    assert [float(v) for v in (value, once, also, twice)] == [12.0, 60.0, 84.0, 210.0]
    assert float(f.hvp("x")(2.0, 3.0, 5.0)) == 30.0


@pytest.mark.parametrize("loaded", [True, False], ids=["artifact", "module"])
def test_a_parameter_that_is_a_word_of_python_is_given_by_position(loaded: bool, tmp_path: Path) -> None:
    f: Any = difflang.loads("fn f(lambda: f64, self: f64) -> f64 = lambda * self").f
    f = artifact(tmp_path, f, "f64", "f64") if loaded else f
    assert "lambda: f64, self: f64, /" in repr(f)
    assert float(f(2.0, 3.0)) == 6.0 == float(f(2.0, self=3.0))
    with pytest.raises(difflang.ArgumentError, match="is missing `self`"):
        f(2.0)


def test_a_loaded_variant_is_of_the_class_of_its_module(tmp_path: Path) -> None:
    rolled = artifact(tmp_path, M.rolled, M.Circle(1.0), "f32")
    box = rolled(M.Circle(1.0), 4.0)
    assert type(box) is M.Box is rolled.classes["Box"] and M.area(box) == 16.0
    area = artifact(tmp_path, M.area, box)
    moved = jax.tree.map(lambda p, g: float(p + g), box, area.grad()(box))
    assert type(moved) is M.Box and (moved.w, moved.h) == (8.0, 8.0)


def test_a_key_that_is_a_parameter_is_none_to_draw_with(tmp_path: Path) -> None:
    f: Any = difflang.loads("fn f(key: f32) -> f32 = key * normal()").f
    with pytest.raises(difflang.ArtifactError, match="DL1240"):
        f.export(tmp_path / "f.dflx", "f32")


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    loop = tmp_path / "loop.dflx"
    loop.symlink_to(loop)
    for place in (loop, "/", tmp_path, "a\0b", "nowhere/f.dflx"):
        with pytest.raises(difflang.DataError, match="DL0710"):
            M.heron.export(place, "f64", platforms=())
        with pytest.raises(difflang.DataError, match="DL0701"):
            difflang.runtime.load(place)
    with pytest.raises(difflang.ArtifactError, match="not a regular file"):
        difflang.runtime.load("/dev/zero")
    (tmp_path / "link.dflx").symlink_to("f.dflx")
    M.heron.export(tmp_path / "link.dflx", "f64", platforms=())
    assert (tmp_path / "f.dflx").is_file() and {p.name for p in tmp_path.iterdir()} == {
        "f.dflx",
        "link.dflx",
        "loop.dflx",
    }


def test_a_pullback_leaves_a_program_of_jax(loss: Any) -> None:
    """As that of the original does: what it holds are arrays."""
    value, pull = jax.jit(loss.vjp("x"))(LAYER, X, Y)
    again, same = loss.vjp("x")(LAYER, X, Y)
    np.testing.assert_allclose(value, again, rtol=1e-6)
    np.testing.assert_allclose(pull(np.float32(2)), same(np.float32(2)), rtol=1e-6)


@pytest.mark.parametrize("operator", ["vjp", "linearize"])
def test_linear_maps_of_what_calls_itself_are_called(operator: str, tmp_path: Path) -> None:
    power = difflang.compile("fn power(x: f64, n: i32) -> f64 = if n == 0 { 1.0 } else { x * power(x, n - 1) }")
    power.export(tmp_path / "power.dflx", "f64", "i32", platforms=())
    again = difflang.runtime.load(tmp_path / "power.dflx")
    for n in (3, 300):  # the second one takes more room
        _, map = getattr(again, operator)()(1.001, np.int32(n))
        assert float(map(1.0)) == pytest.approx(n * 1.001 ** (n - 1), rel=1e-9)


def test_the_interpreter_looks_at_no_limit_and_copies_are_the_same(tmp_path: Path) -> None:
    text = """@memory(150 KiB)
fn f[n](x: f64[n], k: i32) -> f64 = if k == 0 { sum(sin(x)) } else { 0.01 * sum(sin(x)) * f(0.999 * x, k - 1) }
"""
    gradient, x = difflang.loads(text, name="deep").f.grad("x"), np.ones(2000)
    gradient.export(tmp_path / "deep.dlx", x, 3, platforms=())
    loaded = difflang.runtime.load(tmp_path / "deep.dlx")
    np.testing.assert_allclose(loaded.interpret(x, 3), gradient.interpret(x, 3))
    assert copy.deepcopy(loaded) is loaded
    with pytest.raises(difflang.ArgumentError, match="cannot be pickled"):
        pickle.dumps(loaded)
