"""Where no derivative exists: every line of the table of `docs/conventions.md`, both ways round, on both engines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difflang.execution.engine import Engine
from support.language import INTERPRETER, answer, codes

pytestmark = pytest.mark.as_users

PAGE = Path(__file__).parents[1] / "docs" / "conventions.md"
INF, NAN = math.inf, math.nan
THIRD = 1.0 / 3.0


@dataclass(frozen=True, slots=True)
class Case:
    """An expression of x, y, z, where they are, and the derivative in each; `before` are declarations."""

    expression: str
    at: tuple[float, ...]
    want: tuple[float, ...]
    before: str = ""

    def __str__(self) -> str:
        return f"{self.expression} at {self.at}"


GREATEST = """
fn greatest(a: f64[n]) -> f64 {
  var m = -inf
  for v in 0..n { m max= a[v] }
  m
}
fn halvings(x: f64) -> f64 {
  var y = x
  while y > 1.0 { y = y / 2.0 }
  y
}
fn written(x: f64, y: f64) -> f64 {
  var a: f64[3] = zeros(3)
  a[[1, 1]] = [x, y]
  sum(a * [1.0, 10.0, 100.0])
}
fn added(x: f64, y: f64) -> f64 {
  var a: f64[3] = [x, 0.0, 0.0]
  a[[1, 1]] += [x, y]
  sum(a * [1.0, 10.0, 100.0])
}
fn multiplied(x: f64, y: f64) -> f64 {
  var a: f64[2] = [1.0, 1.0]
  a[[1, 1]] *= [x, y]
  a[1]
}
fn second(x: f64, y: f64, z: f64) -> f64 {
  let (greatest, places) = top_k([x, y, z], 2)
  greatest[1]
}
fn logarithm(x: f64) -> f64 {
  let (sign, size) = slogdet([[x]])
  size
}
fn spectrum(x: f64, y: f64) -> f64 {
  let (w, v) = eigh([[x, y], [y, x]])
  sum(w^2)
}
fn turned(x: f64, y: f64) -> f64 {
  let (w, v) = eigh([[complex(x, 0.0), complex(0.0, y)], [complex(0.0, -y), complex(0.0, 0.0)]])
  imag(v[1, 1] * conj(v[0, 1]))
}
fn leaning(x: f64, y: f64) -> f64 {
  let (u, s, v) = svd([[complex(x, 0.0), complex(0.0, y)], [complex(0.0, 0.0), complex(3.0, 0.0)]])
  imag(u[0, 0] * conj(u[1, 0]))
}
fn corner(x: f64, y: f64) -> f64 {
  let (q, r) = qr([[complex(x, y)]])
  real(r[0, 0])^2 + imag(r[0, 0])
}
fn direction(x: f64) -> f64 {
  let (w, v) = eigh([[x, 0.0], [0.0, 1.0]])
  v[0, 0]
}
fn nuclear(x: f64, y: f64) -> f64 {
  let (u, s, vt) = svd([[x, 0.0], [0.0, y]])
  sum(s)
}
fn untouched(x: f64, y: f64) -> f64 {
  var a: f64[2] = [x, x]
  a[[1, 1]] += [y, y]
  a[0]
}
"""

# The first cell of each line of the table, and programs that stand on it.
LINES: dict[str, list[Case]] = {
    "`abs`, `relu`, `norm`, `hypot`, `std` at 0": [
        Case("abs(x)", (0.0,), (0.0,)),
        Case("abs(x)", (-0.0,), (0.0,)),
        Case("relu(x)", (0.0,), (0.0,)),
        Case("norm([x, y])", (0.0, 0.0), (0.0, 0.0)),
        Case("hypot(x, y)", (0.0, 0.0), (0.0, 0.0)),
        Case("std([x, y, z])", (2.0, 2.0, 2.0), (0.0, 0.0, 0.0)),
    ],
    "`max(x, y)` at `x = y`, `max` of a vector with ties": [
        Case("max(x, y)", (1.0, 1.0), (0.5, 0.5)),
        Case("min(x, y)", (1.0, 1.0), (0.5, 0.5)),
        Case("max(x, 0.0)", (0.0,), (0.5,)),
        Case("max([x, y, z])", (1.0, 1.0, 1.0), (THIRD, THIRD, THIRD)),
        Case("max([x, y, z])", (1.0, 1.0, 0.0), (0.5, 0.5, 0.0)),
    ],
    "`a[i] max= e`": [Case("greatest([x, y, z])", (1.0, 3.0, 3.0), (0.0, 1.0, 0.0))],
    "`clamp` at a bound": [
        Case("clamp(x, 0.0, 1.0)", (1.0,), (1.0,)),
        Case("clamp(x, 0.0, 1.0)", (0.0,), (1.0,)),
        Case("clamp(x, 0.0, 1.0)", (1.5,), (0.0,)),
    ],
    "`sqrt` and `log` at 0": [
        Case("sqrt(x)", (0.0,), (INF,)),
        Case("sqrt(x)", (-0.0,), (INF,)),
        Case("log(x)", (0.0,), (INF,)),
        Case("log(x)", (-0.0,), (INF,)),
    ],
    "`log` of a negative number": [Case("log(x)", (-1.0,), (NAN,))],
    "`x ^ y`": [
        Case("x ^ y", (0.0, 0.0), (0.0, 0.0)),
        Case("x ^ y", (3.0, 0.0), (0.0, math.log(3.0))),
        Case("x ^ y", (0.0, 2.0), (0.0, 0.0)),
        Case("x ^ y", (0.0, 0.5), (INF, 0.0)),
        Case("x ^ y", (0.0, 1.0), (1.0, 0.0)),
        Case("x ^ y", (-2.0, 3.0), (12.0, NAN)),
        Case("x ^ 3", (-2.0,), (12.0,)),
        Case("x ^ 0", (0.0,), (0.0,)),
    ],
    "`atan2(0, 0)`": [Case("atan2(x, y)", (0.0, 0.0), (0.0, 0.0))],
    "`xlogy(x, y)`": [
        Case("xlogy(x, y)", (0.0, 2.0), (math.log(2.0), 0.0)),
        Case("xlogy(x, y)", (0.0, 0.0), (-INF, 0.0)),
        Case("xlogy(x, x)", (0.0,), (-INF,)),
    ],
    "`logsumexp`, `logaddexp`, `softmax` of k greatest, Inf too": [
        Case("logsumexp([x, y])", (2.0, 2.0), (0.5, 0.5)),
        Case("logsumexp([x, y])", (INF, INF), (0.5, 0.5)),
        Case("logsumexp([x, y])", (INF, 1.0), (1.0, 0.0)),
        Case("logsumexp([x, y])", (-INF, 1.0), (0.0, 1.0)),
        Case("logaddexp(x, y)", (INF, INF), (0.5, 0.5)),
    ],
    "`exp(-x / g)` of an `x` of Inf": [Case("exp(-x / y)", (INF, 1.0), (0.0, NAN))],
    "`logsumexp`, `logaddexp` where all are -Inf": [
        Case("logsumexp([x, y])", (-INF, -INF), (0.0, 0.0)),
        Case("logaddexp(x, y)", (-INF, -INF), (0.0, 0.0)),
    ],
    "`abs`, `angle`, `norm` of a complex 0": [
        Case("abs(complex(x, y))", (0.0, 0.0), (0.0, 0.0)),
        Case("angle(complex(x, y))", (0.0, 0.0), (0.0, 0.0)),
        Case("norm([complex(x, y)])", (0.0, 0.0), (0.0, 0.0)),
    ],
    "`sqrt` and `log` of a complex 0": [],
    "a complex function on its cut": [
        Case("imag(sqrt(complex(x, y)))", (-4.0, 0.0), (-0.25, 0.0)),
        Case("imag(sqrt(complex(x, y)))", (-4.0, -0.0), (0.25, 0.0)),
        Case("real(sqrt(complex(x, y)))", (-4.0, 0.0), (0.0, 0.25)),
        Case("real(sqrt(complex(x, y)))", (-4.0, -0.0), (0.0, -0.25)),
    ],
    "`floor`, `ceil`, `round`, `trunc`, `sign`, comparisons, casts to integers": [
        *[Case(f"{name}(x)", (2.0,), (0.0,)) for name in ("floor", "ceil", "round", "trunc", "sign")],
        Case("if x > 2.0 { 3.0 } else { 4.0 }", (2.0,), (0.0,)),
        Case("x * f64(i32(x))", (2.5,), (2.0,)),
    ],
    "`x % y`": [Case("x % y", (7.0, 3.0), (1.0, -2.0)), Case("x % y", (6.0, 3.0), (1.0, -2.0))],
    "`sort`, `top_k` with ties": [
        Case("sort([x, y])[0]", (1.0, 1.0), (1.0, 0.0)),
        Case("second(x, y, z)", (1.0, 1.0, 1.0), (0.0, 1.0, 0.0)),
    ],
    "`prod`, `cumprod`, `a[idx] *= e` with zeros": [
        Case("prod([x, y, z])", (0.0, 2.0, 3.0), (6.0, 0.0, 0.0)),
        Case("prod([x, y, z])", (0.0, 0.0, 3.0), (0.0, 0.0, 0.0)),
        Case("sum(cumprod([x, y, z]))", (0.0, 2.0, 3.0), (9.0, 0.0, 0.0)),
        Case("multiplied(x, y)", (0.0, 2.0), (2.0, 0.0)),
    ],
    "`det` of a singular matrix": [Case("det([[x, y], [2.0, 4.0]])", (1.0, 2.0), (4.0, -2.0))],
    "`slogdet`, `solve`, `inv` of a singular matrix": [
        Case("inv([[x]])[0, 0]", (0.0,), (-INF,)),
        Case("logarithm(x)", (0.0,), (INF,)),
        Case("solve([[x]], [1.0])[0]", (0.0,), (-INF,)),
    ],
    "`cholesky` of what is not positive definite": [Case("cholesky([[x, 2.0], [2.0, 1.0]])[1, 1]", (1.0,), (NAN,))],
    "`cholesky`, `eigh`": [Case("cholesky([[4.0, x], [y, 9.0]])[1, 0]", (2.0, 2.0), (0.25, 0.25))],
    "a function symmetric in equal eigenvalues of `eigh`, or singular values of `svd`": [
        Case("spectrum(x, y)", (3.0, 0.0), (12.0, 0.0)),
        Case("nuclear(x, y)", (2.0, 2.0), (1.0, 1.0)),
    ],
    "vectors of equal eigenvalues or singular values": [Case("direction(x)", (1.0,), (NAN,))],
    "complex eigenvectors v": [Case("turned(x, y)", (1.0, 0.0), (0.0, -1.0))],
    "complex singular vectors u, v": [Case("leaning(x, y)", (1.0, 0.0), (0.0, 0.375))],
    "complex `qr`": [Case("corner(x, y)", (3.0, 4.0), (6.0, 8.0))],
    "a singular value that is 0": [Case("nuclear(x, y)", (2.0, 0.0), (1.0, 0.0))],
    "`a[idx] = e` with a place named twice": [
        Case("written(x, y)", (1.0, 2.0), (0.0, 10.0)),
        Case("added(x, y)", (1.0, 2.0), (11.0, 10.0)),
    ],
    "a place of `a` that no `a[idx] += e` reaches": [Case("untouched(x, y)", (1.0, 2.0), (1.0, 0.0))],
    "an index out of range": [],
    "a loop whose length depends on data": [
        Case("halvings(x)", (5.0,), (0.125,)),
        Case("halvings(x)", (4.0,), (0.25,)),
    ],
}  # fmt: skip
CASES = [case for cases in LINES.values() for case in cases]
IDS = [f"{line}: {case}" for line, cases in LINES.items() for case in cases]


def table() -> list[list[str]]:
    """The cells of each line of the table."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[c.strip() for c in row.strip("|").split(" | ")] for row in rows[2:]]


