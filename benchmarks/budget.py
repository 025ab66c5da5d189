"""How limits on memory are kept: `python benchmarks/run.py --table budget [ROW ...]`.

A row is a program and a limit, as a part of what its gradient takes when all is kept: what was predicted, what
XLA says, how far these are apart, what the gradient takes over the time that it takes without a limit, and how far the
two are apart; or the smallest limit that can be kept, where it is refused.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import difflang
from difflang.base.byte_sizes import format_bytes
from difflang.lower.capacity import INITIAL_CAPACITY
from difflang.plan.compile_within_limit import compile_within_limit, with_kernel_order
from difflang.runtime.compile import compile_graph
from memory import lines, waiting
from timing import interleaved, ratio

PARTS = (1.0, 0.6, 0.3, 0.15)
WEIGHTS = ("w", "up", "down")  # how the names begin of what is differentiated in
LOOP = "fn f(w: f32[n]{}) -> f32 {{\n  var x = w\n{}\n  sum(x * x)\n}}"


def transformer(layers: int) -> str:
    """Layers of one head each, written out one after the other, of weights that are stacked."""
    lines = "\n".join(
        [f"  h = layer(h, wq[{i}], wk[{i}], wv[{i}], wo[{i}], up[{i}], down[{i}])" for i in range(layers)]
    )
    return f"""
