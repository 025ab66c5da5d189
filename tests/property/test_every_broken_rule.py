"""Each rule of the registry is broken in turn, and the auditor names the op: every mutation of the rules is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from derivatives import FLOAT, INT, TRUTH, called, choose, mapped, repeat, scan
from difflang.base.source import Source, Span
from difflang.gradcheck.engine_comparison import CheckPipeline
from difflang.gradcheck.gradient_check import check_gradient
from difflang.gradcheck.op_calls import calls_of
from difflang.gradcheck.report import GradcheckReport
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph
from difflang.ir.op import OPS, Op
from difflang.ir.tensor_types import F64, Tensor
from difflang.ops.control.extern_call import ExternFunction
from difflang.ops.control.on_devices import on_devices
from difflang.ops.control.opaque_call import OpaqueFunction as Unrun
from difflang.runtime.compile import compile_graph
from support.broken import Breakage, breakages, broken_lowering, broken_reference

VECTOR = Tensor(F64, (3,))
Case = tuple[Graph, list[Any], tuple[bool, ...]]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def numbers(*shape: int) -> Any:
    return np.asarray(rng().uniform(0.5, 1.5, shape))


def cases(op: Op) -> Iterator[Case]:
    """Small graphs that use an op."""
    if op.samples is not None:
        for call in calls_of(op):
            if call.active and call.arrays[-1].size and double(call.arrays):
                yield call.graph(), list(call.arrays), call.wrt
        return
    graph, arrays = REGIONS[op.name]()
    yield graph, arrays, tuple(p.type.tangent is not None for p in graph.params)


def double(arrays: Any) -> bool:
    return all(x.dtype.itemsize >= 8 or x.dtype.kind not in "fcV" for x in arrays)


# ---- graphs of the ops with regions


def cond_case() -> tuple[Graph, list[Any]]:
    def body(p: Any, x: Any, y: Any) -> Any:
        return choose(p, lambda x, y: [x * y], lambda x, y: [x + y], x, y)

    return build_region([TRUTH, FLOAT, FLOAT], body), [np.asarray(True), numbers(), numbers() + 1]


def map_case() -> tuple[Graph, list[Any]]:
    def body(c: Any, xs: Any) -> Any:
        return mapped(3, lambda c, x: [x * x * c], [c], [xs])

    return build_region([FLOAT, VECTOR], body), [numbers(), numbers(3)]


def loop_case() -> tuple[Graph, list[Any]]:
    def body(c: Any, x: Any, xs: Any) -> Any:
        return scan(3, lambda i, c, x, item: [x * c + item, x * x], [c], [x], [xs])

    return build_region([FLOAT, FLOAT, VECTOR], body), [numbers(), numbers(), numbers(3)]


def call_case() -> tuple[Graph, list[Any]]:
    def body(x: Any, y: Any) -> Any:
        return called(build_region([FLOAT, FLOAT], lambda x, y: [x * y * y]), x, y)

    return build_region([FLOAT, FLOAT], body), [numbers(), numbers() + 1]


def on_devices_case() -> tuple[Graph, list[Any]]:
    """Without a mesh, where it is a call."""
    one = build_region([FLOAT, FLOAT], lambda x, y: [x * y])
    attrs = {"name": "mul", "given": ((), ()), "found": ((),), "summed": (), "sizes": ()}

    def body(x: Any, y: Any) -> Any:
        return x.home.emit(on_devices, [x, y], [one], **attrs)

    return build_region([FLOAT, FLOAT], body), [numbers(), numbers() + 1]


def add_history_case() -> tuple[Graph, list[Any]]:
    """Two loops save, one reads the sum."""

    def body(n: Any, x: Any, y: Any) -> Any:
        _, _, first = repeat(n, lambda i, x: [x * x, x], [], [x])
        _, _, second = repeat(n, lambda i, y: [y * 0.5, y], [], [y])
        total = OPS["add_history"].one(first, second)
        step = build_region([INT, FLOAT, FLOAT], lambda i, s, item: [s * 0.5 + item])
        attrs = {"consts": 0, "carry": 1, "length": None, "exact": False, "reverse": False}
        return OPS["loop"](n, x, total, regions=(step,), **attrs)[1:]

    return build_region([INT, FLOAT, FLOAT], body), [np.asarray(3, np.int32), numbers(), numbers() + 1]


def rule_case() -> tuple[Graph, list[Any]]:
    """A cube by a rule that is written with itself, below its own derivative."""
    primal = build_region([FLOAT], lambda x: [x * x * x])

    def pushed(x: Any, dx: Any) -> Any:
        (y,) = OPS["self_call"](x, name="cubed", results=(FLOAT,))
        return [y, 3.0 * y / x * dx]

    regions = (primal, build_region([FLOAT, FLOAT], pushed))
    return build_region([FLOAT], lambda x: OPS["custom_derivative"](x, regions=regions, name="cubed", wrt=(True,))), [
        numbers()
    ]


def solved_case() -> tuple[Graph, list[Any]]:
    solve = build_region([FLOAT, FLOAT], lambda a, b: [OPS["stop"].one(b / a)])
    apply = build_region([FLOAT, FLOAT], lambda a, x: [a * x])
    graph = build_region(
        [FLOAT, FLOAT], lambda a, b: OPS["custom_linear_solve"](a, b, regions=(solve, solve, apply), consts=1)
    )
    return graph, [numbers(), numbers() + 1]


def value_case() -> tuple[Graph, list[Any]]:
    """A cube that has the derivative of another form of it."""
    return build_region([FLOAT], lambda x: [OPS["with_derivative"].one(x * x * x, x * (x * x))]), [numbers()]


def checkpoint_case() -> tuple[Graph, list[Any]]:
    body = build_region([FLOAT], lambda x: [OPS["sin"].one(x) * x])
    return build_region([FLOAT], lambda x: OPS["checkpoint"](x, regions=(body,), results=1, recompute=False)), [
        numbers()
    ]


def invertible_case() -> tuple[Graph, list[Any]]:
    step = build_region([FLOAT, FLOAT], lambda x, a: [x * a + a])
    back = build_region([FLOAT, FLOAT], lambda y, a: [(y - a) / a])

    def body(x: Any, a: Any) -> Any:
        return OPS["invertible"](x, a, regions=(step, back), state=1, name="scaled")

    return build_region([FLOAT, FLOAT], body), [numbers(), numbers() + 1]


class Given(ExternFunction):
    """A function of Python, by a formula that arrays of NumPy and of JAX know."""

    def __init__(self, formula: Callable[..., Any], operands: int) -> None:
        super().__init__("cubed", (FLOAT,) * operands, (FLOAT,), Span(Source("cubed", ""), 0, 0))
        self.formula = formula

    def run(self, *arrays: Any) -> list[Any]:
        return [np.asarray(self.formula(*arrays))]

    def lower(self, jax: Any, *arrays: Any) -> list[Any]:
        return [self.formula(*arrays)]


def extern_case() -> tuple[Graph, list[Any]]:
    """A cube that Python gives with its derivative, which is its own transpose."""
    cubed, slope = Given(lambda x: x * x * x, 1), Given(lambda x, dx: 3.0 * x * x * dx, 2)
    cubed.jvp = cubed.vjp = slope.transposed = slope
    return build_region([FLOAT], lambda x: OPS["extern"](x, function=cubed, linear=0)), [numbers()]


class OfTwo(Unrun):
    """x³ y, as a function that is given, and what operators make of it."""

    def run(self, *arrays: Any) -> Any:
        x, y, *ds = arrays
        slopes = [3.0 * x * x * y, x * x * x]
        if self.operator == "grad":
            found = [slopes[p] for p in self.wrt]
            return found[0] if len(found) == 1 else found
        return sum(slopes[p] * d for p, d in zip(self.wrt, ds, strict=True)) if ds else x * x * x * y


def given_case() -> tuple[Graph, list[Any]]:
    function = OfTwo("of_two", (FLOAT, FLOAT), (FLOAT,))
    return build_region([FLOAT, FLOAT], lambda x, y: OPS["opaque_call"](x, y, function=function)), [
        numbers(),
        numbers() + 1,
    ]


def derivative_case() -> tuple[Graph, list[Any]]:
    return build_region([FLOAT, FLOAT], lambda x, y: [x * y]), [numbers(), numbers() + 1]


REGIONS = {
    "cond": cond_case,
    "map": map_case,
    "loop": loop_case,
    "call": call_case,
    "on_devices": on_devices_case,
    "checkpoint": checkpoint_case,
    "add_history": add_history_case,
    "custom_derivative": rule_case,
    "invertible": invertible_case,
    "custom_linear_solve": solved_case,
    "with_derivative": value_case,
    "extern": extern_case,
    "opaque_call": given_case,
    "jvp": derivative_case,
    "vjp": derivative_case,
}

# ---- the test

# `again` is gone before anything is derived; the coefficients of a `jet` are values to an audit.
ACTIVE = [op for op in OPS.differentiable() if op.name not in ("self_call", "jet")]
UNASKED = {
    "sub: transpose",  # its jvp goes before, and no rule subtracts tangents
    "custom_derivative: transpose",  # the rule that takes its place is transposed, never the equation
    "on_devices: transpose",  # its tangent is a call too
    "invertible: transpose",  # its tangent is a call; only a linear function that calls it is transposed
}
# Those that are there when a program runs.
LOWERED = [op for op in ACTIVE if not op.is_derivative and op.without_derivative is None and op.name != "opaque_call"]


# Rules that give zeros: what is wrong on purpose gives zeros too.
ZERO = ("excess: jvp, operand 1",)


def asked(case: Case, compiled: bool = False) -> GradcheckReport:
    graph, arrays, wrt = case
    return check_gradient(
        graph, arrays, wrt, directions=1, pipeline=CheckPipeline(compile=compile_graph) if compiled else CheckPipeline()
    )


def escaped(op: Op, breakage: Breakage, compiled: bool = False) -> str | None:
    """What the auditor says of a breakage that it does not see as such in any use of the op."""
    said, used = "nothing", False
    for case in cases(op):
        with breakage.done():
            report = asked(case, compiled)
            used = used or bool(breakage.calls)
        if report.fault is not None and report.fault.op == op.name:
            return None
        said = f"{report.fault}" if report.fault is not None else said
    if f"{op}: {breakage.fact}" in UNASKED:
        assert not used, "it is asked after all"
        return None
    return f"{breakage}: the auditor says {said}"


@pytest.mark.parametrize("op", ACTIVE, ids=str)
@pytest.mark.nightly_except(
    "add|mul|div|dot_general|tanh|exp|sqrt|max|reduce_sum|reduce_max|cumsum|gather|concat|conv|fft|cholesky|cond|loop|map|call"
)
def test_a_broken_rule_is_found_and_named(op: Op) -> None:
    found = [b for b in breakages(op) if not str(b).startswith(ZERO)]
    assert found, "nothing was broken"
    table = [line for line in (escaped(op, b) for b in found) if line is not None]
    assert not table, "\n".join(table)


@pytest.mark.parametrize("op", LOWERED, ids=str)
@pytest.mark.nightly_except(
    "add|mul|div|dot_general|tanh|exp|sqrt|max|reduce_sum|reduce_max|cumsum|gather|concat|conv|fft|cholesky|cond|loop|map|call"
)
def test_a_broken_lowering_is_found_and_named(op: Op) -> None:
    assert escaped(op, broken_lowering(op), compiled=True) is None


@pytest.mark.parametrize("op", [op for op in LOWERED if op.name != "add_history"], ids=str)
def test_a_broken_reference_is_found_and_named(op: Op) -> None:
    """The interpreter is the one that is wrong; against it, rules or lowering are."""
    assert escaped(op, broken_reference(op), compiled=True) is None
