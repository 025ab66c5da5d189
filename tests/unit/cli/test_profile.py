"""`run --profile`: where time goes, line by line; each moment counted once."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from difflang.cli import main
from difflang.execution.line_profiler import LineProfile, format_seconds

PROGRAM = """
fn heavy(w: f32[n, n], x: f32[n]) -> f32[n] {
  var s = x
  for i in 0..60 {
    s = tanh(w @ s)
  }
  s + 1.0
}
let w: f32[500, 500] = zeros(500, 500)
let x: f32[500] = ones(500)
for k in 0..4 {
  print(sum(heavy(w, x + f32(k))))
}
"""


def run(*args: object) -> Result:
    result = CliRunner().invoke(main, ["run", *map(str, args)])
    assert "Traceback" not in result.output
    return result


def profile(folder: Path, *args: object) -> tuple[Result, dict[int, dict[str, Any]]]:
    """What a run prints, and the rows of its profile by line."""
    out = folder / "profile.json"
    result = run("--profile-out", out, *args)
    return result, {row["line"]: row for row in json.loads(out.read_text())["lines"]}


@pytest.mark.parametrize("engine", ["xla", "interpret"])
def test_time_in_a_function_is_that_of_its_lines(engine: str, file: Path, tmp_path: Path) -> None:
    start = time.perf_counter()
    result, rows = profile(tmp_path, "--engine", engine, file)
    took = time.perf_counter() - start
    assert result.exit_code == 0 and result.stdout == "500.0\n" * 4
    run_times = {line: row["run"] for line, row in rows.items()}
    assert max(run_times, key=run_times.__getitem__) in (4, 5), "the loop that multiplies matrices"
    assert rows[5]["text"] == "s = tanh(w @ s)" and rows[5]["file"] == str(file)
    assert rows[4]["run"] + rows[5]["run"] > 3 * rows.get(12, {"run": 0.0})["run"], "XLA says where its operations are"
    assert rows[5]["run"] > 5 * rows.get(7, {"run": 0.0})["run"]
    assert rows[12]["compile"] > 0 and rows[12]["host"] > 0 and rows[5]["host"] == 0
    whole = sum(row[kind] for row in rows.values() for kind in ("run", "compile", "host"))
    assert rows[4]["run"] + rows[5]["run"] < whole < took


def test_the_table_is_sorted_and_on_stderr(file: Path) -> None:
    result = run("--profile", "--engine", "interpret", file)
    assert result.stdout == "500.0\n" * 4
    head, *rows = result.stderr.strip().splitlines()
    assert head.split() == ["time", "share", "run", "compile", "host", "line"]
    shares = [float(share) for row in rows for share in re.findall(r" (\d+\.\d)% ", row)[:1]]
    assert len(shares) > 2 and shares == sorted(shares, reverse=True)
    assert any(row.endswith("s = tanh(w @ s)") and f"{file}:5" in row for row in rows)
    assert "in total" in result.stderr and "XLA" in result.stderr


def test_a_run_that_fails_has_a_profile_too(tmp_path: Path) -> None:
    path = tmp_path / "fails.dfl"
    path.write_text("let x = 1.0\nassert x > 2.0\n")
    result, rows = profile(tmp_path, path)
    assert result.exit_code == 3 and "DL0901" in result.stderr
    assert 2 in rows


def test_without_the_option_nothing_is_timed(file: Path) -> None:
    assert run("--engine", "interpret", file).stderr == ""


def test_a_profile_that_cannot_be_written(file: Path, tmp_path: Path) -> None:
    result = run("--engine", "interpret", "--profile-out", tmp_path / "no" / "p.json", file)
    assert result.exit_code == 1 and "DL0710" in result.stderr and result.stdout == "500.0\n" * 4


def test_each_moment_is_counted_once() -> None:
    clock = LineProfile()
    start = time.perf_counter()
    with clock.doing("compile"):
        time.sleep(0.02)
        with clock.doing("run"):
            time.sleep(0.01)
    rows = clock.rows()
    took = time.perf_counter() - start
    (row,) = rows
    assert 0.01 <= row.seconds["run"] < row.seconds["compile"] < took
    assert row.total <= took + 0.01


def test_times_are_written_as_people_write_them() -> None:
    assert [format_seconds(s) for s in (1.234, 0.0123, 4.5e-7, 1234.0)] == ["1.23 s", "12.3 ms", "0.45 µs", "1234 s"]


# ---- What XLA's trace says

MANY = """float f64
fn many(x: f64[n], most: i32) -> f64[n] where n > 0 {
  var y = x
  var k = 0
  while k < most and sum(y) < 1e9 {
    y = sort(cumsum(sin(y)))
    k = k + 1
  }
  y
}
let y = many(ones(8), 60_000)
print(all(y < 9.0))
"""


def test_a_call_of_many_steps_is_traced_in_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of the whole call would be of some 400,000 steps: 50 MB as XLA writes it, near a GB as it is held."""
    from difflang.runtime import profiler_traces, trace_sampling

    written: list[int] = []
    end = trace_sampling.TraceSampler.stop_trace

    def noted(self: trace_sampling.TraceSampler, begin: float, until: float) -> int:
        written.append(end(self, begin, until))
        return written[-1]

    monkeypatch.setattr(trace_sampling.TraceSampler, "stop_trace", noted)
    monkeypatch.setattr(trace_sampling, "FIRST_SAMPLE_SECONDS", 0.001)
    monkeypatch.setattr(trace_sampling, "TARGET_TRACE_BYTES", 1 << 17)
    monkeypatch.setattr(profiler_traces, "MAX_TRACE_BYTES", 1 << 19)
    path, out = tmp_path / "many.dfl", tmp_path / "many.json"
    path.write_text(MANY)
    result = run("--profile", "--profile-out", out, path)
    assert result.stdout == "true\n", "it is run to its end"
    assert 0 < sum(written) < 10 << 20
    assert f"{path}:11: more steps than a trace can hold; its lines are estimated from" in result.stderr
    told = json.loads(out.read_text())
    rows = {row["line"]: row for row in told["lines"]}
    assert rows[6]["run"] > 0, "where it stands in the loop is known"
    assert sum(each["seconds"] for each in told["untold"]) < told["seconds"]


