"""Windows of arrays that are split over devices: whole arrays that are shifted give the same numbers."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np
import pytest

import difflang
from difflang.ir.graph import Graph, graphs_postorder
from difflang.ir.interpreter import evaluate
from difflang.ops.arrays.gather_scatter import dynamic_slice, dynamic_update
from difflang.ops.arrays.shape_manipulation import slice_
from difflang.ops.arrays.shift import shift
from difflang.sharding.mesh_splits import MeshSplits
from difflang.sharding.windows.windows_to_shifts import windows_to_shifts
from support.nightly import by_day

N = 16
MESH = {"data": 4, "model": 2}
ROD, SHEET = (("data",),), (("data",), ("model",))
RNG = np.random.default_rng(5)
X, Y, T = RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=(N, 8))


def finished(source: str, wrt: str | None) -> Graph:
    f: Any = difflang.loads(source).f
    f = f if wrt is None else f.grad(wrt)
    return f.lower(X, Y, T).graph


def check(source: str, wrt: str | None = None) -> Graph:
    """The graph with shifts gives the numbers of the one without."""
    graph = finished(source, wrt)
    found = windows_to_shifts(graph, [ROD, ROD, SHEET], MESH)
    want, got = evaluate(graph, X, Y, T), evaluate(found, X, Y, T)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-13)
    for eqn in [e for g in graphs_postorder(found)[0] for e in g.eqns if e.op is shift]:
        type: Any = eqn.results[0].type
        split: Any = eqn.attrs["split"]
        assert not any(n % prod([MESH[a] for a in along]) for n, along in zip(type.shape, split, strict=True)), eqn
    return found


def function(*lines: str) -> str:
    return "float f64\nfn f(x: f64[16], y: f64[16], t: f64[16, 8]) -> f64 {\n  " + "\n  ".join(lines) + "\n}\n"


STENCILS = {
    "interior": ("var u = x", "for _ in 0..3 { u[1..15] += 0.1 * (u[2..] - 2.0 * u[1..15] + u[..14]) }", "sum(u * y)"),
    "padded": (
        "var u = x",
        "for _ in 0..3 { let p = pad(u, 1, 1)\n u = 0.3 * (p[2..] + p[1..17] + p[..16]) }",
        "sum(u * y)",
    ),
    "periodic": ("var u = x", "for _ in 0..3 { u = u + 0.1 * (roll(u, 1) - 2.0 * u + roll(u, -1)) }", "sum(u * y)"),
    "ends": ("let d = x[1..] - x[..15]", "let u = concat(x[..1], d * d)", "sum(u * y)"),
    "sheet": (
        "var u = t",
        "for _ in 0..2 { u[1..15, 1..7] += 0.1 * (u[2.., 1..7] + u[..14, 1..7] + u[1..15, 2..] + u[1..15, ..6]) }",
        "sum(u * t) + x[3]",
    ),
    "product": ("dot(x[1..15] * y[2..], exp(y[..14]))",),
    "far": ("sum(x[9..] * y[..7])",),
    "largest": ("max(x[1..] * y[..15]) + sum(y[3..9])",),
    "branch": ("let u = if x[0] > 0.0 { x[1..15] * y[2..] } else { y[1..15] }", "sum(u * x[..14])"),
    "ghost cells": (
        "var p = pad(x, 1, 1)",
        "p[0] = 5.0",
        "p[17] *= 3.0",
        "p[16..] += 0.25",
        "sum((p[2..] - 2.0 * p[1..17] + p[..16]) * y)",
    ),
    "ghost read": ("let p = pad(x, 2, 2, 0.5)", "p[0] * p[19] + sum(p[18..]) + sum(roll(p, 2)[..16] * y)"),
    "ghost window": ("var p = pad(x, 2, 2, 0.5)", "p[..6] = pad(y, 2, 2, 0.25)[..6]", "sum(p[..16] * y)"),
    "one row": ("let w = t[3..4] @ t[1..9]", "sum(w * w) + dot(x[3..4], y[5..6]) + sum(x[2..3, newaxis] @ t[8..9])",),
    "cut twice": (
        "let u = pad(t[.., 1..7] * t[.., ..6], (1, 0), (2, 0), 0.0)",
        "sum(u[2.., 1..] * u[..17, ..5])",
    ),
    "padded for branches": (
        "let p = pad(x, 1, 2, x[0])",
        "sum(if y[0] > 0.0 { p[1..] * p[..18] } else { p[..18] - p[1..] })",
    ),
    "kept": ("let u = x[1..15] * y[2..]", "var s = 0.0", "for i in 0..3 { s += sum(u * x[i]) }", "s"),
}  # fmt: skip


@pytest.mark.parametrize("wrt", [None, "x", "t"])
@pytest.mark.parametrize("name", STENCILS)
def test_stencils(name: str, wrt: str | None) -> None:
    check(function(*STENCILS[name]), wrt)


def test_a_result_is_the_window() -> None:
    """Also where nothing says how it is split, as in a vector-Jacobian product."""
    source = function("x[1..15] * y[2..]").replace("-> f64 {", "-> f64[14] {")
    check(source)


@pytest.mark.parametrize("wrt", [None, "x"])
@pytest.mark.parametrize("name", ["interior", "padded", "periodic"])
def test_no_window_of_a_stencil_is_left_and_only_cells_are_sent(name: str, wrt: str | None) -> None:
    found = check(function(*STENCILS[name]), wrt)
    eqns: Any = [e for g in graphs_postorder(found)[0] for e in g.eqns]
    assert not [
        e for e in eqns if e.op in (slice_, dynamic_slice, dynamic_update) and len(e.results[0].type.shape) == 1
    ]
    splits = MeshSplits(MESH)
    splits.of_graph(found, [ROD, ROD, SHEET])
    sent = [(m.kind, m.type.bytes) for m in splits.moves]
    assert set(sent) == {("collective-permute", 8), ("all-reduce", 8)} if wrt is None else {("collective-permute", 8)}


def random_lines(rng: random.Random) -> list[str]:
    """Windows, paddings, updates and sums of two arrays of 16 numbers, in and out of loops and branches."""
    lines: list[str] = []
    whole, parts = ["x", "y"], list[tuple[str, int]]()

    def window(size: int) -> str:
        fitting = [(v, 16) for v in whole] + [p for p in parts if p[1] >= size]
        name, n = rng.choice(fitting)
        at = rng.randint(0, n - size)
        return f"{name}[{at}..{at + size}]" if n != size else name

    def combined(size: int) -> str:
        a, b, c = window(size), window(size), window(size)
        forms = ["{a} * {b} - {c}", "sin({a}) + {b}", "where({a} > {b}, {c}, 0.5)", "2.0 * {a}", "{a} / (2.0 + {b}^2)"]
        return rng.choice(forms).format(a=a, b=b, c=c)

    for i in range(rng.randint(3, 7)):
        size = rng.choice([16, 15, 14, 14, 13, 9, 3, 1])
        match rng.randrange(7):
            case 0 | 1:
                lines.append(f"let v{i} = {combined(size)}")
                parts.append((f"v{i}", size))
            case 2:
                low = rng.randint(0, 16 - size)
                lines.append(f"let v{i} = pad({combined(size)}, {low}, {16 - size - low})")
                whole.append(f"v{i}")
            case 3:
                lines.append(f"var v{i} = {rng.choice(whole)}")
                at = rng.randint(0, 16 - size)
                lines.append(f"v{i}[{at}..{at + size}] {rng.choice(['+=', '='])} {combined(size)}")
                whole.append(f"v{i}")
            case 4:
                cut = rng.randint(1, 15)
                lines.append(f"let v{i} = concat({combined(cut)}, {combined(16 - cut)})")
                whole.append(f"v{i}")
            case 5:
                lines.append(f"var v{i} = {rng.choice(whole)}")
                at = rng.randint(0, 16 - size)
                a, b = (rng.randint(0, 16 - size) for _ in range(2))
                first, second = (f"v{i}[{start}..{start + size}]" for start in (a, b))
                lines.append(
                    f"for _ in 0..2 {{ v{i}[{at}..{at + size}] += 0.1 * ({first} - {window(size)} * {second}) }}"
                )
                whole.append(f"v{i}")
            case _:
                low, high = rng.randint(0, 2), rng.randint(0, 2)
                lines.append(f"let p{i} = pad({rng.choice(whole)}, {low}, {high}, 1.5)")
                a, b = (rng.randint(0, low + high) for _ in range(2))
                lines.append(f"let v{i} = p{i}[{a}..{a + 16}] * p{i}[{b}..{b + 16}]")
                whole.append(f"v{i}")
    total = rng.choice([f"sum({combined(14)})", f"dot({window(13)}, {combined(13)})", f"max({combined(9)})"])
    lines.append(f"{total} + sum({rng.choice(whole)} * y)")
    return lines


@pytest.mark.parametrize("seed", range(by_day(20, 300)))
def test_random_windows(seed: int) -> None:
    source = function(*random_lines(random.Random(seed)))
    for wrt in (None, "x"):
        check(source, wrt)
