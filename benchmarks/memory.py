"""What reverse mode of a loop costs in time and memory: `python benchmarks/run.py --table memory [ROW ...]`.

A row is a loop, how many steps it takes and how many floats it carries; what its gradient takes over what its value
takes; how many steps are taken for each step of the loop before it is differentiated; and how many copies of its
state there is room for, by what XLA says of the program. JAX's scan is told the number of steps, others find it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import difflang
from difflang.ir.tensor_types import F32, Tensor
from difflang.ops.loop.binomial_schedule import (
    choose_dropped,
    choose_dropped_fast,
    min_forward_steps,
    reach_table,
    remaining_forward_steps,
    suffix_sums,
)
from difflang.ops.loop.checkpoint_store import StoreRequest, StoreSize
from timing import Run, interleaved, ratio

WAVE = """
fn wave(w: f32[n], k: i32) -> f32 {
  var x = w
  var i = 0
  STRATEGY
  while i < k {
    x = sin(0.9 * x) + 0.1 * cos(x)
    i += 1
  }
  sum(x)
}
"""
VAN_DER_POL = """
fn slope(x: f64[2]) -> f64[2] = [x[1], 100.0 * (1.0 - x[0] * x[0]) * x[1] - x[0]]
fn oscillator(v: f64[2], end: f64) -> f64 {
  var x = v
  var t = 0.0
  var h = 0.0001
  while t < end {
    let a = slope(x)
    let b = slope(x + h * a)
    let wrong = sqrt(sum((0.5 * h * (b - a)) ^ 2)) / 0.00002
    if wrong <= 1.0 {
      x = x + 0.5 * h * (a + b)
      t = t + h
    }
    h = h * clamp(0.9 / sqrt(wrong + 0.0000000001), 0.2, 5.0)
  }
  sum(x)
}
"""
SLOTS, STEPS = (4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128), 100_000


@dataclass(frozen=True, slots=True)
class Row:
    """A loop of so many steps on so many floats, and what it is asked to keep."""

    steps: int
    floats: int
    way: str  # a strategy, "" for none, or what of JAX
    target: float | None = None  # for steps counted and those of the pullback: see `README.md`
    room: int | None = None  # and for states


ROWS = {
    "few": Row(10_000, 10_000, "revolve, slots = 19", 5.2, 23),
    "more": Row(10_000, 10_000, "revolve, slots = 141", 3.3, 145),
    "default": Row(10_000, 10_000, ""),
    "scan": Row(10_000, 10_000, "JAX scan"),
    "scan_checkpoint": Row(10_000, 10_000, "JAX scan, checkpoint"),
    **{
        f"equinox_{kept}": Row(10_000, 10_000, f"equinox, checkpoints = {kept}")
        for kept in (23, 145)
        if find_spec("equinox") is not None
    },
    "small": Row(10_000, 10, "", 3.5),
    "longer": Row(100_000, 100, ""),
    "longest": Row(1_000_000, 1_000, "revolve, slots = 63", 6.0, 70),
}
HEADER = ("row", "steps", "floats", "way", "gradient / value", "taken", "states")


def waiting(f: Callable[..., Any], *arguments: Any) -> Run:
    return lambda: jax.block_until_ready(f(*arguments))


def scan(steps: int, through: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def step(x: Any, _: None) -> tuple[Any, None]:
        return jnp.sin(0.9 * x) + 0.1 * jnp.cos(x), None

    return lambda w: jnp.sum(jax.lax.scan(through(step), w, None, length=steps)[0])


def unbounded(steps: int, kept: int) -> Callable[[Any], Any]:
    """Equinox's loop, which is not told how many steps there will be either."""
    from equinox.internal import while_loop

    def step(at: Any) -> Any:
        i, x = at
        return i + 1, jnp.sin(0.9 * x) + 0.1 * jnp.cos(x)

    def value(w: Any) -> Any:
        end = while_loop(lambda at: at[0] < steps, step, (0, w), kind="checkpointed", checkpoints=kept)
        return jnp.sum(end[1])

    return value


def ways(row: Row) -> tuple[Run, Run, Any]:
    """The value, its gradient, and the gradient compiled."""
    w = jnp.linspace(0.1, 1.0, row.floats, dtype=jnp.float32)
    if row.way.startswith(("JAX", "equinox")):
        through = jax.checkpoint if "checkpoint" in row.way else lambda step: step
        value = scan(row.steps, through) if row.way.startswith("JAX") else unbounded(row.steps, kept_by(row))
        gradient = jax.jit(jax.grad(value))
        return waiting(jax.jit(value), w), waiting(gradient, w), gradient.lower(w).compile()
    strategy = f"@checkpoint({row.way})" if row.way else ""
    wave = difflang.loads(WAVE.replace("STRATEGY", strategy), name="memory").wave
    k, gradient = jnp.int32(row.steps), wave.grad("w")
    return waiting(wave, w, k), waiting(gradient, w, k), gradient.lower(w, k).compile()


