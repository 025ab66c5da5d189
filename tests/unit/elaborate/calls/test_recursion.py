"""Recursion whose depth only the run knows: against Python, loops and closed forms, with derivatives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import difflang
from difflang.cli import main
from difflang.lower.capacity import INITIAL_CAPACITY
from support.language import codes, ran

PROGRAM = """
float f64
fn power(x: f64, n: i32) -> f64 = if n == 0 { 1 } else { x * power(x, n - 1) }
fn tree(x: f64, n: i32) -> f64 = if n < 2 { x } else { sin(tree(x, n - 1)) + x * tree(0.9 * x, n - 2) }
fn total(x: f64[n], a: i32, b: i32) -> f64 {
  if b - a == 1 { return x[a]^3 }
  let m = (a + b) // 2
  total(x, a, m) + total(x, m, b)
}
fn sum3(x: f64[n]) -> f64 = total(x, 0, n)
fn even(x: f64, n: i32) -> f64 = if n == 0 { x } else { sin(odd(1.01 * x, n - 1)) }
fn odd(x: f64, n: i32) -> f64 = if n == 0 { x * x } else { x + even(0.98 * x, n - 1) }
fn ackermann(m: i32, n: i32, x: f64) -> (i32, f64) {
  if m == 0 { return (n + 1, x * 1.01) }
  if n == 0 { return ackermann(m - 1, 1, x + 0.5) }
  let (k, y) = ackermann(m, n - 1, x)
  ackermann(m - 1, k, y)
}
fn growth(m: i32, n: i32, x: f64) -> f64 {
  let (_, y) = ackermann(m, n, x)
  y
}
fn even_loop(x0: f64, n: i32) -> f64 {
  var x = x0
  var k = n
  while k > 0 {
    x *= if (n - k) % 2 == 0 { 1.01 } else { 0.98 }
    k -= 1
  }
  var y = if n % 2 == 0 { x } else { x^2 }
  for i in 0..n {
    let k = n - 1 - i
    x /= if k % 2 == 0 { 1.01 } else { 0.98 }
    y = if k % 2 == 0 { sin(y) } else { x + y }
  }
  y
}
fn down(x: f64, n: i32) -> f64 = if n == 0 { x } else { down(0.5 * x + sin(x), n - 1) }
fn down_loop(x0: f64, n: i32) -> f64 {
  var x = x0
  for _ in 0..n { x = 0.5 * x + sin(x) }
  x
}
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="recursion")


def tree(x: Any, n: int) -> Any:
    return x if n < 2 else jnp.sin(tree(x, n - 1)) + x * tree(0.9 * x, n - 2)


def even(x: Any, n: int) -> Any:
    return x if n == 0 else jnp.sin(odd(1.01 * x, n - 1))


def odd(x: Any, n: int) -> Any:
    return x * x if n == 0 else x + even(0.98 * x, n - 1)


def ackermann(m: int, n: int, x: Any) -> tuple[int, Any]:
    if m == 0:
        return n + 1, x * 1.01
    if n == 0:
        return ackermann(m - 1, 1, x + 0.5)
    k, y = ackermann(m, n - 1, x)
    return ackermann(m - 1, k, y)


