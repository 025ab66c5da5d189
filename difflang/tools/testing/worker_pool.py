"""Worker processes that run test cases in parallel.

JAX does not survive a fork, and XLA may crash: each worker is a Python process of its own, and its end ends one case.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from multiprocessing.connection import Connection, wait

from msgspec import Struct

from difflang.base.process_termination import exit_now
from difflang.tools.testing.suite import Outcome, Suite, SuiteCase, SuiteOptions, open_suite

CHUNK = 8  # cases of one file at a time: each process has to check the file first
SPAWN = multiprocessing.get_context("spawn")


class WorkerTask(Struct, frozen=True):
    """A case, and its index in its file."""

    case: SuiteCase
    number: int


class Worker:
    """A process that runs cases in turn, and those that it has not answered."""

    def __init__(self, options: SuiteOptions, chunk: list[WorkerTask]) -> None:
        self.pipe, end = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve_cases, args=(end, options), daemon=True)
        self.process.start()
        end.close()
        self.send(chunk)

    def send(self, chunk: list[WorkerTask]) -> None:
        self.pending = chunk
        with suppress(OSError):  # if the process has died, `receive` reports it
            self.pipe.send(chunk)

    def receive(self) -> Outcome:
        """The outcome of the next case: that it crashed if the process has died."""
        task = self.pending.pop(0)
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return crash_outcome(task.case, self.process.exitcode or 0)


def run_in_parallel(tasks: Sequence[WorkerTask], options: SuiteOptions, jobs: int) -> Generator[Outcome, None, None]:
    """The outcomes of the cases as they arrive. Closing the generator ends the processes."""
    by_file = [list(found) for _, found in groupby(tasks, lambda task: task.case.file)]
    chunks = iter([found[i : i + CHUNK] for found in by_file for i in range(0, len(found), CHUNK)])
    workers: list[Worker] = []
    try:
        workers += [Worker(options, chunk) for chunk in islice(chunks, jobs)]
        while workers:
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                yield worker.receive()
                rest = worker.pending or next(chunks, [])
                if not rest or not worker.process.is_alive():
                    workers.remove(worker)
                    worker.process.kill()
                    workers += [Worker(options, rest)] if rest else []
                elif not worker.pending:
                    worker.send(rest)
    finally:
        for worker in workers:
            worker.process.kill()


def crash_outcome(case: SuiteCase, code: int) -> Outcome:
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    report = f"error: the process that ran this ended {how}; `--engine interpret` runs it without XLA"
    return Outcome(case, "failed", 0.0, report, crashed=True)


def serve_cases(pipe: Connection[Outcome, list[WorkerTask]], options: SuiteOptions) -> None:
    """Run what arrives until the parent ends. Output to stdout goes to stderr; Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    os.dup2(2, 1)
    suite: Suite | None = None
    with suppress(EOFError):
        while True:
            for task in pipe.recv():
                if suite is None or suite.name != task.case.file:
                    suite = open_suite(task.case.file, options)
                pipe.send(suite.run(task.number))


def exit_with_parent() -> None:
    """End the process when the parent is gone, even during a case, which may run forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    exit_now(0)
