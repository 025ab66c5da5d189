"""Each rewrite that only makes programs faster can be left out, and then another program is compiled."""

from __future__ import annotations

import pytest

import difflang
from difflang.passes.measured_rewrites import REWRITES, leave_out

CHAIN = "\n".join(["  y = y * 0.9 + sin(y)"] * 60)
PROGRAMS = {
    "branch_on_small_arguments": ("fn f(x: f64[n]) -> f64 = sum(sin(x))", ["f64[100000]"]),
    "split_fusion_chains": (f"fn f(x: f64[n]) -> f64 {{\n  var y = x\n{CHAIN}\n  sum(y)\n}}", ["f64[4]"]),
    "contract_after_loops": (
        "fn f(a: f64[n, n], x: f64[n]) -> f64 {\n  var h = x\n  for i in 0..50 { h = tanh(a @ h) }\n  sum(h)\n}",
        ["f64[8, 8]", "f64[8]"],
    ),
    "dot_cpu_lower": ("fn f(w: f64[k, m], x: f64[n, k]) -> f64 = sum(tanh(x @ w))", ["f64[32, 4]", "f64[1600, 32]"]),
    "unroll": (
        "fn f(x: f64[n]) -> f64 {\n  var y = x\n  for i in 0..50 { for j in 0..3 { y = sin(y) } }\n  sum(y)\n}",
        ["f64[4]"],
    ),
    "drop_batch_axes": (
        "fn f(w: f64[h, k, m], x: f64[h, n, k]) -> f64 = sum(tanh(sum(x @ w, axis = 0)))",
        ["f64[5, 3, 2]", "f64[5, 4, 3]"],
    ),
}


@pytest.mark.parametrize("name", [r.name for r in REWRITES])
def test_without_it_the_program_is_another(name: str) -> None:
    source, types = PROGRAMS[name]

    def lowered() -> str:
        return difflang.loads(source, name="f").f.grad().lower(*types, platform="cpu").as_text()

    with leave_out(name):
        without = lowered()
    assert lowered() == lowered() != without


def test_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="there are no rewrites rewritten"), leave_out("rewritten"):
        pass
