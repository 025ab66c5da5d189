"""A process that is forked after a call says at once that it cannot run compiled programs."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, sys, traceback
import numpy as np
import difflang
m = difflang.loads("fn f(x: f64[n]) -> f64 = sum(sin(x))\\nfn g(x: f64) -> f64 = x * x", name="forked")
x = np.ones(3)
BEFORE
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    print("value", AFTER, flush=True)
except difflang.DifflangError as error:
    print(error.diagnostics[0].code, error.diagnostics[0].message, flush=True)
os._exit(0)
"""


def forked(before: str, after: str) -> str:
    code = PROGRAM.replace("BEFORE", before).replace("AFTER", after)
    begun = time.monotonic()
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=50)
    assert found.returncode == 0, found.stderr
    assert time.monotonic() - begun < 40
    return found.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("m.f(x)", "m.f(x)"),
        ("import jax.numpy as jnp; y = jnp.ones(3, jnp.float32); [m.f(x) for _ in range(3)]", "m.f(x)"),
        ("m.f(x); m.f(np.ones(4))", "m.f(x)"),
        ("m.f(x)", "m.f(np.ones(7))"),
        ("m.f(x)", "m.g(1.0)"),
        ("m.f(x)", "m.f.grad()(x)"),
    ],
)
def test_a_compiled_program_is_refused_in_the_child(before: str, after: str) -> None:
    assert forked(before, after).startswith("DL1011 this process was forked after XLA had started")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on this system")
@pytest.mark.parametrize(
    ("before", "after"), [("m.f(x)", "m.f.interpret(x) == m.f.interpret(x)"), ("", "m.g(1.5) == 2.25")]
)
def test_what_needs_no_threads_of_the_parent_runs_in_the_child(before: str, after: str) -> None:
    assert forked(before, after) == "value True\n"