CASES = {
    "power": (lambda x: x**9, lambda f: lambda x: f(x, np.int32(9))),
    "tree": (lambda x: tree(x, 8), lambda f: lambda x: f(x, np.int32(8))),
    "even": (lambda x: even(x, 11), lambda f: lambda x: f(x, np.int32(11))),
    "odd": (lambda x: odd(x, 6), lambda f: lambda x: f(x, np.int32(6))),
    "growth": (lambda x: ackermann(2, 3, x)[1], lambda f: lambda x: f(np.int32(2), np.int32(3), x)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.nightly_cases("tree")
def test_values_and_derivatives_to_second_order(m: Any, name: str) -> None:
    """Against the same recursion in Python under JAX's own derivatives, compiled and interpreted."""
    plain, given = CASES[name]
    f, x = getattr(m, name), 0.7
    at = given(lambda *arguments: arguments)(x)
    with jax.enable_x64(True):
        want = [float(g(x)) for g in (plain, jax.grad(plain), jax.grad(jax.grad(plain)))]
    gradient, over, twice = f.grad("x"), f.hvp("x"), f.grad("x").grad("x")
    np.testing.assert_allclose(f(*at), want[0], rtol=1e-14)
    np.testing.assert_allclose(gradient(*at), want[1], rtol=1e-13)
    np.testing.assert_allclose(f.jvp("x")(*at, 1.0), want[:2], rtol=1e-13)
    np.testing.assert_allclose(over(*at, 1.0), want[2], rtol=1e-13)
    np.testing.assert_allclose(twice(*at), want[2], rtol=1e-13)
    np.testing.assert_allclose(f.interpret(*at), want[0], rtol=1e-14)
    np.testing.assert_allclose(gradient.interpret(*at), want[1], rtol=1e-13)
    np.testing.assert_allclose(over.interpret(*at, 1.0), want[2], rtol=1e-13)


def test_functions_that_call_each_other_are_the_loop_that_they_mean(m: Any) -> None:
    for n in (0, 1, 2, 7, 100):
        at = (0.7, np.int32(n))
        np.testing.assert_allclose(m.even(*at), m.even_loop(*at), rtol=1e-12)
        np.testing.assert_allclose(m.even.grad()(*at), m.even_loop.grad()(*at), rtol=1e-12)
        np.testing.assert_allclose(m.even.hvp()(*at, 1.0), m.even_loop.hvp()(*at, 1.0), rtol=1e-11)


def test_dividing_and_summing(m: Any) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, 11)
    np.testing.assert_allclose(m.sum3(x), sum(x**3), rtol=1e-14)
    np.testing.assert_allclose(m.sum3.grad()(x), 3 * x**2, rtol=1e-14)
    np.testing.assert_allclose(m.sum3.grad().interpret(x), 3 * x**2, rtol=1e-14)
    v = np.linspace(0, 1, 11)
    np.testing.assert_allclose(m.sum3.hvp()(x, v), 6 * x * v, rtol=1e-13)


def test_adaptive_quadrature_through_a_closure() -> None:
    source = """
float f64
fn simpson(f: (f64) -> f64, a: f64, b: f64, eps: f64) -> f64 {
  let m = (a + b) / 2
  let whole = (b - a) / 6 * (f(a) + 4 * f(m) + f(b))
  let left = (m - a) / 6 * (f(a) + 4 * f((a + m) / 2) + f(m))
  let right = (b - m) / 6 * (f(m) + 4 * f((m + b) / 2) + f(b))
  let err = left + right - whole
  if abs(err) < 15 * eps { left + right + err / 15 }
  else { simpson(f, a, m, eps / 2) + simpson(f, m, b, eps / 2) }
}
fn area(k: f64) -> f64 = simpson(|x| exp(-k * x^2), 0, 4, 1e-9)
"""
    area = difflang.loads(source, name="quadrature").area

    def exact(k: float) -> float:
        return math.sqrt(math.pi / k) / 2 * math.erf(4 * math.sqrt(k))

    tail = math.exp(-16 * 1.3)
    slope = -exact(1.3) / 2.6 + 2 * tail / 1.3
    bend = 0.75 * exact(1.3) / 1.3**2 - 4 * tail * (0.75 / 1.3**2 + 8 / 1.3)
    assert area(1.3) == pytest.approx(exact(1.3), rel=1e-9)
    assert area.grad()(1.3) == pytest.approx(slope, rel=1e-7)
    assert area.grad()(1.3) == pytest.approx(area.grad().interpret(1.3), rel=1e-13)
    assert area.hvp()(1.3, 1.0) == pytest.approx(bend, rel=1e-5)


@pytest.mark.nightly
def test_in_lanes_each_goes_as_deep_as_it_goes() -> None:
    source = (
        PROGRAM
        + """
fn values(x: f64[k], n: i32[k]) -> f64[k] = [for i => tree(x[i], n[i])]
fn slopes(x: f64[k], n: i32[k]) -> f64[k] = [for i => grad(tree)(x[i], n[i])]
fn through(x: f64[k], n: i32[k]) -> f64 = sum(values(x, n))
"""
    )
    m = difflang.loads(source, name="lanes")
    x, n = np.linspace(0.2, 1.0, 5), np.array([0, 5, 1, 4, 2], np.int32)
    f, g, h = m.tree, m.tree.grad(), m.tree.hvp()
    slopes = [g(*at) for at in zip(x, n, strict=True)]
    np.testing.assert_allclose(m.values(x, n), [f(*at) for at in zip(x, n, strict=True)], rtol=1e-15)
    np.testing.assert_allclose(m.slopes(x, n), slopes, rtol=1e-14)
    np.testing.assert_allclose(m.through.grad()(x, n), slopes, rtol=1e-14)
    np.testing.assert_allclose(m.through.grad().interpret(x, n), slopes, rtol=1e-14)
    bends = [h(*at, 1.0) for at in zip(x, n, strict=True)]
    np.testing.assert_allclose(m.through.hvp()(x, n, np.ones(5)), bends, rtol=1e-13)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.vmap(m.tree)(x, n), m.values(x, n), rtol=1e-15)


