"""What a call costs beside the program it runs: functions that compute next to nothing, and arrays of a million."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cases import Case, Twin, normal

SOURCE = """
record Line { slope: f32, start: f32 }
fn scalar(x: f32) -> f32 = sin(x) * x
fn line(m: Line, x: f32) -> f32 = m.slope * x + m.start
fn lookup(x: f32[n], i: i32) -> f32 = x[i] * x[i]
fn looked_up(m: Line, x: f32[n], i: i32) -> f32 = m.slope * x[i] + m.start
fn million(x: f32[n]) -> f32[n] = sin(x) * x + 1
fn total(x: f32[n]) -> f32 = sum(sin(x) * x)
"""
PROVED, READ, ARRAYS = 2.0, 4.0, 1.05  # where no check is left, where the word of a failure is read, for long arrays
MILLION = normal(1_000_000)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Line:
    slope: Any
    start: Any


def case(name: str, entry: str, wrt: str, arguments: tuple[Any, ...], twin: Twin, target: float, **more: Any) -> Case:
    return Case(name, SOURCE, entry, wrt, arguments, {"plain": twin}, target=target, **more)


def scalar(x: Any) -> Any:
    return jnp.sin(x) * x


X, ROW, LINE = np.float32(0.7), normal(8), Line(np.float32(2), np.float32(1))
CALLS: dict[str, Callable[[], Case]] = {
    "scalar": lambda: case("scalar", "scalar", "x", (X,), scalar, PROVED),
    "from_python": lambda: case("from_python", "scalar", "x", (0.7,), scalar, PROVED, on_device=False),
    "from_numpy": lambda: case("from_numpy", "scalar", "x", (X,), scalar, PROVED, on_device=False),
    "record": lambda: case("record", "line", "m", (LINE, X), lambda m, x: m.slope * x + m.start, PROVED),
    "checked": lambda: case("checked", "lookup", "x", (ROW, np.int32(3)), lambda x, i: x[i] * x[i], READ),
    "checked_record": lambda: case(
        "checked_record", "looked_up", "m", (LINE, ROW, np.int32(3)), lambda m, x, i: m.slope * x[i] + m.start, READ
    ),
    "million": lambda: case("million", "million", "", (MILLION,), lambda x: jnp.sin(x) * x + 1, ARRAYS),
    "million_summed": lambda: case("million_summed", "total", "x", (MILLION,), lambda x: scalar(x).sum(), ARRAYS),
}
