"""Writing to every kind of index is NumPy's; derivatives are those of the writes that stay."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import difflang
from support.language import codes

J, K = np.array([3, 0, 3]), np.array([1, 1, 2])
MASK, GRID = np.array([True, False, True, True]), np.arange(20).reshape(4, 5) % 3 == 0
I = 1  # noqa: E741 - the program's name of it
# What is written to, as the program and as NumPy say it; the array is of shape (4, 5, 6).
PLACES: dict[str, Any] = {
    "a[0.. by 2, 0.. by 2]": np.s_[::2, ::2],
    "a[1..4 by 2, .., 1.. by 3]": np.s_[1:4:2, :, 1::3],
    "a[0.. by 2, i]": np.s_[::2, I],
    "a[i, 0..5 by 2, ..2]": np.s_[I, ::2, :2],
    "a[i..i + 2, 0.. by 2]": np.s_[I : I + 2, ::2],
    "a[1..3, k]": np.s_[1:3, K],
    "a[j, 1..3]": np.s_[J, 1:3],
    "a[j, 1.., k]": (J[:, None], np.arange(1, 5), K[:, None]),
    "a[0.. by 2, j]": np.s_[::2, J],
    "a[j, k, 0.. by 2]": np.s_[J, K, ::2],
    "a[.., k, 2..5]": np.s_[:, K, 2:5],
    "a[1.., j, k]": np.s_[1:, J, K],
    "a[i..i + 2, k]": np.s_[I : I + 2, K],
    "a[j, i, ..3]": np.s_[J, I, :3],
    "a[j, .., 1..3]": np.s_[J, :, 1:3],
    "a[2..2, j]": np.s_[2:2, J],
}
MASKS: dict[str, Any] = {
    "a[m]": np.s_[MASK],
    "a[g]": np.s_[GRID],
    "a[m, 1..3]": np.s_[MASK, 1:3],
    "a[m, 0.. by 2]": np.s_[MASK, ::2],
    "a[.., a[0] > 0.0]": None,
    "a[a > 0.0]": None,
    "a[m, .., i]": (MASK, slice(None), I),
}
OPS = {"=": None, "+=": np.add, "*=": np.multiply, "max=": np.maximum, "/=": np.divide}
A = np.random.default_rng(5).normal(size=(4, 5, 6))


def written(a: Any, place: Any, e: Any, op: str) -> Any:
    """NumPy's, each time where a place is named again."""
    result = np.array(a)
    if op == "=":
        result[place] = e
    elif op == "/=":
        result[place] /= e
    else:
        OPS[op].at(result, place, e)  # type: ignore[union-attr]
    return result


@cache
def module(target: str, op: str, shape: tuple[int, ...]) -> Any:
    type = f"f64[{', '.join(map(str, shape))}]" if shape else "f64"
    given = "i: i32, j: i32[3], k: i32[3], m: bool[4], g: bool[4, 5]"
    a = "f64[4, 5, 6]"
    return difflang.loads(
        f"""float f64
fn f(a0: {a}, e: {type}, {given}) -> {a} {{
  var a = a0
  {target} {op} e
  a
}}
fn push(a0: {a}, e: {type}, da: {a}, de: {type}, {given}) -> {a} {{
  let (_, d) = jvp[a0, e](|a0, e| f(a0, e, i, j, k, m, g))(a0, e, da, de)
  d
}}
fn pull(a0: {a}, e: {type}, w: {a}, {given}) -> ({a}, {type}) {{
  let d = grad[a0, e](|a0, e| sum(w * f(a0, e, i, j, k, m, g)))(a0, e)
  (d.a0, d.e)
}}
fn many(a0: f64[2, 4, 5, 6], e: {type}, {given}) -> f64[2, 4, 5, 6] = vmap(|a| f(a, e, i, j, k, m, g))(a0)
""",
        name="assigning",
    )


GIVEN = (np.int32(I), J.astype(np.int32), K.astype(np.int32), MASK, GRID)


@pytest.mark.parametrize("op", ["=", "+=", "*=", "max="])
@pytest.mark.parametrize("target", PLACES)
def test_places(target: str, op: str) -> None:
    """Values as in NumPy, the derivative both ways."""
    place = PLACES[target]
    check(target, op, np.random.default_rng(len(target) + len(op)).normal(size=A[place].shape), place)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("target", MASKS)
def test_masks(target: str, op: str) -> None:
    """Every item that the mask picks becomes the same, or is changed by the same."""
    check(target, op, np.float64(0.7), picked(target))


def picked(target: str) -> Any:
    if MASKS[target] is not None:
        return MASKS[target]
    return (slice(None), A[0] > 0.0) if "0] >" in target else A > 0.0


