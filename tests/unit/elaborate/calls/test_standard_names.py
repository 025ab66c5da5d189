"""The standard names against NumPy, SciPy and Python's math: scalars, arrays, axes, empty and single axes, f32 and f64."""

# ruff: noqa: E501 - a row of a table, or a program, is a line

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special as sp

from support.language import answer
from support.values import compare

V = np.array([0.3, -0.7, 1.6, 0.05])
P = np.abs(V) + 0.1
U = V / 2
A = np.array([[0.3, -0.7, 1.6], [0.05, 2.0, -1.1]])
GIVEN = """let v = [0.3, -0.7, 1.6, 0.05]
let p = abs(v) + 0.1
let u = v / 2
let a = [[0.3, -0.7, 1.6], [0.05, 2.0, -1.1]]
let e0 = zeros(0)
let e03 = zeros(0, 3)
let one = [2.5]
"""
M = np.array([[2.0, 0.5], [0.5, 1.0]])

ELEMENTWISE = {
    "abs": (np.abs, V), "sign": (np.sign, V), "floor": (np.floor, V), "ceil": (np.ceil, V), "round": (np.round, V), "trunc": (np.trunc, V),
    "sqrt": (np.sqrt, P), "cbrt": (np.cbrt, V), "exp": (np.exp, V), "exp2": (np.exp2, V), "expm1": (np.expm1, V), "log": (np.log, P),
    "log2": (np.log2, P), "log10": (np.log10, P), "log1p": (np.log1p, P), "sin": (np.sin, V), "cos": (np.cos, V), "tan": (np.tan, V),
    "asin": (np.arcsin, U), "acos": (np.arccos, U), "atan": (np.arctan, V), "sinh": (np.sinh, V), "cosh": (np.cosh, V), "tanh": (np.tanh, V),
    "asinh": (np.arcsinh, V), "acosh": (lambda x: np.arccosh(x + 1), P), "atanh": (np.arctanh, U), "sigmoid": (sp.expit, V),
    "relu": (lambda x: np.maximum(x, 0), V), "softplus": (lambda x: np.logaddexp(0, x), V), "gelu": (lambda x: x * sp.ndtr(x), V),
    "erf": (sp.erf, V), "erfc": (sp.erfc, V), "erfinv": (sp.erfinv, U), "gamma": (sp.gamma, P), "lgamma": (sp.gammaln, P),
    "digamma": (sp.digamma, P),
    "sinc": (np.sinc, V), "isnan": (np.isnan, V), "isinf": (np.isinf, V), "isfinite": (np.isfinite, V),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    f, xs = ELEMENTWISE[name]
    text = {id(V): "v", id(P): "p", id(U): "u"}[id(xs)]
    arg = f"{text} + 1" if name == "acosh" else text
    compare(answer(f"{name}({arg})", GIVEN), f(xs), 1e-12)
    compare(answer(f"{name}(({arg})[2])", GIVEN), f(xs)[2], 1e-12)
    compare(answer(f"{name}(f32({arg}))", GIVEN), f(xs).astype(np.float32 if f(xs).dtype == float else bool), 3e-6)
    compare(answer(f"{name}(e0)", GIVEN), f(np.zeros(0)))


VALUES = [
    ("atan2(v, p)", np.arctan2(V, P)), ("hypot(v, p)", np.hypot(V, P)), ("xlogy(p, p)", sp.xlogy(P, P)), ("logaddexp(v, p)", np.logaddexp(V, P)),
    ("xlogy(0.0, 0.0)", 0.0), ("max(v, 0.1)", np.maximum(V, 0.1)), ("min(v, p)", np.minimum(V, P)), ("clamp(v, 0, 1)", np.clip(V, 0, 1)),
    ("where(v > 0, v, -p)", np.where(V > 0, V, -P)), ("where(v > 0, 1, 0)", np.where(V > 0, 1, 0).astype(np.int32)), ("pi", math.pi), ("e", math.e), ("-inf", -math.inf),
    ("isnan(nan)", True), ("zeros(2, 3)", np.zeros((2, 3))), ("ones(2)", np.ones(2)), ("fill(2, 3, 1.5)", np.full((2, 3), 1.5)), ("fill(2, true)", np.array([True, True])),
    ("eye(3)", np.eye(3)), ("iota(4)", np.arange(4, dtype=np.int32)), ("linspace(0, 1, 5)", np.linspace(0, 1, 5)), ("linspace(2, 3, 1)", np.linspace(2, 3, 1)),
    ("linspace(0, 1, 0)", np.zeros(0)), ("zeros_like(a)", np.zeros((2, 3))), ("ones_like(a)", np.ones((2, 3))), ("iota(0)", np.zeros(0, np.int32)), ("eye(0)", np.zeros((0, 0))),
    ("reshape(a, [3, 2])", A.reshape(3, 2)), ("reshape(a, [6])", A.reshape(6)), ("reshape(a, [-1, 2])", A.reshape(-1, 2)), ("transpose(a)", A.T),
    ("transpose(reshape(a, [1, 2, 3]))", A.reshape(1, 2, 3).T), ("transpose(reshape(a, [1, 2, 3]), (1, 0, 2))", A.reshape(1, 2, 3).transpose(1, 0, 2)),
    ("concat(v, p)", np.concatenate([V, P])), ("concat(a, a, axis = 1)", np.concatenate([A, A], 1)), ("concat(a, a, axis = -1)", np.concatenate([A, A], 1)),
    ("concat(e0, v, e0)", V), ("stack(v, p)", np.stack([V, P])), ("stack(v, p, axis = 1)", np.stack([V, P], 1)), ("[v, p]", np.stack([V, P])), ("[[v, p], [p, v]]", np.stack([[V, P], [P, V]])),
    ("reverse(v)", V[::-1]), ("reverse(a, axis = 1)", A[:, ::-1]), ("reverse(a)", A[::-1]), ("pad(v, 1, 2)", np.pad(V, (1, 2))), ("pad(a, [1, 0], [0, 2], value = 9)", np.pad(A, ((1, 0), (0, 2)), constant_values=9)),
    ("outer(v, p)", np.outer(V, P)), ("dot(v, p)", V @ P), ("dot(a, a)", float(np.sum(A * A))), ("v @ p", V @ P), ("a @ v[..3]", A @ V[:3]), ("v[..2] @ a", V[:2] @ A), ("a @ transpose(a)", A @ A.T),
    ("[a, a] @ transpose(a)", np.stack([A, A]) @ A.T), ("a @ [transpose(a), transpose(a)]", A @ np.stack([A.T, A.T])), ("[a, a] @ [transpose(a), transpose(a)]", np.stack([A, A]) @ np.stack([A.T, A.T])),
    ("sum(e0)", 0.0), ("prod(e0)", 1.0), ("sum(e03, axis = 0)", np.zeros(3)), ("sum(e03, axis = 1)", np.zeros(0)), ("all(e0 > 1)", True), ("any(e0 > 1)", False), ("norm(e0)", 0.0), ("max(e03, axis = 1)", np.zeros(0)),
    ("e03 @ v[..3]", np.zeros(0)), ("transpose(e03) @ e03", np.zeros((3, 3))), ("mean(one)", 2.5), ("std(one)", 0.0), ("softmax(one)", np.array([1.0])), ("logsumexp(one)", 2.5), ("max(one)", 2.5), ("argmax(one)", np.int32(0)),
    ("argmax(v)", np.int32(2)), ("argmin(v)", np.int32(1)), ("argmax(a, axis = 1)", np.argmax(A, 1).astype(np.int32)), ("argmin(a, axis = 0)", np.argmin(A, 0).astype(np.int32)), ("argmax([1, 1])", np.int32(0)),
    ("softmax(v)", sp.softmax(V)), ("softmax(a, axis = 1)", sp.softmax(A, 1)), ("log_softmax(a, axis = 0)", sp.log_softmax(A, 0)), ("softmax([1000.0, 1000.0])", np.array([0.5, 0.5])), ("logsumexp([1000.0, 1000.0])", 1000 + math.log(2)),
    ("logsumexp([-inf, -inf])", -math.inf), ("norm(a)", float(np.linalg.norm(A))), ("norm(a, axis = 1)", np.linalg.norm(A, axis=1)), ("(7 // 2, -7 // 2, 7 % 3, -7 % 3)", (3, -4, 1, 2)), ("(7.5 // 2, -7.5 % 2)", (3.0, 0.5)),
    ("bit_and(12, 10) + bit_or(12, 10) + bit_xor(12, 10)", 8 + 14 + 6), ("shift_left(3, 2)", 12), ("map(|x| x^2, v)", V**2), ("vmap(|x, y| x * y)(v, p)", V * P), ("i32(-2.9)", -2), ("f64(true)", 1.0), ("bool(2)", True),
    ("hypot([inf, nan, nan, -inf], [nan, -inf, 1.0, 2.0])", np.array([np.inf, np.inf, np.nan, np.inf])), ("xlogy([0.0, 0.0, 0.0], [nan, inf, -1.0])", np.array([np.nan, 0, 0])),
    ("digamma([0.0, -0.0, -1.0])", np.array([-np.inf, np.inf, np.nan])), ("digamma(f32([0.0, -0.0]))", np.array([-np.inf, np.inf], np.float32)),
    ("2 ^ 10", 1024), ("v.sum()", V.sum()), ("v |> sum", V.sum()), ("(-2.0) ^ 3", -8.0), ("2.0 ^ -2", 0.25), ("p ^ v", P**V), ("round(2.5) + round(3.5)", 6.0), ("max(nan, 1.0)", math.nan),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[t for t, _ in VALUES])
def test_value(text: str, value: object) -> None:
    compare(answer(text, GIVEN), value)


REDUCTIONS = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "std": np.std, "min": np.min, "max": np.max,
    "norm": lambda x, axis=None, keepdims=False: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)), "logsumexp": sp.logsumexp,
}  # fmt: skip
AXES = [("", None, False), (", axis = 0", 0, False), (", axis = 1", 1, False), (", axis = -1", -1, False), (", axis = (0, 2)", (0, 2), False),
        (", axis = 1, keepdims = true", 1, True), (", keepdims = true", None, True), (", axis = (1, 2), keepdims = true", (1, 2), True)]  # fmt: skip


@pytest.mark.parametrize(("text", "axis", "keep"), AXES, ids=[t for t, _, _ in AXES])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str, text: str, axis: object, keep: bool) -> None:
    xs = np.stack([A, A * 2 - 0.3, A**2])
    compare(
        answer(f"{name}([a, a * 2 - 0.3, a^2]{text})", GIVEN), REDUCTIONS[name](xs, axis=axis, keepdims=keep), 1e-12
    )


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize(("text", "axis", "keep"), AXES[:4] + AXES[5:7])
def test_reduction_of_bools(name: str, text: str, axis: object, keep: bool) -> None:
    compare(answer(f"{name}(a > -0.8{text})", GIVEN), getattr(np, name)(A > -0.8, axis=axis, keepdims=keep))


def test_the_length_of_a_number_is_its_absolute_value() -> None:
    """Over no axes there is nothing to sum, and all the same a sign to lose."""
    found = answer(
        "(norm(-2.0), norm([-2.0, 3.0], axis = ()), grad(norm)(-2.0), grad(norm)(0.0), norm(complex(-2.0, 0.0)))"
    )
    assert [np.asarray(x).tolist() for x in found] == [2.0, [2.0, 3.0], -1.0, 0.0, 2.0]
