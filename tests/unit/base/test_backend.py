"""XLA is set up in a process of our own, before JAX is there, and what a user has set stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from difflang.base.backend import OPTIONS, prepare_back_end


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", OPTIONS),
        ("--xla_cpu_enable_fast_math=false", f"--xla_cpu_enable_fast_math=false {OPTIONS}"),
        ("--xla_backend_extra_options=a=1", "--xla_backend_extra_options=a=1"),
    ],
)
def test_options_are_added_to_what_is_set(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    monkeypatch.setenv("XLA_FLAGS", before)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    prepare_back_end()
    assert os.environ["XLA_FLAGS"] == after


def test_a_process_that_has_jax_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setitem(sys.modules, "jax", object())
    prepare_back_end()
    assert not os.environ["XLA_FLAGS"]


@pytest.mark.parametrize("prepared", [True, False])
def test_xla_knows_the_option(prepared: bool) -> None:
    """A loop whose steps touch some kilobytes becomes one kernel with it, and does not without."""
    program = """
import jax, jax.numpy as jnp
step = lambda at: (at[0] + 1, 0.9 * jnp.sin(at[1]))
loop = jax.jit(lambda x: jax.lax.while_loop(lambda at: at[0] < 3, step, (0, x)))
print("small_call" in loop.lower(jnp.ones(400)).compile().as_text())
"""
    prepare = "from difflang.base.backend import prepare_back_end\nprepare_back_end()" if prepared else ""
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    command = [sys.executable, "-c", prepare + program]
    found = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert found.stdout.strip() == str(prepared)