def test_determinants_by_minors_are_unrolled() -> None:
    """A recursion on a size needs no machine: each size is a function of its own."""
    source = """
float f64
fn minor(a: f64[n, n], j: i32) -> f64[n - 1, n - 1] where n > 1 =
  [for i in 0..n - 1, k in 0..n - 1 => a[i + 1, if k < j { k } else { k + 1 }]]
fn minors(a: f64[n, n]) -> f64 {
  if n == 1 { a[0, 0] }
  else { sum(for j in 0..n => (if j % 2 == 0 { 1.0 } else { -1.0 }) * a[0, j] * minors(minor(a, j))) }
}
"""
    minors = difflang.loads(source, name="minors").minors
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 8):
        a = rng.normal(size=(n, n))
        np.testing.assert_allclose(minors(a), np.linalg.det(a), rtol=1e-11)
        if n <= 3:
            np.testing.assert_allclose(minors.grad()(a), np.linalg.det(a) * np.linalg.inv(a).T, rtol=1e-10)


def test_a_call_that_comes_last_is_a_step_of_a_loop(m: Any) -> None:
    assert "swap_item" not in m.down.ir("optimized", "f64", "i32")
    at = 0.3, np.int32(100_000)
    assert m.down(*at) == m.down_loop(*at)
    np.testing.assert_allclose(m.down.grad()(*at), m.down_loop.grad()(*at), rtol=1e-12)
    at = 0.3, np.int32(1000)
    np.testing.assert_allclose(m.down.interpret(*at), m.down(*at), rtol=1e-14)
    at = 0.3, np.int32(12)
    np.testing.assert_allclose(m.down.grad()(*at), m.down_loop.grad()(*at), rtol=1e-14)


def test_what_is_too_small_for_a_run_is_made_larger(m: Any) -> None:
    n = 20 * INITIAL_CAPACITY.frames
    x = 1.0 + 1.0 / n
    assert 4 * n > INITIAL_CAPACITY.steps
    assert float(m.power(x, np.int32(n))) == pytest.approx(x**n, rel=1e-11)
    assert float(m.power.grad()(x, np.int32(n))) == pytest.approx(n * x ** (n - 1), rel=1e-11)
    assert float(m.power.interpret(x, np.int32(n))) == pytest.approx(x**n, rel=1e-11)
    _, lines = program("print(power(1.0, 100))")
    assert lines == ["1.0"]


@pytest.mark.parametrize("first", [20, 150, 199])
def test_how_deep_a_recursion_on_a_size_goes_is_no_matter_of_what_was_made_before(first: int) -> None:
    m = difflang.loads("fn h(x: f64, n: dim) -> f64 = if n == 0 { 1.0 } else { x * h(x, n - 1) }", name="deep")
    assert float(m.h(1.0, first)) == float(m.h(1.0, 199)) == 1.0
    for deeper in (200, 250):
        with pytest.raises(difflang.LimitError, match="DL1003"):
            m.h(1.0, deeper)


def test_what_is_nested_too_deep_for_the_passes_is_a_limit_and_no_fault(tmp_path: Path) -> None:
    text = """fn p(x: f64, n: dim) -> f64 = if n == 0 { 1.0 } else { x * p(x, n - 1) }
@unchecked
rule p(x, n) { (if n == 0 { 1.0 } else { x * p(x, n - 1) }, linear |dx| f64(n) * dx) }
"""
    with pytest.raises(difflang.LimitError, match="nested too deep to compile"):
        difflang.loads(text, name="deep").p(1.0, 199)
    file = tmp_path / "deep.dfl"
    file.write_text(text + "let one: f64 = 1\nprint(p(one, 199))\n")
    found = CliRunner().invoke(main, ["run", str(file)])
    assert found.exit_code == 1 and "nested too deep to compile" in found.stderr


def program(text: str) -> Any:
    return ran(PROGRAM + text)