def number(x: float) -> str:
    return {INF: "inf", -INF: "-inf"}.get(x, repr(x))


@lru_cache(maxsize=2)
def derivatives(engine: Engine) -> list[dict[str, list[float]]]:
    """Of every case, forward and reverse, everything in one program."""
    declarations, parts = [GREATEST], list[str]()
    for i, case in enumerate(CASES):
        names = "xyz"[: len(case.at)]
        params = ", ".join(f"{n}: f64" for n in names)
        declarations.append(f"fn case{i}({params}) -> f64 = {case.expression}")
        at = ", ".join(f"p[{sum(len(c.at) for c in CASES[:i]) + k}]" for k in range(len(case.at)))
        for n in names:
            declarations.append(f"fn forward{i}{n}({params}) -> f64 {{")
            declarations.append(f"  let (_, d) = jvp[{n}](case{i})({', '.join(names)}, 1.0)\n  d\n}}")
            parts += [f"forward{i}{n}({at})", f"grad[{n}](case{i})({at})"]
    points = ", ".join(number(x) for case in CASES for x in case.at)
    declarations.append(f"fn every(p: f64[n]) -> f64[{len(parts)}] = [{', '.join(parts)}]")
    found = iter(np.asarray(answer(f"every([{points}])", "\n".join(declarations), engine)).tolist())
    pairs = [[(next(found), next(found)) for _ in case.at] for case in CASES]
    return [{"forward": [f for f, _ in p], "reverse": [r for _, r in p]} for p in pairs]


@pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("i", range(len(CASES)), ids=IDS)
def test_a_line_of_the_table(i: int, engine: Engine) -> None:
    for way, got in derivatives(engine)[i].items():
        np.testing.assert_allclose(got, CASES[i].want, rtol=1e-15, err_msg=way)


@pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])
def test_an_index_out_of_range_is_an_error(engine: Engine) -> None:
    source = "fn at(x: f64[n], i: i32) -> f64 = x[i]\nprint(grad(at)(f64([1.0, 2.0]), 2))\n"
    assert codes(source, engine) == [("DL0902", 1)]
    assert codes("print([1.0, 2.0][2])\n", engine) == [("DL0326", 1)]


@pytest.mark.parametrize("engine", [INTERPRETER, Engine()], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("name", ["sqrt", "log"])
def test_the_slope_at_a_complex_zero_is_not_finite(name: str, engine: Engine) -> None:
    """Infinite or NaN, as the division gives it."""
    forward = f"(|z: c128| {name}(z))'(complex(0.0, 0.0))"
    reverse = f"grad(|z: c128| real({name}(z)))(complex(0.0, 0.0))"
    for slope in (forward, reverse):
        assert not np.isfinite(answer(slope, "", engine))


def test_every_line_of_the_table_has_a_test() -> None:
    """And every test has its line, in the same order."""
    assert [row[0] for row in table()] == list(LINES)


def test_a_wrong_line_is_noticed() -> None:
    found: Any = derivatives(INTERPRETER)[IDS.index("`clamp` at a bound: clamp(x, 0.0, 1.0) at (1.0,)")]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(found["forward"], [0.5], rtol=1e-15)
