"""Loops that only write into arrays: one scatter and no loop, what the loop gives, its derivatives, its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from support.language import answer, codes

SIZES = [(0, 3), (1, 1), (7, 3), (40, 5), (40, 1)]
# The loop, the scatter it becomes, and the same with `s` read and carried on, which keeps it a loop.
LOOPS = {
    "+=": ("h[b[i]] += sin(x[i])", "scatter_add"),
    "-=": ("h[b[i]] -= x[i]^2", "scatter_add"),
    "max=": ("h[b[i]] max= x[i]", "scatter_max"),
    "min=": ("h[b[i]] min= 2 * x[i]", "scatter_min"),
    "*=": ("h[b[i]] *= x[i] + 0.3", "scatter_mul"),
    "=": ("h[b[i]] = exp(x[i])", "scatter"),
    "two places": ("let u = x[i]^2\n h[b[i]] += u\n h[(b[i] + 1) % k] += 1 - u", "scatter_add"),
    "two places in order": ("h[b[i]] = x[i]\n h[(b[i] + 1) % k] = 2 * x[i]", "scatter"),
    "two places, the greatest": ("h[b[i]] max= x[i]\n h[(b[i] + 1) % k] max= 1.5 * x[i]", "scatter_max"),
    "a loop inside": ("for j in 0..2 { h[(b[i] + j) % k] += x[i] * f64(j + 1) }", "scatter_add"),
    "a loop inside, in order": ("for j in 0..2 { h[(b[i] + j) % k] = x[i] * f64(j + 1) }", "scatter"),
    "a variable inside": ("var s = x[i]\n for _ in 0..3 { s = sin(s) + 1 }\n h[b[i]] *= s", "scatter_mul"),
    "a loop that yields inside": ("let ys = for j in 0..3 { yield x[i] * f64(j) }\n h[b[i]] += sum(ys)", "scatter_add"),
    "a branch": ("if x[i] > 0 { h[b[i]] += sqrt(x[i]) }", "scatter_add"),
    "a branch of two sides": ("if x[i] > 0 { h[b[i]] *= x[i] } else { h[(b[i] + 1) % k] *= x[i]^2 }", "scatter_mul"),
    "a branch, the last write": ("h[b[i]] = x[i]\n if x[i] < 0 { let u = 2 * x[i]\n h[b[i]] = u }", "scatter"),
    "a branch, the greatest": ("if x[i] < 0.5 { h[b[i]] max= x[i] } else if x[i] < 1 { h[0] max= 0.7 }", "scatter_max"),
    "a branch in a loop": ("for j in 0..3 { if j != 1 { h[(b[i] + j) % k] += x[i] * f64(j) } }", "scatter_add"),
    "a step left early": ("if x[i] < 0 { continue }\n h[b[i]] += sqrt(x[i])", "scatter_add"),
    "positions": ("h[[b[i], b[i], 0]] += [x[i], 2.0, x[i]^2]", "scatter_add"),
}


SOURCE = """float f64
fn f(x: f64[n], b: i32[n], h0: f64[k]) -> f64[k] {
  var h = h0
  var spoilt = 0.0
  for i in 0..n {
    BODY
  }
  h
}
fn energy(x: f64[n], b: i32[n], h0: f64[k]) -> f64 {
  let y = f(x, b, h0)
  sum(for j => y[j] * (1.0 + f64(j))) + 0.5 * sum(y^2)
}
fn g(x: f64[n], b: i32[n], h0: f64[k]) -> (f64[n], f64[k]) {
  (grad[x](energy)(x, b, h0), grad[h0](energy)(x, b, h0))
}
fn push(x: f64[n], b: i32[n], h0: f64[k], v: f64[n]) -> f64[k] {
  let (_, d) = jvp[x](f)(x, b, h0, v)
  d
}
fn hess(x: f64[n], b: i32[n], h0: f64[k]) -> f64[n, n] = hessian(energy)(x, b, h0)
"""


def source(body: str, *, loop: bool) -> str:
    """A function around a body. With `loop` it also reads what it writes, and so runs in turn."""
    return SOURCE.replace("BODY", f"{body}\n    spoilt = h[0]" if loop else body)


def data(n: int, k: int, seed: int = 3) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.permutation(n) / max(n, 1) * 4 - 2  # no ties, one exact zero in a while
    return x, rng.integers(0, k, n).astype(np.int32), rng.normal(size=k)


@pytest.fixture(scope="module")
def modules() -> dict[str, tuple[Any, Any]]:
    return {
        name: (
            difflang.loads(source(body, loop=False), name="at_once"),
            difflang.loads(source(body, loop=True), name="in_turn"),
        )
        for name, (body, _) in LOOPS.items()
    }


@pytest.mark.parametrize("name", LOOPS)
def test_it_is_one_scatter_and_no_loop(name: str, modules: dict[str, tuple[Any, Any]]) -> None:
    at_once, in_turn = modules[name]
    body, scatter = LOOPS[name]
    given = data(7, 3)
    text = at_once.f.ir("optimized", *given)
    assert text.count(f"= {scatter} ") == 1
    inner = ("var s" in body) + ("yield" in body)
    assert text.count("= loop ") == inner
    assert "= loop " in in_turn.f.ir("ir", *given)
    assert inner or "= loop " not in at_once.g.ir("optimized", *given)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", LOOPS)
def test_it_gives_what_the_loop_gives(name: str, sizes: tuple[int, int], modules: dict[str, tuple[Any, Any]]) -> None:
    """Values, gradients and tangents, interpreted, on random positions with duplicates and places that none reaches."""
    at_once, in_turn = modules[name]
    x, b, h0 = data(*sizes)
    v = np.cos(np.arange(float(sizes[0])))
    for f, args in (("f", (x, b, h0)), ("g", (x, b, h0)), ("push", (x, b, h0, v))):
        found, want = getattr(at_once, f).interpret(*args), getattr(in_turn, f).interpret(*args)
        for a, b_ in zip(*[y if isinstance(y, tuple) else (y,) for y in (found, want)], strict=True):
            np.testing.assert_allclose(a, b_, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", LOOPS)
def test_compiled_and_to_second_order(name: str, modules: dict[str, tuple[Any, Any]]) -> None:
    at_once, in_turn = modules[name]
    given = data(7, 3)
    want = in_turn.hess.interpret(*given)
    for found in (at_once.hess(*given), at_once.hess.interpret(*given)):
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(at_once.f(*given), in_turn.f.interpret(*given), rtol=1e-12)
    for a, b in zip(at_once.g(*given), in_turn.g.interpret(*given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


TIES = """float f64
fn f(x: f64[n], b: i32[n]) -> f64[2] {
  var h = zeros(2)
  for i in 0..n { h[b[i]] OP= x[i] }
  h
}
fn g(x: f64[n], b: i32[n]) -> f64[n] = grad(|x| sum(f(x, b)))(x)
"""


@pytest.mark.parametrize(
    ("op", "x", "want"),
    [
        ("max", [1.0, 3.0, 3.0, -1.0], [0.0, 1.0, 0.0, 0.0]),
        ("max", [0.0, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0]),
        ("max", [np.nan, 2.0, np.nan, 0.5], [0.0, 1.0, 0.0, 1.0]),
        ("min", [-1.0, -1.0, -1.0, -2.0], [1.0, 0.0, 0.0, 1.0]),
        ("", [1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 1.0, 1.0]),
    ],
)
def test_ties_go_to_the_earlier_and_the_last_write_stays(op: str, x: list[float], want: list[float]) -> None:
    module: Any = difflang.loads(TIES.replace("OP=", f"{op}=" if op else "="), name="ties")
    xs, b = np.array(x), np.array([0, 0, 0, 1], np.int32)
    for found in (module.g(xs, b), module.g.interpret(xs, b)):
        np.testing.assert_array_equal(found, want)


def test_products_with_zeros_are_exact() -> None:
    module: Any = difflang.loads(
        "float f64\nfn f(x: f64[n], b: i32[n]) -> f64 {\n var h = fill(3, 2.0)\n for i in 0..n { h[b[i]] *= x[i] }\n"
        " sum(h)\n}\nfn g(x: f64[n], b: i32[n]) -> f64[n] = grad(f)(x, b)\n"
        "fn hh(x: f64[n], b: i32[n]) -> f64[n, n] = hessian(f)(x, b)\n",
        name="zeros",
    )
    x, b = np.array([0.0, 3, 5, 0, 0, 7]), np.array([0, 0, 0, 1, 1, 1], np.int32)
    second = np.zeros((6, 6))
    second[0, 1] = second[1, 0] = 10
    second[0, 2] = second[2, 0] = 6
    second[3, 4] = second[4, 3] = 14
    for g, h in ((module.g(x, b), module.hh(x, b)), (module.g.interpret(x, b), module.hh.interpret(x, b))):
        np.testing.assert_array_equal(g, [30, 0, 0, 0, 0, 0])
        np.testing.assert_array_equal(h, second)


ITEMS = [
    ("for i in 0..n { y[i] = sin(x[i]) }", lambda x, y: np.sin(x)),
    ("for i in 0..n { y[i] += x[i] }", lambda x, y: y + x),
    ("for i in 0..n { y[i] *= x[i] }", lambda x, y: y * x),
    ("for i in 0..n { y[i] max= x[i] }", lambda x, y: np.maximum(y, x)),
    ("for i in 1..n { y[i] = x[i - 1] }", lambda x, y: np.concatenate([y[:1], x[:-1]])),
    ("for i in 0..n - 1 { y[i + 1] -= x[i] }", lambda x, y: y - np.concatenate([[0], x[:-1]])),
]


@pytest.mark.parametrize(("loop", "want"), ITEMS, ids=[t for t, _ in ITEMS])
def test_item_by_item_is_a_block(loop: str, want: Any) -> None:
    """Where step i writes item i there is no scatter either."""
    module: Any = difflang.loads(
        f"float f64\nfn f(x: f64[n], y0: f64[n]) -> f64[n] {{\n var y = y0\n {loop}\n y\n}}\n", name="b"
    )
    x, y = np.array([0.3, -0.4, 1.5, 0.2]), np.array([1.0, -1.0, 0.5, 0.25])
    np.testing.assert_allclose(module.f(x, y), want(x, y), rtol=1e-15)
    text = module.f.ir("optimized", x, y)
    assert "scatter" not in text
    assert "loop " not in text


ROWS = """float f64
fn f(x: f64[n, 3], b: i32[n]) -> (f64[4, 3], f64[3, 4]) {
  var h = zeros(4, 3)
  var t = zeros(3, 4)
  for i in 0..n {
    h[b[i]] += x[i]
    for j in 0..3 { t[j, b[i]] max= x[i, j] }
  }
  (h, t)
}
"""


def test_rows_and_several_indices() -> None:
    module: Any = difflang.loads(ROWS, name="rows")
    x, b = np.sin(np.arange(30.0)).reshape(10, 3), np.arange(10, dtype=np.int32) % 4
    rows, most = np.zeros((4, 3)), np.zeros((3, 4))
    np.add.at(rows, b, x)
    for i in range(10):
        most[:, b[i]] = np.maximum(most[:, b[i]], x[i])
    for found in (module.f(x, b), module.f.interpret(x, b)):
        np.testing.assert_allclose(found[0], rows, rtol=1e-14)
        np.testing.assert_array_equal(found[1], most)
    text = module.f.ir("optimized", x, b)
    assert (text.count("= scatter_add "), text.count("= scatter_max "), text.count("= loop ")) == (1, 1, 0)


IN_TURN = {
    "it is read": "for i in 0..n { h[b[i]] += h[0] }",
    "its size may be asked, not its items": "for i in 0..n { h[b[i]] += sum(h) }",
    "it is read in an index": "for i in 0..n { h[i32(h[0])] += x[i] }",
    "another variable goes along": "var s = 0.0\n for i in 0..n { s += x[i]\n h[b[i]] += s }",
    "two operations": "for i in 0..n { h[b[i]] += x[i]\n h[0] *= 2 }",
    "it is read in a branch": "for i in 0..n { if h[0] > 0 { h[b[i]] += x[i] } }",
    "a quotient": "for i in 0..n { h[b[i]] /= x[i] }",
    "a run-time length": "for i in 0..b[0] { h[b[i]] += x[i] }",
    "it is left": "for i in 0..n { h[b[i]] += x[i]\n if x[i] > 9 { break } }",
}


@pytest.mark.parametrize("name", IN_TURN)
def test_what_stays_a_loop(name: str) -> None:
    module: Any = difflang.loads(
        f"float f64\nfn f(x: f64[n], b: i32[n]) -> f64[3] {{\n var h = fill(3, 0.5)\n {IN_TURN[name]}\n h\n}}\n",
        name="stays",
    )
    x, b = np.array([0.5, 1.5, -0.25]), np.array([2, 0, 0], np.int32)
    assert "= loop " in module.f.ir("optimized", x, b)
    np.testing.assert_allclose(module.f(x, b), module.f.interpret(x, b))


def test_one_that_would_need_too_much_room_stays_a_loop() -> None:
    """A product of matrices by three loops: all its terms at once would take a cube of numbers."""
    body = "for i in 0..n { for j in 0..n { for k in 0..n { c[i, j] += a[i, k] * a[k, j] } } }"
    module: Any = difflang.loads(
        f"float f64\nfn f(a: f64[n, n]) -> f64[n, n] {{\n var c = zeros(n, n)\n {body}\n c\n}}\n", name="cube"
    )
    small, large = module.f.ir("optimized", np.zeros((5, 5))), module.f.ir("optimized", np.zeros((400, 400)))
    assert "= loop " not in small
    assert large.count("= loop ") == 1
    a = np.sin(np.arange(25.0)).reshape(5, 5)
    np.testing.assert_allclose(module.f(a), a @ a, rtol=1e-12, atol=1e-14)


FAILS = (
    "fn f(x: f32[n], b: i32[n]) -> f32[3] {\n  var h = zeros(3)\n  for i in 0..n {\n    h[b[i]] OP= x[i]\n  }\n  h\n}\n"
)


@pytest.mark.parametrize("op", ["+", "-", "*", "max", "min", ""])
def test_an_index_out_of_range_is_the_error_it_was(op: str) -> None:
    """The first step that fails is the one reported, with its index."""
    program = FAILS.replace("OP=", f"{op}=")
    assert codes(program + "print(f([1.0, 2.0], [0, 2]))") == []
    module: Any = difflang.loads(program, name="fails")
    x = np.ones(4, np.float32)
    for b, index in (([0, 5, -7, 1], 5), ([0, -7, 5, 1], -7), ([3, 3, 9, 1], 3)):
        for f in (module.f, module.f.interpret):
            with pytest.raises(difflang.IndexFailure, match=f"index {index} is out of range"):
                f(x, np.array(b, np.int32))


def test_the_first_failure_of_the_first_step_that_fails() -> None:
    """Of two checks in the body, as the loop meets them: not the one that stands last."""
    program = (
        "fn f(b: i32[n], c: i32[n]) -> f32[3] {\n  var h = zeros(3)\n  for i in 0..n {\n"
        "    h[b[i]] += 1.0\n    h[c[i]] += 1.0\n  }\n  h\n}\n"
    )
    assert codes(program + "print(f([0, 9], [8, 0]))") == [("DL0902", 5)]
    assert codes(program + "print(f([9, 0], [0, 8]))") == [("DL0902", 4)]
    assert codes(program + "print(f([9, 0], [8, 0]))") == [("DL0902", 4)]


def test_an_index_that_no_step_meets_is_no_error() -> None:
    """A check on a side that is not taken is not there."""
    program = (
        "fn f(x: f32[n], b: i32[n]) -> f32[3] {\n  var h = zeros(3)\n  for i in 0..n {\n"
        "    if 0 <= b[i] < 3 { h[b[i]] += x[i] }\n    if x[i] > 1 { h[b[i]] -= 1 }\n  }\n  h\n}\n"
    )
    assert codes(program + "print(f([1.0, 0.5], [7, -1]))") == []
    assert codes(program + "print(f([1.0, 1.5], [7, -1]))") == [("DL0902", 5)]
    module: Any = difflang.loads(program, name="filtered")
    assert "= loop " not in module.f.ir("optimized", np.ones(4, np.float32), np.zeros(4, np.int32))


def test_draws_in_the_body_are_those_of_the_loop() -> None:
    """The same random numbers as when the loop runs in turn."""
    body = "for i in 0..6 { h[i % 3] += normal() SPOILT }\n h"
    found = [
        answer(
            "f()",
            f"fn f() -> f64[3] {{\n var h = zeros(3)\n var s = 0.0\n {body.replace('SPOILT', spoilt)}\n}}\n",
            seed=4,
        )
        for spoilt in ("", "\n s = h[0]")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-14)


UPDATES = [
    ("h[[0, 2, 0]] max= [3.0, 0.1, 2.0]", [3.0, 1.0, 1.0]),
    ("h[[0, 2, 0]] min= [0.5, 0.1, 0.25]", [0.25, 1.0, 0.1]),
    ("h[[0, 2, 0]] *= [3.0, 0.1, 2.0]", [6.0, 1.0, 0.1]),
    ("h[[0, 2, 0]] += [3.0, 0.1, 2.0]", [6.0, 1.0, 1.1]),
    ("h[[0, 2, 0]] = [3.0, 0.1, 2.0]", [2.0, 1.0, 0.1]),
]


@pytest.mark.parametrize(("update", "want"), UPDATES, ids=[u for u, _ in UPDATES])
def test_positions_that_name_a_place_again(update: str, want: list[float]) -> None:
    found = answer("f()", f"fn f() -> f64[3] {{\n var h = ones(3)\n {update}\n h\n}}\n")
    np.testing.assert_allclose(found, want, rtol=1e-15)
