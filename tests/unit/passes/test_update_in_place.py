"""Gradients of loops that write into arrays touch the windows that they write, and copy no array at each step."""

from __future__ import annotations

import re

import numpy as np
import pytest

import difflang
from difflang.ir.builder import build_region
from difflang.ir.graph import Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.passes.dce import dce
from difflang.passes.loops.update_in_place import update_in_place
from difflang.runtime.compile import options_of

PROGRAMS = {
    "recurrence": "for i in 0..n { for j in 1..n { k[i, j] = 0.5 * k[i, j - 1] + x[i] * x[j] } }",
    "symmetric": "for i in 0..n { for j in 0..i {\n k[i, j] = sin(x[i] * x[j])\n k[j, i] = k[i, j]\n } }",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_loop_copies_the_array(name: str) -> None:
    m = difflang.loads(
        f"float f64\nfn f(x: f64[n]) -> f64 {{\n var k = zeros(n, n)\n {PROGRAMS[name]}\n sum(k^2)\n}}\n"
    )
    gradient = m.f.grad("x")
    x = np.array([0.3, -0.2, 0.5, 0.9])
    step = 1e-6 * np.eye(4)
    due = [(float(m.f(x + e)) - float(m.f(x - e))) / 2e-6 for e in step]
    assert np.allclose(gradient(x), due, rtol=1e-6)
    lowered = gradient.lower("f64[37]")
    hlo = lowered._program.compile(options_of(lowered.graph)).as_text()  # pyright: ignore[reportPrivateUsage]
    bodies = [b for b in re.split(r"\n(?=%|ENTRY)", hlo) if not b.startswith("ENTRY")]
    assert not any(re.search(r"f64\[37,37\]\S* copy\(", b) for b in bodies)


def test_a_window_of_zeros_is_added_to_that_window() -> None:
    def program(x: Value, part: Value, i: Value) -> list[Value]:
        zeros = x.home.const(0.0, x.type)
        return [x + OPS["dynamic_update"].one(zeros, part, i, i)]

    graph = build_region([Tensor(F64, (3, 4)), Tensor(F64, (1, 2)), Tensor(I32)], program)
    done = dce(update_in_place(graph))
    assert [e.op.name for e in done.eqns] == ["dynamic_slice", "add", "dynamic_update"]
    xs = np.arange(12.0).reshape(3, 4), np.array([[5.0, 7.0]]), np.asarray(2, np.int32)
    assert np.array_equal(evaluate(done, *xs)[0], evaluate(graph, *xs)[0])


def test_a_window_that_two_writes_overwrite_is_swapped_once() -> None:
    m = difflang.loads(
        "float f64\nfn f(x: f64[n]) -> f64 {\nvar y = x\nvar z = x\nvar s = 0.0\nfor i in 0..n {\n"
        "let t = y[i]\nz = y\nz[i] = 7.0\ny[i] = 1.0\ns = 0.5 * s + t\n}\ns + 2.0 * sum(y) + 3.0 * sum(z)\n}\n"
    )
    x = np.array([4.0, 8.0, 16.0])
    assert float(m.f(x)) == 21.0 + 6.0 + 27.0


def test_a_window_may_be_overwritten_with_itself() -> None:
    m = difflang.loads(
        "float f64\nfn f(x: f64[n]) -> f64 {\nvar y = x\nvar s = 0.0\nfor i in 0..n {\n"
        "s = sin(s) + x[i]\ny[i] = y[i]\n}\ns + sum(y)\n}\n"
    )
    x = np.array([2.0, 0.5, 0.0])
    assert np.isclose(float(m.f(x)), np.sin(np.sin(2.0) + 0.5) + 2.5)
