"""Loops of known length beside JAX's `grad` of a scan: as they are, and in half the memory that JAX takes.

A row is a program: the time of its gradient over JAX's and what it keeps over what JAX keeps, and the same under a
limit of half of that, or the smallest limit that can be kept, where it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import difflang
from budget import PROGRAMS
from cases import Case, Twin, normal
from difflang.lower.capacity import INITIAL_CAPACITY
from difflang.plan.compile_within_limit import compile_within_limit
from difflang.runtime.compile import Executable, compile_graph
from gradients.dynamics import heat, n_body, neural_ode
from gradients.inference import hidden_markov, kalman
from gradients.networks import Gru, gru
from gradients.shared import draw, scans
from memory import lines
from timing import Run, interleaved, ratio

HEADER = ("program", "all kept: time / JAX's", "MB", "JAX's MB", "/ JAX's", "half of JAX's: time / JAX's", "MB")


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


def of_limits(name: str, loss: Twin) -> Callable[[], Case]:
    """A program of the table of limits, with a twin whose first argument is how to scan."""

    def case() -> Case:
        source, shapes = PROGRAMS[name]
        given = tuple([normal(*shape, scale=0.1, seed=i) for i, shape in enumerate(shapes.values())])
        return Case(name, source, "f", "w", given, scans(loss))

    return case


def wave(scan: Any, w: jax.Array) -> jax.Array:
    x, _ = scan(lambda x, _: (x + 0.02 * jnp.sin(3.0 * x), None), w, None, 400)
    return jnp.sum(x * x)


def ode(scan: Any, w: jax.Array, x0: jax.Array) -> jax.Array:
    def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        k = jnp.tanh(x @ w)
        return x + 0.05 * (k + jnp.tanh((x + 0.05 * k) @ w)), None

    x, _ = scan(step, x0, None, 100)
    return jnp.sum(x * x)


def stacked(scan: Any, w: jax.Array, x: jax.Array) -> jax.Array:
    def step(h: jax.Array, v: jax.Array) -> tuple[jax.Array, None]:
        return h + jax.nn.gelu(jnp.tanh(h @ v) @ v.T, approximate=False) * 0.5, None

    h, _ = scan(step, x, w)
    return jnp.sum(h * h)


def recurrent(scan: Any, w: jax.Array, xs: jax.Array) -> jax.Array:
    def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        z = jax.nn.sigmoid(x @ w + h @ w)
        return z * h + (1.0 - z) * jnp.tanh(x + h), None

    h, _ = scan(step, jnp.zeros(xs.shape[1:], xs.dtype), xs)
    return jnp.sum(h * h)


COUNTED: dict[str, Callable[[], Case]] = {
    "heat": large_heat,
    "n_body": many_bodies,
    "gru": wide_gru,
    "neural_ode": neural_ode,
    "kalman": kalman,
    "hidden_markov": hidden_markov,
    **{loss.__name__: of_limits(loss.__name__, loss) for loss in (wave, ode, stacked, recurrent)},
}


def waiting(program: Callable[..., Any], arguments: Sequence[object]) -> Run:
    return lambda: jax.block_until_ready(program(*arguments))


def between(program: Executable) -> int:
    """Bytes that it takes beside its arguments and results."""
    program.build()
    return int(program.xla_executable.memory_analysis().temp_size_in_bytes)


def measured(name: str, rounds: int) -> tuple[str, ...]:
    case = COUNTED[name]()
    free: Any = getattr(difflang.loads(case.source, name=case.name), case.entry).grad(case.wrt)
    graph = free._elaborate(case.arguments, {}).graph
    _, whole = compile_within_limit(graph, 0, INITIAL_CAPACITY, compile_graph)
    flat = [jax.device_put(x) for x in jax.tree.leaves(case.arguments)]
    given = jax.tree.unflatten(jax.tree.structure(case.arguments), flat)
    scan = jax.jit(case.differentiated(case.twins["scan1"])).lower(*given).compile()
    theirs = int(scan.memory_analysis().temp_size_in_bytes)
    runs = {"all": waiting(whole, flat), "scan": waiting(scan, given)}
    try:
        _, half = compile_within_limit(
            graph, whole.memory_bytes - between(whole) + theirs // 2, INITIAL_CAPACITY, compile_graph
        )
        runs["half"] = waiting(half, flat)
        room = f"{between(half) / 1e6:.2f}"
    except difflang.DifflangError as error:
        room = "refused, least " + error.diagnostics[0].helps[0].rpartition(" is ")[2]
    agree(runs, case)
    seconds = interleaved(runs, rounds, 0.0)
    over = {way: f"{ratio(seconds[way], seconds['scan'])}" for way in runs}
    sizes = f"{between(whole) / 1e6:.2f}", f"{theirs / 1e6:.2f}", f"{between(whole) / theirs:.2f}"
    return name, over["all"], *sizes, over.get("half", ""), room


def agree(runs: dict[str, Run], case: Case) -> None:
    """All ways give the scan's gradient, to ten digits in f64 and to four in f32."""
    exact = jax.tree.leaves(runs["scan"]())
    far = 1e-10 if all(x.dtype == np.float64 for x in exact) else 1e-4
    for name, run in runs.items():
        for got, want in zip(jax.tree.leaves(run()), exact, strict=False):  # ours may give the word of a failure too
            np.testing.assert_allclose(got, want, rtol=0, atol=far * np.abs(want).max(), err_msg=f"{case.name} {name}")


def table(names: list[str], rounds: int) -> str:
    """The rows of these programs, or of all."""
    return "\n".join(lines([HEADER, *[measured(name, rounds) for name in names or COUNTED]]))