def test_inside_a_jax_program_too_little_room_is_nan(m: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = difflang.loads(PROGRAM, name="recursion")
    deep = np.int32(10 * INITIAL_CAPACITY.frames)
    with jax.enable_x64(True):
        traced = jax.jit(lambda x, n: fresh.power(x, n))
        assert traced(1.0, np.int32(5)) == 1.0
        assert np.isnan(traced(1.0, deep))
        assert "use `.clear_cache()`" in capsys.readouterr().err
        assert fresh.power(1.0, deep) == 1.0
        traced.clear_cache()
        assert traced(1.0, deep) == 1.0
        assert jax.jit(lambda x, n: fresh.power(x, n))(1.0, deep) == 1.0, "what was made larger stays so"


WAYS = """
fn pulled(x: f64, n: i32) -> f64 {
  let (v, pull) = vjp(|x| tree(x, n))(x)
  pull(1.0)
}
fn pushed(x: f64, n: i32) -> f64 {
  let (v, push) = linearize(|x| tree(x, n))(x)
  let back = transpose(push)
  0.5 * push(1.0) + 0.5 * back(1.0)
}
fn series(x: f64, n: i32) -> f64[3] = jet(|x| tree(x, n), order = 2)(x)
fn until(x: f64, n: i32) -> f64 {
  var y = x
  while y < 3.0 { y += tree(x, n) }
  y
}
fn slope(x: f64, n: i32) -> f64 = grad(until)(x, n)
"""


def test_every_way_to_a_derivative_goes_through() -> None:
    m = difflang.loads(PROGRAM + WAYS, name="ways")
    at = 0.7, np.int32(5)
    with jax.enable_x64(True):
        value, slope = map(float, jax.value_and_grad(lambda x: tree(x, 5))(0.7))
        bend = float(jax.grad(jax.grad(lambda x: tree(x, 5)))(0.7))
    for f in (m.pulled, m.pushed):
        np.testing.assert_allclose(f(*at), slope, rtol=1e-13)
        np.testing.assert_allclose(f.interpret(*at), slope, rtol=1e-13)
    np.testing.assert_allclose(m.series.interpret(*at), [value, slope, bend / 2], rtol=1e-13)
    steps = math.ceil((3.0 - 0.7) / value)
    np.testing.assert_allclose(m.slope(*at), 1 + steps * slope, rtol=1e-13)


def test_no_step_copies_the_stack(m: Any) -> None:
    """XLA copies what it cannot prove to be read before it is written."""
    for f in (m.tree, m.tree.grad()):
        text = f.lower("f64", "i32").compile().as_text()
        bodies = text[: text.index("ENTRY")]
        assert re.search(rf"\[{INITIAL_CAPACITY.frames + 1}\]", bodies)
        assert not re.search(rf"\[{INITIAL_CAPACITY.frames + 1}\]\S* copy\(", bodies)


def test_its_derivative_can_be_audited(m: Any) -> None:
    """Also where there is more to keep than there is room for at first."""
    assert m.tree.check_grad(0.7, np.int32(4), compiled=False, directions=1).right
    assert m.power.check_grad(1.01, np.int32(INITIAL_CAPACITY.frames + 2), compiled=False, directions=1).right


FAILING = """
fn f(x: f64[n], i: i32) -> f64 = if i == 99 { 0 } else { x[i] * f(x, i + 1) }
fn g(x: f64, n: i32) -> f64 {
  assert x < 3.0, "too large"
  1.0 + g(x + 1.0, n)
}
fn h(x: f64, n: i32) -> f64 {
  assert x < 3.0, "too large"
  h(x + 1.0, n)
}
"""


def test_the_first_check_that_fails_ends_the_run() -> None:
    m = difflang.loads("float f64\n" + FAILING, name="failing")
    with pytest.raises(difflang.IndexFailure, match="index 3 is out of range"):
        m.f(np.ones(3), np.int32(0))
    for f in (m.g, m.h, m.g.grad()):
        with pytest.raises(difflang.AssertionFailure, match="too large"):
            f(0.0, np.int32(1))
        with pytest.raises(difflang.AssertionFailure, match="too large"):
            f.interpret(0.0, np.int32(1))


def test_what_a_side_of_a_branch_does_not_use_contributes_nothing() -> None:
    """A value kept in a frame and not chosen afterwards: its slope is infinite."""
    m = difflang.loads(
        "float f64\nfn f(x: f64, n: i32) -> f64 {\n let s = sqrt(x)\n"
        " let r = if n == 0 { 2 * x } else { f(x, n - 1) }\n"
        " if x > 0.0 { s + r } else { 3 * r }\n}",
        name="choices",
    )
    for n in range(3):
        assert float(m.f.grad()(0.0, np.int32(n))) == 2.0 * 3 ** (n + 1)
        assert float(m.f.jvp()(0.0, np.int32(n), 1.0)[1]) == 2.0 * 3 ** (n + 1)


SHAPES = """
record Tree[n] { w: f64[n], depth: i32 }
let scale = 1.5
fn grown(t: Tree[n]) -> (Tree[n], f64) {
  if t.depth == 0 { return (t, scale * sum(t.w)) }
  let (u, s) = grown(t with (depth = t.depth - 1, w = 0.5 * t.w))
  let (v, r) = grown(t with (depth = t.depth - 1, w = t.w + u.w))
  (v, s + r)
}
fn weight(w: f64[n], d: i32) -> f64 {
  let (t, s) = grown(Tree(w = w, depth = d))
  s + sum(t.w^2)
}
fn noise(x: f64, n: i32) -> f64 = if n == 0 { x * normal() } else { noise(x, n - 1) + noise(x, n - 1) * normal() }
fn generic[T: float](x: T[n], k: i32) -> T[n] = if k == 0 { x } else { x + generic(0.5 * x, k - 1) }
fn found(k: i32) -> f64 = sum(generic([1, 2], k))
"""


def grown(w: Any, depth: int) -> Any:
    if depth == 0:
        return w, 1.5 * jnp.sum(w)
    u, s = grown(0.5 * w, depth - 1)
    v, r = grown(w + u, depth - 1)
    return v, s + r


def test_records_arrays_and_values_of_the_file_pass_through() -> None:
    m = difflang.loads("float f64\n" + SHAPES, name="shapes")
    w = np.array([0.3, -0.2, 0.9])

    def plain(w: Any) -> Any:
        v, s = grown(w, 3)
        return s + jnp.sum(v**2)

    with jax.enable_x64(True):
        want, slope = plain(w), jax.grad(plain)(w)
    np.testing.assert_allclose(m.weight(w, np.int32(3)), want, rtol=1e-14)
    np.testing.assert_allclose(m.weight.grad()(w, np.int32(3)), slope, rtol=1e-13)
    np.testing.assert_allclose(m.weight.grad().interpret(w, np.int32(3)), slope, rtol=1e-13)
    assert float(m.found(np.int32(2))) == 3 * 1.75
    draw, again, other = [float(m.noise(1.0, np.int32(4), key=k)) for k in (3, 3, 4)]
    assert draw == again != other
    np.testing.assert_allclose(m.noise.grad()(1.0, np.int32(4), key=3), draw, rtol=1e-14)
    np.testing.assert_allclose(m.noise.interpret(1.0, np.int32(4), key=3), draw, rtol=1e-14)


VARIANTS = """
enum Shape { Dot, Disc(r: f64), Box(w: f64, h: f64) }
fn area(s: Shape) -> f64 = match s { Dot => 7, Disc(r) => r^2, Box(w, h) => w * h }
fn boxed(x: f64, n: i32) -> Shape = if n <= 0 { Box(x, 2) } else { Box(halved(0.5 * x, n - 1), 3) }
fn halved(x: f64, n: i32) -> f64 = if n <= 0 { x } else { area(boxed(x, n - 1)) }
"""


def test_what_a_call_gives_is_held_as_its_function_gives_it() -> None:
    """`boxed` gives one variant of all that its declared type has, which is known after its body."""
    m = difflang.loads("float f64\n" + VARIANTS, name="variants")
    for n, factor in enumerate([1.0, 2.0, 1.5, 3.0, 2.25]):
        at = 0.7, np.int32(n)
        for value in (m.halved(*at), m.halved.interpret(*at)):
            np.testing.assert_allclose(value, 0.7 * factor, rtol=1e-14)
        for slope in (m.halved.grad("x")(*at), m.halved.grad("x").interpret(*at), m.halved.jvp("x")(*at, 1.0)[1]):
            np.testing.assert_allclose(slope, factor, rtol=1e-14)


NAMED = """
record Ball { r: f64, name: str }
fn grown(b: Ball, n: i32) -> Ball = if n <= 0 { b } else { grown(b with (r = 2.0 * b.r), n - 1) }
fn weight(r: f64, n: i32) -> f64 {
  let (big, small) = (grown(Ball(r = r, name = "lead"), n), grown(Ball(r = r, name = "cork"), n))
  (if big.name == "lead" { 11.0 } else { 0.2 }) * big.r + (if small.name == "lead" { 11.0 } else { 0.2 }) * small.r
}
"""


def test_a_text_comes_back_as_it_was_passed_on() -> None:
    weight = difflang.loads("float f64\n" + NAMED, name="named").weight
    np.testing.assert_allclose(weight(0.5, np.int32(3)), 11.2 * 4.0, rtol=1e-14)
    np.testing.assert_allclose(weight.grad()(0.5, np.int32(3)), 11.2 * 8.0, rtol=1e-14)


LOOPS = """
fn trees(x: f64, n: i32) -> f64 {
  if n == 0 { return x }
  var total = 0.0
  for i in 0..n { total += sin(trees(0.9 * x, i)) }
  total
}
fn fan(x: f64[k], n: i32) -> f64 {
  if n == 0 { return sum(x) }
  let y = [for i => fan(x * x[i], n - 1)]
  sum(sin(y)) + sum(for i in 0..2 => fan(0.5 * x, n - 1) * x[i])
}
fn search(x: f64, n: i32) -> f64 {
  var y = x
  var k = 0
  while y < 2.0 * x {
    y += if n > 0 { search(0.5 * x, n - 1) } else { 0.4 * x * x }
    k += 1
    if k > 5 { break }
  }
  y * x
}
fn asking(x: f64, n: i32) -> f64 {
  if n == 0 { return x }
  var s = x
  while s < 1.6 * asking(0.9 * x, n - 1) + asking(x, n - 1) { s += 0.7 * x * s }
  s * sin(s)
}
fn asking_while_left(x: f64, n: i32) -> f64 {
  if n == 0 { return x }
  var s = x
  while s < asking_while_left(1.5 * x, n - 1) {
    s += 0.3 * x
    if s > 2.2 { break }
  }
  s * s
}
"""


def trees(x: Any, n: int) -> Any:
    return x if n == 0 else sum((jnp.sin(trees(0.9 * x, i)) for i in range(n)), 0.0)


def fan(x: Any, n: int) -> Any:
    if n == 0:
        return jnp.sum(x)
    return sum(jnp.sin(fan(x * y, n - 1)) for y in x) + sum(fan(0.5 * x, n - 1) * x[i] for i in range(2))


def search(x: Any, n: int) -> Any:
    y, k = x, 0
    while y < 2.0 * x:
        y = y + (search(0.5 * x, n - 1) if n > 0 else 0.4 * x * x)
        k += 1
        if k > 5:
            break
    return y * x


def asking(x: Any, n: int) -> Any:
    if n == 0:
        return x
    s = x
    while s < 1.6 * asking(0.9 * x, n - 1) + asking(x, n - 1):
        s = s + 0.7 * x * s
    return s * jnp.sin(s)


def asking_while_left(x: Any, n: int) -> Any:
    if n == 0:
        return x
    s = x
    while s < asking_while_left(1.5 * x, n - 1):
        s = s + 0.3 * x
        if s > 2.2:
            break
    return s * s


@pytest.mark.parametrize(
    ("name", "plain", "x", "n"),
    [
        ("trees", trees, 0.7, 4),
        ("fan", fan, np.array([0.3, 0.8, 0.5]), 2),
        ("search", search, 0.7, 2),
        ("asking", asking, 1.3, 3),
        ("asking_while_left", asking_while_left, 0.7, 2),
    ],
    ids=["trees", "fan", "search", "asking", "asking_while_left"],
)
def test_calls_in_loops_and_comprehensions(name: str, plain: Any, x: Any, n: int) -> None:
    f = getattr(difflang.loads("float f64\n" + LOOPS, name="loops"), name)
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(lambda x: plain(x, n))(jnp.asarray(x))
    for found in (f(x, np.int32(n)), f.interpret(x, np.int32(n))):
        np.testing.assert_allclose(found, value, rtol=1e-14)
    for found in (f.grad()(x, np.int32(n)), f.grad().interpret(x, np.int32(n))):
        np.testing.assert_allclose(found, slope, rtol=1e-13)


ASKED = """float f64
fn f(x: f64, v: f64[3], n: i32) -> f64 {
  if n == 0 { return x }
  var (s, i) = (x, 0)
  while v[i] < f(0.9 * x, v, n - 1) {
    i += 1
    s += 0.5 * f(x, v, n - 1)
  }
  s
}
fn many(x: f64[2], v: f64[3]) -> f64[2] = [for i => f(x[i], v, 2)]
"""


def test_a_condition_that_calls_fails_and_runs_in_lanes() -> None:
    m = difflang.loads(ASKED, name="asking")
    enough, little = np.array([0.5, 0.6, 10.0]), np.array([0.5, 0.6, 0.7])
    alone = [float(m.f(x, enough, np.int32(2))) for x in (1.0, 0.2)]
    np.testing.assert_allclose(m.many(np.array([1.0, 0.2]), enough), alone, rtol=1e-14)
    for f in (m.f, m.f.interpret, m.f.grad()):
        with pytest.raises(difflang.IndexFailure, match="index 3 is out of range"):
            f(1.0, little, np.int32(2))


@pytest.mark.parametrize("body", ["grad(f)(x, n - 1)", "{\n let (_, d) = jvp(f)(x, n - 1, 1.0)\n d }"])
def test_a_derivative_of_an_order_that_only_the_run_knows(body: str) -> None:
    m = difflang.loads(f"float f64\nfn f(x: f64, n: i32) -> f64 = if n == 0 {{ x }} else {{ {body} }}", name="places")
    with pytest.raises(difflang.DifflangError, match="DL0410"):
        m.f(1.0, np.int32(2))


def test_the_order_may_be_a_size() -> None:
    source = "fn f(x: f64, n: dim) -> f64 = if n == 0 { exp(2 * x) } else { grad(|y| f(y, n - 1))(x) }\n"
    m = difflang.loads(f"float f64\n{source}fn third(x: f64) -> f64 = f(x, 3)\n", name="orders")
    assert float(m.third(0.5)) == pytest.approx(8 * math.e, rel=1e-14)


KINDS = "ABCDE"
ENDS: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "A": ("x * y", lambda x, y: x * y),
    "B": ("x + y", lambda x, y: x + y),
    "C": ("sin(x) * y", lambda x, y: math.sin(x) * y),
    "D": ("x - y * y", lambda x, y: x - y * y),
    "E": ("x * x * y", lambda x, y: x * x * y),
}


