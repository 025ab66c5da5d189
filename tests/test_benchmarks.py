"""The benchmarks run, and their statistics are what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import difflang

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import memory  # noqa: E402
from calls import CALLS  # noqa: E402
from cases import Case  # noqa: E402
from gradients import GRADIENTS  # noqa: E402
from notation import NOTATION  # noqa: E402
from support.devices import python_on_devices  # noqa: E402
from weak_scaling import DEVICES, PROGRAMS, figures  # noqa: E402

# The first twin of each program is always compared, the others at night.
TWINS = [
    pytest.param(name, twin, id=f"{name}-{twin}", marks=[pytest.mark.nightly] if n else [])
    for name, case in GRADIENTS.items()
    for n, twin in enumerate(case().twins)
]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_a_spread_is_a_median_and_its_surroundings() -> None:
    from timing import Spread

    spread = Spread.of([float(n) for n in range(101)])
    assert (spread.median, spread.low, spread.high) == (50, 5, 95)
    assert spread.surely_from == 40 and spread.surely_to == 60
    assert Spread.of([2.0]) == Spread(2, 2, 2, 2, 2)


def test_what_several_processes_measured_is_a_median_of_theirs() -> None:
    from run import Result

    one = {"median": 1.0}
    runs = [
        {"case": "c", "what": "value", "twin": "plain", "target": 1.05, "same_program": True, "noise": one}
        | {"twin_seconds": 2.0, "seconds": 2.0 * r, "ratio": {"median": r}}
        for r in (0.9, 1.04, 1.6)
    ]
    found = Result.pooled(runs)
    assert found.ratio is not None and (found.ratio.median, found.ratio.high) == (1.04, 1.6)
    assert found.seconds == 2.08 and found.verdict == "met"
    alone = Result.pooled([r | {"ratio": None, "seconds": None} for r in runs])
    assert alone.ratio is None and alone.seconds is None and alone.noise.median == 1


def test_rounds_measure_everything_and_drift_cancels() -> None:
    """Two equal runs on a clock that slows down: each ratio is taken within its round."""
    from timing import best, interleaved, ratio

    assert ratio([1.0, 2.0, 4.0], [1.0, 2.0, 4.0]).median == 1
    assert best({"a": [3.0, 3.0, 9.0], "b": [2.0, 5.0, 5.0]}) == "a"
    calls: list[str] = []
    seconds = interleaved({n: (lambda n=n: calls.append(n)) for n in "abc"}, rounds=4, at_least=0.0)
    assert {n: len(s) for n, s in seconds.items()} == {"a": 4, "b": 4, "c": 4}
    assert "".join(calls[3:]) == "abcbcacababc"


@pytest.mark.slow
@pytest.mark.nightly
def test_the_harness_runs_on_the_twins(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "scalar", "fit_curve", "--twins-only", "--first-calls", "1"]
    command += ["--rounds", "3", "--block", "0.0001", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    kinds = ["value", "gradient", "front end", "first call"]
    assert [(r["case"], r["what"]) for r in results] == [(c, k) for c in ("scalar", "fit_curve") for k in kinds]
    assert all(r["twin_seconds"] > 0 for r in results)


@pytest.mark.parametrize("name", ["wave", "ode", "stacked", "recurrent"])
def test_twins_of_loops_of_known_length(name: str) -> None:
    """Those that are not in the table of gradients give what the program gives."""
    from counted import COUNTED

    case = COUNTED[name]()
    ours = getattr(difflang.loads(case.source, name=name), case.entry).grad(case.wrt)(*case.arguments)
    twin = jax.jit(case.differentiated(case.twins["scan1"]))(*case.arguments)
    np.testing.assert_allclose(np.asarray(ours), np.asarray(twin), rtol=0, atol=1e-4 * np.abs(twin).max())


def test_an_unknown_case_is_refused() -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 2 and "no case nothing" in done.stderr


def test_twelve_programs_are_in_the_table_and_some_end_when_they_have_found_something() -> None:
    assert len(GRADIENTS) == 12
    assert sum("while " in case().source for case in GRADIENTS.values()) == 4


@cache
def ours(name: str) -> tuple[Any, list[np.ndarray]]:
    """The value of our program and its gradient, leaf by leaf: compiled once for all of its twins."""
    case = GRADIENTS[name]()
    function = getattr(difflang.loads(case.source, name=name), case.entry)
    gradient = function.grad(case.wrt)(*case.arguments)
    return function(*case.arguments), [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]


@pytest.mark.parametrize(("name", "twin"), TWINS)
def test_a_program_and_its_twin_have_one_value_and_one_gradient(name: str, twin: str) -> None:
    """Element by element, in f64: what is measured side by side computes the same."""
    case = GRADIENTS[name]()
    with jax.enable_x64(True):
        value, gradient = jax.jit(jax.value_and_grad(case.twins[twin]))(*case.arguments)
    computed, found = ours(name)
    np.testing.assert_allclose(computed, value, rtol=1e-12, atol=0)
    for a, b in zip(found, jax.tree.map(np.asarray, jax.tree.leaves(gradient)), strict=True):
        assert a.dtype == b.dtype == np.float64 and np.any(b != 0)
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=0)


def in_f64(case: Case) -> Case:
    """The same program in f64, on the same numbers."""
    arguments = tuple([x.astype(np.float64) if x.dtype == np.float32 else x for x in case.arguments])
    return replace(case, source=case.source.replace("f32", "f64"), arguments=arguments)


@pytest.mark.parametrize("name", [name for name in NOTATION if not name.endswith("512")])
def test_index_notation_computes_what_its_twins_do(name: str) -> None:
    case = in_f64(NOTATION[name]())
    m = difflang.loads(case.source, name=name)
    with jax.enable_x64(True):
        for twin in case.twins.values():
            np.testing.assert_allclose(
                m[case.entry](*case.arguments), jax.jit(twin)(*case.arguments), rtol=1e-10, atol=1e-12
            )
        if case.wrt:
            gradient = jax.jit(case.differentiated(next(iter(case.twins.values()))))(*case.arguments)
            np.testing.assert_allclose(m.loss.grad(case.wrt)(*case.arguments), gradient, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("million")])
def test_calls_compute_what_their_twins_do(name: str) -> None:
    case = CALLS[name]()
    m = difflang.loads(case.source, name="calls")
    twin = case.twins["plain"]
    np.testing.assert_allclose(m[case.entry](*case.arguments), twin(*case.arguments), rtol=1e-6)
    gradient = jax.tree.leaves(jax.grad(twin)(*case.arguments))
    for a, b in zip(jax.tree.leaves(m[case.entry].grad(case.wrt)(*case.arguments)), gradient, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# ---- memory of long loops


def test_the_schedule_of_the_table_is_near_the_optimum() -> None:
    """Which has a slot less. The whole grid, up to 10⁵ steps, stands in the table."""
    for slots in (4, 8, 16, 32):
        found = memory.excess(slots, 1_500)
        assert len(found) == len(range(50, 1_500, 7))
        assert max(found) < 0.03
        assert np.mean(found) < 0.007


def test_steps_are_counted_as_the_tape_is_laid_out() -> None:
    assert memory.taken(memory.ROWS["scan"]) == 1.0
    assert memory.taken(memory.Row(100, 10, "")) == 1.0
    few, more = [memory.taken(memory.Row(1_000, 10_000, f"revolve, slots = {slots}")) for slots in (10, 60)]
    assert 1.0 < more < 2.0 < few < 4.0


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.nightly_except("512")
def test_the_page_about_many_devices_has_the_table(devices: int) -> None:
    """And no device does or sends more because there are more of them."""
    page = [
        " ".join(line.split()) for line in (BENCHMARKS.parent / "docs" / "many-devices.md").read_text().splitlines()
    ]
    assert all(" ".join(figures(program, devices)) in page for program in PROGRAMS)


@pytest.mark.nightly
def test_every_task_on_files_runs(tmp_path: Path) -> None:
    run = [sys.executable, BENCHMARKS / "data.py", "--rows", "1000", "--gib", "0.001", "--json", tmp_path / "d.json"]
    subprocess.run(run, check=True, capture_output=True)
    found = json.loads((tmp_path / "d.json").read_text())
    assert len(found) >= 4 and all(seconds >= 0 and peak < 1 for row in found.values() for seconds, peak in row)


@pytest.mark.slow
def test_devices_exchange_what_jax_by_hand_does() -> None:
    """`docs/many-devices.md` has the table."""
    done = python_on_devices(str(BENCHMARKS / "exchanged_bytes.py"))
    table = (BENCHMARKS.parent / "docs" / "many-devices.md").read_text(encoding="utf-8")
    assert done.stdout.strip() in table, done.stdout + done.stderr
