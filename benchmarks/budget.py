"""How limits on memory are kept: `python benchmarks/run.py --table budget [ROW ...]`.

A row is a program and a limit, as a part of what its gradient takes when its loops keep all: what was predicted, what
XLA says, how far these are apart, what the gradient takes over the time that it takes without a limit, and how far the
two are apart; or the smallest limit that can be kept, where it is refused.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import difflang
from difflang.base.amounts import human
from difflang.driver.planning import fitted
from difflang.driver.room import LITTLE
from difflang.runtime.compile import compile
from memory import lines, waiting
from timing import interleaved, ratio

PARTS = (1.0, 0.6, 0.3, 0.15)
LOOP = "fn f(w: f32[n]{}) -> f32 {{\n  var x = w\n{}\n  sum(x * x)\n}}"
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
}
HEADER = ("program", "limit", "", "predicted", "XLA", "off", "over no limit", "apart")


def rows(name: str, rounds: int) -> list[tuple[str, ...]]:
    source, shapes = PROGRAMS[name]
    rng = np.random.default_rng(0)
    given = [jax.device_put(0.1 * rng.normal(size=shape).astype(np.float32)) for shape in shapes.values()]
    free: Any = difflang.loads(source, name=name).f.grad("w")
    graph = free._entry(tuple([f"f32[{', '.join(map(str, s))}]" for s in shapes.values()]), {}).graph
    _, whole = fitted(graph, 0, LITTLE, compile)
    found: list[tuple[str, ...]] = []
    for part in PARTS:
        limit = int(whole.bytes * part)
        head = name, human(limit), f"{part:.0%}"
        try:
            plan, made = fitted(graph, limit, LITTLE, compile)
        except difflang.DifflangError as error:
            found.append((*head, "refused", error.diagnostics[0].helps[0].rpartition(" is ")[2], "", "", ""))
            continue
        exact, limited = np.asarray(whole(*given)[0]), np.asarray(made(*given)[0])
        apart = float(np.max(np.abs(limited - exact)) / np.max(np.abs(exact)))
        seconds = interleaved({"limited": waiting(made, *given), "free": waiting(whole, *given)}, rounds, 0.0)
        off = f"{plan.account.peak / made.bytes - 1:+.1%}"
        over = str(ratio(seconds["limited"], seconds["free"]))
        found.append((*head, human(plan.account.peak), human(made.bytes), off, over, f"{apart:.0e}"))
    return found


def table(names: list[str], rounds: int) -> str:
    """The rows of these programs, or of all."""
    return "\n".join(lines([HEADER, *[row for name in names or PROGRAMS for row in rows(name, rounds)]]))
