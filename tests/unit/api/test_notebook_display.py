"""What is told of a function and a module: to programs in `signature`, to people in a notebook."""

from __future__ import annotations

import inspect
from html.parser import HTMLParser
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

import difflang

PROGRAM = """
## A layer. It has `w` & <b>.
record Net[d] { w: f32[d], b: f32 }
enum Shape { Circle(r: f32), Box(w: f32, h: f32) }
## How far it is | off. Summed.
##
## Cost: one product.
fn loss[T: float](m: Net[d], x: T[n, d], k: dim, y: T = 1.0) -> T = y * sum(x) * T(k)
fn noisy(x: f32[n]) -> f32[n] {
  print("noise")
  x + draw(n)
}
fn draw(n: dim) -> f32[n] = normal(n)
fn root(x: f64) -> f64 {
  assert x >= 0.0, "x is not negative"
  sqrt(x)
}
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return difflang.loads(PROGRAM, name="shown")


def test_a_signature_tells_sizes_element_types_and_effects(m: Any) -> None:
    signature = m.loss.signature
    assert signature.dims == ("d", "n", "k") and signature.dtypes == {"x": "T", "y": "T"}
    assert m.noisy.signature.effects == ("print", "rand"), "those of what it calls too"
    assert m.root.signature.effects == ("fail",) == m.root.grad().signature.effects == m.root.vmap().signature.effects
    assert signature.effects == () and str(signature) == "(m: Net[d], x: T[n, d], k: dim, y: T = 1.0) -> T"
    assert str(m.noisy.signature) == "(x: f32[n]) -> f32[n]  # print, rand"
    assert str(m.noisy.bind(n=2).signature) == "(x: f32[n]) -> f32[n]  # print, rand, with n = 2"
    assert list(inspect.signature(m.loss.bind(k=2)).parameters) == ["m", "x", "y"]


class Balanced(HTMLParser):
    """Whether every element is closed in its turn, and the text of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.seen += f"{data}\n"


def test_a_notebook_shows_a_function_in_three_forms(m: Any) -> None:
    data, _ = DisplayFormatter().format(m.loss)
    assert data["text/plain"].splitlines() == [
        "loss(m: Net[d], x: T[n, d], k: dim, y: T = 1.0) -> T",
        "  How far it is | off. Summed.",
        "",
        "  Cost: one product.",
        "  m  Net[d]",
        "  x  T[n, d]",
        "  k  dim      a size",
        "  y  T        optional",
        "  sizes: d, n, k",
    ]
    for word in ("loss(m: Net[d]", "How far it is | off", "T[n, d]", "optional", "sizes: d, n, k"):
        assert word in Balanced(data["text/html"]).seen and word in data["text/markdown"]
    table = [line for line in data["text/markdown"].splitlines() if line.startswith("|")]
    assert len(table) == 6 and all(line.count(" | ") == 2 for line in table)
    bound = m.noisy.bind(n=2)._repr_mimebundle_()
    assert "bound: n = 2" in bound["text/plain"] and "prints, draws random numbers" in bound["text/html"]


def test_a_notebook_shows_a_module(m: Any) -> None:
    data = m._repr_mimebundle_()
    assert data["text/plain"].startswith("module shown\n  loss(m: Net[d]")
    seen = Balanced(data["text/html"]).seen
    assert "How far it is | off.\n" in seen and "Summed" not in seen, "the first sentence is enough"
    assert "A layer." in seen and "record Net[d] { w: f32[d], b: f32 }" in seen and "enum Shape" in seen
    table = [line for line in data["text/markdown"].splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4 + 2 and r"How far it is \| off." in data["text/markdown"]


def test_comments_in_a_record_are_no_part_of_its_line() -> None:
    m = difflang.loads("record Net {\n  w: f32, # the slope\n  ## The offset.\n  b: f32,\n}\n")
    assert "record Net { w: f32, b: f32, }" in m._repr_mimebundle_()["text/plain"]


def test_one_without_anything_is_shown(m: Any) -> None:
    assert difflang.loads("")._repr_mimebundle_()["text/plain"] == "module <string>"
    _, pull = m.root.vjp()(4.0)
    assert "ct" in pull._repr_mimebundle_()["text/plain"]
