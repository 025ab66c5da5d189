"""Runs on several processes: the coordinator computes device 0 and hands each other device to a worker.

All tokens between workers go through the coordinator, so that it knows what is under way and who is gone.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import numpy as np

from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.dataflow.executor import DeviceExecutor
from difflang.dataflow.lower_to_dataflow import Placement
from difflang.dataflow.nodes import DataflowProgram
from difflang.dataflow.partition import dataflow_program
from difflang.dataflow.placement import equations_in_order
from difflang.dataflow.process_loop import HEARTBEAT_SECONDS, Inbox, RemoteNetwork, run_until_idle
from difflang.dataflow.run_dataflow import RunOptions, RunStatistics, collect_results
from difflang.dataflow.timeline import decode_firing
from difflang.dataflow.wire_format import Message, WireError
from difflang.dataflow.worker_handle import FAILURE_CODE, TOKEN_VARIABLE, WorkerHandle, spawn_worker
from difflang.ir.graph import Graph
from difflang.ir.json_codec import graph_to_json


class Cluster:
    """Workers for the devices from 1, in new processes of this machine, or on given hosts; used as a context.

    They start with the first run.
    """

    def __init__(self, devices: int, hosts: Sequence[tuple[str, int]] = (), *, timeout: float = 10.0) -> None:
        self.devices, self.hosts, self.timeout = devices, hosts, timeout
        self.inbox = Inbox()
        self.workers: dict[int, WorkerHandle] = {}
        self.started = self.closed = False
        self.programs: dict[Graph, tuple[int, DataflowProgram]] = {}

    def start(self) -> None:
        """Start or find the workers. Errors: DL1261 if one does not start, is not there, or does not know the token."""
        token = os.environ.get(TOKEN_VARIABLE, "") if self.hosts else secrets.token_hex(32)
        others = self.devices > 2
        for device in range(1, self.devices):
            if self.hosts:
                self.workers[device] = WorkerHandle(device, self.hosts[device - 1], None, others=others)
            else:
                self.workers[device] = spawn_worker(device, token, others=others)
        outcomes = SimpleQueue[Exception | None]()
        for worker in self.workers.values():
            threading.Thread(target=self.connect, args=(worker, token, outcomes), daemon=True).start()
        for _ in self.workers:
            if (error := outcomes.get()) is not None:
                raise error
        self.started = True

    def connect(self, worker: WorkerHandle, token: str, outcomes: SimpleQueue[Exception | None]) -> None:
        """Connect to a worker beside the others: a slow one may not cost them their patience."""
        try:
            self.inbox.listen(worker.device, worker.connect(token))
            if self.closed:  # another one failed meanwhile
                worker.say_goodbye({"kind": "goodbye"})
                worker.close(0.0)
            outcomes.put(None)
        except Exception as error:  # noqa: BLE001 - it goes to the thread that waits
            outcomes.put(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Workers report only what went wrong on the machine, not every error of the program.
        first = error.diagnostics[0] if isinstance(error, DifflangError) else None
        interrupted = error is not None and not isinstance(error, Exception | SystemExit)
        self.close(first.message if first is not None and first.code == FAILURE_CODE else "", at_once=interrupted)

    def close(self, why: str, *, at_once: bool = False) -> None:
        """Say goodbye, or why the run stopped, and wait for processes that were started here, or end them at once."""
        self.closed = True
        message = {"kind": "stop", "text": why} if why else {"kind": "goodbye"}
        for worker in self.workers.values():
            worker.say_goodbye(message)
        for worker in self.workers.values():
            worker.close(0.0 if at_once else self.timeout)

    def run(
        self, graph: Graph, place: Callable[[Graph], Placement], arrays: Sequence[Any], options: RunOptions
    ) -> tuple[list[Any], RunStatistics]:
        """The results of a graph, and what happened on all devices. `place` places a graph that is new.

        Errors: DL1233 if it calls a Python function; DL1261 if a worker fails or is silent, or all wait for each other.
        """
        if not self.started:
            self.start()
        if graph not in self.programs:
            self.send_graph(graph, place(graph))
        number, program = self.programs[graph]
        return ClusterRun(self, number, program, arrays, options).run()

    def send_graph(self, graph: Graph, placement: Placement) -> None:
        """Give a graph a number and, once for all its runs, to each worker."""
        number = len(self.programs)
        message: Message = {
            "kind": "graph", "number": number, "graph": graph_to_json(graph), "devices": self.devices,
            "placement": [placement.get(eqn, 0) for eqn in equations_in_order(graph)],
        }  # fmt: skip
        for worker in self.workers.values():
            worker.send({**message, "device": worker.device})
        self.programs[graph] = number, dataflow_program(graph, placement, self.devices)


class ClusterRun:
    """One run of the graph with a number."""

    def __init__(
        self, cluster: Cluster, number: int, program: DataflowProgram, arrays: Sequence[Any], options: RunOptions
    ) -> None:
        self.cluster, self.options, self.workers, self.program = cluster, options, cluster.workers, program
        for worker in self.workers.values():
            worker.forwarded, worker.status = 0, {}
            worker.send({
                "kind": "run", "number": number, "parallel_iterations": options.parallel_iterations,
                "swap_above": options.swap_above, "observed": options.observe is not None,
            })  # fmt: skip
        self.nodes = {node.number: node for node in program.nodes}
        self.network = RemoteNetwork(self.post)
        self.device = DeviceExecutor(
            0, self.program.of_device(0), self.program.results, self.network, observe=options.observe,
            parallel_iterations=options.parallel_iterations, swap_above=options.swap_above,
            text_sink=options.text_sink,
        )  # fmt: skip
        self.arrays = [np.asarray(x) for x in arrays]

    def run(self) -> tuple[list[Any], RunStatistics]:
        with np.errstate(all="ignore"):
            self.device.start(list(zip(self.program.inputs, self.arrays, strict=True)))
        while not self.finished:
            run_until_idle(self.device)
            arrived = self.cluster.inbox.get(0.0)
            if arrived is None and self.device.idle and not self.finished:
                self.check_progress()
                arrived = self.cluster.inbox.get(HEARTBEAT_SECONDS)
            self.check_peers()
            if arrived is not None:
                self.take(self.workers[arrived[0]], arrived[1], arrived[2])
        self.device.check_nothing_left()
        reports = [self.device.report(), *[w.status["report"] for w in self.workers.values()]]
        return collect_results(self.program, [self.device]), RunStatistics.of(self.program, reports)

    @property
    def finished(self) -> bool:
        return self.device.finished and all(w.status.get("finished") for w in self.workers.values())

    def post(self, device: int, message: Message, value: Any) -> None:
        worker = self.workers[device]
        worker.forwarded += 1
        worker.send(message, value)

    def take(self, worker: WorkerHandle, message: Message | WireError, value: Any) -> None:
        """What a worker said. Errors: DL1261 if it is gone, has failed, or sent garbage."""
        if isinstance(message, WireError):
            worker.fail(str(message))
        try:
            match message.get("kind"):
                case "token" if message["to"] == 0:
                    self.network.arrive(message, value)
                case "token":
                    self.post(message["to"], message, value)
                case "text":
                    self.options.text_sink(int(message["site"]), str(message["text"]))
                case "firings" if self.options.observe is not None:
                    for row in message["firings"]:
                        self.options.observe(decode_firing(row, self.nodes))
                case "idle":
                    worker.status = {name: message[name] for name in ("finished", "received", "expected", "report")}
                case "failed":
                    worker.fail(str(message["text"]), str(message.get("help", "")))
                case kind:
                    raise WireError(f"it sent {kind!r}")
        except (KeyError, TypeError, ValueError, WireError) as error:
            worker.fail(str(error) if isinstance(error, WireError) else f"it sent a message without {error}")

    def check_peers(self) -> None:
        """Errors: DL1261 if a worker is silent for too long."""
        for device, worker in self.workers.items():
            try:
                self.cluster.inbox.check_heard(device, self.cluster.timeout)
            except WireError as error:
                worker.fail(str(error))

    def check_progress(self) -> None:
        """Errors: DL1261 if every device waits for tokens, and none is under way."""
        # A worker said that it has nothing to do after it took all that was sent to it.
        if all(w.status and w.status["received"] == w.forwarded for w in self.workers.values()):
            waits = {0: [key for key, _ in self.device.expected.values()][:3]}
            waits |= {w.device: w.status["expected"] for w in self.workers.values()}
            text = "; ".join(f"device {d}: {', '.join(map(str, keys))}" for d, keys in waits.items() if keys)
            message = f"all devices wait for tokens that nobody sends ({text})"
            raise DifflangError(Diagnostic(FAILURE_CODE, message))
