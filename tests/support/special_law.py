"""Value, first and second derivatives of special functions against mpmath, over logarithmic grids of every argument.

A result may be off by `ALLOWED` units in the last place, beyond what a rounding of the arguments does to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

import difflang

ALLOWED = 16
DIGITS = 60
Exact = Callable[..., Any]
Point = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Law:
    """A call with arguments by these names, what it is, and where; `by` are the arguments with a derivative."""

    call: str
    args: str
    exact: Exact
    grid: Sequence[Sequence[float]]
    by: str | None = None
    bounds: tuple[tuple[str, float], ...] = ()  # derivatives for which a page states another bound

    def orders(self) -> list[tuple[str, ...]]:
        by = (self.args if self.by is None else self.by).split()
        return [(), *((a,) for a in by), *combinations_with_replacement(by, 2)]

    def points(self, kind: Any, thin: bool) -> list[tuple[float, ...]]:
        grid = [axis[:: max(1, len(axis) // 3)] for axis in self.grid] if thin else self.grid
        sized = [[v for v in axis if v == 0 or 0 < abs(float(kind(v))) < np.inf] for axis in grid]
        return [tuple(float(kind(v)) for v in point) for point in product(*sized)]


def program(law: Law, dtype: str) -> str:
    """Functions of vectors: `value`, `in_x` by reverse mode, `in_x_y` by forward mode over reverse mode."""
    args = law.args.split()
    params = lambda kind: ", ".join(f"{a}: {kind}" for a in args)
    vector, passed = f"{dtype}[n]", ", ".join(args)
    lines = ["float f64"] if dtype == "f64" else []
    for module in ("hypergeometric", "integrals", "math", "special", "stats"):
        used = [name for name in exports(module) if re.search(rf"\b{name}\(", law.call)]
        lines += [f"import {module} ({', '.join(used)})"] if used else []
    at = ", ".join(f"{a}[i]" for a in args)
    lines += [f"fn one({params(dtype)}) -> {dtype} = {law.call}"]
    lines += [f"fn value({params(vector)}) -> {vector} = [for i => one({at})]"]
    lines += [f"fn total({params(vector)}) -> {dtype} = sum(value({passed}))"]
    for order in law.orders()[1:]:
        if len(order) == 1:
            lines += [f"fn in_{order[0]}({params(vector)}) -> {vector} = grad[{order[0]}](total)({passed})"]
            continue
        first, second = order
        moved = ", ".join("t" if a == second else a for a in args)
        lines += [f"fn in_{first}_{second}({params(vector)}) -> {vector} {{"]
        lines += [f"  let (_, d) = jvp(|t: {vector}| in_{first}({moved}))({second}, ones_like({second}))", "  d", "}"]
    return "\n".join(lines) + "\n"


def exports(module: str) -> list[str]:
    """The public functions of a module, and the variants of its enums."""
    text = (Path(difflang.__file__).parents[1] / "stdlib" / f"{module}.dfl").read_text(encoding="utf-8")
    variants = re.search(r"^pub enum .*?^}", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^pub fn (\w+)", text, re.MULTILINE)
    return names + (re.findall(r"^  (\w+)\(", variants[0], re.MULTILINE) if variants else [])


def derivative(f: Exact, point: Point, axes: Sequence[int]) -> Any:
    """By central differences, with so many digits that they have more than enough."""
    if not axes:
        return mp.re(f(*point))
    steps = [(abs(p) if p else mp.mpf(1)) * mp.mpf(10) ** (-DIGITS // 4) for p in point]
    moved = lambda *signs: [
        p + sum(sign * steps[i] for sign, a in zip(signs, axes, strict=True) if a == i) for i, p in enumerate(point)
    ]
    with mp.workdps(DIGITS * 2 * (len(axes) + 1)):
        signs = list(product((1, -1), repeat=len(axes)))
        total = sum(np.prod(s) * mp.re(f(*moved(*s))) for s in signs)
        return total / np.prod([2 * steps[a] for a in axes])


def excess(law: Law, order: tuple[str, ...], points: Sequence[tuple[float, ...]], got: Any, kind: Any) -> list[float]:
    """By how many units in the last place each result is off, beyond a rounding of each argument."""
    eps, least, most = (float(v) for v in (np.finfo(kind).eps, np.finfo(kind).tiny, np.finfo(kind).max))
    least = least / eps  # what is smaller may be made of numbers that underflow
    axes = [law.args.split().index(a) for a in order]
    found: list[float] = []
    for point, result in zip(points, np.asarray(got, np.float64), strict=True):
        with mp.workdps(DIGITS):
            at = tuple(map(mp.mpf, point))
            want = derivative(law.exact, at, axes)
            beside = [tuple(p * (1 + mp.mpf(eps)) if i == j else p for j, p in enumerate(at)) for i in range(len(at))]
            cost = max(abs(derivative(law.exact, b, axes) - want) for b in beside)
            if not np.isfinite(result):
                found.append(0.0 if abs(want) > 0.99 * most else np.inf)
                continue
            off = abs(mp.mpf(float(result)) - want) - cost - least
            found.append(float(max(off, 0) / (max(abs(want), least) * eps)))
    return found


def broken(law: Law, dtype: str, *, thin: bool = False) -> list[str]:
    """What breaks the law: the derivative, its error in units in the last place, and where."""
    kind = {"f64": np.float64, "f32": np.float32}[dtype]
    points = law.points(kind, thin)
    columns = [np.array(column, kind) for column in zip(*points, strict=True)]
    module, bounds = difflang.loads(program(law, dtype)), dict(law.bounds)
    found: list[str] = []
    for order in law.orders():
        name = "_".join(("in", *order)) if order else "value"
        errors = excess(law, order, points, getattr(module, name)(*columns), kind)
        allowed = bounds.get(name, ALLOWED)
        found += [f"{name}{p}: {e:.3g} ulp" for p, e in zip(points, errors, strict=True) if e > allowed]
    return found
