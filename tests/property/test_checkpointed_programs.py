"""Random programs with loops give the same derivatives whatever is kept for them: to second order, and lane by lane.

DIFFLANG_FUZZ says how many: one for each 25 of it is compiled twice, one for each 5 interpreted. DIFFLANG_SEED fixes
which.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import difflang
from difflang.ops.loop import checkpoint_store
from support.random_programs import HEADER, random_program
from support.seeds import COUNT, SEED

STRATEGIES = ("revolve, slots = 1", "revolve, slots = 2", "every, steps = 2", "full, cap = 2", "blocks")
FIRST = 30_000  # from there on the first few are done in seconds
SEEDS = [SEED * 10_000 + FIRST + i for i in range(max(len(STRATEGIES), COUNT // 25))]
OTHERS = [SEED * 10_000 + 2 * FIRST + i for i in range(max(2 * len(STRATEGIES), COUNT // 5))]
DERIVATIVES = """
fn slope(x: f64, y: f64, k: i32) -> f64 = grad(|x| f(x, y, 0.4, k))(x)
fn derivatives(x: f64, y: f64, k: i32) -> (f64, f64, f64) {
  let (first, second) = jvp(|x| slope(x, y, k))(x, 1.0)
  (first, second, grad(|y| slope(x, y, k))(y))
}
fn lanes(x: f64[m], y: f64, ks: i32[m]) -> f64[m] = [for l => slope(x[l], y, ks[l])]
"""
PLAIN = re.compile(r"^( *(?:let|var) \w+ = )(.*[^{])$")  # a value on one line
FUNCTION = re.compile(r"^fn (\w+)", re.MULTILINE)
LEAVING = re.compile(r"\b(return|break|continue|yield|for|while|@)\b|\|")


def called(program: str) -> dict[str, set[str]]:
    """The functions that each function of a program calls, itself or by others."""
    bodies = dict(zip(*[iter(FUNCTION.split(program)[1:])] * 2, strict=True))
    calls = {name: {other for other in bodies if re.search(rf"\b{other}\(", body)} for name, body in bodies.items()}
    for _ in bodies:
        calls = {name: to.union(*(calls[other] for other in to)) for name, to in calls.items()}
    return calls


def with_blocks(program: str) -> str:
    """The program with each value that stands on a line by itself, and leads to no call of its function, in a block."""
    lines: list[str] = []
    calls, around = called(program), ""
    for line in program.splitlines():
        around = name[1] if (name := FUNCTION.match(line)) else around
        found = PLAIN.match(line)
        again = [other for other, to in calls.items() if around in to and re.search(rf"\b{other}\(", line)]
        inside = found and not again and line.count("{") == line.count("}") and not LEAVING.search(found[2])
        lines.append(f"{found[1]}checkpoint {{ {found[2]} }}" if found and inside else line)
    return "\n".join(lines) + "\n"


def checkpointed(program: str, strategy: str) -> str:
    if strategy == "blocks":
        return with_blocks(program)
    return program.replace("fn f(", f"@checkpoint({strategy})\nfn f(")


def test_programs_are_really_changed() -> None:
    program = "fn f(x: f64) -> f64 {\n  let a = sin(x)\n  let g = |t| t * x\n  a + g(a)\n}\n"
    assert with_blocks(program).count("checkpoint") == 1
    again = program + "fn down(x: f64) -> f64 {\n  let a = up(x)\n  a\n}\nfn up(x: f64) -> f64 = down(f(x))\n"
    assert with_blocks(again).count("checkpoint") == 1
    assert checkpointed(program, "every, steps = 2").startswith("@checkpoint(every, steps = 2)\nfn f(")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.nightly_cases("30003")
def test_what_is_kept_changes_no_derivative(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checkpoint_store, "LARGE_STATE_BYTES", 0
    )  # states as small as these would be written where they are not kept too
    assert_same(seed, lambda function, *args: function(*args))


@pytest.mark.parametrize("seed", OTHERS)
def test_what_is_kept_changes_no_derivative_interpreted(seed: int) -> None:
    assert_same(seed, lambda function, *args: function.interpret(*args))


def assert_same(seed: int, run: Callable[..., Any]) -> None:
    """A program gives the same as it is and under its strategy."""
    program, strategy = random_program(seed), STRATEGIES[seed % len(STRATEGIES)]
    found: list[list[np.ndarray]] = []
    for text in (program, checkpointed(program, strategy)):
        of: Any = difflang.loads(HEADER + text + DERIVATIVES, name=f"seed{seed}")
        results = [
            run(of.derivatives, 0.3, 0.7, 3),
            run(of.lanes, np.array([0.3, 0.6, -0.2]), 0.7, np.array([3, 0, 1], np.int32)),
        ]
        found.append([np.asarray(x) for x in jax.tree.leaves(results)])
    for got, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12, err_msg=f"{strategy}\n{program}")