def check(target: str, op: str, e: Any, place: Any) -> None:
    rng = np.random.default_rng(1)
    program = module(target, op, np.shape(e))
    np.testing.assert_array_equal(program.f.interpret(A, e, *GIVEN), written(A, place, e, op))
    da, w = rng.normal(size=(2, *A.shape))
    de = rng.normal(size=np.shape(e))
    change = difference(lambda h: written(A + h * da, place, e + h * de, op))
    pushed = np.asarray(program.push.interpret(A, e, da, de, *GIVEN))
    np.testing.assert_allclose(pushed, change, rtol=1e-7, atol=1e-8)
    by_a, by_e = program.pull.interpret(A, e, w, *GIVEN)
    back = np.sum(np.asarray(by_a) * da) + np.sum(np.asarray(by_e) * de)
    assert back == pytest.approx(np.sum(w * pushed), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("target", "op"),
    [
        ("a[i, 0..5 by 2, ..2]", "="),
        ("a[j, 1.., k]", "="),
        ("a[i..i + 2, k]", "+="),
        ("a[m, 1..3]", "*="),
        ("a[g]", "="),
    ],
)
def test_compiled_and_in_lanes(target: str, op: str) -> None:
    place = PLACES[target] if target in PLACES else picked(target)
    e = np.random.default_rng(3).normal(size=A[place].shape if target in PLACES else ())
    program = module(target, op, np.shape(e))
    want, w = written(A, place, e, op), np.random.default_rng(4).normal(size=A.shape)
    np.testing.assert_array_equal(program.f(A, e, *GIVEN), want)
    for found, expected in zip(program.pull(A, e, w, *GIVEN), program.pull.interpret(A, e, w, *GIVEN), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    lanes = np.asarray(program.many(np.stack([A, -A]), e, *GIVEN))
    np.testing.assert_array_equal(lanes, [want, written(-A, place, e, op)])


def difference(f: Any) -> Any:
    """What f changes by, to fourth order; its writes go where they went."""
    h = 1e-4
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def test_what_a_mask_leaves_out_has_no_part_in_the_derivative() -> None:
    program: Any = difflang.loads(
        """float f64
fn f(x: f64[n]) -> f64 {
  var y = sqrt(x)
  y[x <= 0.0] = 0.0
  sum(y)
}
fn g(x: f64[n]) -> f64 {
  var y = x
  y[x > 0.0] /= sum(x)
  sum(y^2)
}
""",
        name="masked",
    )
    x = np.array([4.0, 0.0, -1.0])
    for grad in (program.f.grad("x"), program.f.grad("x").interpret):
        np.testing.assert_array_equal(grad(x), [0.25, 0.0, 0.0])
    change = difference(lambda h: np.sum(np.where((y := x + h * np.eye(3)[0]) > 0, y / y.sum(), y) ** 2))
    assert np.asarray(program.g.grad("x")(x))[0] == pytest.approx(change, rel=1e-8)


def test_a_mask_in_a_loop_and_in_a_record() -> None:
    program: Any = difflang.loads(
        """float f64
record Grid { x: f64[4], age: i32[4] }
fn f(x: f64[4], m: bool[3, 4]) -> (f64[4], i32[4]) {
  var g = Grid(x = x, age = fill(4, 0))
  for i in 0..3 {
    g.x[m[i]] *= 2.0
    g.age[m[i]] += 1
  }
  (g.x, g.age)
}
""",
        name="looped",
    )
    m = np.arange(12).reshape(3, 4) % 3 == 0
    x, age = program.f(np.ones(4), m)
    np.testing.assert_array_equal(age, m.sum(axis=0))
    np.testing.assert_array_equal(x, 2.0 ** m.sum(axis=0))


def test_products_of_complex_numbers_at_positions() -> None:
    """Each factor counts where a place is named again; the derivative is that of the loop, also where a factor is 0."""
    program: Any = difflang.loads(
        """float f64
fn f(z: c128[3], w: c128[5], j: i32[5]) -> c128[3] {
  var y = z
  y[j] *= w
  y
}
fn g(z: c128[3], w: c128[5], j: i32[5]) -> c128[3] {
  var y = z
  for i in 0..5 { y[j[i]] *= w[i] }
  y
}
fn slow(z: c128[3], w: c128[5], j: i32[5]) -> c128[3] {
  var y = z
  var read = y[0]
  for i in 0..5 {
    y[j[i]] *= w[i]
    read = y[0]
  }
  y
}
fn loss(y: c128[3]) -> f64 = sum(real(y) * [1.0, 2.0, 3.0]) + sum(imag(y)^2)
fn by_f(z: c128[3], w: c128[5], j: i32[5]) -> (c128[3], c128[5]) {
  let d = grad[z, w](|z, w| loss(f(z, w, j)))(z, w)
  (d.z, d.w)
}
fn by_g(z: c128[3], w: c128[5], j: i32[5]) -> (c128[3], c128[5]) {
  let d = grad[z, w](|z, w| loss(g(z, w, j)))(z, w)
  (d.z, d.w)
}
fn by_slow(z: c128[3], w: c128[5], j: i32[5]) -> (c128[3], c128[5]) {
  let d = grad[z, w](|z, w| loss(slow(z, w, j)))(z, w)
  (d.z, d.w)
}
""",
        name="products",
    )
    rng = np.random.default_rng(2)
    z, w = (rng.normal(size=n) + 1j * rng.normal(size=n) for n in (3, 5))
    w[3] = 0
    j = np.array([1, 0, 1, 0, 1], np.int32)
    want = np.array(z)
    np.multiply.at(want, j, w)
    for f in (program.f, program.f.interpret, program.g, program.slow):
        np.testing.assert_allclose(f(z, w, j), want, rtol=1e-14)
    slow = program.by_slow.interpret(z, w, j)
    for f in (program.by_f, program.by_f.interpret, program.by_g):
        for found, expected in zip(f(z, w, j), slow, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("b[m] = a", "DL0310"),
        ("b[g] = a[0]", "DL0310"),
        ("b[m, m] = 0.0", "DL0313"),
        ("b[m, [0, 1]] = 0.0", "DL0313"),
        ("b[g, 0] = 0.0", "DL0333"),
        ("b[true] = 0.0", "DL0313"),
        ("b[m] max= 1j", "DL0311"),
        ("b = b[m]", "DL0334"),
        ("b[[0, 1], ..] = [1.0, 2.0, 3.0]", "DL0310"),
    ],
)
def test_errors(statement: str, code: str) -> None:
    source = f"fn f(a: f32[n, n], m: bool[n], g: bool[n]) -> f32[n, n] {{\n  var b = a\n  {statement}\n  b\n}}\n"
    found = codes(source.replace("g: bool[n]", "g: bool[n, n]"))
    assert found == [(code, 3)]
