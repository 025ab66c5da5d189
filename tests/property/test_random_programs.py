"""Random programs of the language: forward = reverse = differences, passes and rewritings change nothing.

DIFFLANG_SEED says which programs and is printed, `random` are new ones; DIFFLANG_FUZZ says how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import difflang.elaborate.statements.basic_statements
import difflang.elaborate.statements.branches
import difflang.elaborate.statements.loops
import difflang.ops.loop.step_transpose
import difflang.recursion.control_flow_graph
import support.random_programs
from derivatives import composed, literal
from difflang import graph as dg
from difflang.ad.expand_derivatives import differentiate
from difflang.base.diagnostics import DifflangError, InternalError
from difflang.driver.elaborate_call import elaborate_call
from difflang.gradcheck.extended_precision import GraphWidening
from difflang.ir.builder import build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.op import OPS
from difflang.ir.structural_equality import graphs_equal
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.ir.verify import verify
from difflang.lower.lowering_pipeline import finalize_graph
from difflang.types.function_code import FnCode
from difflang.types.language_types import ClosureType
from support.language import checked
from support.nightly import by_day
from support.program_graphs import ARGUMENTS, Point, graph, graph_of, point
from support.random_modules import split
from support.random_programs import HEADER, random_program
from support.reference import Reference
from support.seeds import COUNT, SEED, SEEDS

TOGETHER = by_day(4, 12)  # programs compiled as one executable
WRT = (True, True, True, False)
EPS = float(np.finfo(float).eps)


def value(f: Graph, at: Point, h: float = 0.0) -> float:
    moved = [x + h * d for x, d in zip(at.xs, at.dxs, strict=True)]
    return float(evaluate(f, *map(np.float64, moved), np.int32(at.k))[0])


def close(a: float, b: float, scale: float, bound: float) -> bool:
    return abs(a - b) <= bound * max(scale, abs(a), abs(b)) or a == b


def slopes(f: Graph, at: Point) -> Iterator[float]:
    """Central differences of fourth order with three steps: away from kinks they agree."""

    def one(h: float) -> float:
        far, near, ahead, beyond = (value(f, at, s * h) for s in (-2, -1, 1, 2))
        return (far - beyond + 8 * (ahead - near)) / (12 * h)

    return map(one, (4e-4, 3e-3, 5e-5))


SKIPPED: list[int] = []
ROUGH: list[int] = []  # programs with a derivative at a place where differences are bad


@pytest.fixture(scope="module", autouse=True)
def seed_is_printed() -> Any:
    print(f"\nDIFFLANG_SEED={SEED}")
    yield
    print(f"\n{len(SKIPPED)} of {COUNT} programs stood at a kink")
    assert len(SKIPPED) <= max(3, 0.1 * COUNT)
    print(f"{len(ROUGH)} took a derivative near one")
    assert len(ROUGH) <= max(3, 0.1 * COUNT)


@pytest.mark.parametrize("seed", SEEDS)
def test_forward_reverse_and_differences_agree(seed: int) -> None:
    f, at = graph(seed), point(seed)
    whole, forward, reverse = differentiate(f), composed("J", f), composed("V", f)
    verify(forward)
    verify(reverse)
    y, dy = pushed(forward, at)
    again, cts = pulled(reverse, at)
    terms = [c * d for c, d in zip(cts, at.dxs, strict=True)]
    plain = value(whole, at)
    assert y == again == plain or np.isnan(plain)
    assert np.isfinite(plain), "programs are made to be finite"
    scale = max(1e-6, sum(map(abs, terms)))
    assert close(dy, sum(terms), scale, 32 * EPS) or close(*in_extended(forward, reverse, at), scale, EPS), (dy, terms)
    estimates: list[float] = []
    for estimate in slopes(whole, at):
        if close(dy, estimate, scale, 1e-6):
            return
        estimates.append(estimate)
    spread = max(estimates) - min(estimates)
    assert spread > 1e-6 * max(scale, abs(dy)), (dy, estimates)
    SKIPPED.append(seed)


def in_extended(forward: Graph, reverse: Graph, at: Point) -> tuple[float, float]:
    """Both modes with 11 bits more: a rule that is wrong stays wrong, what was rounding inside the program is gone."""
    dxs = [np.longdouble(d) for d in at.dxs]
    xs = [*map(np.longdouble, at.xs), np.int32(at.k)]
    *_, dy = evaluate(GraphWidening().graph(forward), *xs, *dxs)
    *_, a, b, c = evaluate(GraphWidening().graph(reverse), *xs, np.longdouble(1))
    return dy, a * dxs[0] + b * dxs[1] + c * dxs[2]


def pushed(forward: Graph, at: Point) -> tuple[float, float]:
    y, *rest = evaluate(forward, *at.arrays, *map(np.float64, at.dxs))
    return float(y), float(rest[-1])


def pulled(reverse: Graph, at: Point) -> tuple[float, list[float]]:
    y, *rest = evaluate(reverse, *at.arrays, np.float64(1))
    return float(y), [float(c) for c in rest[-3:]]


def along(mode: str, f: Graph, direction: Sequence[float]) -> Graph:
    """The derivative of a program along a direction, in one mode: a program of the same arguments."""

    def derived(*xs: Value) -> list[Value]:
        moving = [literal(xs[0], d) for d in direction]
        if mode == "J":
            return [OPS["jvp"](*xs, *moving, regions=(f,), wrt=WRT)[-1]]
        cts = OPS["vjp"](*xs, literal(xs[0], 1.0), regions=(f,), wrt=WRT)[-3:]
        one, two, three = [c * d for c, d in zip(cts, moving, strict=True)]
        return [one + two + three]

    return build_region([p.type for p in f.params], derived)


def in_every_order(seed: int, depth: int) -> dict[str, float]:
    """The derivative of this order along as many directions, forward and reverse mode nested in every way."""
    at, found = point(seed), {"": graph(seed)}
    for i in range(depth):
        direction = point(seed + i).dxs
        found = {mode + before: along(mode, g, direction) for before, g in found.items() for mode in "JV"}
    return {modes: value(differentiate(g), at) for modes, g in found.items()}


@pytest.mark.parametrize(("seed", "depth"), [*((s, 2) for s in SEEDS[::5]), *((s, 3) for s in SEEDS[::25])])
@pytest.mark.nightly_cases("0-3")
def test_modes_nested_in_every_way_agree(seed: int, depth: int) -> None:
    found = in_every_order(seed, depth)
    assert np.isfinite(list(found.values())).all(), found
    want = found["J" * depth]
    assert all(close(want, other, 1e-3, 1e-8) for other in found.values()), found


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_graphs_are_those_of_functions(seed: int) -> None:
    """To the last bit, where the graph has the equations of the function that it calls."""
    f, at = graph(seed), point(seed).arrays
    g = dg.Graph(f)
    d = dg.gradient(g, g.outputs[0], g.inputs[:3], unreachable="zero")
    verify(d.ir)
    want = evaluate(composed("V", f), *at, np.float64(1))[-3:]
    assert floats(evaluate(differentiate(d.ir), *at)) == floats(want)
    inlined = g.apply("inline", "simplify", "cse")
    d = dg.gradient(
        inlined, inlined.outputs[0], inlined.inputs[:3], unreachable="zero", recompute=lambda e: e.op == "mul"
    )
    same_numbers(want, evaluate(differentiate(d.ir), *at), 1e-11)


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_change_nothing(seed: int) -> None:
    """Optimized or not: the value and the gradient."""
    f, at = graph(seed), point(seed)
    for order, more in (("", []), ("V", [np.float64(1)])):
        derived = composed(order, f) if order else differentiate(f)
        ready = finalize_graph(derived)
        verify(ready)
        same_numbers(evaluate(derived, *at.arrays, *more), evaluate(ready, *at.arrays, *more))


def same_numbers(want: Sequence[Any], got: Sequence[Any], bound: float = 1e-11) -> None:
    """Those that are floats: which index is checked may depend on what is named, whether one fails does not."""
    for a, b in zip(floats(want), floats(got), strict=True):
        assert close(a, b, 1.0, bound), (a, b)


def floats(found: Sequence[Any]) -> list[float]:
    return [float(np.max(x)) for x in found if np.asarray(x).dtype.kind == "f"]


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_graphs_survive_text_and_json(seed: int) -> None:
    for f in (differentiate(graph(seed)), finalize_graph(composed("V", graph(seed)))):
        assert graphs_equal(graph_from_text(graph_to_text(f)), f)
        assert graphs_equal(graph_from_json(graph_to_json(f)), f)


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_names_dead_code_and_lets_change_nothing(seed: int) -> None:
    at = point(seed)
    want = evaluate(composed("V", graph(seed)), *at.arrays, np.float64(1))
    for how in ({"prefix": "other"}, {"dead": True}, {"floated": True}):
        other = graph_of(HEADER + random_program(seed, **how))
        got = evaluate(composed("V", other), *at.arrays, np.float64(1))
        same_numbers(want, got, 1e-13)


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_in_several_files_it_is_the_same_program(seed: int, tmp_path: Path) -> None:
    """The value and the gradient, to the last bit."""
    texts, at = split(HEADER + random_program(seed), seed), point(seed).arrays
    for name, text in texts.items():
        path = tmp_path / f"{name}.dfl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    parted = graph_of(texts["main"], path=tmp_path / "main.dfl")
    want, got = (evaluate(composed("V", f), *at, np.float64(1)) for f in (graph(seed), parted))
    assert floats(want) == floats(got)


@pytest.mark.daily
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, max(COUNT // 10, TOGETHER), TOGETHER))
def test_compiled_is_interpreted(first: int) -> None:
    """Values, and derivatives in both modes, of many programs in one executable."""
    from difflang.runtime.compile import compile_graph

    seeds = SEEDS[first : first + TOGETHER]
    names = [f"f{i}" for i in range(len(seeds))]
    functions = "".join(random_program(s, name=n) for s, n in zip(seeds, names, strict=True))
    calls = ", ".join(f"{n}(x, y, z, k)" for n in names)
    slopes = ", ".join(f"jvp[0, 1, 2]({n})(x, y, z, k, 0.5, -0.7, 0.9)" for n in names)
    gradients = ", ".join(f"grad[0, 1, 2]({n})(x, y, z, k)" for n in names)
    whole = f"fn all(x: f64, y: f64, z: f64, k: i32) = ({calls}, {slopes}, {gradients})\n"
    found = checked(HEADER + functions + whole)
    ready = finalize_graph(
        elaborate_call(
            found.session,
            found.module,
            "all",
            ClosureType(FnCode(found.module.fns["all"], found.module), ()),
            ARGUMENTS,
        ).graph
    )
    arrays = point(first).arrays
    want, got = evaluate(ready, *arrays), compile_graph(ready)(*arrays)
    same_numbers(want, [np.asarray(a) for a in got], 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_implementation_gives_the_same(seed: int) -> None:
    """The syntax tree, walked with NumPy; where the program takes derivatives, those are differences there."""
    program, at = random_program(seed), point(seed)
    with np.errstate(all="ignore"):
        want = float(Reference(HEADER + program).top["f"](*at.arrays))
    got = value(differentiate(graph(seed)), at)
    exact = not any(word in program for word in ("grad", "jvp", "vjp", "hvp", "hessian", "'"))
    if exact or close(want, got, 1.0, 1e-5):
        assert close(want, got, 1.0, 1e-12 if exact else 1e-5), (want, got)
        return
    ROUGH.append(seed)


@pytest.mark.nightly
def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cotangents of what a loop only reads, not summed over its steps; and an update that is not stored."""
    monkeypatch.setattr(difflang.ops.loop.step_transpose, "add_tangents", lambda x, y: y)
    seeds = range(40)
    assert sum(differs(seed) for seed in seeds) > 8
    monkeypatch.undo()
    assert sum(differs(seed) for seed in seeds) == 0
    monkeypatch.setattr(difflang.elaborate.statements.basic_statements, "drop_static", lambda value: value)
    for room in (difflang.elaborate.statements.branches, difflang.elaborate.statements.loops):
        monkeypatch.setattr(room, "rebind_term", lambda old, values: old)
    assert sum(computes_otherwise(seed) for seed in seeds) > 20


def test_a_wrong_step_of_recursion_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a call, left out."""
    monkeypatch.setattr(support.random_programs, "GROUPS", (1,))
    seeds = range(20)
    assert sum(computes_otherwise(seed) for seed in seeds) == 0
    monkeypatch.setattr(difflang.recursion.control_flow_graph.ControlFlowGraph, "is_last", lambda *_: True)
    assert sum(computes_otherwise(seed) for seed in seeds) > 5


def differs(seed: int) -> bool:
    """Whether forward and reverse mode of a program disagree."""
    f, at = graph_of(HEADER + random_program(seed)), point(seed)
    _, dy = pushed(composed("J", f), at)
    _, cts = pulled(composed("V", f), at)
    terms = [c * d for c, d in zip(cts, at.dxs, strict=True)]
    return not close(dy, sum(terms), sum(map(abs, terms)), 1e-9)


def computes_otherwise(seed: int) -> bool:
    source, at = HEADER + random_program(seed), point(seed)
    try:
        found = value(differentiate(graph_of(source)), at)
    except (DifflangError, InternalError, ValueError, StopIteration):
        return True
    return not close(found, float(Reference(source).top["f"](*at.arrays)), 1.0, 1e-5)
