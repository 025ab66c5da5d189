"""The examples that have a twin, loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import difflang
from twins import EXAMPLES, source


def entry(name: str, swap: tuple[str, str]) -> Any:
    """The function of an example that its twin's `loss` is, in another float dtype."""
    program = difflang.loads(source(name, swap=swap), name=name, paths=[EXAMPLES])
    return getattr(program, getattr(import_module(f"twins.{name}"), "ENTRY", "loss"))


TRAINING = {
    "char_transformer": """
fn start() -> Model[28, 32, 4, 8, 64, 2] = init(28, 32, 4, 2)
fn first(m: Model[c, d, h, k, f, l]) -> Moments[D(Model[c, d, h, k, f, l])] = moments(m)
fn trained(
  m: Model[c, d, h, k, f, l], seen: Moments[D(Model[c, d, h, k, f, l])], text: i32[b, n + 1], rate: f32
) -> (f32, Model[c, d, h, k, f, l], Moments[D(Model[c, d, h, k, f, l])]) {
  let (value, slope) = value_and_grad(loss)(m, text)
  let (next, now) = adam(m, slope, seen, rate = rate)
  (value, next, now)
}
""",
    "neural_ode": """
fn start() -> Flow[32] = init(32)
fn first(m: Flow[h]) -> Moments[D(Flow[h])] = moments(m)
fn trained(
  m: Flow[h], seen: Moments[D(Flow[h])], pieces: f32[b, n, 2], rate: f32, step: f32
) -> (f32, Flow[h], Moments[D(Flow[h])]) {
  let (value, slope) = value_and_grad(loss)(m, pieces, step)
  let (next, now) = adam(m, slope, seen, rate = rate)
  (value, next, now)
}
""",
}


def training(name: str) -> Any:
    """An example's training, step by step: it has `start()`, `first(m)` and `trained(m, seen, batch, rate, …)`."""
    declared = source(name).replace("import optim (adam,", "import optim (Moments, adam,")
    return difflang.loads(declared + TRAINING[name], name=name, paths=[EXAMPLES])
