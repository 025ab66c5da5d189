"""Random numbers are part of the language: their bits, whose key each draw has, and keys of the program's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.driver.run_program import file_access, run_program
from difflang.execution.engine import Engine
from difflang.ops.arrays import threefry_random
from support.documents import ROOT
from support.golden import accept
from support.language import codes, ran

GOLDEN = Path(__file__).parent / "draws.txt"
DTYPES = ("bf16", "f16", "f32", "f64")
DRAWS = {
    **{f"{kind} {d}": f"fn f(n: dim) -> {d}[n] = {kind}(n)" for kind in ("uniform", "normal") for d in DTYPES},
    "permutation": "fn f(n: dim) -> i32[n] = permutation(n)",
}


def words(array: Any) -> str:
    """The bits of an array's elements, in hexadecimal."""
    found = np.asarray(array)
    return " ".join(f"{int(w):0{2 * found.itemsize}x}" for w in found.view(f"u{found.itemsize}"))


def test_the_bits_of_a_hundred_draws() -> None:
    lines = [f"{name}: {words(difflang.loads(DRAWS[name], seed=7).f.interpret(n=100))}" for name in DRAWS]
    accept(GOLDEN, "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", [n for n in DRAWS if not n.startswith("normal")])
def test_both_engines_give_the_same_bits(name: str) -> None:
    compiled, interpreted = (difflang.loads(DRAWS[name], seed=7).f for _ in range(2))
    assert words(compiled(n=100)) == words(interpreted.interpret(n=100))


@pytest.mark.parametrize(("dtype", "ulps"), [("bf16", 0), ("f16", 0), ("f32", 8), ("f64", 64)])
def test_normal_numbers_of_both_engines(dtype: str, ulps: int) -> None:
    """The uniform numbers below are the same; the inverse error function rounds in its last places."""
    compiled, interpreted = (difflang.loads(DRAWS[f"normal {dtype}"], seed=7).f for _ in range(2))
    a, b = np.asarray(compiled(n=1000)), np.asarray(interpreted.interpret(n=1000))
    bits = [x.view(f"i{x.itemsize}").astype(np.int64) for x in (a, b)]
    assert np.max(np.abs(bits[0] - bits[1])) <= ulps


# ---- Whose key


@contextmanager
def recorded() -> Iterator[list[bytes]]:
    """The keys of the numbers that are drawn by the interpreter."""
    keys: list[bytes] = []
    stream = threefry_random.stream_reference

    def record(key: Any, count: int) -> Any:
        keys.append(np.asarray(key).tobytes())
        return stream(key, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threefry_random, "stream_reference", record)
        yield keys


# Those whose work is in loops that can be cut; the others take minutes in the interpreter.
EXAMPLES = [ROOT / "examples" / f"{name}.dfl" for name in ("digits", "digits_conv", "fit_curve", "logistic")]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_no_two_draws_of_an_example_share_a_key(path: Path) -> None:
    """Of three epochs: the loops are cut, the statements and functions are those of the file."""
    text = re.sub(r"progress\(0\.\.\w+\)", "0..3", path.read_text(encoding="utf-8"))
    with recorded() as keys:
        run_program(
            check_program(Source(path.name, text)),
            Engine("interpret"),
            file_access(path),
            0,
            lambda line: None,
        )
    assert len(set(keys)) == len(keys)
    assert keys or "normal(" not in text


SITES = """fn noise(n: dim) -> f32[n] = normal(n)
fn steps(x: f32) -> f32 {
  var y = x + uniform()
  for i in 0..3 { y += sum(noise(2)) + sum(for j in 0..2 => uniform()) }
  while y < 5.0 { y += 1.0 + uniform() }
  if y > 0.0 { y + uniform() } else { y - uniform() }
}
host fn twice(x: f32) -> f32 { steps(x) + steps(x) }
for i in 0..2 { print(twice(1.0) + sum(noise(3))) }
print(uniform() + uniform(), permutation(4), vmap(|x| x + uniform())([1.0, 2.0]))
"""


def test_no_two_draws_share_a_key() -> None:
    with recorded() as keys:
        ran(SITES, Engine("interpret"))
    assert len(keys) > 50 and len(set(keys)) == len(keys)


def test_a_shared_key_would_be_seen() -> None:
    with recorded() as keys:
        ran("print(with_key(key(1)) { uniform() }, with_key(key(1)) { uniform() })\n", Engine("interpret"))
    assert len(keys) == 2 and len(set(keys)) == 1


