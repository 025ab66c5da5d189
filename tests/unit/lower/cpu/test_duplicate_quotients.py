"""A large quotient that several read is computed for each, to the last bit, and XLA makes one kernel of it all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import difflang
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.op import OPS
from difflang.ir.tensor_types import F64, Tensor
from difflang.lower.cpu import split_fusion_chains
from difflang.lower.cpu.peephole_rewrites import MIN_DUPLICATED_ELEMENTS, duplicate_quotients
from difflang.runtime.compile import compile_graph

CHAIN = (Path(__file__).parents[4] / "benchmarks/kernels/elementwise.dfl").read_text()
SOURCE = CHAIN.replace("sin", "exp").replace("cos", "sqrt")  # of many numbers sines are apart on their own


def graph(size: int) -> Graph:
    def body(x: Value, y: Value) -> list[Value]:
        quotient = x / y
        return [quotient * x + OPS["sin"].one(quotient) * (quotient * quotient), quotient]

    return build_region([Tensor(F64, (size,))] * 2, body)


@pytest.mark.parametrize(("size", "divisions"), [(MIN_DUPLICATED_ELEMENTS, 3), (MIN_DUPLICATED_ELEMENTS - 1, 1)])
def test_each_reader_has_its_own_if_the_array_is_large(size: int, divisions: int) -> None:
    whole = graph(size)
    eqns = duplicate_quotients(whole.eqns)
    assert [e.op.name for e in eqns].count("div") == divisions
    x, y = np.random.default_rng(0).normal(size=(2, size)) * [[1e-3], [1e3]]
    y[:4] = 0.0, -0.0, np.inf, np.nan
    x[2] = -0.0
    changed = compile_graph(Graph(whole.params, tuple(eqns), whole.results, whole.name))(x, y)
    assert np.asarray(changed[1]).tobytes() == np.asarray(compile_graph(whole)(x, y)[1]).tobytes()
    np.testing.assert_allclose(changed[0], compile_graph(whole)(x, y)[0], rtol=1e-15)


def test_xla_makes_one_kernel_of_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernels() -> int:
        text = (
            difflang.loads(SOURCE, name="one")
            .f.grad("x")
            .lower(f"f32[{4 * MIN_DUPLICATED_ELEMENTS}]")
            .compile()
            .as_text()
        )
        return text[text.index("\nENTRY") :].count(" fusion(")

    assert kernels() == 1
    monkeypatch.setattr(split_fusion_chains, "duplicate_quotients", tuple)
    assert kernels() > 1, "it is still needed"
