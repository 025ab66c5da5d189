"""The dataflow machine: deadness, frames, constants of loops, effects, placement, deadlock, counts and pictures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import difflang
from difflang import graph as dg
from difflang.base.diagnostics import InternalError
from difflang.dataflow.lower_to_dataflow import lower_to_dataflow
from difflang.dataflow.machine import Machine
from difflang.dataflow.nodes import DataflowNode
from difflang.dataflow.partition import dataflow_program
from difflang.dataflow.placement import equations_in_order
from difflang.dataflow.run_dataflow import RunOptions, RunStatistics, run_dataflow

FLOW = """
fn choose(x: f64) -> f64 = if x > 0.0 { sin(x) } else { 2.0 * x }
fn steps(x: f64, k: i32) -> f64 {
  var s = x
  for _ in 0..k { s = sin(s) * x }
  s
}
fn set(x: f64, k: i32) -> f64 {
  var s = x
  for _ in 0..k { s = 0.25 }
  s
}
fn told(x: f64, k: i32) -> f64 {
  var s = x
  for i in 0..k {
    print("at {i}: {s}")
    if s > 1.0 {
      print("large")
      s = s / 2.0
    } else { s = s + x }
  }
  print("end {s}")
  s
}
fn squares(x: f64[n]) -> f64 = sum([for a in x => halved(a) * a])
fn halved(x: f64) -> f64 {
  var s = x
  while s > 1.0 { s = s / 2.0 }
  s
}
"""
MODULE = difflang.loads(FLOW, "flow.dfl")
PLACE = "op sin = 1\nop mul = 2\nop div = 1\nop print = 1\n"


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize(
    ("name", "given"), [("choose", (0.5,)), ("choose", (-0.5,)), ("steps", (0.5, 0)), ("steps", (0.5, 4)),
                        ("set", (0.5, 3)), ("set", (0.5, 0)), ("halved", (9.0,)), ("halved", (0.5,))],
)  # fmt: skip
def test_values_and_gradients_are_those_of_the_interpreter(name: str, given: tuple[Any, ...], devices: int) -> None:
    for f in (MODULE[name], MODULE[name].grad("x")):
        graph = f.graph()
        got = graph.dataflow(devices, PLACE if devices > 1 else None).run(*given)
        assert got == graph.run(*given, engine="interpret")


def test_a_dead_branch_computes_nothing() -> None:
    machine = MODULE.choose.graph().dataflow()
    machine.run(0.5)
    assert machine.last_run is not None
    assert machine.last_run.work == 3  # 0, the comparison, and the sine
    assert machine.last_run.dead["Op"] == 2  # 2 and the product
    machine.run(-0.5)
    assert (machine.last_run.work, machine.last_run.dead["Op"]) == (4, 1)


def test_a_loop_that_takes_no_step_computes_nothing_of_its_step() -> None:
    machine = MODULE.steps.graph().dataflow()
    machine.run(0.5, 0)
    assert machine.last_run is not None and machine.last_run.fired["NextIteration"] == 2
    assert machine.last_run.dead["NextIteration"] == 2
    assert machine.last_run.work == 2  # 0 and the larger of 0 and k


def test_iterations_under_way_are_bounded_and_counted() -> None:
    graph = MODULE.squares.graph("f64[20]")
    assert "map" in [e.op for e in graph.walk()]
    found: list[int] = []
    for most in (1, 3, 32):
        machine = Machine(parallel_iterations=most)
        machine.evaluate(graph.ir, np.arange(20.0))
        assert machine.last_run is not None
        found.append(machine.last_run.most_iterations)
    assert found[:2] == [1, 3]
    assert 3 < found[2] <= 21


def test_work_and_span_of_a_map_and_of_a_loop() -> None:
    machine = Machine()
    machine.evaluate(MODULE.squares.graph("f64[8]").ir, np.arange(8.0))
    alike = machine.last_run
    assert alike is not None
    assert max(alike.widths) >= 8 and alike.work > 5 * alike.span
    runs = [alike]
    for steps in (4, 9):
        machine.evaluate(MODULE.steps.graph().ir, np.float64(0.5), np.int32(steps))
        assert machine.last_run is not None
        runs.append(machine.last_run)
    few, many = runs[1:]
    assert (many.span - few.span, many.work - few.work) == (10, 10)  # a sine and a product in each step


def test_totals_are_those_of_all_runs() -> None:
    machine, runs = Machine(), list[RunStatistics]()
    for steps in (9, 4):
        machine.evaluate(MODULE.steps.graph().ir, np.float64(0.5), np.int32(steps))
        assert machine.last_run is not None
        runs.append(machine.last_run)
    long, short = runs
    totals = machine.totals
    assert (totals.runs, totals.work, totals.span) == (2, long.work + short.work, long.span + short.span)
    assert (totals.fired, totals.lines) == (long.fired + short.fired, long.lines + short.lines)
    assert (totals.widest, totals.most_iterations) == (max(long.widths), long.most_iterations)


@pytest.mark.parametrize("devices", [1, 3])
def test_prints_keep_their_order(devices: int, capsys: pytest.CaptureFixture[str]) -> None:
    graph = MODULE.told.graph()
    graph.run(0.6, 4, engine="interpret")
    wanted = capsys.readouterr().out
    graph.dataflow(devices, PLACE if devices > 1 else None).run(0.6, 4)
    assert capsys.readouterr().out == wanted
    assert wanted.count("large") == 2 and wanted.startswith("at 0: 0.6\n")


def test_the_order_in_which_tokens_arrive_does_not_matter() -> None:
    graph = MODULE.told.graph().ir
    program = dataflow_program(graph, {e: i % 3 for i, e in enumerate(equations_in_order(graph))}, 3)
    found = {repr(run_dataflow(program, (0.6, np.int32(4)), RunOptions(seed=s))[0]) for s in range(20)}
    assert len(found) == 1


def test_a_missing_send_is_a_deadlock_that_names_the_edge() -> None:
    graph = MODULE.choose.graph().ir
    program = dataflow_program(graph, {e: int(e.op.name == "cond") for e in equations_in_order(graph)}, 2)
    program.nodes = [n for n in program.nodes if n.kind != "Send"]
    with pytest.raises(InternalError, match=r"devices wait for tokens that nobody sends: \d+:[01]>0"):
        run_dataflow(program, (np.float64(0.5),))


def test_a_token_without_a_partner_is_reported() -> None:
    program = lower_to_dataflow(MODULE.choose.graph().ir)
    program.nodes.append(DataflowNode(99, "Merge", [program.results[0], program.results[0]], None, 0))
    program.nodes[-1].kind = "Op"
    program.nodes[-1].inputs[1] = program.results[0]._replace(output=7)
    with pytest.raises(InternalError, match="tokens are left"):
        run_dataflow(program, (np.float64(0.5),))


def test_a_timeline_has_a_row_for_each_device() -> None:
    machine = MODULE.steps.graph().dataflow(3, PLACE, record=True)
    machine.run(0.5, 3)
    events = json.loads(machine.timeline())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"device 0", "device 1", "device 2"}
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
    assert {e["args"]["line"] for e in events if e["name"] == "sin"} == {5}


def test_automatic_placement_uses_devices_where_work_is_independent() -> None:
    product = {"contract": ((1,), (0,)), "batch": ((), ())}
    with dg.build(x="f64[200, 200]", y="f64[200, 200]") as b:
        one, other = b.dot_general(b.x, b.x, **product), b.dot_general(b.y, b.y, **product)
        b.output(b.add(b.sin(one), b.cos(other)))
    machine = b.graph.dataflow(2, "auto")
    assert {(n["device"], n["what"]) for n in json.loads(machine.show("json"))["nodes"]} >= {(0, "sin"), (1, "cos")}
    chain = MODULE.steps.graph().dataflow(2, "auto")
    assert chain.counts["Send"] == 0


def test_pictures_in_the_documentation_are_those_of_the_machine() -> None:
    page = (Path(__file__).parents[3] / "docs" / "dataflow.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```dfl flow.dfl\n(.*?)```", page, flags=re.DOTALL)
    flow = difflang.loads(source, "flow.dfl")
    place = "op sin = 1\nop cos = 1\nop mul = 2\nop log = 2\n"
    drawn = [flow[name].graph().dataflow(3, place).show("mermaid") for name in ("choose", "mixed")]
    assert re.findall(r"```mermaid\n(.*?)```", page, flags=re.DOTALL) == drawn


def test_a_placement_names_a_file_by_its_last_parts() -> None:
    graph = difflang.loads("fn f(x: f64) -> f64 = sin(x)", "nets/flow.dfl").f.graph().apply("inline")
    placed = [
        graph.dataflow(2, f"line {name}:1 = 1").counts["Send"] for name in ("flow.dfl", "nets/flow.dfl", "low.dfl")
    ]
    assert placed == [2, 2, 0]


def code(call: Any) -> str:
    with pytest.raises(difflang.DifflangError) as caught:
        call()
    return f"{caught.value.diagnostics[0].code}: {caught.value.diagnostics[0].message}"


def test_wrong_requests_are_refused() -> None:
    graph = MODULE.steps.graph()
    assert code(lambda: graph.dataflow(0)) == "DL1260: `devices` is a number from 1, not 0"
    assert code(lambda: graph.dataflow(2, parallel_iterations=0)).startswith("DL1260: `parallel_iterations` is")
    assert code(lambda: graph.dataflow(2, 3)) == "DL1260: 3 is no placement"  # type: ignore[arg-type]
    assert code(lambda: graph.dataflow(2, lambda e: 2).text()) == "DL1260: `place` gives 2 for `const`"
    assert code(lambda: graph.dataflow(2, "line 3 = 2").text()) == "DL1260: there is no device 2"
    assert code(lambda: graph.dataflow(2, "op sinn = 1").text()) == "DL1260: there is no op `sinn`"
    assert code(lambda: graph.dataflow(2, "here = 1").text()) == "DL1260: this line places nothing"
    assert code(lambda: graph.dataflow().show("png")) == "DL1207: there is no format `png` of a picture"
    assert code(lambda: graph.dataflow().timeline()) == "DL1260: no run was recorded"
    assert code(lambda: graph.dataflow(2, "line 0 = 1").text()) == "DL1260: there are no such lines"
    assert code(lambda: graph.dataflow(2, "line 5-3 = 1").text()) == "DL1260: there are no such lines"
    assert code(lambda: graph.dataflow(2, f"line {'9' * 5000} = 1").text()) == "DL1260: this line places nothing"