def kind(i: int, by: int) -> str:
    return KINDS[(i + by) % len(KINDS)]


def walk_of_kinds() -> str:
    """A function of an enum that calls itself for ten sets of variants, and itself on what it gives."""
    fields = ", ".join(f"{k}(x: f64, y: f64)" for k in KINDS)
    ends = ", ".join(f"{k}(x, y) => {e}" for k, (e, _) in ENDS.items())
    steps = "\n".join(
        f"{k}(x, y) => 0.5 * f(if x > 0.{i} {{ {kind(i, 1)}(y, x) }} else {{ {kind(i, 2)}(x * y, y) }}, n - 1)"
        f" + f({kind(i, 3)}(x, f(if y > x {{ {kind(i, 2)}(x, y) }} else {{ {k}(y, x) }}, n - 2)), n - 2)"
        for i, k in enumerate(KINDS)
    )
    return (
        f"float f64\nenum W {{ {fields} }}\nfn f(w: W, n: i32) -> f64 = if n <= 0 {{ match w {{ {ends} }} }}"
        f" else {{ match w {{\n{steps}\n}} }}\nfn go(x: f64, n: i32) -> f64 = f(A(x, 0.7), n)\n"
    )


def walked(k: str, x: float, y: float, n: int) -> float:
    if n <= 0:
        return ENDS[k][1](x, y)
    i = KINDS.index(k)
    first = walked(kind(i, 1), y, x, n - 1) if x > i / 10 else walked(kind(i, 2), x * y, y, n - 1)
    inner = walked(kind(i, 2), x, y, n - 2) if y > x else walked(k, y, x, n - 2)
    return 0.5 * first + walked(kind(i, 3), x, inner, n - 2)


