"""Ops with regions: what their type rules refuse, and that XLA computes what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from derivative_programs import Program, programs
from derivatives import FLOAT, INT, TRUTH, composed, literal, mapped, op, repeat
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, TypeMismatch
from difflang.ir.tensor_types import F32, F64, History, Tensor, Type
from difflang.runtime.compile import compile_graph

VECTOR = Tensor(F64, (3,))


def compiled(graph: Graph, *arrays: Any) -> list[Any]:
    return compile_graph(graph)(*arrays)


PROGRAMS = [p for p in programs() if not p.name.endswith("-50")]
FORWARD = [(p, order) for p in PROGRAMS for order in ("", "J", "JJ")]
REVERSE = [(p, order) for p in PROGRAMS for order in ("V", "JV", "VJ", "VV")]


@pytest.mark.parametrize(("program", "order"), FORWARD + REVERSE, ids=str)
@pytest.mark.nightly_except(".*-(7|4|3|3x4)-[JV]?", "(calls|early|downwards|rotation-bounded)-7-[JV][JV]")
def test_compiled_is_interpreted(program: Program, order: str) -> None:
    graph = composed(order, program.graph)
    rng = np.random.default_rng(0)
    xs = [np.asarray(x, np.float64) for x in program.arguments]
    xs += [rng.normal(size=p.type.shape) for p in graph.params[len(xs) :]]
    for got, want in zip(compiled(graph, *xs), evaluate(graph, *xs), strict=True):
        assert got.dtype == want.dtype
        scale = max(1e-9, float(np.max(np.abs(want), initial=0.0)))  # a root forgets where it was begun: 1e-16
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * scale)


def test_a_map_over_no_lanes_compiles() -> None:
    graph = build_region([FLOAT, Tensor(F64, (0,))], lambda w, xs: mapped(0, lambda w, x: [w * x], [w], [xs]))
    (ys,) = compiled(graph, np.float64(1.0), np.zeros(0))
    assert ys.shape == (0,)


def test_a_map_that_reads_nothing_in_items_compiles() -> None:
    (ys,) = compiled(build_region([FLOAT], lambda w: mapped(3, lambda w: [w * w], [w], [])), np.float64(2.0))
    np.testing.assert_array_equal(ys, [4.0] * 3)


# ------------------------------------------------------------------------------------------------- type rules


def loop_of(step: Graph, *operands: Value, go: Graph | None = None, **attrs: Any) -> tuple[Value, ...]:
    given = {"consts": 0, "carry": 1, "length": None, "exact": False, "reverse": False} | attrs
    return OPS["loop"](*operands, regions=(step,) if go is None else (step, go), **given)


STEP = build_region([INT, FLOAT], lambda i, s: [s])
YIELDING = build_region([INT, FLOAT, FLOAT], lambda i, s, x: [s, x])
GO = build_region([INT, FLOAT], lambda i, s: [op("gt", s, s)])
Case = Callable[..., tuple[Value, ...]]


@pytest.mark.parametrize(
    ("types", "build", "message"),
    [
        ([FLOAT, FLOAT], lambda n, s: loop_of(STEP, n, s), "element types differ: f64\\[\\] and i32"),
        ([INT, Tensor(F32)], lambda n, s: loop_of(STEP, n, s), "element types differ: f32"),
        ([INT, VECTOR], lambda n, s: loop_of(STEP, n, s), "shapes differ: f64\\[3\\] and f64\\[\\]"),
        ([INT, FLOAT, FLOAT], lambda n, s, t: loop_of(STEP, n, s, t, carry=2), "loop: 3 values for 2 params"),
        ([INT, FLOAT, VECTOR], lambda n, s, x: loop_of(YIELDING, n, s, x), "without a length reads histories"),
        ([INT, FLOAT, VECTOR], lambda n, s, x: loop_of(YIELDING, n, s, x, length=4), "steps differs: 3 and 4"),
        ([INT, FLOAT, FLOAT], lambda n, s, x: loop_of(YIELDING, n, s, x, length=4), "along their first axis"),
        ([INT, FLOAT], lambda n, s: loop_of(STEP, n, s, go=GO, reverse=True), "in reverse has no condition"),
        ([INT, FLOAT], lambda n, s: loop_of(STEP, n, s, exact=True), "an exact loop has a length"),
        ([INT, FLOAT], lambda n, s: loop_of(STEP, n, s, go=GO, exact=True, length=2), "and no condition"),
        ([INT, FLOAT], lambda n, s: loop_of(STEP, n, s, go=STEP), "element types differ: f64\\[\\] and bool"),
        ([INT, FLOAT], lambda n, s: loop_of(GO, n, s), "element types differ: bool\\[\\] and f64"),
        ([FLOAT], lambda p: OPS["cond"](p, regions=(STEP, STEP)), "element types differ: f64\\[\\] and bool"),
        ([TRUTH], lambda p: OPS["cond"](p, regions=(STEP, STEP)), "cond: 0 values for 2 params"),
        ([TRUTH, INT, FLOAT], lambda p, n, x: OPS["cond"](p, n, x, regions=(STEP, GO)), "bool\\[\\] and f64"),
        ([VECTOR], lambda x: OPS["map"](x, regions=(STEP,), consts=0, length=3), "map: 1 values for 2 params"),
        ([FLOAT], lambda x: OPS["map"](x, regions=(STEP,), consts=0, length=3), "along their first axis"),
        ([FLOAT], lambda x: OPS["call"](x, regions=(STEP,), name="f"), "f: 1 values for 2 params"),
        ([History(FLOAT), FLOAT], lambda h, x: OPS["add_history"](h, x), "f64\\[\\] is not history"),
        ([FLOAT], lambda x: OPS["add_history"](x, x), "f64\\[\\] is not a history"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(types: list[Type], build: Case, message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        build_region(types, build)


def test_what_a_loop_gives_depends_on_whether_its_length_is_known() -> None:
    step: Callable[..., list[Value]] = lambda i, s: [s, s, op("gt", s, literal(s, 0.0))]
    for length, expected in (
        (None, (History(FLOAT), History(TRUTH))),
        (4, (Tensor(F64, (4,)), Tensor(TRUTH.dtype, (4,)))),
    ):
        graph = build_region([FLOAT], lambda s, length=length: repeat(2, step, [], [s], length=length))
        assert graph.type[1] == (INT, FLOAT, *expected)
