"""Traces of calls that take bounded room, however many steps a program takes."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import jax
import pytest

from difflang.runtime import profiler_traces, trace_sampling
from difflang.runtime.profiler_traces import ProfilerTraces, max_op_count
from difflang.runtime.trace_sampling import (
    FIRST_SAMPLE_SECONDS,
    MAX_SAMPLE_SECONDS,
    MAX_UNMONITORED_SECONDS,
    TARGET_TRACE_BYTES,
    TraceSample,
    TraceSampler,
)

HLO = """HloModule jit_f_0, is_scheduled=true, entry_computation_layout={(f64[3]{0})->f64[3]{0}}

%inner (p: (s32[], f64[3])) -> (s32[], f64[3]) {
  %p = (s32[], f64[3]{0}) parameter(0)
  %x = f64[3]{0} get-tuple-element(%p), index=1
  %sine = f64[3]{0} sine(%x)
  %sort = f64[3]{0} sort(%sine), dimensions={0}, to_apply=%order
  ROOT %t = (s32[], f64[3]{0}) tuple(%x, %sort)
}

%before (p: (s32[], f64[3])) -> pred[] {
  %p = (s32[], f64[3]{0}) parameter(0)
  ROOT %less = pred[] compare(%p, %p), direction=LT
}

ENTRY %main (x: f64[3]) -> f64[3] {
  %x = f64[3]{0} parameter(0)
  %c = f64[3]{0} conditional(%x), branch_computations={%inner, %before}
  %w = (s32[], f64[3]{0}) while(%c), condition=%before, body=%inner, backend_config={"known_trip_count":{"n":"60"}}
  ROOT %neg = f64[3]{0} negate(%w)
}
"""


def test_the_steps_of_a_program_are_known_where_its_loops_are() -> None:
    loop, branch = 1 + 61 * (1 + 2), 1 + (2 + 1)
    assert max_op_count(HLO) == loop + branch + 1
    assert max_op_count(HLO.replace("known_trip_count", "else")) == float("inf")
    callback = 'custom-call(%w), custom_call_target="xla_ffi_python_cpu_callback"'
    assert max_op_count(HLO.replace("negate(%w)", callback)) == float("inf")
    assert max_op_count("") == float("inf")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What XLA would write, the next first; nothing is traced."""
    texts: list[bytes] = []
    at: list[Path] = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder, **_: at.append(Path(folder)))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: (at[-1] / "a.xplane.pb").write_bytes(texts.pop(0)))
    return texts


@pytest.mark.parametrize("memory", [0, 1])
def test_a_sample_is_longer_after_one_of_little_and_shorter_after_one_of_much(
    memory: int, written: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[float] = []
    sampling = TraceSampler(periodic=True)

    def hold(length: float) -> None:
        held.append(length)
        if len(written) == 1:
            sampling.over.set()

    monkeypatch.setattr(sampling, "hold", hold)
    monkeypatch.setattr(trace_sampling, "SAMPLE_SPACING", 0.0)
    monkeypatch.setattr(trace_sampling, "resident_bytes", lambda: memory)
    written.extend([b""] * 9 + [bytes(4 * TARGET_TRACE_BYTES)] * 2)
    with sampling:
        sampling.over.wait(10.0)
    longest = MAX_SAMPLE_SECONDS if memory else MAX_UNMONITORED_SECONDS
    lengths = [min(FIRST_SAMPLE_SECONDS * 2**k, longest) for k in range(10)]
    assert held == pytest.approx([*lengths, lengths[-1] / 4])


def test_samples_are_rarer_the_longer_a_call_takes(written: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_sampling, "MAX_SAMPLE_SECONDS", 0.001)
    monkeypatch.setattr(trace_sampling, "MAX_UNMONITORED_SECONDS", 0.001)
    written.extend([b""] * 1000)
    with TraceSampler(periodic=True) as sampling:
        time.sleep(0.2)
    begins = [sample.begin for sample in sampling.samples]
    assert 1 < len(begins) < 30 and begins[0] == 0.0
    assert all(later >= 1.5 * begin for begin, later in pairwise(begins))


def test_a_sample_ends_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([10, 10, 11 + trace_sampling.MAX_GROWTH_BYTES])
    monkeypatch.setattr(trace_sampling, "resident_bytes", lambda: next(sizes))
    TraceSampler(periodic=True).hold(1e6)
    assert not list(sizes)


def test_what_happened_at_the_edges_of_a_sample_is_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample stands for the time to the next; an operation that it does not hold as a whole is not known."""
    found = {b"half": ({"a": 0.25, "b": 0.125}, 0.5), b"nothing": ({}, 0.0), b"all": ({"b": 1.0}, 1.0)}
    monkeypatch.setattr(profiler_traces, "op_seconds", lambda trace, _: found[trace])
    taken, sampling = ProfilerTraces(), TraceSampler(periodic=True)
    taken.modules["f"] = "jit_f"
    sampling.samples = [
        TraceSample(0.0, 1.0, b"half"),
        TraceSample(3.0, 4.0, b"nothing"),
        TraceSample(6.0, 10.0, b"all"),
    ]
    taken.add("f", sampling, 10.0)
    assert taken.ops["f"] == pytest.approx({"a": 1.0, "b": 0.5 + 4.0})
    assert taken.unattributed["f"] == pytest.approx(1.5 + 3.0)
    assert taken.sampled["f"] == 3


@pytest.mark.parametrize("apart", [False, True])
def test_a_trace_that_cannot_be_kept_is_told(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(prefix: str) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(trace_sampling.tempfile, "TemporaryDirectory", full)
    with TraceSampler(periodic=apart) as sampling:
        pass
    assert sampling.failed == "no space left on device" and not sampling.samples
