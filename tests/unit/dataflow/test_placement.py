"""Placement by the program: `@device(n)` before functions, loops, `let` and `var`, and what overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import difflang
from difflang import CheckError, DifflangError
from difflang import graph as dg

PROGRAM = """fn f(x: f64[n]) -> f64 {
  @device(1)
  let a = sin(x)
  @device(2) var b = cos(x)
  @device(1)
  for i in 0..3 {
    @device(2)
    let c = exp(a)
    b = b * tanh(c)
  }
  log(sum(g(b)))
}
@device(3)
fn g(x: f64[n]) -> f64[n] = sqrt(x * x + 1.0)
"""
X = np.linspace(0.1, 1.0, 4)
MODULE = difflang.loads(PROGRAM, "placed.dfl")


def devices_of(machine: Any) -> Mapping[str, set[int]]:
    """The devices of each op, by the text of the nodes."""
    found: dict[str, set[int]] = {}
    for line in machine.text().splitlines():
        name = line.split("Op(")[-1].partition(") ")[2].split(" ")[0]
        if " = Op(" in line and "  device " in line:
            found.setdefault(name, set()).add(int(line.partition("  device ")[2].split()[0]))
    return found


def test_each_equation_is_where_the_innermost_attribute_says() -> None:
    found = devices_of(MODULE.f.graph(X).dataflow(4))
    ops = ("sin", "cos", "exp", "tanh", "log", "sqrt")
    assert [found[op] for op in ops] == [{1}, {2}, {2}, {1}, {0}, {3}]


def test_a_gradient_is_computed_where_its_function_is() -> None:
    graph = MODULE.f.grad("x").graph(X)
    machine = graph.dataflow(4)
    found = devices_of(machine)
    backward = {op for op in found if op not in devices_of(MODULE.f.graph(X).dataflow(4))}
    assert set().union(*[found[op] for op in backward]) >= {1, 2, 3}
    np.testing.assert_array_equal(machine.run(X)[0], graph.run(X, engine="interpret")[0])


def test_a_gradient_in_one_place_sends_as_much_for_any_number_of_steps() -> None:
    source = "fn f(x: f64, k: i32) -> f64 {\n  var s = x\n  @device(1)\n  for _ in 0..k { s = sin(s) * x }\n  s\n}"
    f = difflang.loads(source).f.grad("x")
    sent = list[int]()
    for k in (5, 50):
        machine = f.graph(0.5, np.int32(k)).dataflow(2)
        machine.run(0.5, np.int32(k))
        assert machine.last_run is not None
        sent.append(machine.last_run.fired["Send"])
        assert "no line" not in machine.last_run.lines
    assert sent[0] == sent[1]


def test_one_device_has_all() -> None:
    assert devices_of(MODULE.f.graph(X).dataflow()) == {}


def test_a_placement_from_outside_counts_and_the_rest_stays() -> None:
    graph = MODULE.f.graph(X)
    found = devices_of(graph.dataflow(4, "op sin = 2"))
    assert found["sin"] == {2} and found["sqrt"] == {3} and found["log"] == {0}
    found = devices_of(graph.dataflow(4, lambda eqn: 0 if eqn.op == "sqrt" else None))
    assert found["sqrt"] == {0} and found["sin"] == {1}
    found = devices_of(graph.dataflow(4, "auto"))
    assert found["sqrt"] == {3} and found["exp"] == {2}


def test_too_few_devices() -> None:
    with pytest.raises(DifflangError, match="there is no device 3") as caught:
        MODULE.f.graph(X).dataflow(3).run(X)
    (found,) = caught.value.diagnostics
    assert found.code == "DL1260" and found.labels[0].span.position[0] == 13
    assert "--devices 4" in found.helps[0]


def test_a_placement_that_is_wrong_is_told_before_anything_runs() -> None:
    for place, devices in (("op foo = 1", 2), ("op sin = 1", 1), ("line 3", 2)):
        with pytest.raises(DifflangError) as caught:
            MODULE.f.graph(X).dataflow(devices, place)
        assert caught.value.diagnostics[0].code == "DL1260"
    with pytest.raises(DifflangError, match="at most 1000 devices"):
        MODULE.f.graph(X).dataflow(1001)


def test_a_graph_without_source_has_no_placement() -> None:
    with dg.build(x="f64[3]") as b:
        b.output(b.sin(b.x))
    assert devices_of(b.graph.dataflow(2)) == {"sin": {0}}


@pytest.mark.parametrize(
    "wrong",
    [
        "@device",
        "@device(-1)",
        "@device(1.5)",
        "@device(x)",
        "@device(1000)",
        "@device(number = 1)",
        "@device(1, 2)",
        "@device(1 MiB)",
    ],
)
@pytest.mark.parametrize("at", ["let y = x", "var y = x", "for i in 0..3 { y += x }"])
def test_a_device_is_a_number(wrong: str, at: str) -> None:
    with pytest.raises(CheckError, match=r"`@device` takes the number of a device"):
        difflang.loads(f"fn f(x: f64) -> f64 {{\n  var y = x\n  {wrong}\n  {at}\n  y\n}}")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("fn f(x: f64) -> f64 {\n  @memory(1 MiB) let y = x\n  y\n}", "does not take `@memory`"),
        ("fn f(x: f64) -> f64 {\n  @checkpoint(full) var y = x\n  y\n}", "does not take `@checkpoint`"),
        ("fn f(x: f64) -> f64 {\n  @devise(1) let y = x\n  y\n}", "there is no attribute `@devise`"),
        ("fn f(x: f64) -> f64 {\n  @device(1) @device(2) let y = x\n  y\n}", "appears twice"),
        ("@device(1) let y = 2.0", "has no effect on a value of the host"),
    ],
)  # fmt: skip
def test_attributes_of_bindings(source: str, said: str) -> None:
    with pytest.raises(CheckError, match=said):
        difflang.loads(source)


def test_checks_of_a_binding_can_be_left_out() -> None:
    source = "fn f(x: f64[n], k: i32) -> f64 {\n  @unchecked let y = x[k]\n  y\n}"
    assert difflang.loads(source).f.interpret(X, np.int32(99)) == X[-1]
