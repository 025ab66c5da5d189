"""Sums over a split axis that loops and additions make wait: they are sent once."""

from __future__ import annotations

import pytest

from difflang.base.source import Source
from difflang.driver.checked_program import check_program
from difflang.tools.partition import PartitionOptions, report_partition

SOURCE = """axes data, model
fn recurrent(w: f32[d, d], b: f32[d], x: f32[n @data, t, d]) -> f32 {
  var s = zeros(n, d)
  for i in 0..t { s = tanh(s @ w + x[.., i] + b) }
  sum(s)
}
fn until(w: f32[d, d], x: f32[n @data, t, d]) -> f32 {
  var s = zeros(n, d)
  var i = 0
  while i < 2 * t and max(s) < 9.0 {
    s = tanh(s @ w + x[.., i % t])
    i += 1
  }
  sum(s)
}
fn nested(w: f32[d, d], x: f32[n @data, t, d]) -> f32 {
  var s = zeros(n, d)
  for i in 0..t { for j in 0..t { s = tanh(s @ w + x[.., j]) } }
  sum(s)
}
fn nested_until(w: f32[d, d], x: f32[n @data, d]) -> f32 {
  var s = x
  for i in 0..30 {
    var j = 0
    while j < 3 and max(s) < 9.0 {
      s = sin(s @ w)
      j += 1
    }
    s = s + 0.1 * (s @ w)
  }
  sum(s)
}
fn sums_of_sums(x: f32[n @data, h @model], q: f32[h @model, d], k: f32[h @model, d]) -> f32[d] {
  let s = x @ q + tanh(x) @ k
  sum(s, 0) + sum(s * s, 0)
}
fn heads(x: f32[n, d], q: f32[d, h @model], k: f32[d, h @model], v: f32[d, h @model]) -> f32 =
  sum(tanh(x @ q) * tanh(x @ k) * tanh(x @ v))
"""
CALLS = {
    "recurrent": ("n=8 t=40 d=4", "w,b", ["f32[4,4] 1", "f32[4] 1"]),
    "until": ("n=8 t=40 d=4", "w", ["f32[4,4] 1"]),
    "nested": ("n=8 t=30 d=4", "w", ["f32[4,4] 1"]),
    "nested_until": ("n=8 d=4", "w", ["f32[4,4] 1"]),
    "sums_of_sums": ("n=6 d=4 h=8", None, ["f32[3,4] 1", "f32[4] 1"]),
    "heads": ("n=6 d=4 h=8", "x", ["f32[6,4] 1"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_shares_of_devices_are_added_once(name: str) -> None:
    sizes, wrt, wanted = CALLS[name]
    mesh = {"data": 2, "model": 2}
    options = PartitionOptions(mesh, {}, dict(size.split("=") for size in sizes.split()), wrt)
    predicted = report_partition(check_program(Source("sums.dfl", SOURCE), mesh=mesh), None, name, options).predicted
    gradients = {text.split()[0] for text in wanted}
    found = [f"{c.shape} {c.times}" for c in predicted if c.kind == "all-reduce" and c.shape in gradients]
    assert sorted(found) == sorted(wanted)