fn normed(x: f32[b, s, d]) -> f32[b, s, d] {{
  let c = x - mean(x, axis = 2, keepdims = true)
  c / sqrt(mean(c * c, axis = 2, keepdims = true) + 0.00001)
}}
fn layer(
  x: f32[b, s, d], wq: f32[d, d], wk: f32[d, d], wv: f32[d, d], wo: f32[d, d], up: f32[d, e], down: f32[e, d]
) -> f32[b, s, d] {{
  let y = normed(x)
  let scores = (y @ wq) @ transpose(y @ wk, (0, 2, 1)) * 0.125
  let a = x + softmax(scores, axis = 2) @ (y @ wv) @ wo
  a + gelu(normed(a) @ up) @ down
}}
fn f(
  wq: f32[l, d, d], wk: f32[l, d, d], wv: f32[l, d, d], wo: f32[l, d, d], up: f32[l, d, e], down: f32[l, e, d],
  x: f32[b, s, d]
) -> f32 {{
  var h = x
{lines}
  mean(h * h)
}}"""


def shapes_of_transformer(layers: int, width: int, length: int, batch: int) -> dict[str, tuple[int, ...]]:
    square = dict.fromkeys(("wq", "wk", "wv", "wo"), (layers, width, width))
    return {**square, "up": (layers, width, 4 * width), "down": (layers, 4 * width, width), "x": (batch, length, width)}


PROGRAMS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "wave": (LOOP.format("", "  for i in 0..400 { x = x + 0.02 * sin(3.0 * x) }"), {"w": (4000,)}),
    "heat": (
        LOOP.format("", "  for i in 0..500 { x[1..n - 1] += 0.1 * (x[2..] - 2.0 * x[1..n - 1] + x[0..n - 2])^3 }"),
        {"w": (2000,)},
    ),
    "two_loops": (
        LOOP.format(
            "", "  for i in 0..200 { x = x + 0.01 * sin(x) }\n  for j in 0..300 { x = 0.99 * x + 0.02 * cos(x) }"
        ),
        {"w": (3000,)},
    ),
    "nested": (LOOP.format("", "  for i in 0..20 { for j in 0..20 { x = x + 0.02 * tanh(x) } }"), {"w": (3000,)}),
    "recurrent": (
        "fn f(w: f32[n, n], xs: f32[t, b, n]) -> f32 {\n  var h = zeros(b, n)\n  for x in xs {\n"
        "    let z = sigmoid(x @ w + h @ w)\n    h = z * h + (1.0 - z) * tanh(x + h)\n  }\n  sum(h * h)\n}",
        {"w": (32, 32), "xs": (100, 16, 32)},
    ),
    "ode": (
        "fn g(w: f32[n, n], x: f32[b, n]) -> f32[b, n] = tanh(x @ w)\nfn f(w: f32[n, n], x0: f32[b, n]) -> f32 {\n"
        "  var x = x0\n  for i in 0..100 {\n    let k = g(w, x)\n    x = x + 0.05 * (k + g(w, x + 0.05 * k))\n  }\n"
        "  sum(x * x)\n}",
        {"w": (32, 32), "x0": (64, 32)},
    ),
    "straight": (
        "fn f(w: f32[n, n], x: f32[b, n]) -> f32 {\n  let h = tanh(tanh(x @ w) @ w)\n  sum(h * h)\n}",
        {"w": (64, 64), "x": (256, 64)},
    ),
    "membrane": (
        "fn f(w: f32[n, n]) -> f32 {\n  var u = w\n  var v = 0.1 * w\n  for i in 0..120 {\n"
        "    v[1..n - 1, 1..n - 1] += 0.1 * (u[2.., 1..n - 1] + u[0..n - 2, 1..n - 1] - 2.0 * u[1..n - 1, 1..n - 1])\n"
        "    u = u + 0.1 * v - 0.01 * sin(u)\n  }\n  sum(u * u)\n}",
        {"w": (64, 64)},
    ),
    "stacked": (
        "fn f(w: f32[l, n, n], x: f32[b, n]) -> f32 {\n  var h = x\n"
        "  for v in w { h = h + gelu(tanh(h @ v) @ transpose(v)) * 0.5 }\n  sum(h * h)\n}",
        {"w": (32, 64, 64), "x": (256, 64)},
    ),
    "images": (
        "fn f(w: f32[3, 3, c, c], x: f32[b, n, n, c]) -> f32 {\n"
        + "  let h1 = tanh(conv2d(x, w))\n  let h2 = tanh(conv2d(h1, w))\n  let h3 = tanh(conv2d(h2, w))\n"
        + "  let h4 = tanh(conv2d(h3, w))\n  let h5 = tanh(conv2d(h4, w))\n  let h6 = tanh(conv2d(h5, w))\n"
        + "  sum(h6 * h6)\n}",
        {"w": (3, 3, 8, 8), "x": (4, 32, 32, 8)},
    ),
    "layers": (
        "fn f(w: f32[n, n], x: f32[b, n]) -> f32 {\n  var h = x\n"
        + "  h = tanh(h @ w) + 0.5 * h\n" * 24
        + "  sum(h * h)\n}",
        {"w": (64, 64), "x": (256, 64)},
    ),
    "transformer": (transformer(24), shapes_of_transformer(24, width=64, length=64, batch=8)),
}
HEADER = ("program", "limit", "", "predicted", "XLA", "off", "over no limit", "apart")


def rows(name: str, rounds: int) -> list[tuple[str, ...]]:
    source, shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    given = [jax.device_put(0.1 * rng.normal(size=shape).astype(np.float32)) for shape in shapes.values()]
    free: Any = difflang.loads(source, name=name).f.grad(*[w for w in shapes if w.startswith(WEIGHTS)])
    graph = free._elaborate(tuple([f"f32[{', '.join(map(str, s))}]" for s in shapes.values()]), {}).graph
    _, whole = compile_within_limit(graph, 0, INITIAL_CAPACITY, compile_graph)
    found: list[tuple[str, ...]] = []
    for part in PARTS:
        limit = int(whole.memory_bytes * part)
        head = name, format_bytes(limit), f"{part:.0%}"
        try:
            plan, made = compile_within_limit(graph, limit, INITIAL_CAPACITY, compile_graph)
        except difflang.DifflangError as error:
            found.append((*head, "refused", error.diagnostics[0].helps[0].rpartition(" is ")[2], "", "", ""))
            continue
        exact, limited = np.asarray(whole(*given)[0]), np.asarray(made(*given)[0])
        apart = float(np.max(np.abs(limited - exact)) / np.max(np.abs(exact)))
        seconds = interleaved({"limited": waiting(made, *given), "free": waiting(whole, *given)}, rounds, 0.0)
        plan = with_kernel_order(plan, sparing=made.low_memory)
        off = f"{plan.account.peak / made.memory_bytes - 1:+.1%}{' *' * made.low_memory}"
        over = str(ratio(seconds["limited"], seconds["free"]))
        found.append(
            (*head, format_bytes(plan.account.peak), format_bytes(made.memory_bytes), off, over, f"{apart:.0e}")
        )
    return found


def table(names: list[str], rounds: int) -> str:
    """The rows of these programs, or of all."""
    return "\n".join(lines([HEADER, *[row for name in names or PROGRAMS for row in rows(name, rounds)]]))