def test_time_that_no_trace_divides_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from difflang.runtime import profiler_traces

    nothing: tuple[dict[str, float], float] = {}, 0.0
    monkeypatch.setattr(profiler_traces, "op_seconds", lambda *_: nothing)
    result = run("--profile", file)
    assert result.stdout == "500.0\n" * 4
    assert (
        f"{file}:12: " in result.stderr
        and "cannot be divided among lines: no trace holds everything that ran there" in result.stderr
    )


def test_moments_are_divided_among_those_at_work() -> None:
    """A loop on one thread gets what its body, there and on another, leaves of it."""
    from difflang.runtime.profiler_traces import wall_time

    threads = [
        [(0.0, 100.0, "while.1"), (10.0, 30.0, "dot.2"), (40.0, 60.0, "fusion.3")],
        [(50.0, 90.0, "dot.4")],
    ]
    assert wall_time(threads) == Counter({"while.1": 30.0, "dot.2": 20.0, "fusion.3": 15.0, "dot.4": 35.0})


HLO = """HloModule jit_f_0, is_scheduled=true

FileNames
1 "/python.py"
2 "odd name.dfl"

FunctionNames
1 "<module>"
2 "<difflang>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=9 end_line=9 column=0 end_column=8}
2 {file_name_id=2 function_name_id=2 line=3 end_line=3 column=2 end_column=4}
3 {file_name_id=2 function_name_id=2 line=5 end_line=5 column=2 end_column=4}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=3 parent_frame_id=2}
4 {file_location_id=1 parent_frame_id=3}

%fused (param_0: f64[3]) -> f64[3] {
  %param_0 = f64[3]{0} parameter(0)
  %sin.1 = f64[3]{0} sine(%param_0), metadata={op_name="jit(f)/sin" stack_frame_id=2}
  ROOT %add.1 = f64[3]{0} add(%sin.1, %sin.1), metadata={op_name="jit(f)/add" stack_frame_id=3}
}

ENTRY %main (x: f64[3]) -> f64[3] {
  %x = f64[3]{0} parameter(0)
  %dot = f64[3]{0} dot(%x, %x), lhs_contracting_dims={0}
  %fusion = f64[3]{0} fusion(%dot), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/add" stack_frame_id=3}
  ROOT %neg.1 = f64[3]{0} negate(%fusion), metadata={op_name="jit(f)/neg" stack_frame_id=4}
}
"""


def test_operations_know_their_lines() -> None:
    """A fusion has those of all that it holds; frames that are not the program's lead out to one that is."""
    from difflang.runtime.profiler_traces import hlo_module_name, op_source_lines

    third, fifth = ("odd name.dfl", 3), ("odd name.dfl", 5)
    found = op_source_lines(HLO)
    assert hlo_module_name(HLO) == "jit_f_0"
    assert found["fusion"] == Counter({third: 1, fifth: 1})
    assert found["neg.1"] == Counter({fifth: 1})
    assert found["dot"] == found["fusion"], "XLA does not say where it comes from: from where it is read"
