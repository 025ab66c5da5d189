"""Functions split into a value, residuals and a linear graph; the proof that graphs are linear."""

from __future__ import annotations

import numpy as np
import pytest

from derivative_programs import Program, programs
from derivatives import FLOAT, build_region, jvp, op, vjp
from difflang.ad.linear_maps import linearize_function, transpose_map
from difflang.analysis.linearity import LinearityFault, NotLinear, prove_linear
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.tensor_types import Tensor
from difflang.ir.verify import verify

PROGRAMS = list(programs())


def active(graph: Graph) -> tuple[bool, ...]:
    return tuple(p.type.tangent is not None for p in graph.params)


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_map_is_the_derivative_at_its_residuals(program: Program) -> None:
    """The parts agree with derivatives taken whole, no history passes between them, and the map is proved linear."""
    graph, xs = program.graph, [np.asarray(x) for x in program.arguments]
    rng = np.random.default_rng(3)
    on = active(graph)
    parts = linearize_function(graph, on)
    for part in (verify(parts.primal), verify(parts.tangent)):
        assert all(isinstance(v.type, Tensor) for v in (*part.params, *part.results))
    dxs = [rng.standard_normal(np.shape(x)) for x, a in zip(xs, on, strict=True) if a]
    outs = evaluate(parts.primal, *xs)
    ys, residuals = outs[: len(graph.results)], outs[len(graph.results) :]
    dys = evaluate(parts.tangent, *residuals, *dxs)
    whole = evaluate(jvp(graph, on), *xs, *dxs)
    for found, wanted in zip([*ys, *dys], whole, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    cts = [rng.standard_normal(np.shape(y)) for y, r in zip(ys, graph.results, strict=True) if r.type.tangent]
    back = evaluate(verify(transpose_map(parts.tangent, len(dxs))), *residuals, *cts)
    for found, wanted in zip(back, evaluate(vjp(graph, on), *xs, *cts)[len(ys) :], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    prove_linear(parts.tangent, [i >= len(residuals) for i in range(len(parts.tangent.params))])


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_no_program_is_linear_itself(program: Program) -> None:
    """A negative control: each of them is nonlinear in its arguments, and that is seen."""
    with pytest.raises(NotLinear):
        prove_linear(program.graph, active(program.graph))


FAULTS = {
    "exp": (lambda x, k: op("exp", x), LinearityFault.FUNCTION),
    "product": (lambda x, k: x * x, LinearityFault.PRODUCT),
    "quotient": (lambda x, k: k / x, LinearityFault.FUNCTION),
    "offset": (lambda x, k: x + k, LinearityFault.OFFSET),
    "constant": (lambda x, k: x + 1.0, LinearityFault.OFFSET),
    "result": (lambda x, k: k * k, LinearityFault.RESULT),
    "condition": (lambda x, k: op("select", op("lt", x, k), x, x), LinearityFault.CONDITION),
    "choice": (lambda x, k: op("select", op("lt", k, k), x, k), LinearityFault.OFFSET),
    "stopped": (lambda x, k: op("stop", x), LinearityFault.FUNCTION),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_first_step_that_is_not_linear_is_named(name: str) -> None:
    body, fault = FAULTS[name]
    graph = build_region([FLOAT, FLOAT], lambda x, k: [body(x, k)])
    with pytest.raises(NotLinear) as found:
        prove_linear(graph, (True, False))
    assert found.value.fault is fault


LINEAR = [
    lambda x, k: k * x - x / k,
    lambda x, k: x + 0.0,
    lambda x, k: op("select", op("lt", k, k), x, x.home.const(0.0, FLOAT)),
    lambda x, k: 0.0 * k,
    lambda x, k: x * 0.0 + x * op("exp", k),
]


@pytest.mark.parametrize("number", range(len(LINEAR)))
def test_what_is_linear_is_proved(number: int) -> None:
    def body(x: Value, k: Value) -> list[Value]:
        return [LINEAR[number](x, k)]

    prove_linear(build_region([FLOAT, FLOAT], body), (True, False))
