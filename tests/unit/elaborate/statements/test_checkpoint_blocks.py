"""`checkpoint { … }` and `save x`: nothing else is kept, as XLA's own account of memory shows; no result changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.base.errors import DifflangError
from difflang.ir.graph import Eqn, Graph, graphs_postorder
from difflang.ir.json_codec import graph_from_json, graph_to_json
from difflang.ir.text_parser import graph_from_text
from difflang.ir.text_printer import graph_to_text

SOURCE = """
float f64
fn turned(x: f64[2]) -> f64[2] = [0.6 * x[0] - 0.8 * x[1], 0.8 * x[0] + 0.6 * x[1]]

fn twice(w: f64, v: f64[2]) -> f64 {
  var x = v
  BLOCK {
    let h = sin(w * x)
    SAVE h
    x = turned(x) + 0.1 * h * h
  }
  let y = BLOCK { exp(w * x) * x }
  sum(y * y * x)
}

fn nested(w: f64, v: f64[2]) -> f64 {
  let y = BLOCK {
    let h = tanh(w * v) + v
    let inner = BLOCK {
      let s = sin(h * w)
      SAVE s
      s * exp(s) + h
    }
    SAVE inner
    BLOCK { inner * cos(inner * w) }
  }
  sum(y * y)
}

fn yielding(w: f64, v: f64[2], u: f64[7]) -> f64 {
  var x = v
  let ys = for i in 0..7 {
    BLOCK {
      let h = sin(w * x * u[i])
      SAVE h
      x = turned(x) + 0.1 * h * exp(h)
      if u[i] > 0.3 { yield x[0] * h[1] }
    }
  }
  var s = sum(x * x * x)
  for y in ys { s += y * y * s }
  for y in reverse(ys) { s += sin(y) }
  s
}

fn counted(w: f64, v: f64[2], u: f64[7]) -> f64 {
  var x = v
  let ys = for i in 0..7 {
    let y = BLOCK {
      let h = sin(w * x * u[i])
      SAVE h
      x = turned(x) + 0.1 * h * exp(h)
      x[0] * h[1]
    }
    yield y * u[i]
  }
  sum(x * x * x) + sum(ys * ys)
}

fn open(w: f64, v: f64[2], k: i32) -> f64 {
  var x = v
  for _ in 0..k { BLOCK { x = turned(x) + 0.01 * sin(w * exp(x)) } }
  sum(x * x * x)
}

fn around(w: f64, v: f64[2], k: i32) -> f64 {
  BLOCK {
    var x = v
    var n = 0
    while n < k {
      x = turned(x) + 0.01 * sin(w * exp(x))
      n += 1
    }
    if x[0] > 0.0 { sum(x * x * x) } else { BLOCK { sum(sin(x * w)) } }
  }
}

fn lanes(w: f64, v: f64[2], ks: i32[m]) -> f64 = sum([for l => open(w, v, ks[l]) * around(w, v, ks[l])])

