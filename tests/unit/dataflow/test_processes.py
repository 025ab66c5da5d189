"""Runs on several processes: equal numbers, and peers that are gone, silent, unknown, or send garbage."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import SimpleHTTPRequestHandler
from time import monotonic, sleep
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import difflang
from difflang.base.diagnostics import Diagnostic, DifflangError
from difflang.dataflow import process_loop
from difflang.dataflow import worker as worker_module
from difflang.dataflow.coordinator import Cluster
from difflang.dataflow.executor import DeviceExecutor, Firing
from difflang.dataflow.machine import Machine, placement_by_name
from difflang.dataflow.placement import equations_in_order, random_placement
from difflang.dataflow.process_loop import Heartbeat, Inbox
from difflang.dataflow.wire_format import PREFIX, Connection, WireError, decode_value, encode_value, prove_token
from difflang.dataflow.worker import serve
from difflang.dataflow.worker_handle import TOKEN_VARIABLE
from difflang.ir.graph import Graph
from difflang.ir.interpreter import evaluate
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.lower.lowering_pipeline import INTERPRET, finalize_graph
from difflang.ops.loop.reversible_loop import UnrestoredHistory

MODULE = difflang.loads(
    """
extern fn wave(x: f64) -> f64
fn waved(x: f64) -> f64 = wave(x)
fn told(x: f64, k: i32) -> f64 {
  var s = x
  for i in 0..k {
    print("at {i}: {s}")
    if s > 1.0 { s = sin(s) } else { s = s + x }
  }
  s
}
fn long(x: f64, k: i32) -> f64 {
  var s = x
  for _ in 0..k { s = sin(s) * x }
  s
}
""",
    "m.dfl",
    externs={"wave": jnp.sin},
)
TOKEN = "secret"


def finished(function: Any) -> Graph:
    return finalize_graph(function.lower().graph, pipeline=INTERPRET)


Answer = Callable[[socket.socket], Any]


@contextmanager
def worker(
    monkeypatch: pytest.MonkeyPatch, answer: Answer | None = None, token: str = TOKEN, *, timeout: float = 5.0,
    late: float = 0.0,
) -> Iterator[Any]:  # fmt: skip
    """A worker in a thread, or someone else who answers, after some seconds; gives its address and what it reports."""
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            sleep(late)
            if answer is None:
                serve(listener, token, timeout, said.append, once=True)
            else:
                peer, _ = listener.accept()
                with peer:
                    answer(peer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[:2], said
        thread.join(10)


def failure(cluster: Cluster, graph: Graph | None = None, *arrays: Any) -> str:
    found = diagnostic(cluster, graph, *arrays)
    return f"{found.code}: {found.message}"


def diagnostic(cluster: Cluster, graph: Graph | None = None, *arrays: Any) -> Diagnostic:
    with pytest.raises(DifflangError) as caught, cluster:
        given = arrays or (np.float64(0.6), np.int32(3))
        graph = graph or finished(MODULE.told)
        devices = cluster.devices
        Machine(devices, lambda g, _: random_placement(g, devices, 1), cluster=cluster).evaluate(graph, *given)
    return caught.value.diagnostics[0]


def test_numbers_and_prints_are_those_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(monkeypatch) as (address, said), Cluster(2, [address]) as cluster:
        for seed, f in enumerate((MODULE.told, MODULE.told.grad("x"), MODULE.long.grad("x"))):
            graph = finished(f)
            printed: list[str] = []
            wanted: list[str] = []
            machine = Machine(2, lambda g, _, seed=seed: random_placement(g, 2, seed), cluster=cluster)
            got = machine.evaluate(graph, 0.6, np.int32(4), text_sink=lambda _, t, to=printed: to.append(t))
            want = evaluate(graph, np.float64(0.6), np.int32(4), text_sink=lambda _, t, to=wanted: to.append(t))
            assert [x.tobytes() for x in map(np.asarray, got)] == [x.tobytes() for x in want]
            assert printed == wanted
            assert machine.last_run is not None and machine.last_run.fired["Send"] > 5
            alone = Machine(2, lambda g, _, seed=seed: random_placement(g, 2, seed))
            alone.evaluate(graph, 0.6, np.int32(4))
            one, other = alone.last_run, machine.last_run
            assert one is not None
            assert (one.fired, one.dead, one.widths) == (other.fired, other.dead, other.widths)
    assert said == []


def test_an_error_of_a_worker_is_a_line_and_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(device: DeviceExecutor) -> None:
        raise DifflangError(Diagnostic("DL1271", "the reference raised boom", helps=("it was called with (f64)",)))

    monkeypatch.setattr(worker_module, "run_until_idle", fails)
    with worker(monkeypatch) as (address, _):
        found = diagnostic(Cluster(2, [address]), finished(MODULE.long), 0.5, np.int32(3))
    assert found.message.endswith("failed: error[DL1271]: the reference raised boom")
    assert found.helps == ("it was called with (f64)",)


def test_firings_of_all_processes_are_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(cluster: Cluster | None) -> list[Any]:
        firings: list[Firing] = []
        machine = Machine(2, lambda g, _: random_placement(g, 2, 1), cluster=cluster, observe=firings.append)
        machine.evaluate(finished(MODULE.long), 0.5, np.int32(3))
        assert max(f.end for f in firings) - min(f.begin for f in firings) < 5.0
        return sorted((f.node.device, f.node.number, f.tag, [t.dead for t in f.tokens]) for f in firings)

    with worker(monkeypatch) as (address, _), Cluster(2, [address]) as cluster:
        found = rows(cluster)
    assert found == rows(None) and {device for device, *_ in found} == {0, 1}


def test_a_graph_is_placed_and_sent_once_for_all_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    send = Connection.send
    monkeypatch.setattr(Connection, "send", lambda c, m, v=None: (sent.append(m.get("kind", "")), send(c, m, v))[1])
    with worker(monkeypatch) as (address, _), Cluster(2, [address]) as cluster:
        placed: list[Graph] = []
        machine = Machine(2, lambda g, _: (placed.append(g), random_placement(g, 2, 1))[1], cluster=cluster)
        graph = finished(MODULE.long)
        for steps in (1, 2, 3):
            (got,) = machine.evaluate(graph, 0.5, np.int32(steps))
            assert got == evaluate(graph, np.float64(0.5), np.int32(steps))[0]
    assert (sent.count("graph"), sent.count("run"), len(placed)) == (1, 3, 1)


def test_a_worker_that_is_killed_is_named() -> None:
    cluster = Cluster(2)
    cluster.start()
    process = cluster.workers[1].process
    assert process is not None

    def kill(_: int, text: str) -> None:
        if text.startswith("at 1"):
            os.kill(process.pid, signal.SIGKILL)

    with (
        pytest.raises(DifflangError, match=f"worker of device 1 .process {process.pid} at .* exit status is -9"),
        cluster,
    ):
        machine = Machine(2, placement_by_name(None, 2) or (lambda g, _: random_placement(g, 2, 1)), cluster=cluster)
        machine.evaluate(finished(MODULE.told), np.float64(0.6), np.int32(10000), text_sink=kill)
    assert process.poll() == -9


def test_a_worker_says_why_its_run_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(monkeypatch) as (address, said):
        cluster = Cluster(2, [address])
        cluster.start()
        for connection in [cluster.workers[1].connection]:
            assert connection is not None
            connection.close()
    assert len(said) == 1 and "it closed the connection" in said[0]


@pytest.mark.parametrize("devices", [2, 3])
def test_nobody_is_there(devices: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    found = diagnostic(Cluster(devices, [(host, port)] * (devices - 1)))
    assert re.fullmatch(rf"the worker of device . \(127.0.0.1:{port}\) failed: Connection refused", found.message)
    others = ("the other workers of the run were stopped",) if devices == 3 else ()
    assert found.helps == (f"start it on that machine: `difflang worker --listen 127.0.0.1:{port}`", *others)


def test_a_server_of_another_protocol_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(peer: socket.socket) -> None:
        SimpleHTTPRequestHandler(peer, ("127.0.0.1", 1), None)  # pyright: ignore[reportArgumentType]

    with worker(monkeypatch, answer) as (address, _):
        begin = monotonic()
        found = diagnostic(Cluster(2, [address]))
    assert monotonic() - begin < 5.0 and found.message.endswith("failed: it does not speak this protocol")
    assert len(found.helps) == 1 and "a free `difflang worker` must listen at 127.0.0.1" in found.helps[0]


def test_a_worker_waits_for_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_loop, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(worker_module, "HEARTBEAT_SECONDS", 0.05)
    with (
        worker(monkeypatch, timeout=0.3) as (first, said),
        worker(monkeypatch, late=0.8) as (second, _),
        Cluster(3, [first, second]) as cluster,
    ):
        machine = Machine(3, lambda g, _: random_placement(g, 3, 1), cluster=cluster)
        assert machine.evaluate(finished(MODULE.long), 0.5, np.int32(2))
    assert said == []


def test_a_stuck_worker_costs_the_others_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_loop, "HEARTBEAT_SECONDS", 0.05)
    stuck, _stuck_peer = pair()
    heard, peer = pair()
    with stuck.lock:  # as while a large message does not go through
        beats = [Heartbeat(stuck), Heartbeat(heard)]
        peer.settimeout(2.0)
        assert peer.recv(1000)
    for beat in beats:
        beat.end()


def test_a_graph_that_a_worker_cannot_run_is_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "graph_from_json", lambda text: graph_from_json(text.replace('"sin"', '"cube"')))
    with worker(monkeypatch) as (address, said):
        found = diagnostic(Cluster(2, [address]), finished(MODULE.long), 0.5, np.int32(2000))
    assert "error[DL1272]: this graph has the op 'cube', which is not declared" in found.message
    assert "difflang worker --plugin MODULE" in found.helps[0]
    assert len(said) == 1 and "it stopped the run" in said[0]


def test_a_worker_with_another_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(monkeypatch, token="other") as (address, said):
        found = diagnostic(Cluster(2, [address]))
        assert "does not know the token" in found.message
        assert found.helps == ("set DIFFLANG_WORKER_TOKEN to the same text on both sides",)
        with socket.create_connection(address) as sock:
            prove_token(Connection(sock), "other", first=True)
            Connection(sock).send({"kind": "goodbye"})
    assert len(said) == 1 and "was refused" in said[0]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "does not speak this protocol"),
        (PREFIX.pack(b"DFL1", 2**40, 0), "is too large"),
        (PREFIX.pack(b"DFL1", 3, 0) + b"{]}", "cannot be read"),
        (PREFIX.pack(b"DFL1", 2, 0) + b"[]", "cannot be read"),
        (b"", "closed the connection"),
    ],
)
def test_a_peer_that_sends_garbage_is_refused(sent: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(monkeypatch, lambda peer: peer.sendall(sent)) as (address, _):
        found = failure(Cluster(2, [address]))
    assert found.startswith("DL1261") and (why in found or "reset" in found or "Broken pipe" in found)


def test_garbage_to_a_worker_is_refused_and_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(monkeypatch) as (address, said):
        with socket.create_connection(address) as sock:
            sock.sendall(struct.pack("<QQQ", 1, 2, 3) * 9)
        with Cluster(2, [address]) as cluster:
            Machine(2, cluster=cluster).evaluate(finished(MODULE.long), 0.5, np.int32(2))
    assert len(said) == 1 and "was refused: it does not speak this protocol" in said[0]


def hello(proof: str) -> bytes:
    """What a peer sends that does not know the token."""
    heads = [json.dumps({**said, "value": None}).encode() for said in ({"nonce": "1"}, {"proof": proof})]
    return b"".join(PREFIX.pack(b"DFL1", len(head), 0) + head for head in heads)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (PREFIX.pack(b"DFL1", 2, 2**31), "is too large"),
        (PREFIX.pack(b"DFL1", 2**20, 0), "is too large"),
        (hello("\u00e9"), "does not know the token"),
        (hello("\ud800"), "does not know the token"),
    ],
)
def test_a_worker_survives_who_has_not_proved_the_token(sent: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(monkeypatch) as (address, said):
        with socket.create_connection(address) as sock:
            sock.sendall(sent)
            sock.settimeout(5.0)
            while sock.recv(4096):
                pass
        with socket.create_connection(address) as sock:
            prove_token(connection := Connection(sock), TOKEN, first=True)
            connection.send({"kind": "goodbye"})
    assert len(said) == 1 and why in said[0]


def pair() -> tuple[Connection, socket.socket]:
    one, other = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with one:
        other.connect(one.getsockname())
        return Connection(one.accept()[0]), other


def test_a_handshake_that_trickles_ends_in_time() -> None:
    ours, theirs = pair()
    stopped = threading.Event()

    def trickle() -> None:
        for byte in PREFIX.pack(b"DFL1", 4000, 0) * 9:
            with suppress(OSError):
                theirs.send(bytes([byte]))
            if stopped.wait(0.02):
                return

    threading.Thread(target=trickle, daemon=True).start()
    begin = monotonic()
    with pytest.raises(WireError):
        prove_token(ours, TOKEN, first=False, seconds=0.2)
    stopped.set()
    assert monotonic() - begin < 1.0
    ours.close()
    theirs.close()


def test_a_peer_is_heard_while_a_long_message_comes() -> None:
    ours, theirs = pair()
    inbox = Inbox()
    inbox.listen(1, ours)
    theirs.sendall(PREFIX.pack(b"DFL1", 1000, 0))
    for _ in range(6):
        sleep(0.05)
        theirs.sendall(b" ")
    sleep(0.02)
    inbox.check_heard(1, 0.2)
    theirs.close()


def impostor(*messages: dict[str, Any]) -> Answer:
    """A peer that knows the token, and then says something wrong."""

    def answer(peer: socket.socket) -> None:
        connection = Connection(peer)
        prove_token(connection, TOKEN, first=False)
        try:
            connection.receive()
            for message in messages:
                connection.send(message)
            while True:
                connection.receive()
        except WireError:
            pass

    return answer


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"kind": "token", "to": 0, "key": "x", "tag": "no", "dead": 0, "depth": 0}, "it sent no token"),
        ({"kind": "token", "to": 7, "key": "x", "tag": [], "dead": 0, "depth": 0}, "a message without 7"),
        ({"kind": "what"}, "it sent 'what'"),
        ({"kind": "firings", "firings": [[0, [], [], 0.0, 0.0]]}, "it sent 'firings'"),
        ({"kind": "idle", "finished": True}, "a message without 'received'"),
        ({"kind": "failed", "text": "no memory"}, "failed: no memory"),
        (
            {"kind": "idle", "finished": False, "received": 10**6, "expected": [], "report": {}},
            "was silent for 1 seconds",
        ),
    ],
)
def test_a_worker_that_says_something_wrong_ends_the_run(
    message: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker(monkeypatch, impostor(message)) as (address, _):
        assert why in failure(Cluster(2, [address], timeout=1.0))


def test_a_function_of_python_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(monkeypatch) as (address, _):
        found = failure(Cluster(2, [address]), finished(MODULE.waved), np.float64(0.5))
    assert found.startswith("DL1233")


@pytest.mark.parametrize(
    "value",
    [
        np.float64(1.5), np.arange(6, dtype=np.int32).reshape(2, 3), np.array([True, False]), np.zeros((0, 3)),
        np.array([1 + 2j], np.complex64), np.array(1.5).astype("bfloat16"), [], [np.float64(1), [np.int32(2)]], (),
        None, UnrestoredHistory([np.float64(1)], reverse=True),
    ],
    ids=repr,
)  # fmt: skip
def test_values_survive_the_wire(value: Any) -> None:
    buffers: list[bytes] = []
    described = encode_value(value, buffers)
    found = decode_value(described, memoryview(b"".join(buffers)), [0], 0)
    assert type(found) is (np.ndarray if isinstance(value, np.generic) else type(value))
    assert repr(np.asarray(found) if not isinstance(value, (list, tuple)) else found) == repr(
        np.asarray(value) if not isinstance(value, (list, tuple)) else [*map(as_array, value)] or value
    )


def as_array(value: Any) -> Any:
    return [*map(as_array, value)] if isinstance(value, list) else np.asarray(value)


@pytest.mark.parametrize(
    "described",
    [
        {"dtype": "O", "shape": []},
        {"dtype": "float64", "shape": [0, 10**30]},
        {"dtype": "float64", "shape": [-1]},
        {"dtype": "float64", "shape": [9]},
        {},
        3,
    ],
)
def test_what_describes_no_numbers_is_refused(described: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, OverflowError)):
        decode_value(described, memoryview(b"12345678"), [0], 0)


def test_equations_have_one_order_wherever_the_graph_is_loaded() -> None:
    graph = finished(MODULE.told.grad("x"))
    again = graph_from_json(graph_to_json(graph))
    assert [e.op for e in equations_in_order(graph)] == [e.op for e in equations_in_order(again)]
