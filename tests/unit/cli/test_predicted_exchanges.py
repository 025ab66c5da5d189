"""What is predicted that devices exchange is what XLA's partitioned programs have, for layers as models have them, and
for what moves items along an axis that is split.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.devices import python_on_devices

SOURCE = """axes data, model
record Layer[d, h] { up: f32[d, h @model], down: f32[h @model, d], bias: f32[d] }
fn block(l: Layer[d, h], x: f32[n @data, d]) -> f32[n @data, d] = x + tanh(x @ l.up) @ l.down + l.bias
fn loss(l: Layer[d, h], x: f32[n @data, d]) -> f32 = mean(block(l, x)^2)
fn step(l: Layer[d, h], x: f32[n @data, d], rate: f32) -> Layer[d, h] = l - rate * grad(loss)(l, x)
fn deep(up: f32[k, d, h @model], down: f32[k, h @model, d], x: f32[n @data, d]) -> f32 {
  var y = x
  for i in 0..k { y = y + tanh(y @ up[i]) @ down[i] }
  mean(y^2)
}
fn recur(w: f32[d, d], x: f32[n @data, t, d]) -> f32 {
  var h = zeros(n, d)
  for i in 0..t { h = tanh(h @ w + x[.., i]) }
  mean(h^2)
}
fn recomputed(w: f32[d, d], x: f32[n @data, t, d]) -> f32 {
  var h = zeros(n, d)
  for i in 0..t { h = checkpoint { tanh(tanh(h @ w + x[.., i]) @ w) } }
  mean(h^2)
}
fn carried(x: f32[t, h @data], w: f32[h @model, h]) -> f32 {
  var s = x[0]
  for i in 0..t { s = tanh(s @ w + x[i]) }
  sum(s)
}
fn likely(x: f32[n @data]) -> f32 = sum(gamma(x))
fn lstm(w: f32[d, d], u: f32[d, 2, d], x: f32[n @data, t, d]) -> f32 {
  var s = zeros(n, d)
  for i in 0..20 {
    let keep = sigmoid(s @ u[.., 0])
    s = keep * tanh(x[.., i % t] @ w + s @ u[.., 1]) + sum(keep) * w[0]
  }
  mean(s^2)
}
fn gathered(w: f32[d @data, h], x: f32[n @data, d]) -> f32 = sum(tanh(x @ reshard(w, _, @model)))
fn embedded(table: f32[v @model, d], words: i32[n @data], y: f32[n @data, d]) -> f32 = mean((table[words] - y)^2)
fn newton(a: f32[n @data]) -> f32 {
  var x = a
  for _ in 0..10 { x = 0.5 * (x + a / x) }
  sum(x)
}
fn picked(x: f32[n @data, d], w: f32[d, h], i: i32[n @data]) -> f32 {
  let z = sort(x @ w, axis = 1)
  mean([for k => logsumexp(z[k]) - z[k, i[k]]])
}
fn epoch(w: f32[d, h], x: f32[t, n @data, d]) -> f32[d, h] {
  var m = w
  for i in permutation(t) { m = m - 0.1 * grad(|w| sum((x[i] @ w)^2))(m) }
  m
}
fn settle(a: f32[n @data]) -> f32[n @data] {
  var x = a
  while max(abs(x * x - a)) > 0.001 { x = 0.5 * (x + a / x) }
  x
}
fn extremes(x: f32[n @data, h @model], y: f32[n @data]) -> f32 {
  max(x) - min(x) + norm(y) + sum(x) * f32(argmax(y)) + f32(sum(argmin(x, axis = 0)))
}
fn attend(wq: f32[d, m @model, e], wk: f32[d, m @model, e], wv: f32[d, m @model, e], wo: f32[m @model, e, d],
          x: f32[b @data, t, d]) -> f32 {
  let y = [for s in 0..b => {
    let z = x[s]
    let q = [for i, h, j => sum(for a => z[i, a] * wq[a, h, j])]
    let k = [for i, h, j => sum(for a => z[i, a] * wk[a, h, j])]
    let v = [for i, h, j => sum(for a => z[i, a] * wv[a, h, j])]
    let p = [for h, i => softmax([for j => sum(for c => q[i, h, c] * k[j, h, c])])]
    [for i, a => sum(for h, c => sum(for j => p[h, i, j] * v[j, h, c]) * wo[h, c, a])]
  }]
  mean(y^2)
}
fn first(x: f32[n @data, d]) -> f32 = sum(x[0] * x[1])
fn joined(x: f32[n @data], y: f32[n @data]) -> f32 = sum(tanh(concat(x, reverse(y)))^2)
fn edges(x: f32[n @data]) -> f32 {
  var t = x
  for _ in 0..3 {
    t[1..n - 1] += 0.1 * (t[2..] - 2.0 * t[1..n - 1] + t[..n - 2])
    t[0] = t[1]
    t[n - 1] = t[n - 2]
  }
  sum(t^2)
}
fn ring(x: f32[n @data]) -> f32 {
  var t = x
  for _ in 0..3 { t = t + 0.1 * (roll(t, 1) - 2.0 * t + roll(t, -1)) }
  sum(t^2)
}
fn faces(x: f32[n @data], c: f32) -> f32 {
  var t = x
  for _ in 0..3 {
    let flux = pad(c * (t[1..] - t[..n - 1]), 1, 1)
    t = t + flux[1..] - flux[..n]
  }
  sum(t^2)
}
fn totals(x: f32[n @data, d]) -> f32 = sum(cumsum(x, 0) * softmax(x, 0) * x)
fn written(x: f32[n @data], i: i32[k]) -> f32 {
  var y = x
  for j in 0..k { y[i[j]] = 2.0 * y[i[j]] + 1.0 }
  sum(y^2)
}
fn turned(x: f32[n @data, d]) -> f32 = sum(reshard(tanh(x), _, @data)^3) + sum(reshard(x, @model, _)^2)
fn images(k: f32[3, 5, 2, d], x: f32[n @data, h @model, h, 2]) -> f32 = mean(tanh(conv2d(x, k, padding = "same"))^2)
fn sheets(k: f32[2, 3, 3, 3], x: f32[b, h @data, h @model, 3]) -> f32 {
  var y = x
  for _ in 0..2 { y = tanh(conv2d(y, k, padding = "same")) }
  mean(y^2)
}
fn shrunk(k: f32[3, 2, d], x: f32[n @data, h @model, 2]) -> f32 = sum(conv1d(x, k)^2) + sum(conv1d(x, k, stride = 2)^2)
fn apart(k: f32[3, 3, d], x: f32[n @data, h, d]) -> f32 = sum(tanh(conv1d(x, k, groups = 2, padding = "same")))
fn root(p: f32[n]) -> f32[n] {
  assert min(p) > 0.1
  var x = p
  for _ in 0..30 { x = 0.5 * (x + p / x) }
  x
}
@unchecked rule root(p) by implicit |x| x * x - p
fn roots(p: f32[n @data]) -> f32 = sum(root(p))
fn crossed(a: f32[n @data, n @model], b: f32[n @model]) -> f32[n @data] {
  var y: f32[n @data] = zeros(n)
  for i in 0..3 { y = tanh(y + a @ reshard(b + sum(y), @model)) }
  y
}
fn rolled(x: f32[n @data]) -> f32 {
  var y = x
  for _ in 0..9 { y = sin(roll(y, 1)) }
  sum(y)
}
fn counted(x: f32[n @data], k: i32) -> f32 {
  var y = x
  for _ in 0..k { y = sin(roll(y, 1)) }
  sum(y)
}
fn cooled(x: f32[n @data]) -> f32 {
  var y = x
  var total = 0.0
  while max(y) > 0.5 {
    y[1..n - 1] += 0.1 * (sin(y[2..]) - y[..n - 2])
    total += mean(y)
  }
  total + sum(y)
}
fn warmed(x: f32[n @data]) -> f32 {
  var y = x
  while max(y) > 0.5 { y = 0.8 * sin(y) + 0.1 * mean(y) }
  var z = x + y
  while max(z) > 0.3 { z = 0.7 * z * mean(z) + 0.1 * y }
  sum(z)
}
fn roots_of_steps(x: f32[n @data]) -> f32 {
  var y = x
  @checkpoint(sqrt) for _ in 0..16 { y = sin(roll(y, 1)) + mean(y) }
  @checkpoint(every, steps = 4) for _ in 0..16 { y = sin(roll(y, 1)) + mean(y) }
  sum(y)
}
"""
SIZES = {"n": 8, "d": 6, "h": 12, "k": 3, "b": 4, "t": 5, "m": 4, "e": 2, "v": 20}
FUNCTIONS = {
    "loss": ("ndh", "l"), "step": ("ndh", None), "deep": ("kdhn", "up,down"), "recur": ("dnt", "w"),
    "recomputed": ("dnt", "w"), "carried": ("th", "x,w"), "likely": ("n", "x"), "lstm": ("dnt", "w,u"),
    "gathered": ("dhn", "w"), "embedded": ("vdn", "table"), "newton": ("n", "a"),
    "picked": ("ndh", "w"), "epoch": ("dhtn", None), "settle": ("n", None), "extremes": ("nh", None),
    "attend": ("dmebt", "wq,wo"), "first": ("nd", "x"), "joined": ("n", "x"), "edges": ("n", "x"), "faces": ("n", "x"),
    "ring": ("n", "x"), "totals": ("nd", "x"), "written": ("nk", "x"), "turned": ("nd", "x"), "crossed": ("n", None),
    "images": ("dnh", "k,x"), "sheets": ("bh", "k,x"), "shrunk": ("dnh", "k,x"), "apart": ("dnh", "k,x"),
    "roots": ("n", "p"), "rolled": ("n", "x"), "counted": ("n", "x"), "cooled": ("n", "x"), "warmed": ("n", "x"),
    "roots_of_steps": ("n", "x"),
}  # fmt: skip


def reports() -> dict[str, Any]:
    """The rows of each function's report that only one side has, by function."""
    from difflang.base.source import Source
    from difflang.driver.checked_program import check_program
    from difflang.tools.partition import PartitionOptions, report_partition

    found: dict[str, Any] = {}
    mesh = {"data": 2, "model": 2}
    checked = check_program(Source("layers.dfl", SOURCE), mesh=mesh)
    for name, (sizes, wrt) in FUNCTIONS.items():
        options = PartitionOptions(mesh, {}, {n: str(SIZES[n]) for n in sizes}, wrt, compiled=True)
        report = report_partition(checked, None, name, options)
        differing = [
            f"{c.kind} {c.shape} {c.times}: {why}" for c, why in report.rows if "predicted" in why or "XLA" in why
        ]
        found[name] = {"predicted": len(report.predicted), "differing": differing}
    return found


@pytest.mark.slow
def test_layers_exchange_what_is_predicted() -> None:
    done = python_on_devices(str(Path(__file__)))
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else done.stderr
    assert {name: each["differing"] for name, each in found.items()} == {name: [] for name in FUNCTIONS}
    assert sum(each["predicted"] > 0 for each in found.values()) >= 7


if __name__ == "__main__":
    sys.stdout.write(json.dumps(reports()) + "\n")