def kept_by(row: Row) -> int:
    return int(row.way.rpartition("= ")[2])


def taken(row: Row) -> float:
    """Steps taken for each step of the loop, as the tests count them; that of the pullback is not among them."""
    if row.way.startswith("JAX"):
        return 1.0
    asked = StoreRequest(slots=kept_by(row) if row.way else 0)
    size = StoreSize.of([Tensor(F32, (row.floats,))], 1, asked)
    if row.steps <= size.store_all_up_to:
        return 1.0
    units = -(-row.steps // size.steps)
    kept = last(online(size.slots, units)) if units > size.slots else np.arange(units, dtype=np.int32)
    back = remaining_forward_steps(np, kept, np.int32(units)) if units >= size.slots else 0
    return (2 * row.steps - units + size.steps * int(back)) / row.steps


def last(items: Iterator[tuple[int, np.ndarray]]) -> np.ndarray:
    *_, (_, kept) = items
    return kept


def online(slots: int, steps: int) -> Iterator[tuple[int, np.ndarray]]:
    """What is kept after each number of steps, from as many as there are slots on."""
    kept, quick, place = np.arange(slots, dtype=np.int32), reach_table(slots)[slots, 2] - 1, 1
    for end in range(slots, steps + 1):
        yield end, kept
        more, then = np.append(kept, np.int32(end)), np.int32(end + 1)
        if then < quick:
            place = int(choose_dropped_fast(np, more[place + 1] - more[place - 1], place, slots))
        else:
            place = int(choose_dropped(np, more, then, suffix_sums))
        kept = np.delete(more, place)


def measured(name: str, row: Row, rounds: int) -> tuple[str, ...]:
    value, gradient, program = ways(row)
    runs = {"value": value, "gradient": gradient}
    seconds = interleaved(runs, rounds, 0.0)
    states = program.memory_analysis().temp_size_in_bytes / (4 * row.floats)
    room = f"{states:,.0f}" + (f" (at most {row.room})" if row.room else "")
    over = f"{ratio(seconds['gradient'], seconds['value'])}" + (f" (at most {row.target:g})" if row.target else "")
    steps = "-" if row.way.startswith("equinox") else f"{taken(row):.3f}"
    return name, f"{row.steps:,}", f"{row.floats:,}", row.way or "as usual", over, steps, room


def oscillator(rounds: int) -> tuple[str, ...]:
    """Adaptive steps of van der Pol's oscillator."""
    of: Any = difflang.loads(VAN_DER_POL, name="oscillator").oscillator
    v, end = np.array([2.0, 0.0]), 150.0
    runs = {"value": waiting(of, v, end), "gradient": waiting(of.grad("v"), v, end)}
    seconds = interleaved(runs, rounds, 0.0)
    return "adaptive", "-", "4", "as usual", f"{ratio(seconds['gradient'], seconds['value'])} (at most 6)", "-", "-"


def excess(slots: int, steps: int) -> list[float]:
    """How many more steps are taken than where the length is known, over lengths from 50 to so many."""
    wanted = {*range(50, min(2_000, steps), 7), *map(int, np.geomspace(2_000, steps, 300) if steps > 2_000 else ())}
    row, found = reach_table(slots)[slots], list[float]()
    for end, kept in online(slots + 1, steps):
        if end in wanted:
            least = int(min_forward_steps(np, np.int32(end), row))
            found.append((end - 1 + int(remaining_forward_steps(np, kept, np.int32(end)))) / least - 1)
    return found


def schedule() -> Iterator[tuple[str, ...]]:
    """At worst, and on average over all lengths."""
    for slots in SLOTS:
        found = excess(slots, STEPS)
        yield f"{slots}", f"{max(found):+.2%}", f"{np.mean(found):+.2%}"


def lines(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def table(names: list[str], rounds: int) -> str:
    """The rows of these names, or all and what the schedule takes beyond the optimum."""
    rows = [HEADER, *[measured(name, ROWS[name], rounds) for name in names or ROWS if name in ROWS]]
    if not names or "adaptive" in names:
        rows.append(oscillator(rounds))
    found = list(lines(rows)) if len(rows) > 1 else []
    if not names or "schedule" in names:
        found += ["", *lines([("slots", "worst", "mean"), *schedule()])]
    return "\n".join(found)
