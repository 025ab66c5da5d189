"""Loops of known length that keep what every step needs: their gradient beside JAX's `grad` of a scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np

import difflang
from cases import Case
from gradients.dynamics import heat, n_body
from gradients.networks import Gru, gru
from gradients.shared import draw
from timing import Run, interleaved, ratio

HEADER = ("row", "keeps", "gradient / JAX's", "MB", "JAX's MB", "memory / JAX's")


def large_heat() -> Case:
    k = np.random.default_rng(0).uniform(0.05, 0.2, (100, 100))
    return replace(heat(), arguments=(k, draw(100, 100, seed=1), draw(100, 100, seed=2)))


def many_bodies() -> Case:
    mass = np.abs(draw(300, seed=2)) / 300
    return replace(n_body(), arguments=(draw(300, 3), draw(300, 3, seed=1), mass, draw(300, 3, seed=3)))


def wide_gru() -> Case:
    shapes = ((32, 768, 0.2), (256, 768, 0.05), (256, 32, 0.05))
    wx, wh, out = [draw(m, n, scale=s, seed=i) for i, (m, n, s) in enumerate(shapes)]
    return replace(gru(), arguments=(Gru(wx, wh, draw(768, seed=3), out), draw(64, 32, 32, seed=4)))


COUNTED: dict[str, Callable[[], Case]] = {"heat": large_heat, "n_body": many_bodies, "gru": wide_gru}


def compiled(case: Case) -> dict[str, jax.stages.Compiled]:
    """The gradient of the program and that of its scan, which gives the same to ten digits."""
    ours = difflang.loads(case.source, name=case.name).loss.grad(case.wrt).lower(*case.arguments).compile()
    with jax.enable_x64(True):
        twin = jax.jit(case.differentiated(case.twins["scan1"])).lower(*case.arguments).compile()
    return {"ours": ours, "scan": twin}


def waiting(program: jax.stages.Compiled, arguments: tuple[object, ...]) -> Run:
    return lambda: jax.block_until_ready(program(*arguments))


def measured(name: str, rounds: int) -> tuple[str, ...]:
    case = COUNTED[name]()
    programs = compiled(case)
    with jax.enable_x64(True):
        flat = tuple([jax.device_put(x) for x in jax.tree.leaves(case.arguments)])
        given = jax.tree.unflatten(jax.tree.structure(case.arguments), flat)
        runs = {"ours": waiting(programs["ours"], flat), "scan": waiting(programs["scan"], given)}
        for got, want in zip(*[jax.tree.leaves(run()) for run in runs.values()], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10 * np.abs(want).max())
        seconds = interleaved(runs, rounds, 0.0)
    ours, scan = [p.memory_analysis().temp_size_in_bytes / 1e6 for p in programs.values()]
    over = f"{ratio(seconds['ours'], seconds['scan'])} (at most 1.05)"
    return name, "all", over, f"{ours:.1f}", f"{scan:.1f}", f"{ours / scan:.2f} (at most 0.5)"