def test_a_draw_is_the_same_when_it_is_batched_differentiated_or_computed_again() -> None:
    source = """fn f(x: f32) -> f32 {
  var s = x
  for i in 0..3 { s = s * (1.0 + uniform()) }
  s
}
fn with_slope(x: f32) -> (f32, f32) = value_and_grad(f)(x)
fn forward(x: f32) -> (f32, f32) = jvp(f)(x, 1.0)
fn lanes(x: f32[n]) -> f32[n] = vmap(f)(x)
fn slopes(x: f32[n]) -> f32[n] = vmap(grad(f))(x)
fn curved(x: f32) -> f32 = grad(|t| f(t) * f(t))(x)
"""
    module = difflang.loads(source)
    key = np.array([0, 3], np.uint32)
    value, slope = map(float, module.with_slope(2.0, key=key))
    again, forward = map(float, module.forward(2.0, key=key))
    assert value == again and slope == pytest.approx(value / 2, rel=1e-6) and forward == pytest.approx(slope, rel=1e-6)
    ones = np.ones(3, np.float32)
    np.testing.assert_allclose(module.slopes(ones, key=key), module.lanes(ones, key=key), rtol=1e-6)
    assert len(set(np.asarray(module.lanes(ones, key=key)).tolist())) == 3
    outer = jax.vmap(lambda k: module.f(1.0, key=k))(np.stack([key, key + np.uint32(1), key]))
    assert float(outer[0]) == float(outer[2]) != float(outer[1])


# ---- Keys of the program's own


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("shape", ["", "3", "2, 3", "0, 3", "2, 1, 2"])
def test_a_draw_like_another_array_is_that_of_its_shape_and_type(kind: str, shape: str) -> None:
    of = f"[{shape}]" if shape else ""
    like = difflang.loads(f"fn f(x: f64{of}) -> f64{of} = {kind}_like(x)\n", seed=7).f
    plain = difflang.loads(f"fn f(x: f64{of}) -> f64{of} = {kind}({shape})\n", seed=7).f
    generic = f"fn g[T: float](x: T[..s]) -> T[..s] = {kind}_like(x)\n"
    whole = difflang.loads(f"{generic}fn f(x: f64{of}) -> f64{of} = g(x)\n").f
    x = np.zeros([int(n) for n in shape.split(",") if n])
    assert words(np.ravel(like.interpret(x))) == words(np.ravel(plain.interpret(x)))
    assert whole(x).shape == x.shape


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("uniform_like([1.0j])", "DL0313"),
        ("normal_like(true)", "DL0313"),
        ("normal_like((1.0, 2.0j))", "DL0313"),
        ("normal_like()", "DL0319"),
        ('uniform_like("a")', "DL0313"),
    ],
)
def test_what_no_draw_is_like(text: str, code: str) -> None:
    assert codes(f"print({text})") == [(code, 1)]


def test_with_key() -> None:
    """The block draws from the key alone, and the function around as if it were not there."""
    source = """fn inside(k: key) -> f32[2] = with_key(k) { uniform(2) }
fn plain() -> (f32[2], f32[2]) = (uniform(2), uniform(2))
fn mixed(k: key) -> (f32[2], f32[2], f32[2]) {
  let a = uniform(2)
  let b = with_key(k) { uniform(2) }
  (a, b, uniform(2))
}
fn loops(k: key) -> (f32[3], f32[3]) = (
  [for i in 0..3 => with_key(k) { uniform() }], with_key(k) { [for i in 0..3 => uniform()] })
fn made(seed: i32, n: i32) -> f32[2] = inside(fold_in(key(seed), n))
fn slope(k: key, x: f32) -> f32 = grad[x](|x| with_key(k) { x * uniform() })(x)
"""
    module = difflang.loads(source)
    key = np.array([0, 9], np.uint32)
    want = np.asarray(module.inside(key))
    a, b, c = map(np.asarray, module.mixed(key, key=np.array([1, 2], np.uint32)))
    first, second = map(np.asarray, module.plain(key=np.array([1, 2], np.uint32)))
    np.testing.assert_array_equal(np.stack([a, b, c]), np.stack([first, want, second]))
    same, anew = map(np.asarray, module.loops(key))
    assert len(set(same.tolist())) == 1 and len(set(anew.tolist())) == 3
    np.testing.assert_array_equal(
        module.made(9, 4), module.inside(threefry_random.fold_in_reference(key, np.uint32(4)))
    )
    assert float(module.slope(key, 3.0)) == pytest.approx(float(same[0]), abs=0)


