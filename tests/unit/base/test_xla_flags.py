"""XLA's flags are set when the package is imported, and what a user has set stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from difflang.base.xla_flags import SMALL_LOOP_FLAG, set_xla_flags


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", SMALL_LOOP_FLAG),
        (SMALL_LOOP_FLAG, SMALL_LOOP_FLAG),
        ("--xla_cpu_enable_fast_math=false", f"--xla_cpu_enable_fast_math=false {SMALL_LOOP_FLAG}"),
        ("--xla_backend_extra_options=a=1", "--xla_backend_extra_options=a=1"),
        ("flags.txt", "flags.txt"),
    ],
)
def test_options_are_added_to_what_is_set(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    monkeypatch.setenv("XLA_FLAGS", before)
    set_xla_flags()
    assert os.environ["XLA_FLAGS"] == after


PROGRAM = '''
import jax, difflang
loop = difflang.loads("""
fn f(x: f64[400]) -> f64[400] {
  var y = x
  for _ in 0..3 { y = 0.9 * sin(y) }
  y
}
""", name="loop")
print("small_call" in loop.f.lower("f64[400]").compile().as_text())
'''


@pytest.mark.parametrize(
    ("flags", "small"), [("", True), ("--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1", False)]
)
def test_a_loop_whose_steps_touch_some_kilobytes_is_one_kernel(flags: str, small: bool) -> None:
    """JAX may have been imported before; what the user has set stays."""
    command, env = [sys.executable, "-c", PROGRAM], {**os.environ, "XLA_FLAGS": flags}
    found = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert found.stdout.strip() == str(small)
