"""A pool of worker processes that run test cases in parallel, controlled by lines of JSON.

JAX does not survive a fork, and XLA may crash, so each worker is a Python process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

import msgspec
from msgspec import Struct

from difflang.base.process_termination import exit_now
from difflang.execution.engine import Engine
from difflang.tools.testing.suite import Outcome, Suite, SuiteCase, SuiteOptions, open_suite

CHUNK = 8  # cases of one file per request: each process has to check the file first
WORKER_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; from difflang.tools.testing.worker_pool import worker_main; worker_main()"
)


class WorkerTask(Struct, frozen=True):
    """A case, and its index in its file."""

    case: SuiteCase
    number: int


class WorkerPool:
    """Worker processes, each with a thread that sends it tasks."""

    def __init__(self, tasks: Sequence[WorkerTask], options: SuiteOptions, jobs: int) -> None:
        self.todo: SimpleQueue[list[WorkerTask]] = SimpleQueue()
        self.done: SimpleQueue[Outcome] = SimpleQueue()
        self.options, self.jobs, self.stopped = encode_options(options), jobs, threading.Event()
        self.running: set[subprocess.Popen[str]] = set()
        by_file: dict[str, list[WorkerTask]] = {}
        for task in tasks:
            by_file.setdefault(task.case.file, []).append(task)
        for found in by_file.values():
            for i in range(0, len(found), CHUNK):
                self.todo.put(found[i : i + CHUNK])
        self.count = len(tasks)

    def outcomes(self) -> Iterator[Outcome]:
        """The outcomes of the cases as they arrive. Closing the generator ends the processes."""
        threads = [threading.Thread(target=self.worker_loop, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(self.count):
                yield self.done.get()
        finally:
            self.stopped.set()
            for process in tuple(self.running):
                process.kill()
            for thread in threads:
                thread.join()

    def worker_loop(self) -> None:
        process = self.begun()
        try:
            while not self.stopped.is_set():
                for task in self.todo.get_nowait():
                    outcome = self.request(process, task)
                    if outcome is None:
                        if self.stopped.is_set():
                            return
                        # The process has died: report its case as crashed, and continue with a new process.
                        outcome = crash_outcome(task.case, process.wait())
                        self.running.discard(process)
                        process = self.begun()
                    self.done.put(outcome)
        except Empty:
            pass
        finally:
            self.running.discard(process)
            process.kill()
            process.communicate()

    def begun(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-c", WORKER_CODE, *sys.path]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", bufsize=1
        )
        self.running.add(process)
        return process

    def request(self, process: subprocess.Popen[str], task: WorkerTask) -> Outcome | None:
        """The outcome from a process; None if the process has ended."""
        message = {"file": task.case.file, "number": task.number, "options": self.options}
        try:
            require_pipe(process.stdin).write(json.dumps(message) + "\n")
            answer = require_pipe(process.stdout).readline()
        except (BrokenPipeError, ValueError):
            return None
        return msgspec.convert(json.loads(answer), Outcome) if answer else None


def require_pipe(end: IO[str] | None) -> IO[str]:
    assert end is not None
    return end


def crash_outcome(case: SuiteCase, code: int) -> Outcome:
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    report = f"error: the process that ran this ended {how}; `--engine interpret` runs it without XLA"
    return Outcome(case, "failed", 0.0, report, crashed=True)


def worker_main() -> None:
    """Answer requests until the input ends. Other output to stdout goes to stderr; Ctrl-C is left to the parent.

    When the parent is gone the process ends at once, even during a case, which may run forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = SimpleQueue[str]()
    threading.Thread(target=read_requests, args=(lines,), daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        suites: dict[str, Suite] = {}
        while True:
            request = json.loads(lines.get())
            file, number = request["file"], request["number"]
            if file not in suites:
                suites.clear()  # cases come file by file
                suites[file] = open_suite(file, decode_options(request["options"]))
            # `json` escapes lone surrogates, as in file names that are not UTF-8; msgspec's encoder would refuse them.
            answers.write(json.dumps(msgspec.to_builtins(suites[file].run(number))) + "\n")
            answers.flush()


def read_requests(lines: SimpleQueue[str]) -> None:
    try:
        for line in sys.stdin:
            lines.put(line)
    finally:
        exit_now(0)


def encode_options(options: SuiteOptions) -> dict[str, Any]:
    return {
        "engine": options.engine.name,
        "device": options.engine.device,
        "seed": options.seed,
        "float": options.default_float,
        "allow": [str(path) for path in options.allow],
        "paths": [str(path) for path in options.paths],
    }


def decode_options(data: dict[str, Any]) -> SuiteOptions:
    engine = Engine(data["engine"], data["device"])
    folders = (tuple(map(Path, data[name])) for name in ("allow", "paths"))
    return SuiteOptions(engine, data["seed"], data["float"], *folders)
