"""What the gradient of a loop of unknown length costs: `python benchmarks/loops.py`.

Each row is a loop that its data end: the time of the loop, that of its gradient over that of the loop, and, where
equinox is installed and would end, the same ratio for its checkpointed loop. All are measured in turns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import jax
import jax.numpy as jnp
import numpy as np

import difflang
from timing import Run, Spread, interleaved, ratio

SOURCE = """
fn wave(w: f32[n], k: i32) -> f32 {
  var x = w
  var i = 0
  while i < k {
    x = sin(1.01 * x) + 0.1 * w
    i += 1
  }
  sum(x)
}
"""
SIZES = ((1, 10), (1, 1_000), (1, 100_000), (10, 10_000), (1_000, 1_000), (1_000, 100_000), (10_000, 10_000))
Loss = Callable[[Any, Any], Any]


def equinox_wave(most: int) -> Loss | None:
    """The same loop in equinox, which is told how many steps there may be; none if it is not there."""
    if most > 10_000:
        return None  # some minutes a run
    try:
        from equinox.internal import while_loop
    except ImportError:
        return None

    def wave(w: Any, k: Any) -> Any:
        def body(state: Any) -> Any:
            return state[0] + 1, jnp.sin(1.01 * state[1]) + 0.1 * w

        return jnp.sum(while_loop(lambda s: s[0] < k, body, (jnp.int32(0), w), kind="checkpointed", max_steps=most)[1])

    return wave


def waiting(f: Loss, w: Any, k: Any) -> Run:
    return lambda: jax.block_until_ready(f(w, k))


def row(module: Any, size: int, steps: int) -> str:
    w, k = jnp.linspace(0.1, 1.0, size, dtype=jnp.float32), jnp.int32(steps)
    ways: dict[str, Loss] = {"difflang": module.wave, "difflang'": module.wave.grad("w")}
    if theirs := equinox_wave(steps):
        ways |= {"equinox": jax.jit(theirs), "equinox'": jax.jit(jax.grad(theirs))}
        np.testing.assert_allclose(ways["difflang'"](w, k), ways["equinox'"](w, k), rtol=1e-3, atol=1e-6)
    runs = {name: waiting(f, w, k) for name, f in ways.items()}
    for run in runs.values():
        run()
    seconds = interleaved(runs, 3 if size * steps > 10**6 else 20)
    cells = [f"{size:>7,} {steps:>8,}   {1e3 * Spread.of(seconds['difflang']).median:>10.3f}"]
    for name in ("difflang", "equinox"):
        cells.append(f"{ratio(seconds[name + chr(39)], seconds[name])!s:>24}" if name in ways else f"{'-':>24}")
    return " ".join(cells)


def main() -> int:
    module = difflang.loads(SOURCE, name="loops")
    print(f"{'floats':>7} {'steps':>8}   {'loop, ms':>10} {'gradient / loop':>24} {'equinox':>24}")
    for size, steps in SIZES:
        print(row(module, size, steps), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
