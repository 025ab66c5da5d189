"""Errors of differences by step against the theory of truncation and rounding, and of both modes."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.gradcheck.directional_derivatives import GraphAtPoint
from difflang.gradcheck.extended_precision import EPSILON
from difflang.lower.lowering_pipeline import expand_keeping_rules
from difflang.tools.compare.difference_errors import (
    PointErrors,
    count_operations_at,
    measure_errors,
    step_sizes,
    unit_direction,
)
from difflang.tools.emit import EmitRequest, function_graph

extended = pytest.mark.skipif(EPSILON > 1e-18, reason="longdouble has no more digits than f64 here")


def errors_of(source: str, *arrays: Any) -> PointErrors:
    checked = check_program(Source("test.dfl", source))
    assert not checked.errors, checked.errors
    decl = next(iter(checked.module.fns.values()))
    graph = expand_keeping_rules(
        function_graph(checked, decl, EmitRequest("ir", "f", {"n": "12"} if "n]" in source else {}))
    )
    given = [np.asarray(x) for x in arrays]
    at = GraphAtPoint(graph, given, tuple([p.type.tangent is not None for p in graph.params]))
    return measure_errors(at, count_operations_at(graph, given))


@extended
def test_truncation_is_that_of_taylor() -> None:
    """Of `exp` at 1: h/2 one-sided, h^2/6 central, relative to the slope."""
    found = errors_of("fn f(x: f64) -> f64 = exp(x)\n", 1.0)
    for row in found.steps[1:4]:
        assert row.one_sided.truncation == pytest.approx(row.step / 2, rel=0.01)
        assert row.central.truncation == pytest.approx(row.step**2 / 6, rel=0.01)
        assert row.one_sided.total == pytest.approx(row.one_sided.truncation, rel=1e-3)
    # What is left of it is smaller than the error of extended precision.
    assert found.steps[-1].one_sided.truncation is None


@extended
def test_rounding_grows_as_the_step_falls() -> None:
    found = errors_of("fn f(x: f64) -> f64 = exp(x)\n", 1.0)
    for row in found.steps[3:12]:
        assert row.one_sided.rounding is not None
        assert row.one_sided.rounding < 4 * 2.2e-16 / row.step
    assert found.steps[-1].one_sided.total == pytest.approx(1.0)


@extended
def test_what_extended_precision_rounds_too_is_no_truncation() -> None:
    """The sum loses steps below 1e-11 even there, so that the difference is 0 in both precisions."""
    found = errors_of("fn f(x: f64) -> f64 = sin((x + 1e8) - 1e8)\n", 1.0)
    known = [row.step for row in found.steps if row.one_sided.truncation is not None]
    assert known == [row.step for row in found.steps[: len(known)]] and known[-1] > 1e-9
    assert found.steps[-1].one_sided.rounding == found.steps[-1].one_sided.total == 1.0


def test_a_long_run_has_fewer_steps_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from difflang.tools.compare import difference_errors

    monkeypatch.setattr(difference_errors, "ALL_OPERATIONS", 20)
    found = errors_of("fn f(x: f64[n]) -> f64[n] = x * sin(x)\n", np.arange(1.0, 13.0))
    assert found.compared == (1, 1) and found.steps[0].step == 1.0 and 1 <= len(found.steps) < 4
    assert found.best("central") is not None


@pytest.mark.parametrize(
    ("dtype", "one_sided", "central"), [("f64", (1e-9, 1e-7), (1e-6, 1e-4)), ("f32", (1e-4, 1e-2), (1e-3, 1e-1))]
)
def test_the_best_step_is_a_root_of_the_rounding_error(
    dtype: str, one_sided: tuple[float, float], central: tuple[float, float]
) -> None:
    kind = {"f64": np.float64, "f32": np.float32}[dtype]
    found = errors_of(f"fn f(x: {dtype}) -> {dtype} = exp(sin(x)) / x\n", kind(1.3))
    for method, (low, high) in (("one_sided", one_sided), ("central", central)):
        best = found.best(method)
        assert best is not None and low * 0.99 <= best[1] <= high * 1.01
    assert found.forward < 8 * np.finfo(kind).eps > found.reverse


@pytest.mark.parametrize(
    ("source", "arrays", "numbers", "results"),
    [
        ("fn f(x: f64[n]) -> f64[n] = x * sin(x)\n", (np.arange(1.0, 13.0),), 12, 12),
        ("fn f(z: c128) -> c128 = z * z * exp(z)\n", (1.0 + 2.0j,), 2, 2),
        ("fn f(x: f64, k: i32, y: f64) -> (f64, i32) = (x * y * f64(k), k)\n", (2.0, np.int32(3), 0.5), 2, 1),
    ],
)
def test_of_many_numbers_some_are_compared(source: str, arrays: Any, numbers: int, results: int) -> None:
    found = errors_of(source, *arrays)
    assert (found.numbers, found.results) == (numbers, results)
    assert found.compared == (min(8, numbers), min(8, results))
    assert max(found.forward, found.reverse) < 4e-16
    assert found.best("central")[0] < 1e-9 and not found.absolute  # pyright: ignore[reportOptionalSubscript]


def test_a_wrong_number_of_one_mode_alone_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    from difflang.tools.compare import difference_errors

    right = difference_errors.reverse_derivatives
    monkeypatch.setattr(difference_errors, "reverse_derivatives", lambda *given: right(*given) * 1.001)
    found = errors_of("fn f(x: f64) -> f64 = exp(x)\n", 1.0)
    assert found.reverse == pytest.approx(1e-3, rel=1e-6) and found.forward < 1e-15


def test_differences_take_the_path_of_their_own_run() -> None:
    """At a jump the difference is the jump, though derivatives stay on their branch."""
    found = errors_of("fn f(x: f64) -> f64 = if x > 1.0 { x + 1.0 } else { x }\n", 1.0)
    assert found.steps[0].one_sided.total == pytest.approx(10.0)
    assert found.forward == found.reverse == 0.0


def test_a_run_beside_the_point_may_not_end() -> None:
    source = "fn f(x: f64) -> f64 {\n  var s = x\n  while s != 1.0 { s += 1.0 }\n  s * x\n}\n"
    found = errors_of(source, -3.0)
    assert isnan(found.steps[3].one_sided.total)
    assert found.best("one_sided") is None or found.best("one_sided")[0] > 0.1  # pyright: ignore[reportOptionalSubscript]


def test_the_errors_of_a_derivative_of_zero_are_absolute() -> None:
    found = errors_of("fn f(x: f64) -> f64 = abs(x)\n", 0.0)
    assert found.absolute and found.steps[0].one_sided.total == 1.0 and found.steps[0].central.total == 0.0


def test_steps_fit_the_arguments() -> None:
    def ends(*numbers: float, own: float = 2.2e-16) -> tuple[float, float]:
        found = step_sizes(np.array(numbers), own)
        return found[0], found[-1]

    assert ends(2.0, 5.0) == (1e-1, 1e-16)
    assert ends(2.0, own=1.2e-7) == (1e-1, 1e-7)
    assert ends(3e10) == (1e9, 1e-6)
    assert ends(3e-4) == (1e-1, 1e-20)
    assert ends(0.0) == ends(1.0) and ends(1e-320)[1] > 0.0


def test_a_unit_direction_counts_as_all_numbers_in_a_row() -> None:
    arrays = [np.zeros((2, 2)), np.zeros(2, np.complex128), np.zeros(())]
    assert [np.flatnonzero(a).tolist() for a in unit_direction(arrays, 3)] == [[3], [], []]
    assert unit_direction(arrays, 5)[1].tolist() == [0, 1] and unit_direction(arrays, 6)[1].tolist() == [1j, 0]
    assert unit_direction(arrays, 8)[2] == 1
