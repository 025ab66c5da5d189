"""Swapping of stacks: beyond the limit they lie in files, which changes memory and counts but no bit of a result."""

from __future__ import annotations

import errno
import os
import tracemalloc
from typing import Any

import numpy as np
import pytest

import difflang
from difflang import graph as dg
from difflang.base.diagnostics import DifflangError
from difflang.base.source import Source
from difflang.dataflow import stack_storage
from difflang.dataflow.coordinator import Cluster
from difflang.dataflow.machine import Machine
from difflang.dataflow.placement import read_placement
from difflang.dataflow.stack_storage import StackStorage, file_of
from difflang.ir.tensor_types import F64, Tensor

PROGRAM = """
fn decay(x: f64[n], k: i32) -> f64 {
  var s = x
  for _ in 0..k { s = sin(s) * x + 0.1 }
  sum(s * s)
}
fn nested(x: f64[n]) -> f64 {
  var t = 0.0
  for _ in 0..3 {
    var s = x
    var steps = 0
    while sum(s) > 1.0 and steps < 4 {
      s = cos(s * x) / 2.0
      steps += 1
    }
    t += sum(s)
  }
  t
}
fn rows(x: f64[n]) -> f64[5, n] {
  for i in 0..5 { yield x * f64(i) }
}
"""
MODULE = difflang.loads(PROGRAM, "swap.dfl")
X = np.linspace(0.1, 1.0, 1000)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    ("name", "given"), [("decay", (X, np.int32(7))), ("nested", (X,)), ("decay", (X[:0], np.int32(3)))]
)
def test_gradient_has_the_same_bits_when_stacks_are_swapped(name: str, given: tuple[Any, ...], devices: int) -> None:
    graph = MODULE[name].grad("x").graph(*given)
    place = "op sin = 1\nop mul = 1\n" if devices == 2 else None
    plain = graph.dataflow(devices, place).run(*given)
    for limit in (0, "9 KiB"):
        machine = graph.dataflow(devices, place, swap_above=limit)
        for found, expected in zip(machine.run(*given), plain, strict=True):
            np.testing.assert_array_equal(found, expected, strict=True)
        run = machine.last_run
        assert run is not None
        assert (run.swapped_out > 0) == (run.swapped_in > 0) == (len(given[0]) > 0)


def test_each_step_is_swapped_out_and_comes_back_once() -> None:
    machine = MODULE.decay.grad("x").graph(X, np.int32(7)).dataflow(swap_above=0)
    machine.run(X, np.int32(7))
    run = machine.last_run
    assert run is not None
    assert run.swapped_in == run.swapped_out > 0
    assert run.swapped_out % 7 == 0
    assert run.swapped_bytes >= 7 * X.nbytes


def test_memory_stays_near_the_limit() -> None:
    x, k = np.linspace(0.1, 1.0, 50_000), np.int32(40)
    graph, peaks = MODULE.decay.grad("x").graph(x, k), list[int]()
    for limit in (None, "1 MiB"):
        machine = graph.dataflow(swap_above=limit)
        tracemalloc.start()
        machine.run(x, k)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] > 30 * x.nbytes
    assert peaks[1] < peaks[0] / 4


def test_collected_rows_are_swapped_as_a_whole() -> None:
    machine = MODULE.rows.graph(X).dataflow(swap_above=0)
    np.testing.assert_array_equal(machine.run(X)[0], np.outer(np.arange(5.0), X))
    assert machine.last_run is not None
    assert machine.last_run.swapped_bytes == 2 * 5 * X.nbytes


def test_workers_swap_too() -> None:
    graph = MODULE.decay.grad("x").lower(X, np.int32(3)).graph
    with Cluster(2) as cluster:
        machine = Machine(2, read_placement(Source("p", "rest = 1"), 2), swap_above=0, cluster=cluster)
        machine.evaluate(graph, X, np.int32(3))
    assert machine.last_run is not None and machine.last_run.swapped_out >= 3


def test_memory_of_dead_values_is_free_again() -> None:
    storage = StackStorage(3 * 80)
    kept = [storage.keep(np.ones(10)) for _ in range(4)]
    assert [file_of(x) is not None for x in kept] == [False, False, False, True]
    del kept[0]
    assert storage.held.bytes == 160
    assert not file_of(storage.keep(np.ones(10)))
    assert file_of(storage.zeros(Tensor(F64, (3,)), 50))


def test_nothing_of_a_run_stays_open() -> None:
    """Neither what the caller gave and is pushed, nor a result, keeps the file of a run."""
    source = (
        "fn f(x: f64[n]) -> (f64, f64[4, n]) {\n  var s = x\n  var t = x\n  let rows = for _ in 0..4 {\n    t = s * t\n"
    )
    source += "    s = sin(s) * x\n    yield s\n  }\n  (sum(t), rows)\n}"
    f = difflang.loads(source).f
    graphs = [(f.graph(X), (X,)), (MODULE.decay.grad("x").graph(X, np.int32(3)), (X, np.int32(3)))]
    kept = list[Any]()
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        for graph, given in graphs:
            kept.append(graph.dataflow(swap_above=X.nbytes).run(*given))
    assert len(os.listdir("/dev/fd")) <= before + 1
    assert all(file_of(x) is None for results in kept for x in results)


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stack_storage, "TemporaryFile", full)
    with pytest.raises(DifflangError, match="no space left") as caught:
        StackStorage(0).keep(np.ones(3))
    assert caught.value.diagnostics[0].code == "DL0710"


@pytest.mark.parametrize("wrong", ["64", "64 apples", -1, 2.5])
def test_amount_that_is_none(wrong: Any) -> None:
    with dg.build(x="f64[3]") as b:
        b.output(b.sin(b.x))
    with pytest.raises(DifflangError, match="no amount of memory"):
        b.graph.dataflow(swap_above=wrong)