@pytest.mark.nightly
def test_recursion_over_an_enum_is_one_function_for_all_of_its_variants() -> None:
    """Not one for each set of variants that a call may give: the program does not grow with the number of such sets."""
    m = difflang.loads(walk_of_kinds(), name="kinds")
    for n in range(6):
        assert float(m.go(0.345, n)) == pytest.approx(walked("A", 0.345, 0.7, n), rel=1e-13)
    h = 1e-6
    slope = (walked("A", 0.345 + h, 0.7, 5) - walked("A", 0.345 - h, 0.7, 5)) / (2 * h)
    assert float(m.go.grad()(0.345, 5)) == pytest.approx(slope, rel=1e-7)
    above, below = [float(m.go.grad()(x, 5)) for x in (0.345 + h, 0.345 - h)]
    assert float(m.go.hvp()(0.345, 5, 1.0)) == pytest.approx((above - below) / (2 * h), rel=1e-6)
    assert m.go.ir("optimized", "f64", "i32").count(" = ") < 1000


IN_A_BLOCK = """float f64
fn outer(n: i32, k: f64) -> f64 {
  fn inner(m: i32, x: f64) -> f64 { if m == 0 { k } else { x * inner(m - 1, x) } }
  inner(n, 2.0) + inner(1, 3.0)
}
fn sized(x: f64[n]) -> f64 {
  fn total(y: f64[m]) -> f64 { if m == 0 { 0.0 } else { y[0] + total(y[1..]) } }
  total(x)
}
"""


