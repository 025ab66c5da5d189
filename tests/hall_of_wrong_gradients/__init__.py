"""Wrong gradients that others met: public reports, rewritten as programs of ours, with references of their own.

A reference is never a derivative that somebody programmed: it is a central difference of a plain Python twin in 70
digits, or a closed form where the point is one at which differences say nothing (a kink, a tie, a singularity).
Numbers of reports are cited only where the report was read; the programs, twins and sentences are ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

import difflang

DIGITS, STEP = 70, "1e-20"
"""A first difference is right to about 40 digits, a second one to about 30."""
ENGINES = ["compiled", "interpreted"]


@dataclass(frozen=True, eq=False)
class Entry:
    """A program with a function `f`, which is differentiated in its first parameter."""

    name: str
    report: str
    what: str
    source: str
    arguments: tuple[Any, ...]
    twin: Callable[..., Any] | None = None
    gradient: Any = None
    hessian: Any = None

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def f(self) -> Any:
        module: Any = difflang.loads("float f64\n" + self.source, name=self.name)
        return module.f

    @property
    def point(self) -> np.ndarray:
        return np.asarray(self.arguments[0], float)

    @property
    def direction(self) -> np.ndarray:
        """Every element moves, and no two alike."""
        return (1.0 + np.arange(self.point.size)).reshape(self.point.shape)

    def twin_at(self, *moves: np.ndarray) -> Any:
        """The twin where the first argument has moved by so many steps in each of these directions."""
        assert self.twin is not None
        flat = [mp.mpf(float(x)) for x in self.point.ravel()]
        for move in moves:
            flat = [x + mp.mpf(float(d)) * mp.mpf(STEP) for x, d in zip(flat, move.ravel(), strict=True)]
        first = np.array(flat, object).reshape(self.point.shape) if self.point.ndim else flat[0]
        rest = [np.array(a.tolist(), object) if isinstance(a, np.ndarray) else a for a in self.arguments[1:]]
        return self.twin(first, *rest)

    def units(self) -> np.ndarray:
        return np.eye(self.point.size).reshape(-1, *self.point.shape)

    def reference(self) -> np.ndarray:
        if self.twin is None:
            return np.asarray(self.gradient, float)
        with mp.workdps(DIGITS):
            h = mp.mpf(STEP)
            parts = [(self.twin_at(u) - self.twin_at(-u)) / (2 * h) for u in self.units()]
            return np.array([float(p) for p in parts]).reshape(self.point.shape)

    def second_reference(self) -> np.ndarray:
        v = self.direction
        if self.twin is None:
            return (np.asarray(self.hessian, float) @ v.ravel()).reshape(v.shape)
        with mp.workdps(DIGITS):
            h = mp.mpf(STEP)
            at = self.twin_at
            parts = [(at(u, v) - at(u, -v) - at(-u, v) + at(-u, -v)) / (4 * h * h) for u in self.units()]
            return np.array([float(p) for p in parts]).reshape(v.shape)


def run(f: Any, engine: str, *arguments: Any) -> Any:
    return f(*arguments) if engine == "compiled" else f.interpret(*arguments)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)


def check_gradient(entry: Entry, engine: str) -> None:
    close(run(entry.f.grad(), engine, *entry.arguments), entry.reference())


def check_forward(entry: Entry, engine: str) -> None:
    value, change = run(entry.f.jvp(), engine, *entry.arguments, entry.direction)
    close(change, np.sum(entry.reference() * entry.direction))
    if entry.twin is not None:
        with mp.workdps(DIGITS):
            close(value, float(entry.twin_at()))


def check_second(entry: Entry, engine: str) -> None:
    close(run(entry.f.hvp(), engine, *entry.arguments, entry.direction), entry.second_reference())
