"""Samples XLA's profiler traces of a call, so that they take bounded memory: all of a short call, parts of a long one.

XLA holds a trace in memory without a limit, about 2 kB for every run of an operation while it is written. How many
operations a call runs, and how fast, is often known only while it runs. So a thread traces for a short while, and then
now and then, the more rarely the longer the call takes. `profiler_traces` decides which calls are traced.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

import jax
from msgspec import Struct

FIRST_SAMPLE_SECONDS, MAX_SAMPLE_SECONDS = 0.01, 1.0  # of the first sample of a call, and of any
MAX_UNMONITORED_SECONDS = 0.1  # the longest sample if the process cannot measure its memory
TARGET_TRACE_BYTES = 1 << 20  # the size of a sample as XLA writes it: some 9,000 operations
MAX_GROWTH_BYTES = 48 << 20  # the process may grow by so much in one sample
POLL_SECONDS = 0.01  # between two measurements of that
SAMPLE_SPACING = 1.5  # the next sample begins when the call has taken so many times as long


class TraceSample(Struct, frozen=True):
    """A trace as XLA writes it, and its start and end in seconds from the start of the call."""

    begin: float
    end: float
    trace: bytes


class TraceSampler:
    """A context that traces its block: all of it, or with `periodic` in short samples."""

    def __init__(self, *, periodic: bool) -> None:
        self.periodic = periodic
        self.samples: list[TraceSample] = []
        self.failed = ""  # why tracing stopped
        self.began = 0.0
        # `ready`: the first sample has begun, so the call may start. `over`: the call has ended.
        self.over = threading.Event()
        self.ready = threading.Event()
        self.thread = (
            threading.Thread(target=self.sample_periodically, name="samples", daemon=True) if periodic else None
        )
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> TraceSampler:
        if self.thread is None:
            self.start_trace()
            self.began = time.perf_counter()
        else:
            self.thread.start()
            self.ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join()
        elif self.folder is not None:
            self.stop_trace(0.0, self.elapsed)

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def start_trace(self) -> None:
        """Start a trace, without Python frames and HLO protos, which would take most of its size."""
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.enable_hlo_proto = False
        try:
            self.folder = tempfile.TemporaryDirectory(prefix="difflang-")
            jax.profiler.start_trace(self.folder.name, profiler_options=options)
        except (OSError, RuntimeError) as error:
            self.folder, self.failed = None, str(error)

    def stop_trace(self, begin: float, end: float) -> int:
        """Stop the trace and store it; returns its size in bytes."""
        assert self.folder is not None
        folder, self.folder = self.folder, None
        try:
            with folder:
                jax.profiler.stop_trace()
                trace = b"".join(path.read_bytes() for path in Path(folder.name).rglob("*.xplane.pb"))
        except (OSError, RuntimeError) as error:
            self.failed = str(error)
            return 0
        self.samples.append(TraceSample(begin, end, trace))
        return len(trace)

    def sample_periodically(self) -> None:
        """Take samples, each as long as `TARGET_TRACE_BYTES` allow; then wait until `SAMPLE_SPACING` has passed."""
        length, begin = FIRST_SAMPLE_SECONDS, 0.0
        self.start_trace()
        self.began = time.perf_counter()
        self.ready.set()
        while self.folder is not None:
            self.hold(length)
            size = self.stop_trace(begin, self.elapsed)
            if self.failed:
                return
            # The rate of events is unknown at first, and may change: grow at most twofold.
            length = min(
                2 * length,
                length * TARGET_TRACE_BYTES / max(size, 1),
                MAX_SAMPLE_SECONDS if resident_bytes() else MAX_UNMONITORED_SECONDS,
            )
            if self.over.wait(max(SAMPLE_SPACING * begin - self.elapsed, 0.0)):
                return
            self.start_trace()
            begin = self.elapsed

    def hold(self, length: float) -> None:
        """Wait until the sample is long or large enough, or the call is over."""
        before, until = resident_bytes(), time.perf_counter() + length
        while (left := until - time.perf_counter()) > 0 and resident_bytes() - before <= MAX_GROWTH_BYTES:
            if self.over.wait(min(left, POLL_SECONDS)):
                return


def resident_bytes() -> int:
    """The resident memory of this process in bytes, 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