fn written(w: f64, v: f64[2], u: f64[7]) -> f64 {
  var bins = zeros(2)
  for i in 0..7 { BLOCK { bins[i % 2] += sin(w * u[i]) * exp(v[0] * u[i]) } }
  sum(bins * bins * v)
}
"""
V, U, W = np.array([0.3, 0.4]), np.linspace(-1.0, 1.0, 7), 0.7
CALLS: dict[str, tuple[Any, ...]] = {
    "twice": (W, V),
    "nested": (W, V),
    "counted": (W, V, U),
    "yielding": (W, V, U),
    "open": (W, V, 37),
    "around": (W, V, 5),
    "lanes": (W, V, np.array([0, 1, 5, 30], np.int32)),
    "written": (W, V, U),
}
SECOND = """
fn pushed(w: f64, v: f64[2], OTHERS) -> f64[2] {
  let (_, d) = jvp(|w| grad[1](NAME)(w, v, ARGS))(w, 1.0)
  d
}
fn pulled(w: f64, v: f64[2], OTHERS) -> f64[2] = grad(|w| sum(grad[1](NAME)(w, v, ARGS)))(w) * v
fn series(w: f64, v: f64[2], OTHERS) -> f64 = grad(|w| sum(jet(|t| NAME(t * w, v, ARGS), order = 2)(1.0)))(w)
"""
OTHERS = {
    "counted": "u: f64[7]",
    "yielding": "u: f64[7]",
    "open": "k: i32",
    "around": "k: i32",
    "lanes": "ks: i32[m]",
    "written": "u: f64[7]",
}


def text_of(blocks: bool, name: str = "") -> str:
    text = SOURCE.replace("BLOCK", "checkpoint" if blocks else "")
    lines = text.splitlines() if blocks else [line for line in text.splitlines() if "SAVE" not in line]
    more = SECOND.replace("NAME", name) if name else ""
    others = OTHERS.get(name, "")
    more = more.replace("ARGS", others.partition(":")[0]).replace("OTHERS", others)
    return "\n".join(lines).replace("SAVE", "save").replace(", )", ")") + more.replace(", )", ")")


def equations(graph: Graph, name: str) -> Iterator[tuple[Graph, Eqn]]:
    for inner in graphs_postorder(graph)[0]:
        yield from ((inner, eqn) for eqn in inner.eqns if eqn.op.name == name)


@pytest.fixture(scope="module")
def modules() -> tuple[Any, Any]:
    return difflang.loads(text_of(True), name="blocks"), difflang.loads(text_of(False), name="plain")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.nightly_cases("lanes")
def test_values_and_gradients_are_those_without_blocks(name: str, modules: tuple[Any, Any]) -> None:
    found = [
        [float(getattr(of, name)(*CALLS[name])), *jax.tree.leaves(getattr(of, name).grad("w", "v")(*CALLS[name]))]
        for of in modules
    ]
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("name", ["nested", "counted", "yielding", "around"])
@pytest.mark.nightly_except("counted")
def test_second_derivatives_are_those_without_blocks(name: str) -> None:
    found: list[list[Any]] = []
    for blocks in (True, False):
        of: Any = difflang.loads(text_of(blocks, name), name="second")
        found.append([of.pushed(*CALLS[name]), of.pulled(*CALLS[name])])
        if name == "nested":
            found[-1].append(of.series(*CALLS[name]))
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


# ------------------------------------------------------------------------------------------------- what is kept


def gradient(source: str, *types: str) -> Graph:
    of: Any = difflang.loads(source, name="kept")
    return of.f.grad("x").lower(*types).graph


ONE = """
fn f(x: f32[64]) -> f32 {
  checkpoint {
    let a = exp(x)
    let b = sin(a)
    SAVE
    sum(tanh(b))
  }
}
"""


@pytest.mark.parametrize("save", ["", "save a", "save b"])
def test_the_equation_that_computes_again_takes_inputs_and_what_is_saved(save: str) -> None:
    graph = gradient(ONE.replace("SAVE", save), "f32[64]")
    ((inside, again),) = equations(graph, "checkpoint")
    assert inside is graph and again.attrs["recompute"]
    made = {r: e.op.name for e in graph.eqns for r in e.results}
    taken = [made.get(v, "param") for v in again.operands if v.type.shape]
    assert taken == {"": ["param"], "save a": ["exp"], "save b": ["param", "sin"]}[save]
    inner = [e.op.name for e in again.regions[0].eqns]
    assert ("exp" in inner) == (save != "save a")
    assert ("sin" in inner) == (save != "save b")
    assert graph_to_text(graph_from_text(graph_to_text(graph))) == graph_to_text(graph)
    assert graph_to_text(graph_from_json(graph_to_json(graph))) == graph_to_text(graph)


def layers(blocks: int, kind: str, save: str = "") -> str:
    inside = "\n".join(["y = sin(w * y) * exp(-y) + tanh(y) * y"] * 3)
    block = f"{kind} {{\n{inside}\n{save}\n{inside}\n}}\n"
    return f"fn f(w: f32[n], x: f32[n]) -> f32 {{\nvar y = x\n{block * blocks}sum(y)\n}}\n"


def room(source: str, size: int) -> float:
    """For how many arrays the compiled gradient has room, beside what it takes and gives."""
    of: Any = difflang.loads(source, name="room")
    program = of.f.grad("w", "x").lower(f"f32[{size}]", f"f32[{size}]").compile()
    return program.memory_analysis().temp_size_in_bytes / (4 * size)


@pytest.mark.parametrize(
    ("kind", "save", "arrays"), [("checkpoint", "", 1), ("checkpoint", "save y", 2), ("", "", 18.5)]
)
@pytest.mark.nightly_except("checkpoint-save y-2")
def test_each_further_block_has_the_compiled_gradient_keep_its_input_and_what_is_saved(
    kind: str, save: str, arrays: float
) -> None:
    """Straight-line code, where XLA on the CPU ignores barriers. Without blocks parts of long chains are kept apart."""
    few, many = [room(layers(blocks, kind, save), 1 << 13) for blocks in (2, 4)]
    assert (many - few) / 2 == pytest.approx(arrays, rel=0.05)


def test_a_loop_keeps_of_its_steps_what_their_blocks_take() -> None:
    source = """
fn f(w: f32[n], x: f32[n]) -> f32 {
  var y = x
  for _ in 0..STEPS { BLOCK { y = sin(w * exp(y)) * exp(-y) + tanh(exp(y) * w) * sin(y) } }
  sum(y)
}
"""

    def kept(block: str) -> float:
        """The arrays that each further step adds."""
        few, many = [room(source.replace("BLOCK", block).replace("STEPS", n), 1 << 12) for n in ("50", "100")]
        return (many - few) / 50

    assert kept("checkpoint") == pytest.approx(1, rel=0.01)
    assert kept("") > 2.5


def test_draws_are_the_same_when_they_are_drawn_again() -> None:
    source = """
fn f(x: f64[n]) -> f64 {
  var y = x
  for _ in 0..3 { BLOCK { y = sin(y * normal(n)) + y } }
  sum(y)
}
"""
    found = []
    for kind in ("checkpoint", ""):
        of: Any = difflang.loads(source.replace("BLOCK", kind), name="draws")
        found.append(np.asarray(of.f.grad("x")(np.linspace(0.0, 1.0, 5), key=3)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-13)


def test_a_failure_in_a_block_is_reported_once() -> None:
    source = """
fn f(x: f64[n], i: i32) -> f64 {
  checkpoint {
    let y = exp(x)
    y[i] * y[0]
  }
}
"""
    of: Any = difflang.loads(source, name="failing")
    np.testing.assert_allclose(of.f.grad("x")(np.zeros(3), 1), [1.0, 1.0, 0.0])
    with pytest.raises(DifflangError) as caught:
        of.f.grad("x")(np.zeros(3), 3)
    assert str(caught.value).count("error[DL0902]") == 1


def test_a_block_without_a_derivative_is_no_equation() -> None:
    of: Any = difflang.loads(text_of(True), name="blocks")
    assert not list(equations(of.nested.lower("f64", "f64[2]").graph, "checkpoint"))


def test_elsewhere_a_barrier_keeps_what_is_computed_again_apart() -> None:
    of: Any = difflang.loads(layers(2, "checkpoint"), name="elsewhere")
    for platform, barriers in (("cuda", 2), ("tpu", 2), ("cpu", 0)):
        text = of.f.grad("w", "x").stablehlo("f32[64]", "f32[64]", platform=platform)
        assert text.count("optimization_barrier") == barriers
