"""Running sums and products, `reduce` and `scan`: against NumPy, JAX's derivatives and closed forms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import difflang
from support.against_jax import check, derivatives
from support.language import answer, codes
from support.values import compare

V = np.array([0.3, -0.7, 1.6, 0.05, -1.2])
A = np.array([[0.3, -0.7, 1.6], [0.05, 2.0, -1.1]])
GIVEN = """let v = [0.3, -0.7, 1.6, 0.05, -1.2]
let a = [[0.3, -0.7, 1.6], [0.05, 2.0, -1.1]]
let e0 = zeros(0)
let e03 = zeros(0, 3)
let one = [2.5]
"""
CUBE = np.sin(np.arange(12.0)).reshape(3, 2, 2)
NOTHING = np.zeros(0)
PAIR = "|(a, b), (c, d)| (a * c, b * c + d)"

VALUES = [
    ("cumsum(v)", np.cumsum(V)),
    ("cumprod(v)", np.cumprod(V)),
    ("cumsum(a, axis = 0)", np.cumsum(A, 0)),
    ("cumprod(a, axis = -1)", np.cumprod(A, 1)),
    ("cumsum(v, reverse = true)", np.cumsum(V[::-1])[::-1]),
    ("cumprod(a, axis = 1, reverse = true)", np.cumprod(A[:, ::-1], 1)[:, ::-1]),
    ("cumsum(e0)", NOTHING),
    ("cumprod(e03, axis = 1)", np.zeros((0, 3))),
    ("cumprod(e03, axis = 0)", np.zeros((0, 3))),
    ("cumprod(one)", np.array([2.5])),
    ("cumsum([3, 4, 5])", np.array([3, 7, 12], np.int32)),
    ("cumprod([3, 0, 5])", np.array([3, 0, 0], np.int32)),
    ("cumprod([0.0, 1.0, 1e200, 1e200])", np.zeros(4)),
    ("cumprod([1e200, 1e200, 0.0])", np.array([1e200, np.inf, np.nan])),
    ("cumsum(f32([0.1, 0.2]))", np.cumsum(np.float32([0.1, 0.2]))),
    ("reduce(|s, x| s + x * x, 1.0, v)", 1 + float(np.sum(V * V))),
    ("reduce(max, -inf, v)", 1.6),
    ("reduce(|s, x| s + 1, 0, v)", np.int32(5)),
    ("reduce(|s, i| 10 * s + i, 0, 1..4)", np.int32(123)),
    ("reduce(|s, (x, y)| s + x * y, 0.0, zip(v, v))", float(V @ V)),
    ("reduce(|s, row| s + row, zeros(3), a)", A.sum(0)),
    ("reduce(|s, x| s * x, 2.0, e0)", 2.0),
    ("scan(|s, x| s + x, 1.0, v)", 1 + np.cumsum(V)),
    ("scan(|s, x| s + x, 1.0, e0)", NOTHING),
    ("scan(|s, row| s * row, ones(3), a)", np.cumprod(A, 0)),
    ("scan(max, 0.0, v)", np.maximum(0, np.maximum.accumulate(V))),
    (f"scan({PAIR}, (1.0, 0.0), zip(v, v))", (np.cumprod(V), None)),
]


@pytest.mark.parametrize(("text", "want"), VALUES, ids=[t for t, _ in VALUES])
def test_value(text: str, want: Any) -> None:
    found = answer(text, GIVEN)
    if isinstance(want, tuple):
        found, want = found[0], want[0]
    compare(found, want)


@pytest.mark.parametrize("n", [*range(10), 16, 17, 31])
def test_as_a_tree_as_one_after_the_other(n: int) -> None:
    """An operation that is associative and not commutative, for every way in which a tree can be uneven."""
    given = f"let x = sin(f64(iota({n})) + 1)\nlet y = cos(f64(iota({n})))\n"
    for name in ("reduce", "scan"):
        in_turn = answer(f"{name}({PAIR}, (1.0, 0.5), zip(x, y))", given)
        tree = answer(f"{name}({PAIR}, (1.0, 0.5), zip(x, y), associative = true)", given)
        compare(tree, in_turn, 1e-12)


def test_a_tree_is_of_logarithmic_depth() -> None:
    """No loop is left, and twice as many items need as many steps more as the level before."""
    module: Any = difflang.loads(
        "fn f(x: f64[n]) -> f64[n] = scan(|a, b| a * b + a, 1.0, x, associative = true)\n", name="tree"
    )

    def equations(n: int) -> int:
        text = module.f.ir("optimized", np.zeros(n))
        assert "= loop " not in text
        assert "= map " not in text
        return text.count("\n")

    counts = [equations(n) for n in (64, 128, 256, 512)]
    assert counts[3] - counts[2] == counts[2] - counts[1] == counts[1] - counts[0]


JAX = [
    ("cumsum(x)", jnp.cumsum, V),
    ("cumsum(x, axis = 0, reverse = true)", lambda x: jax.lax.cumsum(x, 0, reverse=True), A),
    ("cumprod(x)", jnp.cumprod, V),
    ("cumprod(x, axis = 1)", lambda x: jnp.cumprod(x, 1), A),
    ("cumprod(x, axis = 0, reverse = true)", lambda x: jax.lax.cumprod(x, 0, reverse=True), A),
    ("cumprod(x)", jnp.cumprod, np.array([2.5])),
    ("scan(|s, y| sin(s) * y, 0.5, x)", lambda x: swept(x), V),
    ("reduce(|s, y| sin(s) + y^2, 0.5, x)", lambda x: swept(x, lambda s, y: jnp.sin(s) + y * y)[-1], V),
    ("scan(|s, y| s * y, 0.5, x, associative = true)", lambda x: 0.5 * jnp.cumprod(x), V),
    ("reduce(|s, y| s @ y, eye(2), x, associative = true)", lambda x: x[0] @ x[1] @ x[2], CUBE),
]  # fmt: skip


def swept(x: Any, step: Any = lambda s, y: jnp.sin(s) * y) -> Any:
    found, s = [], 0.5
    for y in x:
        s = step(s, y)
        found.append(s)
    return jnp.stack(found)


@pytest.mark.parametrize(("body", "twin", "x"), JAX, ids=[b for b, _, _ in JAX])
def test_derivatives(body: str, twin: Any, x: Any) -> None:
    check(body, twin, x)


ZEROS = [[0.0, 2.0, 3.0, 0.5], [2.0, 0.0, 3.0, -1.0], [0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0], [0.0, -0.0]]


@pytest.mark.parametrize("x", ZEROS, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_running_products_with_zeros_are_exact(x: list[float], reverse: bool) -> None:
    """First and second derivatives are products of the others, to the bit: integers are exact."""
    n = len(x)
    module = derivatives(f"cumprod(x, reverse = {str(reverse).lower()})", (n,))
    jacobian, hessian = np.zeros((n, n)), np.zeros((n, n, n))
    for k in range(n):
        inside = range(k, n) if reverse else range(k + 1)
        for i in inside:
            jacobian[k, i] = np.prod([x[m] for m in inside if m != i])
            for j in inside:
                hessian[k, i, j] = np.prod([x[m] for m in inside if m not in (i, j)]) if i != j else 0.0
    xs = np.array(x)
    for found in (module.forwards(xs), module.backwards(xs), module.backwards.interpret(xs)):
        np.testing.assert_array_equal(found, jacobian)
    second: Any = difflang.loads(
        f"float f64\nfn f(x: f64[{n}]) = cumprod(x, reverse = {str(reverse).lower()})\n"
        f"fn g(x: f64[{n}]) = jacrev(|x| jacrev(f)(x))(x)\nfn h(x: f64[{n}]) = jacfwd(|x| jacrev(f)(x))(x)\n",
        name="second",
    )
    for found in (second.g(xs), second.h(xs), second.g.interpret(xs)):
        np.testing.assert_array_equal(found, hessian)


def test_a_zero_before_a_product_that_overflows() -> None:
    """Grouped as a tree, 0 would meet Inf."""
    module = derivatives("cumprod(x)[..2]", (4,))
    x = np.array([0.0, 2.0, 1e200, 1e200])
    np.testing.assert_array_equal(module.forwards(x), [[1, 0, 0, 0], [2, 0, 0, 0]])


FLOATS = ["bf16", "f16", "f32", "f64"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_every_float(name: str, dtype: str) -> None:
    """Results and gradients have the type of the argument; 16-bit floats are carried in f32."""
    module: Any = difflang.loads(
        f"fn f(x: {dtype}[n]) -> {dtype}[n] = {name}(x)\nfn g(x: {dtype}[n]) -> {dtype}[n] = grad(|x| sum(f(x)))(x)\n",
        name="floats",
    )
    wide: Any = difflang.loads(
        f"fn f(x: f64[n]) -> f64[n] = {name}(x)\nfn g(x: f64[n]) -> f64[n] = grad(|x| sum(f(x)))(x)\n", name="wide"
    )
    x = jnp.asarray([1.5, 0.5, -2.0, 1.25], jnp.dtype({"bf16": "bfloat16", "f16": "float16"}.get(dtype, "float32")))
    with jax.enable_x64(True):
        x = jnp.asarray(np.asarray(x), jnp.float64) if dtype == "f64" else x
    for found, want in ((module.f(x), wide.f), (module.g(x), wide.g)):
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found, np.float64), want(np.asarray(x, np.float64)))


def test_a_check_inside_an_operation() -> None:
    """A failing index is an error with its place, in either kind; on no path it stays silent."""
    for kind in ("", ", associative = true"):
        source = "let t = [1, 2]\nfn f(x: i32[n]) -> i32 = reduce(|s, i| s + t[i - i] * i, 0, x" + kind + ")\n"
        assert codes(f"{source}print(f([0, 1]))") == []
        bad = "let t = [1, 2]\nfn f(x: i32[n]) -> i32 = reduce(|s, i| t[s + i], 0, x" + kind + ")\nprint(f([0, 5]))\n"
        assert codes(bad) == [("DL0902", 2)]


WRONG = [
    ("reduce(|s, x| [s, x], 0.0, v)", "DL0304"),
    ("reduce(|s, x| [s, x], 0.0, v, associative = true)", "DL0304"),
    ("reduce(|s, x| s + sum(x), 0.0, a, associative = true)", "DL0304"),
    ("reduce(|s| s, 0.0, v)", "DL0319"),
    ("reduce(0.0, |s, x| s, v)", "DL0320"),
    ("scan(|s, x| s + x, 0.0, 1.0)", "DL0329"),
    ("scan(|s, x| s + x, 0.0, v, associative = 1)", "DL0305"),
    ("scan(|s, x| s + x, 0.0)", "DL0319"),
    ("cumsum(a)", "DL0335"),
    ("cumsum(a, axis = 2)", "DL0335"),
    ("cumsum(1.0)", "DL0335"),
    ("cumprod([true])", "DL0311"),
]


@pytest.mark.parametrize(("text", "code"), WRONG, ids=[t for t, _ in WRONG])
def test_what_is_refused(text: str, code: str) -> None:
    assert codes(f"{GIVEN}let x = {text}\n") == [(code, 6)]