def test_a_seed_is_the_key_of_a_session() -> None:
    """`key(s)` is what `--seed s` begins with: its high word first."""
    for seed in (7, 2**40 + 5):
        source = f"let k = key(i64({seed}))\nprint(k)\n"
        assert ran(source)[1] == [f"[{seed >> 32}, {seed & 0xFFFFFFFF}]"]
    assert ran("var s = 7\nprint(key(s))\n")[1] == ["[0, 7]"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("with_key(1) { uniform() }", "DL0313"),
        ("with_key([1, 2]) { uniform() }", "DL0313"),
        ("key(1.5)", "DL0313"),
        ("key([1])", "DL0313"),
        ("fold_in(1, 2)", "DL0313"),
        ("fold_in(key(1), 2.0)", "DL0313"),
        ("key()", "DL0319"),
    ],
)
def test_what_is_no_key(text: str, code: str) -> None:
    assert [c for c, _ in codes(f"let a = {text}\n")] == [code]


CHECKED = """float f64
fn drawn(x: f64) -> (i32, f64) {
  var (i, s) = (0, 0.0)
  while i < 3 and i32(uniform() * 5.0) < 4 {
    i += 1
    s += normal() * x
  }
  (i, s)
}
fn checked(v: f64[4], x: f64) -> f64 {
  var (i, s) = (0, 0.0)
  while i < 3 and v[i32(uniform() * 5.0)] < 1.5 {
    i += 1
    s += normal() * x
  }
  s
}
fn called(x: f64) -> (i32, f64) = drawn(x)
fn slope(v: f64[4], x: f64) -> f64 = x * grad[x](checked)(v, x)
"""


def test_a_condition_that_draws_fails_where_its_last_draw_does() -> None:
    """The loop of `drawn` ends early where the index of `checked`, which is drawn alike, is out of range."""
    module: Any = difflang.loads(CHECKED, name="checked")
    ways = [
        (module.drawn, module.checked.interpret),
        (module.drawn, module.checked),
        (module.called, module.slope.interpret),
    ]
    early = 0
    for twin, f in ways:
        for seed in range(8):
            key = np.array([0, seed], np.uint32)
            count, total = twin.interpret(2.0, key=key)
            if int(count) < 3:
                early += 1
                with pytest.raises(difflang.IndexFailure, match="index 4 is out of range"):
                    f(np.ones(4), 2.0, key=key)
            else:
                assert float(f(np.ones(4), 2.0, key=key)) == pytest.approx(float(total), rel=1e-12)
    assert 0 < early < 24


def test_of_a_record_a_draw_is_a_change_of_it() -> None:
    """A number for each number, no two the same; what has no tangent has none."""
    text = """record Net[d] { w: f32[d, d], b: f64[d], n: i32 }
enum Shape { Circle(r: f32), Box(a: f32, b: f32), Empty }
fn draws(m: Net[d]) -> D(Net[d]) = normal_like(m)
fn again(m: Net[d]) -> D(Net[d]) = uniform_like(zeros_like(m))
fn any[P](p: P) -> D(P) = normal_like(p)
fn of_any(m: Net[d]) -> D(Net[d]) = any(m)
fn moved(m: Net[d]) -> Net[d] = m + normal_like(m)
fn chosen(x: f32, s: f32) -> f32 {
  let shape = if s > 0 { Circle(x) } else { Box(x, x) }
  match shape + normal_like(shape) {
    Circle(r) => r
    Box(a, b) => a - b
    Empty => 0
  }
}
"""
    m = difflang.loads(text, seed=3)
    net = m.Net(np.ones((3, 3), "f4"), np.ones(3), 7)
    drawn, again = m.draws.interpret(net), m.again.interpret(net)
    assert np.unique([*np.ravel(drawn.w), *drawn.b]).size == 12
    assert (np.asarray(drawn.w).dtype, np.asarray(drawn.b).dtype) == (np.float32, np.float64)
    assert all(0 <= u < 1 for u in [*np.ravel(again.w), *again.b])
    np.testing.assert_array_equal(m.of_any.interpret(net).w.shape, (3, 3))
    assert m.moved.interpret(net).n == 7
    one, two = float(m.chosen.interpret(0.5, 1.0)), float(m.chosen.interpret(0.5, -1.0))
    assert len({one, two, 0.0, 0.5}) == 4, "each number of a variant is drawn by itself"
