"""An artifact loads where lark, the parser, the checker and the elaborator are absent, and all of it works there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import difflang

ROOT = Path(__file__).parents[3]
SOURCE = """
record Net[d] { w: f32[d], b: f32 }
fn loss(m: Net[d], x: f32[n, d], i: i32) -> f32 {
  var y = 0.0
  for row in 0..n { y = y + tanh(x[row] @ m.w + m.b)^2 }
  while y > 10.0 { y = y / 2 }
  y + m.w[i]
}
"""
ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        front = parts[0] == "difflang" and parts[1:2] and parts[1] in %(rooms)r
        if parts[0] in ("lark", "click", "rich", "flatbuffers", "flax", "optax") or front:
            raise ImportError(f"{name} is absent")

sys.meta_path.insert(0, Absent())
import json
import numpy as np
import jax
import difflang.runtime

f = difflang.runtime.load(sys.argv[1])
Net = f.classes["Net"]
m = Net(w=np.array([0.5, -1.0], np.float32), b=np.float32(0.25))
x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
found = {
    "value": f(m, x, 1),
    "gradient": f.grad("m")(m, x, 1).w,
    "hessian": f.hessian("m.w")(m, x, 1),
    "pullback": f.vjp("x")(m, x, 1)[1](np.float32(1.0)),
    "jax": jax.jit(jax.vmap(jax.grad(lambda b: f(Net(m.w, b), x, 1))))(x[0]),
    "interpreted": f.interpret(m, x, 1),
}
report = ""
try:
    f(m, x, 2)
except IndexError as error:
    report = str(error)
print(json.dumps([{n: np.asarray(v).tobytes().hex() for n, v in found.items()}, report]))
"""
ROOMS = ("syntax", "check", "elaborate", "api", "cli", "lsp", "spell", "audit", "plugin", "bridge")


@pytest.mark.as_users
def test_all_of_it_works_there(tmp_path: Path) -> None:
    module: Any = difflang.loads(SOURCE, name="absent")
    f, path = module.loss, tmp_path / "loss.dflx"
    f.export(path, "Net[2]", "f32[3, 2]", "i32")
    script = ABSENT % {"rooms": ROOMS}
    ran = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found, report = json.loads(ran.stdout)
    m = module.Net(w=np.array([0.5, -1.0], np.float32), b=np.float32(0.25))
    x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
    wanted = {
        "value": f(m, x, 1),
        "gradient": f.grad("m")(m, x, 1).w,
        "hessian": f.hessian("m.w")(m, x, 1),
        "pullback": f.vjp("x")(m, x, 1)[1](np.float32(1.0)),
        "jax": jax.jit(jax.vmap(jax.grad(lambda b: f(module.Net(m.w, b), x, 1))))(x[0]),
        "interpreted": f.interpret(m, x, 1),
    }
    assert found == {n: np.asarray(v).tobytes().hex() for n, v in wanted.items()}
    with pytest.raises(difflang.IndexFailure) as caught:
        f(m, x, 2)
    assert report == str(caught.value)
    assert "absent:7" in report