def test_a_function_in_a_block_calls_itself() -> None:
    m = difflang.loads(IN_A_BLOCK)
    calls = ((m.outer, (3, 1.5), 16.5), (m.outer.grad("k"), (3, 1.5), 11.0), (m.sized, (np.array([1.0, 2.0]),), 3.0))
    for f, arguments, value in calls:
        assert float(f(*arguments)) == float(f.interpret(*arguments)) == value
    undeclared = "fn f(n: i32) -> i32 {\n fn g(m: i32) { if m == 0 { 0 } else { g(m - 1) } }\n g(n)\n}"
    assert codes(undeclared) == [("DL0340", 2)]


def test_a_loop_that_yields_may_call_its_own_function() -> None:
    """A history of what calls give, each of which makes such a history: values and both modes, twice over."""
    program: Any = difflang.loads(
        """float f64
fn tree(x: f64, n: i32) -> f64 {
  if n == 0 { return sin(x) }
  var k = 0
  let h = while k < n {
    k += 1
    if k == 2 { continue }
    yield tree(x * f64(k), n - 1)
  }
  var s = x
  for v in reverse(h) { s = 0.5 * s + v * x }
  s
}
fn ahead(x: f64, n: i32) -> f64 = deriv(|x| tree(x, n))(x)
fn back(x: f64, n: i32) -> f64 = grad(tree)(x, n)
fn bend(x: f64, n: i32) -> f64 = hvp(|x| tree(x, n))(x, 1.0)
""",
        name="tree",
    )

    def tree(x: float, n: int) -> float:
        if n == 0:
            return math.sin(x)
        s = x
        for v in [tree(x * k, n - 1) for k in range(1, n + 1) if k != 2][::-1]:
            s = 0.5 * s + v * x
        return s

    x, h = 0.3, 1e-4
    for n in (0, 1, 3):
        slope = (8 * (tree(x + h, n) - tree(x - h, n)) - (tree(x + 2 * h, n) - tree(x - 2 * h, n))) / (12 * h)
        curve = (tree(x + 10 * h, n) - 2 * tree(x, n) + tree(x - 10 * h, n)) / (100 * h * h)
        for run in (lambda f: f, lambda f: f.interpret):
            assert float(run(program.tree)(x, n)) == pytest.approx(tree(x, n), rel=1e-13)
            assert float(run(program.ahead)(x, n)) == pytest.approx(slope, rel=1e-9)
            assert float(run(program.back)(x, n)) == pytest.approx(float(program.ahead(x, n)), rel=1e-12)
        assert float(program.bend(x, n)) == pytest.approx(curve, rel=1e-4)


