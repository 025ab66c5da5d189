"""XLA's own trace of a call: of all of it where that is little, and else of samples, so that it takes bounded room.

XLA holds a trace in memory, about 2 kB for every step of every operation while it is written out, and it has no limit.
How many steps a call takes, and how fast, is often seen only while it goes on: so a thread beside it traces a short
while, and then now and then, the more rarely the longer the call takes. Which calls: see `traces`.
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

FIRST_SAMPLE_SECONDS, MAX_SAMPLE_SECONDS = 0.01, 1.0  # seconds of the first sample of a call, and of any
MAX_UNMONITORED_SECONDS = 0.1  # seconds of the longest where a process does not know its memory
TARGET_TRACE_BYTES = 1 << 20  # bytes of a trace as XLA writes it, of some 9,000 steps: a sample is to have so many
MAX_GROWTH_BYTES = 48 << 20  # bytes that the process may grow by in one sample
POLL_SECONDS = 0.01  # seconds from one look at that to the next
SAMPLE_SPACING = 1.5  # from sample to sample so many times the part of the call that is over


class TraceSample(Struct, frozen=True):
    """A trace as XLA writes it, and of which part of a call: in seconds from its beginning."""

    begin: float
    end: float
    trace: bytes


class TraceSampler:
    """While the block goes on, traces of it: one of everything, or with `apart` some that are short."""

    def __init__(self, *, periodic: bool) -> None:
        self.periodic = periodic
        self.samples: list[TraceSample] = []
        self.failed = ""  # why there are no more
        self.began = 0.0
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
        """Start a trace."""
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.enable_hlo_proto = False
        try:
            self.folder = tempfile.TemporaryDirectory(prefix="difflang-")
            jax.profiler.start_trace(self.folder.name, profiler_options=options)
        except (OSError, RuntimeError) as error:
            self.folder, self.failed = None, str(error)

    def stop_trace(self, begin: float, end: float) -> int:
        """End it, and keep it; its bytes."""
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
        """Trace for a short while, the longer the less happened; then wait for half as long as the call has taken."""
        length, begin = FIRST_SAMPLE_SECONDS, 0.0
        self.start_trace()
        self.began = time.perf_counter()
        self.ready.set()
        while self.folder is not None:
            self.hold(length)
            size = self.stop_trace(begin, self.elapsed)
            if self.failed:
                return
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
        """Wait until a trace is long or large enough, or the call is over."""
        before, until = resident_bytes(), time.perf_counter() + length
        while (left := until - time.perf_counter()) > 0 and resident_bytes() - before <= MAX_GROWTH_BYTES:
            if self.over.wait(min(left, POLL_SECONDS)):
                return


def resident_bytes() -> int:
    """The bytes of memory that this process holds, 0 where the system does not say it."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
