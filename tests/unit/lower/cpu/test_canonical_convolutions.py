"""On the CPU every convolution has the order of axes for which XLA has fast code.

XLA does not bring it there itself in loops, branches and functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import difflang

CANONICAL = {
    1: "[b, 0, f]x[0, i, o]->[b, 0, f]",
    2: "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
    3: "[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]",
}
BODIES = {
    "plain": "{ grad(loss)(w, x) }",
    "loop": "{ var s = w\n for _ in 0..3 { s = s - 0.1 * grad(loss)(s, x) }\n s }",
    "branch": "{ if sum(x) > 0.0 { grad(loss)(w, x) } else { w } }",
    "kept": "{ grad(|w| { let y = checkpoint { tanh(loss(w, x)) }\n y * y })(w) }",
}


def program(space: int, options: str, channels: int, body: str) -> Any:
    """A gradient of two convolutions in a few surroundings."""
    x, w = f"f32[2{', 9' * space}, 8]", f"f32[{'3, ' * space}{channels}, 8]"
    call = f"conv{space}d(tanh(conv{space}d(x, w{options})), w{options})"
    return difflang.loads(f"fn loss(w: {w}, x: {x}) -> f32 = mean({call}^2)\nfn f(w: {w}, x: {x}) -> {w} {body}"), (
        w,
        x,
    )


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    ("space", "options", "channels"),
    [(2, ", padding = 1", 8), (1, ", dilation = 2", 8), (2, ", stride = 2, groups = 4", 2), (3, ", padding = 1", 8)],
)
def test_axes_are_in_order_wherever_a_convolution_stands(space: int, options: str, channels: int, body: str) -> None:
    module, types = program(space, options, channels, BODIES[body])
    text = module.f.stablehlo(*types, platform="cpu")
    assert text.count("dim_numbers = ") == text.count(CANONICAL[space]) >= 5
    elsewhere = module.f.stablehlo(*types, platform="cuda")
    assert elsewhere.count("dim_numbers = ") > elsewhere.count(CANONICAL[space])


def test_a_loop_has_the_bits_of_its_steps() -> None:
    module, _ = program(2, ", padding = 1", 8, BODIES["loop"])
    rng = np.random.default_rng(0)
    w, x = [rng.normal(size=s).astype(np.float32) for s in ((3, 3, 8, 8), (2, 9, 9, 8))]
    step: Any = difflang.loads("""
fn loss(w: f32[3, 3, 8, 8], x: f32[2, 9, 9, 8]) -> f32 =
  mean(conv2d(tanh(conv2d(x, w, padding = 1)), w, padding = 1)^2)
fn step(w: f32[3, 3, 8, 8], x: f32[2, 9, 9, 8]) -> f32[3, 3, 8, 8] = w - 0.1 * grad(loss)(w, x)
""").step
    np.testing.assert_array_equal(module.f(w, x), step(step(step(w, x), x), x))