ENDING = {
    "each hands over what it does not take": (
        "fn right(x: f64) -> f64 = if x < 0.0 { left(x) } else if x > 5.0 { x } else { right(x + 1.0) }\n"
        "fn left(x: f64) -> f64 = if x >= 0.0 { right(x) } else { -right(-x) }\nfn f(x: f64) -> f64 = right(x)",
        -2.5, -5.5,
    ),
    "a variant is another function": (
        "enum Mode { Even, Odd }\nfn steps(m: Mode, n: i32, k: f64) -> f64 = if n <= 1 { k } else {\n  match m {\n"
        "    Even => if n % 2 == 0 { steps(Even, n // 2, k + 1.0) } else { steps(Odd, n, k) },\n"
        "    Odd => if n % 2 == 0 { steps(Even, n, k) } else { steps(Odd, 3 * n + 1, k + 1.0) },\n  }\n}\n"
        "fn f(x: f64) -> f64 = steps(Even, 7, x)",
        0.0, 16.0,
    ),
    "a value of the file is no argument": (
        "let g = 3.0 * normal(1)[0] - 100.0\nfn up(x: f64, y: f64) -> f64 = if y > 1.0 { down(x) } else { x }\n"
        "fn down(x: f64) -> f64 = if x > 0.0 { up(x, g) } else { 0.5 }\nfn f(x: f64) -> f64 = up(x, 5.0)",
        1.0, 1.0,
    ),
    "a check ends it": (
        'fn g(n: i32) -> i32 {\n  if n < 0 {\n    assert n >= 0, "negative"\n    return g(n)\n  }\n'
        "  if n == 0 { 0 } else { g(n - 1) + 1 }\n}\nfn f(x: f64) -> f64 = x * f64(g(3))",
        2.0, 6.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDING)
def test_what_comes_to_an_end_is_not_taken_for_endless(name: str) -> None:
    source, x, y = ENDING[name]
    f = difflang.loads("float f64\n" + source, name="ending").f
    assert float(f(x)) == float(f.interpret(x)) == y
