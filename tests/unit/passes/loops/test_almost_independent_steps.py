"""Steps that almost need nothing of each other are still computed one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.interpreter import evaluate

X = np.array([1.0, 4.0, -2.0, 5.0, 3.5, 7.2])
# Variables, what each step does with them, a result, and what that is step by step.
PROGRAMS = {
    "second greatest": (
        "top = -1.0; old = 0.0",
        "if x[i] > top {\nold = top\ntop = x[i]\n}",
        "top * old",
        36.0,
    ),
    "second place": (
        "top = -1.0; at = 0; old = 0",
        "if x[i] > top {\nold = at\nat = i\ntop = x[i]\n}",
        "f64(at + 10 * old)",
        35.0,
    ),
    "product with the greatest": (
        "top = -1.0; old = 0.0",
        "if x[i] > top {\nold = top * x[i]\ntop = x[i]\n}",
        "top * old",
        259.2,
    ),
    "counted by the greatest": (
        "top = -1.0; s = 0.0",
        "let beyond = x[i] > top\ntop = where(beyond, x[i], top)\ns += where(beyond, 1.0, 0.0)",
        "s",
        4.0,
    ),
    "sum since the first": (
        "first = 0; s = 0.0",
        "let found = x[i] > 3.0 and first == 0\nfirst = where(found, i + 1, first)\ns += where(first > 0, x[i], 0.0)",
        "s",
        17.7,
    ),
    "counted until the first": (
        "first = 0; s = 0.0",
        "let found = x[i] > 4.5 and first == 0\nfirst = where(found, 7, first)\ns += where(first == 0, 1.0, 0.0)",
        "s",
        3.0,
    ),
    "status that is set to 0": (
        "code = 0; which = 0",
        "let hit = x[i] == 1.0 and code == 0\nwhich = where(hit, i + 100, which)\ncode = where(hit, i, code)",
        "f64(code + 1000 * which)",
        100000.0,
    ),
    "part that is counted": (
        "code = 0; which = 5",
        "let hit = x[i] > 4.5 and code == 0\nwhich = where(hit, which + i, which)\ncode = where(hit, 1, code)",
        "f64(code + 1000 * which)",
        8001.0,
    ),
    "part that is 0 after all": (
        "code = 0; which = 5",
        "let hit = x[i] < 9.0 and code == 0\nwhich = where(hit, 3 - i, which)\ncode = where(hit, 0, code)",
        "f64(code + 1000 * which)",
        -2000.0,
    ),
}


def value(m: Any, *xs: Any) -> Any:
    """What the graph of `f` computes, after the passes but without XLA, and whether it has a loop."""
    return evaluate(m.f.lower(*[f"f64[{len(x)}]" for x in xs]).graph, *xs)[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_carry_that_others_read_is_known_step_by_step(name: str) -> None:
    before, steps, result, due = PROGRAMS[name]
    variables = "\n".join([f"var {line}" for line in before.split("; ")])
    loop = f"for i in 0..n {{\n{steps}\n}}"
    m = difflang.loads(f"float f64\nfn f(x: f64[n]) -> f64 {{\n{variables}\n{loop}\n{result}\n}}\n")
    assert value(m, X) == due


def test_the_first_hit_is_found_at_once() -> None:
    m = difflang.loads(
        "float f64\nfn f(x: f64[n]) -> f64 {\nvar code = 0\nvar at = 9\nfor i in 0..n {\n"
        "let hit = x[i] > 3.0 and code == 0\ncode = where(hit, 4, code)\nat = where(hit, i, at)\n}\n"
        "f64(code + 10 * at)\n}\n"
    )
    assert [value(m, np.array(v)) for v in (X, X[:1])] == [14, 90]
    assert "= loop " not in m.f.ir("optimized", "f64[6]")


def test_outputs_are_the_array_of_their_step() -> None:
    m = difflang.loads(
        "float f64\nfn f(x: f64[n]) -> f64 where n > 0 {\nvar y = x\n"
        "let all = for i in 0..n {\nyield y\ny[i] = 2.0 * x[i] + y[i]\n}\nsum(all[n - 1]) + sum(y)\n}\n"
    )
    assert value(m, np.array([1.0, 2.0, 4.0])) == 3.0 + 6.0 + 4.0 + 21.0


# ---- Sums


def test_terms_of_a_step_cancel_before_the_steps_are_added() -> None:
    m = difflang.loads(
        "float f64\nfn f(x: f64[n], y: f64[n]) -> f64 {\nvar s = 0.0\nvar t = zeros(2)\n"
        "for i in 0..n {\ns += x[i]\ns -= y[i]\nfor j in 0..2 { t[j] = t[j] - x[i] + y[i] }\n}\ns + t[1]\n}\n"
    )
    assert value(m, np.full(4, 1e308), np.full(4, 1e308)) == 0.0
    assert value(m, np.arange(4.0), np.ones(4)) == 0.0


def test_small_differences_of_large_terms_are_exact() -> None:
    m = difflang.loads(
        "fn f(x: f32[n], y: f32[n]) -> f32 {\nvar s = 0.0\nfor i in 0..n {\ns -= y[i]\ns += x[i]\n}\ns\n}\n"
    )
    x = (1e6 + np.random.default_rng(0).normal(size=2000)).astype(np.float32)
    y = np.full(2000, 1e6, np.float32)
    assert np.isclose(m.f(x, y), float(np.sum(x.astype(float) - y)), rtol=1e-5)


# ---- Large steps


def test_long_chains_are_neither_slow_nor_deep() -> None:
    chain = "\n".join([f"let k{i + 1} = max(k{i} * 3, 5 - k{i}) % 7" for i in range(300)])
    m = difflang.loads(
        "float f64\nfn f(x: f64[n]) -> f64 where n > 6 {\nvar y = x\nlet k0 = i32(x[0])\n"
        f"for i in 0..n {{\n{chain}\ny[abs(k300) % 7] += x[i]\n}}\nsum(y)\n}}\n"
    )
    assert value(m, np.full(7, 2.0)) == 28.0


def test_many_terms_are_one_sum() -> None:
    terms = "\n".join([f"s += x[i] * {i}.5" for i in range(100)])
    m = difflang.loads(f"float f64\nfn f(x: f64[n]) -> f64 {{\nvar s = 0.0\nfor i in 0..n {{\n{terms}\n}}\ns\n}}\n")
    assert value(m, np.ones(7)) == 7 * sum(i + 0.5 for i in range(100))
    assert m.f.ir("optimized", "f64[7]").count("reduce_sum") == 1
