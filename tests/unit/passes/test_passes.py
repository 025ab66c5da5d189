"""What single passes do, read as IR text; and that all of them are linear."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import difflang
from difflang.base.diagnostics import InternalError
from difflang.ir.builder import Builder, build_region
from difflang.ir.graph import Graph, Value
from difflang.ir.interpreter import evaluate
from difflang.ir.op import OPS, Inactive, Op
from difflang.ir.tensor_types import F64, I32, Tensor
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text
from difflang.ir.verify import verify, verify_if_enabled
from difflang.passes.cse import cse
from difflang.passes.dce import dce
from difflang.passes.fuse_loops import fuse
from difflang.passes.hoist import hoist, hoist_from_nonempty_loops
from difflang.passes.inline import inline
from difflang.passes.pipelines import OPTIMIZE, ROUND
from difflang.passes.simplify import simplify
from support.golden import accept
from support.work import work

F, V = Tensor(F64), Tensor(F64, (4,))
GOLDEN = Path(__file__).parents[2] / "golden" / "ir"
PASSES = {p.__name__: p for p in (dce, cse, inline, hoist, fuse, simplify)} | {"optimize": OPTIMIZE}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.in.txt")), ids=lambda p: p.name)
def test_a_pass_gives_what_is_written_down(path: Path) -> None:
    """`NAME.PASS.in.txt` is rewritten to `NAME.PASS.out.txt`."""
    rewrite = PASSES[path.name.split(".")[1]]
    graph = verify(graph_from_text(path.read_text(), path.name))
    accept(
        path.with_name(path.name.replace(".in.", ".out.")),
        graph_to_text(verify(rewrite(graph), after=path.name)),
    )


def test_there_are_golden_files() -> None:
    assert {path.name.split(".")[1] for path in GOLDEN.glob("*.in.txt")} == set(PASSES)


@pytest.fixture
def shout(monkeypatch: pytest.MonkeyPatch) -> Op:
    """An op with an effect."""
    op = Op("shout", lambda same, x: x, lambda x: x, lambda jax, x: x, "A test's own.", Inactive(), effect="print")
    monkeypatch.setitem(OPS, "shout", op)
    return op


def effects(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.eqns if eqn.effectful]


def test_effects_are_never_dropped_merged_or_moved(shout: Op) -> None:
    def body(i: Value, c: Value, x: Value) -> list[Value]:
        shout.one(c)
        shout.one(c)
        return [x + c]

    def program(x: Value) -> list[Value]:
        shout.one(x)
        step = build_region([Tensor(I32), F, F], body)
        attrs: dict[str, Any] = {"consts": 1, "carry": 1, "length": 3, "exact": True, "reverse": False}
        limit = x.home.const(3, Tensor(I32))
        x.home.emit(OPS["loop"], [limit, x, x], (step,), **attrs)
        shout.one(x)
        return [x]

    graph = build_region([F], program)
    for rewrite in (*[step.of for step in ROUND], OPTIMIZE):
        after = verify(rewrite(graph), after=rewrite.name)
        assert effects(after) == ["shout", "loop", "shout"]
        loop = next(e for e in after.eqns if e.regions)
        assert effects(loop.regions[0]) == ["shout", "shout"]


def test_fusion_never_reorders_effects(shout: Op) -> None:
    """The second loop reads the first, but stands behind an effect that does too."""

    def program(x: Value) -> list[Value]:
        attrs: dict[str, Any] = {"consts": 0, "carry": 1, "length": 4, "exact": True, "reverse": False}
        limit = x.home.const(4, Tensor(I32))
        one = build_region([Tensor(I32), F], lambda i, c: [c + c, c])
        _, last, ys = x.home.emit(OPS["loop"], [limit, x], (one,), **attrs)
        late = shout.one(shout.one(last))
        two = build_region([Tensor(I32), F, F], lambda i, c, y: [c + y])
        return list(x.home.emit(OPS["loop"], [limit, late, ys], (two,), **attrs))

    graph = build_region([F], program)
    assert fuse(graph) is graph


def test_a_step_that_may_not_run_is_not_hoisted_if_it_may_not_end() -> None:
    """A `while` inside a loop that takes no step would hang before it."""

    def inner(i: Value, c: Value) -> list[Value]:
        return [c]

    def outer(i: Value, k: Value, c: Value) -> list[Value]:
        limit = k.home.const(2**31 - 1, Tensor(I32))
        attrs: dict[str, Any] = {"consts": 0, "carry": 1, "length": None, "exact": False, "reverse": False}
        return [c + k.home.emit(OPS["loop"], [limit, k], (build_region([Tensor(I32), F], inner),), **attrs)[1]]

    def program(x: Value) -> list[Value]:
        attrs: dict[str, Any] = {"consts": 1, "carry": 1, "length": 3, "exact": False, "reverse": False}
        step = build_region([Tensor(I32), F, F], outer)
        return list(x.home.emit(OPS["loop"], [x.home.const(0, Tensor(I32)), x, x], (step,), **attrs))

    graph = build_region([F], program)
    assert hoist(graph) is graph
    assert evaluate(OPTIMIZE(graph), 2.0)[1] == 2.0


@pytest.mark.parametrize(("length", "exact"), [(3, True), (3, False), (0, True), (None, False)])
def test_before_derivatives_only_what_surely_runs_is_hoisted(length: int | None, exact: bool) -> None:
    def program(x: Value) -> list[Value]:
        attrs: dict[str, Any] = {"consts": 1, "carry": 1, "length": length, "exact": exact, "reverse": False}
        step = build_region([Tensor(I32), F, F], lambda i, k, c: [c + OPS["sqrt"].one(k)])
        return list(x.home.emit(OPS["loop"], [x.home.const(length or 0, Tensor(I32)), x, x], (step,), **attrs))

    graph = build_region([F], program)
    moved = "sqrt" in [e.op.name for e in hoist_from_nonempty_loops(graph).eqns]
    assert moved == (length == 3 and exact)


def test_a_loop_without_a_step_adds_nothing_to_a_gradient_where_the_slope_is_infinite() -> None:
    """Hoisted before it is differentiated, the root would have contributed zero times infinity."""
    module = difflang.loads(
        """
        fn f(x: f64, n: i32) -> f64 {
          var y = x
          for _ in 0..n { y += sqrt(x) }
          y
        }
        fn g(x: f64) -> f64 {
          var y = x
          for _ in 0..3 { y += sqrt(x) }
          y
        }
        """,
        name="roots",
    )
    assert [float(module.f.grad("x")(0.0, n)) for n in (0, 1)] == [1.0, float("inf")]
    assert float(module.g.grad("x")(4.0)) == 1.75


@pytest.mark.parametrize(("low", "high", "within"), [(0, 4, True), (-2, 9, True), (1, 4, False), (0, 3, False)])
def test_what_counts_along_an_axis_is_kept_within_bounds_only_if_it_reaches_beyond(
    low: int, high: int, within: bool
) -> None:
    graph = graph_from_text(
        f"""graph @f() {{
  %0: i32[5] = iota {{axis = 0, type = i32[5]}}
  %1: i32[5] = const {{type = i32[5], value = {low}}}
  %2: i32[5] = const {{type = i32[5], value = {high}}}
  %3: i32[5] = clamp %1, %0, %2
  yield %3
}}
""",
        "f",
    )
    (kept,) = evaluate(simplify(verify(graph)))
    assert kept.tolist() == [min(max(i, low), high) for i in range(5)]
    names = [eqn.op.name for eqn in dce(simplify(graph)).eqns]
    assert ("clamp" not in names) == within


def test_a_switch_turns_verification_on(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder()
    broken = Graph((), (), (Value(F, builder),))
    monkeypatch.setattr("difflang.ir.verify.ENABLED", False)
    assert verify_if_enabled(broken, "a pass") is broken
    monkeypatch.setattr("difflang.ir.verify.ENABLED", True)
    with pytest.raises(InternalError, match="after a pass"):
        verify_if_enabled(broken, "a pass")


def line(length: int) -> Graph:
    """A straight line with duplicates, dead code and something for every kind of rule."""
    builder = Builder()
    x = y = builder.param(F, "x")
    for i in range(length // 5):
        z = y * x + 1.0
        y = -(-z) if i % 2 else builder.one("sin", z) + builder.one("sin", z) * y  # noqa: B002
    return builder.finish([y])


def nest(length: int) -> Graph:
    """Many loops that read each other."""
    builder = Builder()
    x = builder.param(F, "x")
    ys = builder.param(V, "ys")
    limit = builder.const(4, Tensor(I32))
    attrs: dict[str, Any] = {"consts": 1, "carry": 1, "length": 4, "exact": True, "reverse": False}
    for _ in range(length // 5):
        step = build_region([Tensor(I32), F, F, F], lambda i, k, c, y: [c + y * (k * k), y * c])
        _, x, ys = builder.emit(OPS["loop"], [limit, x, x, ys], (step,), **attrs)
    return builder.finish([x, ys])


def once(rewrite: Callable[[Graph], Graph], graph: Graph) -> int:
    return work(lambda: rewrite(graph))


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.nightly_cases("cse")
def test_a_pass_is_linear_in_equations(name: str) -> None:
    """Four times the equations are four times the work, and no more than two hundred calls an equation."""
    small, large = (once(PASSES[name], line(n)) for n in (5_000, 20_000))
    assert large < 4.2 * small + 500, (small, large)
    assert large < 200 * 20_000, large


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_is_linear_in_loops(name: str) -> None:
    small, large = (once(PASSES[name], nest(n)) for n in (1_000, 4_000))
    assert large < 4.2 * small + 500, (small, large)


def test_deep_nesting_and_shared_calls_stay_small() -> None:
    graph = build_region([F], lambda x: [OPS["sin"].one(x) * x], name="f")
    for _ in range(25):
        graph = twice(graph)
    after = OPTIMIZE(graph)
    assert len(graph_to_text(after)) < 40_000


def twice(f: Graph) -> Graph:
    def program(x: Value) -> tuple[Value, ...]:
        return OPS["call"](*OPS["call"](x, regions=(f,), name="f"), regions=(f,), name="f")

    return build_region([F], program, name="f")
